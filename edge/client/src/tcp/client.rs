//! The client's handle: one method for each operation.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use types::limits;
use wire::request::{Commit, Fetch, Produce};
use wire::response::Page;
use wire::{Payload, Request, Response, Str};

use super::connection::{Connection, Pending, Session};
use super::{Options, Producer};
use crate::{Batch, Error, Record};

/// A connection to a broker. Clones share it; requests of all of them are in flight together, and those of
/// one clone are sent in the order they were made.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Connection,
    request_timeout: Duration,
    frame_bytes_max: usize,
}

impl Client {
    /// Connects to `host:port` and authenticates.
    pub async fn connect(address: &str, user: &str, password: &str) -> Result<Self, Error> {
        Self::connect_with(Options::new(address, user, password)).await
    }

    /// Connects and authenticates with bounds of the caller's own.
    pub async fn connect_with(options: Options) -> Result<Self, Error> {
        let (request_timeout, frame_bytes_max) = (options.request_timeout, options.frame_bytes_max);
        Ok(Self { connection: Connection::open(options).await?, request_timeout, frame_bytes_max })
    }

    /// Makes a topic of `2^keyspace_bits` key positions; 0 takes the broker's default.
    pub async fn create_topic(&self, topic: &str, keyspace_bits: u8) -> Result<(), Error> {
        self.call(Request::CreateTopic { topic: string(topic.as_bytes()), keyspace_bits }).await.map(|_| ())
    }

    /// Appends records in one request; gives how many were stored durably.
    pub async fn produce(&self, topic: &str, records: &[Record]) -> Result<u32, Error> {
        self.produce_batch(topic, records.iter().collect()).await
    }

    /// Appends a batch in one request; gives how many records were stored durably.
    pub async fn produce_batch(&self, topic: &str, batch: Batch) -> Result<u32, Error> {
        stored(self.call(Request::Produce(batch.into_produce(string(topic.as_bytes())))).await?)
    }

    /// A producer with up to `in_flight_max` requests under way at once, at least 1.
    #[must_use]
    pub fn producer(&self, topic: &str, in_flight_max: usize) -> Producer {
        Producer::new(self.clone(), topic, in_flight_max)
    }

    /// Reads records.
    pub async fn fetch(&self, fetch: Fetch) -> Result<Page, Error> {
        let wait = Duration::from_millis(fetch.wait_ms_effective().into());
        match self.call_within(Request::Fetch(fetch), self.request_timeout + wait).await? {
            Payload::Page(page) => Ok(page),
            Payload::Empty
            | Payload::Token(_)
            | Payload::Stored(_)
            | Payload::Users(_)
            | Payload::Grants(_) => Err(mismatch()),
        }
    }

    /// Stores a group's positions durably.
    pub async fn commit(&self, topic: &str, group: &[u8], cursor: Bytes) -> Result<(), Error> {
        let commit = Commit { topic: string(topic.as_bytes()), group: string(group), cursor: Some(cursor) };
        self.call(Request::Commit(commit)).await.map(|_| ())
    }

    /// Takes a member out of its group.
    pub async fn leave_group(&self, topic: &str, group: &[u8], member: &[u8]) -> Result<(), Error> {
        let (topic, group, member) = (string(topic.as_bytes()), string(group), string(member));
        self.call(Request::LeaveGroup { topic, group, member }).await.map(|_| ())
    }

    /// Sends any request that has an answer. `subscribe` and `stream_ack` do not belong here.
    pub async fn call(&self, request: Request) -> Result<Payload, Error> {
        self.call_within(request, self.request_timeout).await
    }

    async fn call_within(&self, request: Request, longest: Duration) -> Result<Payload, Error> {
        let exchange = async { settled(self.submit(request, self.session()).await?).await };
        timeout(longest, exchange).await.unwrap_or(Err(Error::TimedOut))
    }

    /// The session that requests sent now belong to.
    pub(super) fn session(&self) -> Session {
        self.connection.session()
    }

    /// Sends a request without waiting for its answer.
    async fn submit(&self, request: Request, session: Session) -> Result<Pending, Error> {
        if let Request::Produce(produce) = &request {
            self.fits(produce)?;
        }
        self.connection.submit(request, session).await
    }

    /// Sends a produce request; it is on its way, behind earlier ones, when this returns.
    pub(super) async fn submit_produce(&self, produce: Produce, session: Session) -> Result<Pending, Error> {
        let submit = self.submit(Request::Produce(produce), session);
        timeout(self.request_timeout, submit).await.unwrap_or(Err(Error::TimedOut))
    }

    /// Waits for the answer of [`submit_produce`](Self::submit_produce).
    pub(super) async fn stored(&self, pending: Pending) -> Result<u32, Error> {
        stored(timeout(self.request_timeout, settled(pending)).await.unwrap_or(Err(Error::TimedOut))?)
    }

    fn fits(&self, produce: &Produce) -> Result<(), Error> {
        let topic = produce.topic.as_ref().map_or(1, |topic| 5 + topic.len());
        let bytes = wire::request::ENVELOPE_BYTES + topic + 4 + produce.records.len();
        let max = self.frame_bytes_max.min(limits::FRAME_BYTES_MAX);
        if bytes > max { Err(Error::TooLarge { bytes, max }) } else { Ok(()) }
    }
}

async fn settled(pending: Pending) -> Result<Payload, Error> {
    // A task that is gone has answered nothing.
    payload(pending.await.unwrap_or(Err(Error::Closed))?)
}

pub(super) fn payload(response: Response) -> Result<Payload, Error> {
    match response {
        Response::Ok(payload) => Ok(payload),
        Response::Error(reason) => Err(Error::Refused(reason)),
        Response::UnknownError(token) => {
            Err(Error::RefusedUnknown(String::from_utf8_lossy(&token).into_owned()))
        }
    }
}

fn stored(payload: Payload) -> Result<u32, Error> {
    match payload {
        Payload::Stored(count) => Ok(count),
        Payload::Empty | Payload::Token(_) | Payload::Page(_) | Payload::Users(_) | Payload::Grants(_) => {
            Err(mismatch())
        }
    }
}

fn mismatch() -> Error {
    Error::Protocol("the answer to something else".to_owned())
}

fn string(bytes: &[u8]) -> Str {
    Some(Bytes::copy_from_slice(bytes))
}
