//! A connected, authenticated socket with its link: the bytes between the two.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use wire::response::Hello;
use wire::{Payload, Request, Response, features, frame};

use super::Options;
use super::connection::Ticket;
use super::transport::Transport;
use crate::Error;
use crate::link::{Link, Received};

/// Room made for one read.
const READ_BYTES: usize = 64 * 1024;
/// Room that is worth a read.
const READ_ROOM_MIN: usize = READ_BYTES / 4;
/// Room made at once for the rest of a long frame: what it announces is believed only as it arrives.
const READ_BYTES_MAX: usize = 1024 * 1024;
/// How long a broken connection is read for the broker's last word.
const LAST_WORD: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Socket {
    transport: Transport,
    pub(super) link: Link<Ticket>,
    /// What the broker said of itself; `None` when it is too old to.
    pub(super) hello: Option<Hello>,
}

impl Socket {
    /// Connects and authenticates within `connect_timeout`.
    pub(super) async fn open(options: &Options) -> Result<Self, Error> {
        match timeout(options.connect_timeout, Self::open_untimed(options)).await {
            Ok(result) => result,
            Err(_) => Err(Error::Unconnected(Arc::new(io::ErrorKind::TimedOut.into()))),
        }
    }

    async fn open_untimed(options: &Options) -> Result<Self, Error> {
        let transport = Transport::open(options).await?;
        let mut socket = Self { transport, link: Link::new(options.frame_bytes_max), hello: None };
        socket.authenticate(options).await?;
        socket.hello = socket.greet(options).await?;
        Ok(socket)
    }

    async fn authenticate(&mut self, options: &Options) -> Result<(), Error> {
        let (username, password) = (string(&options.user), string(&options.password));
        let response = self.ask(&Request::Auth { username, password }).await?;
        super::client::payload(response).map(|_| ())
    }

    /// A broker that does not know the operation says so and goes on.
    async fn greet(&mut self, options: &Options) -> Result<Option<Hello>, Error> {
        let hello = Request::Hello { client: string(&options.name), features: features::BATCHES };
        match self.ask(&hello).await? {
            Response::Ok(Payload::Hello(hello)) => Ok(Some(hello)),
            Response::Ok(_) | Response::Error(_) | Response::UnknownError(_) => Ok(None),
        }
    }

    /// One request and its answer, on a connection that carries nothing else.
    async fn ask(&mut self, request: &Request) -> Result<Response, Error> {
        self.link.send(request, Ticket::none());
        loop {
            let moved = self.transfer().await;
            match self.link.receive()? {
                None => moved?,
                Some(Received::Answer(_, response)) => return Ok(response),
                Some(Received::Push(_) | Received::Ended(..) | Received::AckRefused(..)) => {
                    unreachable!("no stream was asked for")
                }
            }
        }
    }

    /// Sends what is still to be sent, says that nothing more comes, and reads until the broker closes: it
    /// has then seen everything. Whoever calls bounds the time.
    pub(super) async fn close(mut self) {
        let (outgoing, _) = self.link.buffers();
        if self.transport.write_all_buf(outgoing).await.is_err() || self.transport.shutdown().await.is_err() {
            return;
        }
        loop {
            self.link.incoming().clear();
            if !matches!(self.transport.read_buf(self.link.incoming()).await, Ok(1..)) {
                return;
            }
        }
    }

    /// Sends or receives some bytes, whichever can be done first. Cancelling it loses nothing.
    pub(super) async fn transfer(&mut self) -> Result<(), Error> {
        let missing = frame::missing(self.link.incoming()).unwrap_or(0);
        let incoming = self.link.incoming();
        if incoming.capacity() - incoming.len() < missing.max(READ_ROOM_MIN) {
            incoming.reserve(missing.clamp(READ_BYTES, READ_BYTES_MAX));
        }
        let (outgoing, incoming) = self.link.buffers();
        match self.transport.transfer(outgoing, incoming).await {
            Ok(Some(0)) => Err(Error::Closed),
            Ok(_) => Ok(()),
            Err(error) => {
                self.read_last_word().await;
                Err(Error::Network(Arc::new(error)))
            }
        }
    }

    /// A refusal such as `frame_too_large` may wait to be read behind a connection that no longer takes
    /// bytes. Whoever drives the link looks at what was received before it believes the operating system,
    /// which has less to say.
    async fn read_last_word(&mut self) {
        let read_on = async { while let Ok(1..) = self.transport.read_buf(self.link.incoming()).await {} };
        // Whatever came within the time is looked at, so running out of it is no failure.
        let _ = timeout(LAST_WORD, read_on).await;
    }
}

fn string(text: &str) -> wire::Str {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}
