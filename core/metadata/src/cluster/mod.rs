//! What holds for the whole cluster and for no topic in particular: users, their rights on topics, the
//! lockouts of failed logins, storage policies; the nodes, the ring, the lease, the switches.
//!
//! One group, several tables: each is a file of its own with its own section in the snapshot, and a command
//! touches one of them, except that removing a user removes its rights and lockouts too, and removing a node
//! frees the lease it held. Does not verify a password, decide whether a session may do something, or know which
//! topic uses which policy; nor where anything is placed, who is alive, or how a change of the ring is carried out.
//!
//! Invariants (checked after every step by the property tests):
//! - same log, same state, byte for byte; a refusal leaves every table identical;
//! - a revision is given to one password of one life of one user and never again, and revisions only grow;
//! - a lock is computed from the command alone: its time and its rules travel in it;
//! - every table is bounded; the lockouts, which anybody can add to, forget the oldest instead of refusing;
//! - C-2, C-6, C-10: fences, ring versions and incarnations never decrease, a token never moves, a node that was
//!   removed and a switch that is on stay so;
//! - C-1: the ring changes only under the fence that was given last, and only from the version that was read;
//! - derived indexes (the order of lockouts, the number of rights) equal a rescan; a snapshot has none.

mod acl;
mod command;
mod flags;
mod lease;
mod lockout;
mod nodes;
mod policy;
mod read;
mod reply;
mod ring;
mod snapshot;
#[cfg(test)]
mod tests;
mod text;
mod users;

use bytes::Bytes;
use types::RaftIndex;

pub use acl::{InvalidPattern, Operation, Pattern};
pub use command::{Attempt, Command, CreateUser, Grant};
pub use flags::{EnableFlag, FlagName, InvalidFlagName, Seen};
pub use lease::{AcquireLease, Lease, Renewal};
pub use lockout::{Address, Lockout, LockoutRules};
pub use nodes::{
    AddNode, ChangeNode, InvalidNodeAddress, InvalidNodeName, Node, NodeAddress, NodeName, NodeState,
    NodesRevision, SetNode,
};
pub use policy::{InvalidPolicyName, Policy, PolicyName, Setting};
pub use reply::{Refusal, Reply};
pub use ring::{ChangeRing, Intent, RingAct, RingChange, Topology};
pub use snapshot::Error as SnapshotError;
pub use users::{
    InvalidPasswordHash, InvalidUserName, PasswordHash, Permissions, Role, User, UserName, UserRevision,
};

use crate::machine::{Envelope, Version};

/// The replicated state of the cluster group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    version: Version,
    /// What the group upgraded to, when this build does not have it.
    beyond: Option<Version>,
    applied: RaftIndex,
    users: users::Users,
    grants: acl::Grants,
    lockouts: lockout::Lockouts,
    policies: policy::Policies,
    nodes: nodes::Nodes,
    /// `None` until the ring is seeded.
    topology: Option<Topology>,
    lease: Lease,
    flags: flags::Flags,
}

impl Cluster {
    /// The state before the first entry, at the version the group starts with.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self {
            version,
            beyond: None,
            applied: RaftIndex::ZERO,
            users: users::Users::default(),
            grants: acl::Grants::default(),
            lockouts: lockout::Lockouts::default(),
            policies: policy::Policies::default(),
            nodes: nodes::Nodes::default(),
            topology: None,
            lease: Lease::default(),
            flags: flags::Flags::default(),
        }
    }

    /// Applies the entry at `index` and says what it did.
    ///
    /// Total: bytes that are no command are a refusal. A refusal changes nothing but the applied index. An
    /// index at or below the applied one is refused and changes nothing at all; gaps are fine, because a Raft
    /// log also holds entries that are not for the machine. From the entry on that upgrades to a version this
    /// build does not have, nothing is applied any more, not even that entry: see [`Cluster::beyond_build`].
    pub fn apply(&mut self, index: RaftIndex, entry: &Bytes) -> Reply {
        if self.beyond.is_some() {
            return Reply::Refused(Refusal::LaterVersion);
        }
        if index <= self.applied {
            return Reply::Refused(Refusal::AlreadyApplied);
        }
        let command = self.decode(entry);
        self.beyond = command.as_ref().ok().and_then(Command::beyond_build);
        if self.beyond.is_some() {
            return Reply::Refused(Refusal::LaterVersion);
        }
        self.applied = index;
        command.and_then(|command| self.run(command)).unwrap_or_else(Reply::Refused)
    }

    fn decode(&self, entry: &Bytes) -> Result<Command, Refusal> {
        let envelope = Envelope::decode(entry).map_err(|_| Refusal::UnknownCommand)?;
        if envelope.version > self.version {
            return Err(Refusal::UnknownCommand);
        }
        Command::decode(envelope)
    }

    fn run(&mut self, command: Command) -> Result<Reply, Refusal> {
        match command {
            Command::CreateUser(create) => self.create_user(create),
            Command::DeleteUser { user } => Ok(self.delete_user(&user)),
            Command::ChangePassword { user, hash, at } => self.change_password(&user, hash, at),
            Command::SetPermissions { user, permissions, at } => self.set_permissions(&user, permissions, at),
            Command::SetRole { user, role, at } => self.set_role(&user, role, at),
            Command::Grant(grant) => self.grant(&grant),
            Command::Revoke(grant) => self.revoke(&grant),
            Command::RecordFailure { attempt, rules } => self.record_failure(&attempt, rules),
            Command::RecordSuccess { user, address } => self.record_success(&user, &address),
            Command::Unlock { user, address } => self.unlock(&user, address.as_ref()),
            Command::ForgetLockouts { at } => Ok(self.forget_lockouts(at)),
            Command::DefinePolicy { name, policy } => self.define_policy(&name, policy),
            Command::DeletePolicy { name } => self.delete_policy(&name),
            Command::AddNode(add) => self.add_node(&add),
            Command::SetNode(set) => self.set_node(&set),
            Command::DrainNode(change) => self.drain_node(change),
            Command::UndrainNode(change) => self.undrain_node(change),
            Command::RemoveNode { change, force } => self.remove_node(change, force),
            Command::SeedRing { placements } => self.seed_ring(placements),
            Command::ChangeRing(change) => self.change_ring(change),
            Command::AcquireLease(acquire) => self.acquire_lease(acquire),
            Command::ReleaseLease { candidate, fence } => Ok(self.release_lease(candidate, fence)),
            Command::EnableFlag(enable) => self.enable_flag(&enable),
            Command::Upgrade { to } => {
                self.version = self.version.max(to);
                Ok(Reply::Upgraded(self.version))
            }
        }
    }
}

impl Default for Cluster {
    /// A fresh cluster at the version of this build.
    fn default() -> Self {
        Self::new(Version::BUILD)
    }
}
