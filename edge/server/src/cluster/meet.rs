//! A first start: which cluster this node is of.
//!
//! A node that joins takes the cluster of the first node that has proved itself and belongs to one. The first of the
//! list forms one, but not before most of the list is there and nobody of those belongs to one: it may be that only
//! its own disk is new.

use std::collections::BTreeMap;

use peer::{Error, Refusal as PeerRefusal};
use tokio::sync::mpsc;
use types::{ControlPlaneId, NodeId};

use crate::boot::Refusal;
use crate::config::cluster::{Role, Seed};
use crate::peer::{Cause, PeerEvent};

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A node of this cluster.
    Cluster(ControlPlaneId),
    /// Nodes without one: this node forms it.
    Nobody,
}

/// Waits until it is clear.
pub(super) async fn decide(
    role: Role,
    others: &[Seed],
    events: &mut mpsc::Receiver<PeerEvent>,
) -> Result<Found, Refusal> {
    let mut met = BTreeMap::new();
    while let Some(event) = events.recv().await {
        if let Some(refusal) = duplicate(&event) {
            return Err(refusal);
        }
        if let Some(found) = judge(role, others, &mut met, event) {
            return Ok(found);
        }
    }
    Err(Refusal::Fix("the peer port closed".to_owned()))
}

fn judge(role: Role, others: &[Seed], met: &mut BTreeMap<NodeId, String>, event: PeerEvent) -> Option<Found> {
    match event {
        PeerEvent::Up { peer, .. } if peer.claim.control_plane.is_some() => {
            return peer.claim.control_plane.map(Found::Cluster);
        }
        PeerEvent::Up { node, peer } => {
            tracing::info!(%node, name = peer.claim.name, "met a node without a cluster");
            met.insert(node, peer.claim.name);
        }
        PeerEvent::Down { node, .. } => drop(met.remove(&node)),
        PeerEvent::Message { .. }
        | PeerEvent::Asked { .. }
        | PeerEvent::Cancelled { .. }
        | PeerEvent::Answered { .. }
        | PeerEvent::Failed { .. }
        | PeerEvent::Refused { .. } => {}
    }
    let there = others.iter().filter(|other| met.values().any(|name| *name == other.name)).count();
    let most = others.len().div_ceil(2) + 1;
    (role == Role::First && there + 1 >= most).then_some(Found::Nobody)
}

/// Whether another process of this very node was there first.
pub(super) fn duplicate(event: &PeerEvent) -> Option<Refusal> {
    let PeerEvent::Refused { address, cause } = event else { return None };
    let is_it = *cause == Cause::Protocol(Error::RefusedBy(PeerRefusal::Duplicate));
    is_it.then(|| {
        Refusal::Data(format!(
            "{address} is connected to another process of this node, so these data directories are copies or the \
             other's are; end one of the two, and start a new node with new directories"
        ))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use peer::{Claim, Peer};
    use types::Incarnation;

    use super::*;

    fn up(node: u128, name: &str, control_plane: Option<u128>) -> PeerEvent {
        let claim = Claim {
            control_plane: control_plane.map(ControlPlaneId),
            node: NodeId(node),
            incarnation: Incarnation(1),
            features: 0,
            name: name.to_owned(),
            build: String::new(),
            address: String::new(),
        };
        PeerEvent::Up { node: NodeId(node), peer: Peer { claim, version: 1 } }
    }

    fn list(names: &[&str]) -> Vec<Seed> {
        let seed = |name: &&str| Seed { name: (*name).to_owned(), address: format!("{name}:1") };
        names.iter().map(seed).collect()
    }

    #[test]
    fn the_first_forms_once_most_are_there_and_none_belongs_anywhere() {
        let others = list(&["b", "c"]);
        let mut met = BTreeMap::new();
        let mut told = |event| judge(Role::First, &others, &mut met, event);
        // A node that is not of the list has no say.
        assert_eq!(told(up(7, "x", None)), None);
        assert_eq!(told(up(2, "b", None)), Some(Found::Nobody));
        let mut met = BTreeMap::new();
        assert_eq!(
            judge(Role::First, &others, &mut met, up(2, "b", Some(5))),
            Some(Found::Cluster(ControlPlaneId(5))),
            "its disk is new, the cluster is not"
        );
        let five = list(&["b", "c", "d", "e"]);
        let mut told = |event| judge(Role::First, &five, &mut met, event);
        assert_eq!(told(up(2, "b", None)), None);
        assert_eq!(told(PeerEvent::Down { node: NodeId(2), why: String::new() }), None);
        assert_eq!(told(up(3, "c", None)), None);
        assert_eq!(told(up(2, "b", None)), Some(Found::Nobody));
    }

    #[test]
    fn whoever_joins_waits_for_a_cluster() {
        let others = list(&["a"]);
        let mut met = BTreeMap::new();
        let mut told = |event| judge(Role::Joins, &others, &mut met, event);
        assert_eq!(told(up(1, "a", None)), None);
        assert_eq!(told(up(1, "a", Some(3))), Some(Found::Cluster(ControlPlaneId(3))));
    }
}
