//! Messages on their way: late, lost, twice, in another order, or held by a link that is cut until it heals.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use raft::{Event, Message, ReplicaId};
use rand::Rng;
use types::NodeId;

use super::world::{Happening, World};
use crate::invariants::Violation;

/// How the network behaves now.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Links that carry nothing, each for one direction.
    pub(super) cut: BTreeSet<(NodeId, NodeId)>,
    /// What cut links hold; the others lose it.
    held: Vec<(NodeId, NodeId, Bytes)>,
    pub(super) holds: bool,
    pub(super) loss: f64,
    pub(super) twice: f64,
    /// Longest delay, microseconds.
    pub(super) delay: u64,
    /// A stray message takes this long.
    pub(super) stray: u64,
    /// Messages of a link arrive in order.
    pub(super) in_order: bool,
    last: BTreeMap<(NodeId, NodeId), u64>,
}

impl World {
    pub(super) fn transmit(&mut self, from: NodeId, to: NodeId, bytes: Bytes) {
        if self.network.cut.contains(&(from, to)) {
            if self.network.holds && self.network.held.len() < 2000 {
                self.network.held.push((from, to, bytes));
            }
            return;
        }
        if self.chaos.random_bool(self.network.loss) {
            return;
        }
        let copies = if self.chaos.random_bool(self.network.twice) { 2 } else { 1 };
        for _ in 0..copies {
            self.on_its_way(from, to, bytes.clone());
        }
    }

    fn on_its_way(&mut self, from: NodeId, to: NodeId, bytes: Bytes) {
        let mut delay = self.chaos.random_range(100..=self.network.delay.max(200));
        if self.network.stray > 0 && self.chaos.random_bool(0.01) {
            delay += self.chaos.random_range(0..self.network.stray);
        }
        let mut at = self.now + delay;
        if self.network.in_order {
            let last = self.network.last.entry((from, to)).or_default();
            at = at.max(*last + 1);
            *last = at;
        }
        self.at(at, Happening::Deliver(from, to, bytes));
    }

    /// Links carry again, and bring what they held.
    pub(super) fn heal_links(&mut self) {
        self.network.cut.clear();
        for (from, to, bytes) in std::mem::take(&mut self.network.held) {
            self.on_its_way(from, to, bytes);
        }
    }

    pub(super) fn deliver(&mut self, from: NodeId, to: NodeId, bytes: Bytes) -> Result<(), Violation> {
        let node = &self.nodes[&to];
        if self.now < node.paused_until {
            let at = node.paused_until;
            self.at(at, Happening::Deliver(from, to, bytes));
            return Ok(());
        }
        let message = Message::decode(bytes)
            .map_err(|error| Violation::new("CODEC", format!("a message of node {from}: {error}")))?;
        self.summary.messages += 1;
        self.host(to, message.to)?;
        self.step(to, Event::Receive(message))
    }

    /// A node that hears for the first time that it is a replica becomes it, and forgets what it was before.
    fn host(&mut self, id: NodeId, replica: ReplicaId) -> Result<(), Violation> {
        let node = &self.nodes[&id];
        let is_new = node.replica.is_none_or(|known| replica > known);
        let is_down = node.process.is_none() && self.is_down.contains(&id);
        if !is_new || is_down {
            return Ok(());
        }
        // A founder that has not started yet is not told by others who it is.
        if node.replica.is_none() && node.is_founder {
            return Ok(());
        }
        self.say(|| format!("node {id} is replica {} now", replica.0));
        self.forget(id)?;
        let node = self.nodes.get_mut(&id).expect("nodes are never removed");
        node.replica = Some(replica);
        (node.is_lost, node.is_retired) = (false, false);
        self.boot(id)
    }
}
