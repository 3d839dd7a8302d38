//! Somebody on the network who has no key: forges, damages, and sends again what was sent.

use bytes::{Bytes, BytesMut};
use membership::{Action, Event, Tally};
use rand::Rng;
use types::{Instant, NodeId};

use super::world::{Happening, World};
use crate::invariants::{Violation, ensure};

/// Packets the attacker remembers.
const MEMORY: usize = 200;
/// Kind of a packet that carries news: what only tells a node of its double has no number, and changes nothing twice.
const NEWS: u8 = 1;

/// A packet that was delivered.
#[derive(Clone, Debug)]
pub(super) struct Captured {
    pub(super) to: NodeId,
    pub(super) life: u64,
    pub(super) bytes: Bytes,
}

impl World {
    pub(super) fn capture(&mut self, packet: Captured) {
        if self.captured.len() < MEMORY {
            self.captured.push(packet);
        } else if self.chaos.random_bool(0.05) {
            let at = self.chaos.random_range(0..MEMORY);
            self.captured[at] = packet;
        }
    }

    pub(super) fn attack(&mut self) -> Result<(), Violation> {
        if self.healing {
            return Ok(());
        }
        let next = self.chaos.random_range(5_000..400_000);
        self.later(next, Happening::Attack);
        if self.captured.is_empty() {
            return Ok(());
        }
        self.summary.attacks += 1;
        let at = self.chaos.random_range(0..self.captured.len());
        let packet = self.captured[at].clone();
        match self.chaos.random_range(0..4) {
            0 | 1 => self.replay(&packet),
            2 => {
                let forged = self.damage(&packet.bytes);
                self.forge(packet.to, forged)
            }
            _ => {
                // To somebody it was not meant for, or a later life of it: it may say something new there, and nothing
                // that is not true.
                let victim = self.somebody();
                self.inject(victim, packet.bytes)
            }
        }
    }

    /// A packet with a bit, a byte or its end changed.
    fn damage(&mut self, bytes: &Bytes) -> Bytes {
        let mut forged = BytesMut::from(&bytes[..]);
        let at = self.chaos.random_range(0..forged.len());
        match self.chaos.random_range(0..4) {
            0 => forged[at] ^= 1 << self.chaos.random_range(0..8),
            1 => forged.truncate(at),
            2 => forged.extend_from_slice(&[0; 7]),
            // Beyond magic, version, kind and control plane, and all of it.
            _ => {
                let from = at.max(20).min(forged.len() - 1);
                for byte in &mut forged[from..] {
                    *byte = self.chaos.random();
                }
            }
        }
        if forged[..] == bytes[..] {
            forged.extend_from_slice(b"x");
        }
        forged.freeze()
    }

    /// Gives a packet to a process that runs; what it does about it is seen to as always.
    fn inject(&mut self, to: NodeId, bytes: Bytes) -> Result<(), Violation> {
        if self.can_hear(to) { self.step(to, Event::Packet(bytes)) } else { Ok(()) }
    }

    fn can_hear(&self, id: NodeId) -> bool {
        let node = &self.nodes[&id];
        node.process.is_some() && self.now >= node.paused_until
    }

    /// What a process received before changes nothing.
    fn replay(&mut self, packet: &Captured) -> Result<(), Violation> {
        if !self.can_hear(packet.to) || packet.bytes.get(3) != Some(&NEWS) {
            return Ok(());
        }
        if self.nodes[&packet.to].life != packet.life {
            return self.inject(packet.to, packet.bytes.clone());
        }
        let before = self.tally(packet.to);
        self.inject(packet.to, packet.bytes.clone())?;
        let after = self.tally(packet.to);
        ensure(before.received == after.received, "REPLAY", || {
            format!("node {} took a packet twice", packet.to)
        })
    }

    /// What was not made with the key changes nothing, and is counted.
    fn forge(&mut self, to: NodeId, bytes: Bytes) -> Result<(), Violation> {
        if !self.can_hear(to) {
            return Ok(());
        }
        let now = Instant(self.now);
        let node = self.nodes.get_mut(&to).expect("nodes are never removed");
        let process = node.process.as_mut().expect("it runs");
        let before: Vec<_> = process.members().collect();
        let tally = process.tally();
        let mut out = Vec::new();
        process.step(now, Event::Packet(bytes), &mut out);
        let after: Vec<_> = process.members().collect();
        let refused = |tally: Tally| tally.foreign + tally.other_control_plane + tally.wrong_key;
        let is_counted =
            refused(process.tally()) == refused(tally) + 1 && process.tally().received == tally.received;
        let is_quiet = out.iter().all(|action| matches!(action, Action::WakeAt(_)));
        for action in out {
            if let Action::WakeAt(at) = action {
                node.wake_at = Some(at);
                let life = node.life;
                self.at(at.0.max(now.0), Happening::Wake(to, life, at));
                break;
            }
        }
        ensure(is_quiet && is_counted && before == after, "FORGERY", || {
            format!("node {to} took a packet that was not made with the key")
        })
    }

    fn tally(&self, id: NodeId) -> Tally {
        self.nodes[&id].process.as_ref().map(membership::Membership::tally).unwrap_or_default()
    }
}
