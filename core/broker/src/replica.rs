//! This node's copy of one replicated machine: the machine, its member of the Raft group, and who waits for
//! which proposal.
//!
//! Owns what is the same for every machine: how a copy is made from what the log holds, how entries reach it,
//! when it is saved, and what becomes of a proposal. Does not know what a command says; the bytes of the log
//! are `ledger`'s.
//!
//! Invariants:
//! - an outcome is told only after its entry is durable on a quorum and applied;
//! - a proposal has exactly one outcome, even when nobody can know what became of it;
//! - nothing is written before [`Replica::begin`];
//! - a machine that cannot follow its group's version is neither moved nor saved any further.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;

use bytes::Bytes;
use metadata::cluster::{self, Cluster};
use metadata::vnode::{self, Vnode};
use raft::{Group, ProposalId};
use types::{NodeId, RaftIndex, VnodeId};

use crate::action::{Actions, Stop};
use crate::config::Config;
use crate::ledger::{Ledger, Told};

/// Tables that a log of commands makes.
pub(crate) trait Machine: Debug + Default {
    /// The answer to one command.
    type Reply: Debug;

    /// Applies the entry at `index`.
    fn apply(&mut self, index: RaftIndex, entry: &Bytes) -> Self::Reply;

    /// Whether the group runs at a version this build does not have, so that entries are not applied.
    fn is_left_behind(&self) -> bool;

    /// The canonical encoding of the state.
    fn encode_snapshot(&self) -> Bytes;

    /// The state a snapshot holds; what is wrong with it otherwise.
    fn decode_snapshot(bytes: Bytes) -> Result<Self, String>;
}

impl Machine for Vnode {
    type Reply = vnode::Reply;

    fn apply(&mut self, index: RaftIndex, entry: &Bytes) -> vnode::Reply {
        Vnode::apply(self, index, entry)
    }

    fn is_left_behind(&self) -> bool {
        self.beyond_build().is_some()
    }

    fn encode_snapshot(&self) -> Bytes {
        Vnode::encode_snapshot(self)
    }

    fn decode_snapshot(bytes: Bytes) -> Result<Self, String> {
        Vnode::decode_snapshot(bytes).map_err(|error| error.to_string())
    }
}

impl Machine for Cluster {
    type Reply = cluster::Reply;

    fn apply(&mut self, index: RaftIndex, entry: &Bytes) -> cluster::Reply {
        Cluster::apply(self, index, entry)
    }

    fn is_left_behind(&self) -> bool {
        self.beyond_build().is_some()
    }

    fn encode_snapshot(&self) -> Bytes {
        Cluster::encode_snapshot(self)
    }

    fn decode_snapshot(bytes: Bytes) -> Result<Self, String> {
        Cluster::decode_snapshot(bytes).map_err(|error| error.to_string())
    }
}

/// Why nobody will hear what a proposal did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It certainly was not and will not be recorded.
    NotRecorded,
    /// It may have been, or may yet be.
    Unknown,
}

/// What came of the log, in its order.
#[derive(Debug)]
pub(crate) enum Outcome<Reply, Then> {
    /// An entry was applied; with whoever waits for it, when it was proposed here in this lifetime.
    Applied { reply: Reply, then: Option<Then> },
    /// A proposal will not be heard of again.
    Lost { then: Then, fate: Fate },
    /// The log takes no more writes in this process lifetime.
    Failed { detail: String },
    /// What was found cannot be used.
    Stop(Stop),
}

/// One machine of this node.
#[derive(Debug)]
pub(crate) struct Replica<M: Machine, Then> {
    id: VnodeId,
    node: NodeId,
    /// When the tables are saved: bytes and number of entries.
    snapshot_after: (u64, u64),
    machine: M,
    /// There once the replica has begun.
    group: Option<Group>,
    /// What the log holds, until the replica begins.
    found: Option<Found>,
    ready: bool,
    waiting: BTreeMap<ProposalId, Then>,
    next: u64,
    actions: VecDeque<raft::Action>,
    outcomes: VecDeque<Outcome<M::Reply, Then>>,
}

#[derive(Debug)]
struct Found {
    recovered: raft::Recovered,
    snapshot: Option<Bytes>,
}

impl<M: Machine, Then> Replica<M, Then> {
    pub(crate) fn new(id: VnodeId, config: &Config) -> Self {
        Self {
            id,
            node: config.node,
            snapshot_after: (config.snapshot_bytes, config.snapshot_entries),
            machine: M::default(),
            group: None,
            found: None,
            ready: false,
            waiting: BTreeMap::new(),
            next: 0,
            actions: VecDeque::new(),
            outcomes: VecDeque::new(),
        }
    }

    /// The tables as far as they are decided.
    pub(crate) fn machine(&self) -> &M {
        &self.machine
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.group.is_some()
    }

