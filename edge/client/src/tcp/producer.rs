//! Many produce requests under way at once, in order, with exact counts.
//!
//! Invariants:
//! - `stored + unknown + refused` records are accounted for after every call that returns;
//! - the broker applies one connection's produces to a topic in order, so while nothing is refused the topic
//!   holds the records in the order they were sent;
//! - after a refusal nothing new is sent until everything under way is settled; what may be sent again is
//!   sent one request at a time, in order. Requests that were already behind the refused one may have been
//!   stored before it: those are counted in [`Progress::overtaken`]. A producer with one request in flight
//!   never sees that.
//! - Without stamps only what certainly was not stored is sent again. With them also what may have been, and what
//!   was lost with its connection: the broker tells a repetition from a new request, or says that it cannot.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};
use types::{Stamp, limits};
use wire::request::Produce;
use wire::{Effect, Reason};

use super::Client;
use super::client::{payload, stored};
use super::connection::{Pending, Session};
use crate::backoff::Backoff;
use crate::identity::Identity;
use crate::{Batch, Error};

/// Where a producer's records are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Records that are stored durably.
    pub stored: u64,
    /// How many of the first records handed over are stored durably, without a gap.
    pub stored_in_front: u64,
    /// Records of failed requests that may have been stored, or may be later.
    pub unknown: u64,
    /// Records of failed requests that certainly were not.
    pub refused: u64,
    /// Records that were stored before earlier ones, because those were refused at first.
    pub overtaken: u64,
}

/// Sends batches to one topic. After an error it sends nothing any more.
pub struct Producer {
    client: Client,
    /// Ends when a request is lost with its connection, and with it everything this producer may send.
    session: Session,
    topic: Bytes,
    in_flight_max: usize,
    in_flight: VecDeque<InFlight>,
    progress: Progress,
    gap: bool,
    failed: Option<Error>,
    backoff: Backoff,
    /// Its name, and when that was given. None with an older broker, or when it is not wanted.
    identity: Option<(Identity, Instant)>,
    on_retry: Box<dyn FnMut(Reason) + Send>,
}

/// Who wants to know what became of a batch: one for each of its records, or nobody.
pub(super) type Receipts = Vec<oneshot::Sender<Result<(), Error>>>;

struct InFlight {
    sent: Sent,
    receipts: Receipts,
    answer: Answer,
}

/// A batch on its way, and what it takes to send it again.
struct Sent {
    produce: Produce,
    /// The same in all repetitions.
    stamp: Option<Stamp>,
    /// It may be stored already: a repetition must be one, and not a new request.
    doubtful: bool,
    /// The last attempt did not come to be sent, for want of a name.
    unsent: bool,
    /// Not repeated after this.
    until: Instant,
}

enum Answer {
    Awaited { pending: Pending, until: Instant },
    Known(Result<u32, Error>),
}

impl Answer {
    /// Waits until it is known. Cancelling loses nothing.
    async fn arrive(&mut self) {
        if let Self::Awaited { pending, until } = self {
            let answer = match timeout_at(*until, pending).await {
                // A task that is gone has answered nothing.
                Ok(answer) => answer.unwrap_or(Err(Error::Closed)),
                Err(_) => Err(Error::TimedOut),
            };
            *self = Self::Known(answer.and_then(payload).and_then(stored));
        }
    }

    async fn known(mut self) -> Result<u32, Error> {
        self.arrive().await;
        match self {
            Self::Known(result) => result,
            Self::Awaited { .. } => unreachable!("it has arrived"),
        }
    }
}

impl Producer {
    pub(super) fn new(client: Client, topic: &str, in_flight_max: usize) -> Self {
        Self {
            session: client.session(),
            backoff: Backoff::new(client.options().seed),
            identity: None,
            topic: Bytes::copy_from_slice(topic.as_bytes()),
            // A broker remembers so many requests of a producer.
            in_flight_max: in_flight_max.clamp(1, limits::PRODUCER_REQUESTS_MAX),
            client,
            in_flight: VecDeque::new(),
            progress: Progress::default(),
            gap: false,
            failed: None,
            on_retry: Box::new(|_| {}),
        }
    }

    /// Calls `hook` before each time that a refused request is sent again.
    pub fn on_retry(&mut self, hook: impl FnMut(Reason) + Send + 'static) {
        self.on_retry = Box::new(hook);
    }

