//! Who belongs to a group, and how that changes.
//!
//! A member is a *replica*: a number within the group that is given once and never again. A node that leaves and
//! comes back is another replica, so that a message meant for its first life cannot count for its second; a replica
//! whose log was lost is replaced by a new one, never revived under its old number.
//!
//! Members come in as learners, which are sent everything and have no vote, and are promoted when they have caught
//! up. One member changes at a time, so that any two quorums of neighbouring member lists share a member.

use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};
use types::codec::{Error, Reader, Writer};
use types::{NodeId, limits};

/// Number of a replica within its group, from 1; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

/// A replica and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Its number.
    pub replica: ReplicaId,
    /// Its node.
    pub node: NodeId,
}

/// Whether a member counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Votes, and its copy counts towards commit.
    Voter,
    /// Is sent everything and counts for nothing.
    Learner,
}

/// A change somebody may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node joins as a learner.
    AddLearner(NodeId),
    /// A learner that has caught up gets a vote.
    Promote(NodeId),
    /// A member leaves.
    Remove(NodeId),
}

/// Why a change makes no sense now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unchangeable {
    /// The node is a member already.
    #[error("the node is a member already")]
    AlreadyMember,
    /// It is none.
    #[error("the node is no member")]
    NoSuchMember,
    /// It has a vote already.
    #[error("the member has a vote already")]
    AlreadyVoter,
    /// It still lags behind, or is silent.
    #[error("the learner has not caught up")]
    NotCaughtUp,
    /// Nobody would be left to vote.
    #[error("the last member with a vote cannot leave")]
    LastVoter,
    /// The leader hands over before it leaves.
    #[error("the leader hands over before it leaves")]
    IsLeader,
    /// The group is as large as it may be.
    #[error("too many members")]
    TooMany,
}

/// All members, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    list: BTreeMap<ReplicaId, (NodeId, Part)>,
    /// The highest number ever given.
    last: u64,
}

/// One change as the log carries it: it names replicas, not nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amendment {
    Add(Member),
    Promote(ReplicaId),
    Remove(ReplicaId),
}

impl Members {
    /// Nobody: a member that was not told yet who the others are.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// A new group's members, all with a vote. Every founder numbers them alike, whatever the order of `nodes`.
    pub(crate) fn founding(nodes: &[NodeId]) -> Self {
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable();
        nodes.dedup();
        let numbered = nodes.into_iter().zip(1..);
        let list: BTreeMap<_, _> =
            numbered.map(|(node, number)| (ReplicaId(number), (node, Part::Voter))).collect();
        Self { last: list.len() as u64, list }
    }

    /// How many there are, learners included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether nobody is known to be a member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All members and their parts.
    pub fn iter(&self) -> impl Iterator<Item = (Member, Part)> {
        self.list.iter().map(|(replica, (node, part))| (Member { replica: *replica, node: *node }, *part))
    }

    /// Members with a vote.
    pub fn voters(&self) -> impl Iterator<Item = Member> {
        self.iter().filter(|(_, part)| *part == Part::Voter).map(|(member, _)| member)
    }

    /// Members without.
    pub fn learners(&self) -> impl Iterator<Item = Member> {
        self.iter().filter(|(_, part)| *part == Part::Learner).map(|(member, _)| member)
    }

    /// The replica a node holds.
    #[must_use]
    pub fn of_node(&self, node: NodeId) -> Option<(ReplicaId, Part)> {
        self.iter().find(|(member, _)| member.node == node).map(|(member, part)| (member.replica, part))
    }

    /// Where a replica is.
    #[must_use]
    pub fn of_replica(&self, replica: ReplicaId) -> Option<(NodeId, Part)> {
        self.list.get(&replica).copied()
    }

    /// Whether a replica of this number was ever a member.
    #[must_use]
    pub fn was_given(&self, replica: ReplicaId) -> bool {
        replica.0 <= self.last
    }

