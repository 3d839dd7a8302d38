//! What nodes tell each other about their groups.
//!
//! Owns who may say what for which replica, and reminding replicas that left that they may forget. Messages wait in
//! one pile for each node until [`Host::take_mail`], heartbeats of all groups in as few letters as there can be; any of
//! them may be lost.

use std::collections::BTreeMap;

use bytes::Bytes;
use raft::{Members, Message, ReplicaId, Role};
use types::{NodeId, VnodeId};

use super::{Host, Slot, Stage};
use crate::action::Action;
use crate::beats::{BEATS_MAX, Beat};
use crate::letter::Letter;

/// A replica that left is told so every so many ticks.
const REMIND_TICKS: u32 = 10;
/// And so often. One that comes back later is told when it speaks.
const REMINDERS: u32 = 20;

/// What waits to be sent to one node.
#[derive(Debug, Default)]
pub(super) struct Pile {
    /// In the order they were written.
    letters: Vec<(VnodeId, Bytes)>,
    beats: Vec<Beat>,
}

impl Pile {
    /// All of it. A heartbeat may overtake what its group said before, as it may in the network.
    fn into_letters(self, own: NodeId) -> Vec<(VnodeId, Bytes)> {
        let Self { mut letters, beats } = self;
        for beats in beats.chunks(BEATS_MAX) {
            let letter = match beats {
                [alone] => Letter::Message(alone.message(own)),
                several => Letter::Beats(several.to_vec()),
            };
            letters.push((beats[0].group, letter.encode()));
        }
        letters
    }
}

/// Replicas that left, as their leader saw it.
#[derive(Debug, Default)]
pub(super) struct Departed {
    members: BTreeMap<ReplicaId, NodeId>,
    gone: BTreeMap<ReplicaId, (NodeId, u32)>,
    ticks: u32,
}

impl Departed {
    /// Nobody has left since these were the members.
    pub(super) fn since(members: &Members) -> Self {
        Self { members: by_replica(members), ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty()
    }
}

fn by_replica(members: &Members) -> BTreeMap<ReplicaId, NodeId> {
    members.iter().map(|(member, _)| (member.replica, member.node)).collect()
}

impl Host {
    /// Everything that waits to be sent: for each node, groups and letters in the order they were written. The group
    /// beside a letter about several is one of them.
    pub fn take_mail(&mut self) -> impl Iterator<Item = (NodeId, Vec<(VnodeId, Bytes)>)> + use<> {
        let own = self.config.node;
        let piles = std::mem::take(&mut self.outbox).into_iter();
        piles.map(move |(to, pile)| (to, pile.into_letters(own)))
    }

    pub(super) fn post(&mut self, to: NodeId, group: VnodeId, letter: &Letter) {
        self.outbox.entry(to).or_default().letters.push((group, letter.encode()));
    }

    pub(super) fn post_message(&mut self, to: NodeId, group: VnodeId, message: Message) {
        match Beat::of(group, &message) {
            Some(beat) => self.outbox.entry(to).or_default().beats.push(beat),
            None => self.post(to, group, &Letter::Message(message)),
        }
    }

    /// A letter of a node whose identity is proven. What does not decode, or speaks for another node, changes nothing;
    /// `false` then.
    pub fn receive(&mut self, from: NodeId, group: VnodeId, letter: Bytes) -> bool {
        match Letter::decode(letter) {
            // Which replicas there are is not known yet: a letter to one of them looks like one to a new one.
            Ok(_) if !self.is_listed => true,
            Ok(Letter::Message(message)) if message.from.node == from => {
                self.receive_message(group, message);
                true
            }
            Ok(Letter::Beats(beats)) => {
                for beat in beats {
                    self.receive_message(beat.group, beat.message(from));
                }
                true
            }
            Ok(Letter::Forget(replica)) => {
                self.leave(group, replica);
                true
            }
            Ok(Letter::Asking(replica)) => {
                if self.group(group).is_some_and(|group| group.may_forget(replica)) {
                    self.post(from, group, &Letter::Forget(replica));
                }
                true
            }
            Ok(Letter::Lost(replica)) => {
                self.member_lost(from, group, replica);
                true
            }
            Ok(Letter::Message(_)) | Err(_) => false,
        }
    }

