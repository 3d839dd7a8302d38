//! One node: its disk, and the process that is a member of the group while it runs.

use std::collections::BTreeMap;

use raft::{
    Action, Change, Config, EntryId, Event, Group, Message, ProposalId, ReadId, ReplicaId, Role, Snapshot,
    SnapshotMark,
};
use types::{NodeId, RaftIndex, Term};

use super::disclosure;
use super::judge::CommandId;
use super::machine::Machine;
use super::store::{Done, Store};
use super::world::{Happening, World};
use crate::invariants::{Violation, ensure};

/// What a proposal was for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Proposed {
    Command(CommandId),
    Change(Change),
}

/// A member that runs.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) group: Group,
    pub(super) machine: Machine,
    pub(super) proposals: BTreeMap<ProposalId, Proposed>,
    /// What each read must see at least.
    pub(super) reads: BTreeMap<ReadId, u64>,
}

/// A node. Its disk outlives its processes.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    /// Counts processes, so that what was meant for an earlier one is known.
    pub(super) life: u64,
    pub(super) store: Store,
    /// The highest replica this node ever was, which it remembers with its own identity: it never becomes one of
    /// an older number, also when the group's files are gone.
    pub(super) replica: Option<ReplicaId>,
    /// Begins the group with the others; not after its files were lost or removed.
    pub(super) is_founder: bool,
    /// Its files are gone: the replica must be replaced.
    pub(super) is_lost: bool,
    /// The replica left, and its files were removed: it must never answer again, or it would deny what it said.
    pub(super) is_retired: bool,
    pub(super) process: Option<Process>,
    /// The process does nothing until then.
    pub(super) paused_until: u64,
    /// Ticks come this often, microseconds.
    pub(super) tick_micros: u64,
}

impl Node {
    pub(super) fn new(id: NodeId, is_founder: bool, tick_micros: u64) -> Self {
        Self {
            id,
            life: 0,
            store: Store::default(),
            replica: None,
            is_founder,
            is_lost: false,
            is_retired: false,
            process: None,
            paused_until: 0,
            tick_micros,
        }
    }

    pub(super) fn leads(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.group.role() == Role::Leader)
    }
}

impl World {
    /// Starts a node's process, if it has anything to run.
    pub(super) fn boot(&mut self, id: NodeId) -> Result<(), Violation> {
        let config = self.group_config(id);
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        let is_out = node.is_lost || node.is_retired;
        if node.process.is_some() || is_out || (node.replica.is_none() && !node.is_founder) {
            return Ok(());
        }
        let (recovered, state) = node.store.recovered()?;
        let machine = Machine::decode(&state);
        let group = Group::new(config, recovered)
            .map_err(|error| Violation::new("RECOVERY", format!("node {id}: {error}")))?;
        if group.applied() == RaftIndex(1) {
            self.judge.founded(group.members())?;
        }
        node.life += 1;
        node.replica = Some(group.replica());
        node.process = Some(Process { group, machine, proposals: BTreeMap::new(), reads: BTreeMap::new() });
        let (life, tick_micros) = (node.life, node.tick_micros);
        self.summary.lives += 1;
        self.say(|| format!("node {id} starts"));
        self.later(tick_micros, Happening::Tick(id, life));
        self.step(id, Event::Start)
    }

    fn group_config(&mut self, id: NodeId) -> Config {
        let node = &self.nodes[&id];
        let voters = if node.is_founder { self.founders.clone() } else { Vec::new() };
        let config = Config { voters, replica: node.replica, bug: self.options.bug, ..self.config.clone() };
        Config { node: id, seed: self.seed.rotate_left(17) ^ (id.0 as u64) ^ (node.life << 32), ..config }
    }

    /// Ends a node's process.
    pub(super) fn end(&mut self, id: NodeId, with_power: bool) -> Result<(), Violation> {
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        let ended = node.process.take();
        node.store.crash(with_power, &mut self.chaos)?;
        if let Some(process) = ended {
            self.say(|| format!("node {id} ends, power {with_power}"));
            // Nobody will hear of what it was asked.
            self.summary.unknown += process.proposals.len() as u64;
        }
        Ok(())
    }

    /// Gives an event to a member and does what it asks for.
    pub(super) fn step(&mut self, id: NodeId, event: Event) -> Result<(), Violation> {
        let Some(process) = self.nodes.get_mut(&id).and_then(|node| node.process.as_mut()) else {
            return Ok(());
        };
        let mut out = Vec::new();
        process.group.step(event, &mut out);
        for action in out {
            self.act(id, action)?;
        }
        let Some(process) = &self.nodes[&id].process else { return Ok(()) };
        if process.group.role() != Role::Stopped {
            self.judge.check_state(id, process.group.applied(), process.machine)?;
        }
        Ok(())
    }

