//! What failure detection tells each node of the others: what the membership machine would say, without its packets.
//!
//! Every node looks for itself. Another that answers, directly or through a third, is alive; one that is silent for a
//! second and a half is suspect, and down four and a half seconds after that, whether or not it lives: a partition is
//! told as a death. Whoever was told to be down and answers again lives on as a later incarnation. The machine itself
//! is judged in the world of `membership`.

use broker::{Event, PeerEvent};
use membership::Status;
use rand::Rng;
use types::{Incarnation, NodeId};

use super::node::Node;
use super::world::{Happening, World};
use crate::invariants::Violation;

/// Incarnations of one process.
const RENEWALS_MAX: u64 = 1 << 20;
/// Without an answer until somebody is suspect, microseconds.
const SUSPECT_AFTER: u64 = 1_500_000;
/// And from then until it is down.
const DOWN_AFTER: u64 = 4_500_000;

/// What one process was told of another node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    incarnation: Incarnation,
    status: Status,
    answered: u64,
    suspected: u64,
}

/// The first incarnation of a process, which it announces.
pub(super) fn first_incarnation(life: u64) -> Incarnation {
    Incarnation(life * RENEWALS_MAX)
}

/// The process an incarnation is of.
pub(super) fn life_of(incarnation: Incarnation) -> u64 {
    incarnation.0 / RENEWALS_MAX
}

impl World {
    /// Every node that runs looks at the others, and again a little later.
    pub(super) fn detect(&mut self) -> Result<(), Violation> {
        let next = self.chaos.random_range(300_000..700_000);
        self.later(next, Happening::Detect);
        for id in self.ids() {
            let runs = |node: &Node| node.process.is_some() && node.paused_until <= self.now;
            if self.nodes.get(&id).is_some_and(runs) {
                self.look_for_others(id)?;
            }
        }
        Ok(())
    }

    fn look_for_others(&mut self, id: NodeId) -> Result<(), Violation> {
        let node = &self.nodes[&id];
        let Some(process) = &node.process else { return Ok(()) };
        let mut others: Vec<NodeId> =
            process.peers.iter().chain(&node.seeds).chain(process.heard.keys()).copied().collect();
        others.sort_unstable();
        others.dedup();
        for other in others {
            if other != id {
                self.look_for(id, other)?;
            }
        }
        Ok(())
    }

    fn look_for(&mut self, id: NodeId, other: NodeId) -> Result<(), Violation> {
        // On a bad network an answer gets lost now and then.
        let is_lost = self.network.links.stray > 0 && self.chaos.random_bool(0.3);
        let answers = !is_lost && self.answers(id, other);
        let now = self.now;
        let before = self.process(id).heard.get(&other).copied();
        let after = if answers {
            let incarnation = self.renewed(other, before);
            Heard { incarnation, status: Status::Alive, answered: now, suspected: 0 }
        } else {
            let Some(before) = before else { return Ok(()) };
            match before.status {
                Status::Alive if now - before.answered > SUSPECT_AFTER => {
                    Heard { status: Status::Suspect, suspected: now, ..before }
                }
                Status::Suspect if now - before.suspected > DOWN_AFTER => {
                    Heard { status: Status::Down, ..before }
                }
                Status::Alive | Status::Suspect | Status::Down => before,
            }
        };
        self.process(id).heard.insert(other, after);
        let told = |heard: Heard| (heard.incarnation, heard.status);
        if before.map(told) == Some(told(after)) {
            return Ok(());
        }
        let Heard { incarnation, status, .. } = after;
        self.say(|| format!("node {id} is told that {other} is {status:?} as {incarnation:?}"));
        self.step(id, Event::Peer(other, PeerEvent::Seen { incarnation, status }))
    }

    /// Whether a node answers another, be it through a third.
    fn answers(&self, id: NodeId, other: NodeId) -> bool {
        let runs = |id: &NodeId| {
            self.nodes.get(id).is_some_and(|node| node.process.is_some() && node.paused_until <= self.now)
        };
        let cut = &self.network.links.cut;
        let hear = |a: NodeId, b: NodeId| !cut.contains(&(a, b)) && !cut.contains(&(b, a));
        let through = |third: &NodeId| {
            *third != id && *third != other && runs(third) && hear(id, *third) && hear(*third, other)
        };
        runs(&other) && (hear(id, other) || self.nodes.keys().any(through))
    }

    /// The incarnation a node that answers lives as: a later one than any that was told to be down.
    fn renewed(&mut self, other: NodeId, before: Option<Heard>) -> Incarnation {
        let node = self.node(other);
        let first = first_incarnation(node.life);
        node.incarnation = node.incarnation.max(first);
        if let Some(Heard { incarnation, status: Status::Down, .. }) = before {
            node.incarnation = node.incarnation.max(Incarnation(incarnation.0 + 1));
        }
        node.incarnation
    }
}
