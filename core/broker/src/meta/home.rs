//! Which vnode has a topic, and to which one a name belongs.
//!
//! Names go by the ring; ids by where the tables here have seen the topic. While a topic moves between two vnodes, the
//! tables of the two may be here in any order: both may list it, or neither. What a vnode gave away is kept as it was
//! ([`Meta::of`] goes on finding it) until the tables of the vnode that took its place on the ring are here. Only then
//! is it known whether the topic is there or was deleted meanwhile: that no table lists it says nothing.
//!
//! Invariants:
//! - a topic that exists is found here once it was, whatever order tables come in;
//! - the tables are complete only when the shares of the vnodes cover the ring: what no vnode here covers may hold
//!   topics that are on their way.

use bytes::Bytes;
use metadata::vnode::{Command, Export, Reply, Segment, Share, Topic, Vnode};
use types::keyspace::KeyHash;
use types::ring::PLACES;
use types::{RingArc, SegmentId, TopicId, TopicName, VnodeId};

use super::{Decided, GONE_TOPICS_MAX, Meta, VNODE};
use crate::planted::Bug;

/// A topic that its vnode gave away, and that was not seen anywhere else yet.
#[derive(Debug)]
pub(super) struct Underway {
    /// With this topic alone.
    tables: Vnode,
    place: u32,
    /// The vnode gave it away by the ring of this version, or a later one: whoever covers it by such a ring has it.
    ring_version: u64,
}

impl Meta {
    /// The tables of the vnode that has a topic, as far as they are decided; of an empty vnode when none has.
    pub(crate) fn of(&self, topic: TopicId) -> &Vnode {
        if !self.underway.is_empty()
            && let Some(underway) = self.underway.get(&topic)
        {
            return &underway.tables;
        }
        self.home(topic).map_or(&self.nowhere, |home| self.tables_of(home))
    }

    /// The tables of one vnode, empty when they are not here.
    pub(crate) fn tables_of(&self, vnode: VnodeId) -> &Vnode {
        self.shards.get(&vnode).map_or(&self.nowhere, |shard| shard.tables.machine())
    }

    /// The vnode that has, or had last, a topic; `None` also while it is on its way.
    pub(crate) fn home(&self, topic: TopicId) -> Option<VnodeId> {
        self.topics.get(&topic).copied()
    }

    /// The tables of every vnode, and of topics on their way. While a topic moves it may be in several.
    fn all_tables(&self) -> impl Iterator<Item = (Option<VnodeId>, &Vnode)> {
        let vnodes = self.shards.iter().map(|(vnode, shard)| (Some(*vnode), shard.tables.machine()));
        vnodes.chain(self.underway().map(|tables| (None, tables)))
    }

    /// Every topic once, with the tables it is in.
    pub(crate) fn all_topics(&self) -> impl Iterator<Item = (&Vnode, TopicId, &Topic)> {
        self.all_tables().flat_map(move |(vnode, tables)| {
            let here = tables.topics().filter(move |(topic, _)| self.home(*topic) == vnode);
            here.map(move |(topic, row)| (tables, topic, row))
        })
    }

    /// Every active segment with the name of its topic.
    pub(crate) fn active_segments(&self) -> impl Iterator<Item = (SegmentId, &Segment, &TopicName)> {
        self.all_tables().flat_map(move |(vnode, tables)| {
            let here = tables.segments().filter(move |(id, _)| self.home(id.range.topic) == vnode);
            let active = here.filter(|(_, segment)| segment.is_active());
            active.filter_map(|(id, segment)| Some((id, segment, &tables.topic(id.range.topic)?.name)))
        })
    }

    /// Topics that are on their way, each in tables of its own.
    pub(super) fn underway(&self) -> impl Iterator<Item = &Vnode> {
        self.underway.values().map(|underway| &underway.tables)
    }

    /// The topic of that name.
    pub(crate) fn topic_by_name(&self, name: &TopicName) -> Option<(TopicId, &Topic)> {
        let home = self.tables_of(self.home_of(name)).topic_by_name(name);
        let anywhere = || self.vnodes().find_map(|vnode| vnode.topic_by_name(name));
        let underway = || self.underway().find_map(|tables| tables.topic_by_name(name));
        home.or_else(anywhere).or_else(underway)
    }

    /// The vnode where a topic of that name belongs: by the ring, and by the one to come where it already holds.
    pub(crate) fn home_of(&self, name: &TopicName) -> VnodeId {
        let Some(topology) = self.cluster().topology() else { return VNODE };
        let place = place_of(name);
        let now = topology.ring.route(place).unwrap_or(VNODE);
        if topology.pending.is_none() || self.covers(now, place) {
            return now;
        }
        let then = topology.ring_after().route(place).unwrap_or(now);
        if self.covers(then, place) { then } else { now }
    }

    /// Whether a vnode was told that a place on the ring is its own.
    pub(super) fn covers(&self, vnode: VnodeId, place: u32) -> bool {
        self.arc_of(vnode).is_some_and(|arc| arc.covers(place))
    }