    fn act(&mut self, id: NodeId, action: Action) -> Result<(), Violation> {
        self.say(|| format!("node {id} {}", brief(&action)));
        match action {
            Action::Persist(persist) => self.persist(id, persist),
            Action::Send { to, message } => self.send(id, to, &message),
            Action::Apply { entry, proposal } => self.apply(id, entry, proposal),
            Action::MembersChanged { index, members, proposal } => {
                let term = self.nodes[&id].store.view.term_at(index);
                let term = term.ok_or_else(|| Violation::new("AGREEMENT", "an entry that is not stored"))?;
                let (now, at) = (self.process(id).group.term(), EntryId { index, term });
                if self.judge.members_changed(id, now, at, &members)? {
                    self.say(|| format!("members now: {members:?}"));
                    self.summary.changes += 1;
                }
                self.note(index.0);
                match proposal {
                    Some(proposal) => self.answered(id, proposal).map(|_| ()),
                    None => Ok(()),
                }
            }
            Action::Restore { mark, state, .. } => {
                self.summary.installed += 1;
                let machine = Machine::decode(&state);
                self.process(id).machine = machine;
                self.judge.check_state(id, mark.index, machine)
            }
            Action::Refused { id: proposal, reason } => {
                self.note(proposal.0);
                match self.answered(id, proposal)? {
                    Proposed::Command(command) => self.judge.refused(command),
                    Proposed::Change(change) => {
                        self.say(|| format!("{change:?} is refused: {reason}"));
                        Ok(())
                    }
                }
            }
            Action::Unknown { id: proposal } => {
                self.summary.unknown += 1;
                let known = self.process(id).proposals.remove(&proposal);
                ensure(known.is_some(), "OUTCOME", || format!("{proposal:?} has two outcomes"))
            }
            Action::ReadReady { id: read } => self.read_ready(id, read),
            Action::ReadRefused { id: read, .. } => {
                let known = self.process(id).reads.remove(&read);
                ensure(known.is_some(), "OUTCOME", || format!("{read:?} is answered twice"))
            }
            Action::TakeSnapshot(order) => {
                let image = order.image(&self.process(id).machine.encode());
                self.save(id, Snapshot { mark: order.mark, image });
                Ok(())
            }
            Action::LoadSnapshot { mark } => {
                self.load(id, mark);
                Ok(())
            }
            Action::RoleChanged { role, term } => self.role_changed(id, role, term),
            Action::Contradiction(what) => {
                Err(Violation::new("CONTRADICTION", format!("node {id}, whose disk lost nothing: {what}")))
            }
        }
    }

    pub(super) fn process(&mut self, id: NodeId) -> &mut Process {
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        node.process.as_mut().expect("it has just acted")
    }

    fn apply(
        &mut self,
        id: NodeId,
        entry: raft::Entry,
        proposal: Option<ProposalId>,
    ) -> Result<(), Violation> {
        let bytes = entry.data.get(..8).and_then(|bytes| bytes.try_into().ok());
        let command = bytes.map(u64::from_be_bytes).map(CommandId);
        let command = command.ok_or_else(|| Violation::new("AGREEMENT", format!("an unknown {entry:?}")))?;
        let (now, at) = (self.process(id).group.term(), EntryId { index: entry.index, term: entry.term });
        self.judge.applied(id, now, at, command)?;
        self.process(id).machine.apply(command);
        self.note(entry.index.0 ^ command.0.rotate_left(32));
        let Some(proposal) = proposal else { return Ok(()) };
        match self.answered(id, proposal)? {
            Proposed::Command(proposed) => {
                ensure(proposed == command, "OUTCOME", || {
                    format!("{proposed:?} is told of as {command:?} at {}", entry.index)
                })?;
                self.summary.acknowledged += 1;
                self.judge.acknowledged(command)
            }
            Proposed::Change(change) => {
                Err(Violation::new("OUTCOME", format!("{change:?} is told of as {command:?}")))
            }
        }
    }

    /// A proposal has its one outcome.
    fn answered(&mut self, id: NodeId, proposal: ProposalId) -> Result<Proposed, Violation> {
        let known = self.process(id).proposals.remove(&proposal);
        let known = known.ok_or_else(|| {
            Violation::new("OUTCOME", format!("{proposal:?} has two outcomes, or was never made"))
        })?;
        self.finish_change(known);
        Ok(known)
    }

