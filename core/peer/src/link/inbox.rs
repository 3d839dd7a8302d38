//! What arrives on the streams: frames become messages again.
//!
//! Owns the pieces of unfinished messages and what the peer has of each window. A peer that begins a message beyond
//! its window, or sends pieces that do not fit, is given up.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::Reader;
use types::limits;

use super::frame::{Frame, MORE};
use super::outbox::cost;
use crate::message::{Kind, Shape};
use crate::stream::StreamId;

/// A message the peer sent, by the number of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) kind: u16,
    pub(super) call: u32,
    /// Empty when the kind is not known here.
    pub(super) bytes: Bytes,
    pub(super) parcel: Parcel,
}

/// What a message holds of its stream's window until it is given back by
/// [`Link::release`](crate::Link::release).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a stream whose parcels are not released comes to a stop"]
pub struct Parcel {
    pub(super) stream: StreamId,
    pub(super) cost: u64,
}

#[derive(Debug)]
struct Partial {
    kind: u16,
    call: u32,
    total: usize,
    received: usize,
    /// `None` when the kind is not known: nothing of it is kept.
    bytes: Option<BytesMut>,
}

#[derive(Debug, Default)]
struct Incoming {
    /// Cost of what was begun and not released.
    unreleased: u64,
    /// Cost of what was released and not told.
    untold: u64,
    partial: Option<Partial>,
}

/// All streams of the other direction.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    streams: BTreeMap<StreamId, Incoming>,
}

impl Inbox {
    /// Takes a frame; gives the message it completes. The error says what makes no sense.
    pub(super) fn take(&mut self, frame: Frame) -> Result<Option<Arrived>, &'static str> {
        let stream = StreamId::from_number(frame.stream).ok_or("no such stream")?;
        let incoming = self.streams.entry(stream).or_default();
        let (mut partial, piece) = if frame.kind == MORE {
            let partial = incoming.partial.take().ok_or("the rest of nothing")?;
            if frame.body.is_empty() {
                return Err("an empty piece");
            }
            (partial, frame.body)
        } else {
            if incoming.partial.is_some() {
                return Err("a message inside another");
            }
            let (partial, piece) = begin(stream, frame.kind, frame.body)?;
            if incoming.unreleased >= stream.class().window() {
                return Err("more than the window");
            }
            incoming.unreleased += cost(partial.total);
            (partial, piece)
        };
        partial.received += piece.len();
        if partial.received > partial.total {
            return Err("more than a message");
        }
        let is_whole = partial.received == partial.total;
        // The usual message is one frame, and is not copied.
        let bytes = match &mut partial.bytes {
            None => Bytes::new(),
            Some(bytes) if is_whole && bytes.is_empty() => piece,
            Some(bytes) => {
                bytes.put(piece);
                if is_whole { std::mem::take(bytes).freeze() } else { Bytes::new() }
            }
        };
        if !is_whole {
            incoming.partial = Some(partial);
            return Ok(None);
        }
        let parcel = Parcel { stream, cost: cost(partial.total) };
        Ok(Some(Arrived { kind: partial.kind, call: partial.call, bytes, parcel }))
    }

    /// A message is done with.
    pub(super) fn release(&mut self, parcel: &Parcel) {
        let incoming = self.streams.get_mut(&parcel.stream).expect("a parcel is of a stream that brought it");
        incoming.unreleased -= parcel.cost;
        incoming.untold += parcel.cost;
    }

    /// The next stream whose peer should be told what was released, and how much. Small amounts wait for more: a
    /// peer that is stopped by its window has more to be released.
    pub(super) fn credit(&mut self) -> Option<(StreamId, u64)> {
        let (stream, incoming) = self.streams.iter_mut().find(|(stream, incoming)| {
            incoming.untold > 0 && incoming.untold >= stream.class().window() / 4
        })?;
        Some((*stream, std::mem::take(&mut incoming.untold)))
    }

    /// Bytes kept of messages that are not whole.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        let partial = self.streams.values().filter_map(|incoming| incoming.partial.as_ref());
        partial.filter_map(|partial| partial.bytes.as_ref()).map(BytesMut::len).sum()
    }
}

/// Judges the beginning of a message.
fn begin(stream: StreamId, kind: u16, body: Bytes) -> Result<(Partial, Bytes), &'static str> {
    let mut reader = Reader::new(body);
    let short = "a message without a head";
    let (total, call) = (reader.u32().map_err(|_| short)? as usize, reader.u32().map_err(|_| short)?);
    let piece = reader.take(reader.remaining()).expect("so many remain");
    if total > stream.class().message_bytes_max() {
        return Err("a message above the limit");
    }
    if piece.is_empty() && total > 0 {
        return Err("an empty piece");
    }
    match Shape::of(kind).ok_or("a kind without a shape")? {
        Shape::Says if call != 0 => return Err("a call that asks nothing"),
        Shape::Asks | Shape::Answers if call == 0 => return Err("a call without a number"),
        Shape::Says | Shape::Asks | Shape::Answers => {}
    }
    let bytes = Kind::from_number(kind).map(|_| BytesMut::new());
    Ok((Partial { kind, call, total, received: 0, bytes }, piece))
}

const _: () = assert!(limits::PEER_CHUNK_BYTES <= limits::PEER_MESSAGE_BYTES_MAX);
