//! Long polls that found nothing and wait.
//!
//! Owns which fetches are parked, by topic name (the topic may not exist yet), by deadline and by
//! connection. Does not read: whoever is taken out is read again.
//!
//! Invariants: every parked fetch is in all three indexes; there are never more than the limit.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::Instant;

use crate::event::{ConnectionId, RequestId};

/// A parked fetch and where it is indexed.
#[derive(Debug)]
struct Entry<T> {
    topic: Bytes,
    deadline: Instant,
    parked: T,
}

/// All parked fetches.
#[derive(Debug)]
pub(crate) struct Waiters<T> {
    max: usize,
    /// Ordered by connection, so that it is the index by connection too.
    entries: BTreeMap<RequestId, Entry<T>>,
    by_topic: BTreeMap<Bytes, BTreeSet<RequestId>>,
    by_deadline: BTreeSet<(Instant, RequestId)>,
}

impl<T> Waiters<T> {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, entries: BTreeMap::new(), by_topic: BTreeMap::new(), by_deadline: BTreeSet::new() }
    }

    /// Whether one more may be parked.
    pub(crate) fn has_room(&self) -> bool {
        self.entries.len() < self.max
    }

    /// Parks a fetch under a topic name until a deadline. Only with room.
    pub(crate) fn park(&mut self, id: RequestId, topic: Bytes, deadline: Instant, parked: T) {
        assert!(self.has_room(), "whoever parks has looked for room");
        self.by_topic.entry(topic.clone()).or_default().insert(id);
        self.by_deadline.insert((deadline, id));
        self.entries.insert(id, Entry { topic, deadline, parked });
    }

    fn remove(&mut self, id: RequestId) -> Option<T> {
        let entry = self.entries.remove(&id)?;
        self.by_deadline.remove(&(entry.deadline, id));
        if let Some(ids) = self.by_topic.get_mut(&entry.topic) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_topic.remove(&entry.topic);
            }
        }
        Some(entry.parked)
    }

    fn remove_all(&mut self, ids: Vec<RequestId>) -> Vec<(RequestId, T)> {
        ids.into_iter().filter_map(|id| self.remove(id).map(|parked| (id, parked))).collect()
    }

    /// Takes out every fetch parked under a topic name.
    pub(crate) fn take_topic(&mut self, topic: &[u8]) -> Vec<(RequestId, T)> {
        // Nearly every append finds nobody: that must cost one look-up.
        let Some(ids) = self.by_topic.get(topic) else { return Vec::new() };
        let ids = ids.iter().copied().collect();
        self.remove_all(ids)
    }

    /// Takes out the fetches under a topic name that somebody wants.
    pub(crate) fn take_topic_where(
        &mut self,
        topic: &[u8],
        wanted: impl Fn(&T) -> bool,
    ) -> Vec<(RequestId, T)> {
        let Some(ids) = self.by_topic.get(topic) else { return Vec::new() };
        let wanted = |id: &RequestId| self.entries.get(id).is_some_and(|entry| wanted(&entry.parked));
        let ids = ids.iter().copied().filter(wanted).collect();
        self.remove_all(ids)
    }

    /// Takes out one fetch.
    pub(crate) fn take(&mut self, id: RequestId) -> Option<T> {
        self.remove(id)
    }

    /// How many are parked.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes out every fetch whose time is up.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<(RequestId, T)> {
        let due = self.by_deadline.iter().take_while(|(deadline, _)| *deadline <= now);
        let ids = due.map(|(_, id)| *id).collect();
        self.remove_all(ids)
    }

    /// Takes out what a connection has parked.
    pub(crate) fn take_connection(&mut self, connection: ConnectionId) -> Vec<(RequestId, T)> {
        let first = RequestId { connection, number: 0 };
        let last = RequestId { connection, number: u64::MAX };
        let ids = self.entries.range(first..=last).map(|(id, _)| *id).collect();
        self.remove_all(ids)
    }

    /// When the next one's time is up.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(connection: u64, number: u64) -> RequestId {
        RequestId { connection: ConnectionId(connection), number }
    }

    fn waiters() -> Waiters<u8> {
        let mut waiters = Waiters::new(3);
        waiters.park(id(1, 1), Bytes::from_static(b"a"), Instant(30), 0);
        waiters.park(id(1, 2), Bytes::from_static(b"b"), Instant(10), 1);
        waiters.park(id(2, 1), Bytes::from_static(b"a"), Instant(20), 2);
        waiters
    }

    fn empty(waiters: &Waiters<u8>) -> bool {
        waiters.entries.is_empty() && waiters.by_topic.is_empty() && waiters.by_deadline.is_empty()
    }

    #[test]
    fn a_topic_wakes_its_own_and_leaves_no_trace() {
        let mut waiters = waiters();
        assert!(!waiters.has_room());
        assert_eq!(waiters.take_topic(b"a"), [(id(1, 1), 0), (id(2, 1), 2)]);
        assert_eq!(waiters.take_topic(b"a"), []);
        assert_eq!(waiters.take_topic(b"b"), [(id(1, 2), 1)]);
        assert!(empty(&waiters) && waiters.has_room());
    }

    #[test]
    fn deadlines_are_inclusive_and_in_order() {
        let mut waiters = waiters();
        assert_eq!(waiters.next_deadline(), Some(Instant(10)));
        assert_eq!(waiters.take_due(Instant(9)), []);
        assert_eq!(waiters.take_due(Instant(20)), [(id(1, 2), 1), (id(2, 1), 2)]);
        assert_eq!(waiters.next_deadline(), Some(Instant(30)));
    }

    #[test]
    fn a_closed_connection_takes_its_own_away() {
        let mut waiters = waiters();
        assert_eq!(waiters.take_connection(ConnectionId(1)), [(id(1, 1), 0), (id(1, 2), 1)]);
        assert_eq!(waiters.take_due(Instant(99)), [(id(2, 1), 2)]);
        assert!(empty(&waiters));
    }
}
