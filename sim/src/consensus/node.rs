//! One node: its disk, and the process that hosts its replicas while it runs.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use consensus::{Action, Config, Host, Stop};
use raft::{Change, EntryId, ProposalId, ReadId, Role};
use rand::Rng;
use storage::disk::Disk;
use storage::raft_log;
use types::{NodeId, RaftIndex, Term, VnodeId};

use super::world::{Happening, World};
use crate::disk::{Faults, SimDisk};
use crate::invariants::{Violation, ensure};
use crate::raft::judge::CommandId;
use crate::raft::machine::Machine;

/// What a proposal was for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Proposed {
    Command(CommandId),
    Change(Change),
}

/// What a process has of one group.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) machine: Machine,
    pub(super) proposals: BTreeMap<ProposalId, Proposed>,
    /// What each read must see at least.
    pub(super) reads: BTreeMap<ReadId, u64>,
}

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) host: Host,
    pub(super) is_listed: bool,
    /// It takes no more writes.
    pub(super) has_failed: bool,
    pub(super) parts: BTreeMap<VnodeId, Part>,
    /// Groups whose machines may have changed since they were compared.
    touched: BTreeSet<VnodeId>,
    disk_runs: bool,
    ticks: u64,
}

/// A node. Its disk outlives its processes.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    /// Counts processes, so that what was meant for an earlier one is known.
    pub(super) life: u64,
    pub(super) disk: SimDisk,
    pub(super) process: Option<Process>,
    /// The process does nothing until then.
    pub(super) paused_until: u64,
    tick_micros: u64,
    /// Bits were flipped, and no process has started since.
    pub(super) is_rotten: bool,
    /// The disk was told to fail.
    pub(super) is_faulty: bool,
}

impl Node {
    pub(super) fn new(id: NodeId, seed: u64, tick_micros: u64) -> Self {
        Self {
            id,
            life: 0,
            disk: SimDisk::new(seed, Faults::none()),
            process: None,
            paused_until: 0,
            tick_micros,
            is_rotten: false,
            is_faulty: false,
        }
    }

    pub(super) fn leads(&self, group: VnodeId) -> bool {
        let host = self.process.as_ref().map(|process| &process.host);
        host.and_then(|host| host.group(group)).is_some_and(|group| group.role() == Role::Leader)
    }

    pub(super) fn is_ready(&self, group: VnodeId) -> bool {
        let host = self.process.as_ref().map(|process| &process.host);
        host.and_then(|host| host.group(group)).is_some_and(raft::Group::is_ready)
    }

    /// Highest index the node has applied in a group.
    pub(super) fn applied(&self, group: VnodeId) -> Option<RaftIndex> {
        Some(self.process.as_ref()?.host.group(group)?.applied())
    }
}

impl World {
    pub(super) fn host_config(&self, id: NodeId) -> Config {
        let life = self.nodes[&id].life;
        let seed = self.seed.rotate_left(17) ^ (id.0 as u64) ^ (life << 32);
        let log = raft_log::Config {
            file_bytes: self.log_file_bytes,
            files_max: 3,
            move_bytes_max: 4096,
            seed,
            ..raft_log::Config::default()
        };
        Config {
            snapshot_entries: self.snapshot_entries,
            snapshot_bytes: self.snapshot_bytes,
            log,
            bug: self.options.bug,
            ..Config::new(id, seed)
        }
    }

    /// Starts a node's process.
    pub(super) fn boot(&mut self, id: NodeId) -> Result<(), Violation> {
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        if node.process.is_some() {
            return Ok(());
        }
        node.life += 1;
        let (life, tick_micros) = (node.life, node.tick_micros);
        let mut host = Host::new(self.host_config(id));
        host.start();
        let process = Process {
            host,
            is_listed: false,
            has_failed: false,
            parts: BTreeMap::new(),
            touched: BTreeSet::new(),
            disk_runs: false,
            ticks: 0,
        };
        self.node(id).process = Some(process);
        self.summary.lives += 1;
        self.say(|| format!("node {id} starts"));
        self.later(tick_micros, Happening::Tick(id, life));
        self.settle(id)
    }

