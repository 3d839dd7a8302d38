//! The place of the metadata's groups in the node's Raft log.
//!
//! Owns the translation between the groups' words and the log's, and which request of the log answers what.
//! Neither knows of the other. Decides nothing but whether what was found can be used at all.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use raft::{Persist, PersistId};
use storage::disk::Completion;
use storage::raft_log::{self, RaftLog, StartError};
use storage::store::RequestId;
use types::{RaftIndex, VnodeId};

use crate::action::{Action, Actions, Notice, Stop};
use crate::config::Config;
use crate::event::Volume;
use crate::planted::Bug;

/// The group of what holds for the whole cluster.
pub(crate) const CLUSTER: VnodeId = VnodeId(0);
/// The one vnode there is until the metadata is split.
pub(crate) const VNODE: VnodeId = VnodeId(1);
/// Every group of this node. One that the log does not list has never decided anything.
const GROUPS: [VnodeId; 2] = [CLUSTER, VNODE];

/// What the log says to a group.
#[derive(Debug)]
pub(crate) enum Told {
    /// What it holds, and the snapshot that goes with it.
    Recovered {
        recovered: raft::Recovered,
        snapshot: Option<Bytes>,
    },
    /// It cannot be used.
    Stop(Stop),
    Persisted(PersistId),
    PersistFailed {
        id: PersistId,
        detail: String,
    },
    SnapshotSaved(RaftIndex),
    SnapshotFailed(RaftIndex),
}

/// What a request of the log was for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Persist(VnodeId, PersistId),
    Save(VnodeId, RaftIndex),
    Load(VnodeId),
}

/// The log of all groups.
#[derive(Debug)]
pub(crate) struct Ledger {
    log: RaftLog,
    purposes: BTreeMap<RequestId, Purpose>,
    next: u64,
    actions: Vec<raft_log::Action>,
    told: VecDeque<(VnodeId, Told)>,
    /// A planted bug.
    early: bool,
}