    /// Where the records of settled requests are.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Sends a batch, waiting while as many as allowed are under way. An error may be that of an earlier
    /// batch; everything under way is then settled and [`progress`](Self::progress) is final.
    pub async fn send(&mut self, batch: Batch) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        while !self.has_room() {
            self.settle_front().await?;
        }
        self.start(batch, Receipts::new()).await;
        Ok(())
    }

    /// Whether another batch may be under way.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.len() < self.in_flight_max
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Sends a batch whether there is room or not.
    pub(super) async fn start(&mut self, batch: Batch, receipts: Receipts) {
        let produce = batch.into_produce(Some(self.topic.clone()));
        let until = Instant::now() + self.client.options().retry_for;
        let mut sent = Sent { produce, stamp: None, doubtful: false, unsent: false, until };
        let answer = self.submit(&mut sent).await;
        self.in_flight.push_back(InFlight { sent, receipts, answer });
    }

    /// Sends a batch, stamped if that is wanted and possible.
    async fn submit(&mut self, sent: &mut Sent) -> Answer {
        let stamped = self.stamp(sent).await;
        sent.unsent = stamped.is_err();
        if let Err(error) = stamped {
            return Answer::Known(Err(error));
        }
        let until = Instant::now() + self.client.options().request_timeout;
        let produce = sent.produce.clone();
        let submitted = match sent.stamp {
            Some(stamp) => self.client.submit_once(produce, stamp, self.session).await,
            None => self.client.submit_produce(produce, self.session).await,
        };
        match submitted {
            Ok(pending) => Answer::Awaited { pending, until },
            Err(error) => Answer::Known(Err(error)),
        }
    }

    /// Stamps a batch that has no stamp and that nobody can have stored.
    async fn stamp(&mut self, sent: &mut Sent) -> Result<(), Error> {
        let count = sent.produce.count;
        let wanted = self.client.options().idempotent && count > 0 && self.client.can_stamp(&sent.produce);
        if sent.stamp.is_some() || sent.doubtful || !wanted {
            return Ok(());
        }
        // A name whose numbers are used up makes way for another.
        for _ in 0..2 {
            if let Some((identity, at)) = &mut self.identity {
                let stamps = self.in_flight.iter().filter_map(|other| other.sent.stamp);
                let settled = stamps.filter(|stamp| identity.gave(stamp)).map(|stamp| stamp.first).min();
                sent.stamp = identity.stamp(count, settled, at.elapsed());
                if sent.stamp.is_some() {
                    return Ok(());
                }
            }
            let identity = self.client.new_producer(Some(self.topic.clone())).await?;
            self.identity = Some((identity, Instant::now()));
        }
        Ok(())
    }

    /// Waits until the first batch under way is answered; [`settle_front`](Self::settle_front) then goes on
    /// at once. Cancelling loses nothing. Waits for ever when nothing is under way.
    pub(super) async fn front_answered(&mut self) {
        match self.in_flight.front_mut() {
            Some(front) => front.answer.arrive().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until everything under way is settled.
    pub async fn flush(&mut self) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        while !self.in_flight.is_empty() {
            self.settle_front().await?;
        }
        Ok(())
    }

    /// Waits for the first batch under way, and sends again what may be. Not to be cancelled.
    pub(super) async fn settle_front(&mut self) -> Result<(), Error> {
        let Some(InFlight { sent, receipts, answer }) = self.in_flight.pop_front() else { return Ok(()) };
        match answer.known().await {
            Ok(count) => {
                self.count_stored(count, false);
                acknowledge(receipts, &Ok(()));
                Ok(())
            }
            Err(error) => self.recover(Refused::new(sent, receipts, error)).await,
        }
    }

    fn count_stored(&mut self, count: u32, overtaken: bool) {
        self.progress.stored += u64::from(count);
        if !self.gap {
            self.progress.stored_in_front += u64::from(count);
        }
        if overtaken {
            self.progress.overtaken += u64::from(count);
        }
    }

    /// Settles everything under way, then sends again what may be.
    async fn recover(&mut self, first: Refused) -> Result<(), Error> {
        // Later successes are not in front until the gap is filled.
        let mut behind = 0;
        let mut refused = VecDeque::from([first]);
        self.gap = true;
        while let Some(InFlight { sent, receipts, answer }) = self.in_flight.pop_front() {
            match answer.known().await {
                Ok(count) => {
                    self.count_stored(count, true);
                    acknowledge(receipts, &Ok(()));
                    behind += u64::from(count);
                }
                Err(error) => refused.push_back(Refused::new(sent, receipts, error)),
            }
        }
        let mut judge = self.backoff.clone();
        let hopeless = refused.iter().find(|batch| batch.pause(&mut judge).is_none());
        if let Some(error) = hopeless.map(Refused::told) {
            return Err(self.fail(refused, error));
        }
        while let Some(batch) = refused.pop_front() {
            match self.send_again(batch).await {
                // The first refused batches close the gap as they are stored, in order.
                Ok(count) => self.progress.stored_in_front += u64::from(count),
                Err(batch) => {
                    let error = batch.told();
                    refused.push_front(*batch);
                    return Err(self.fail(refused, error));
                }
            }
        }
        self.progress.stored_in_front += behind;
        self.gap = false;
        Ok(())
    }

    /// Sends one batch until it is stored, or failed for good.
    async fn send_again(&mut self, mut batch: Refused) -> Result<u32, Box<Refused>> {
        loop {
            let Some((reason, pause)) = batch.pause(&mut self.backoff) else {
                return Err(Box::new(batch));
            };
            (self.on_retry)(reason);
            sleep(pause).await;
            if batch.sent.stamp.is_some() || batch.sent.unsent {
                self.prepare_again(&mut batch);
            }
            match self.submit(&mut batch.sent).await.known().await {
                Ok(count) => {
                    self.backoff.reset();
                    self.count_stored(count, false);
                    acknowledge(batch.receipts, &Ok(()));
                    return Ok(count);
                }
                Err(error) => batch.fail(error),
            }
        }
    }

    /// A batch is about to be sent again, over another connection if the last one was lost, or is of no use.
    fn prepare_again(&mut self, batch: &mut Refused) {
        if matches!(batch.error, Error::TimedOut) {
            self.client.renew();
        }
        // Nothing is under way that it could overtake.
        self.session = self.client.session();
        if batch.error.reason() == Some(Reason::ProducerForgotten) {
            // It was never stored, and is sent as what it is: a new request, of another name and a later time.
            (self.identity, batch.sent.stamp) = (None, None);
        }
    }

    fn fail(&mut self, failed: VecDeque<Refused>, error: Error) -> Error {
        for batch in failed {
            let count = u64::from(batch.sent.produce.count);
            if batch.sent.doubtful {
                self.progress.unknown += count;
            } else {
                self.progress.refused += count;
            }
            let (error, receipts) = (batch.told(), batch.receipts);
            acknowledge(receipts, &Err(error));
        }
        self.failed = Some(error.clone());
        error
    }
}

