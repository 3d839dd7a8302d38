//! What ranges take, from their primaries to the leader of their vnode.
//!
//! Owns the report that goes out now and then and what was heard of others'. A range that took nothing is told of once
//! more, and goes on being told of while its topic has another: only what is known to be quiet is merged.

use std::collections::BTreeMap;
use std::time::Duration;

use metadata::vnode::RangeState;
use peer::Message;
use peer::message::load::Load;
use types::record::Walk;
use types::{Instant, NodeId, Position, RangeId, limits};

use super::Resizes;
use super::decide::load_of;
use super::meter::Rate;
use crate::action::Action;
use crate::node::Node;
use crate::segments::State;

/// What was told counts for that long.
const FRESH: Duration = Duration::from_secs(30);
/// Then it is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(120);
/// Of a range that takes less, in thousandths of what one is to take, no keys are told.
const KEYS_FROM: u64 = 100;

/// What was told of a range last.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) rate: Rate,
    pub(super) keys: Vec<Position>,
    pub(super) keyless: u16,
    at: Instant,
}

impl Heard {
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        now.since(self.at) < FRESH
    }
}

impl Resizes {
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.heard.retain(|_, heard| now.since(heard.at) < FORGET_AFTER);
    }
}

impl Node {
    /// Looks at the key of one record of a batch.
    pub(crate) fn look_at_key(&mut self, id: RangeId, turn: usize, records: &[u8]) {
        let Some(topic) = self.core.meta.of(id.topic).topic(id.topic) else { return };
        let Some(Ok(record)) = Walk::new(records).nth(turn) else { return };
        let position = record.key.map(|key| topic.keyspace.position(topic.key_hash, key));
        if let Some(range) = self.ranges.get_mut(&id) {
            range.meter.saw(position);
        }
    }

    /// Tells what ranges of this node have taken since the last report, when it is time.
    pub(super) fn report_loads(&mut self) {
        let (now, every) = (self.core.now, self.core.config.resize.report_every);
        let (next, last) = *self.resizes.report.get_or_insert((now.plus(every), now));
        if next > now {
            return;
        }
        self.resizes.report = Some((now.plus(every), now));
        for (leader, loads) in self.loads_since(last) {
            if leader == self.core.config.node {
                self.heard_loads(loads);
                continue;
            }
            for loads in loads.chunks(limits::LOADS_PER_MESSAGE_MAX).take(limits::LOADS_MESSAGES_MAX) {
                self.core.out.push(Action::Say { to: leader, message: Message::Loads(loads.to_vec()) });
            }
        }
    }

    /// By who leads their metadata, the greatest first.
    fn loads_since(&mut self, last: Instant) -> BTreeMap<NodeId, Vec<Load>> {
        let (meta, rules) = (&self.core.meta, &self.core.config.resize);
        let took = self.core.now.since(last);
        let mut loads: BTreeMap<NodeId, Vec<Load>> = BTreeMap::new();
        for (id, range) in &mut self.ranges {
            let State::Open(_) = range.state else { continue };
            let before = std::mem::take(&mut range.meter.rate);
            let rate = range.meter.end(took);
            let is_quiet = before == Rate::default() && rate == before;
            if is_quiet && meta.of(id.topic).active_ranges_of(id.topic).nth(1).is_none() {
                continue;
            }
            let Some(leader) = meta.home(id.topic).and_then(|vnode| meta.leader(vnode)) else { continue };
            let tells = load_of(rules, rate) >= KEYS_FROM;
            loads.entry(leader).or_default().push(Load {
                range: *id,
                records: rate.records,
                bytes: rate.bytes,
                keyless: range.meter.keyless(),
                keys: if tells { range.meter.keys() } else { Vec::new() },
            });
        }
        for loads in loads.values_mut() {
            // Of the rest nothing is told: what is not known is not merged.
            loads.sort_by_key(|load| std::cmp::Reverse((load.records, load.bytes)));
        }
        loads
    }

    /// Primaries told what their ranges take.
    pub(crate) fn heard_loads(&mut self, loads: Vec<Load>) {
        let at = self.core.now;
        for Load { range, records, bytes, keyless, keys } in loads {
            let meta = &self.core.meta;
            let leads = meta.home(range.topic).is_some_and(|vnode| meta.leads(vnode));
            let listed = meta.of(range.topic).range(range).map(|range| range.state);
            if leads && listed == Some(RangeState::Active) {
                let rate = Rate { records, bytes };
                self.resizes.heard.insert(range, Heard { rate, keys, keyless, at });
            }
        }
    }
}
