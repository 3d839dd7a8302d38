//! Reading back: what the broker acknowledged is there, whole, once, and in order.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use client::{Client, Consumer};
use types::record::Walk;

use super::Run;
use super::mark::{self, Mark, Marks};

/// What reading back found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Verified {
    /// Records the broker acknowledged.
    pub(super) acknowledged: u64,
    /// Records of this run that were read, each counted once.
    pub(super) found: u64,
    /// Acknowledged and not found.
    pub(super) missing: u64,
    /// Found with other bytes than were sent.
    pub(super) damaged: u64,
    /// Found again.
    pub(super) repeated: u64,
    /// Found behind a later record of the same connection and key.
    pub(super) out_of_order: u64,
    /// Found though their request failed; that is allowed.
    pub(super) unacknowledged: u64,
    /// All bytes of values read.
    pub(super) bytes: u64,
    /// Time it took.
    pub(super) elapsed: Duration,
    /// Whether records carried marks; else only their number was compared.
    pub(super) marked: bool,
}

impl Verified {
    /// Whether the broker kept its word.
    pub(super) fn is_good(&self) -> bool {
        self.missing == 0 && self.damaged == 0 && self.repeated == 0 && self.out_of_order == 0
    }
}

/// Reads the whole topic and compares.
pub(super) async fn read_back(run: &Run, client: &Client, marks: Vec<Marks>) -> anyhow::Result<Verified> {
    let builder = client.consumer(&run.topic).max(types::limits::FETCH_RECORDS_MAX).wait(Duration::ZERO);
    let mut consumer = builder.open().await.map_err(|error| run.args.connect.explain(error))?;
    let begin = Instant::now();
    let mut reader = Reader {
        run,
        marks: marks.into_iter().map(|marks| (marks.connection, marks)).collect(),
        last: BTreeMap::new(),
        read: 0,
        verified: Verified { marked: run.args.record_size >= mark::BYTES, ..Verified::default() },
    };
    reader.read_all(&mut consumer).await?;
    let mut verified = reader.finish();
    verified.elapsed = begin.elapsed();
    Ok(verified)
}

struct Reader<'a> {
    run: &'a Run,
    marks: BTreeMap<u32, Marks>,
    /// Sequence seen last, by connection and key.
    last: BTreeMap<(u32, u64), u64>,
    read: u64,
    verified: Verified,
}

impl Reader<'_> {
    async fn read_all(&mut self, consumer: &mut Consumer) -> anyhow::Result<()> {
        loop {
            let before = consumer.position().cloned();
            let page = consumer.poll().await.map_err(|error| self.run.args.connect.explain(error))?;
            if page.count == 0 && before.as_ref() == Some(&page.next_cursor) {
                return Ok(());
            }
            self.read += u64::from(page.count);
            for slice in &page.records {
                for span in Walk::new(slice) {
                    let span = span?;
                    let value = span.start + span.key.map_or(1, |key| 5 + key.len()) + 4;
                    self.take_in(&slice[value..value + span.value_bytes]);
                }
            }
        }
    }

    fn take_in(&mut self, value: &[u8]) {
        self.verified.bytes += value.len() as u64;
        if !self.verified.marked {
            return;
        }
        let Some(mark) = Mark::read(value).filter(|mark| mark.run == self.run.id) else { return };
        let Some(marks) = self.marks.get_mut(&mark.connection).filter(|marks| mark.sequence < marks.sent)
        else {
            // It says to be of this run and is of no connection of it.
            self.verified.damaged += 1;
            return;
        };
        if !mark.is_whole(value, self.run.args.record_size) {
            self.verified.damaged += 1;
            return;
        }
        if !marks.see(mark.sequence) {
            self.verified.repeated += 1;
            return;
        }
        self.verified.found += 1;
        if !marks.is_acknowledged(mark.sequence) {
            self.verified.unacknowledged += 1;
        }
        let key = (mark.connection, mark.sequence % u64::from(self.run.args.keys));
        if self.last.insert(key, mark.sequence).is_some_and(|last| last > mark.sequence) {
            self.verified.out_of_order += 1;
        }
    }

    fn finish(self) -> Verified {
        let mut verified = self.verified;
        verified.acknowledged = self.marks.values().map(|marks| marks.acknowledged).sum();
        if verified.marked {
            verified.missing = self.marks.values().map(Marks::missing).sum();
        } else {
            verified.found = self.read;
            verified.missing = (verified.acknowledged + self.run.filled).saturating_sub(self.read);
        }
        verified
    }
}
