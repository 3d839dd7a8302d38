//! Appends that wait for the end of the burst, so that those to one copy go together.
//!
//! Owns nothing but that wait, which is no time: whoever drives the node flushes it after each burst of events. A burst
//! of small requests costs a copy one request, whether it is here or on another node, and its primary one answer.
//!
//! - Appends to one copy keep their order, and whatever else is asked of it goes behind them.
//! - Other nodes are sent theirs first: the own disk answers whatever it takes to reach them.

use std::collections::BTreeMap;

use storage::format::batch::Batch;
use storage::store::Request;
use types::{NodeId, SegmentId, limits};

use crate::node::{Core, Owner};
use crate::segments::EPOCH_FIRST;

/// Appends on their way to copies.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    groups: BTreeMap<(NodeId, SegmentId), Group>,
}

/// Those to one copy.
#[derive(Debug)]
struct Group {
    /// Of all of them.
    owner: Owner,
    batches: Vec<Batch>,
    bytes: u64,
}

impl Group {
    /// Whether another batch may go with these.
    fn takes(&self, owner: Owner, bytes: u64) -> bool {
        self.owner.joined(owner).is_some()
            && self.batches.len() < limits::APPEND_GROUP_BATCHES
            && self.bytes.saturating_add(bytes) <= limits::APPEND_GROUP_BYTES
    }
}

impl Gathered {
    /// Whether anything waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

impl Core {
    /// Has a batch appended to a copy, here or on another node, under the epoch that registrations give. The answer
    /// comes to `owner`, or to the owner of all that it goes with.
    pub(crate) fn append_to_copy(&mut self, holder: NodeId, owner: Owner, segment: SegmentId, batch: Batch) {
        let (copy, bytes) = ((holder, segment), batch.header.frame_len());
        if self.gathered.groups.get(&copy).is_some_and(|group| !group.takes(owner, bytes)) {
            self.send_gathered_to(holder, segment);
        }
        let new = || Group { owner, batches: Vec::new(), bytes: 0 };
        let group = self.gathered.groups.entry(copy).or_insert_with(new);
        group.owner = group.owner.joined(owner).unwrap_or(owner);
        group.batches.push(batch);
        group.bytes = group.bytes.saturating_add(bytes);
        if group.bytes >= limits::APPEND_GROUP_BYTES {
            self.send_gathered_to(holder, segment);
        }
    }

    /// Sends what waits for one copy.
    pub(crate) fn send_gathered_to(&mut self, holder: NodeId, segment: SegmentId) {
        if let Some(group) = self.gathered.groups.remove(&(holder, segment)) {
            self.send_group(holder, segment, group);
        }
    }

    /// Sends everything that waits.
    pub(crate) fn send_gathered(&mut self) {
        let own = self.config.node;
        let (here, there): (Vec<_>, Vec<_>) = std::mem::take(&mut self.gathered.groups)
            .into_iter()
            .partition(|((holder, _), _)| *holder == own);
        for ((holder, segment), group) in there.into_iter().chain(here) {
            self.send_group(holder, segment, group);
        }
    }

    fn send_group(&mut self, holder: NodeId, segment: SegmentId, Group { owner, batches, .. }: Group) {
        self.ask_copy(holder, owner, Request::Append { segment, epoch: EPOCH_FIRST, batches });
    }
}
