//! The metadata this node replicates: proposals go in, decisions come out in log order.
//!
//! Owns the two replicated machines of this node and their log, and what the vnode's proposals and replies mean
//! to the rest of the node; those of the cluster group are in `cluster`. Does not decide what to propose.
//!
//! Invariants:
//! - a decision is told only after its entry is durable on a quorum and applied;
//! - what cannot be decided here is told as such, never dropped;
//! - a vnode that has never decided anything writes nothing before it was allowed to begin, and the cluster group
//!   writes nothing before the vnode has begun: a missing cluster group beside a vnode is of an earlier build,
//!   which had none;
//! - positions that arrive while an entry with positions is on its way travel together in the next one.

use std::collections::VecDeque;

use bytes::Bytes;
use metadata::cluster::Cluster;
use metadata::vnode::{
    Command, Commit, CreateTopic, Refusal, RegisterSegment, Removed, Reply, SealSegment, Tile, Vnode,
};
use storage::disk::Completion;
use types::keyspace::KeyHash;
use types::{GroupName, Keyspace, Offset, RangeId, SegmentId, TopicId, TopicName, VnodeId};

use crate::action::{Actions, Stop};
use crate::cluster;
use crate::config::Config;
use crate::event::RequestId;
use crate::ledger::{CLUSTER, Ledger, Told, VNODE};
use crate::node::Core;
use crate::replica::{Fate, Outcome, Replica};

/// Positions in one entry.
const COMMITS_PER_ENTRY_MAX: usize = 1024;

/// Why metadata did not take something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The topic exists.
    #[error("the topic exists")]
    AlreadyExists,
    /// Not a topic name.
    #[error("not a topic name")]
    InvalidTopicName,
    /// There is no such topic or segment.
    #[error("no such topic")]
    NoSuchTopic,
    /// There is no such range.
    #[error("no such range")]
    NoSuchRange,
    /// The range is a single position wide.
    #[error("the range cannot be split")]
    CannotSplit,
    /// The ranges are not the halves of one block.
    #[error("the ranges are not halves of one block")]
    NotBuddies,
    /// The topic has as many ranges as it may have.
    #[error("too many ranges")]
    TooManyRanges,
    /// The range takes no more records.
    #[error("the range is sealed")]
    Sealed,
    /// The topic has as many groups as it may have.
    #[error("too many groups")]
    TooManyGroups,
    /// Refused for a reason that our own checks should have caught.
    #[error("refused")]
    Refused,
    /// It certainly was not and will not be recorded.
    #[error("metadata takes no writes now")]
    Unavailable,
    /// It may have been recorded.
    #[error("the outcome is not known")]
    Unknown,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::AlreadyExists => Self::AlreadyExists,
            Refusal::InvalidTopicName => Self::InvalidTopicName,
            Refusal::NoSuchTopic | Refusal::NoSuchSegment => Self::NoSuchTopic,
            Refusal::NoSuchRange => Self::NoSuchRange,
            Refusal::CannotSplit => Self::CannotSplit,
            Refusal::NotBuddies => Self::NotBuddies,
            Refusal::TooManyRanges => Self::TooManyRanges,
            Refusal::Sealed => Self::Sealed,
            Refusal::TooManyGroups => Self::TooManyGroups,
            Refusal::TooManyTopics | Refusal::NotOwner | Refusal::Migrating | Refusal::LaterVersion => {
                Self::Unavailable
            }
            Refusal::UnknownCommand
            | Refusal::InvalidCommand
            | Refusal::AlreadyApplied
            | Refusal::InvalidKeyspaceBits
            | Refusal::InvalidKeyHash
            | Refusal::DifferentTopic
            | Refusal::SegmentExists
            | Refusal::InvalidSegmentId
            | Refusal::InvalidReplicaSet
            | Refusal::StaleReplicaSet
            | Refusal::RangeHasActiveSegment
            | Refusal::OffsetMismatch
            | Refusal::AlreadySealed
            | Refusal::InvalidLength
            | Refusal::SegmentActive
            | Refusal::SegmentNotOldest
            | Refusal::InvalidGroup
            | Refusal::NoSuchGroup
            | Refusal::GroupNotIdle
            | Refusal::InvalidPolicy
            | Refusal::NotFenced
            | Refusal::StaleExport
            | Refusal::StaleRing
            | Refusal::StaleFence
            | Refusal::InvalidPosition
            | Refusal::TooManyTiles => Self::Refused,
        }
    }
}

impl From<Fate> for Error {
    fn from(fate: Fate) -> Self {
        match fate {
            Fate::NotRecorded => Self::Unavailable,
            Fate::Unknown => Self::Unknown,
        }
    }
}

/// A segment that metadata lists as active now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) segment: SegmentId,
    pub(crate) base: Offset,
}

