//! The client's handle: requests, and what reads and writes records.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use types::{Stamp, limits};
use wire::request::{Commit, Fetch, Produce, ProduceBatch, ProduceOnce};
use wire::response::{BatchPage, Hello, Page};
use wire::{Payload, Request, Response, Str, features};

use super::connection::{Connection, Pending, Session};
use super::{ConsumerBuilder, Options, Outbox, OutboxOptions, Producer, SubscriptionBuilder};
use crate::identity::Identity;
use crate::{Batch, Error, Record, link};

/// A connection to a broker. Clones share it; requests of all of them are in flight together, and those of
/// one clone are sent in the order they were made.
#[derive(Clone, Debug)]
pub struct Client {
    connection: Connection,
    options: Arc<Options>,
}

impl Client {
    /// Connects to `host:port` and authenticates.
    pub async fn connect(address: &str, user: &str, password: &str) -> Result<Self, Error> {
        Self::connect_with(Options::new(address, user, password)).await
    }

    /// Connects and authenticates with bounds of the caller's own.
    pub async fn connect_with(options: Options) -> Result<Self, Error> {
        Self::open(Arc::new(options)).await
    }

    pub(super) async fn open(options: Arc<Options>) -> Result<Self, Error> {
        Ok(Self { connection: Connection::open(Options::clone(&options)).await?, options })
    }

    pub(super) fn options(&self) -> &Arc<Options> {
        &self.options
    }

    /// What the broker said of itself when the newest connection was made; `None` when it is too old to.
    #[must_use]
    pub fn server(&self) -> Option<Hello> {
        self.connection.hello()
    }

    /// Appends records in one request; gives how many were stored durably.
    pub async fn produce(&self, topic: &str, records: &[Record]) -> Result<u32, Error> {
        self.produce_batch(topic, records.iter().collect()).await
    }

    /// Appends a batch in one request; gives how many records were stored durably.
    pub async fn produce_batch(&self, topic: &str, batch: Batch) -> Result<u32, Error> {
        let produce = batch.into_produce(string(topic.as_bytes()));
        let pending = self.submit_produce(produce, self.session()).await?;
        self.stored(pending).await
    }

    /// A producer of batches with up to `in_flight_max` requests under way at once, at least 1.
    #[must_use]
    pub fn producer(&self, topic: &str, in_flight_max: usize) -> Producer {
        Producer::new(self.clone(), topic, in_flight_max)
    }

    /// A producer of single records that gathers them by itself.
    #[must_use]
    pub fn outbox(&self, topic: &str) -> Outbox {
        self.outbox_with(topic, OutboxOptions::default())
    }

    /// The same with bounds of the caller's own.
    #[must_use]
    pub fn outbox_with(&self, topic: &str, options: OutboxOptions) -> Outbox {
        Outbox::start(self, topic, options)
    }

    /// A reader of a topic, with a connection of its own: a long poll holds back what is behind it.
    #[must_use]
    pub fn consumer(&self, topic: &str) -> ConsumerBuilder {
        ConsumerBuilder::new(Arc::clone(&self.options), topic)
    }

    /// A reader of a topic that the broker pushes to, with a connection of its own.
    #[must_use]
    pub fn subscription(&self, topic: &str, group: &[u8]) -> SubscriptionBuilder {
        SubscriptionBuilder::new(Arc::clone(&self.options), topic, group)
    }

    /// Reads records.
    pub async fn fetch(&self, fetch: Fetch) -> Result<Page, Error> {
        let wait = Duration::from_millis(fetch.wait_ms_effective().into());
        let payload = self.call_within(Request::Fetch(fetch), self.options.request_timeout + wait).await?;
        let Payload::Page(page) = payload else { return Err(mismatch()) };
        Ok(page)
    }

    /// Reads records in batches, with the time each was appended at; their checksums were compared.
    pub async fn fetch_batches(&self, fetch: Fetch) -> Result<BatchPage, Error> {
        let wait = Duration::from_millis(fetch.wait_ms_effective().into());
        let request = Request::FetchBatches(fetch);
        let payload = self.call_within(request, self.options.request_timeout + wait).await?;
        let Payload::Batches(page) = payload else { return Err(mismatch()) };
        if page.batches.iter().all(wire::response::Batch::is_intact) {
            Ok(page)
        } else {
            Err(Error::Protocol("records that do not match their checksum".to_owned()))
        }
    }

    /// Reads records as [`fetch`](Self::fetch) does, and compares their checksums on the way when the broker
    /// has them and [`Options::checksums`] is set.
    pub async fn read(&self, fetch: Fetch) -> Result<Page, Error> {
        if !self.options.checksums || !self.connection.has(features::BATCHES) {
            return self.fetch(fetch).await;
        }
        let page = self.fetch_batches(fetch).await?;
        Ok(Page {
            count: page.batches.iter().map(|batch| batch.count).sum(),
            records: page.batches.into_iter().map(|batch| batch.records).collect(),
            next_cursor: page.next_cursor,
        })
    }

    /// Stores a group's positions durably.
    pub async fn commit(&self, topic: &str, group: &[u8], cursor: Bytes) -> Result<(), Error> {
        let commit = Commit { topic: string(topic.as_bytes()), group: string(group), cursor: Some(cursor) };
        self.done(Request::Commit(commit)).await
    }

    /// Takes a member out of its group.
    pub async fn leave_group(&self, topic: &str, group: &[u8], member: &[u8]) -> Result<(), Error> {
        let (topic, group, member) = (string(topic.as_bytes()), string(group), string(member));
        self.done(Request::LeaveGroup { topic, group, member }).await
    }

