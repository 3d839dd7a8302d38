//! Records the broker pushes, with credit returned as they are dealt with.
//!
//! Invariants:
//! - a page is acknowledged, which commits it for the group, only after the reader said so: by asking for the
//!   next one or by [`Subscription::ack`];
//! - what was pushed and not acknowledged when a connection was lost is pushed again on the next one, and no
//!   page of the lost one is given out any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use types::limits;
use wire::Str;
use wire::request::Subscribe;
use wire::response::Page;

use super::Options;
use super::stream::{Acked, Arrived, Task};
use crate::Error;

/// What is pushed and how. Made by [`Client::subscription`](super::Client::subscription).
#[derive(Clone, Debug)]
pub struct SubscriptionBuilder {
    options: Arc<Options>,
    topic: Bytes,
    group: Bytes,
    member: Str,
    window: u32,
    max: u32,
    heartbeat: Duration,
}

impl SubscriptionBuilder {
    pub(super) fn new(options: Arc<Options>, topic: &str, group: &[u8]) -> Self {
        Self {
            options,
            topic: Bytes::copy_from_slice(topic.as_bytes()),
            group: Bytes::copy_from_slice(group),
            member: None,
            window: 0,
            max: 0,
            heartbeat: Duration::from_secs(10),
        }
    }

    /// Receives this member's share of the group.
    #[must_use]
    pub fn member(mut self, member: impl Into<Bytes>) -> Self {
        self.member = Some(member.into());
        self
    }

    /// Records that may be on their way or unacknowledged, at most 10000; 0 takes the broker's default.
    #[must_use]
    pub fn window(mut self, window: u32) -> Self {
        self.window = window;
        self
    }

    /// Most records of one page, at most 1000; 0 takes the broker's default.
    #[must_use]
    pub fn max(mut self, max: u32) -> Self {
        self.max = max;
        self
    }

    /// How long a member may be silent before it says that it is alive; 10 s unless set. Brokers take a
    /// member out after 30 s.
    #[must_use]
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Begins. What goes wrong, from the first connection on, comes out of [`Subscription::next`].
    #[must_use]
    pub fn open(self) -> Subscription {
        self.open_with(|_| {})
    }

    /// The same, and calls `hook` before each time that a refused stream or a lost connection is tried again,
    /// with what went wrong.
    #[must_use]
    pub fn open_with(self, hook: impl FnMut(&Error) + Send + 'static) -> Subscription {
        let Self { options, topic, group, member, window, max, heartbeat } = self;
        let heartbeat = member.is_some().then_some(heartbeat.max(Duration::from_millis(1)));
        let subscribe = Subscribe { topic: Some(topic), group: Some(group), member, window, max };
        // A page has at least one record, so the window bounds pages as well.
        let window = subscribe.window_effective().min(limits::STREAM_WINDOW_MAX) as usize;
        let (pages_in, pages) = mpsc::channel(window);
        let (acks, acks_out) = mpsc::channel(window);
        let connection = Arc::new(AtomicU64::new(0));
        let task = Task {
            options,
            subscribe,
            heartbeat,
            pages: pages_in,
            acks: acks_out,
            connection: Arc::clone(&connection),
            on_retry: Box::new(hook),
        };
        Subscription { pages, acks, connection, given: None, task: tokio::spawn(task.run()) }
    }
}

/// Records pushed by the broker.
#[derive(Debug)]
pub struct Subscription {
    pages: mpsc::Receiver<Result<Arrived, Error>>,
    acks: mpsc::Sender<Acked>,
    connection: Arc<AtomicU64>,
    given: Option<Acked>,
    task: JoinHandle<()>,
}

/// Some pushed records: at least one.
pub type Push = Page;

impl Subscription {
    /// The next records, however long it takes; asking says that those given before have been dealt with.
    ///
    /// An error ends the subscription: refusals that pass by themselves are repeated, and a lost connection
    /// is replaced for as long as [`Options::reconnect_for`] says, before there is one.
    pub async fn next(&mut self) -> Result<Push, Error> {
        self.ack().await?;
        loop {
            let Some(arrived) = self.pages.recv().await else { return Err(Error::Closed) };
            let Arrived { connection, page } = arrived?;
            if connection == self.connection.load(Ordering::Acquire) {
                let cursor = page.next_cursor.clone();
                self.given = Some(Acked { connection, cursor, count: page.count });
                return Ok(page);
            }
        }
    }

    /// Says now that the records given last have been dealt with: commits them and asks for more.
    pub async fn ack(&mut self) -> Result<(), Error> {
        let Some(ack) = self.given.take() else { return Ok(()) };
        if self.acks.send(ack).await.is_err() {
            // Why the task ended is among the pages.
            return self.last_error().await;
        }
        Ok(())
    }

    async fn last_error(&mut self) -> Result<(), Error> {
        while let Some(arrived) = self.pages.recv().await {
            arrived?;
        }
        Err(Error::Closed)
    }

    /// Ends the stream, after what was acknowledged has reached the broker; a member leaves its group.
    /// Dropping does the same without waiting.
    pub async fn close(self) {
        let Self { pages, acks, task, .. } = self;
        drop((pages, acks));
        // A task that failed has nothing left to do.
        let _ = task.await;
    }
}
