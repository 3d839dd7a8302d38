//! Reading beside everything else: batches, places in time, verification.

use types::{Offset, WallTime};

use super::Copy;
use crate::disk::{self, Output, Step};
use crate::planted::Bug;
use crate::segment::index::Entry;
use crate::segment::read::{Collect, Progress};
use crate::segment::scan::{Scan, Stop};
use crate::store::desk::{Desk, Owner};
use crate::store::{Damage, DamageClass, Error, Reply, Report, RequestId};

/// A read under way. Several run beside each other and beside appends.
#[derive(Debug)]
pub(in crate::store) struct ReadOp {
    request: RequestId,
    /// Where it started; past 0 it rests on an index entry, which may be wrong.
    start: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Batches { collect: Collect, from: Offset, bytes_max: usize },
    Time { scan: Scan, at: WallTime, found: Option<Offset>, misled: bool },
    Verify { scan: Scan, end: Offset, report: Report },
}

impl Copy {
    pub(super) fn start_read(&mut self, desk: &mut Desk, request: RequestId, from: Offset, bytes_max: usize) {
        let extent = self.extent();
        if from < extent.base {
            return desk.reply(request, Reply::Failed(Error::OutOfRange { base: extent.base }));
        }
        if from >= extent.end {
            // Damage is never the end of data, and nobody knows where the data of a copy ends that left service
            // while it took appends.
            let unsure = self.meta.latched.filter(|_| self.meta.sealed_at.is_none()).map(Error::Latched);
            let error =
                self.damage.map(Error::Damaged).or(unsure).unwrap_or(Error::EndOfData { end: extent.end });
            return desk.reply(request, Reply::Failed(error));
        }
        let cached = self.log.as_ref().and_then(|log| log.cached(from, bytes_max));
        if let Some(batches) = cached {
            return desk.reply(request, Reply::Read(batches));
        }
        self.collect(desk, request, self.entry_for(from), from, bytes_max);
    }

    fn collect(&mut self, desk: &mut Desk, request: RequestId, start: Entry, from: Offset, bytes_max: usize) {
        let interval = self.log.as_ref().map_or(0, |log| log.index.interval());
        let collect = Collect::new(self.meta.identity(), start, from, bytes_max, self.file_end());
        let collect = collect.behind(interval);
        let what = What::Batches { collect, from, bytes_max };
        self.go_on(desk, Box::new(ReadOp { request, start: start.position, what }));
    }

    pub(super) fn start_seek(&mut self, desk: &mut Desk, request: RequestId, at: WallTime) {
        let start = self.log.as_ref().and_then(|log| log.index.before(at));
        self.seek(desk, request, start.unwrap_or(self.log_start()), at);
    }

    fn seek(&mut self, desk: &mut Desk, request: RequestId, start: Entry, at: WallTime) {
        let scan = Scan::new(self.meta.identity(), start.position, start.offset, self.file_end());
        let what = What::Time {
            scan,
            at,
            found: None,
            misled: start.position > 0 && !desk.config.has_bug(Bug::TrustTimeIndex),
        };
        self.go_on(desk, Box::new(ReadOp { request, start: start.position, what }));
    }

    pub(super) fn start_verify(&mut self, desk: &mut Desk, request: RequestId) {
        let scan = Scan::new(self.meta.identity(), 0, self.meta.base, self.file_end());
        let report = Report { records: 0, bytes: 0, damage: None };
        let what = What::Verify { scan, end: self.extent().end, report };
        self.go_on(desk, Box::new(ReadOp { request, start: 0, what }));
    }

    /// Reads what the operation wants next, or ends it.
    fn go_on(&mut self, desk: &mut Desk, op: Box<ReadOp>) {
        let wants = match &op.what {
            What::Batches { collect, .. } => Some(collect.wants()),
            What::Time { scan, .. } | What::Verify { scan, .. } => scan.wants(),
        };
        let Some((at, len)) = wants else { return self.scanned(desk, *op) };
        let segment = self.meta.segment;
        let log = self.log.as_mut().expect("a copy is opened before it is read");
        let file = log.file(desk, segment);
        self.reads += 1;
        desk.run(Owner::Read(segment, op), vec![Step::Read { file, at, len }]);
    }

