//! Datagrams on their way: late, lost, twice, in another order, or nowhere.

use std::collections::BTreeSet;

use bytes::Bytes;
use membership::{Address, Event};
use rand::Rng;
use types::NodeId;

use super::attacker::Captured;
use super::world::{Happening, World};
use crate::invariants::Violation;

/// A socket's buffer, packets.
const SOCKET: usize = 300;

/// How the network behaves now.
#[derive(Debug, Default)]
pub(super) struct Network {
    /// Links that carry nothing, each for one direction.
    pub(super) cut: BTreeSet<(NodeId, NodeId)>,
    pub(super) loss: f64,
    pub(super) twice: f64,
    /// Longest delay, microseconds.
    pub(super) delay: u64,
    /// A stray packet takes this long.
    pub(super) stray: u64,
}

impl World {
    pub(super) fn transmit(&mut self, from: NodeId, to: Address, bytes: Bytes) {
        let receiver = self.nodes.values().find(|node| node.address == to).map(|node| node.id);
        if receiver.is_some_and(|to| self.network.cut.contains(&(from, to))) {
            return;
        }
        if self.chaos.random_bool(self.network.loss) {
            return;
        }
        let copies = if self.chaos.random_bool(self.network.twice) { 2 } else { 1 };
        for _ in 0..copies {
            let mut delay = self.chaos.random_range(100..=self.network.delay.max(200));
            if self.network.stray > 0 && self.chaos.random_bool(0.01) {
                delay += self.chaos.random_range(0..self.network.stray);
            }
            self.later(delay, Happening::Deliver(to.clone(), bytes.clone()));
        }
    }

    pub(super) fn deliver(&mut self, to: Address, bytes: Bytes) -> Result<(), Violation> {
        // Whoever has the address now.
        let Some(node) = self.nodes.values_mut().find(|node| node.address == to) else { return Ok(()) };
        if node.process.is_none() {
            return Ok(());
        }
        if self.now < node.paused_until {
            if node.waiting < SOCKET {
                node.waiting += 1;
                let at = node.paused_until;
                self.at(at, Happening::Deliver(to, bytes));
            }
            return Ok(());
        }
        node.waiting = 0;
        let (id, life) = (node.id, node.life);
        self.summary.packets += 1;
        self.note(bytes.len() as u64 ^ id.0 as u64);
        self.capture(Captured { to: id, life, bytes: bytes.clone() });
        self.step(id, Event::Packet(bytes))
    }
}
