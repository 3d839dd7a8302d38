//! Which other nodes can be reached, and which are gone, as far as this node can tell.
//!
//! Owns what connections and failure detection say, and since when. Decides nothing: whoever acts on a death says so
//! itself, and how long it waits for the node to come back.
//!
//! ```text
//!                 a connection   none, and failure detection says
//!                                alive     suspect    down       nothing, had one   nothing, never had one
//! health          alive *        alive     suspect    dead       suspect            unknown
//! ```
//!
//! `*` suspect while failure detection doubts it: a connection takes its time to notice that nobody is there any more.
//!
//! - suspect is not dead, and neither is a node nobody has heard of since this process began;
//! - what was said of an earlier life says nothing of the present one;
//! - nobody is dead who has a connection.

use std::collections::BTreeMap;

use membership::Status;
use types::{Incarnation, Instant, NodeId, limits};

use crate::event::PeerEvent;

/// How a node is, as far as this one can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Health {
    /// It was heard of, and nobody doubts it.
    Alive,
    /// It was heard of and does not answer somebody.
    Suspect,
    /// Failure detection gave it up, and there is no connection either.
    Dead,
    /// Nothing was heard of it since this process began.
    Unknown,
}

/// What is known of one other node.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    is_up: bool,
    /// When its last connection ended.
    parted: Option<Instant>,
    /// What failure detection said last, of which life, and when.
    verdict: Option<(Incarnation, Status, Instant)>,
}

/// What this node knows of the others. Holds as many as the cluster may have.
#[derive(Debug)]
pub(crate) struct Liveness {
    own: NodeId,
    known: BTreeMap<NodeId, Known>,
    /// The nodes of the cluster with what each said of its own life last.
    listed: BTreeMap<NodeId, Incarnation>,
}

impl Liveness {
    /// A node that has heard of nobody.
    pub(crate) fn new(own: NodeId) -> Self {
        Self { own, known: BTreeMap::new(), listed: BTreeMap::new() }
    }

    /// Takes what an event says of a node.
    pub(crate) fn heard(&mut self, node: NodeId, event: &PeerEvent, now: Instant) {
        match event {
            PeerEvent::Up => {
                if let Some(known) = self.about(node) {
                    known.is_up = true;
                }
            }
            PeerEvent::Down => {
                if let Some(known) = self.about(node) {
                    known.is_up = false;
                    known.parted = Some(now);
                }
            }
            PeerEvent::Seen { incarnation, status } => {
                if let Some(known) = self.about(node)
                    && known.verdict.is_none_or(|(earlier, ..)| earlier <= *incarnation)
                {
                    known.verdict = Some((*incarnation, *status, now));
                }
            }
            PeerEvent::Said(_)
            | PeerEvent::Asked { .. }
            | PeerEvent::Answered { .. }
            | PeerEvent::Unanswered { .. } => {}
        }
    }

    /// `None` when there are more nodes than a cluster has.
    fn about(&mut self, node: NodeId) -> Option<&mut Known> {
        let has_room = self.known.len() < limits::NODES_MAX;
        if !has_room && !self.known.contains_key(&node) {
            return None;
        }
        Some(self.known.entry(node).or_default())
    }

    /// The nodes of the cluster are these now. Whoever was removed is forgotten.
    pub(crate) fn list(&mut self, nodes: impl Iterator<Item = (NodeId, Incarnation)>) {
        let before = std::mem::replace(&mut self.listed, nodes.collect());
        let removed = before.into_keys().filter(|node| !self.listed.contains_key(node));
        for node in removed {
            if self.known.get(&node).is_some_and(|known| !known.is_up) {
                self.known.remove(&node);
            }
        }
    }

