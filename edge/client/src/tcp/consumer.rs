//! Reading a topic page by page: from the beginning or a cursor, for a group, or a member's share of it.
//!
//! What starts where: a member reads its ranges from what its group committed, each time; a group without
//! members starts from what it committed and then goes on by cursor; anybody else goes by cursor alone.
//!
//! Invariants:
//! - the place moves only with a page that was given out, so a failed or repeated poll loses nothing;
//! - fetching commits nothing: whoever does not commit reads the same again after a restart, and a member
//!   at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};
use wire::request::Fetch;
use wire::response::Page;
use wire::{Reason, Str};

use super::client::string;
use super::{Client, Options};
use crate::Error;
use crate::backoff::Backoff;

/// What a consumer reads and how. Made by [`Client::consumer`].
#[derive(Clone, Debug)]
pub struct ConsumerBuilder {
    options: Arc<Options>,
    topic: String,
    group: Str,
    member: Str,
    cursor: Str,
    max: u32,
    wait: Duration,
}

impl ConsumerBuilder {
    pub(super) fn new(options: Arc<Options>, topic: &str) -> Self {
        let (topic, wait) = (topic.to_owned(), Duration::from_secs(5));
        Self { options, topic, group: None, member: None, cursor: None, max: 0, wait }
    }

    /// Starts from what this group committed, and can commit for it.
    #[must_use]
    pub fn group(mut self, group: impl Into<Bytes>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Reads this member's share of the group.
    #[must_use]
    pub fn member(mut self, member: impl Into<Bytes>) -> Self {
        self.member = Some(member.into());
        self
    }

    /// Starts at a cursor.
    #[must_use]
    pub fn cursor(mut self, cursor: impl Into<Bytes>) -> Self {
        self.cursor = Some(cursor.into());
        self
    }

    /// Most records of one page, at most 1000; 0 takes the broker's default.
    #[must_use]
    pub fn max(mut self, max: u32) -> Self {
        self.max = max;
        self
    }

    /// How long a poll waits when there is nothing, at most 30 s; 5 s unless set.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Connects.
    pub async fn open(self) -> Result<Consumer, Error> {
        let Self { options, topic, group, member, cursor, max, wait } = self;
        if member.is_some() && group.is_none() {
            return Err(Error::Misuse("a member belongs to a consumer group"));
        }
        if member.is_some() && cursor.is_some() {
            return Err(A_MEMBER_HAS_NO_CURSOR);
        }
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        Ok(Consumer {
            backoff: Backoff::new(options.seed),
            reconnect_for: options.reconnect_for,
            client: Client::open(options).await?,
            topic,
            group,
            member,
            max,
            wait_ms,
            cursor,
            given: None,
            on_retry: Box::new(|_| {}),
        })
    }
}

const A_MEMBER_HAS_NO_CURSOR: Error =
    Error::Misuse("a member reads from what its group committed, not from a cursor");

/// A reader of one topic.
///
/// Refusals that pass by themselves (`not_owner`, `migrating`, `overloaded`) are repeated without end; a lost
/// connection is replaced for as long as [`Options::reconnect_for`] says. Everything else comes back.
pub struct Consumer {
    client: Client,
    topic: String,
    group: Str,
    member: Str,
    max: u32,
    wait_ms: u32,
    /// Where the next page starts, for all but members.
    cursor: Str,
    /// Where the last page given out ended, until it is committed.
    given: Str,
    backoff: Backoff,
    reconnect_for: Duration,
    on_retry: Box<dyn FnMut(&Error) + Send>,
}

impl Consumer {
    /// Calls `hook` before each time that something is tried again, with what went wrong.
    pub fn on_retry(&mut self, hook: impl FnMut(&Error) + Send + 'static) {
        self.on_retry = Box::new(hook);
    }

    /// The next page; without a record when none came within the wait.
    pub async fn poll(&mut self) -> Result<Page, Error> {
        let mut trouble = Trouble::default();
        loop {
            match self.client.read(self.request()).await {
                Ok(page) => {
                    self.backoff.reset();
                    self.cursor = Some(page.next_cursor.clone());
                    self.given = self.cursor.clone();
                    return Ok(page);
                }
                Err(error) => self.pause(&mut trouble, error).await?,
            }
        }
    }

