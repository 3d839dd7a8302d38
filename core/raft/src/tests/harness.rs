//! A member with its storage, and a group of such members with a network between them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use types::{NodeId, RaftIndex};

use crate::*;

/// A member and what its storage would hold after a power loss now.
pub(super) struct Node {
    pub(super) config: Config,
    pub(super) group: Group,
    pub(super) stored: Recovered,
    /// The stored snapshot's image.
    pub(super) image: Bytes,
    /// Asked for and not durable yet.
    pub(super) writing: VecDeque<Persist>,
    /// Messages it sent.
    pub(super) sent: VecDeque<(NodeId, Message)>,
    /// Everything else it asked for.
    pub(super) actions: Vec<Action>,
    /// The snapshot that was asked for last.
    pub(super) ordered: Option<Snapshot>,
    /// Commands applied, from the snapshot on.
    pub(super) machine: Vec<Bytes>,
}

impl Node {
    pub(super) fn new(config: Config, stored: Recovered) -> Self {
        Self::with_image(config, stored, Bytes::new())
    }

    fn with_image(config: Config, stored: Recovered, image: Bytes) -> Self {
        let machine = if image.is_empty() { Vec::new() } else { decode_machine(&image) };
        Self {
            group: Group::new(config.clone(), stored.clone()).unwrap(),
            config,
            stored,
            image,
            writing: VecDeque::new(),
            sent: VecDeque::new(),
            actions: Vec::new(),
            ordered: None,
            machine,
        }
    }

    pub(super) fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.group.step(event, &mut out);
        for action in out {
            match action {
                Action::Persist(persist) => self.writing.push_back(persist),
                Action::Send { to, message } => {
                    // As it would be after its way through the network.
                    assert_eq!(Message::decode(message.encode()), Ok(message.clone()));
                    self.sent.push_back((to, message));
                }
                other => {
                    self.act(&other);
                    self.actions.push(other);
                }
            }
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Apply { entry, .. } => self.machine.push(entry.data.clone()),
            Action::Restore { state, .. } => self.machine = decode_state(state),
            Action::TakeSnapshot(order) => {
                let image = order.image(&encode_state(&self.machine));
                self.ordered = Some(Snapshot { mark: order.mark, image });
            }
            Action::Persist(_)
            | Action::Send { .. }
            | Action::MembersChanged { .. }
            | Action::Refused { .. }
            | Action::Unknown { .. }
            | Action::ReadReady { .. }
            | Action::ReadRefused { .. }
            | Action::LoadSnapshot { .. }
            | Action::RoleChanged { .. }
            | Action::Contradiction(_) => {}
        }
    }

    /// The oldest write becomes durable.
    pub(super) fn write_one(&mut self) {
        let persist = self.writing.pop_front().unwrap();
        self.store(&persist);
        self.step(Event::Persisted(persist.id));
    }

    pub(super) fn store(&mut self, persist: &Persist) {
        if let Some(snapshot) = &persist.snapshot {
            assert!(persist.entries.is_empty());
            self.save(snapshot.mark, snapshot.image.clone());
            self.stored.entries.clear();
        }
        self.stored.hard_state = persist.hard_state;
        if let Some(first) = persist.entries.first() {
            self.stored.entries.retain(|entry| entry.index < first.index);
        }
        self.stored.entries.extend(persist.entries.iter().cloned());
    }

    fn save(&mut self, mark: SnapshotMark, image: Bytes) {
        self.stored.snapshot = mark;
        self.stored.members = Image::decode(image.clone()).unwrap().members;
        self.stored.entries.retain(|entry| entry.index > mark.index);
        self.image = image;
    }

    pub(super) fn write_all(&mut self) {
        while !self.writing.is_empty() {
            self.write_one();
        }
    }

    /// The power went: only what is stored is left.
    pub(super) fn restarted(self) -> Self {
        Self::with_image(self.config, self.stored, self.image)
    }

    pub(super) fn propose(&mut self, id: u64, text: &'static str) {
        self.step(Event::Propose { id: ProposalId(id), data: Bytes::from_static(text.as_bytes()) });
    }

    /// Takes the snapshot that was asked for last.
    pub(super) fn save_snapshot(&mut self) {
        let Snapshot { mark, image } = self.ordered.take().unwrap();
        self.save(mark, image);
        self.step(Event::SnapshotSaved { index: mark.index });
    }

    /// Gives the stored snapshot when it was asked for.
    pub(super) fn load_snapshot(&mut self) {
        let is_load = |action: &Action| matches!(action, Action::LoadSnapshot { .. });
        if self.actions.iter().any(is_load) {
            self.actions.retain(|action| !is_load(action));
            self.step(Event::SnapshotLoaded { mark: self.stored.snapshot, image: self.image.clone() });
        }
    }

    pub(super) fn texts(&self) -> Vec<&str> {
        self.machine.iter().map(|data| std::str::from_utf8(data).unwrap()).collect()
    }

    /// Commands it applied and whose proposals they were.
    pub(super) fn applied(&self) -> Vec<(&str, Option<u64>)> {
        let applied = |action: &Action| match action {
            Action::Apply { entry, proposal } => {
                let text = String::from_utf8(entry.data.to_vec()).unwrap();
                Some((&*text.leak(), proposal.map(|id| id.0)))
            }
            _ => None,
        };
        self.actions.iter().filter_map(applied).collect()
    }
}

