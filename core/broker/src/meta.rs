//! The metadata this node replicates: proposals go in, decisions come out in log order.
//!
//! Owns the vnode's tables, the member of its Raft group, and who waits for which proposal. The bytes of the
//! log are `ledger`'s. Does not decide what to propose.
//!
//! Invariants:
//! - a decision is told only after its entry is durable on a quorum and applied;
//! - what cannot be decided here is told as such, never dropped;
//! - a group that has never decided anything writes nothing before it was allowed to begin;
//! - positions that arrive while an entry with positions is on its way travel together in the next one.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use metadata::vnode::{
    Command, Commit, CreateTopic, Refusal, RegisterSegment, Reply, SealSegment, Tile, Vnode,
};
use raft::{Group, ProposalId};
use storage::disk::Completion;
use types::keyspace::KeyHash;
use types::{GroupName, Keyspace, NodeId, Offset, RangeId, SegmentId, TopicId, TopicName};

use crate::action::{Actions, Stop};
use crate::config::Config;
use crate::event::RequestId;
use crate::ledger::{Ledger, Told};
use crate::node::Core;

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
    /// There is no such topic, range or segment.
    #[error("no such topic")]
    NoSuchTopic,
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
            Refusal::NoSuchTopic | Refusal::NoSuchRange | Refusal::NoSuchSegment => Self::NoSuchTopic,
            Refusal::Sealed => Self::Sealed,
            Refusal::TooManyGroups => Self::TooManyGroups,
            Refusal::TooManyTopics => Self::Unavailable,
            Refusal::UnknownCommand
            | Refusal::InvalidCommand
            | Refusal::AlreadyApplied
            | Refusal::InvalidKeyspaceBits
            | Refusal::InvalidKeyHash
            | Refusal::SegmentExists
            | Refusal::InvalidSegmentId
            | Refusal::InvalidReplicaSet
            | Refusal::RangeHasActiveSegment
            | Refusal::OffsetMismatch
            | Refusal::AlreadySealed
            | Refusal::InvalidLength
            | Refusal::SegmentActive
            | Refusal::SegmentNotOldest
            | Refusal::InvalidGroup
            | Refusal::InvalidPosition
            | Refusal::TooManyTiles => Self::Refused,
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
    Register { range: RangeId, registered: Registered },
    Seal { range: RangeId },
    Delete { segment: SegmentId },
    Commit { ids: Vec<RequestId> },
}

/// The vnode of this node.
#[derive(Debug)]
pub(crate) struct Meta {
    node: NodeId,
    /// When the tables are saved: bytes and number of entries.
    snapshot_after: (u64, u64),
    vnode: Vnode,
    /// There once the log was recovered.
    group: Option<Group>,
    ledger: Ledger,
    /// What was found of a group that has never decided anything and waits to be allowed to.
    unformed: Option<raft::Recovered>,
    recovered: bool,
    waiting: BTreeMap<ProposalId, Then>,
    next: u64,
    /// Positions that wait for the entry on its way.
    commits: VecDeque<(RequestId, Commit)>,
    commit_on_its_way: bool,
    decided: Vec<Decided>,
    group_actions: VecDeque<raft::Action>,
}