    fn request(&self) -> Fetch {
        let (topic, max, wait_ms) = (string(self.topic.as_bytes()), self.max, self.wait_ms);
        let is_member = self.member.is_some();
        let cursor = if is_member { None } else { self.cursor.clone() };
        let group = if cursor.is_some() { None } else { self.group.clone() };
        Fetch { topic, cursor, group, member: self.member.clone(), max, wait_ms }
    }

    /// Commits everything that was given out. Does nothing when it is committed already.
    pub async fn commit(&mut self) -> Result<(), Error> {
        let Some(cursor) = self.given.clone() else { return Ok(()) };
        self.commit_cursor(cursor).await?;
        self.given = None;
        Ok(())
    }

    /// Commits a cursor of the caller's own: that of an earlier page, or of [`Client::seek_time`].
    pub async fn commit_cursor(&mut self, cursor: Bytes) -> Result<(), Error> {
        let Some(group) = self.group.clone() else {
            return Err(Error::Misuse("only a consumer group commits"));
        };
        let mut trouble = Trouble::default();
        loop {
            match self.client.commit(&self.topic, &group, cursor.clone()).await {
                Ok(()) => {
                    self.backoff.reset();
                    return Ok(());
                }
                // A commit may happen twice: the second says the same.
                Err(error) => self.pause(&mut trouble, error).await?,
            }
        }
    }

    /// Where the next page starts, to be stored and handed to [`ConsumerBuilder::cursor`] later; `None`
    /// before the first page, and not to be relied on for a member.
    #[must_use]
    pub fn position(&self) -> Option<&Bytes> {
        self.cursor.as_ref()
    }

    /// Goes on from a cursor.
    pub fn seek(&mut self, cursor: impl Into<Bytes>) -> Result<(), Error> {
        if self.member.is_some() {
            return Err(A_MEMBER_HAS_NO_CURSOR);
        }
        self.cursor = Some(cursor.into());
        self.given = self.cursor.clone();
        Ok(())
    }

    /// Goes on from the first record appended at a time, milliseconds since 1970, or later.
    pub async fn seek_time(&mut self, at_ms: u64) -> Result<(), Error> {
        if self.member.is_some() {
            return Err(A_MEMBER_HAS_NO_CURSOR);
        }
        let mut trouble = Trouble::default();
        loop {
            match self.client.seek_time(&self.topic, at_ms).await {
                Ok(cursor) => return self.seek(cursor),
                Err(error) => self.pause(&mut trouble, error).await?,
            }
        }
    }

    /// Goes back to the first record there is.
    pub async fn seek_beginning(&mut self) -> Result<(), Error> {
        self.seek_time(0).await
    }

    /// Skips everything there is.
    pub async fn seek_end(&mut self) -> Result<(), Error> {
        self.seek_time(u64::MAX).await
    }

    /// Leaves the group, so that others take over this member's share at once. Commits nothing.
    pub async fn leave(self) -> Result<(), Error> {
        match (&self.group, &self.member) {
            (Some(group), Some(member)) => self.client.leave_group(&self.topic, group, member).await,
            (_, None) | (None, Some(_)) => Ok(()),
        }
    }

    /// Waits before the next try, or gives the error back.
    async fn pause(&mut self, trouble: &mut Trouble, error: Error) -> Result<(), Error> {
        let Some(pause) = trouble.pause_after(&error, self.reconnect_for, &mut self.backoff) else {
            return Err(error);
        };
        (self.on_retry)(&error);
        sleep(pause).await;
        Ok(())
    }
}

/// How long something that does no harm when it happens twice has been failing.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    since: Option<Instant>,
}

impl Trouble {
    /// The pause before another try; `None` when the error is for the caller.
    pub(super) fn pause_after(
        &mut self,
        error: &Error,
        reconnect_for: Duration,
        backoff: &mut Backoff,
    ) -> Option<Duration> {
        if let Some(pause) = error.reason().and_then(|reason: Reason| backoff.pause_after(reason)) {
            // The broker is there: whatever was lost before has been replaced.
            self.since = None;
            return Some(pause);
        }
        if !error.lost_connection() {
            return None;
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        (now - since < reconnect_for).then(|| backoff.pause())
    }

    /// It works again.
    pub(super) fn over(&mut self) {
        self.since = None;
    }
}
