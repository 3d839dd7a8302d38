//! Single records, gathered into batches without ever waiting for company.
//!
//! A batch leaves as soon as nothing is under way, or when it is full: while an answer is awaited the next
//! batch gathers, so a lone record leaves at once and a crowd shares requests.
//!
//! Invariants:
//! - records are stored in the order they were handed over, as far as [`Producer`] keeps it;
//! - each receipt is settled once; after a failure nothing more is sent and everything handed over later
//!   fails with the same error, because it must not overtake what was lost.

use tokio::sync::{mpsc, oneshot};
use types::record::Record;

use super::client::{CHECKSUM_BYTES, PRODUCE_BYTES, STAMP_BYTES};
use super::producer::Receipts;
use super::{Client, Producer};
use crate::{Batch, Error};

/// Records waiting in the channel before the next sender waits.
const WAITING_MAX: usize = 1024;

/// How records are gathered.
#[derive(Clone, Copy, Debug)]
pub struct OutboxOptions {
    /// Bytes of records that make a batch full. A longer record goes alone. 256 KiB unless set, and never
    /// more than a frame holds.
    pub batch_bytes: usize,
    /// Batches under way at once, at least 1; the second leaves only when it is full. 4 unless set.
    pub in_flight_max: usize,
}

impl Default for OutboxOptions {
    fn default() -> Self {
        Self { batch_bytes: 256 * 1024, in_flight_max: 4 }
    }
}

/// Sends single records to one topic. Clones share it.
#[derive(Clone, Debug)]
pub struct Outbox {
    commands: mpsc::Sender<Command>,
    record_bytes_max: usize,
}

/// Tells when a record is stored durably. Dropping it does not take the record back.
#[derive(Debug)]
pub struct Receipt {
    stored: oneshot::Receiver<Result<(), Error>>,
}

impl Receipt {
    /// Waits until the record is stored durably, or until it is known to have failed.
    pub async fn stored(self) -> Result<(), Error> {
        // A task that is gone has answered nothing.
        self.stored.await.unwrap_or(Err(Error::Closed))
    }
}

#[derive(Debug)]
enum Command {
    Append(Record, oneshot::Sender<Result<(), Error>>),
    Flush(oneshot::Sender<Result<(), Error>>),
}

impl Outbox {
    pub(super) fn start(client: &Client, topic: &str, options: OutboxOptions) -> Self {
        let (commands, receiver) = mpsc::channel(WAITING_MAX);
        let overhead = PRODUCE_BYTES + CHECKSUM_BYTES + STAMP_BYTES;
        let room = client.frame_bytes_max().saturating_sub(overhead + topic.len());
        let task = Task {
            producer: client.producer(topic, options.in_flight_max),
            commands: receiver,
            batch_bytes: options.batch_bytes.clamp(1, room.max(1)),
            gathered: Gathered::default(),
            next: None,
            flushes: Vec::new(),
        };
        tokio::spawn(task.run());
        Self { commands, record_bytes_max: room }
    }

    /// Hands a record over, waiting while too many wait. It leaves by itself. One that no frame holds is
    /// refused here and harms no other.
    pub async fn send(&self, record: Record) -> Result<Receipt, Error> {
        let (bytes, max) = (record.encoded_len(), self.record_bytes_max);
        if bytes > max {
            return Err(Error::TooLarge { bytes, max });
        }
        let (sender, stored) = oneshot::channel();
        self.commands.send(Command::Append(record, sender)).await.map_err(|_| Error::Closed)?;
        Ok(Receipt { stored })
    }

    /// Waits until everything handed over before is stored; the first failure otherwise.
    pub async fn flush(&self) -> Result<(), Error> {
        let (sender, done) = oneshot::channel();
        self.commands.send(Command::Flush(sender)).await.map_err(|_| Error::Closed)?;
        done.await.unwrap_or(Err(Error::Closed))
    }
}

/// A batch being gathered.
#[derive(Default)]
struct Gathered {
    batch: Batch,
    receipts: Receipts,
}

struct Task {
    producer: Producer,
    commands: mpsc::Receiver<Command>,
    batch_bytes: usize,
    gathered: Gathered,
    /// A record that did not fit what is gathered.
    next: Option<(Record, oneshot::Sender<Result<(), Error>>)>,
    /// Who waits for everything gathered so far.
    flushes: Vec<oneshot::Sender<Result<(), Error>>>,
}

impl Task {
    async fn run(mut self) {
        if let Err(error) = self.serve().await {
            self.refuse(&error).await;
        }
    }

    /// Runs until nobody has records any more and all are stored, or until one failed for good.
    async fn serve(&mut self) -> Result<(), Error> {
        let mut open = true;
        loop {
            let full = self.is_full();
            let leaves = self.producer.is_idle() || (full && self.producer.has_room());
            if leaves && !self.gathered.batch.is_empty() {
                let Gathered { batch, receipts } = std::mem::take(&mut self.gathered);
                self.producer.start(batch, receipts).await;
                if let Some((record, receipt)) = self.next.take() {
                    self.append(record, receipt);
                }
                continue;
            }
            if self.producer.is_idle() {
                // Nothing is gathered either, so whoever waits for that has waited enough.
                self.flushes.drain(..).for_each(|flush| drop(flush.send(Ok(()))));
                if !open {
                    return Ok(());
                }
            }
            let takes_more = open && !full && self.flushes.is_empty();
            tokio::select! {
                command = self.commands.recv(), if takes_more => match command {
                    None => open = false,
                    Some(command) => self.take(command),
                },
                () = self.producer.front_answered() => self.producer.settle_front().await?,
            }
        }
    }

    fn is_full(&self) -> bool {
        self.next.is_some() || self.gathered.batch.bytes() >= self.batch_bytes
    }

    /// Takes what is there already, so that it leaves together.
    fn take(&mut self, command: Command) {
        let mut command = Some(command);
        while let Some(next) = command {
            match next {
                Command::Append(record, receipt) => self.append(record, receipt),
                Command::Flush(flush) => self.flushes.push(flush),
            }
            if self.is_full() || !self.flushes.is_empty() {
                return;
            }
            command = self.commands.try_recv().ok();
        }
    }

    fn append(&mut self, record: Record, receipt: oneshot::Sender<Result<(), Error>>) {
        let (batch, receipts) = (&mut self.gathered.batch, &mut self.gathered.receipts);
        if !batch.is_empty() && batch.bytes() + record.encoded_len() > self.batch_bytes {
            self.next = Some((record, receipt));
            return;
        }
        batch.push(&record);
        receipts.push(receipt);
    }

    /// Fails everything that was not sent, and all that is still handed over.
    async fn refuse(mut self, error: &Error) {
        let refused = self.gathered.receipts.into_iter().chain(self.next.map(|(_, receipt)| receipt));
        // Whoever dropped its end does not want to know.
        refused.chain(self.flushes).for_each(|receipt| drop(receipt.send(Err(error.clone()))));
        while let Some(command) = self.commands.recv().await {
            let (Command::Append(_, receipt) | Command::Flush(receipt)) = command;
            let _ = receipt.send(Err(error.clone()));
        }
    }
}
