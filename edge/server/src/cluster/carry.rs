//! Carries what happens on the connections to the core, at the core's pace.

use std::collections::BTreeSet;

use tokio::sync::{mpsc, watch};
use types::{ControlPlaneId, NodeId};

use super::{End, meet};
use crate::driver::FromPeers;
use crate::peer::PeerEvent;

/// Events handed to the core in one piece.
const EVENTS_AT_ONCE: usize = 64;

/// Carries until the connections or the core are gone. `met` is told since when another node is connected.
pub(super) async fn run(
    mut events: mpsc::Receiver<PeerEvent>,
    control_plane: ControlPlaneId,
    core: mpsc::Sender<FromPeers>,
    met: watch::Sender<Option<tokio::time::Instant>>,
    end: End,
) {
    let mut admitted = Admitted { control_plane, nodes: BTreeSet::new() };
    let mut arrived = Vec::new();
    while events.recv_many(&mut arrived, EVENTS_AT_ONCE).await > 0 {
        let mut judged = Vec::with_capacity(arrived.len());
        for event in arrived.drain(..) {
            if let Some(refusal) = meet::duplicate(&event) {
                end.now(refusal);
                continue;
            }
            judged.extend(admitted.judge(event));
            let is_met = !admitted.nodes.is_empty();
            met.send_if_modified(|since| {
                let now = is_met.then(|| since.unwrap_or_else(tokio::time::Instant::now));
                std::mem::replace(since, now) != now
            });
        }
        if !judged.is_empty() && core.send(FromPeers::Events(judged)).await.is_err() {
            return;
        }
    }
}

/// The nodes the core was told of.
struct Admitted {
    control_plane: ControlPlaneId,
    nodes: BTreeSet<NodeId>,
}

impl Admitted {
    /// What of it is for the core. A connection that was made before this node belonged to its cluster ends soon, and
    /// nothing that comes by it counts.
    fn judge(&mut self, event: PeerEvent) -> Option<PeerEvent> {
        let counts = match &event {
            PeerEvent::Up { node, peer } => {
                let own = Some(self.control_plane);
                let belongs = peer.claim.control_plane.is_none() || peer.claim.control_plane == own;
                belongs && self.nodes.insert(*node)
            }
            PeerEvent::Down { node, .. } => self.nodes.remove(node),
            PeerEvent::Message { node, .. }
            | PeerEvent::Asked { node, .. }
            | PeerEvent::Answered { node, .. }
            | PeerEvent::Failed { node, .. } => self.nodes.contains(node),
            PeerEvent::Cancelled { .. } => true,
            PeerEvent::Refused { .. } => false,
        };
        counts.then_some(event)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use peer::{Claim, Message, Peer};
    use types::Incarnation;

    use super::*;

    #[test]
    fn only_nodes_of_the_cluster_or_of_none_are_told_of() {
        let mut admitted = Admitted { control_plane: ControlPlaneId(1), nodes: BTreeSet::new() };
        let up = |node, control_plane: Option<u128>| {
            let claim = Claim {
                control_plane: control_plane.map(ControlPlaneId),
                node: NodeId(node),
                incarnation: Incarnation(1),
                features: 0,
                name: "n".to_owned(),
                build: String::new(),
                address: String::new(),
            };
            PeerEvent::Up { node: NodeId(node), peer: Peer { claim, version: 1 } }
        };
        let says = |node| PeerEvent::Message { node: NodeId(node), message: Message::Raft(Vec::new()) };
        let down = |node| PeerEvent::Down { node: NodeId(node), why: String::new() };
        for (event, counts) in [
            (says(2), false),
            (down(2), false),
            (up(2, Some(1)), true),
            (up(3, None), true),
            (up(4, Some(9)), false),
            (says(2), true),
            (says(4), false),
            (down(4), false),
            (down(2), true),
            (says(2), false),
        ] {
            assert_eq!(admitted.judge(event.clone()).is_some(), counts, "{event:?}");
        }
    }
}
