//! What was read of ranges before their reader came to them.
//!
//! A reader of many ranges with little in each would wait for the disk once for each of them. So while it waits for
//! one, some of the next are read too. Owns those reads and what they gave, until a reader wants it. Decides nothing
//! about what a reader may see: whoever takes batches from here judges them like those of its own read.
//!
//! - Bounded: so many reads on their way and not yet wanted, of so many bytes each; the oldest go first.
//! - Of no consequence for any answer: what failed, or is not here any more, is read again by whoever wants it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use storage::format::batch::Batch;
use types::{Offset, SegmentId, limits};

/// Where a read begins.
pub(crate) type Key = (SegmentId, Offset);

/// Reads ahead of their readers.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    on_their_way: BTreeSet<Key>,
    read: BTreeMap<Key, Vec<Batch>>,
    /// Of `read`, oldest first; may name what was taken since.
    order: VecDeque<Key>,
}

impl Ahead {
    /// Whether another read may be asked for.
    pub(crate) fn has_room(&self) -> bool {
        self.on_their_way.len() < limits::READS_AHEAD_MAX
    }

    /// Whether it is on its way or here.
    pub(crate) fn holds(&self, key: Key) -> bool {
        self.on_their_way.contains(&key) || self.read.contains_key(&key)
    }

    pub(crate) fn asked(&mut self, key: Key) {
        self.on_their_way.insert(key);
    }

    /// It was answered; true when it was read ahead.
    pub(crate) fn answered(&mut self, key: Key) -> bool {
        self.on_their_way.remove(&key)
    }

    /// Keeps what nobody wants yet.
    pub(crate) fn keep(&mut self, key: Key, batches: Vec<Batch>) {
        if self.read.insert(key, batches).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > limits::READS_AHEAD_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            self.read.remove(&oldest);
        }
    }

    pub(crate) fn take(&mut self, key: Key) -> Option<Vec<Batch>> {
        let batches = self.read.remove(&key)?;
        // Where it is looked for first: readers take in the order in which they asked.
        if let Some(at) = self.order.iter().position(|kept| *kept == key) {
            self.order.remove(at);
        }
        Some(batches)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use types::{RangeId, RangeSeq, TopicId};

    use super::*;

    fn key(offset: u64) -> Key {
        let range = RangeId { topic: TopicId(7), seq: RangeSeq(0) };
        (SegmentId { range, seq: types::SegmentSeq(0) }, Offset(offset))
    }

    #[test]
    fn the_oldest_make_room() {
        let most = limits::READS_AHEAD_MAX as u64;
        let mut ahead = Ahead::default();
        (0..most).for_each(|offset| ahead.asked(key(offset)));
        assert!(!ahead.has_room() && ahead.holds(key(0)));
        assert!(ahead.answered(key(0)) && !ahead.answered(key(0)) && ahead.has_room());
        (0..=most).for_each(|offset| ahead.keep(key(offset), Vec::new()));
        assert_eq!(ahead.take(key(0)), None);
        assert_eq!(ahead.take(key(1)), Some(Vec::new()));
        // What was taken does not count.
        ahead.keep(key(0), Vec::new());
        assert_eq!((ahead.take(key(2)), ahead.read.len()), (Some(Vec::new()), ahead.order.len()));
    }
}
