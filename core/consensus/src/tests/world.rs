//! Nodes with a host and a disk each, and letters between them that arrive at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use raft::{Change, ProposalId, ReadId, ReplicaId, Role};
use storage::disk::Job;
use types::{NodeId, VnodeId};

use super::disk::Memory;
use crate::{Action, Config, Host, Letter};

pub(super) const GROUP: VnodeId = VnodeId(7);

pub(super) fn node(number: u128) -> NodeId {
    NodeId(number << 64 | number)
}

pub(super) struct Node {
    pub(super) host: Host,
    pub(super) disk: Memory,
    jobs: VecDeque<Job>,
    /// Everything told since it was looked at, in words; what the disk must do is not among it.
    pub(super) told: Vec<String>,
    /// The texts each group's machine has seen.
    pub(super) machines: BTreeMap<VnodeId, Vec<String>>,
    /// What is begun by itself when it is found.
    pub(super) begins: bool,
}

pub(super) struct World {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    letters: VecDeque<(NodeId, NodeId, VnodeId, Bytes)>,
    /// Nodes nothing comes from or goes to.
    pub(super) away: BTreeSet<NodeId>,
    /// Nobody hears how much of a snapshot has arrived.
    pub(super) loses_part_replies: bool,
    numbers: u64,
    snapshot_entries: u64,
}

impl World {
    pub(super) fn new(count: u128) -> Self {
        Self::with_snapshots_after(count, 1_000_000)
    }

    pub(super) fn with_snapshots_after(count: u128, snapshot_entries: u64) -> Self {
        let mut world = Self {
            nodes: BTreeMap::new(),
            letters: VecDeque::new(),
            away: BTreeSet::new(),
            loses_part_replies: false,
            numbers: 0,
            snapshot_entries,
        };
        for number in 1..=count {
            world.start_on(node(number), Memory::default());
        }
        world.settle();
        world
    }

    fn start_on(&mut self, id: NodeId, disk: Memory) {
        self.numbers += 1;
        let config = Config { snapshot_entries: self.snapshot_entries, ..Config::new(id, self.numbers) };
        let log = storage::raft_log::Config { file_bytes: 4096, files_max: 3, ..config.log.clone() };
        let mut host = Host::new(Config { log, ..config });
        host.start();
        let (jobs, told, machines) = (VecDeque::new(), Vec::new(), BTreeMap::new());
        self.nodes.insert(id, Node { host, disk, jobs, told, machines, begins: true });
        self.drain(id);
    }

    /// The process ends and another starts; jobs that were not run are lost.
    pub(super) fn restart(&mut self, id: NodeId) {
        self.restart_unread(id);
        self.settle();
    }

    /// Somebody puts an older copy of a node's files back.
    pub(super) fn restart_from(&mut self, id: NodeId, mut older: Memory) {
        older.close();
        self.start_on(id, older);
        self.settle();
    }

    /// The same, and the disk has done nothing yet.
    pub(super) fn restart_unread(&mut self, id: NodeId) {
        let mut disk = self.nodes[&id].disk.clone();
        disk.close();
        self.start_on(id, disk);
    }

    pub(super) fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    /// Does something with a host and takes what comes of it, without running its disk.
    pub(super) fn ask(&mut self, id: NodeId, ask: impl FnOnce(&mut Host)) {
        ask(&mut self.node(id).host);
        self.drain(id);
    }

    pub(super) fn found(&mut self, ids: &[NodeId]) {
        for id in ids {
            self.ask(*id, |host| host.found_group(GROUP, ids));
        }
        self.settle();
        for _ in 0..100 {
            self.tick();
            if self.leader().is_some() {
                return;
            }
        }
        panic!("nobody leads");
    }

    fn drain(&mut self, id: NodeId) {
        while let Some(action) = self.node(id).host.next_action() {
            self.act(id, action);
        }
        let mail: Vec<_> = self.node(id).host.take_mail().collect();
        for (to, letters) in mail {
            self.letters.extend(letters.into_iter().map(|(group, letter)| (id, to, group, letter)));
        }
    }

    fn act(&mut self, id: NodeId, action: Action) {
        let node = self.node(id);
        match action {
            Action::Disk(job) => node.jobs.push_back(job),
            Action::Found { group, state, is_blank } => {
                let text = |state: Bytes| String::from_utf8(state.to_vec()).unwrap();
                let machine = state.map(text).unwrap_or_default();
                node.machines.insert(group, machine.split_terminator(' ').map(str::to_owned).collect());
                node.told.push(format!("found {group} blank {is_blank}"));
                if node.begins {
                    node.host.begin(group);
                }
            }
            Action::Apply { group, entry, proposal } => {
                let text = String::from_utf8(entry.data.to_vec()).unwrap();
                node.machines.get_mut(&group).unwrap().push(text);
                if let Some(proposal) = proposal {
                    node.told.push(format!("applied {}", proposal.0));
                }
            }
            Action::Restore { group, state, .. } => {
                let text = String::from_utf8(state.to_vec()).unwrap();
                node.machines.insert(group, text.split_terminator(' ').map(str::to_owned).collect());
                node.told.push(format!("restored {group}"));
            }
            Action::TakeSnapshot { group, order } => {
                let state: String = node.machines[&group].iter().map(|text| format!("{text} ")).collect();
                node.host.save(group, &order, state.as_bytes());
            }
            Action::MembersChanged { proposal: Some(proposal), .. } => {
                node.told.push(format!("changed {}", proposal.0));
            }
            Action::MembersChanged { .. } | Action::Notice(_) => {}
            Action::Listed => node.told.push("listed".to_owned()),
            Action::Left { group } => node.told.push(format!("left {group}")),
            Action::MemberLost { group, node: lost } => {
                node.told.push(format!("member lost {group} {}", lost.0))
            }
            Action::Lost { group, replica } => node.told.push(format!("lost {group} {}", replica.0)),
            Action::RoleChanged { role, .. } => node.told.push(format!("{role:?}")),
            Action::Refused { id, .. } => node.told.push(format!("refused {}", id.0)),
            Action::Unknown { id, .. } => node.told.push(format!("unknown {}", id.0)),
            Action::ReadReady { id, .. } => node.told.push(format!("read {}", id.0)),
            Action::ReadRefused { id, .. } => node.told.push(format!("read refused {}", id.0)),
            Action::Contradiction { what: raft::Contradiction::Lacking, .. } => {
                node.told.push("lacking".to_owned());
            }
            Action::Contradiction { what, .. } => panic!("{what}"),
            Action::Failed { .. } => node.told.push("failed".to_owned()),
            Action::Stop(stop) => node.told.push(format!("stop: {stop}")),
        }
    }