    /// What a vnode was told to cover. One that was told nothing covers all if it is alone on the ring.
    fn arc_of(&self, vnode: VnodeId) -> Option<RingArc> {
        match self.tables_of(vnode).arc() {
            Share::Arc(arc) => Some(arc),
            Share::Nothing => None,
            Share::Whole => {
                let ring = &self.cluster().topology()?.ring;
                ring.arc(vnode).ok().filter(|_| ring.len() == 1)
            }
        }
    }

    /// Whether no topic can be on its way without being found here: the vnodes cover the ring, as their tables are
    /// here. Whoever takes what no table lists for gone asks this too.
    pub(crate) fn covers_ring(&self) -> bool {
        self.is_covered(|_| true)
    }

    /// Whether the vnodes that count cover the whole ring, as their tables are here.
    pub(super) fn is_covered(&self, counts: impl Fn(VnodeId) -> bool) -> bool {
        let arcs = self.all_vnodes().into_iter().filter(|vnode| counts(*vnode));
        let arcs: Vec<RingArc> = arcs.filter_map(|vnode| self.arc_of(vnode)).collect();
        cover_all(&arcs)
    }

    /// A vnode applied something: where its topics are may be another place now.
    pub(super) fn note_topics(&mut self, vnode: VnodeId, command: &Bytes, reply: &Reply) {
        match reply {
            Reply::TopicCreated { root } => drop(self.topics.insert(root.topic, vnode)),
            Reply::TopicInserted => {
                if let Some(Command::InsertTopic { export, .. }) = Command::read(command) {
                    self.is_listed(export.topic().0, vnode);
                }
            }
            Reply::TopicExtracted(Some(export)) => {
                let by = self.tables_of(vnode).ring_version();
                self.is_given_away(vnode, export, by);
            }
            Reply::ArcSet => {
                self.list_topics(vnode);
                self.look_for_underway();
            }
            Reply::TopicDeleted { .. } => {
                let there: usize = self.vnodes().map(Vnode::topic_count).sum();
                if self.topics.len() > 2 * there + GONE_TOPICS_MAX {
                    let mut topics = std::mem::take(&mut self.topics);
                    topics.retain(|topic, home| self.tables_of(*home).topic(*topic).is_some());
                    self.topics = topics;
                }
            }
            Reply::TopicExtracted(None)
            | Reply::TopicSealed
            | Reply::RangeSplit { .. }
            | Reply::RangesMerged { .. }
            | Reply::SegmentRegistered
            | Reply::SegmentSealed
            | Reply::SegmentDeleted(_)
            | Reply::ReplicasSet
            | Reply::PolicyBound
            | Reply::PositionsCommitted(_)
            | Reply::GroupExpired
            | Reply::MigrationBegun
            | Reply::MigrationEnded
            | Reply::Upgraded(_)
            | Reply::Refused(_) => {}
        }
    }

    /// Notes the topics of a vnode, after other than one by one.
    pub(super) fn list_topics(&mut self, vnode: VnodeId) {
        let topics: Vec<TopicId> = self.tables_of(vnode).topics().map(|(topic, _)| topic).collect();
        for topic in topics {
            self.is_listed(topic, vnode);
        }
    }

    /// The tables of a vnode are others, not by its entries one by one; these were the ones before.
    pub(super) fn jumped(&mut self, vnode: VnodeId, before: &Vnode) {
        self.list_topics(vnode);
        let lost: Vec<TopicId> = before
            .topics()
            .filter(|(topic, row)| {
                let now = self.tables_of(vnode);
                self.home(*topic) == Some(vnode) && now.topic(*topic).is_none() && !now.owns(&row.name)
            })
            .map(|(topic, _)| topic)
            .collect();
        self.are_given_away(vnode, before, &lost);
        self.look_for_underway();
        self.decided.extend(self.ready.1.then_some(Decided::Jumped(vnode)));
    }

    /// A vnode lists a topic.
    fn is_listed(&mut self, topic: TopicId, vnode: VnodeId) {
        let Some(name) = self.tables_of(vnode).topic(topic).map(|row| row.name.clone()) else { return };
        let was = self.home(topic).filter(|home| self.tables_of(*home).topic(topic).is_some());
        let stays = was.is_some_and(|was| was == vnode || !self.is_later(vnode, was, place_of(&name)));
        let was_underway = self.underway.remove(&topic).is_some();
        if stays && !was_underway {
            return;
        }
        let before = self.topics.insert(topic, vnode);
        if self.ready.1 && (was_underway || before.is_some_and(|before| before != vnode)) {
            self.decided.push(Decided::Moved(topic));
        }
    }

    /// Of two vnodes that list a topic of that place, whether `one` has it later than the `other`.
    fn is_later(&self, one: VnodeId, other: VnodeId, place: u32) -> bool {
        let rank = |vnode| (self.covers(vnode, place), self.tables_of(vnode).ring_version());
        rank(one) > rank(other)
    }

