//! The groups of one node.
//!
//! Routes what comes to the group it is for, and what a group asks for to the log, to another node or to the caller.
//! How a replica comes and goes is in `roster`, the log's answers are in `ledger`, messages in `mail`.

mod ledger;
mod mail;
mod roster;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use raft::{
    Change, Group, Persist, PersistId, ProposalId, ReadId, Recovered, Refusal, ReplicaId, Role, SnapshotOrder,
};
use storage::disk::Completion;
use storage::raft_log::{self, RaftLog};
use storage::store::RequestId;
use types::{NodeId, RaftIndex, Term, VnodeId};

use crate::action::Action;
#[cfg(feature = "planted")]
use crate::planted::Bug;
use crate::registry::Registry;
use ledger::Purpose;
use mail::Departed;

/// Entries read at once.
const READ_ENTRIES_MAX: u64 = 1024;

/// What the groups of a node must be told.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node.
    pub node: NodeId,
    /// Election timeouts are drawn from it; different for each process.
    pub seed: u64,
    /// A follower that hears from no leader for between one and two times this many ticks stands for election.
    pub election_ticks: u32,
    /// A leader is heard of this often, in ticks; less than half of `election_ticks`.
    pub heartbeat_ticks: u32,
    /// A group's machine is saved when the entries applied since hold this many bytes.
    pub snapshot_bytes: u64,
    /// Or when there are this many of them.
    pub snapshot_entries: u64,
    /// The log's.
    pub log: raft_log::Config,
    /// A bug put in on purpose.
    #[cfg(feature = "planted")]
    pub bug: Option<Bug>,
}

impl Config {
    /// With the settings of most nodes.
    #[must_use]
    pub fn new(node: NodeId, seed: u64) -> Self {
        let of_most = raft::Config::joining(node);
        Self {
            node,
            seed,
            election_ticks: of_most.election_ticks,
            heartbeat_ticks: of_most.heartbeat_ticks,
            snapshot_bytes: of_most.snapshot_bytes,
            snapshot_entries: of_most.snapshot_entries,
            log: raft_log::Config { seed, ..raft_log::Config::default() },
            #[cfg(feature = "planted")]
            bug: None,
        }
    }
}

/// All groups of a node.
#[derive(Debug)]
pub struct Host {
    config: Config,
    log: RaftLog,
    registry: Registry,
    slots: BTreeMap<VnodeId, Slot>,
    /// What each request of the log is for.
    purposes: BTreeMap<RequestId, Purpose>,
    next_request: u64,
    /// Counts slots, so that what was asked for an earlier one of the same group is known.
    lives: u64,
    /// The next entry of the registry.
    registry_next: RaftIndex,
    registry_saved: RaftIndex,
    log_actions: Vec<raft_log::Action>,
    waiting: VecDeque<Waiting>,
    outbox: BTreeMap<NodeId, mail::Pile>,
    /// The list of groups was read.
    is_listed: bool,
    /// The log takes no more writes.
    has_failed: bool,
}

/// The node's part in one group, in this process.
#[derive(Debug)]
struct Slot {
    life: u64,
    replica: ReplicaId,
    stage: Stage,
    /// A snapshot is on its way to the disk; what comes after it waits.
    installing: Option<Persist>,
    persists: VecDeque<Persist>,
    /// The snapshot the caller was asked to take.
    ordered: Option<RaftIndex>,
    departed: Departed,
}

#[derive(Debug)]
enum Stage {
    /// Something must be durable first.
    Preparing,
    /// Waits to be allowed to begin.
    Found(Box<Found>),
    Running(Box<Group>),
    /// Cannot take part any more.
    Lost,
}

#[derive(Debug)]
struct Found {
    founders: Vec<NodeId>,
    recovered: Recovered,
}

/// What was said and not acted on yet.
#[derive(Debug)]
enum Waiting {
    Group(VnodeId, u64, raft::Action),
    Told(Action),
}

