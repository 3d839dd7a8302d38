//! How this node becomes a replica, and stops being one.
//!
//! Owns the order of what has to be durable: the list says what the node is about to be, what an earlier replica had
//! stored is removed, the list says what the node is. A crash between any two is gone on with at the next start.

use bytes::Bytes;
use raft::{Recovered, ReplicaId};
use storage::raft_log;
use types::{NodeId, RaftIndex, Term, VnodeId};

use super::ledger::Purpose;
use super::mail::Departed;
use super::{Host, Slot, Stage};
use crate::action::{Action, Stop};
#[cfg(feature = "planted")]
use crate::planted::Bug;
use crate::registry::{Part, Registry, Standing};

/// The list's own place in the log; no group has this number.
pub(super) const REGISTRY: VnodeId = VnodeId(u64::MAX - 1);
/// All its entries are of one term: nobody votes on them.
const TERM: Term = Term(1);
/// The list is written as a whole after so many changes.
const REGISTRY_ENTRIES_MAX: u64 = 256;

/// The numbers past these are the list's and the log's own; whatever a letter says, no group has them.
fn is_groups(group: VnodeId) -> bool {
    group < REGISTRY
}

impl Host {
    /// Makes this node one of the founders of a group that does not exist yet; every founder is told the same. Told of
    /// by [`Action::Found`]. Does nothing when the node is or was a replica of the group, nor before
    /// [`Action::Listed`], when nobody can say whether it was: who still wants it then says so again.
    pub fn found_group(&mut self, group: VnodeId, founders: &[NodeId]) {
        if !self.is_listed || self.registry.part(group).is_some() || !is_groups(group) {
            return;
        }
        let mut founders = founders.to_vec();
        founders.sort_unstable();
        founders.dedup();
        let Some(place) = founders.iter().position(|node| *node == self.config.node) else { return };
        let replica = ReplicaId(place as u64 + 1);
        self.slot(group, replica);
        self.enlist(group, Part { replica, standing: Standing::Is { founders } });
    }

    /// A leader wants this node to be a replica.
    pub(super) fn join(&mut self, group: VnodeId, replica: ReplicaId) {
        let highest = self.registry.part(group).map_or(ReplicaId(0), |part| part.replica);
        if replica <= highest || !is_groups(group) {
            return;
        }
        self.slot(group, replica);
        #[cfg(feature = "planted")]
        if self.has_bug(Bug::ClearUnlisted) {
            return self.clear(group);
        }
        self.enlist(group, Part { replica, standing: Standing::Becomes });
    }

    /// The group is no more, and never will be again: whatever replica this node is, it is none any more. Told of by
    /// [`Action::Left`]; does nothing to one that is still being made ready.
    pub fn dissolve(&mut self, group: VnodeId) {
        if let Some(slot) = self.slots.get(&group) {
            self.leave(group, slot.replica);
        }
    }

    /// Nobody needs this replica any more.
    pub(super) fn leave(&mut self, group: VnodeId, replica: ReplicaId) {
        let Some(slot) = self.slots.get(&group) else { return };
        let is_meant = slot.replica == replica;
        #[cfg(feature = "planted")]
        let is_meant = is_meant || self.has_bug(Bug::ForgetAnyone);
        if !is_meant || matches!(slot.stage, Stage::Preparing) {
            return;
        }
        let replica = slot.replica;
        self.slot(group, replica);
        self.enlist(group, Part { replica, standing: Standing::Was });
    }

    /// A new life of the node's part in a group: nothing that was asked for the one before is heard of any more.
    pub(super) fn slot(&mut self, group: VnodeId, replica: ReplicaId) -> u64 {
        self.retire(group);
        self.lives += 1;
        let slot = Slot {
            life: self.lives,
            replica,
            stage: Stage::Preparing,
            installing: None,
            persists: std::collections::VecDeque::new(),
            ordered: None,
            departed: Departed::default(),
        };
        self.slots.insert(group, slot);
        self.lives
    }

    fn life(&self, group: VnodeId) -> u64 {
        self.slots.get(&group).map_or(0, |slot| slot.life)
    }

    fn enlist(&mut self, group: VnodeId, part: Part) {
        let index = self.registry_next;
        self.registry_next = index.next();
        let data = Registry::entry(group, &part);
        self.registry.set(group, part);
        let hard_state = raft_log::HardState { term: TERM, voted_for: None, commit: index };
        let append = raft_log::Append {
            truncate_from: None,
            entries: vec![raft_log::Entry { index, term: TERM, data }],
            hard_state: Some(hard_state),
        };
        let id = self.request(Purpose::Enlist(group, self.life(group)));
        self.log.append(id, REGISTRY, append, &mut self.log_actions);
        self.settle_log();
    }

    /// What the list says of a group is durable.
    pub(super) fn enlisted(&mut self, group: VnodeId) {
        let Some(part) = self.registry.part(group) else { return };
        match part.standing {
            Standing::Is { .. } => self.ready_to_begin(group, Recovered::default(), None),
            Standing::Becomes => self.clear(group),
            Standing::Was => self.forget(group),
        }
        self.save_registry();
    }

    /// A replica is found again: everything it had asked for is durable.
    pub(super) fn take_up(&mut self, group: VnodeId) {
        if let Some(part) = self.registry.part(group).cloned() {
            self.find(group, &part);
        }
    }

