//! Nodes that go and rings that grow, as a shell sees it, against scripted brokers.

#![allow(clippy::unwrap_used)]

mod shell;

use shell::fake::Fake;
use shell::{refused, said};
use types::{NodeId, VnodeId};
use wire::response::VnodeInfo;

fn vnode(number: u32) -> VnodeInfo {
    VnodeInfo {
        vnode: VnodeId(number.into()),
        token: number << 30,
        places: 1 << 30,
        members: vec![NodeId(2), NodeId(1)],
        leader: Some(NodeId(2)),
        topics: number,
    }
}

/// Two nodes and three vnodes.
fn two_nodes() -> Fake {
    let fake = Fake::start();
    fake.with(|state| {
        state.cluster.add(1, "n1", None);
        state.cluster.add(2, "n2", None);
        state.cluster.ring = (0..3).map(vnode).collect();
    });
    fake
}

#[test]
fn a_drain_is_waited_for_and_a_drained_node_removed() {
    let fake = two_nodes();
    let error = refused(&fake, &["cluster", "remove", "n2"]);
    assert!(
        error.starts_with("Error: node_not_drained\nRun `malachi cluster drain NODE --wait` first."),
        "{error}"
    );
    let drained = said(&fake, &["cluster", "drain", "n2", "--wait"]);
    assert_eq!(
        drained,
        "draining \"n2\", which is a member of 3 vnode(s) (0, 1, 2), and of the cluster group, and has no segment\n\
         left: 2 vnode(s) and the cluster group\n\
         left: 1 vnode(s) and the cluster group\n\
         drained \"n2\": it is a member of no group\n"
    );
    let id = NodeId(2).to_string();
    let tried = said(&fake, &["cluster", "remove", &id, "--dry-run"]);
    assert_eq!(tried, "would remove \"n2\", which is a member of no vnode, and has no segment\n");
    assert!(said(&fake, &["cluster", "remove", &id]).starts_with("removed \"n2\""));
    assert!(refused(&fake, &["cluster", "drain", "n2"]).contains("no node \"n2\"; it has n1"));
}

#[test]
fn a_drain_can_be_taken_back_and_a_lost_node_forced_out() {
    let fake = two_nodes();
    said(&fake, &["cluster", "drain", "n2"]);
    assert!(said(&fake, &["cluster", "undrain", "n2"]).starts_with("active again: \"n2\""));
    let status = said(&fake, &["cluster", "status"]);
    assert!(status.lines().any(|line| line.starts_with("n2\tactive\talive\tyes\t")), "{status}");
    assert!(said(&fake, &["cluster", "remove", "n2", "--force"]).starts_with("removed \"n2\""));
}

#[test]
fn the_ring_shows_who_has_which_share() {
    let fake = two_nodes();
    assert_eq!(
        said(&fake, &["ring"]),
        "0\t0\t25.000\tn2,n1\tn2\t0\n1\t1073741824\t25.000\tn2,n1\tn2\t1\n2\t2147483648\t25.000\tn2,n1\tn2\t2\n"
    );
}

#[test]
fn a_ring_grows_step_by_step_at_whoever_changes_it() {
    let leader = two_nodes();
    let fake = two_nodes();
    let address = leader.address.clone();
    fake.with(|state| {
        state.cluster.leader = Some(NodeId(2));
        state.cluster.nodes[1].client = Some(address.into());
    });
    let plan = said(&fake, &["reshard", "--to", "5", "--dry-run"]);
    assert_eq!(plan, "3 to 5 vnodes in 2 step(s)\nsplit 0 into 3 at 3\nand 1 more\n");
    let done = said(&fake, &["reshard", "--to", "5"]);
    assert_eq!(done, "4 vnodes, 5 are wanted\nresharded: the ring now has 5 vnodes\n");
    assert_eq!(said(&fake, &["reshard", "--to", "5", "--json"]), "{\"vnodes\":5}\n");
    assert_eq!(leader.with(|state| state.cluster.ring.len()), 5);
    assert_eq!(fake.with(|state| state.cluster.ring.len()), 3, "the node that was asked first only said who");
}

#[test]
fn a_ring_nobody_changes_is_said_to_be_so() {
    let fake = two_nodes();
    fake.with(|state| state.cluster.leader = Some(NodeId(9)));
    let error = refused(&fake, &["reshard", "--to", "5"]);
    assert!(error.starts_with("Error: not_lease_holder\nNo node is known to lead"), "{error}");
}
