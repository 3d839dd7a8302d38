//! One connection as a pure machine: requests become bytes, bytes become answers.
//!
//! Owns correlation ids, what is in flight, and the bytes not yet sent or not yet understood. Does not read,
//! write, wait or time out: whoever drives it moves the bytes and decides when to give up.
//!
//! Invariants:
//! - every ticket taken by [`Link::send`] comes back exactly once, with its answer from [`Link::receive`] or
//!   without one from [`Link::abandon`];
//! - once broken, always broken: nothing after a frame that makes no sense is believed.

use std::collections::BTreeMap;

use bytes::BytesMut;
use wire::response::Reply;
use wire::{ApiKey, Request, Response, frame};

use crate::Error;

/// The client's end of one connection. `T` is whatever the caller wants back with each answer.
#[derive(Debug)]
pub struct Link<T> {
    frame_bytes_max: usize,
    last_id: u32,
    in_flight: BTreeMap<u32, Waiting<T>>,
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

impl<T> Link<T> {
    /// A new connection that takes answers of at most `frame_bytes_max` bytes.
    #[must_use]
    pub fn new(frame_bytes_max: usize) -> Self {
        Self {
            frame_bytes_max,
            last_id: 0,
            in_flight: BTreeMap::new(),
            outgoing: BytesMut::new(),
            incoming: BytesMut::new(),
            sent: 0,
            broken: None,
        }
    }

    /// Puts a request behind what is still to be sent. Bound what is in flight: ids are 32 bits wide.
    pub fn send(&mut self, request: &Request, ticket: T) {
        let id = self.next_id();
        request.encode(id, &mut self.outgoing);
        self.sent += 1;
        self.in_flight.insert(id, Waiting { api_key: request.api_key(), ticket, order: self.sent });
    }

    /// Ids start at 1 and wrap to 1: 0 is the broker's.
    fn next_id(&mut self) -> u32 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if !self.in_flight.contains_key(&self.last_id) {
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

    /// Requests without an answer.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The next answer among the received bytes; `None` when more bytes are needed.
    ///
    /// An error means that the connection is of no use any more; [`abandon`](Self::abandon) it.
    pub fn receive(&mut self) -> Result<Option<(T, Response)>, Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.receive_unbroken().inspect_err(|error| self.broken = Some(error.clone()))
    }

    fn receive_unbroken(&mut self) -> Result<Option<(T, Response)>, Error> {
        let protocol = |error: &dyn std::fmt::Display| Error::Protocol(error.to_string());
        let body = frame::take(&mut self.incoming, self.frame_bytes_max).map_err(|e| protocol(&e))?;
        let Some(body) = body else { return Ok(None) };
        let reply = Reply::split(body).map_err(|e| protocol(&e))?;
        let Some(waiting) = self.in_flight.remove(&reply.correlation_id) else {
            return Err(unasked(reply));
        };
        match reply.decode(waiting.api_key) {
            Ok(response) => Ok(Some((waiting.ticket, response))),
            Err(error) => {
                // Its ticket goes the way of all others.
                let id = self.next_id();
                self.in_flight.insert(id, waiting);
                Err(protocol(&error))
            }
        }
    }