impl Host {
    /// Groups of a node whose log was not read yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            log: RaftLog::new(config.log.clone()),
            config,
            registry: Registry::default(),
            slots: BTreeMap::new(),
            purposes: BTreeMap::new(),
            next_request: 0,
            lives: 0,
            registry_next: RaftIndex(1),
            registry_saved: RaftIndex::ZERO,
            log_actions: Vec::new(),
            waiting: VecDeque::new(),
            outbox: BTreeMap::new(),
            is_listed: false,
            has_failed: false,
        }
    }

    /// Reads the log. Each group this node is a replica of is [`Action::Found`] or [`Action::Lost`], then
    /// [`Action::Listed`] is told.
    pub fn start(&mut self) {
        self.log.start(&mut self.log_actions);
        self.settle_log();
    }

    /// Takes a completion of a job of the log's.
    pub fn complete(&mut self, completion: Completion) {
        self.log.complete(completion, &mut self.log_actions);
        self.settle_log();
    }

    /// Time goes on by one tick. Needed only while [`Host::needs_ticks`].
    pub fn tick(&mut self) {
        let mut out = Vec::new();
        let mut reminding = Vec::new();
        for (group, slot) in &mut self.slots {
            let Stage::Running(running) = &mut slot.stage else { continue };
            if !is_alone(running) {
                running.step(raft::Event::Tick, &mut out);
                let life = slot.life;
                self.waiting.extend(out.drain(..).map(|action| Waiting::Group(*group, life, action)));
            }
            if !slot.departed.is_empty() {
                reminding.push(*group);
            }
        }
        reminding.into_iter().for_each(|group| self.remind_departed(group));
    }

    /// Before a tick: which nodes cannot be reached. Groups that one of them leads do not wait until it has been silent
    /// for long.
    pub fn miss(&mut self, is_away: impl Fn(NodeId) -> bool) {
        let mut out = Vec::new();
        for slot in self.slots.values_mut() {
            let Stage::Running(running) = &mut slot.stage else { continue };
            if running.followed().is_some_and(&is_away) {
                running.step(raft::Event::LeaderAway, &mut out);
            }
        }
        debug_assert!(out.is_empty(), "nothing is done before the tick");
    }

    /// Whether time means anything to a group: one that is alone needs none.
    #[must_use]
    pub fn needs_ticks(&self) -> bool {
        self.slots.values().any(|slot| match &slot.stage {
            Stage::Running(group) => !is_alone(group) || !slot.departed.is_empty(),
            Stage::Preparing | Stage::Found(_) | Stage::Lost => false,
        })
    }

    /// Lets the log's last flush be testified for while nothing happens. For a few times a second.
    pub fn mark(&mut self) {
        self.log.mark(&mut self.log_actions);
        self.settle_log();
    }

    /// What the log holds.
    #[must_use]
    pub fn gauges(&self) -> raft_log::Gauges {
        self.log.gauges()
    }

    /// A replica of this node that takes part.
    #[must_use]
    pub fn group(&self, group: VnodeId) -> Option<&Group> {
        match &self.slots.get(&group)?.stage {
            Stage::Running(group) => Some(group),
            Stage::Preparing | Stage::Found(_) | Stage::Lost => None,
        }
    }

    /// Every replica of this node that takes part, in the order of the groups.
    pub fn groups(&self) -> impl Iterator<Item = (VnodeId, &Group)> {
        self.slots.keys().filter_map(|group| Some((*group, self.group(*group)?)))
    }

    /// Whether this node is a replica of the group, or about to be.
    #[must_use]
    pub fn has(&self, group: VnodeId) -> bool {
        self.slots.contains_key(&group)
    }

    /// Whether this node is and was a replica of no group. Known once the log was read.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.registry.parts().next().is_none()
    }

    /// Whether this node began the group, without any other.
    #[must_use]
    pub fn founded_alone(&self, group: VnodeId) -> bool {
        self.founders(group) == [self.config.node]
    }

    /// Which replica of the group this node is, or is about to be or not to be; also of one that is lost.
    #[must_use]
    pub fn replica(&self, group: VnodeId) -> Option<ReplicaId> {
        self.slots.get(&group).map(|slot| slot.replica)
    }

    /// What the log holds of a group, changes on their way to the disk included.
    #[must_use]
    pub fn stored(&self, group: VnodeId) -> Option<raft_log::GroupView> {
        self.log.group(group)
    }

    /// The term of an entry the log holds, or of its snapshot's last.
    #[must_use]
    pub fn stored_term(&self, group: VnodeId, index: RaftIndex) -> Option<Term> {
        self.log.term_at(group, index)
    }

    /// Requests that the log has not answered yet.
    #[must_use]
    pub fn requests_waiting(&self) -> usize {
        self.purposes.len()
    }

    /// Lets a replica that was found take part. Its machine must be made by now: entries are applied from here on.
    pub fn begin(&mut self, group: VnodeId) {
        let Some(slot) = self.slots.get_mut(&group) else { return };
        let found = match std::mem::replace(&mut slot.stage, Stage::Preparing) {
            Stage::Found(found) => found,
            stage @ (Stage::Preparing | Stage::Running(_) | Stage::Lost) => {
                slot.stage = stage;
                return;
            }
        };
        let mixed =
            self.config.seed ^ group.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ slot.life.rotate_left(40);
        let config = raft::Config {
            voters: found.founders,
            replica: Some(slot.replica),
            seed: mixed,
            election_ticks: self.config.election_ticks,
            heartbeat_ticks: self.config.heartbeat_ticks,
            snapshot_bytes: self.config.snapshot_bytes,
            snapshot_entries: self.config.snapshot_entries,
            ..raft::Config::joining(self.config.node)
        };
        match Group::new(config, found.recovered) {
            Ok(made) => {
                slot.departed = Departed::since(made.members());
                slot.stage = Stage::Running(Box::new(made));
                self.step(group, raft::Event::Start);
            }
            Err(_) => self.lose(group),
        }
    }

    /// Has an entry put into a group's log. Exactly one outcome follows: [`Action::Apply`], [`Action::Refused`] or
    /// [`Action::Unknown`] with this id.
    pub fn propose(&mut self, group: VnodeId, id: ProposalId, data: Bytes) {
        if self.group(group).is_some() {
            self.step(group, raft::Event::Propose { id, data });
        } else {
            self.refuse(group, id);
        }
    }

    /// Has a group's members changed; the outcome as for [`Host::propose`], success as [`Action::MembersChanged`].
    pub fn reconfigure(&mut self, group: VnodeId, id: ProposalId, change: Change) {
        if self.group(group).is_some() {
            self.step(group, raft::Event::Reconfigure { id, change });
        } else {
            self.refuse(group, id);
        }
    }

    fn refuse(&mut self, group: VnodeId, id: ProposalId) {
        let reason = Refusal::NotLeader { leader: None };
        self.waiting.push_back(Waiting::Told(Action::Refused { group, id, reason }));
    }

    /// Has the lead of a group handed over; nothing is told when that does not come about.
    pub fn transfer(&mut self, group: VnodeId, to: NodeId) {
        self.step(group, raft::Event::Transfer { to });
    }

    /// Asks when what is committed now is applied here: [`Action::ReadReady`] or [`Action::ReadRefused`].
    pub fn read(&mut self, group: VnodeId, id: ReadId) {
        if self.group(group).is_some() {
            return self.step(group, raft::Event::Read { id });
        }
        let reason = Refusal::NotLeader { leader: None };
        self.waiting.push_back(Waiting::Told(Action::ReadRefused { group, id, reason }));
    }

    /// Stores the machine's state as of an [`Action::TakeSnapshot`].
    pub fn save(&mut self, group: VnodeId, order: &SnapshotOrder, state: &[u8]) {
        let Some(slot) = self.slots.get_mut(&group) else { return };
        // What an earlier replica was asked for would become this one's log.
        if slot.ordered.take_if(|index| *index == order.mark.index).is_none() {
            return;
        }
        let life = slot.life;
        let id = self.request(Purpose::Save(group, life, order.mark.index));
        let mark = raft_log::SnapshotMark { index: order.mark.index, term: order.mark.term };
        self.log.save_snapshot(id, group, mark, order.image(state), &mut self.log_actions);
        self.settle_log();
    }

    /// The machine has no state that could be saved.
    pub fn not_saved(&mut self, group: VnodeId, order: &SnapshotOrder) {
        let Some(slot) = self.slots.get_mut(&group) else { return };
        if slot.ordered.take_if(|index| *index == order.mark.index).is_some() {
            self.step(group, raft::Event::SnapshotFailed { index: order.mark.index });
        }
    }

    /// The next thing to do or to know. Ask until there is none after whatever was told to the host.
    pub fn next_action(&mut self) -> Option<Action> {
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting {
                Waiting::Told(action) => return Some(action),
                Waiting::Group(group, life, action) => {
                    let is_current = self.slots.get(&group).is_some_and(|slot| slot.life == life);
                    let told =
                        if is_current { self.act(group, life, action) } else { of_the_past(group, action) };
                    if told.is_some() {
                        return told;
                    }
                }
            }
        }
        None
    }

    /// Does what a group asks for, or gives it to the caller.
    fn act(&mut self, group: VnodeId, life: u64, action: raft::Action) -> Option<Action> {
        match action {
            raft::Action::Persist(persist) => self.persist(group, persist),
            raft::Action::Send { to, message } => self.post_message(to, group, message),
            raft::Action::LoadSnapshot { mark } => {
                let id = self.request(Purpose::Load(group, life, mark));
                self.log.load_snapshot(id, group, &mut self.log_actions);
                self.settle_log();
            }
            raft::Action::Apply { entry, proposal } => {
                return Some(Action::Apply { group, entry, proposal });
            }
            raft::Action::Restore { mark, state, members } => {
                self.note_departures(group, &members);
                return Some(Action::Restore { group, index: mark.index, state });
            }
            raft::Action::TakeSnapshot(order) => {
                if let Some(slot) = self.slots.get_mut(&group) {
                    slot.ordered = Some(order.mark.index);
                }
                return Some(Action::TakeSnapshot { group, order });
            }
            raft::Action::MembersChanged { index, members, proposal } => {
                self.note_departures(group, &members);
                return Some(Action::MembersChanged { group, index, members, proposal });
            }
            raft::Action::RoleChanged { role, term } => {
                return Some(Action::RoleChanged { group, role, term });
            }
            raft::Action::Refused { id, reason } => return Some(Action::Refused { group, id, reason }),
            raft::Action::Unknown { id } => return Some(Action::Unknown { group, id }),
            raft::Action::ReadReady { id } => return Some(Action::ReadReady { group, id }),
            raft::Action::ReadRefused { id, reason } => {
                return Some(Action::ReadRefused { group, id, reason });
            }
            raft::Action::Contradiction(what) => {
                if what == raft::Contradiction::Lacking {
                    self.lose(group);
                }
                return Some(Action::Contradiction { group, what });
            }
        }
        None
    }

    fn step(&mut self, group: VnodeId, event: raft::Event) {
        let Some(slot) = self.slots.get_mut(&group) else { return };
        let Stage::Running(running) = &mut slot.stage else { return };
        let mut out = Vec::new();
        running.step(event, &mut out);
        let life = slot.life;
        self.waiting.extend(out.into_iter().map(|action| Waiting::Group(group, life, action)));
    }

    /// Ends a replica in this process: whoever waits for it is told. What is on its way to the log stays so.
    fn retire(&mut self, group: VnodeId) {
        self.step(group, raft::Event::PersistFailed(PersistId(u64::MAX)));
    }

    /// The log takes no more writes: nobody goes on as if it did.
    fn fail(&mut self, detail: String) {
        if self.has_failed {
            return;
        }
        self.has_failed = true;
        self.tell(Action::Failed { detail });
        self.running().into_iter().for_each(|group| self.retire(group));
    }

    fn running(&self) -> Vec<VnodeId> {
        self.groups().map(|(group, _)| group).collect()
    }

    /// Commands that this node's replica of a group has applied, each with the term of its entry, one for each index
    /// from `from` on, up to so many bytes or one entry; an empty one stands for an entry without a command. `None`
    /// when the replica does not take part or a snapshot covers `from`.
    #[must_use]
    pub fn applied_entries(
        &self,
        group: VnodeId,
        from: RaftIndex,
        bytes_max: usize,
    ) -> Option<Vec<(Term, Bytes)>> {
        let end = self.group(group)?.applied().next().min(RaftIndex(from.0.saturating_add(READ_ENTRIES_MAX)));
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for entry in self.log.entries(group, from, end)? {
            bytes += entry.data.len();
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.push((entry.term, raft::command_of(&entry.data).unwrap_or_default()));
        }
        Some(entries)
    }

    /// What a proposer is told of a group: who leads it as far as known here, and in which term.
    #[must_use]
    pub fn leader(&self, group: VnodeId) -> Option<(NodeId, Term)> {
        let group = self.group(group)?;
        Some((group.leader()?, group.term()))
    }
}

/// What a replica that is none any more had still to say to those that wait for it.
fn of_the_past(group: VnodeId, action: raft::Action) -> Option<Action> {
    match action {
        raft::Action::Apply { proposal, .. } | raft::Action::MembersChanged { proposal, .. } => {
            proposal.map(|id| Action::Unknown { group, id })
        }
        raft::Action::Unknown { id } => Some(Action::Unknown { group, id }),
        raft::Action::Refused { id, reason } => Some(Action::Refused { group, id, reason }),
        raft::Action::ReadReady { id } => {
            let reason = Refusal::NotLeader { leader: None };
            Some(Action::ReadRefused { group, id, reason })
        }
        raft::Action::ReadRefused { id, reason } => Some(Action::ReadRefused { group, id, reason }),
        raft::Action::Contradiction(what) => Some(Action::Contradiction { group, what }),
        raft::Action::Persist(_)
        | raft::Action::Send { .. }
        | raft::Action::Restore { .. }
        | raft::Action::TakeSnapshot(_)
        | raft::Action::LoadSnapshot { .. }
        | raft::Action::RoleChanged { .. } => None,
    }
}

fn is_alone(group: &Group) -> bool {
    group.role() == Role::Leader && group.members().len() == 1
}