    /// Whether there is a connection to it. None is needed to oneself.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        node == self.own || self.known.get(&node).is_some_and(|known| known.is_up)
    }

    /// Whether failure detection gave up its present life, and there is no connection either.
    pub(crate) fn is_dead(&self, node: NodeId) -> bool {
        self.health(node) == Health::Dead
    }

    /// Since when it has been dead without a break, as seen from here; `None` for one that is not.
    pub(crate) fn dead_since(&self, node: NodeId) -> Option<Instant> {
        let known = self.known.get(&node).filter(|_| self.is_dead(node))?;
        let (.., said) = known.verdict?;
        Some(known.parted.map_or(said, |parted| parted.max(said)))
    }

    /// Whether it may be given something new: there is a connection, and nobody doubts it.
    pub(crate) fn usable(&self, node: NodeId) -> bool {
        self.is_up(node) && self.health(node) == Health::Alive
    }

    /// See the table above.
    pub(crate) fn health(&self, node: NodeId) -> Health {
        if node == self.own {
            return Health::Alive;
        }
        let Some(known) = self.known.get(&node) else { return Health::Unknown };
        match self.verdict(node, known) {
            Some(Status::Alive) => Health::Alive,
            Some(Status::Down) if !known.is_up => Health::Dead,
            Some(Status::Suspect | Status::Down) => Health::Suspect,
            None if known.is_up => Health::Alive,
            None if known.parted.is_some() || known.verdict.is_some() => Health::Suspect,
            None => Health::Unknown,
        }
    }

    /// What failure detection says of the life that the node itself announced last, or of a later one.
    fn verdict(&self, node: NodeId, known: &Known) -> Option<Status> {
        let announced = self.listed.get(&node).copied().unwrap_or_default();
        known.verdict.filter(|(of, ..)| *of >= announced).map(|(_, status, _)| status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(7);

    fn seen(incarnation: u64, status: Status) -> PeerEvent {
        PeerEvent::Seen { incarnation: Incarnation(incarnation), status }
    }

    /// A node that has heard all of that, each a second after the one before it.
    fn heard(events: &[PeerEvent]) -> Liveness {
        let mut liveness = Liveness::new(OWN);
        for (event, at) in events.iter().zip(1..) {
            liveness.heard(OTHER, event, Instant(at * 1_000_000));
        }
        liveness
    }

    #[test]
    fn health_is_what_connections_and_failure_detection_say_together() {
        use PeerEvent::{Down, Up};
        let (alive, suspect, down) =
            (seen(3, Status::Alive), seen(3, Status::Suspect), seen(3, Status::Down));
        let table: [(&[PeerEvent], Health, bool); 9] = [
            (&[], Health::Unknown, false),
            (&[Up], Health::Alive, true),
            (&[Up, suspect.clone()], Health::Suspect, false),
            (&[Up, down.clone()], Health::Suspect, false),
            (&[Up, Down], Health::Suspect, false),
            (std::slice::from_ref(&alive), Health::Alive, false),
            (std::slice::from_ref(&suspect), Health::Suspect, false),
            (&[Up, down.clone(), Down], Health::Dead, false),
            (&[down.clone(), suspect.clone()], Health::Suspect, false),
        ];
        for (events, health, usable) in table {
            let liveness = heard(events);
            assert_eq!(liveness.health(OTHER), health, "{events:?}");
            assert_eq!(liveness.usable(OTHER), usable, "{events:?}");
            assert_eq!(liveness.is_dead(OTHER), health == Health::Dead, "{events:?}");
        }
        assert!(heard(&[]).usable(OWN) && heard(&[]).is_up(OWN));
    }

    #[test]
    fn a_node_is_dead_from_when_both_its_connection_and_failure_detection_gave_it_up() {
        let second = |at: u64| Some(Instant(at * 1_000_000));
        let down = seen(1, Status::Down);
        assert_eq!(heard(&[PeerEvent::Up, PeerEvent::Down, down.clone()]).dead_since(OTHER), second(3));
        assert_eq!(heard(&[PeerEvent::Up, down.clone(), PeerEvent::Down]).dead_since(OTHER), second(3));
        assert_eq!(heard(&[down.clone(), PeerEvent::Up]).dead_since(OTHER), None);
        assert_eq!(heard(&[down, PeerEvent::Up, PeerEvent::Down]).dead_since(OTHER), second(3));
    }

    #[test]
    fn the_end_of_an_earlier_life_is_not_that_of_the_present_one() {
        let mut liveness = heard(&[seen(4, Status::Down), seen(3, Status::Alive)]);
        assert!(liveness.is_dead(OTHER), "what is said of a life before that comes late");
        liveness.list([(OTHER, Incarnation(4))].into_iter());
        assert!(liveness.is_dead(OTHER));
        liveness.list([(OTHER, Incarnation(5))].into_iter());
        assert_eq!(liveness.health(OTHER), Health::Suspect);
        liveness.heard(OTHER, &seen(6, Status::Down), Instant(9));
        assert_eq!(liveness.dead_since(OTHER), Some(Instant(9)));
    }

    #[test]
    fn who_was_removed_is_forgotten_and_no_more_are_kept_than_a_cluster_has() {
        let mut liveness = heard(&[seen(1, Status::Down)]);
        liveness.list([(OTHER, Incarnation(1))].into_iter());
        liveness.list(std::iter::empty());
        assert_eq!(liveness.health(OTHER), Health::Unknown);
        for node in 0..=limits::NODES_MAX as u128 {
            liveness.heard(NodeId(100 + node), &PeerEvent::Up, Instant(1));
        }
        assert_eq!(liveness.known.len(), limits::NODES_MAX);
    }
}
