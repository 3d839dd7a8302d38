//! One life of a topic: its ranges, its records, its groups.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use types::{RangeId, RangeSeq, TopicId};

use super::group::{Change, Group, Holder};
use super::keyspace::{self, Span};
use super::log::{Log, Which};
use super::place::Place;
use super::ranges::Ranges;
use super::{CallId, Life};

/// One life of a topic.
#[derive(Clone, Debug)]
pub(in super::super) struct Topic {
    /// Index of its name.
    pub(in super::super) name: usize,
    pub(in super::super) id: TopicId,
    /// Width of its keyspace.
    pub(in super::super) bits: u8,
    pub(in super::super) log: Log,
    pub(in super::super) ranges: Ranges,
    pub(in super::super) sealed: bool,
    /// Somebody asked for it, and never heard.
    pub(in super::super) maybe_sealed: bool,
    pub(in super::super) deleted: bool,
    pub(in super::super) maybe_deleted: bool,
    pub(in super::super) groups: BTreeMap<Bytes, Group>,
    /// Records acknowledged of each range, as far as their keys tell.
    acknowledged: BTreeMap<u64, u64>,
}

impl Topic {
    pub(super) fn new(index: usize, name: &'static str, id: TopicId, bits: u8) -> Self {
        let size = keyspace::size(bits);
        Self {
            name: index,
            id,
            bits: if (1..=32).contains(&bits) { bits } else { 16 },
            log: Log::new(name, size),
            ranges: Ranges::new(size),
            sealed: false,
            maybe_sealed: false,
            deleted: false,
            maybe_deleted: false,
            groups: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
        }
    }

    pub(in super::super) fn log_name(&self) -> &'static str {
        self.log.topic
    }

    /// Whether a key lies in a slice.
    pub(in super::super) fn places(&self, key: &[u8], span: Span) -> bool {
        keyspace::contains(span, keyspace::position(key, self.log.size))
    }

    pub(in super::super) fn range_id(&self, number: u64) -> RangeId {
        RangeId { topic: self.id, seq: RangeSeq(number) }
    }

    /// Whether all its records have one order.
    pub(in super::super) fn is_single(&self) -> bool {
        self.ranges.len() == 1
    }

    /// The ranges that take the records of a request now, as far as their keys tell.
    pub(in super::super) fn routes(&self, batch: usize) -> BTreeMap<u64, u64> {
        let mut routes = BTreeMap::new();
        for which in &self.log.batches[batch].records {
            let range = match which {
                Which::Keyed { key, .. } => self.ranges.leaf_at(self.log.positions[*key]),
                Which::Loose(_) if self.is_single() => 0,
                Which::Loose(_) => continue,
            };
            *routes.entry(range).or_default() += 1;
        }
        routes
    }

    /// A request was acknowledged that was routed so when it arrived. Gives how many records each range that is
    /// still there has acknowledged in all.
    pub(in super::super) fn count(&mut self, routes: &BTreeMap<u64, u64>) -> Vec<(RangeId, u64)> {
        let mut counts = Vec::new();
        for (range, records) in routes {
            // One that was replaced meanwhile may have handed them on.
            if self.ranges.leaves().any(|(leaf, _)| leaf == *range) {
                let id = self.range_id(*range);
                let count = self.acknowledged.entry(*range).or_default();
                *count += records;
                counts.push((id, *count));
            }
        }
        counts
    }

    pub(in super::super) fn group(&mut self, name: &Bytes) -> &mut Group {
        self.groups.entry(name.clone()).or_default()
    }

    /// A request to store positions has reached the node.
    pub(in super::super) fn commit_asked(
        &mut self,
        name: &Bytes,
        call: CallId,
        place: &Rc<Place>,
        holder: Option<&Holder>,
        (life, now): (Life, u64),
    ) {
        let group = self.group(name);
        let moves = holder.map(|holder| {
            let spans: Vec<Span> = place.covers().map(<[Span]>::to_vec).unwrap_or_default();
            group.members.moves(name, holder, &spans, life, now)
        });
        group.asked(call, Change { place: Rc::clone(place), moves });
    }

    pub(in super::super) fn commit_done(&mut self, name: &Bytes, call: CallId) {
        let Self { groups, log, .. } = self;
        if let Some(group) = groups.get_mut(name) {
            group.acknowledged(call, &log.positions);
        }
    }

    pub(in super::super) fn commit_failed(&mut self, name: &Bytes, call: CallId, life: Life, unknown: bool) {
        if let Some(group) = self.groups.get_mut(name) {
            group.failed(call, life, unknown);
        }
    }

    /// Where a group may stand, in the middle of whatever the node is just telling.
    pub(in super::super) fn possible(&self, name: &Bytes) -> Place {
        let group = self.groups.get(name);
        group.map_or_else(Place::beginning, |group| group.possible(&self.log.positions))
    }

    pub(super) fn life_ended(&mut self, life: Life, wall: u64) {
        self.log.life_ended(life, wall);
        self.groups.values_mut().for_each(|group| group.life_ended(life));
    }

    pub(super) fn life_began(&mut self, life: Life) {
        let Self { groups, log, .. } = self;
        groups.values_mut().for_each(|group| group.life_began(life, &log.positions));
    }
}