    pub(super) fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("somebody has just looked at it")
    }

    /// Ends a node's process.
    pub(super) fn end(&mut self, id: NodeId, with_power: bool) {
        let node = self.node(id);
        let ended = node.process.take();
        // What failed before may have been told of only now.
        node.is_faulty = false;
        if with_power {
            node.disk.crash()
        } else {
            node.disk.kill()
        }
        let Some(process) = ended else { return };
        self.say(|| format!("node {id} ends, power {with_power}"));
        // Nobody will hear of what it was asked.
        self.summary.unknown += process.parts.values().map(|part| part.proposals.len() as u64).sum::<u64>();
    }

    pub(super) fn process(&mut self, id: NodeId) -> &mut Process {
        self.node(id).process.as_mut().expect("it has just acted")
    }

    fn part(&mut self, id: NodeId, group: VnodeId) -> Result<&mut Part, Violation> {
        let part = self.process(id).parts.get_mut(&group);
        part.ok_or_else(|| {
            Violation::new("HOST", format!("node {id} acts for {group}, which it never found"))
        })
    }

    pub(super) fn ticked(&mut self, id: NodeId, life: u64) -> Result<(), Violation> {
        let tick_micros = self.nodes[&id].tick_micros;
        self.later(tick_micros, Happening::Tick(id, life));
        let process = self.process(id);
        process.ticks += 1;
        if process.is_listed {
            process.host.tick();
            if process.ticks.is_multiple_of(3) {
                process.host.mark();
            }
        }
        self.settle(id)
    }

    /// One more step of the disk, and whatever it completes.
    pub(super) fn step_disk(&mut self, id: NodeId, life: u64) -> Result<(), Violation> {
        let node = self.node(id);
        let took = node.disk.step();
        let completion = node.disk.ready();
        let process = self.process(id);
        match (took, completion) {
            (None, None) => process.disk_runs = false,
            (took, completion) => {
                if let Some(completion) = completion {
                    process.host.complete(completion);
                }
                let micros = took.map_or(1, |took| took.as_micros() as u64).max(1);
                self.later(micros, Happening::Disk(id, life));
            }
        }
        self.settle(id)
    }

    /// Does what the host of a node asks for.
    pub(super) fn settle(&mut self, id: NodeId) -> Result<(), Violation> {
        while let Some(process) = self.nodes.get_mut(&id).and_then(|node| node.process.as_mut()) {
            let Some(action) = process.host.next_action() else { break };
            self.act(id, action)?;
        }
        self.send_mail(id)?;
        let Some(process) = self.nodes.get_mut(&id).and_then(|node| node.process.as_mut()) else {
            return Ok(());
        };
        for group in std::mem::take(&mut process.touched) {
            let (Some(state), Some(part)) = (process.host.group(group), process.parts.get(&group)) else {
                continue;
            };
            if state.role() != Role::Stopped
                && let Some(known) = self.groups.get(&group)
            {
                known.judge.check_state(id, state.applied(), part.machine)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, id: NodeId, action: Action) -> Result<(), Violation> {
        if !matches!(action, Action::Disk(_)) {
            self.say(|| format!("node {id} {action:?}"));
        }
        match action {
            Action::Disk(job) => {
                let node = self.node(id);
                node.disk.submit(job);
                let life = node.life;
                if !std::mem::replace(&mut self.process(id).disk_runs, true) {
                    self.later(1, Happening::Disk(id, life));
                }
                Ok(())
            }
            Action::Listed => {
                self.process(id).is_listed = true;
                self.node(id).is_rotten = false;
                self.found_late(id);
                Ok(())
            }
            Action::Found { group, state, is_blank } => self.is_found(id, group, state, is_blank),
            Action::Lost { group, .. } => self.is_lost(id, group),
            // The driver of this world learns of it from the disk.
            Action::MemberLost { .. } => Ok(()),
            Action::Left { group } => {
                self.summary.left += 1;
                self.lost.remove(&(id, group));
                self.answered_all(id, group)?;
                let members = self.groups.get(&group).and_then(|known| known.judge.members());
                self.replicas.left(id, group, members)
            }
            Action::Apply { group, entry, proposal } => self.apply(id, group, entry, proposal),
            Action::Restore { group, index, state } => {
                self.summary.installed += 1;
                let machine = Machine::decode(&state);
                self.part(id, group)?.machine = machine;
                self.known(group).judge.check_state(id, index, machine)
            }
            Action::TakeSnapshot { group, order } => {
                let state = self.part(id, group)?.machine.encode();
                let fails = !self.healing && self.chaos.random_bool(0.05);
                let host = &mut self.process(id).host;
                if fails {
                    host.not_saved(group, &order)
                } else {
                    host.save(group, &order, &state)
                }
                Ok(())
            }
            Action::MembersChanged { group, index, members, proposal } => {
                let host = &self.process(id).host;
                let term = host.stored_term(group, index);
                let now = host.group(group).map(raft::Group::term).unwrap_or_default();
                let term = term.ok_or_else(|| Violation::new("AGREEMENT", "an entry that is not stored"))?;
                let at = EntryId { index, term };
                if self.known(group).judge.members_changed(id, now, at, &members)? {
                    self.summary.changes += 1;
                }
                self.note(index.0);
                proposal.map_or(Ok(()), |proposal| self.answered(id, group, proposal).map(|_| ()))
            }
            Action::RoleChanged { group, role, term } => self.role_changed(id, group, role, term),
            Action::Refused { group, id: proposal, reason } => {
                self.note(proposal.0);
                match self.answered(id, group, proposal)? {
                    Proposed::Command(command) => self.known(group).judge.refused(command),
                    Proposed::Change(change) => {
                        self.say(|| format!("{change:?} is refused: {reason}"));
                        Ok(())
                    }
                }
            }
            Action::Unknown { group, id: proposal } => {
                self.summary.unknown += 1;
                let known = self.part(id, group)?.proposals.remove(&proposal);
                ensure(known.is_some(), "OUTCOME", || format!("{proposal:?} has two outcomes"))
            }
            Action::ReadReady { group, id: read } => {
                let part = self.part(id, group)?;
                let (floor, seen) = (part.reads.remove(&read), part.machine.count);
                let floor = floor.ok_or_else(|| twice(&read))?;
                self.summary.reads += 1;
                self.note(seen);
                self.known(group).judge.read_ends(id, floor, seen)
            }
            Action::ReadRefused { group, id: read, .. } => {
                let known = self.part(id, group)?.reads.remove(&read);
                known.map(|_| ()).ok_or_else(|| twice(&read))
            }
            Action::Contradiction { group, what } => Err(Violation::new(
                "CONTRADICTION",
                format!("node {id}, which lost nothing of {group}: {what}"),
            )),
            Action::Failed { detail } => {
                ensure(self.nodes[&id].is_faulty, "STORAGE", || {
                    format!("the log of node {id} fails on a healthy disk: {detail}")
                })?;
                self.process(id).has_failed = true;
                self.restart_later(id);
                Ok(())
            }
            Action::Stop(stop) => self.stopped(id, &stop),
            Action::Notice(_) => Ok(()),
        }
    }

    fn restart_later(&mut self, id: NodeId) {
        let life = self.nodes[&id].life;
        let delay = self.chaos.random_range(100_000..3_000_000);
        self.later(delay, Happening::Restart(id, life));
    }

    fn stopped(&mut self, id: NodeId, stop: &Stop) -> Result<(), Violation> {
        let node = &self.nodes[&id];
        let is_expected = match stop {
            Stop::Unreadable(_) => node.is_faulty,
            Stop::LaterFormat(_) | Stop::Damaged(_) => node.is_rotten,
        };
        ensure(is_expected, "RECOVERY", || format!("node {id} does not start: {stop}"))?;
        match stop {
            Stop::Unreadable(_) => self.restart_later(id),
            Stop::LaterFormat(_) | Stop::Damaged(_) => self.replace_node(id),
        }
        Ok(())
    }

    fn is_found(
        &mut self,
        id: NodeId,
        group: VnodeId,
        state: Option<Bytes>,
        is_blank: bool,
    ) -> Result<(), Violation> {
        self.answered_all(id, group)?;
        self.lost.remove(&(id, group));
        let host = &self.process(id).host;
        let replica = host.replica(group);
        let replica =
            replica.ok_or_else(|| Violation::new("HOST", format!("{group} is found and not there")))?;
        let view = host.stored(group);
        ensure(!is_blank || state.is_none(), "HOST", || format!("{group} is blank and has a state"))?;
        self.replicas.found(id, group, replica, view)?;
        let machine = state.as_ref().map(Machine::decode).unwrap_or_default();
        self.process(id).parts.insert(group, Part { machine, ..Part::default() });
        let delay = if self.chaos.random_bool(0.3) { self.chaos.random_range(1..60_000) } else { 0 };
        let life = self.nodes[&id].life;
        self.later(delay, Happening::Begin(id, life, group));
        Ok(())
    }

    pub(super) fn begin(&mut self, id: NodeId, group: VnodeId) -> Result<(), Violation> {
        self.process(id).host.begin(group);
        let founded = self.process(id).host.group(group).filter(|group| group.applied() == RaftIndex(1));
        if let Some(members) = founded.map(|group| group.members().clone()) {
            self.known(group).judge.founded(&members)?;
        }
        self.settle(id)
    }

    fn is_lost(&mut self, id: NodeId, group: VnodeId) -> Result<(), Violation> {
        self.answered_all(id, group)?;
        let node = &self.nodes[&id];
        // What cannot be read is not there, until somebody restarts the node.
        let is_expected = node.is_rotten || node.is_faulty || self.lost.contains(&(id, group));
        ensure(is_expected, "RECOVERY", || format!("node {id} lost {group}, and nothing was damaged"))?;
        if self.lost.insert((id, group)) {
            self.summary.lost += 1;
        }
        self.note(group.0);
        Ok(())
    }

    /// Nobody waits any more for a replica that is none.
    fn answered_all(&mut self, id: NodeId, group: VnodeId) -> Result<(), Violation> {
        let part = self.process(id).parts.remove(&group).unwrap_or_default();
        ensure(part.proposals.is_empty() && part.reads.is_empty(), "OUTCOME", || {
            format!("node {id} drops {group} and leaves {:?} {:?}", part.proposals, part.reads)
        })
    }

    fn apply(
        &mut self,
        id: NodeId,
        group: VnodeId,
        entry: raft::Entry,
        proposal: Option<ProposalId>,
    ) -> Result<(), Violation> {
        let bytes = entry.data.get(..8).and_then(|bytes| bytes.try_into().ok());
        let command = bytes.map(u64::from_be_bytes).map(CommandId);
        let command = command.ok_or_else(|| Violation::new("AGREEMENT", format!("an unknown {entry:?}")))?;
        let now = self.process(id).host.group(group).map(raft::Group::term).unwrap_or_default();
        let at = EntryId { index: entry.index, term: entry.term };
        self.known(group).judge.applied(id, now, at, command)?;
        self.part(id, group)?.machine.apply(command);
        self.process(id).touched.insert(group);
        self.note(entry.index.0 ^ command.0.rotate_left(32));
        let Some(proposal) = proposal else { return Ok(()) };
        match self.answered(id, group, proposal)? {
            Proposed::Command(proposed) => {
                ensure(proposed == command, "OUTCOME", || {
                    format!("{proposed:?} is told of as {command:?} at {}", entry.index)
                })?;
                self.summary.acknowledged += 1;
                let known = self.known(group);
                // A leader of a later term that commits knows what earlier ones left; the rest will never be.
                known.changing.retain(|_, asked| *asked >= entry.term);
                known.judge.acknowledged(command)
            }
            Proposed::Change(change) => {
                Err(Violation::new("OUTCOME", format!("{change:?} is told of as {command:?}")))
            }
        }
    }

    /// A proposal has its one outcome.
    fn answered(&mut self, id: NodeId, group: VnodeId, proposal: ProposalId) -> Result<Proposed, Violation> {
        let known = self.part(id, group)?.proposals.remove(&proposal);
        self.known(group).changing.remove(&proposal.0);
        known.ok_or_else(|| twice(&proposal))
    }

    fn role_changed(&mut self, id: NodeId, group: VnodeId, role: Role, term: Term) -> Result<(), Violation> {
        self.note(term.0 << 8 | role as u64);
        if role != Role::Leader {
            return Ok(());
        }
        self.summary.elections += 1;
        let node = self.nodes.get(&id).expect("it has just acted");
        let (life, host) = (node.life, node.process.as_ref().map(|process| &process.host));
        let host = host.expect("it has just acted");
        let snapshot = host.stored(group).map_or(RaftIndex::ZERO, |view| view.snapshot.index);
        let known = self.groups.entry(group).or_default();
        known.judge.leads(id, life, term, snapshot, |index| host.stored_term(group, index))
    }
}

fn twice(what: &impl std::fmt::Debug) -> Violation {
    Violation::new("OUTCOME", format!("{what:?} has two outcomes, or was never asked for"))
}