    /// Asks other nodes about every replica here that hears no leader, or is lost: it may have left while nobody could
    /// tell it, and those it knew may have left too. For now and then, with every node there is.
    pub fn ask_around(&mut self, nodes: &[NodeId]) {
        let hears_nobody = |slot: &Slot| match &slot.stage {
            Stage::Running(running) => !running.hears_leader(),
            Stage::Lost => true,
            Stage::Preparing | Stage::Found(_) => false,
        };
        let lonely = self.slots.iter().filter(|(_, slot)| hears_nobody(slot));
        let lonely: Vec<_> = lonely.map(|(group, slot)| (*group, slot.replica)).collect();
        for (group, replica) in lonely {
            for node in nodes {
                if *node != self.config.node {
                    self.post(*node, group, &Letter::Asking(replica));
                }
            }
        }
    }

    fn receive_message(&mut self, group: VnodeId, message: Message) {
        let Some(slot) = self.slots.get(&group) else { return self.join(group, message.to) };
        if message.to > slot.replica {
            return self.join(group, message.to);
        }
        if message.to < slot.replica {
            return;
        }
        let from = message.from;
        let running = match &slot.stage {
            Stage::Running(running) => running,
            Stage::Lost => return self.post(from.node, group, &Letter::Lost(message.to)),
            Stage::Preparing | Stage::Found(_) => return,
        };
        if running.may_forget(from.replica) {
            self.post(from.node, group, &Letter::Forget(from.replica));
        }
        self.step(group, raft::Event::Receive(message));
    }

    /// A member says so itself; only a leader can do something about it.
    fn member_lost(&mut self, node: NodeId, group: VnodeId, replica: ReplicaId) {
        let Some(running) = self.group(group).filter(|running| running.role() == Role::Leader) else {
            return;
        };
        if running.members().iter().any(|(member, _)| (member.replica, member.node) == (replica, node)) {
            self.tell(Action::MemberLost { group, node });
        }
    }

    /// The connection to a node broke: what was last sent there may be lost.
    pub fn unreachable(&mut self, node: NodeId) {
        self.outbox.remove(&node);
        for group in self.running() {
            let is_member = |(member, _): (raft::Member, _)| member.node == node;
            if self.group(group).is_some_and(|group| group.members().iter().any(is_member)) {
                self.step(group, raft::Event::Unreachable(node));
            }
        }
    }

    pub(super) fn note_departures(&mut self, group: VnodeId, members: &Members) {
        let Some(slot) = self.slots.get_mut(&group) else { return };
        let before = std::mem::replace(&mut slot.departed.members, by_replica(members));
        for (replica, node) in before {
            if !slot.departed.members.contains_key(&replica) {
                slot.departed.gone.insert(replica, (node, 0));
            }
        }
    }

    /// A leader tells those that left.
    pub(super) fn remind_departed(&mut self, group: VnodeId) {
        let Some(slot) = self.slots.get_mut(&group) else { return };
        let Stage::Running(running) = &slot.stage else { return };
        let departed = &mut slot.departed;
        if departed.gone.is_empty() {
            return;
        }
        if running.role() != Role::Leader {
            departed.gone.clear();
            return;
        }
        departed.ticks += 1;
        if departed.ticks % REMIND_TICKS != 1 {
            return;
        }
        let mut told = Vec::new();
        departed.gone.retain(|replica, (node, reminders)| {
            if running.may_forget(*replica) {
                *reminders += 1;
                told.push((*node, *replica));
            }
            *reminders < REMINDERS
        });
        for (node, replica) in told {
            self.post(node, group, &Letter::Forget(replica));
        }
    }
}