/// What metadata has decided, in log order.
#[derive(Debug)]
pub(crate) enum Decided {
    /// Nothing was ever decided: whether the group may begin is for the node to say.
    Unformed,
    /// The tables hold everything that was ever acknowledged; proposals are taken.
    Recovered,
    /// The same of the cluster's tables.
    ClusterRecovered,
    /// Something of the cluster group.
    Cluster(cluster::Decided),
    /// The log takes no more writes in this process lifetime.
    Failed {
        detail: String,
    },
    /// The log cannot be used.
    Stop(Stop),
    TopicCreated {
        id: RequestId,
        name: TopicName,
        result: Result<RangeId, Error>,
    },
    TopicSealed {
        id: RequestId,
        topic: TopicId,
        result: Result<(), Error>,
    },
    TopicDeleted {
        id: RequestId,
        topic: TopicId,
        name: TopicName,
        result: Result<Vec<Removed>, Error>,
    },
    RangeSplit {
        id: RequestId,
        range: RangeId,
        result: Result<(RangeId, RangeId), Error>,
    },
    RangesMerged {
        id: RequestId,
        ranges: [RangeId; 2],
        result: Result<RangeId, Error>,
    },
    Registered {
        range: RangeId,
        result: Result<Registered, Error>,
    },
    SegmentSealed {
        range: RangeId,
        result: Result<(), Error>,
    },
    SegmentDeleted {
        segment: SegmentId,
    },
    Committed {
        id: RequestId,
        result: Result<(), Error>,
    },
}

/// Who waits for a proposal.
#[derive(Debug)]
enum Then {
    CreateTopic { id: RequestId, name: TopicName },
    SealTopic { id: RequestId, topic: TopicId },
    DeleteTopic { id: RequestId, topic: TopicId, name: TopicName },
    SplitRange { id: RequestId, range: RangeId },
    MergeRanges { id: RequestId, ranges: [RangeId; 2] },
    Register { range: RangeId, registered: Registered },
    Seal { range: RangeId },
    Delete { segment: SegmentId },
    Commit { ids: Vec<RequestId> },
}

/// The metadata of this node.
#[derive(Debug)]
pub(crate) struct Meta {
    vnode: Replica<Vnode, Then>,
    cluster: Replica<Cluster, cluster::Then>,
    ledger: Ledger,
    /// Positions that wait for the entry on its way.
    commits: VecDeque<(RequestId, Commit)>,
    commit_on_its_way: bool,
    decided: Vec<Decided>,
}

