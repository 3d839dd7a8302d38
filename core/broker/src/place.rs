//! Which range each record of a request goes to.
//!
//! Owns the grouping of a request's records by range and the turns of keyless records. A topic of one range is
//! the common case and costs nothing: the records pass as they came.
//!
//! Invariants:
//! - every record is in exactly one part, and a part keeps the order of the request;
//! - nothing is grouped unless every record has an active range.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use metadata::vnode::Vnode;
use types::record::Walk;
use types::{KeySpan, Position, RangeId, Stamp, TopicId};

use crate::node::Node;
use crate::planted::Bug;
use crate::route::Unrouted;

/// The records of one request that go to one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) range: RangeId,
    pub(crate) records: Records,
}

/// Records of one request, or a part of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Records {
    /// In wire encoding, back to back.
    pub(crate) records: Bytes,
    pub(crate) count: u32,
    /// CRC-32 over `records`, with no seed.
    pub(crate) crc: u32,
    /// Which request of which producer, if that repeats itself.
    pub(crate) stamp: Option<Stamp>,
}

impl Node {
    /// Places every record of a request, or none.
    pub(crate) fn place_records(&mut self, topic: TopicId, records: Records) -> Result<Vec<Part>, Unrouted> {
        let vnode = self.core.meta.of(topic);
        let mut active = vnode.active_ranges_of(topic);
        let Some((first, _)) = active.next() else {
            // What waited may find its topic gone.
            let exists = vnode.topic(topic).is_some();
            return Err(if exists { Unrouted::NoActiveRange } else { Unrouted::NoSuchTopic });
        };
        if active.next().is_none() {
            return Ok(vec![Part { range: first, records }]);
        }
        drop(active);
        let turn = self.keyless_turns.get(&topic).copied().unwrap_or(0);
        let mut grouping = Grouping::new(vnode, topic, turn)?;
        grouping.stamp = records.stamp.filter(|_| !self.core.config.has_bug(Bug::KeylessByTurn));
        let parts = grouping.group(records)?;
        let turn = grouping.turn;
        self.keyless_turns.insert(topic, turn);
        Ok(parts)
    }

    /// Places records again that were placed in a range whose place others took.
    ///
    /// A frame with a stamp says that all of its request's records with keys of its range are in it. So records that
    /// bear one go only to ranges for which they are everything: those that lie within the range they were placed in.
    /// After a merge another part of the same request may be on its way to the same range, and would be taken for a
    /// repetition of this one.
    pub(crate) fn place_again(&mut self, placed: RangeId, records: Records) -> Result<Vec<Part>, Unrouted> {
        let is_stamped = records.stamp.is_some() && !self.core.config.has_bug(Bug::JoinParts);
        let parts = self.place_records(placed.topic, records)?;
        if is_stamped {
            let vnode = self.core.meta.of(placed.topic);
            let span = vnode.range(placed).map(|range| range.span);
            let lies_within = |part: &Part| {
                let inner = vnode.range(part.range).map(|range| range.span);
                span.zip(inner).is_some_and(|(span, inner)| span.covers(inner))
            };
            if !parts.iter().all(lies_within) {
                return Err(Unrouted::Merged);
            }
        }
        Ok(parts)
    }
}

/// One request being grouped.
struct Grouping<'a> {
    vnode: &'a Vnode,
    topic: TopicId,
    metadata: &'a metadata::vnode::Topic,
    /// Ranges met so far: slice and how much goes there.
    slots: Vec<Slot>,
    /// Index of each slot by the start of its slice.
    by_start: BTreeMap<u64, usize>,
    /// Index of the slot of keyless records.
    keyless: Option<usize>,
    /// Where the next keyless request looks for its range.
    turn: u64,
    /// Of a request that may be placed more than once: its keyless records go to the same place each time.
    stamp: Option<Stamp>,
}

struct Slot {
    range: RangeId,
    span: KeySpan,
    bytes: usize,
    count: u32,
}

impl<'a> Grouping<'a> {
    fn new(vnode: &'a Vnode, topic: TopicId, turn: u64) -> Result<Self, Unrouted> {
        let metadata = vnode.topic(topic).ok_or(Unrouted::NoSuchTopic)?;
        let (slots, by_start) = (Vec::new(), BTreeMap::new());
        Ok(Self { vnode, topic, metadata, slots, by_start, keyless: None, turn, stamp: None })
    }

    fn group(&mut self, whole: Records) -> Result<Vec<Part>, Unrouted> {
        let Records { records, count, stamp, .. } = &whole;
        let mut places = Vec::with_capacity(*count as usize);
        let mut last = 0;
        for span in Walk::new(records) {
            // The edge has walked them; whatever does not walk has no key to be placed by.
            let span = span.map_err(|_| Unrouted::NoActiveRange)?;
            last = match span.key {
                Some(key) => self.keyed(key, last)?,
                None => self.keyless()?,
            };
            self.slots[last].bytes += span.end - span.start;
            self.slots[last].count += 1;
            places.push((last, span.start..span.end));
        }
        if let [slot] = &self.slots[..] {
            return Ok(vec![Part { range: slot.range, records: whole }]);
        }
        let mut bodies: Vec<BytesMut> =
            self.slots.iter().map(|slot| BytesMut::with_capacity(slot.bytes)).collect();
        for (slot, bytes) in places {
            bodies[slot].extend_from_slice(&records[bytes]);
        }
        let part = |(slot, body): (&Slot, BytesMut)| {
            let crc = crc32fast::hash(&body);
            let records = Records { records: body.freeze(), count: slot.count, crc, stamp: *stamp };
            Part { range: slot.range, records }
        };
        Ok(self.slots.iter().zip(bodies).map(part).collect())
    }

    /// The slot of a key; `last` is where the record before it went.
    fn keyed(&mut self, key: &[u8], last: usize) -> Result<usize, Unrouted> {
        let position = self.metadata.keyspace.position(self.metadata.key_hash, key);
        if self.slots.get(last).is_some_and(|slot| slot.span.contains(position)) {
            return Ok(last);
        }
        self.slot(position)
    }

    /// All keyless records of a request go to one range, the next request's to the range after it; of requests that may
    /// be repeated, to wherever its stamp says.
    fn keyless(&mut self) -> Result<usize, Unrouted> {
        if let Some(slot) = self.keyless {
            return Ok(slot);
        }
        let slot = if let Some(stamp) = self.stamp {
            self.slot(stamp.keyless_position(self.metadata.keyspace))?
        } else {
            let at = self.turn % self.metadata.keyspace.size();
            let at = Position(u32::try_from(at).expect("a keyspace has at most 2^32 positions"));
            let slot = self.slot(at)?;
            self.turn = self.slots[slot].span.end();
            slot
        };
        self.keyless = Some(slot);
        Ok(slot)
    }

    fn slot(&mut self, position: Position) -> Result<usize, Unrouted> {
        let before = self.by_start.range(..=u64::from(position.0)).next_back();
        if let Some((_, &slot)) = before.filter(|(_, slot)| self.slots[**slot].span.contains(position)) {
            return Ok(slot);
        }
        let (range, found) =
            self.vnode.active_range_at(self.topic, position).ok_or(Unrouted::NoActiveRange)?;
        self.by_start.insert(found.span.start(), self.slots.len());
        self.slots.push(Slot { range, span: found.span, bytes: 0, count: 0 });
        Ok(self.slots.len() - 1)
    }
}
