//! Which other nodes can be reached, and which are gone, as far as this node can tell.
//!
//! Owns what connections and failure detection say. Decides nothing: whoever acts on a death says so itself. A node
//! nobody has heard of since this process began is unknown, which is not dead.

use std::collections::BTreeSet;

use types::NodeId;

use crate::event::PeerEvent;

/// What this node knows of the others.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    up: BTreeSet<NodeId>,
    dead: BTreeSet<NodeId>,
}

impl Liveness {
    /// Takes what an event says of a node.
    pub(crate) fn heard(&mut self, node: NodeId, event: &PeerEvent) {
        match event {
            PeerEvent::Up => {
                self.up.insert(node);
                self.dead.remove(&node);
            }
            PeerEvent::Down => drop(self.up.remove(&node)),
            PeerEvent::Seen { status, .. } => match status {
                membership::Status::Down => drop(self.dead.insert(node)),
                membership::Status::Alive | membership::Status::Suspect => drop(self.dead.remove(&node)),
            },
            PeerEvent::Said(_)
            | PeerEvent::Asked { .. }
            | PeerEvent::Answered { .. }
            | PeerEvent::Unanswered { .. } => {}
        }
    }

    /// Whether there is a connection to it.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.up.contains(&node)
    }

    /// Whether failure detection gave it up and there is no connection either.
    pub(crate) fn is_dead(&self, node: NodeId) -> bool {
        self.dead.contains(&node) && !self.is_up(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_a_connection_is_dead_only_when_failure_detection_says_so() {
        let (mut liveness, node) = (Liveness::default(), NodeId(7));
        let seen = |status| PeerEvent::Seen { incarnation: types::Incarnation(1), status };
        assert!(!liveness.is_up(node) && !liveness.is_dead(node));
        liveness.heard(node, &PeerEvent::Up);
        liveness.heard(node, &seen(membership::Status::Down));
        assert!(liveness.is_up(node) && !liveness.is_dead(node));
        liveness.heard(node, &PeerEvent::Down);
        assert!(liveness.is_dead(node));
        liveness.heard(node, &seen(membership::Status::Suspect));
        assert!(!liveness.is_dead(node));
    }
}
