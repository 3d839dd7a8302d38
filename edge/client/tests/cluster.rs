//! Nodes and the ring, against a scripted broker.

#![cfg(feature = "tcp")]
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

extern crate malachi_client as client;

mod fake;

use client::{Client, Error, NodeChange, NodeId, Reason, VnodeId, VnodeInfo};
use fake::Fake;

async fn connect(fake: &Fake) -> Client {
    Client::connect(&fake.address, "user", "password").await.unwrap()
}

fn vnode(number: u32) -> VnodeInfo {
    VnodeInfo {
        vnode: VnodeId(number.into()),
        token: number,
        places: 1,
        members: vec![NodeId(1)],
        leader: None,
        topics: 0,
    }
}

#[tokio::test]
async fn all_nodes_and_all_vnodes_are_put_together_from_pages() {
    let fake = Fake::start();
    fake.with(|state| {
        (1..=1024).for_each(|number| state.cluster.add(number, "n", None));
        state.cluster.ring = (0..4096).map(vnode).collect();
    });
    let client = connect(&fake).await;
    let status = client.cluster().await.unwrap();
    assert_eq!((status.nodes.len(), status.more, status.vnodes), (1024, false, 4096));
    assert!(status.nodes.is_sorted_by(|a, b| a.node < b.node));
    let some = client.cluster_status(Some(NodeId(1020)), 3).await.unwrap();
    assert_eq!((some.nodes.len(), some.more), (3, true));
    let ring = client.ring().await.unwrap();
    assert_eq!((ring.vnodes.len(), ring.more), (4096, false));
    assert!(ring.vnodes.is_sorted_by(|a, b| a.token < b.token));
}

#[tokio::test]
async fn a_ring_that_changes_between_its_pages_is_read_anew() {
    let fake = Fake::start();
    fake.with(|state| {
        state.cluster.add(1, "n1", None);
        state.cluster.ring = (0..2500).map(vnode).collect();
        state.cluster.restless = 3;
    });
    let ring = connect(&fake).await.ring().await.unwrap();
    assert_eq!((ring.vnodes.len(), ring.version), (2500, 3));
    assert!(ring.vnodes.is_sorted_by(|a, b| a.token < b.token), "no vnode twice");
}

#[tokio::test]
async fn nodes_are_changed_and_refusals_have_their_reasons() {
    let fake = Fake::start();
    fake.with(|state| {
        state.cluster.add(1, "n1", None);
        state.cluster.ring = vec![vnode(0)];
    });
    let client = connect(&fake).await;
    let tried = client.change_node(NodeId(1), NodeChange::Remove, true).await.unwrap();
    assert_eq!((tried.refusal.as_deref(), tried.vnode_count), (Some(&b"node_not_drained"[..]), 3));
    let refused = client.change_node(NodeId(1), NodeChange::Remove, false).await;
    assert!(matches!(refused, Err(Error::Refused(Reason::NodeNotDrained))));
    let refused = client.change_node(NodeId(2), NodeChange::Drain, false).await;
    assert!(matches!(refused, Err(Error::Refused(Reason::NoSuchNode))));
    let plan = client.reshard(4, true).await.unwrap();
    assert_eq!((plan.from, plan.to, plan.step_count), (1, 4, 3));
}