    /// Gives up: the tickets of all requests without an answer, in the order they were sent.
    pub fn abandon(&mut self) -> Vec<T> {
        self.outgoing.clear();
        self.incoming.clear();
        let mut waiting: Vec<_> = std::mem::take(&mut self.in_flight).into_values().collect();
        waiting.sort_unstable_by_key(|waiting| waiting.order);
        waiting.into_iter().map(|waiting| waiting.ticket).collect()
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
mod tests {
    use bytes::{Buf, Bytes};
    use proptest::prelude::*;
    use wire::request::Envelope;
    use wire::{Gather, Payload, Reason};

    use super::*;

    const FRAME_BYTES: usize = 1024;

    fn link() -> Link<u32> {
        Link::new(FRAME_BYTES)
    }

    fn request() -> Request {
        Request::Produce(wire::request::Produce { topic: None, records: Bytes::new(), count: 0 })
    }

    fn answer(id: u32, response: &Response) -> Bytes {
        let mut out = Gather::new();
        response.encode(id, &mut out);
        out.copy_to_bytes(out.remaining())
    }

    /// Ids of the requests that were sent, in order.
    fn sent(link: &mut Link<u32>) -> Vec<u32> {
        let mut ids = Vec::new();
        while let Some(body) = frame::take(link.outgoing(), FRAME_BYTES).unwrap() {
            ids.push(Envelope::split(body).unwrap().0.correlation_id);
        }
        ids
    }

    #[test]
    fn ids_start_at_1_wrap_to_1_and_skip_what_is_in_flight() {
        let mut link = link();
        link.send(&request(), 10);
        link.last_id = u32::MAX - 1;
        link.send(&request(), 11);
        link.send(&request(), 12);
        assert_eq!(sent(&mut link), [1, u32::MAX, 2]);
    }

    #[test]
    fn an_unasked_error_is_the_last_word() {
        let mut link = link();
        link.send(&request(), 1);
        let word = answer(0, &Response::Error(Reason::ServerShutdown));
        link.incoming().extend_from_slice(&word);
        assert!(matches!(link.receive(), Err(Error::Refused(Reason::ServerShutdown))));
        assert_eq!(link.abandon(), [1]);
    }

    #[test]
    fn what_is_not_an_answer_breaks_the_link_and_no_ticket_is_lost() {
        let success_without_count = [0, 0, 0, 6, 0, 0, 0, 1, 0, 0];
        let other_id = answer(9, &Response::Ok(Payload::Stored(1)));
        let oversize = [0xff; 4];
        let code_2 = [0, 0, 0, 6, 0, 0, 0, 1, 0, 2];
        for bytes in [&success_without_count[..], &other_id, &oversize, &code_2] {
            let mut link = link();
            link.send(&request(), 1);
            link.send(&request(), 2);
            link.incoming().extend_from_slice(bytes);
            assert!(matches!(link.receive(), Err(Error::Protocol(_))), "{bytes:?}");
            let good = answer(1, &Response::Ok(Payload::Stored(1)));
            link.incoming().extend_from_slice(&good);
            assert!(link.receive().is_err(), "still broken");
            assert_eq!(link.abandon(), [1, 2], "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn answers_find_their_tickets_in_any_order_and_any_cut(
            order in Just((0_u32..12).collect::<Vec<_>>()).prop_shuffle(),
            answered in 0_usize..=12, cut in 1_usize..40,
        ) {
            let mut link = link();
            (0..12).for_each(|ticket| link.send(&request(), ticket));
            let ids = sent(&mut link);
            let mut bytes = Vec::new();
            for ticket in &order[..answered] {
                bytes.extend_from_slice(&answer(ids[*ticket as usize], &Response::Ok(Payload::Stored(*ticket))));
            }
            let mut received = Vec::new();
            for bytes in bytes.chunks(cut) {
                link.incoming().extend_from_slice(bytes);
                while let Some((ticket, response)) = link.receive().unwrap() {
                    prop_assert_eq!(response, Response::Ok(Payload::Stored(ticket)));
                    received.push(ticket);
                }
            }
            prop_assert_eq!(&received[..], &order[..answered]);
            let mut rest = order[answered..].to_vec();
            rest.sort_unstable();
            prop_assert_eq!(link.in_flight(), rest.len());
            prop_assert_eq!(link.abandon(), rest);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut link = link();
            (0..3).for_each(|ticket| link.send(&request(), ticket));
            link.incoming().extend_from_slice(&bytes);
            let mut answered = 0;
            while let Ok(Some(_)) = link.receive() {
                answered += 1;
            }
            prop_assert_eq!(link.abandon().len() + answered, 3);
        }
    }
}