/// A machine is the list of its commands.
pub(super) fn encode_state(machine: &[Bytes]) -> Vec<u8> {
    machine.join(&b'\n')
}

fn decode_state(state: &[u8]) -> Vec<Bytes> {
    if state.is_empty() {
        return Vec::new();
    }
    state.split(|byte| *byte == b'\n').map(Bytes::copy_from_slice).collect()
}

fn decode_machine(image: &Bytes) -> Vec<Bytes> {
    decode_state(&Image::decode(image.clone()).unwrap().state)
}

/// Members that hear from each other.
pub(super) struct Cluster {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    /// Nodes nobody hears from, and that hear from nobody.
    pub(super) cut_off: Vec<NodeId>,
}

pub(super) fn node(number: u128) -> NodeId {
    NodeId(number)
}

pub(super) fn settings(number: u128) -> Config {
    Config {
        seed: 7 * number as u64,
        snapshot_bytes: 1000,
        snapshot_entries: 1000,
        part_bytes: 100,
        ..Config::joining(node(number))
    }
}

impl Cluster {
    /// A new group of so many.
    pub(super) fn founded(count: u128) -> Self {
        let voters: Vec<NodeId> = (1..=count).map(node).collect();
        let config = |number| Config { voters: voters.clone(), ..settings(number) };
        let member = |number| (node(number), Node::new(config(number), Recovered::default()));
        let mut cluster = Self { nodes: (1..=count).map(member).collect(), cut_off: Vec::new() };
        for member in cluster.nodes.values_mut() {
            member.step(Event::Start);
        }
        cluster.settle();
        cluster
    }

    /// One of so many leads.
    pub(super) fn led(count: u128) -> (Self, NodeId) {
        let mut cluster = Self::founded(count);
        let leader = cluster.elect();
        (cluster, leader)
    }

