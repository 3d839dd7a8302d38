//! Messages of members that arrive, and nodes that become replicas by one.

use bytes::Bytes;
use raft::{Event, Message, ReplicaId};
use types::NodeId;

use super::links::Arrival;
use super::world::{Happening, World};
use crate::invariants::Violation;

impl World {
    pub(super) fn transmit(&mut self, from: NodeId, to: NodeId, bytes: Bytes) {
        let arrivals = self.network.send(&mut self.chaos, self.now, (from, to), bytes);
        self.arrive(arrivals);
    }

    pub(super) fn arrive(&mut self, arrivals: Vec<Arrival<Bytes>>) {
        for Arrival { at, from, to, what } in arrivals {
            self.at(at, Happening::Deliver(from, to, what));
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