    /// A vnode had these topics when its tables were these, and has them no more. It gave them away by a later ring
    /// than the one it had them by.
    fn are_given_away(&mut self, vnode: VnodeId, before: &Vnode, topics: &[TopicId]) {
        for export in topics.iter().filter_map(|topic| before.export(*topic)) {
            let had = before.owns(&export.topic().1.name);
            self.is_given_away(vnode, &export, before.ring_version() + u64::from(had));
        }
    }

    /// A vnode does not list a topic any more, because by that version of the ring, or a later one, it is another's.
    fn is_given_away(&mut self, vnode: VnodeId, export: &Export, ring_version: u64) {
        let (topic, row) = export.topic();
        if self.home(topic) != Some(vnode) {
            return;
        }
        let lists = |other: &VnodeId| self.tables_of(*other).topic(topic).is_some();
        if let Some(other) = self.shards.keys().copied().find(lists) {
            return self.is_listed(topic, other);
        }
        if self.planted.has(Bug::GoneUnderway) {
            return self.decided.push(Decided::Vanished(topic));
        }
        let (place, tables) = (place_of(&row.name), export.clone().into_vnode());
        self.topics.remove(&topic);
        self.underway.insert(topic, Underway { tables, place, ring_version });
    }

    /// What is on its way and not at the vnode that covers it by now was deleted there.
    pub(super) fn look_for_underway(&mut self) {
        if self.underway.is_empty() {
            return;
        }
        let vnodes = self.all_vnodes();
        let gone = |underway: &Underway| {
            vnodes.iter().any(|vnode| {
                self.covers(*vnode, underway.place)
                    && self.tables_of(*vnode).ring_version() >= underway.ring_version
            })
        };
        let gone: Vec<TopicId> =
            self.underway.iter().filter(|(_, underway)| gone(underway)).map(|(topic, _)| *topic).collect();
        for topic in gone {
            self.underway.remove(&topic);
            self.decided.extend(self.ready.1.then_some(Decided::Vanished(topic)));
        }
    }

    /// Forgets the tables of vnodes that left the ring.
    pub(super) fn forget_gone(&mut self) {
        let gone: Vec<VnodeId> = self.shards.keys().copied().filter(|vnode| self.is_gone(*vnode)).collect();
        for vnode in gone {
            if self.host.has(vnode) {
                continue;
            }
            let Some(shard) = self.shards.remove(&vnode) else { continue };
            let before = shard.tables.machine();
            let listed: Vec<TopicId> = before.topics().map(|(topic, _)| topic).collect();
            self.are_given_away(vnode, before, &listed);
            for (id, commit, until) in shard.commits {
                self.detour_commit(id, commit, until);
            }
        }
        self.look_for_underway();
    }

    /// Whether a vnode is off the ring for good: ids are not given twice.
    pub(crate) fn is_gone(&self, vnode: VnodeId) -> bool {
        let Some(topology) = self.cluster().topology() else { return false };
        let comes = topology.coming().is_some_and(|(coming, _)| coming == vnode);
        vnode < topology.next_vnode && !comes && !topology.placements.contains_key(&vnode)
    }

    /// The vnodes of the ring, and the one that is on its way onto it.
    pub(super) fn all_vnodes(&self) -> Vec<VnodeId> {
        let Some(topology) = self.cluster().topology() else { return Vec::new() };
        topology.placements.keys().copied().chain(topology.coming().map(|(vnode, _)| vnode)).collect()
    }
}

/// The place of a name on the ring.
pub(super) fn place_of(name: &TopicName) -> u32 {
    KeyHash::Xxh32.of(name.as_str().as_bytes())
}

/// Whether arcs leave no place of the ring out.
fn cover_all(arcs: &[RingArc]) -> bool {
    // From a first place to an end, exclusive, neither over the end of the ring.
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for arc in arcs {
        let first = u64::from(arc.after.wrapping_add(1));
        let end = first + arc.places();
        runs.push((first, end.min(PLACES)));
        if end > PLACES {
            runs.push((0, end - PLACES));
        }
    }
    runs.sort_unstable();
    let reached = runs.iter().try_fold(
        0,
        |reached, (first, end)| {
            if *first <= reached { Some(reached.max(*end)) } else { None }
        },
    );
    reached == Some(PLACES)
}

#[cfg(test)]
mod tests {
    use types::Ring;

    use super::*;

    #[test]
    fn a_ring_without_one_of_its_arcs_has_a_gap() {
        for count in 1..9 {
            let ring = Ring::boot(count).unwrap_or_default();
            let arcs: Vec<RingArc> = ring.arcs().map(|(_, arc)| arc).collect();
            assert!(cover_all(&arcs));
            for left_out in 0..arcs.len() {
                let mut some = arcs.clone();
                some.remove(left_out);
                assert!(!cover_all(&some), "{some:?}");
            }
        }
        let over_the_end = RingArc { after: 1 << 31, upto: 5 };
        let rest = RingArc { after: 5, upto: 1 << 31 };
        assert!(cover_all(&[rest, over_the_end]) && cover_all(&[over_the_end, rest, rest]));
        assert!(!cover_all(&[over_the_end, RingArc { after: 6, upto: 1 << 31 }]));
    }
}
