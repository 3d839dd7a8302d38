//! What can be read from the cluster's tables. Reads are functions of the state; they are never entries of
//! the log.

use types::{NodeId, RaftIndex, TopicName, WallTime};

use super::{
    Address, Cluster, FlagName, Lease, Lockout, Node, NodesRevision, Operation, Pattern, Policy, PolicyName,
    Topology, User, UserName, UserRevision,
};
use crate::machine::{self, Version};

impl Cluster {
    /// Index of the last entry applied; 0 before the first.
    #[must_use]
    pub fn applied(&self) -> RaftIndex {
        self.applied
    }

    /// The effective version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// What the group upgraded to, when this build does not have it: whatever comes after would be applied
    /// another way than by the members that have it, so nothing is.
    #[must_use]
    pub fn beyond_build(&self) -> Option<Version> {
        self.beyond
    }

    /// The user of that name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// Every user, in the byte order of names.
    pub fn users(&self) -> impl Iterator<Item = (&UserName, &User)> {
        self.users.iter()
    }

    /// Every user after a name, which need not be anybody's, in the byte order of names.
    pub fn users_after(&self, name: &str) -> impl Iterator<Item = (&UserName, &User)> {
        self.users.iter_after(name)
    }

    /// Number of users; at most [`types::limits::USERS_MAX`].
    #[must_use]
    pub fn user_count(&self) -> usize {
        self.users.len()
    }

    /// Every revision given so far is lower.
    #[must_use]
    pub fn next_revision(&self) -> UserRevision {
        self.users.next_revision
    }

    /// Whether a right of the user allows the operation on the topic. Its permissions are another matter.
    #[must_use]
    pub fn is_granted(&self, user: &str, operation: Operation, topic: &TopicName) -> bool {
        self.grants.matches(user, operation, topic)
    }

    /// A user's rights, `produce` first, in the order of patterns.
    pub fn grants_of(&self, user: &str) -> impl Iterator<Item = (Operation, Pattern)> {
        self.grants.of_user(user)
    }

    /// Number of rights; at most [`types::limits::GRANTS_MAX`].
    #[must_use]
    pub fn grant_count(&self) -> usize {
        self.grants.len()
    }

    /// Until when attempts of the user from the address are refused. May have passed.
    #[must_use]
    pub fn locked_until(&self, user: &str, address: &Address) -> Option<WallTime> {
        self.lockout(user, address).and_then(|lockout| lockout.locked_until)
    }

    /// What is counted for the user at the address. May have to be forgotten.
    #[must_use]
    pub fn lockout(&self, user: &str, address: &Address) -> Option<&Lockout> {
        self.lockouts.get(user, address)
    }

    /// What is counted for the user, in the order of addresses.
    pub fn lockouts_of(&self, user: &str) -> impl Iterator<Item = (&Address, &Lockout)> {
        self.lockouts.of_user(user)
    }

    /// Number of pairs of user and address counted; at most [`types::limits::LOCKOUTS_MAX`].
    #[must_use]
    pub fn lockout_count(&self) -> usize {
        self.lockouts.len()
    }

    /// Whether anything has to be forgotten by then. O(all lockouts).
    #[must_use]
    pub fn has_forgotten_lockouts(&self, at: WallTime) -> bool {
        self.lockouts.iter().any(|(_, _, lockout)| lockout.forget_at <= at)
    }

    /// The policy of that name.
    #[must_use]
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.get(name)
    }

    /// Every policy, in the byte order of names.
    pub fn policies(&self) -> impl Iterator<Item = (&PolicyName, &Policy)> {
        self.policies.iter()
    }

    /// The node with that id; `None` when it is not listed.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.by_id.get(&id)
    }

    /// The node of that name. O(nodes).
    #[must_use]
    pub fn node_by_name(&self, name: &str) -> Option<(NodeId, &Node)> {
        self.nodes.by_name(name)
    }

    /// Every node listed, in the order of ids.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.by_id.iter().map(|(id, node)| (*id, node))
    }

    /// What a change of the list has to name.
    #[must_use]
    pub fn nodes_revision(&self) -> NodesRevision {
        self.nodes.revision
    }

    /// Whether a node was taken off the list: it is refused for ever.
    #[must_use]
    pub fn is_node_removed(&self, id: NodeId) -> bool {
        self.nodes.removed.contains(&id)
    }

    /// The ring and what changes about it; `None` until it is seeded.
    #[must_use]
    pub fn topology(&self) -> Option<&Topology> {
        self.topology.as_ref()
    }

    /// The lease.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The switches that are on, in the byte order of names.
    pub fn flags(&self) -> impl Iterator<Item = &FlagName> {
        self.flags.enabled.iter()
    }

    /// Whether a switch is on.
    #[must_use]
    pub fn is_enabled(&self, flag: &str) -> bool {
        self.flags.enabled.contains(flag)
    }

    /// Digest of the canonical encoding: equal on all members that have applied the same entries.
    #[must_use]
    pub fn state_hash(&self) -> u64 {
        machine::digest(&self.encode_snapshot())
    }
}
