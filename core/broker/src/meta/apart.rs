//! Replicas here whose leader cannot be reached from this node, while other nodes can.
//!
//! Owns since when that is so. After a while the tables are kept up with those of a node that can be reached, as if
//! there were no replica here: whoever leads goes on deciding, and what it decides about segments of this node is heard
//! of by a detour. The replica goes on as it was, and takes the tables over again once it is as far as they are.

use std::collections::BTreeMap;
use std::time::Duration;

use types::{Instant, VnodeId};

use super::{CLUSTER, Meta};

/// An election among those that reach each other takes less.
const AFTER: Duration = Duration::from_secs(2);

/// Since when no leader of a group could be reached.
#[derive(Debug, Default)]
pub(super) struct Apart {
    since: BTreeMap<VnodeId, Instant>,
}

impl Meta {
    /// Looks who is apart. For every tick.
    pub(super) fn look_apart(&mut self) {
        let own = self.node();
        let mut seen = BTreeMap::new();
        for (group, replica) in self.host.groups() {
            let reached = replica.leader().is_some_and(|leader| leader == own || self.up.contains(&leader));
            if !reached && !self.up.is_empty() {
                let since = self.apart.since.get(&group).copied().unwrap_or(self.now);
                seen.insert(group, since);
            }
        }
        let over: Vec<VnodeId> =
            self.apart.since.keys().filter(|group| !seen.contains_key(group)).copied().collect();
        self.apart.since = seen;
        for group in over {
            self.with_tables(group, super::tables::Tables::rejoin, super::tables::Tables::rejoin);
        }
        for group in self.all_apart().collect::<Vec<_>>() {
            self.with_tables(group, super::tables::Tables::part, super::tables::Tables::part);
        }
    }

    fn with_tables(
        &mut self,
        group: VnodeId,
        of_cluster: impl FnOnce(&mut super::Tables<super::Cluster>),
        of_vnode: impl FnOnce(&mut super::Tables<super::Vnode>),
    ) {
        if group == CLUSTER {
            of_cluster(&mut self.cluster);
        } else if let Some(shard) = self.shards.get_mut(&group) {
            of_vnode(&mut shard.tables);
        }
    }

    fn all_apart(&self) -> impl Iterator<Item = VnodeId> {
        let is_long = |since: &Instant| self.now.since(*since) >= AFTER;
        self.apart.since.iter().filter(move |(_, since)| is_long(since)).map(|(group, _)| *group)
    }

    /// Whether this node has been unable for a while to have something recorded by a vnode it is a member of, though it
    /// reaches others: they may be able to.
    pub(crate) fn is_apart(&self) -> bool {
        self.all_apart().any(|group| group != CLUSTER)
    }
}
