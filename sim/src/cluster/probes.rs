//! What nobody should propose, proposed all the same: changes of the ring under fences that are over, commands of vnodes'
//! leaders in terms that are over, and commands of a later version of the rules. Whatever comes of it is judged on every
//! node.

use broker::witness::CLUSTER_GROUP;
use bytes::Bytes;
use metadata::cluster::{ChangeRing, Cluster, Command, CreateUser, PasswordHash, RingAct};
use metadata::vnode::CreateTopic;
use rand::Rng;
use types::{FenceToken, NodeId, Term, TopicId, VnodeId, WallTime};

use super::detect::life_of;
use super::world::{Happening, World};
use crate::invariants::{Violation, c_13, inv_48, inv_49, inv_50};

/// A change of the ring that was proposed under an old fence: members in an order in which nobody else places them.
#[derive(Debug)]
struct Old {
    fence: FenceToken,
    /// Of the ring, if it were done.
    version: u64,
    vnode: VnodeId,
    nodes: Vec<NodeId>,
}

/// What was proposed.
#[derive(Debug, Default)]
pub(super) struct Probes {
    old: Vec<Old>,
}

impl Probes {
    /// Judges the cluster's tables as a node has them.
    pub(super) fn judge(&self, tables: &Cluster) -> Result<(), Violation> {
        inv_48::unchanged(tables.users().map(|(name, _)| name.as_str()))?;
        for (id, node) in tables.nodes().filter(|(_, node)| node.incarnation.0 > 0) {
            inv_50::of_this_life(id, life_of(node.incarnation), &node.attributes)?;
        }
        let Some(topology) = tables.topology() else { return Ok(()) };
        for Old { fence, version, vnode, nodes } in &self.old {
            if *version == topology.version
                && let Some(placed) = topology.placements.get(vnode)
            {
                inv_49::refused(placed, nodes, *fence)?;
            }
        }
        Ok(())
    }
}

impl World {
    /// Something of that kind is proposed, and the next a little later.
    pub(super) fn probe(&mut self) -> Result<(), Violation> {
        if self.healing || self.is_story {
            return Ok(());
        }
        let next = self.rng.random_range(500_000..4_000_000);
        self.later(next, Happening::Probe);
        let Some(via) = self.some_ready() else { return Ok(()) };
        match self.rng.random_range(0..10) {
            0..3 => self.propose_later(via),
            3..6 => self.propose_unled(via),
            _ => self.propose_old(via),
        }
    }

    /// A topic is to be created by whoever led its vnode in a term that is over for everybody.
    fn propose_unled(&mut self, via: NodeId) -> Result<(), Violation> {
        let vnodes: Vec<VnodeId> =
            self.groups_of(via).into_iter().filter(|group| *group != CLUSTER_GROUP).collect();
        let Some(vnode) = vnodes.get(self.rng.random_range(0..vnodes.len().max(1))).copied() else {
            return Ok(());
        };
        let running = self.nodes.values().filter_map(|node| node.process.as_ref()?.node.replica(vnode));
        // Whoever believes to lead may record it, and may believe so for a while after another leads.
        let oldest = running.map(|replica| replica.term().0).min().unwrap_or(0);
        if oldest < 2 {
            return Ok(());
        }
        let led = Term(self.rng.random_range(1..oldest));
        let name = format!("{}{}", c_13::NAME, self.number());
        self.say(|| format!("{name} is to be created by whoever led {vnode} in {led:?}"));
        self.summary.probes += 1;
        let create = metadata::vnode::Command::CreateTopic(CreateTopic {
            name: Bytes::from(name),
            id: TopicId(u128::from(self.number()) << 64 | 13),
            keyspace_bits: 8,
            key_hash: 1,
        });
        self.act(via, |node, _, actions| node.propose_led(vnode, led, &create.encode(), actions))
    }

    fn propose_old(&mut self, via: NodeId) -> Result<(), Violation> {
        let tables = self.process(via).node.cluster_tables();
        let (now, Some(topology)) = (tables.lease().fence, tables.topology()) else { return Ok(()) };
        let several = topology.placements.iter().filter(|(_, nodes)| nodes.len() > 1);
        let several: Vec<(VnodeId, Vec<NodeId>)> =
            several.map(|(vnode, nodes)| (*vnode, nodes.clone())).collect();
        let expected = topology.version;
        if now.0 < 2 || several.is_empty() {
            return Ok(());
        }
        let fence = FenceToken(self.rng.random_range(1..now.0));
        let (vnode, mut nodes) = several[self.rng.random_range(0..several.len())].clone();
        nodes.rotate_left(1);
        self.say(|| format!("{fence:?} is over, and under it {vnode} shall be on {nodes:?}"));
        self.summary.probes += 1;
        self.probes.old.push(Old { fence, version: expected + 1, vnode, nodes: nodes.clone() });
        let act = RingAct::SetPlacement { vnode, nodes };
        self.propose(via, Command::ChangeRing(ChangeRing { expected, fence, act }))
    }

    fn propose_later(&mut self, via: NodeId) -> Result<(), Violation> {
        let name = format!("{}{}", inv_48::NAME, self.number());
        self.summary.probes += 1;
        let create = Command::CreateUser(CreateUser {
            user: Bytes::from(name),
            hash: PasswordHash::new(b"$test$").expect("it has the form of one"),
            permissions: metadata::cluster::Permissions::default(),
            role: None,
            at: WallTime(1),
        });
        let mut entry = create.encode().to_vec();
        entry[1] += 1;
        self.act(via, |node, _, actions| node.propose_entry(&entry, actions))
    }
}
