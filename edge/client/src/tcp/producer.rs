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

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use wire::request::Produce;
use wire::{Effect, Reason};

use super::Client;
use super::connection::{Pending, Session};
use crate::{Batch, Error};

const RETRY_PAUSE: Duration = Duration::from_millis(200);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);

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
    on_retry: Box<dyn FnMut(Reason) + Send>,
}

struct InFlight {
    produce: Produce,
    pending: Result<Pending, Error>,
}

impl Producer {
    pub(super) fn new(client: Client, topic: &str, in_flight_max: usize) -> Self {
        Self {
            session: client.session(),
            client,
            topic: Bytes::copy_from_slice(topic.as_bytes()),
            in_flight_max: in_flight_max.max(1),
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
        while self.in_flight.len() >= self.in_flight_max {
            self.settle_front().await?;
        }
        let produce = batch.into_produce(Some(self.topic.clone()));
        let pending = self.client.submit_produce(produce.clone(), self.session).await;
        self.in_flight.push_back(InFlight { produce, pending });
        Ok(())
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

    async fn settle_front(&mut self) -> Result<(), Error> {
        let Some(InFlight { produce, pending }) = self.in_flight.pop_front() else { return Ok(()) };
        match self.outcome(pending).await {
            Ok(count) => {
                self.count_stored(count, false);
                Ok(())
            }
            Err(error) => self.recover(produce, error).await,
        }
    }

    async fn outcome(&self, pending: Result<Pending, Error>) -> Result<u32, Error> {
        self.client.stored(pending?).await
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
    async fn recover(&mut self, produce: Produce, error: Error) -> Result<(), Error> {
        // Later successes are not in front until the gap is filled.
        let mut behind = 0;
        let mut refused = VecDeque::from([(produce, error)]);
        self.gap = true;
        while let Some(InFlight { produce, pending }) = self.in_flight.pop_front() {
            match self.outcome(pending).await {
                Ok(count) => {
                    self.count_stored(count, true);
                    behind += u64::from(count);
                }
                Err(error) => refused.push_back((produce, error)),
            }
        }
        if let Some((_, error)) = refused.iter().find(|(_, error)| again(error).is_none()) {
            let error = error.clone();
            return Err(self.fail(refused, error));
        }
        while let Some((produce, mut error)) = refused.pop_front() {
            let mut pause = RETRY_PAUSE;
            loop {
                let Some(reason) = again(&error) else {
                    let cause = error.clone();
                    refused.push_front((produce, error));
                    return Err(self.fail(refused, cause));
                };
                (self.on_retry)(reason);
                sleep(pause).await;
                pause = next_pause(reason, pause);
                let pending = self.client.submit_produce(produce.clone(), self.session).await;
                match self.outcome(pending).await {
                    Ok(count) => {
                        self.count_stored(count, false);
                        // The first refused batches close the gap as they are stored, in order.
                        self.progress.stored_in_front += u64::from(count);
                        break;
                    }
                    Err(next) => error = next,
                }
            }
        }
        self.progress.stored_in_front += behind;
        self.gap = false;
        Ok(())
    }

    fn fail(&mut self, failed: VecDeque<(Produce, Error)>, error: Error) -> Error {
        for (produce, error) in failed {
            match error.effect() {
                Effect::None => self.progress.refused += u64::from(produce.count),
                Effect::Unknown => self.progress.unknown += u64::from(produce.count),
            }
        }
        self.failed = Some(error.clone());
        error
    }
}

/// The reasons a batch is sent again for: routing is settling, or the broker had no room.
fn again(error: &Error) -> Option<Reason> {
    error.reason().filter(|reason| matches!(reason, Reason::Migrating | Reason::Overloaded))
}

fn next_pause(reason: Reason, pause: Duration) -> Duration {
    if reason == Reason::Overloaded { (pause * 2).min(BACK_OFF_MAX) } else { RETRY_PAUSE }
}
