//! Members of groups, as whoever leads them has them, and who of them could be reached when (C-7).
//!
//! A voter counts as reached from the leader while its process runs and has the group, and nothing is cut between the
//! two; and for a moment longer, because no leader can know earlier.

use std::collections::{BTreeMap, BTreeSet};

use broker::witness::CLUSTER_GROUP;
use metadata::cluster::NodeState;
use raft::{Part, Role};
use types::{NodeId, VnodeId};

use super::heal::cluster_members;
use super::world::World;
use crate::invariants::{Violation, c_07};

/// How long a leader may take a voter for there that is not, microseconds.
const BELIEVED: u64 = 5_000_000;

/// One group's members as a leader had them last.
#[derive(Debug, Default)]
struct Seen {
    voters: BTreeSet<NodeId>,
    learners: BTreeSet<NodeId>,
    /// The voters that could be reached when the change that is under way began.
    began: Option<BTreeSet<NodeId>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Voters {
    groups: BTreeMap<VnodeId, Seen>,
    /// When a node could be reached last by whoever leads a group.
    reached: BTreeMap<(VnodeId, NodeId), u64>,
}

impl Voters {
    fn of(&self, group: VnodeId, voters: &BTreeSet<NodeId>, now: u64) -> BTreeSet<NodeId> {
        let is_reached =
            |node: &&NodeId| self.reached.get(&(group, **node)).is_some_and(|at| at + BELIEVED >= now);
        voters.iter().filter(is_reached).copied().collect()
    }
}

impl World {
    /// Looks at the members of a group that a node leads.
    pub(super) fn look_at_voters(&mut self, id: NodeId, group: VnodeId) -> Result<(), Violation> {
        let Some(process) = self.nodes.get(&id).and_then(|node| node.process.as_ref()) else { return Ok(()) };
        let Some(replica) = process.node.replica(group) else { return Ok(()) };
        let with = |wanted: Part| {
            let parts = replica.members().iter().filter(move |(_, part)| *part == wanted);
            parts.map(|(member, _)| member.node).collect::<BTreeSet<NodeId>>()
        };
        let (voters, learners) = (with(Part::Voter), with(Part::Learner));
        let Some(wanted) = self.wanted(id, group) else { return Ok(()) };
        let now = self.now;
        for node in voters.iter().copied().filter(|node| self.reaches(id, *node, group)).collect::<Vec<_>>() {
            self.voters.reached.insert((group, node), now);
        }
        let seen = self.voters.groups.remove(&group).unwrap_or_default();
        let changed = seen.voters != voters || seen.learners != learners;
        let mut began = seen.began;
        if changed && began.is_none() {
            began = Some(self.voters.of(group, &seen.voters, now));
        }
        let after = self.voters.of(group, &voters, now);
        let left = self.voters.of(group, &seen.voters.difference(&voters).copied().collect(), now);
        // One that was taken off the list by force lost everything a moment ago.
        let tables = self.nodes[&id].process.as_ref().map(|process| process.node.cluster_tables());
        let left = left.iter().find(|node| tables.is_some_and(|tables| tables.node(**node).is_some()));
        if let (Some(before), Some(left)) = (&began, left) {
            self.summary.voters_left += 1;
            // Whom a fault took away since is not missing by the change.
            let before = self.voters.of(group, before, now);
            c_07::enough((group, *left), &before, &after, wanted)?;
        }
        if learners.is_empty() && voters.len() == wanted {
            began = None;
        }
        self.voters.groups.insert(group, Seen { voters, learners, began });
        Ok(())
    }

    /// How many voters a group shall have, as a node has the tables; `None` for one that is on its way out.
    fn wanted(&self, id: NodeId, group: VnodeId) -> Option<usize> {
        let tables = self.nodes.get(&id)?.process.as_ref()?.node.cluster_tables();
        if group == CLUSTER_GROUP {
            // One that has not said a word yet need not come, and may.
            let active = tables.nodes().filter(|(_, node)| node.state == NodeState::Active).count();
            return Some(cluster_members(active));
        }
        tables.topology()?.placements.get(&group).map(Vec::len)
    }

    /// Whether a leader can reach a member of its group.
    fn reaches(&self, leader: NodeId, node: NodeId, group: VnodeId) -> bool {
        let Some(process) = self.nodes.get(&node).and_then(|node| node.process.as_ref()) else {
            return false;
        };
        let takes_part = process.node.replica(group).is_some_and(|replica| replica.role() != Role::Stopped);
        takes_part && (node == leader || self.is_reachable(leader, node))
    }
}
