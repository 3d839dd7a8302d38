//! How the groups of this node are, counted.

use raft::{Part, Role};
use types::VnodeId;

use super::Meta;
use crate::gauges::ClusterGauges;

impl Meta {
    /// Takes time in proportion to the groups.
    pub(crate) fn cluster_gauges(&self) -> ClusterGauges {
        let mut gauges = ClusterGauges {
            nodes: self.cluster().nodes().count(),
            peers_up: self.up.len(),
            ..ClusterGauges::default()
        };
        for (_, group) in self.host.groups() {
            gauges.groups += 1;
            gauges.applied_lag += group.commit().0.saturating_sub(group.applied().0);
            if group.role() == Role::Leader {
                gauges.led += 1;
                gauges.learners += group.members().iter().filter(|(_, part)| *part == Part::Learner).count();
            } else if group.leader().is_none() {
                gauges.leaderless += 1;
            }
        }
        gauges
    }

    /// How many topics a vnode has, as far as its tables are here.
    pub(crate) fn topics_in(&self, vnode: VnodeId) -> usize {
        self.shards.get(&vnode).map_or(0, |shard| shard.tables.machine().topic_count())
    }
}
