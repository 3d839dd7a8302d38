//! What waits to be sent, and which of it goes next.
//!
//! Messages are cut into frames only when there is room for them, so that what is urgent passes what is large.
//! Control goes first; the other streams take turns, a frame each. A stream begins a message only while less than
//! its window is on its way, counted in whole messages: what was begun is always finished, so a message larger than
//! the window cannot get stuck.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use bytes::{Buf, BufMut};
use types::limits;

use super::frame::{self, HEAD_BYTES, MESSAGE_HEAD_BYTES, MORE};
use crate::rope::Rope;
use crate::stream::{Class, StreamId};

/// What a message costs of a window beside its bytes, so that many small ones are bounded too.
const MESSAGE_COST: u64 = 64;

/// What a message of so many bytes costs of its stream's window.
pub(super) fn cost(bytes: usize) -> u64 {
    bytes as u64 + MESSAGE_COST
}

/// A message that was encoded.
#[derive(Debug)]
struct Waiting {
    kind: u16,
    call: u32,
    bytes: Rope,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// What is left of the message that was begun.
    begun: Option<Rope>,
    /// Cost of what was begun and not released by the peer.
    on_its_way: u64,
}

impl Queue {
    fn is_ready(&self, class: Class) -> bool {
        self.begun.is_some() || (!self.waiting.is_empty() && self.on_its_way < class.window())
    }
}

/// All streams of one direction.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queues: BTreeMap<StreamId, Queue>,
    bytes: usize,
    /// Whose turn it was last: of control, of the others.
    last: (Option<StreamId>, Option<StreamId>),
}

/// The peer returned more than it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

impl Outbox {
    /// Bytes that wait, with what they cost to keep.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts a message behind those of its stream; `false` when there is no room.
    pub(super) fn push(&mut self, stream: StreamId, kind: u16, call: u32, bytes: Rope) -> bool {
        let size = bytes.remaining() + MESSAGE_COST as usize;
        if self.bytes + size > limits::PEER_QUEUE_BYTES_MAX {
            return false;
        }
        self.bytes += size;
        self.queues.entry(stream).or_default().waiting.push_back(Waiting { kind, call, bytes });
        true
    }

    /// The peer is done with messages of such a cost.
    pub(super) fn credit(&mut self, stream: StreamId, bytes: u64) -> Result<(), TooMuch> {
        let queue = self.queues.get_mut(&stream).ok_or(TooMuch)?;
        queue.on_its_way = queue.on_its_way.checked_sub(bytes).ok_or(TooMuch)?;
        Ok(())
    }

    /// Puts frames into `out` until it holds enough or nothing may be sent.
    pub(super) fn fill(&mut self, out: &mut Rope) {
        while out.remaining() < limits::PEER_OUT_BYTES {
            let Some(stream) = self.next() else { return };
            self.put_frame(stream, out);
        }
    }

    fn next(&mut self) -> Option<StreamId> {
        let first_other = StreamId::of(Class::Request, 0);
        if let Some(stream) = self.turn(self.last.0, |stream| stream < first_other) {
            self.last.0 = Some(stream);
            return Some(stream);
        }
        let stream = self.turn(self.last.1, |stream| stream >= first_other)?;
        self.last.1 = Some(stream);
        Some(stream)
    }

    /// The first stream that is ready after the last one, around.
    fn turn(&self, last: Option<StreamId>, among: impl Fn(StreamId) -> bool) -> Option<StreamId> {
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let around = self.queues.range((after, Bound::Unbounded)).chain(&self.queues);
        let mut ready = around.filter(|(stream, queue)| among(**stream) && queue.is_ready(stream.class()));
        ready.next().map(|(stream, _)| *stream)
    }

