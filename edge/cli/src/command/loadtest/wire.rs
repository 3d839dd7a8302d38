//! A connection without the client's task and channels around it: what is measured is the broker.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::link::{Link, Received};
use client::{Error, Options, Request, Response, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Room made for one read.
const READ_BYTES: usize = 256 * 1024;
/// Longest wait for a password to be answered.
const LOGIN: Duration = Duration::from_secs(10);

/// A socket and its link; `T` comes back with each answer.
pub(super) struct Wire<T> {
    stream: Transport,
    link: Link<Option<T>>,
}

impl<T> Wire<T> {
    /// Connects and authenticates.
    pub(super) async fn open(options: &Options) -> Result<Self, Error> {
        let stream = Transport::open(options).await?;
        let mut wire = Self { stream, link: Link::new(options.frame_bytes_max) };
        let string = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
        let auth = Request::Auth { username: string(&options.user), password: string(&options.password) };
        wire.link.send(&auth, None);
        let login = async {
            wire.flush().await?;
            wire.answer().await
        };
        match timeout(LOGIN, login).await.map_err(|_| Error::TimedOut)?? {
            (_, Response::Error(reason)) => Err(Error::Refused(reason)),
            (_, Response::Ok(_) | Response::UnknownError(_)) => Ok(wire),
        }
    }

    /// Puts a request behind what is to be sent.
    pub(super) fn send(&mut self, request: &Request, ticket: T) {
        self.link.send(request, Some(ticket));
    }

    /// Sends everything.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        self.stream.write_all_buf(self.link.outgoing()).await.map_err(network)?;
        self.stream.flush().await.map_err(network)
    }

    /// Requests without an answer.
    pub(super) fn in_flight(&self) -> usize {
        self.link.in_flight()
    }

    /// The next answer.
    pub(super) async fn answer(&mut self) -> Result<(Option<T>, Response), Error> {
        loop {
            if let Some(answer) = self.ready()? {
                return Ok(answer);
            }
            self.link.incoming().reserve(READ_BYTES);
            match self.stream.read_buf(self.link.incoming()).await {
                Ok(0) => return Err(Error::Closed),
                Ok(_) => {}
                Err(error) => return Err(network(error)),
            }
        }
    }

    /// The next answer among those that have arrived.
    pub(super) fn ready(&mut self) -> Result<Option<(Option<T>, Response)>, Error> {
        match self.link.receive()? {
            None => Ok(None),
            Some(Received::Answer(ticket, response)) => Ok(Some((ticket, response))),
            Some(Received::Push(_) | Received::Ended(..) | Received::AckRefused(..)) => {
                unreachable!("no stream was asked for")
            }
        }
    }

    /// Sends or receives some bytes, whichever can be done first. Cancelling it loses nothing.
    pub(super) async fn transfer(&mut self) -> Result<(), Error> {
        self.link.incoming().reserve(READ_BYTES);
        let (outgoing, incoming) = self.link.buffers();
        match self.stream.transfer(outgoing, incoming).await.map_err(network)? {
            Some(0) => Err(Error::Closed),
            Some(_) | None => Ok(()),
        }
    }
}

fn network(error: io::Error) -> Error {
    Error::Network(Arc::new(error))
}
