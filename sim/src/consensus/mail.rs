//! Piles of letters on their way.

use bytes::Bytes;
use consensus::Letter;
use types::{NodeId, VnodeId};

use super::world::{Happening, World};
use crate::invariants::{Violation, ensure};
use crate::raft::links::Arrival;

/// What one node has to say to another at one moment.
pub(super) type Pile = Vec<(VnodeId, Bytes)>;

impl World {
    /// Sends what a node has written. What it tells of is remembered: it must be found again.
    pub(super) fn send_mail(&mut self, id: NodeId) -> Result<(), Violation> {
        let Some(process) = self.nodes.get_mut(&id).and_then(|node| node.process.as_mut()) else {
            return Ok(());
        };
        let mail: Vec<(NodeId, Pile)> = process.host.take_mail().collect();
        for (to, pile) in mail {
            for (group, letter) in &pile {
                match Letter::decode(letter.clone()) {
                    Ok(Letter::Message(message)) => {
                        self.say(|| format!("node {id} to {to} of {group}: {message:?}"));
                        self.replicas.told(*group, &message);
                    }
                    Ok(Letter::Beats(beats)) => {
                        for beat in beats {
                            self.say(|| format!("node {id} to {to}: {beat:?}"));
                            self.replicas.told(beat.group, &beat.message(id));
                        }
                    }
                    Ok(letter) => self.say(|| format!("node {id} to {to} of {group}: {letter:?}")),
                    Err(error) => {
                        return Err(Violation::new("CODEC", format!("a letter of node {id}: {error}")));
                    }
                }
            }
            let arrivals = self.links.send(&mut self.chaos, self.now, (id, to), pile);
            self.arrive(arrivals);
        }
        Ok(())
    }

    pub(super) fn arrive(&mut self, arrivals: Vec<Arrival<Pile>>) {
        for Arrival { at, from, to, what } in arrivals {
            self.at(at, Happening::Deliver(from, to, what));
        }
    }

    pub(super) fn deliver(&mut self, from: NodeId, to: NodeId, pile: Pile) -> Result<(), Violation> {
        let Some(node) = self.nodes.get_mut(&to) else { return Ok(()) };
        if self.now < node.paused_until {
            let at = node.paused_until;
            self.at(at, Happening::Deliver(from, to, pile));
            return Ok(());
        }
        let Some(process) = node.process.as_mut().filter(|process| process.is_listed) else { return Ok(()) };
        self.summary.letters += pile.len() as u64;
        for (group, letter) in pile {
            let is_taken = process.host.receive(from, group, letter);
            ensure(is_taken, "CODEC", || format!("node {to} does not take a letter of node {from}"))?;
        }
        self.settle(to)
    }
}
