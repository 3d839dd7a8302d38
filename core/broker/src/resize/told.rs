//! What a range takes and whether it is to be split, for people: worked out by the node that takes its records, from
//! the tables, what it counts and the rules, as the leader of its vnode does it.

use types::RangeId;

use super::decide::{self, Leaf, Topic};
use super::hold;
use super::meter::Rate;
use crate::node::Node;
use crate::upkeep::Limit;

/// How a range stands to what one range is to take and hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing is split by itself.
    Off,
    /// It takes and holds less; in thousandths of what it may.
    Below(u64),
    /// It is split if it goes on.
    Above(u64),
    /// It is not, for this reason.
    Limited(u64, Limit),
}

impl Node {
    /// What a range takes whose records this node takes, and how that stands; `None` for any other.
    pub(crate) fn resize_standing(&self, id: RangeId) -> Option<(Rate, Standing)> {
        let rules = &self.core.config.resize;
        let known = self.ranges.get(&id).filter(|range| range.open_end().is_some())?;
        let vnode = self.core.meta.of(id.topic);
        let (topic, range) = (vnode.topic(id.topic)?, vnode.range(id)?);
        let rate = known.meter.rate;
        if !rules.on {
            return Some((rate, Standing::Off));
        }
        let mut leaves: Vec<Leaf> = vnode
            .active_ranges_of(id.topic)
            .map(|(id, range)| Leaf {
                seq: id.seq,
                span: range.span,
                rate: None,
                keys: Default::default(),
                held: 0,
                may_merge: range.load_splits > 0,
            })
            .collect();
        hold(vnode, id.topic, &mut leaves);
        let own = leaves.iter().position(|leaf| leaf.span == range.span)?;
        leaves[own].keys = (known.meter.keys(), known.meter.keyless());
        let worst = decide::worst_of(rules, rate, leaves[own].held);
        let standing = if worst < decide::SPLIT_AT {
            Standing::Below(worst)
        } else {
            let ranges_in_cluster = self.core.meta.vnodes().map(metadata::vnode::Vnode::leaf_count).sum();
            let topic = Topic { leaves: &leaves, ranges_ever: topic.next_range_seq.0, ranges_in_cluster };
            match decide::cut_of(rules, &topic, &leaves[own]) {
                Ok(_) => Standing::Above(worst),
                Err(limit) => Standing::Limited(worst, limit),
            }
        };
        Some((rate, standing))
    }
}
