//! How a node comes into the list of nodes, and a ring into being.
//!
//! The node that forms a cluster lists itself and cuts the ring. Any other asks whoever leads the cluster group to
//! list it: that it is connected at all means that it has proven to belong. What a node says about itself it says again
//! whenever it is not what the table has, under its own incarnation.

use bytes::Bytes;
use metadata::cluster::{AddNode, Command, Node as Listed, NodeState, SetNode};
use types::{NodeId, VnodeId};

use super::Step;
use crate::action::{Action, Notice, Unlisted};
use crate::cluster;
use crate::config::{Formation, Own};
use crate::meta::CLUSTER;
use crate::node::Node;
use crate::planted::Bug;

impl Node {
    /// Proposes what is missing of this node in the tables; one thing at a time.
    pub(super) fn introduce(&mut self) {
        if self.control.introducing {
            return;
        }
        if let Some(command) = self.introduction() {
            self.control.introducing = true;
            self.core.propose_cluster(&command, cluster::Then::Control(Step::Introduce));
        }
    }

    /// Tells when the list is at odds with what this node is: nothing comes of that by itself.
    pub(super) fn look_at_listing(&mut self) {
        let found = self.at_odds();
        if found.is_some() && found != self.control.unlisted {
            self.core.out.extend(found.clone().map(|found| Action::Notice(Notice::Unlisted(found))));
        }
        self.control.unlisted = found;
    }

    fn at_odds(&self) -> Option<Unlisted> {
        let (node, own, tables) = (self.core.config.node, &self.core.config.own, self.core.meta.cluster());
        if tables.is_node_removed(node) {
            return Some(Unlisted::Removed);
        }
        match tables.node(node) {
            Some(listed) if listed.name.as_str() == &*own.name => None,
            Some(listed) => Some(Unlisted::Renamed { listed: listed.name.as_str().to_owned() }),
            None => tables.node_by_name(&own.name).map(|(by, _)| Unlisted::NameTaken { by }),
        }
    }

    fn introduction(&self) -> Option<Command> {
        let (node, own) = (self.core.config.node, &self.core.config.own);
        let tables = self.core.meta.cluster();
        if tables.is_node_removed(node) {
            return None;
        }
        let Some(listed) = tables.node(node) else {
            return Some(Command::AddNode(AddNode {
                node,
                name: bytes(&own.name),
                peer: bytes(&own.peer),
                expected: tables.nodes_revision(),
            }));
        };
        if !says(listed, own) && own.incarnation >= listed.incarnation {
            let left_over =
                listed.attributes.iter().filter(|_| self.core.config.has_bug(Bug::KeepAttributes));
            let attributes = left_over.chain(&own.attributes);
            let attributes = attributes.map(|(key, value)| (bytes(key), bytes(value)));
            return Some(Command::SetNode(SetNode {
                node,
                incarnation: own.incarnation,
                peer: bytes(&own.peer),
                client: own.client.as_deref().map(bytes),
                attributes: attributes.collect(),
                flags: own.flags.iter().map(|flag| bytes(flag)).collect(),
            }));
        }
        let forms = self.core.meta.leads(CLUSTER) && tables.topology().is_none();
        let Formation::Forms { vnodes } = self.core.config.formation else { return None };
        let active = listed.state == NodeState::Active;
        (forms && active).then(|| {
            let count = usize::try_from(vnodes.max(1)).unwrap_or(usize::MAX);
            Command::SeedRing { placements: vec![vec![node]; count] }
        })
    }

    /// Begins the groups of the ring's first vnodes, which the node that formed the cluster has to itself, and with the
    /// other members the group of the vnode that is on its way onto the ring. Whoever was in such a group before does
    /// not begin it again.
    pub(super) fn found_vnodes(&mut self) {
        let node = self.core.config.node;
        let Some(topology) = self.core.meta.cluster().topology() else { return };
        let forms = matches!(self.core.config.formation, Formation::Forms { .. });
        // Later on a vnode that is here alone is one that others had before.
        let first = topology.placements.iter().filter(|_| forms && topology.version == 0);
        let first = first.map(|(vnode, nodes)| (*vnode, &nodes[..]));
        let placed = first.chain(topology.coming()).filter(|(_, nodes)| nodes.contains(&node));
        let missing: Vec<(VnodeId, Vec<NodeId>)> = placed
            .filter(|(vnode, _)| !self.core.meta.has(*vnode))
            .map(|(vnode, nodes)| (vnode, nodes.to_vec()))
            .collect();
        for (vnode, nodes) in missing {
            self.core.found(vnode, &nodes);
        }
    }
}

/// Whether the table has what a node says about itself.
fn says(listed: &Listed, own: &Own) -> bool {
    let attributes = || own.attributes.iter().map(|(key, value)| (&**key, &**value));
    listed.incarnation == own.incarnation
        && listed.state != NodeState::Joining
        && listed.peer.as_str() == &*own.peer
        && listed.client.as_ref().map(|client| client.as_str()) == own.client.as_deref()
        && listed.flags.iter().map(|flag| flag.as_str()).eq(own.flags.iter().map(|flag| &**flag))
        && listed.attributes.iter().map(|(key, value)| (&**key, &**value)).eq(attributes())
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