    fn clear(&mut self, group: VnodeId) {
        #[cfg(feature = "planted")]
        if self.has_bug(Bug::KeepOldState) {
            return self.cleared(group);
        }
        let id = self.request(Purpose::Clear(group, self.life(group)));
        self.log.forget(id, group, &mut self.log_actions);
        self.settle_log();
    }

    pub(super) fn cleared(&mut self, group: VnodeId) {
        let Some(replica) = self.slots.get(&group).map(|slot| slot.replica) else { return };
        self.enlist(group, Part { replica, standing: Standing::Is { founders: Vec::new() } });
    }

    fn forget(&mut self, group: VnodeId) {
        self.slots.remove(&group);
        let id = self.request(Purpose::Leave(group));
        self.log.forget(id, group, &mut self.log_actions);
        self.settle_log();
    }

    /// What the replica had stored cannot be relied on.
    pub(super) fn lose(&mut self, group: VnodeId) {
        let Some(slot) = self.slots.get(&group) else { return };
        let replica = slot.replica;
        if matches!(slot.stage, Stage::Lost) {
            return;
        }
        self.slot(group, replica);
        if let Some(slot) = self.slots.get_mut(&group) {
            slot.stage = Stage::Lost;
        }
        self.tell(Action::Lost { group, replica });
    }

    pub(super) fn founders(&self, group: VnodeId) -> Vec<NodeId> {
        match self.registry.part(group).map(|part| &part.standing) {
            Some(Standing::Is { founders }) => founders.clone(),
            Some(Standing::Becomes | Standing::Was) | None => Vec::new(),
        }
    }

    /// A write of the list failed, which fails the log: nothing begins or ends any more in this process.
    pub(super) fn list_failed(&mut self, purpose: Purpose, error: &raft_log::Error) {
        if let Purpose::ReadRegistry = purpose {
            return self.tell(Action::Stop(Stop::Damaged(format!("the list of groups: {error}"))));
        }
        self.fail(error.to_string());
    }

    fn save_registry(&mut self) {
        let index = RaftIndex(self.registry_next.0 - 1);
        if index.0 < self.registry_saved.0 + REGISTRY_ENTRIES_MAX {
            return;
        }
        // The next attempt comes after as many changes again.
        self.registry_saved = index;
        let id = self.request(Purpose::SaveRegistry(index));
        let mark = raft_log::SnapshotMark { index, term: TERM };
        self.log.save_snapshot(id, REGISTRY, mark, self.registry.encode(), &mut self.log_actions);
        self.settle_log();
    }

    /// The log was opened: what is this node a replica of?
    pub(super) fn read_registry(&mut self) {
        match self.log.group(REGISTRY) {
            Some(view) if view.status == raft_log::Status::Damaged => {
                let detail = "the list of groups does not decode".to_owned();
                self.tell(Action::Stop(Stop::Damaged(detail)));
            }
            Some(view) if view.snapshot.index > RaftIndex::ZERO => {
                let id = self.request(Purpose::ReadRegistry);
                self.log.load_snapshot(id, REGISTRY, &mut self.log_actions);
                self.settle_log();
            }
            None if self.log.unlisted_groups_possible() => {
                let detail = "records were lost that may have been the list of groups".to_owned();
                self.tell(Action::Stop(Stop::Damaged(detail)));
            }
            Some(_) | None => self.registry_read(None),
        }
    }

    pub(super) fn registry_read(&mut self, snapshot: Option<Bytes>) {
        match self.decode_registry(snapshot) {
            Some(registry) => self.registry = registry,
            None => {
                let detail = "the list of groups does not decode".to_owned();
                return self.tell(Action::Stop(Stop::Damaged(detail)));
            }
        }
        let parts: Vec<_> = self.registry.parts().map(|(group, part)| (group, part.clone())).collect();
        for (group, part) in parts {
            self.find(group, &part);
        }
        // The list says what should be here.
        self.log.every_group_is_listed(&mut self.log_actions);
        self.settle_log();
        self.is_listed = true;
        self.tell(Action::Listed);
    }

    fn decode_registry(&mut self, snapshot: Option<Bytes>) -> Option<Registry> {
        let mut registry = snapshot.map_or(Ok(Registry::default()), Registry::decode).ok()?;
        let Some(view) = self.log.group(REGISTRY) else { return Some(registry) };
        let (first, end) = (view.snapshot.index.next(), view.last.index.next());
        for entry in self.log.entries(REGISTRY, first, end)? {
            registry.apply(entry.data).ok()?;
        }
        (self.registry_saved, self.registry_next) = (view.snapshot.index, end);
        Some(registry)
    }

    fn find(&mut self, group: VnodeId, part: &Part) {
        let view = self.log.group(group);
        match part.standing {
            Standing::Was if view.is_none() => return,
            Standing::Was => return self.forget(group),
            Standing::Is { .. } | Standing::Becomes => {}
        }
        self.slot(group, part.replica);
        match (view, &part.standing) {
            (_, Standing::Becomes) => self.clear(group),
            // The list was durable and nothing else: as long as no record can be missing, the group never began.
            (None, _) if self.log.unlisted_groups_possible() => self.lose(group),
            (None, _) => self.ready_to_begin(group, Recovered::default(), None),
            (Some(view), _) if view.status == raft_log::Status::Damaged => self.lose(group),
            (Some(view), _) if view.snapshot.index > RaftIndex::ZERO => {
                let id = self.request(Purpose::Find(group, self.life(group)));
                self.log.load_snapshot(id, group, &mut self.log_actions);
                self.settle_log();
            }
            (Some(_), _) => self.found(group, None),
        }
    }
}