    fn read_ready(&mut self, id: NodeId, read: ReadId) -> Result<(), Violation> {
        let process = self.process(id);
        let (floor, seen) = (process.reads.remove(&read), process.machine.count);
        let floor = floor.ok_or_else(|| Violation::new("OUTCOME", format!("{read:?} is answered twice")))?;
        self.summary.reads += 1;
        self.note(seen);
        self.judge.read_ends(id, floor, seen)
    }

    fn role_changed(&mut self, id: NodeId, role: Role, term: Term) -> Result<(), Violation> {
        self.note(term.0 << 8 | role as u64);
        if role != Role::Leader {
            return Ok(());
        }
        self.summary.elections += 1;
        let node = &self.nodes[&id];
        let log = &node.store.view;
        self.judge.leads(id, node.life, term, log.mark().index, |index| log.term_at(index))
    }

    fn send(&mut self, id: NodeId, to: NodeId, message: &Message) -> Result<(), Violation> {
        let node = &self.nodes[&id];
        if self.options.bug.is_none() || self.reads_messages {
            disclosure::check(message, &node.store.durable)?;
        }
        self.transmit(id, to, message.encode());
        Ok(())
    }

    fn persist(&mut self, id: NodeId, persist: raft::Persist) -> Result<(), Violation> {
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        node.store.persist(persist)?;
        let (life, delay) = (node.life, self.disk_delay(id));
        self.later(delay, Happening::Written(id, life, false));
        Ok(())
    }

    fn save(&mut self, id: NodeId, snapshot: Snapshot) {
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        node.store.save(snapshot);
        let (life, delay) = (node.life, 3 * self.disk_delay(id));
        self.later(delay, Happening::Written(id, life, true));
    }

    fn load(&mut self, id: NodeId, mark: SnapshotMark) {
        let (life, delay) = (self.nodes[&id].life, self.disk_delay(id));
        self.later(delay, Happening::Loaded(id, life, mark));
    }

    /// A change or a snapshot has reached the disk, or failed to.
    pub(super) fn written(&mut self, id: NodeId, is_save: bool) -> Result<(), Violation> {
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        if node.store.is_broken {
            let failed = node.store.fail();
            return match failed {
                Some(failed) if !is_save => self.step(id, Event::PersistFailed(failed)),
                Some(_) | None => Ok(()),
            };
        }
        match node.store.finish(is_save)? {
            None => Ok(()),
            Some(Done::Persisted(persist)) => self.step(id, Event::Persisted(persist)),
            Some(Done::Saved(index, true)) => self.step(id, Event::SnapshotSaved { index }),
            Some(Done::Saved(index, false)) => self.step(id, Event::SnapshotFailed { index }),
        }
    }

    pub(super) fn loaded(&mut self, id: NodeId, mark: SnapshotMark) -> Result<(), Violation> {
        let stored = self.nodes[&id].store.durable.snapshot.clone();
        let fails = self.rng_chance(0.05);
        match stored {
            Some(Snapshot { mark, image }) if !fails => self.step(id, Event::SnapshotLoaded { mark, image }),
            Some(_) | None => self.step(id, Event::SnapshotNotLoaded { mark }),
        }
    }

    /// Removes what a node holds of the group; it will be another replica, if it comes back.
    pub(super) fn forget(&mut self, id: NodeId) -> Result<(), Violation> {
        self.end(id, false)?;
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        node.store = Store::default();
        (node.is_founder, node.is_retired) = (false, true);
        Ok(())
    }

    /// Highest index a node has applied.
    pub(super) fn applied_at(&self, id: NodeId) -> RaftIndex {
        self.nodes[&id].process.as_ref().map_or(RaftIndex::ZERO, |process| process.group.applied())
    }
}

fn brief(action: &Action) -> String {
    match action {
        Action::Persist(persist) => format!(
            "persists {} {:?}, {} entries from {:?}, snapshot {:?}",
            persist.id.0,
            persist.hard_state,
            persist.entries.len(),
            persist.entries.first().map(|entry| entry.index.0),
            persist.snapshot.as_ref().map(|snapshot| snapshot.mark),
        ),
        Action::Send { to, message } => format!("to {:x} {:?}", to.0, message),
        Action::Restore { mark, .. } => format!("restores {mark:?}"),
        other => format!("{other:?}"),
    }
}
