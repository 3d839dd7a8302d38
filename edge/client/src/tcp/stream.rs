//! The task that owns a subscription's socket.
//!
//! Owns the stream's life over any number of connections: when to subscribe again, what was acknowledged on
//! the present one, and the heartbeat of a member. Credit is what bounds it: the broker has never more than a
//! window of records on their way, so neither does the queue to the reader.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use wire::request::{StreamAck, Subscribe};
use wire::response::Page;
use wire::{Reason, Response};

use super::Options;
use super::client::payload;
use super::connection::Ticket;
use super::consumer::Trouble;
use super::socket::Socket;
use crate::Error;
use crate::backoff::Backoff;
use crate::link::Received;

/// Acknowledgements whose counts are remembered in case they are refused; far more than a round trip holds.
const ACKS_REMEMBERED_MAX: usize = 1024;
/// How long the broker is given to take in the last acknowledgements.
const CLOSING: Duration = Duration::from_secs(2);

/// A page and the connection it came on: credit belongs to one connection.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) connection: u64,
    pub(super) page: Page,
}

/// An acknowledgement on its way to the task.
#[derive(Debug)]
pub(super) struct Acked {
    pub(super) connection: u64,
    pub(super) cursor: Bytes,
    pub(super) count: u32,
}

pub(super) struct Task {
    pub(super) options: Arc<Options>,
    pub(super) subscribe: Subscribe,
    /// How often a member says that it is alive; `None` for a stream without a member.
    pub(super) heartbeat: Option<Duration>,
    pub(super) pages: mpsc::Sender<Result<Arrived, Error>>,
    pub(super) acks: mpsc::Receiver<Acked>,
    /// Number of the present connection, for whoever holds a page of an earlier one.
    pub(super) connection: Arc<AtomicU64>,
    pub(super) on_retry: OnRetry,
}

/// What is called before something is tried again, with what went wrong.
pub(super) type OnRetry = Box<dyn FnMut(&Error) + Send>;

/// What has been acknowledged on one connection.
#[derive(Default)]
struct Acks {
    /// Number and count of those that may still be refused, oldest first.
    sent: VecDeque<(u32, u32)>,
    /// The newest cursor.
    cursor: Option<Bytes>,
    /// Credit that was refused and is to be returned again.
    owed: u32,
    /// When.
    again_at: Option<Instant>,
}

/// Why a connection is over.
enum End {
    /// The reader wants nothing more.
    Unwanted,
    /// It failed, or the broker ended the stream.
    Failed(Error),
}