    pub(super) fn at(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    /// Everything is written and delivered until nobody has anything to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut idle = true;
            for id in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.at(id).write_all();
                self.at(id).load_snapshot();
                while let Some((to, message)) = self.at(id).sent.pop_front() {
                    idle = false;
                    self.deliver(id, to, message);
                }
            }
            if idle && self.nodes.values().all(|node| node.writing.is_empty()) {
                return;
            }
        }
        panic!("the group never comes to rest");
    }

    pub(super) fn deliver(&mut self, from: NodeId, to: NodeId, message: Message) {
        let lost = self.cut_off.contains(&from) || self.cut_off.contains(&to);
        if let Some(node) = self.nodes.get_mut(&to)
            && !lost
        {
            node.step(Event::Receive(message));
        }
    }

    pub(super) fn tick(&mut self) {
        for node in self.nodes.values_mut() {
            node.step(Event::Tick);
        }
        self.settle();
    }

    pub(super) fn ticks(&mut self, count: u32) {
        (0..count).for_each(|_| self.tick());
    }

    /// Time goes on until somebody who is heard of leads and is ready.
    pub(super) fn elect(&mut self) -> NodeId {
        for _ in 0..500 {
            self.tick();
            if let Some(leader) = self.leader() {
                return leader;
            }
        }
        panic!("nobody is elected");
    }

    /// Time goes on until somebody who is heard of leads, ready or not.
    pub(super) fn elect_any(&mut self) -> NodeId {
        for _ in 0..500 {
            for node in self.nodes.values_mut() {
                node.step(Event::Tick);
            }
            for _ in 0..50 {
                let ids: Vec<_> = self.nodes.keys().copied().collect();
                for id in ids {
                    self.at(id).write_all();
                    for (to, message) in std::mem::take(&mut self.at(id).sent) {
                        self.deliver(id, to, message);
                    }
                    if self.at(id).group.role() == Role::Leader && !self.cut_off.contains(&id) {
                        return id;
                    }
                }
            }
        }
        panic!("nobody is elected");
    }

    pub(super) fn leader(&self) -> Option<NodeId> {
        let leads = |id: &NodeId, node: &Node| node.group.is_ready() && !self.cut_off.contains(id);
        let leaders = self.nodes.iter().filter(|(id, node)| leads(id, node));
        leaders.max_by_key(|(_, node)| node.group.term()).map(|(id, _)| *id)
    }

    pub(super) fn others(&self, than: NodeId) -> Vec<NodeId> {
        self.nodes.keys().copied().filter(|id| *id != than).collect()
    }

    /// The power of one node goes and comes back.
    pub(super) fn restart(&mut self, id: NodeId) {
        let node = self.nodes.remove(&id).unwrap();
        self.nodes.insert(id, node.restarted());
        self.at(id).step(Event::Start);
    }

    pub(super) fn propose(&mut self, at: NodeId, id: u64, text: &'static str) {
        self.at(at).propose(id, text);
        self.settle();
    }

    pub(super) fn reconfigure(&mut self, at: NodeId, id: u64, change: Change) {
        self.at(at).step(Event::Reconfigure { id: ProposalId(id), change });
        self.settle();
    }

    /// A node that was added joins as the replica that it was added as.
    pub(super) fn join(&mut self, number: u128, leader: NodeId) {
        let (replica, _) = self.at(leader).group.members().of_node(node(number)).unwrap();
        let config = Config { replica: Some(replica), ..settings(number) };
        let mut member = Node::new(config, Recovered::default());
        member.step(Event::Start);
        self.nodes.insert(node(number), member);
        self.ticks(10);
    }

    /// Every member that is heard of has applied the same.
    #[track_caller]
    pub(super) fn agree_on(&mut self, texts: &[&str]) {
        self.ticks(5);
        for (id, node) in self.nodes.iter().filter(|(id, _)| !self.cut_off.contains(id)) {
            assert_eq!(node.texts(), texts, "node {id}");
        }
    }
}

/// Whether an action answers the proposal, and how.
pub(super) fn outcome(actions: &[Action], id: u64) -> Option<Action> {
    let of = |action: &&Action| match action {
        Action::Apply { proposal, .. } | Action::MembersChanged { proposal, .. } => {
            *proposal == Some(ProposalId(id))
        }
        Action::Refused { id: of, .. } | Action::Unknown { id: of } => of.0 == id,
        _ => false,
    };
    let found: Vec<_> = actions.iter().filter(of).collect();
    assert!(found.len() <= 1, "one outcome: {found:?}");
    found.first().map(|action| (*action).clone())
}

pub(super) fn index(index: u64) -> RaftIndex {
    RaftIndex(index)
}
