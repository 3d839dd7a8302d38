//! One connection as a pure machine: requests become bytes, bytes become answers and pushes.
//!
//! Owns correlation ids, what is in flight, the open push stream if there is one, and the bytes not yet sent
//! or not yet understood. Does not read, write, wait or time out: whoever drives it moves the bytes and
//! decides when to give up.
//!
//! Invariants:
//! - every ticket taken by [`Link::send`] or [`Link::subscribe`] comes back exactly once: with its answer or
//!   the end of its stream from [`Link::receive`], or without one from [`Link::abandon`];
//! - once broken, always broken: nothing after a frame that makes no sense is believed.

use std::collections::BTreeMap;

use bytes::BytesMut;
use wire::request::{StreamAck, Subscribe};
use wire::response::Reply;
use wire::{ApiKey, Page, Payload, Request, Response, frame};

use crate::Error;

/// The client's end of one connection. `T` is whatever the caller wants back with each answer.
#[derive(Debug)]
pub struct Link<T> {
    frame_bytes_max: usize,
    last_id: u32,
    in_flight: BTreeMap<u32, Waiting<T>>,
    stream: Option<Stream<T>>,
    outgoing: BytesMut,
    incoming: BytesMut,
    sent: u64,
    broken: Option<Error>,
}

#[derive(Debug)]
struct Waiting<T> {
    api_key: ApiKey,
    ticket: T,
    /// Place in the order of sending; ids wrap, this does not.
    order: u64,
}

#[derive(Debug)]
struct Stream<T> {
    id: u32,
    ticket: T,
    order: u64,
}

/// What a connection brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received<T> {
    /// The answer to a request.
    Answer(T, Response),
    /// Records of the open stream; at least one.
    Push(Page),
    /// The stream was refused, or the broker ended it: never a success. Which of the two cannot always be
    /// told, and after an end the broker closes, so the connection is best given up.
    Ended(T, Response),
    /// The acknowledgement of that number was refused and gave no credit; the stream goes on. Number 0 is
    /// an error the broker could not attribute.
    AckRefused(u32, Response),
}

impl<T> Link<T> {
    /// A new connection that takes answers of at most `frame_bytes_max` bytes.
    #[must_use]
    pub fn new(frame_bytes_max: usize) -> Self {
        Self {
            frame_bytes_max,
            last_id: 0,
            in_flight: BTreeMap::new(),
            stream: None,
            outgoing: BytesMut::new(),
            incoming: BytesMut::new(),
            sent: 0,
            broken: None,
        }
    }

    /// Puts a request behind what is still to be sent. Bound what is in flight: ids are 32 bits wide.
    ///
    /// Panics on `subscribe` and `stream_ack`, which have no answer: they have methods of their own.
    pub fn send(&mut self, request: &Request, ticket: T) {
        let api_key = request.api_key();
        assert!(!is_of_streams(api_key), "operations of streams have methods of their own");
        let id = self.next_id();
        request.encode(id, &mut self.outgoing);
        self.sent += 1;
        self.in_flight.insert(id, Waiting { api_key, ticket, order: self.sent });
    }

    /// Asks for a push stream. The ticket comes back when the stream ends; until then the broker takes
    /// nothing but [`ack`](Self::ack) on this connection. Panics when there is one already.
    pub fn subscribe(&mut self, subscribe: &Subscribe, ticket: T) {
        assert!(self.stream.is_none(), "a connection carries one stream");
        let id = self.next_id();
        Request::Subscribe(subscribe.clone()).encode(id, &mut self.outgoing);
        self.sent += 1;
        self.stream = Some(Stream { id, ticket, order: self.sent });
    }

    /// Commits and returns credit; gives the number under which it may be refused. Success is not answered.
    pub fn ack(&mut self, ack: &StreamAck) -> u32 {
        let id = self.next_id();
        Request::StreamAck(ack.clone()).encode(id, &mut self.outgoing);
        id
    }

    /// Ids start at 1 and wrap to 1: 0 is the broker's.
    fn next_id(&mut self) -> u32 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            let of_stream = self.stream.as_ref().is_some_and(|stream| stream.id == self.last_id);
            if !of_stream && !self.in_flight.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    /// Bytes to be sent; take from the front what was.
    pub fn outgoing(&mut self) -> &mut BytesMut {
        &mut self.outgoing
    }

    /// Where received bytes are to be added.
    pub fn incoming(&mut self) -> &mut BytesMut {
        &mut self.incoming
    }