impl Meta {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            vnode: Replica::new(VNODE, config),
            cluster: Replica::new(CLUSTER, config),
            ledger: Ledger::new(config),
            commits: VecDeque::new(),
            commit_on_its_way: false,
            decided: Vec::new(),
        }
    }

    /// The vnode's tables as far as they are decided.
    pub(crate) fn vnode(&self) -> &Vnode {
        self.vnode.machine()
    }

    /// The cluster's tables as far as they are decided.
    pub(crate) fn cluster(&self) -> &Cluster {
        self.cluster.machine()
    }

    /// Whether the vnode waits to be allowed to begin.
    pub(crate) fn is_unformed(&self) -> bool {
        self.vnode.is_unformed()
    }

    pub(crate) fn start(&mut self, out: &mut Actions) {
        self.ledger.start(out);
        self.settle(out);
    }

    pub(crate) fn complete(&mut self, completion: Completion, out: &mut Actions) {
        self.ledger.complete(completion, out);
        self.settle(out);
    }

    pub(crate) fn tick(&mut self, out: &mut Actions) {
        self.ledger.tick(out);
        self.settle(out);
    }

    pub(crate) fn take_decided(&mut self) -> Vec<Decided> {
        std::mem::take(&mut self.decided)
    }

    /// Carries messages between the groups and their log until all are silent.
    fn settle(&mut self, out: &mut Actions) {
        loop {
            let acted = self.vnode.act(&mut self.ledger, out) || self.cluster.act(&mut self.ledger, out);
            if acted {
                self.take_outcomes();
            } else if let Some((group, told)) = self.ledger.next_told() {
                self.told(group, told);
                self.take_outcomes();
            } else if !self.commit_on_its_way && !self.commits.is_empty() {
                self.propose_commits();
            } else {
                break;
            }
        }
        if self.vnode.became_ready() {
            self.decided.push(Decided::Recovered);
        }
        if self.cluster.became_ready() {
            self.decided.push(Decided::ClusterRecovered);
        }
    }

    fn told(&mut self, group: VnodeId, told: Told) {
        let found = matches!(told, Told::Recovered { .. });
        if group == CLUSTER {
            self.cluster.told(told);
        } else {
            self.vnode.told(told);
        }
        if found {
            if self.vnode.is_unformed() {
                self.decided.push(Decided::Unformed);
            } else {
                self.begin();
            }
        }
    }

    /// Lets both groups begin as far as the log has told what it holds, the vnode first.
    fn begin(&mut self) {
        self.vnode.begin();
        if self.vnode.has_begun() {
            self.cluster.begin();
        }
    }

    fn take_outcomes(&mut self) {
        while let Some(outcome) = self.vnode.next_outcome() {
            match outcome {
                Outcome::Applied { reply, then: Some(then) } => self.decide(then, reply),
                Outcome::Applied { then: None, .. } => {}
                Outcome::Lost { then, fate } => self.fail(then, fate.into()),
                Outcome::Failed { detail } => self.decided.push(Decided::Failed { detail }),
                Outcome::Stop(stop) => self.decided.push(Decided::Stop(stop)),
            }
        }
        while let Some(outcome) = self.cluster.next_outcome() {
            self.decided.extend(cluster::decided(outcome));
        }
    }

    fn propose(&mut self, command: &Command, then: Then) {
        self.vnode.propose(command.encode(), then);
        self.take_outcomes();
    }

    fn decide(&mut self, then: Then, reply: Reply) {
        let refused = match &reply {
            Reply::Refused(refusal) => Some(Error::from(*refusal)),
            Reply::TopicCreated { .. }
            | Reply::TopicSealed
            | Reply::TopicDeleted { .. }
            | Reply::RangeSplit { .. }
            | Reply::RangesMerged { .. }
            | Reply::SegmentRegistered
            | Reply::SegmentSealed
            | Reply::SegmentDeleted(_)
            | Reply::ReplicasSet
            | Reply::PolicyBound
            | Reply::PositionsCommitted(_)
            | Reply::GroupExpired
            | Reply::MigrationBegun
            | Reply::MigrationEnded
            | Reply::TopicExtracted(_)
            | Reply::TopicInserted
            | Reply::ArcSet
            | Reply::Upgraded(_) => None,
        };
        if let Some(error) = refused {
            return self.fail(then, error);
        }
        match (then, reply) {
            (Then::CreateTopic { id, name }, Reply::TopicCreated { root }) => {
                self.decided.push(Decided::TopicCreated { id, name, result: Ok(root) });
            }
            (Then::SealTopic { id, topic }, Reply::TopicSealed) => {
                self.decided.push(Decided::TopicSealed { id, topic, result: Ok(()) });
            }
            (Then::DeleteTopic { id, topic, name }, Reply::TopicDeleted { segments }) => {
                self.decided.push(Decided::TopicDeleted { id, topic, name, result: Ok(segments) });
            }
            (Then::SplitRange { id, range }, Reply::RangeSplit { left, right }) => {
                self.decided.push(Decided::RangeSplit { id, range, result: Ok((left, right)) });
            }
            (Then::MergeRanges { id, ranges }, Reply::RangesMerged { child }) => {
                self.decided.push(Decided::RangesMerged { id, ranges, result: Ok(child) });
            }
            (Then::Register { range, registered }, Reply::SegmentRegistered) => {
                self.decided.push(Decided::Registered { range, result: Ok(registered) });
            }
            (Then::Seal { range }, Reply::SegmentSealed) => {
                self.decided.push(Decided::SegmentSealed { range, result: Ok(()) });
            }
            (Then::Delete { segment }, Reply::SegmentDeleted(_)) => {
                self.decided.push(Decided::SegmentDeleted { segment });
            }
            (Then::Commit { ids }, Reply::PositionsCommitted(results)) => {
                for (id, result) in ids.into_iter().zip(results) {
                    self.decided.push(Decided::Committed { id, result: result.map_err(Error::from) });
                }
                self.commit_on_its_way = false;
            }
            (then, reply) => unreachable!("{then:?} was answered {reply:?}"),
        }
    }

    fn fail(&mut self, then: Then, error: Error) {
        let decided = &mut self.decided;
        match then {
            Then::CreateTopic { id, name } => {
                decided.push(Decided::TopicCreated { id, name, result: Err(error) })
            }
            Then::SealTopic { id, topic } => {
                decided.push(Decided::TopicSealed { id, topic, result: Err(error) });
            }
            Then::DeleteTopic { id, topic, name } => {
                decided.push(Decided::TopicDeleted { id, topic, name, result: Err(error) });
            }
            Then::SplitRange { id, range } => {
                decided.push(Decided::RangeSplit { id, range, result: Err(error) });
            }
            Then::MergeRanges { id, ranges } => {
                decided.push(Decided::RangesMerged { id, ranges, result: Err(error) });
            }
            Then::Register { range, .. } => decided.push(Decided::Registered { range, result: Err(error) }),
            Then::Seal { range } => decided.push(Decided::SegmentSealed { range, result: Err(error) }),
            // An empty segment stays listed: it is in nobody's way.
            Then::Delete { .. } => {}
            Then::Commit { ids } => {
                self.commit_on_its_way = false;
                let waiting = std::mem::take(&mut self.commits).into_iter().map(|(id, _)| id);
                // The log is not going to take the next ones either.
                decided.extend(ids.into_iter().map(|id| Decided::Committed { id, result: Err(error) }));
                let error = Error::Unavailable;
                decided.extend(waiting.map(|id| Decided::Committed { id, result: Err(error) }));
            }
        }
    }

    fn propose_commits(&mut self) {
        self.commit_on_its_way = true;
        let count = self.commits.len().min(COMMITS_PER_ENTRY_MAX);
        let (ids, commits) = self.commits.drain(..count).unzip();
        self.propose(&Command::CommitPositions { commits }, Then::Commit { ids });
    }
}