impl Ledger {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            log: RaftLog::new(config.raft_log.clone()),
            early: config.has_bug(Bug::PersistEarly),
            purposes: BTreeMap::new(),
            next: 0,
            actions: Vec::new(),
            told: VecDeque::new(),
        }
    }

    /// In the order in which the log said it; what is said to one group may be for the node to act on.
    pub(crate) fn next_told(&mut self) -> Option<(VnodeId, Told)> {
        self.told.pop_front()
    }

    pub(crate) fn start(&mut self, out: &mut Actions) {
        self.log.start(&mut self.actions);
        self.settle(out);
    }

    pub(crate) fn complete(&mut self, completion: Completion, out: &mut Actions) {
        self.log.complete(completion, &mut self.actions);
        self.settle(out);
    }

    /// Lets the last flush be testified for while nothing happens. Call it a few times a second.
    pub(crate) fn tick(&mut self, out: &mut Actions) {
        self.log.mark(&mut self.actions);
        self.settle(out);
    }

    pub(crate) fn persist(&mut self, group: VnodeId, persist: Persist, out: &mut Actions) {
        let entry =
            |entry: raft::Entry| raft_log::Entry { index: entry.index, term: entry.term, data: entry.data };
        assert!(persist.snapshot.is_none(), "a group of one is sent no snapshot");
        let hard = persist.hard_state;
        let append = raft_log::Append {
            truncate_from: None,
            entries: persist.entries.into_iter().map(entry).collect(),
            hard_state: Some(raft_log::HardState {
                term: hard.term,
                voted_for: hard.voted_for,
                commit: hard.commit,
            }),
        };
        let id = self.request(Purpose::Persist(group, persist.id));
        if self.early {
            self.told.push_back((group, Told::Persisted(persist.id)));
        }
        self.log.append(id, group, append, &mut self.actions);
        self.settle(out);
    }

    pub(crate) fn save_snapshot(
        &mut self,
        group: VnodeId,
        mark: raft::SnapshotMark,
        data: Bytes,
        out: &mut Actions,
    ) {
        let id = self.request(Purpose::Save(group, mark.index));
        let mark = raft_log::SnapshotMark { index: mark.index, term: mark.term };
        self.log.save_snapshot(id, group, mark, data, &mut self.actions);
        self.settle(out);
    }

    fn request(&mut self, purpose: Purpose) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        self.purposes.insert(id, purpose);
        id
    }

    fn settle(&mut self, out: &mut Actions) {
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                match action {
                    raft_log::Action::Disk(job) => out.push(Action::Disk(Volume::Raft, job)),
                    raft_log::Action::Reply(id, reply) => self.replied(id, reply),
                    raft_log::Action::Started { .. } => self.started(),
                    raft_log::Action::StartFailed(error) => {
                        self.told.push_back((CLUSTER, Told::Stop(start_failed(&error))));
                    }
                    raft_log::Action::Notice(notice) => out.push(Action::Notice(Notice::RaftLog(notice))),
                }
            }
        }
    }

    fn started(&mut self) {
        let listed = GROUPS.iter().all(|group| self.log.group(*group).is_some());
        if !listed && self.log.unlisted_groups_possible() {
            let detail = "records were lost that may have been the metadata's".to_owned();
            return self.told.push_back((CLUSTER, Told::Stop(Stop::Damaged { detail })));
        }
        for group in GROUPS {
            self.find(group);
        }
        if listed {
            self.log.every_group_is_listed(&mut self.actions);
        }
    }

    fn find(&mut self, group: VnodeId) {
        match self.log.group(group) {
            None => {
                let recovered = raft::Recovered::default();
                self.told.push_back((group, Told::Recovered { recovered, snapshot: None }));
            }
            Some(view) if view.status == raft_log::Status::Damaged => {
                let detail = "the metadata's records or its snapshot do not decode".to_owned();
                self.told.push_back((group, Told::Stop(Stop::Damaged { detail })));
            }
            Some(view) if view.snapshot.index > RaftIndex::ZERO => {
                let id = self.request(Purpose::Load(group));
                self.log.load_snapshot(id, group, &mut self.actions);
            }
            Some(_) => {
                let told = self.recovered(group, None);
                self.told.push_back((group, told));
            }
        }
    }

    fn recovered(&self, group: VnodeId, snapshot: Option<Bytes>) -> Told {
        let unreadable = || {
            let detail = "the metadata's entries cannot be read".to_owned();
            Told::Stop(Stop::Damaged { detail })
        };
        let Some(view) = self.log.group(group) else { return unreadable() };
        let (first, end) = (view.snapshot.index.next(), view.last.index.next());
        let Some(entries) = self.log.entries(group, first, end) else { return unreadable() };
        let entry =
            |entry: raft_log::Entry| raft::Entry { index: entry.index, term: entry.term, data: entry.data };
        let hard = view.hard_state;
        let recovered = raft::Recovered {
            hard_state: raft::HardState { term: hard.term, voted_for: hard.voted_for, commit: hard.commit },
            snapshot: raft::SnapshotMark { index: view.snapshot.index, term: view.snapshot.term },
            // In the snapshot's image, which the replica reads.
            members: raft::Members::none(),
            entries: entries.into_iter().map(entry).collect(),
        };
        Told::Recovered { recovered, snapshot }
    }

    fn replied(&mut self, id: RequestId, reply: raft_log::Reply) {
        let Some(purpose) = self.purposes.remove(&id) else { return };
        let told = match (purpose, reply) {
            (Purpose::Persist(..), _) if self.early => return,
            (Purpose::Persist(group, id), raft_log::Reply::Appended) => (group, Told::Persisted(id)),
            (Purpose::Persist(group, id), raft_log::Reply::Failed(error)) => {
                (group, Told::PersistFailed { id, detail: error.to_string() })
            }
            (Purpose::Save(group, index), raft_log::Reply::SnapshotSaved) => {
                (group, Told::SnapshotSaved(index))
            }
            (Purpose::Save(group, index), raft_log::Reply::Failed(_)) => (group, Told::SnapshotFailed(index)),
            (Purpose::Load(group), raft_log::Reply::Snapshot { data, .. }) => {
                (group, self.recovered(group, Some(data)))
            }
            (Purpose::Load(group), raft_log::Reply::Failed(error)) => {
                (group, Told::Stop(Stop::Damaged { detail: error.to_string() }))
            }
            (purpose, reply) => unreachable!("{purpose:?} was answered {reply:?}"),
        };
        self.told.push_back(told);
    }
}

fn start_failed(error: &StartError) -> Stop {
    match error {
        StartError::Disk(error) => Stop::Unreadable { volume: Volume::Raft, detail: error.to_string() },
        StartError::LaterVersion(_) => Stop::LaterFormat { volume: Volume::Raft, detail: error.to_string() },
        StartError::LogMissing | StartError::Ambiguous(_) => Stop::Damaged { detail: error.to_string() },
    }
}