impl Meta {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            node: config.node,
            snapshot_after: (config.snapshot_bytes, config.snapshot_entries),
            vnode: Vnode::default(),
            group: None,
            ledger: Ledger::new(config),
            unformed: None,
            recovered: false,
            waiting: BTreeMap::new(),
            next: 0,
            commits: VecDeque::new(),
            commit_on_its_way: false,
            decided: Vec::new(),
            group_actions: VecDeque::new(),
        }
    }

    /// The tables as far as they are decided.
    pub(crate) fn vnode(&self) -> &Vnode {
        &self.vnode
    }

    /// Whether the group waits to be allowed to begin.
    pub(crate) fn is_unformed(&self) -> bool {
        self.unformed.is_some()
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

    /// Carries messages between the group and its log until both are silent.
    ///
    /// One action at a time, in order: a snapshot is of the tables as they are when it is asked for, and
    /// whatever an action leads to comes after the actions that were there before it.
    fn settle(&mut self, out: &mut Actions) {
        loop {
            if let Some(action) = self.group_actions.pop_front() {
                self.group_action(action, out);
            } else if let Some(told) = self.ledger.next_told() {
                self.told(told);
            } else if !self.commit_on_its_way && !self.commits.is_empty() {
                self.propose_commits();
            } else {
                break;
            }
        }
        // Only now has every action of the group been performed.
        if !self.recovered && self.group.as_ref().is_some_and(Group::is_ready) {
            self.recovered = true;
            self.decided.push(Decided::Recovered);
        }
    }

    fn group_action(&mut self, action: raft::Action, out: &mut Actions) {
        match action {
            raft::Action::Persist(persist) => self.ledger.persist(persist, out),
            raft::Action::Apply { entry, proposal } => {
                let reply = self.vnode.apply(entry.index, &entry.data);
                if let Some(then) = proposal.and_then(|id| self.waiting.remove(&id)) {
                    self.decide(then, reply);
                }
            }
            raft::Action::Refused { id, .. } => self.undecided(id, Error::Unavailable),
            raft::Action::Unknown { id } => self.undecided(id, Error::Unknown),
            raft::Action::TakeSnapshot(mark) => {
                self.ledger.save_snapshot(mark, self.vnode.encode_snapshot(), out);
            }
            // A group of one is read from its tables: nobody else can have decided anything.
            raft::Action::ReadReady { .. } | raft::Action::ReadRefused { .. } => {}
            raft::Action::RoleChanged { .. } => {}
        }
    }

    fn told(&mut self, told: Told) {
        match told {
            Told::Recovered { recovered, snapshot } => {
                // Empty entries open a term. A log of nothing else is no different from none: an earlier start
                // may have left it that went no further.
                if snapshot.is_none() && recovered.entries.iter().all(|entry| entry.data.is_empty()) {
                    self.unformed = Some(recovered);
                    self.decided.push(Decided::Unformed);
                } else {
                    self.recover(recovered, snapshot);
                }
            }
            Told::Stop(stop) => self.decided.push(Decided::Stop(stop)),
            Told::Persisted(id) => self.step(raft::Event::Persisted(id)),
            Told::PersistFailed { id, detail } => {
                self.decided.push(Decided::Failed { detail });
                self.step(raft::Event::PersistFailed(id));
            }
            Told::SnapshotSaved(index) => self.step(raft::Event::SnapshotSaved { index }),
            Told::SnapshotFailed(index) => self.step(raft::Event::SnapshotFailed { index }),
        }
    }

    fn step(&mut self, event: raft::Event) {
        if let Some(group) = &mut self.group {
            let mut actions = Vec::new();
            group.step(event, &mut actions);
            self.group_actions.extend(actions);
        }
    }

    fn recover(&mut self, recovered: raft::Recovered, snapshot: Option<Bytes>) {
        let vnode = snapshot.map_or_else(|| Ok(Vnode::default()), Vnode::decode_snapshot);
        let config = raft::Config {
            node: self.node,
            voters: vec![self.node],
            snapshot_bytes: self.snapshot_after.0,
            snapshot_entries: self.snapshot_after.1,
        };
        let vnode = vnode.map_err(|error| error.to_string());
        let group = Group::new(config, recovered).map_err(|error| error.to_string());
        match (vnode, group) {
            (Ok(vnode), Ok(group)) => {
                self.vnode = vnode;
                self.group = Some(group);
                self.step(raft::Event::Start);
            }
            (Err(detail), _) | (_, Err(detail)) => self.decided.push(Decided::Stop(Stop::Damaged { detail })),
        }
    }

    fn propose(&mut self, command: &Command, then: Then) {
        let id = ProposalId(self.next);
        self.next += 1;
        self.waiting.insert(id, then);
        if self.group.is_some() {
            self.step(raft::Event::Propose { id, data: command.encode() });
        } else {
            self.undecided(id, Error::Unavailable);
        }
    }

    fn decide(&mut self, then: Then, reply: Reply) {
        let refused = match &reply {
            Reply::Refused(refusal) => Some(Error::from(*refusal)),
            Reply::TopicCreated { .. }
            | Reply::TopicSealed
            | Reply::TopicDeleted { .. }
            | Reply::SegmentRegistered
            | Reply::SegmentSealed
            | Reply::SegmentDeleted(_)
            | Reply::PositionsCommitted(_) => None,
        };
        if let Some(error) = refused {
            return self.fail(then, error);
        }
        match (then, reply) {
            (Then::CreateTopic { id, name }, Reply::TopicCreated { root }) => {
                self.decided.push(Decided::TopicCreated { id, name, result: Ok(root) });
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

    fn undecided(&mut self, id: ProposalId, error: Error) {
        if let Some(then) = self.waiting.remove(&id) {
            self.fail(then, error);
        }
    }

    fn fail(&mut self, then: Then, error: Error) {
        let decided = &mut self.decided;
        match then {
            Then::CreateTopic { id, name } => {
                decided.push(Decided::TopicCreated { id, name, result: Err(error) })
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
    /// Lets a group that has never decided anything begin.
    pub(crate) fn form_metadata(&mut self) {
        if let Some(recovered) = self.meta.unformed.take() {
            self.meta.recover(recovered, None);
            self.meta.settle(&mut self.out);
        }
    }

    fn propose(&mut self, command: &Command, then: Then) {
        self.meta.propose(command, then);
        self.meta.settle(&mut self.out);
    }

    /// Proposes what no request leads to yet.
    #[cfg(test)]
    pub(crate) fn propose_unheard(&mut self, command: &Command) {
        let id = ProposalId(u64::MAX - self.meta.next);
        self.meta.step(raft::Event::Propose { id, data: command.encode() });
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

    /// The next segment of a range, on this node.
    pub(crate) fn register_segment(&mut self, id: RangeId) {
        let Some(range) = self.meta.vnode.range(id) else {
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
        self.meta.commits.push_back((id, Commit { topic, group, tiles }));
        self.meta.settle(&mut self.out);
    }

    /// A group's position on a topic; empty when it has none.
    pub(crate) fn positions(&self, group: &GroupName, topic: TopicId) -> Vec<Tile> {
        self.meta.vnode.positions(topic, group).to_vec()
    }
}