    /// Both at once: bytes to be sent, and where received ones go.
    pub fn buffers(&mut self) -> (&mut BytesMut, &mut BytesMut) {
        (&mut self.outgoing, &mut self.incoming)
    }

    /// Requests without an answer; an open stream is none.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The next thing among the received bytes; `None` when more bytes are needed.
    ///
    /// An error means that the connection is of no use any more; [`abandon`](Self::abandon) it.
    pub fn receive(&mut self) -> Result<Option<Received<T>>, Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.receive_unbroken().inspect_err(|error| self.broken = Some(error.clone()))
    }

    fn receive_unbroken(&mut self) -> Result<Option<Received<T>>, Error> {
        let body = frame::take(&mut self.incoming, self.frame_bytes_max).map_err(|e| protocol(&e))?;
        let Some(body) = body else { return Ok(None) };
        let reply = Reply::split(body).map_err(|e| protocol(&e))?;
        if let Some(waiting) = self.in_flight.remove(&reply.correlation_id) {
            return self.answer(waiting, reply).map(Some);
        }
        match self.stream.take() {
            None => Err(unasked(reply)),
            Some(stream) if stream.id == reply.correlation_id => self.of_stream(stream, reply).map(Some),
            Some(stream) => {
                self.stream = Some(stream);
                refused_ack(reply).map(Some)
            }
        }
    }

    fn answer(&mut self, waiting: Waiting<T>, reply: Reply) -> Result<Received<T>, Error> {
        match reply.decode(waiting.api_key) {
            Ok(response) => Ok(Received::Answer(waiting.ticket, response)),
            Err(error) => {
                // Its ticket goes the way of all others.
                let id = self.next_id();
                self.in_flight.insert(id, waiting);
                Err(protocol(&error))
            }
        }
    }

    fn of_stream(&mut self, stream: Stream<T>, reply: Reply) -> Result<Received<T>, Error> {
        match reply.decode(ApiKey::Subscribe) {
            Ok(Response::Ok(Payload::Page(page))) if page.count > 0 => {
                self.stream = Some(stream);
                Ok(Received::Push(page))
            }
            Ok(end @ (Response::Error(_) | Response::UnknownError(_))) => {
                Ok(Received::Ended(stream.ticket, end))
            }
            Ok(Response::Ok(_)) => {
                self.stream = Some(stream);
                Err(Error::Protocol("a push without a record".to_owned()))
            }
            Err(error) => {
                self.stream = Some(stream);
                Err(protocol(&error))
            }
        }
    }

    /// Gives up: the tickets of all requests without an answer and of the open stream, in the order they
    /// were sent.
    pub fn abandon(&mut self) -> Vec<T> {
        self.outgoing.clear();
        self.incoming.clear();
        let waiting = std::mem::take(&mut self.in_flight).into_values();
        let mut tickets: Vec<_> = waiting.map(|waiting| (waiting.order, waiting.ticket)).collect();
        tickets.extend(self.stream.take().map(|stream| (stream.order, stream.ticket)));
        tickets.sort_unstable_by_key(|(order, _)| *order);
        tickets.into_iter().map(|(_, ticket)| ticket).collect()
    }
}

/// Whether it is answered by pushes or not at all.
pub(crate) fn is_of_streams(api_key: ApiKey) -> bool {
    matches!(api_key, ApiKey::Subscribe | ApiKey::StreamAck)
}

fn protocol(error: &dyn std::fmt::Display) -> Error {
    Error::Protocol(error.to_string())
}

/// An error on a connection with an open stream that is not the stream's own. One that closes the connection
/// is the broker's last word.
fn refused_ack<T>(reply: Reply) -> Result<Received<T>, Error> {
    let id = reply.correlation_id;
    let response = reply.decode_error().map_err(|e| protocol(&e))?;
    match response {
        Response::Error(reason) if reason.closes() => Err(Error::Refused(reason)),
        Response::Ok(_) | Response::Error(_) | Response::UnknownError(_) => {
            Ok(Received::AckRefused(id, response))
        }
    }
}

/// What an answer to no request says about the connection: the broker's last word, or nonsense.
fn unasked(reply: Reply) -> Error {
    if reply.correlation_id != 0 {
        return Error::Protocol("an answer to a request that was not sent".to_owned());
    }
    match reply.decode_error() {
        Ok(Response::Error(reason)) => Error::Refused(reason),
        Ok(Response::UnknownError(token)) => {
            Error::RefusedUnknown(String::from_utf8_lossy(&token).into_owned())
        }
        Ok(Response::Ok(_)) => Error::Protocol("an unasked success".to_owned()),
        Err(error) => Error::Protocol(error.to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