impl Task {
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new(self.options.seed);
        let mut trouble = Trouble::default();
        loop {
            let end = match Socket::open(&self.options).await {
                Ok(socket) => self.stream(socket, &mut trouble, &mut backoff).await,
                Err(error) => End::Failed(error),
            };
            let End::Failed(error) = end else { return };
            // Only whoever comes back by itself may be let in again by itself: without a member there is no
            // other node to find.
            let settles = self.subscribe.member.is_some() || error.reason() != Some(Reason::NotOwner);
            let pause = trouble.pause_after(&error, self.options.reconnect_for, &mut backoff);
            let Some(pause) = pause.filter(|_| settles) else {
                // A reader that is gone does not want to know.
                let _ = self.pages.send(Err(error)).await;
                return;
            };
            (self.on_retry)(&error);
            if self.rest(pause).await.is_err() {
                return;
            }
        }
    }

    /// Waits, dropping acknowledgements of the connection that is gone; an error when the reader left.
    async fn rest(&mut self, pause: Duration) -> Result<(), ()> {
        let until = Instant::now() + pause;
        loop {
            tokio::select! {
                () = sleep_until(until) => return Ok(()),
                ack = self.acks.recv() => drop(ack.ok_or(())?),
            }
        }
    }

    async fn stream(&mut self, mut socket: Socket, trouble: &mut Trouble, backoff: &mut Backoff) -> End {
        let connection = self.connection.fetch_add(1, Ordering::AcqRel) + 1;
        socket.link.subscribe(&self.subscribe, Ticket::none());
        let mut acks = Acks::default();
        let mut alive_at = Instant::now();
        loop {
            let beat_at = self.heartbeat.map(|heartbeat| alive_at + heartbeat);
            tokio::select! {
                ack = self.acks.recv() => match ack {
                    None => {
                        let _ = timeout(CLOSING, socket.close()).await;
                        return End::Unwanted;
                    }
                    Some(ack) if ack.connection == connection => {
                        acks.send(&mut socket, &self.subscribe, Some(ack.cursor), ack.count);
                        alive_at = Instant::now();
                    }
                    // What it acknowledges is pushed again on this connection.
                    Some(_) => {}
                },
                moved = socket.transfer() => {
                    match self.take_in(&mut socket, connection, &mut acks, backoff) {
                        Ok(false) => {}
                        Ok(true) => {
                            trouble.over();
                            backoff.reset();
                        }
                        Err(error) => return End::Failed(error),
                    }
                    if let Err(error) = moved {
                        return End::Failed(error);
                    }
                }
                () = at(acks.again_at) => {
                    acks.send_owed(&mut socket, &self.subscribe);
                    alive_at = Instant::now();
                }
                () = at(beat_at) => {
                    acks.send(&mut socket, &self.subscribe, None, 0);
                    alive_at = Instant::now();
                }
            }
        }
    }

    /// Passes on what has arrived; whether there were records.
    fn take_in(
        &self,
        socket: &mut Socket,
        connection: u64,
        acks: &mut Acks,
        backoff: &mut Backoff,
    ) -> Result<bool, Error> {
        let mut any = false;
        while let Some(received) = socket.link.receive()? {
            match received {
                Received::Push(page) => {
                    any = true;
                    match self.pages.try_send(Ok(Arrived { connection, page })) {
                        // A reader that is gone is noticed by its acknowledgements.
                        Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
                        Err(mpsc::error::TrySendError::Full(_)) => {
                            return Err(Error::Protocol("more records than were asked for".to_owned()));
                        }
                    }
                }
                Received::AckRefused(id, response) => acks.refused(id, response, backoff)?,
                Received::Ended(_, response) => {
                    return Err(failure(response));
                }
                Received::Answer(..) => unreachable!("nothing else was asked on this connection"),
            }
        }
        Ok(any)
    }
}

impl Acks {
    fn send(&mut self, socket: &mut Socket, stream: &Subscribe, cursor: Option<Bytes>, count: u32) {
        let Subscribe { topic, group, member, .. } = stream.clone();
        let id = socket.link.ack(&StreamAck { topic, group, member, cursor: cursor.clone(), count });
        if cursor.is_some() {
            self.cursor = cursor;
        }
        if self.sent.len() == ACKS_REMEMBERED_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((id, count));
    }

    fn send_owed(&mut self, socket: &mut Socket, stream: &Subscribe) {
        self.again_at = None;
        let (cursor, owed) = (self.cursor.clone(), std::mem::take(&mut self.owed));
        self.send(socket, stream, cursor, owed);
    }

    /// One gave no credit: it is returned again, with the newest cursor, when that may help.
    fn refused(&mut self, id: u32, response: Response, backoff: &mut Backoff) -> Result<(), Error> {
        let error = failure(response);
        let pause = match error.reason() {
            Some(reason) if reason.retry_helps() => {
                backoff.pause_after(reason).unwrap_or_else(|| backoff.pause())
            }
            Some(_) | None => return Err(error),
        };
        if let Some(at) = self.sent.iter().position(|(sent, _)| *sent == id) {
            self.owed += self.sent.remove(at).map_or(0, |(_, count)| count);
        }
        self.again_at.get_or_insert(Instant::now() + pause);
        Ok(())
    }
}

fn failure(response: Response) -> Error {
    match payload(response) {
        Err(error) => error,
        Ok(_) => Error::Protocol("a success where none can be".to_owned()),
    }
}

/// Waits until a time, for ever when there is none.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