/// A batch that was not stored, or perhaps not.
struct Refused {
    sent: Sent,
    receipts: Receipts,
    error: Error,
}

impl Refused {
    fn new(sent: Sent, receipts: Receipts, error: Error) -> Self {
        let mut refused = Self { sent, receipts, error: error.clone() };
        refused.fail(error);
        refused
    }

    /// It was tried and failed.
    fn fail(&mut self, error: Error) {
        self.sent.doubtful |= error.effect() == Effect::Unknown && !self.sent.unsent;
        self.error = error;
    }

    /// The error as whoever handed it over is told: of all attempts, not of the last alone.
    fn told(&self) -> Error {
        if self.sent.doubtful && self.error.effect() == Effect::None {
            Error::InDoubt(Arc::new(self.error.clone()))
        } else {
            self.error.clone()
        }
    }

    /// When it is sent again, and what for. Without a stamp only when certainly nothing of it was stored and the refusal
    /// passes by itself.
    fn pause(&self, backoff: &mut Backoff) -> Option<(Reason, Duration)> {
        let reason = self.error.reason();
        if self.sent.stamp.is_none() && !self.sent.unsent {
            let reason = reason?;
            return backoff.pause_after(reason).map(|pause| (reason, pause));
        }
        if Instant::now() >= self.sent.until {
            return None;
        }
        let again = match reason {
            Some(Reason::ProducerForgotten) => !self.sent.doubtful,
            Some(reason) => reason.retry_helps(),
            None => self.error.lost_connection(),
        };
        again.then(|| (reason.unwrap_or(Reason::Unreachable), backoff.pause()))
    }
}

fn acknowledge(receipts: Receipts, result: &Result<(), Error>) {
    for receipt in receipts {
        // Whoever dropped its end does not want to know.
        let _ = receipt.send(result.clone());
    }
}