    fn put_frame(&mut self, stream: StreamId, out: &mut Rope) {
        let queue = self.queues.get_mut(&stream).expect("only known streams have a turn");
        let (mut rest, room, kind) = match queue.begun.take() {
            Some(rest) => (rest, limits::PEER_CHUNK_BYTES, MORE),
            None => {
                let waiting = queue.waiting.pop_front().expect("a stream without a message is not ready");
                let total = waiting.bytes.remaining();
                queue.on_its_way += cost(total);
                self.bytes -= MESSAGE_COST as usize;
                let room = limits::PEER_CHUNK_BYTES - MESSAGE_HEAD_BYTES;
                let length = MESSAGE_HEAD_BYTES + total.min(room);
                frame::put_head(out.fields(), length, stream.number(), waiting.kind);
                out.fields().put_u32(u32::try_from(total).expect("messages are far below 4 GiB"));
                out.fields().put_u32(waiting.call);
                (waiting.bytes, room, waiting.kind)
            }
        };
        let now = rest.remaining().min(room);
        if kind == MORE {
            frame::put_head(out.fields(), now, stream.number(), MORE);
        }
        rest.move_to(out, now);
        self.bytes -= now;
        queue.begun = (!rest.is_empty()).then_some(rest);
    }
}

const _: () = assert!(limits::PEER_CHUNK_BYTES > HEAD_BYTES + MESSAGE_HEAD_BYTES);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::{Bytes, BytesMut};

    use super::*;

    fn rope(bytes: usize) -> Rope {
        let mut rope = Rope::new();
        rope.link(Bytes::from(vec![1; bytes]));
        rope
    }

    fn stream(class: Class, lane: u64) -> StreamId {
        StreamId::of(class, lane)
    }

    /// Streams of the frames there are, in order.
    fn order(outbox: &mut Outbox) -> Vec<StreamId> {
        let mut out = Rope::new();
        outbox.fill(&mut out);
        let mut bytes = BytesMut::from(&out.into_bytes()[..]);
        let mut order = Vec::new();
        while let Some(frame) = frame::take(&mut bytes, limits::PEER_CHUNK_BYTES).unwrap() {
            order.push(StreamId::from_number(frame.stream).unwrap());
        }
        assert!(bytes.is_empty());
        order
    }

    #[test]
    fn control_passes_a_large_message_and_the_others_take_turns() {
        let mut outbox = Outbox::default();
        let [heartbeat, request, bulk] =
            [Class::Control, Class::Request, Class::Bulk].map(|class| stream(class, 0));
        assert!(outbox.push(bulk, 0x1002, 0, rope(500_000)));
        assert_eq!(order(&mut outbox), [bulk, bulk], "no more than there is room for");
        assert!(outbox.push(request, 0x2001, 1, rope(200_000)));
        assert!(outbox.push(heartbeat, 0x1001, 0, rope(100)));
        assert_eq!(order(&mut outbox), [heartbeat, request, bulk]);
        assert_eq!(order(&mut outbox), [request, bulk]);
    }

    #[test]
    fn a_window_stops_a_stream_and_credit_lets_it_go_on() {
        let mut outbox = Outbox::default();
        let bulk = stream(Class::Bulk, 3);
        for _ in 0..3 {
            assert!(outbox.push(bulk, 0x1002, 0, rope(limits::PEER_BULK_MESSAGE_BYTES_MAX - 1000)));
        }
        let mut frames = 0;
        loop {
            let some = order(&mut outbox).len();
            frames += some;
            if some == 0 {
                break;
            }
        }
        // A second was begun because the first left room.
        assert_eq!(frames, 2 * 16);
        let message = cost(limits::PEER_BULK_MESSAGE_BYTES_MAX - 1000);
        assert_eq!(outbox.credit(bulk, 2 * message + 1), Err(TooMuch));
        assert_eq!(outbox.credit(stream(Class::Bulk, 4), 1), Err(TooMuch));
        outbox.credit(bulk, message).unwrap();
        assert_eq!(order(&mut outbox), [bulk, bulk]);
    }

    #[test]
    fn a_full_queue_takes_no_more_and_counts_down_to_nothing() {
        let mut outbox = Outbox::default();
        let control = stream(Class::Control, 0);
        let mut count = 0;
        while outbox.push(control, 0x1001, 0, rope(limits::PEER_QUEUE_BYTES_MAX / 8)) {
            count += 1;
        }
        assert_eq!(count, 7);
        loop {
            if order(&mut outbox).is_empty() {
                break;
            }
            let way = outbox.queues[&control].on_its_way;
            outbox.credit(control, way).unwrap();
        }
        assert_eq!(outbox.bytes(), 0);
    }
}