    /// Runs one job of a node's disk; `false` when there is none.
    pub(super) fn run_job(&mut self, id: NodeId) -> bool {
        let node = self.node(id);
        let Some(job) = node.jobs.pop_front() else { return false };
        let completion = node.disk.run(job);
        self.ask(id, |host| host.complete(completion));
        true
    }

    /// Runs everything that is on its way to the end.
    pub(super) fn settle(&mut self) {
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for _ in 0..100_000 {
            let mut worked = false;
            for id in &ids {
                worked |= self.run_job(*id);
            }
            if let Some((from, to, group, letter)) = self.letters.pop_front() {
                worked = true;
                let is_lost = self.loses_part_replies && is_part_reply(&letter);
                let arrives = !self.away.contains(&from) && !self.away.contains(&to) && !is_lost;
                if arrives && self.nodes.contains_key(&to) {
                    self.ask(to, |host| assert!(host.receive(from, group, letter)));
                }
            }
            if !worked {
                return;
            }
        }
        panic!("the nodes never come to rest");
    }

    pub(super) fn tick(&mut self) {
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.ask(id, Host::tick);
        }
        self.settle();
    }

    pub(super) fn ticks(&mut self, count: u32) {
        (0..count).for_each(|_| self.tick());
    }

    /// The node that leads in the latest term and can be asked.
    pub(super) fn leader(&self) -> Option<NodeId> {
        let leads = |(id, node): (&NodeId, &Node)| {
            let group = node.host.group(GROUP)?;
            (group.role() == Role::Leader && group.is_ready() && !self.away.contains(id))
                .then(|| (group.term(), *id))
        };
        self.nodes.iter().filter_map(leads).max().map(|(_, id)| id)
    }

    pub(super) fn lead(&mut self) -> NodeId {
        for _ in 0..200 {
            if let Some(leader) = self.leader() {
                return leader;
            }
            self.tick();
        }
        panic!("nobody leads");
    }

    pub(super) fn propose(&mut self, text: &str) -> u64 {
        let leader = self.lead();
        let id = self.propose_at(leader, text);
        self.settle();
        id
    }

    pub(super) fn propose_at(&mut self, id: NodeId, text: &str) -> u64 {
        self.numbers += 1;
        let (number, data) = (self.numbers, Bytes::from(text.to_owned()));
        self.ask(id, |host| host.propose(GROUP, ProposalId(number), data));
        number
    }

    pub(super) fn read_at(&mut self, id: NodeId) -> u64 {
        self.numbers += 1;
        let number = self.numbers;
        self.ask(id, |host| host.read(GROUP, ReadId(number)));
        number
    }

    /// Changes the members and waits until it is done.
    pub(super) fn change(&mut self, change: Change) {
        for _ in 0..50 {
            let leader = self.lead();
            self.numbers += 1;
            let number = self.numbers;
            self.ask(leader, |host| host.reconfigure(GROUP, ProposalId(number), change));
            self.settle();
            if self.node(leader).told.contains(&format!("changed {number}")) {
                return;
            }
            self.tick();
        }
        panic!("{change:?} does not happen");
    }

    pub(super) fn add(&mut self, id: NodeId) {
        self.change(Change::AddLearner(id));
        self.ticks(3);
        self.change(Change::Promote(id));
        self.ticks(3);
    }

    pub(super) fn tell(&mut self, from: NodeId, to: NodeId, group: VnodeId, letter: &Letter) -> bool {
        let mut is_taken = false;
        self.ask(to, |host| is_taken = host.receive(from, group, letter.encode()));
        is_taken
    }

    pub(super) fn texts(&self, id: NodeId) -> String {
        self.nodes[&id].machines.get(&GROUP).map(|texts| texts.join(" ")).unwrap_or_default()
    }

    pub(super) fn replica(&self, id: NodeId) -> Option<ReplicaId> {
        self.nodes[&id].host.replica(GROUP)
    }

    pub(super) fn has_told(&self, id: NodeId, what: &str) -> bool {
        self.nodes[&id].told.iter().any(|told| told == what)
    }

    /// How often it was told.
    pub(super) fn times_told(&self, id: NodeId, what: &str) -> usize {
        self.nodes[&id].told.iter().filter(|told| *told == what).count()
    }
}

fn is_part_reply(letter: &Bytes) -> bool {
    let letter = Letter::decode(letter.clone());
    matches!(letter, Ok(Letter::Message(raft::Message { body: raft::Body::PartReply { .. }, .. })))
}
