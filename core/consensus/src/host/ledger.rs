//! The way between a group's words and the log's, and which request of the log answers what.

use bytes::Bytes;
use raft::{Image, Persist, PersistId, Recovered};
use storage::raft_log::{self, StartError};
use storage::store::RequestId;
use types::{RaftIndex, VnodeId};

use super::{Found, Host, Stage, Waiting};
use crate::action::{Action, Stop};
#[cfg(feature = "planted")]
use crate::planted::Bug;

/// What a request of the log is for. Of a group: in which life of its slot it was made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Persist(VnodeId, u64, PersistId),
    /// A snapshot that a leader sent.
    Install(VnodeId, u64),
    /// A snapshot of the group's own machine.
    Save(VnodeId, u64, RaftIndex),
    /// For a member that lags behind.
    Load(VnodeId, u64, raft::SnapshotMark),
    /// To begin with.
    Find(VnodeId, u64),
    /// The list says what the node is about to be in the group.
    Enlist(VnodeId, u64),
    /// What an earlier replica had stored is gone.
    Clear(VnodeId, u64),
    /// What was on its way before a replica is taken up again from what is stored.
    Settle(VnodeId, u64),
    /// Nobody waits: the group is left.
    Leave(VnodeId),
    ReadRegistry,
    SaveRegistry(RaftIndex),
}