    /// Takes the completion of a read.
    pub(in crate::store) fn read_done(
        &mut self,
        desk: &mut Desk,
        mut op: Box<ReadOp>,
        result: Result<Output, disk::Error>,
    ) {
        self.reads -= 1;
        match result {
            Err(error) => desk.reply(op.request, Reply::Failed(Error::Storage(error))),
            Ok(Output::Done | Output::Length(_) | Output::Entries(_)) => {
                desk.reply(op.request, Reply::Failed(Error::Overloaded));
            }
            Ok(Output::Data(data)) => match &mut op.what {
                What::Batches { collect, from, bytes_max } => match collect.feed(data) {
                    Progress::More => self.go_on(desk, op),
                    Progress::Done(batches) => desk.reply(op.request, Reply::Read(batches)),
                    Progress::Damaged(_) if op.start > 0 && !desk.config.has_bug(Bug::TrustIndex) => {
                        // The index may have misled us: what the log itself says from its start is the truth.
                        let (from, bytes_max) = (*from, *bytes_max);
                        self.collect(desk, op.request, self.log_start(), from, bytes_max);
                    }
                    Progress::Damaged(damage) => self.read_damaged(desk, op.request, damage),
                },
                What::Time { scan, at, found, misled } => {
                    let (time, start) = (*at, op.start);
                    scan.feed(data, &mut |frame| {
                        let reached = frame.header.append_time >= time;
                        // The entry promised a frame before the time. Without one an earlier frame may qualify.
                        if frame.position == start {
                            *misled = reached && start > 0;
                        }
                        if reached {
                            *found = Some(frame.header.base_offset);
                        }
                        !reached
                    });
                    self.go_on(desk, op);
                }
                What::Verify { scan, report, .. } => {
                    scan.feed(data, &mut |frame| {
                        report.records += u64::from(frame.header.record_count);
                        report.bytes += frame.header.frame_len();
                        true
                    });
                    self.go_on(desk, op);
                }
            },
        }
        self.drain(desk);
    }

    /// Ends an operation whose scan has ended.
    fn scanned(&mut self, desk: &mut Desk, op: ReadOp) {
        let extent = self.extent();
        match op.what {
            What::Batches { .. } => {}
            What::Time { scan, at, found, misled } => {
                let bad = match scan.stop() {
                    Some(Stop::Bad(damage)) => Some(damage),
                    Some(Stop::Limit { .. }) | None => self.damage.filter(|_| found.is_none()),
                };
                match (bad, found) {
                    _ if op.start > 0 && (misled || bad.is_some()) => {
                        self.seek(desk, op.request, self.log_start(), at);
                    }
                    (Some(damage), _) => self.read_damaged(desk, op.request, damage),
                    (None, found) => desk.reply(op.request, Reply::Sought(found.unwrap_or(extent.end))),
                }
            }
            What::Verify { scan, end: due, mut report } => {
                report.damage = match scan.stop() {
                    Some(Stop::Bad(damage)) => Some(damage),
                    Some(Stop::Limit { position, end }) if end != due => {
                        Some(Damage { position, offset: end, class: DamageClass::Order })
                    }
                    Some(Stop::Limit { .. }) | None => self.damage,
                };
                desk.reply(op.request, Reply::Verified(report));
            }
        }
    }

    /// How far the log's file can be read.
    fn file_end(&self) -> u64 {
        let written =
            self.log.as_ref().filter(|_| self.meta.sealed_at.is_none()).map(|log| log.written.position);
        written.unwrap_or(self.meta.durable_position)
    }

    fn read_damaged(&mut self, desk: &mut Desk, request: RequestId, damage: Damage) {
        self.latch_damaged(desk, damage);
        desk.reply(request, Reply::Failed(Error::Damaged(damage)));
    }

    /// The entry every log begins with.
    pub(super) fn log_start(&self) -> Entry {
        Entry { offset: self.meta.base, time: WallTime::default(), position: 0 }
    }

    /// The entry a read for `offset` starts from: the log's own start unless the index knows better.
    pub(super) fn entry_for(&self, offset: Offset) -> Entry {
        self.log.as_ref().and_then(|log| log.index.floor(offset)).unwrap_or(self.log_start())
    }
}
