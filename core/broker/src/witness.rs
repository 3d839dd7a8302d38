//! What the simulator sees of a node beside what it answers, and what it makes it propose that no request leads to yet.
//!
//! Only a build with the feature `planted` has it. Changes nothing that a request could not change.

use metadata::cluster::{Cluster, Command};
use metadata::vnode::Vnode;
use raft::Group;
use types::{FenceToken, Instant, NodeId, SegmentId, Term, TopicId, VnodeId};

use crate::action::Actions;
use crate::auth::Session;
use crate::cluster::Then;
use crate::meta::CLUSTER;
use crate::node::Node;

/// The group of what holds for the whole cluster.
pub const CLUSTER_GROUP: VnodeId = CLUSTER;

pub use crate::meta::Effect;

impl Node {
    /// The cluster's tables as this node has them.
    #[must_use]
    pub fn cluster_tables(&self) -> &Cluster {
        self.core.meta.cluster()
    }

    /// A vnode's tables as this node has them.
    #[must_use]
    pub fn vnode_tables(&self, vnode: VnodeId) -> Option<&Vnode> {
        self.core.meta.vnode(vnode)
    }

    /// This node's replica of a group.
    #[must_use]
    pub fn replica(&self, group: VnodeId) -> Option<&Group> {
        self.core.meta.group(group)
    }

    /// Whether the node is a replica of a group, or about to be.
    #[must_use]
    pub fn has_group(&self, group: VnodeId) -> bool {
        self.core.meta.has(group)
    }

    /// The lease, while the node believes that it holds it.
    #[must_use]
    pub fn held_fence(&self, now: Instant) -> Option<FenceToken> {
        self.control.fence(now)
    }

    /// Whether a connection to another node counts as there.
    #[must_use]
    pub fn is_connected(&self, node: NodeId) -> bool {
        self.core.meta.is_up(node)
    }

    /// Copies that are to be removed, because no topic lists them any more.
    pub fn removals(&self) -> impl Iterator<Item = SegmentId> {
        self.orphans.waiting()
    }

    /// A session of a user as it is now.
    #[must_use]
    pub fn session(&self, user: &str) -> Session {
        let revision = self.core.meta.cluster().user(user).map_or(0, |user| user.revision.0);
        Session { user: user.into(), revision }
    }

    /// Proposes an entry to the cluster's group that may be anything; nobody hears what comes of it.
    pub fn propose_entry(&mut self, command: &[u8], actions: &mut Actions) {
        std::mem::swap(&mut self.core.out, actions);
        self.core.propose_bytes(command);
        std::mem::swap(&mut self.core.out, actions);
    }

    /// What only leaders of vnodes decide, as this node's replicas have applied it since the last call.
    pub fn take_led(&mut self) -> Vec<Effect> {
        self.core.meta.take_led()
    }

    /// Proposes to a vnode as its leader in some term; nobody hears what comes of it.
    pub fn propose_led(&mut self, vnode: VnodeId, led: Term, command: &[u8], actions: &mut Actions) {
        std::mem::swap(&mut self.core.out, actions);
        self.core.propose_as(vnode, led, command);
        std::mem::swap(&mut self.core.out, actions);
    }

    /// Points a topic at a policy, or at none; nobody hears what comes of it.
    pub fn bind_policy(&mut self, topic: TopicId, policy: Option<&[u8]>, actions: &mut Actions) {
        std::mem::swap(&mut self.core.out, actions);
        let policy = policy.map(bytes::Bytes::copy_from_slice);
        self.core.propose_unheard(&metadata::vnode::Command::BindTopicPolicy { topic, policy });
        std::mem::swap(&mut self.core.out, actions);
    }

    /// Segments whose removal from the tables is on its way because they have expired.
    pub fn expiring(&self) -> impl Iterator<Item = SegmentId> {
        self.retention.expiring()
    }

    /// Copies that are here and were found not to be whole.
    pub fn damaged(&self) -> impl Iterator<Item = SegmentId> {
        self.scrub.damaged().map(|(segment, _)| segment)
    }

    /// Proposes to the cluster's group; nobody hears what comes of it.
    pub fn propose(&mut self, command: &Command, actions: &mut Actions) {
        std::mem::swap(&mut self.core.out, actions);
        self.core.propose_cluster(command, Then::Forget);
        std::mem::swap(&mut self.core.out, actions);
    }
}