    /// The change as the log would carry it, if it makes sense. Does not look at who leads or lags.
    pub(crate) fn resolve(&self, change: Change) -> Result<Amendment, Unchangeable> {
        let find = |node| self.of_node(node).ok_or(Unchangeable::NoSuchMember);
        let amendment = match change {
            Change::AddLearner(node) if self.of_node(node).is_some() => {
                return Err(Unchangeable::AlreadyMember);
            }
            Change::AddLearner(_) if self.list.len() >= limits::RAFT_MEMBERS_MAX => {
                return Err(Unchangeable::TooMany);
            }
            Change::AddLearner(node) => Amendment::Add(Member { replica: ReplicaId(self.last + 1), node }),
            Change::Promote(node) => match find(node)? {
                (_, Part::Voter) => return Err(Unchangeable::AlreadyVoter),
                (replica, Part::Learner) => Amendment::Promote(replica),
            },
            Change::Remove(node) => match find(node)? {
                (_, Part::Voter) if self.voters().count() == 1 => return Err(Unchangeable::LastVoter),
                (replica, _) => Amendment::Remove(replica),
            },
        };
        Ok(amendment)
    }

    /// Takes a change from the log; `false` when it makes no sense here, and then nothing changed. Every member
    /// that applies the same entries decides the same.
    pub(crate) fn amend(&mut self, amendment: Amendment) -> bool {
        match amendment {
            Amendment::Add(Member { replica, node }) => {
                let fits = replica.0 > self.last
                    && self.of_node(node).is_none()
                    && self.list.len() < limits::RAFT_MEMBERS_MAX;
                if fits {
                    self.last = replica.0;
                    self.list.insert(replica, (node, Part::Learner));
                }
                fits
            }
            Amendment::Promote(replica) => match self.list.get_mut(&replica) {
                Some((_, part @ Part::Learner)) => {
                    *part = Part::Voter;
                    true
                }
                Some((_, Part::Voter)) | None => false,
            },
            Amendment::Remove(replica) => {
                let others = self.voters().filter(|voter| voter.replica != replica).count();
                others > 0 && self.list.remove(&replica).is_some()
            }
        }
    }

    pub(crate) fn encode(&self, bytes: &mut BytesMut) {
        bytes.put_u64(self.last);
        bytes.put_count(self.list.len());
        for (replica, (node, part)) in &self.list {
            bytes.put_u64(replica.0);
            bytes.put_u128(node.0);
            bytes.put_bool(*part == Part::Voter);
        }
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let mut members = Self { last: reader.u64()?, list: BTreeMap::new() };
        let count = reader.count(8 + 16 + 1)?;
        if count > limits::RAFT_MEMBERS_MAX {
            return Err(Error::Invalid("a number of members"));
        }
        let mut before = 0;
        for _ in 0..count {
            let (replica, node) = (reader.u64()?, NodeId(reader.u128()?));
            let part = if reader.bool()? { Part::Voter } else { Part::Learner };
            if replica <= before || replica > members.last || members.of_node(node).is_some() {
                return Err(Error::Invalid("a member"));
            }
            before = replica;
            members.list.insert(ReplicaId(replica), (node, part));
        }
        if members.last >= REPLICAS_MAX || members.voters().next().is_none() {
            return Err(Error::Invalid("a list of members"));
        }
        Ok(members)
    }
}

/// Numbers stay below this, so that counting them up cannot overflow.
const REPLICAS_MAX: u64 = 1 << 62;

const ADD: u8 = 1;
const PROMOTE: u8 = 2;
const REMOVE: u8 = 3;

impl Amendment {
    pub(crate) fn encode(self, bytes: &mut BytesMut) {
        match self {
            Self::Add(Member { replica, node }) => {
                bytes.put_u8(ADD);
                bytes.put_u64(replica.0);
                bytes.put_u128(node.0);
            }
            Self::Promote(replica) => {
                bytes.put_u8(PROMOTE);
                bytes.put_u64(replica.0);
            }
            Self::Remove(replica) => {
                bytes.put_u8(REMOVE);
                bytes.put_u64(replica.0);
            }
        }
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let (kind, replica) = (reader.u8()?, ReplicaId(reader.u64()?));
        if replica.0 == 0 || replica.0 >= REPLICAS_MAX {
            return Err(Error::Invalid("a replica's number"));
        }
        match kind {
            ADD => Ok(Self::Add(Member { replica, node: NodeId(reader.u128()?) })),
            PROMOTE => Ok(Self::Promote(replica)),
            REMOVE => Ok(Self::Remove(replica)),
            _ => Err(Error::Invalid("a change of members")),
        }
    }
}