impl Host {
    pub(super) fn request(&mut self, purpose: Purpose) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.purposes.insert(id, purpose);
        id
    }

    pub(super) fn tell(&mut self, action: Action) {
        self.waiting.push_back(Waiting::Told(action));
    }

    /// Hands on what the log has said.
    pub(super) fn settle_log(&mut self) {
        while !self.log_actions.is_empty() {
            for action in std::mem::take(&mut self.log_actions) {
                match action {
                    raft_log::Action::Disk(job) => self.tell(Action::Disk(job)),
                    raft_log::Action::Reply(id, reply) => self.replied(id, reply),
                    raft_log::Action::Started { .. } => self.read_registry(),
                    raft_log::Action::StartFailed(error) => self.tell(Action::Stop(start_failed(&error))),
                    raft_log::Action::Notice(notice) => {
                        let failed = match &notice {
                            raft_log::Notice::Failed { detail } => Some(detail.clone()),
                            raft_log::Notice::TornTail { .. }
                            | raft_log::Notice::Damage { .. }
                            | raft_log::Notice::GroupDamaged { .. }
                            | raft_log::Notice::UnlistedGroupsPossible
                            | raft_log::Notice::SpareFailed { .. }
                            | raft_log::Notice::NotRemoved { .. } => None,
                        };
                        self.tell(Action::Notice(notice));
                        if let Some(detail) = failed {
                            self.fail(detail);
                        }
                    }
                }
            }
        }
    }

    /// Has a change stored; after a snapshot that is on its way, if there is one.
    pub(super) fn persist(&mut self, group: VnodeId, persist: Persist) {
        if let Some(slot) = self.slots.get_mut(&group)
            && let Stage::Running(_) = slot.stage
        {
            slot.persists.push_back(persist);
            self.persist_more(group);
        }
    }

    fn persist_more(&mut self, group: VnodeId) {
        while let Some(slot) = self.slots.get_mut(&group)
            && slot.installing.is_none()
            && let Some(mut persist) = slot.persists.pop_front()
        {
            let life = slot.life;
            match persist.snapshot.take() {
                None => self.append(group, life, persist),
                Some(snapshot) => {
                    slot.installing = Some(persist);
                    let id = self.request(Purpose::Install(group, life));
                    let mark =
                        raft_log::SnapshotMark { index: snapshot.mark.index, term: snapshot.mark.term };
                    self.log.save_snapshot(id, group, mark, snapshot.image, &mut self.log_actions);
                    // The answer may be here already; it is taken in its turn.
                    self.settle_log();
                }
            }
        }
    }

    fn append(&mut self, group: VnodeId, life: u64, persist: Persist) {
        let entry =
            |entry: raft::Entry| raft_log::Entry { index: entry.index, term: entry.term, data: entry.data };
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
        let id = self.request(Purpose::Persist(group, life, persist.id));
        #[cfg(feature = "planted")]
        if self.has_bug(Bug::PersistEarly) {
            self.step(group, raft::Event::Persisted(persist.id));
        }
        self.log.append(id, group, append, &mut self.log_actions);
        self.settle_log();
    }

    fn replied(&mut self, id: RequestId, reply: raft_log::Reply) {
        use raft_log::Reply as R;
        let Some(purpose) = self.purposes.remove(&id) else { return };
        if let Some((group, life)) = purpose.slot()
            && self.slots.get(&group).is_none_or(|slot| slot.life != life)
        {
            return;
        }
        match (purpose, reply) {
            (Purpose::Persist(group, _, id), R::Appended) => self.persisted(group, id),
            (Purpose::Persist(group, ..) | Purpose::Settle(group, _), R::Failed(error)) => {
                self.not_stored(group, &error);
            }
            (Purpose::Settle(group, _), R::Appended) => self.take_up(group),
            (Purpose::Install(group, life), R::SnapshotSaved) => self.installed(group, life),
            (Purpose::Install(group, _), R::Failed(error)) => self.not_installed(group, &error),
            (Purpose::Save(group, _, index), R::SnapshotSaved) => {
                self.step(group, raft::Event::SnapshotSaved { index });
            }
            (Purpose::Save(group, _, index), R::Failed(_)) => {
                self.step(group, raft::Event::SnapshotFailed { index });
            }
            (Purpose::Load(group, ..), R::Snapshot { mark, data }) => {
                let mark = raft::SnapshotMark { index: mark.index, term: mark.term };
                self.step(group, raft::Event::SnapshotLoaded { mark, image: data });
            }
            (Purpose::Load(group, ..), R::Failed(raft_log::Error::Damaged)) => self.lose(group),
            (Purpose::Load(group, _, mark), R::Failed(_)) => {
                self.step(group, raft::Event::SnapshotNotLoaded { mark });
            }
            (Purpose::Find(group, _), R::Snapshot { data, .. }) => self.found(group, Some(data)),
            (Purpose::Find(group, _), R::Failed(_)) => self.lose(group),
            (Purpose::Enlist(group, _), R::Appended) => self.enlisted(group),
            (Purpose::Clear(group, _), R::Forgotten) => self.cleared(group),
            (Purpose::Leave(group), R::Forgotten) => self.tell(Action::Left { group }),
            (Purpose::ReadRegistry, R::Snapshot { data, .. }) => self.registry_read(Some(data)),
            (Purpose::SaveRegistry(index), R::SnapshotSaved) => self.registry_saved = index,
            // It is tried again when the list has grown further.
            (Purpose::SaveRegistry(_), R::Failed(_)) => {}
            (
                Purpose::Enlist(..) | Purpose::Clear(..) | Purpose::Leave(_) | Purpose::ReadRegistry,
                R::Failed(error),
            ) => self.list_failed(purpose, &error),
            (purpose, reply) => unreachable!("{purpose:?} was answered {reply:?}"),
        }
    }

    fn persisted(&mut self, group: VnodeId, id: PersistId) {
        #[cfg(feature = "planted")]
        if self.has_bug(Bug::PersistEarly) {
            return;
        }
        self.step(group, raft::Event::Persisted(id));
    }

    /// A change of a group was not made, and never will be.
    fn not_stored(&mut self, group: VnodeId, error: &raft_log::Error) {
        match error {
            // A snapshot of this group that was read meanwhile is damaged: the others go on.
            raft_log::Error::Damaged => self.lose(group),
            raft_log::Error::Storage(_) => self.fail(error.to_string()),
            raft_log::Error::Impossible(_)
            | raft_log::Error::NotStarted
            | raft_log::Error::NoSuchGroup
            | raft_log::Error::NoSnapshot
            | raft_log::Error::Stale => self.fail(format!("a change of group {group}: {error}")),
        }
    }

    fn installed(&mut self, group: VnodeId, life: u64) {
        let persist = self.slots.get_mut(&group).and_then(|slot| slot.installing.take());
        if let Some(persist) = persist {
            self.append(group, life, persist);
        }
        self.persist_more(group);
    }

    /// The volume is full, or an earlier replica's snapshot is still being written. The log is well, but not what the
    /// group believes it to be: the replica is taken up again from what is stored, as if the process had ended.
    fn not_installed(&mut self, group: VnodeId, error: &raft_log::Error) {
        match error {
            raft_log::Error::Damaged => self.lose(group),
            // Every replica was stopped already.
            raft_log::Error::Storage(_) if self.has_failed => {}
            raft_log::Error::Storage(_)
            | raft_log::Error::Stale
            | raft_log::Error::NoSuchGroup
            | raft_log::Error::NoSnapshot
            | raft_log::Error::NotStarted
            | raft_log::Error::Impossible(_) => self.settle(group),
        }
    }

    /// Waits for what is on its way: what is found afterwards is durable.
    fn settle(&mut self, group: VnodeId) {
        let Some(replica) = self.slots.get(&group).map(|slot| slot.replica) else { return };
        let life = self.slot(group, replica);
        let id = self.request(Purpose::Settle(group, life));
        self.log.append(id, group, raft_log::Append::default(), &mut self.log_actions);
        self.settle_log();
    }

    /// What the log holds of a group whose snapshot, if it has one, was read.
    pub(super) fn found(&mut self, group: VnodeId, snapshot: Option<Bytes>) {
        let (Some(slot), Some(view)) = (self.slots.get(&group), self.log.group(group)) else { return };
        debug_assert!(matches!(slot.stage, Stage::Preparing));
        let (first, end) = (view.snapshot.index.next(), view.last.index.next());
        let entries = self.log.entries(group, first, end);
        let image = snapshot.map(Image::decode).transpose();
        let (Some(entries), Ok(image)) = (entries, image) else { return self.lose(group) };
        let entry =
            |entry: raft_log::Entry| raft::Entry { index: entry.index, term: entry.term, data: entry.data };
        let hard = view.hard_state;
        let (members, state) = match image {
            Some(Image { members, state }) => (members, Some(state)),
            None => (raft::Members::none(), None),
        };
        let recovered = Recovered {
            hard_state: raft::HardState { term: hard.term, voted_for: hard.voted_for, commit: hard.commit },
            snapshot: raft::SnapshotMark { index: view.snapshot.index, term: view.snapshot.term },
            members,
            entries: entries.into_iter().map(entry).collect(),
        };
        self.ready_to_begin(group, recovered, state);
    }

    pub(super) fn ready_to_begin(&mut self, group: VnodeId, recovered: Recovered, state: Option<Bytes>) {
        let founders = self.founders(group);
        let Some(slot) = self.slots.get_mut(&group) else { return };
        let is_blank = recovered.is_blank();
        slot.stage = Stage::Found(Box::new(Found { founders, recovered }));
        self.tell(Action::Found { group, state, is_blank });
    }
}

#[cfg(feature = "planted")]
impl Host {
    pub(super) fn has_bug(&self, bug: Bug) -> bool {
        self.config.bug == Some(bug)
    }
}

impl Purpose {
    /// Whose request it is, and in which life.
    fn slot(self) -> Option<(VnodeId, u64)> {
        match self {
            Self::Persist(group, life, _)
            | Self::Install(group, life)
            | Self::Save(group, life, _)
            | Self::Load(group, life, _)
            | Self::Find(group, life)
            | Self::Enlist(group, life)
            | Self::Settle(group, life)
            | Self::Clear(group, life) => Some((group, life)),
            Self::Leave(_) | Self::ReadRegistry | Self::SaveRegistry(_) => None,
        }
    }
}

fn start_failed(error: &StartError) -> Stop {
    match error {
        StartError::Disk(error) => Stop::Unreadable(error.to_string()),
        StartError::LaterVersion(_) => Stop::LaterFormat(error.to_string()),
        StartError::LogMissing | StartError::Ambiguous(_) => Stop::Damaged(error.to_string()),
    }
}