    /// Whether the replica can begin and the log holds nothing that was ever decided: a log of nothing but what a
    /// group begins with is no different from none, an earlier start may have left it that went no further.
    pub(crate) fn is_unformed(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.snapshot.is_none() && found.recovered.is_blank())
    }

    pub(crate) fn next_outcome(&mut self) -> Option<Outcome<M::Reply, Then>> {
        self.outcomes.pop_front()
    }

    /// True once: when the tables hold everything that was ever acknowledged, and every action of the group was
    /// performed.
    pub(crate) fn became_ready(&mut self) -> bool {
        let now = !self.ready && self.actions.is_empty() && self.group.as_ref().is_some_and(Group::is_ready);
        self.ready |= now;
        now
    }

    /// Makes the machine from what was found and takes part in the group from now on. Nothing happens before
    /// the log has told what it holds.
    pub(crate) fn begin(&mut self) {
        let Some(Found { mut recovered, snapshot }) = self.found.take() else { return };
        let config = raft::Config {
            snapshot_bytes: self.snapshot_after.0,
            snapshot_entries: self.snapshot_after.1,
            ..raft::Config::alone(self.node)
        };
        let machine = match snapshot.map(raft::Image::decode).transpose() {
            Ok(None) => Ok(M::default()),
            Ok(Some(image)) => {
                recovered.members = image.members;
                M::decode_snapshot(image.state)
            }
            Err(error) => Err(error.to_string()),
        };
        let group = Group::new(config, recovered).map_err(|error| error.to_string());
        match (machine, group) {
            (Ok(machine), Ok(group)) => {
                self.machine = machine;
                self.group = Some(group);
                self.step(raft::Event::Start);
            }
            (Err(detail), _) | (_, Err(detail)) => {
                self.outcomes.push_back(Outcome::Stop(Stop::Damaged { detail }));
            }
        }
    }

    /// Has an entry put into the log.
    pub(crate) fn propose(&mut self, data: Bytes, then: Then) {
        let id = ProposalId(self.next);
        self.next += 1;
        self.waiting.insert(id, then);
        if self.group.is_some() {
            self.step(raft::Event::Propose { id, data });
        } else {
            self.lost(id, Fate::NotRecorded);
        }
    }

    /// The same without anybody who waits.
    #[cfg(test)]
    pub(crate) fn propose_unheard(&mut self, data: Bytes) {
        self.step(raft::Event::Propose { id: ProposalId(u64::MAX - self.next), data });
    }

    /// Performs the oldest action of the group; `false` when there is none.
    ///
    /// One at a time, in order: a snapshot is of the tables as they are when it is asked for, and whatever an
    /// action leads to comes after the actions that were there before it.
    pub(crate) fn act(&mut self, ledger: &mut Ledger, out: &mut Actions) -> bool {
        let Some(action) = self.actions.pop_front() else { return false };
        match action {
            raft::Action::Persist(persist) => ledger.persist(self.id, persist, out),
            raft::Action::Apply { entry, proposal } => {
                let reply = self.machine.apply(entry.index, &entry.data);
                let then = proposal.and_then(|id| self.waiting.remove(&id));
                self.outcomes.push_back(Outcome::Applied { reply, then });
            }
            raft::Action::Refused { id, .. } => self.lost(id, Fate::NotRecorded),
            raft::Action::Unknown { id } => self.lost(id, Fate::Unknown),
            raft::Action::TakeSnapshot(order) => {
                // The mark would claim entries that the tables do not hold.
                if self.machine.is_left_behind() {
                    self.step(raft::Event::SnapshotFailed { index: order.mark.index });
                } else {
                    let image = order.image(&self.machine.encode_snapshot());
                    ledger.save_snapshot(self.id, order.mark, image, out);
                }
            }
            // A group of one is read from its tables: nobody else can have decided anything.
            raft::Action::ReadReady { .. } | raft::Action::ReadRefused { .. } => {}
            raft::Action::RoleChanged { .. } => {}
            // A group of one has nobody to hear from, to send to, or to be told by who the members are.
            raft::Action::Send { .. }
            | raft::Action::MembersChanged { .. }
            | raft::Action::Restore { .. }
            | raft::Action::LoadSnapshot { .. }
            | raft::Action::Contradiction(_) => {}
        }
        true
    }

    /// Takes what the log says.
    pub(crate) fn told(&mut self, told: Told) {
        match told {
            Told::Recovered { recovered, snapshot } => self.found = Some(Found { recovered, snapshot }),
            Told::Stop(stop) => self.outcomes.push_back(Outcome::Stop(stop)),
            Told::Persisted(id) => self.step(raft::Event::Persisted(id)),
            Told::PersistFailed { id, detail } => {
                self.outcomes.push_back(Outcome::Failed { detail });
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
            self.actions.extend(actions);
        }
    }

    fn lost(&mut self, id: ProposalId, fate: Fate) {
        if let Some(then) = self.waiting.remove(&id) {
            self.outcomes.push_back(Outcome::Lost { then, fate });
        }
    }
}