    /// The cursor before the first record of each range that was appended at `at_ms` or later, milliseconds
    /// since 1970: 0 is the beginning, `u64::MAX` the end.
    pub async fn seek_time(&self, topic: &str, at_ms: u64) -> Result<Bytes, Error> {
        let payload = self.call(Request::SeekTime { topic: string(topic.as_bytes()), at_ms }).await?;
        let Payload::Cursor(cursor) = payload else { return Err(mismatch()) };
        Ok(cursor)
    }

    /// Sends any request that has an answer; one of a stream is [`Error::Misuse`].
    pub async fn call(&self, request: Request) -> Result<Payload, Error> {
        self.call_within(request, self.options.request_timeout).await
    }

    /// Sends a request whose success says nothing.
    pub(super) async fn done(&self, request: Request) -> Result<(), Error> {
        let Payload::Empty = self.call(request).await? else { return Err(mismatch()) };
        Ok(())
    }

    /// The same for a request that may take so much longer than others.
    pub(super) async fn call_for(&self, request: Request, more: Duration) -> Result<Payload, Error> {
        self.call_within(request, self.options.request_timeout.saturating_add(more)).await
    }

    async fn call_within(&self, request: Request, longest: Duration) -> Result<Payload, Error> {
        if link::is_of_streams(request.api_key()) {
            return Err(Error::Misuse("a stream is opened by a subscription"));
        }
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
        self.fits(&produce)?;
        let wanted = self.options.checksums && self.connection.has(features::BATCHES);
        // A request that just fits goes without.
        let request = if wanted && produce_bytes(&produce) + CHECKSUM_BYTES <= self.frame_bytes_max() {
            Request::ProduceBatch(ProduceBatch::of(produce))
        } else {
            Request::Produce(produce)
        };
        let submit = self.connection.submit(request, session);
        timeout(self.options.request_timeout, submit).await.unwrap_or(Err(Error::TimedOut))
    }

    /// The same with a stamp, which has to fit.
    pub(super) async fn submit_once(
        &self,
        produce: Produce,
        stamp: Stamp,
        session: Session,
    ) -> Result<Pending, Error> {
        let request = Request::ProduceOnce(ProduceOnce { stamp, batch: ProduceBatch::of(produce) });
        let submit = self.connection.submit(request, session);
        timeout(self.options.request_timeout, submit).await.unwrap_or(Err(Error::TimedOut))
    }

    /// Whether the broker notices repetitions and a request of this one can bear a stamp.
    pub(super) fn can_stamp(&self, produce: &Produce) -> bool {
        self.connection.has(features::ONCE)
            && produce_bytes(produce) + CHECKSUM_BYTES + STAMP_BYTES <= self.frame_bytes_max()
    }

    /// A name for a producer of a topic.
    pub(super) async fn new_producer(&self, topic: Str) -> Result<Identity, Error> {
        let Payload::Producer { id, now_ms } = self.call(Request::NewProducer { topic }).await? else {
            return Err(mismatch());
        };
        Ok(Identity::new(id, now_ms))
    }

    /// The connection is of no use: everything on it fails, and the next request goes over another.
    pub(super) fn renew(&self) {
        self.connection.renew();
    }

    /// Waits for the answer of [`submit_produce`](Self::submit_produce).
    pub(super) async fn stored(&self, pending: Pending) -> Result<u32, Error> {
        let settled = timeout(self.options.request_timeout, settled(pending)).await;
        stored(settled.unwrap_or(Err(Error::TimedOut))?)
    }

    /// Largest body of a request: ours, and the broker's when it said.
    pub(super) fn frame_bytes_max(&self) -> usize {
        let theirs = self.connection.hello().map_or(limits::FRAME_BYTES_MAX, |h| h.frame_bytes_max as usize);
        self.options.frame_bytes_max.min(limits::FRAME_BYTES_MAX).min(theirs)
    }

    fn fits(&self, produce: &Produce) -> Result<(), Error> {
        let (bytes, max) = (produce_bytes(produce), self.frame_bytes_max());
        if bytes > max { Err(Error::TooLarge { bytes, max }) } else { Ok(()) }
    }
}

/// Bytes of a produce request that are neither topic nor records.
pub(super) const PRODUCE_BYTES: usize = wire::request::ENVELOPE_BYTES + 5 + 4;
/// Bytes more of one with a checksum: that and its flags.
pub(super) const CHECKSUM_BYTES: usize = 1 + 4;
/// Bytes more of one with a stamp.
pub(super) const STAMP_BYTES: usize = 8 + 4 + 4 + 4 + 8;

fn produce_bytes(produce: &Produce) -> usize {
    PRODUCE_BYTES + produce.topic.as_ref().map_or(0, Bytes::len) + produce.records.len()
}

async fn settled(pending: Pending) -> Result<Payload, Error> {
    // A task that is gone has answered nothing.
    payload(pending.await.unwrap_or(Err(Error::Closed))?)
}

/// What a response to a request means.
pub(super) fn payload(response: Response) -> Result<Payload, Error> {
    match response {
        Response::Ok(payload) => Ok(payload),
        Response::Error(reason) => Err(Error::Refused(reason)),
        Response::UnknownError(token) => {
            Err(Error::RefusedUnknown(String::from_utf8_lossy(&token).into_owned()))
        }
    }
}

pub(super) fn stored(payload: Payload) -> Result<u32, Error> {
    let Payload::Stored(count) = payload else { return Err(mismatch()) };
    Ok(count)
}

pub(super) fn mismatch() -> Error {
    Error::Protocol("the answer to something else".to_owned())
}

pub(super) fn string(bytes: &[u8]) -> Str {
    Some(Bytes::copy_from_slice(bytes))
}