/// What the subjects propose.
impl Core {
    /// Lets groups that have never decided anything begin.
    pub(crate) fn form_metadata(&mut self) {
        self.meta.begin();
        self.meta.settle(&mut self.out);
    }

    /// Proposes to the cluster group.
    pub(crate) fn propose_cluster(&mut self, command: &metadata::cluster::Command, then: cluster::Then) {
        self.meta.cluster.propose(command.encode(), then);
        self.meta.take_outcomes();
        self.meta.settle(&mut self.out);
    }

    fn propose(&mut self, command: &Command, then: Then) {
        self.meta.propose(command, then);
        self.meta.settle(&mut self.out);
    }

    /// Proposes what no request leads to yet.
    #[cfg(test)]
    pub(crate) fn propose_unheard(&mut self, command: &Command) {
        self.meta.vnode.propose_unheard(command.encode());
        self.meta.settle(&mut self.out);
    }

    pub(crate) fn create_topic(
        &mut self,
        id: RequestId,
        name: TopicName,
        topic: TopicId,
        keyspace: Keyspace,
        hash: KeyHash,
    ) {
        let command = Command::CreateTopic(CreateTopic {
            name: Bytes::copy_from_slice(name.as_str().as_bytes()),
            id: topic,
            keyspace_bits: keyspace.bits(),
            key_hash: hash.id(),
        });
        self.propose(&command, Then::CreateTopic { id, name });
    }

    pub(crate) fn seal_topic(&mut self, id: RequestId, topic: TopicId) {
        self.propose(&Command::SealTopic { topic }, Then::SealTopic { id, topic });
    }

    pub(crate) fn delete_topic(&mut self, id: RequestId, topic: TopicId, name: TopicName) {
        self.propose(&Command::DeleteTopic { topic }, Then::DeleteTopic { id, topic, name });
    }

    pub(crate) fn split_range(&mut self, id: RequestId, range: RangeId) {
        self.propose(&Command::SplitRange { range }, Then::SplitRange { id, range });
    }

    pub(crate) fn merge_ranges(&mut self, id: RequestId, ranges: [RangeId; 2]) {
        let [a, b] = ranges;
        self.propose(&Command::MergeRanges { a, b }, Then::MergeRanges { id, ranges });
    }

    /// The next segment of a range, on this node.
    pub(crate) fn register_segment(&mut self, id: RangeId) {
        let Some(range) = self.meta.vnode().range(id) else {
            return self
                .meta
                .decided
                .push(Decided::Registered { range: id, result: Err(Error::NoSuchTopic) });
        };
        let registered = Registered {
            segment: SegmentId { range: id, seq: range.next_segment_seq },
            base: range.sealed_end,
        };
        let command = Command::RegisterSegment(RegisterSegment {
            segment: registered.segment,
            start: registered.base,
            replicas: vec![self.config.node],
            opened_at: self.wall,
        });
        self.propose(&command, Then::Register { range: id, registered });
    }

    pub(crate) fn seal_segment(&mut self, range: RangeId, seal: SealSegment) {
        self.propose(&Command::SealSegment(seal), Then::Seal { range });
    }

    /// Forgets a segment that holds nothing.
    pub(crate) fn delete_segment(&mut self, segment: SegmentId) {
        self.propose(&Command::DeleteSegment { segment }, Then::Delete { segment });
    }

    pub(crate) fn commit_positions(
        &mut self,
        id: RequestId,
        group: &GroupName,
        topic: TopicId,
        tiles: Vec<Tile>,
    ) {
        let group = Bytes::copy_from_slice(group.as_bytes());
        self.meta.commits.push_back((id, Commit { topic, group, tiles, at: self.wall }));
        self.meta.settle(&mut self.out);
    }

    /// A group's position on a topic; empty when it has none.
    pub(crate) fn positions(&self, group: &GroupName, topic: TopicId) -> Vec<Tile> {
        self.meta.vnode().positions(topic, group).to_vec()
    }
}
