//! Nodes, the ring, the lease and the switches: commands one by one.

use super::*;
use types::{FenceToken, Incarnation, NodeId, VnodeId};

pub(super) const A: NodeId = NodeId(0xa);
pub(super) const B: NodeId = NodeId(0xb);
pub(super) const C: NodeId = NodeId(0xc);

pub(super) fn add(cluster: &Cluster, node: NodeId, name: &str) -> Command {
    let (name, peer, expected) = (bytes(name), bytes("h:1"), cluster.nodes_revision());
    Command::AddNode(AddNode { node, name, peer, expected })
}

pub(super) fn set(node: NodeId, incarnation: u64, flags: &[&str]) -> Command {
    let flags = flags.iter().map(|flag| bytes(flag)).collect();
    let attributes = vec![(bytes("rack"), bytes("r1"))];
    let (incarnation, peer, client) = (Incarnation(incarnation), bytes("[::1]:4043"), Some(bytes("h.x:9")));
    Command::SetNode(SetNode { node, incarnation, peer, client, attributes, flags })
}

fn change(cluster: &Cluster, node: NodeId) -> ChangeNode {
    ChangeNode { node, expected: cluster.nodes_revision() }
}

fn remove(cluster: &Cluster, node: NodeId, force: bool) -> Command {
    Command::RemoveNode { change: change(cluster, node), force }
}

pub(super) fn acquire(candidate: NodeId, at: u64) -> Command {
    Command::AcquireLease(AcquireLease { candidate, duration_ms: 10, at: WallTime(at), over: None })
}

/// The same by a node that has seen that renewal for long enough.
pub(super) fn take(candidate: NodeId, at: u64, over: (u64, u64)) -> Command {
    let over = Some(Renewal { fence: FenceToken(over.0), at: WallTime(over.1) });
    Command::AcquireLease(AcquireLease { candidate, duration_ms: 10, at: WallTime(at), over })
}

pub(super) fn act(expected: u64, fence: u64, act: RingAct) -> Command {
    Command::ChangeRing(ChangeRing { expected, fence: FenceToken(fence), act })
}

/// Runs a command that is worked out from the state.
fn with(cluster: &mut Cluster, command: impl FnOnce(&Cluster) -> Command) -> Reply {
    let command = command(cluster);
    run(cluster, &command)
}

/// Two active nodes, and a third that has not spoken.
fn three() -> Cluster {
    let mut cluster = Cluster::default();
    for (node, name) in [(A, "a@h"), (B, "b@h"), (C, "c@h")] {
        assert!(matches!(with(&mut cluster, |cluster| add(cluster, node, name)), Reply::NodesChanged(_)));
    }
    run(&mut cluster, &set(A, 5, &["f"]));
    run(&mut cluster, &set(B, 5, &["f"]));
    cluster
}

/// The same with a ring of one vnode and a lease that A holds under fence 1.
pub(super) fn seeded() -> Cluster {
    let mut cluster = three();
    let seed = Command::SeedRing { placements: vec![vec![A, B]] };
    assert_eq!(run(&mut cluster, &seed), Reply::RingChanged { version: 0 });
    assert_eq!(run(&mut cluster, &acquire(A, 100)), Reply::LeaseGranted(FenceToken(1)));
    cluster
}

fn state(cluster: &Cluster, node: NodeId) -> Option<NodeState> {
    cluster.node(node).map(|node| node.state)
}

#[test]
fn a_node_joins_speaks_drains_and_is_gone_for_good() {
    let mut cluster = three();
    assert_eq!((state(&cluster, A), state(&cluster, C)), (Some(NodeState::Active), Some(NodeState::Joining)));
    assert_eq!(cluster.nodes_revision(), NodesRevision(5), "three came, two spoke");
    let early = remove(&cluster, A, false);
    refused(&mut cluster, &early, Refusal::NotDrained);
    for _ in 0..2 {
        let drained = with(&mut cluster, |cluster| Command::DrainNode(change(cluster, A)));
        assert_eq!(drained, Reply::NodesChanged(NodesRevision(6)));
    }
    with(&mut cluster, |cluster| Command::UndrainNode(change(cluster, A)));
    assert_eq!(state(&cluster, A), Some(NodeState::Active));
    with(&mut cluster, |cluster| Command::DrainNode(change(cluster, A)));
    // What it says on its way out does not bring it back.
    run(&mut cluster, &set(A, 6, &[]));
    assert_eq!(state(&cluster, A), Some(NodeState::Draining));
    assert_eq!(with(&mut cluster, |c| remove(c, A, false)), Reply::NodesChanged(NodesRevision(9)));
    assert!(cluster.is_node_removed(A) && cluster.node(A).is_none());
    refused(&mut cluster, &set(A, 9, &[]), Refusal::NodeRemoved);
    let again = add(&cluster, A, "new");
    refused(&mut cluster, &again, Refusal::NodeRemoved);
    refused(&mut cluster, &acquire(A, 1), Refusal::NodeRemoved);
    // Its name is free, for whoever has another directory.
    assert!(matches!(with(&mut cluster, |c| add(c, NodeId(0xd), "a@h")), Reply::NodesChanged(_)));
}

#[test]
fn a_list_that_changed_refuses_what_was_worked_out_before() {
    let mut cluster = three();
    let (drain, late) = (Command::DrainNode(change(&cluster, A)), Command::DrainNode(change(&cluster, B)));
    run(&mut cluster, &drain);
    refused(&mut cluster, &late, Refusal::StaleRevision);
    let last = Command::DrainNode(change(&cluster, B));
    refused(&mut cluster, &last, Refusal::LastNode);
    let last = remove(&cluster, B, true);
    refused(&mut cluster, &last, Refusal::LastNode);
    // One that never spoke goes back to where it was.
    with(&mut cluster, |cluster| Command::DrainNode(change(cluster, C)));
    with(&mut cluster, |cluster| Command::UndrainNode(change(cluster, C)));
    assert_eq!(state(&cluster, C), Some(NodeState::Joining));
}

#[test]
fn what_is_no_node_is_refused() {
    let mut cluster = three();
    for name in ["", "a b", &"x".repeat(256), "n\u{e9}"] {
        let bad = add(&cluster, NodeId(9), name);
        refused(&mut cluster, &bad, Refusal::InvalidNode);
    }
    let same_id = add(&cluster, A, "z");
    refused(&mut cluster, &same_id, Refusal::NodeExists);
    let same_name = add(&cluster, NodeId(9), "a@h");
    refused(&mut cluster, &same_name, Refusal::NodeNameTaken);
    for good in ["h:1", "10.0.0.1:4043", "[2001:db8::1]:65535", "n.example.com:80"] {
        assert!(NodeAddress::new(good.as_bytes()).is_ok(), "{good}");
    }
    let long = format!("{}:1", "x".repeat(300));
    for bad in ["", "h", ":1", "h:", "h:0", "h:65536", "h:+1", "a b:1", "h/x:1", &long] {
        assert!(NodeAddress::new(bad.as_bytes()).is_err(), "{bad}");
    }
    let Command::SetNode(good) = set(A, 7, &[]) else { panic!() };
    let attribute = |key: &str, value: &str| vec![(bytes(key), bytes(value))];
    for attributes in [
        attribute("", "v"),
        attribute("k", "a\nb"),
        vec![(bytes("k"), bytes("v")); limits::NODE_ATTRIBUTES_MAX + 1],
    ] {
        let bad = Command::SetNode(SetNode { attributes, ..good.clone() });
        refused(&mut cluster, &bad, Refusal::InvalidNode);
    }
    let bad = Command::SetNode(SetNode { client: Some(bytes("x")), ..good.clone() });
    refused(&mut cluster, &bad, Refusal::InvalidNode);
    refused(&mut cluster, &set(A, 7, &["Not a flag"]), Refusal::InvalidFlag);
    refused(&mut cluster, &set(NodeId(9), 7, &[]), Refusal::NoSuchNode);
}

#[test]
fn an_earlier_life_of_a_node_is_not_heard() {
    let mut cluster = three();
    refused(&mut cluster, &set(A, 4, &[]), Refusal::StaleIncarnation);
    refused(&mut cluster, &set(C, 0, &[]), Refusal::StaleIncarnation);
    // The same life may have something new to say.
    assert_eq!(run(&mut cluster, &set(A, 5, &["g"])), Reply::NodesChanged(NodesRevision(5)));
    let node = cluster.node(A).unwrap();
    assert_eq!(
        (node.peer.as_str(), node.attributes.get("rack").map(|rack| &**rack)),
        ("[::1]:4043", Some("r1"))
    );
    assert!(node.flags.contains("g") && !node.flags.contains("f"));
}

#[test]
fn nodes_are_bounded() {
    let mut cluster = Cluster::default();
    for i in 0..limits::NODES_MAX {
        with(&mut cluster, |cluster| add(cluster, NodeId(i as u128), &format!("n{i}")));
    }
    let more = add(&cluster, NodeId(u128::MAX), "more");
    refused(&mut cluster, &more, Refusal::TooManyNodes);
    assert_eq!(Cluster::decode_snapshot(cluster.encode_snapshot()), Ok(cluster));
}

#[test]
fn the_lease_passes_on_when_it_is_over_or_given_back() {
    let mut cluster = three();
    let (granted, held) =
        (|fence| Reply::LeaseGranted(FenceToken(fence)), |holder| Reply::LeaseHeld { holder });
    let release = |candidate, fence| Command::ReleaseLease { candidate, fence: FenceToken(fence) };
    for (command, reply) in [
        (acquire(A, 100), granted(1)),
        // However late it is by a wall clock.
        (acquire(B, 1_000_000), held(A)),
        (acquire(A, 105), granted(1)),
        // A renewal that was followed by another, one under another fence, and one that there never was.
        (take(B, 200, (1, 100)), held(A)),
        (take(B, 200, (2, 105)), held(A)),
        (take(B, 200, (1, 106)), held(A)),
        (take(B, 200, (1, 105)), granted(2)),
        (acquire(A, 126), held(B)),
        // A clock that steps back, and one that stands still: each renewal is one of its own.
        (acquire(B, 50), granted(2)),
        (take(A, 60, (2, 200)), held(B)),
        (acquire(B, 201), granted(2)),
        (take(A, 60, (2, 201)), held(B)),
        (take(A, 60, (2, 202)), granted(3)),
        // What is not held so is not given back.
        (release(A, 2), Reply::LeaseReleased),
        (release(B, 3), Reply::LeaseReleased),
        (acquire(B, 60), held(A)),
        (release(A, 3), Reply::LeaseReleased),
        (acquire(A, 61), granted(4)),
        (release(A, 4), Reply::LeaseReleased),
        (acquire(B, 61), granted(5)),
        (acquire(B, u64::MAX), granted(5)),
        (acquire(B, u64::MAX), granted(5)),
        (take(A, 1, (5, 1 << 62)), held(B)),
        (take(A, 1, (5, (1 << 62) + 1)), granted(6)),
        (acquire(B, u64::MAX - 1), held(A)),
    ] {
        assert_eq!(run(&mut cluster, &command), reply, "{command:?}");
    }
    refused(&mut cluster, &acquire(NodeId(9), 1), Refusal::NoSuchNode);
    // Whoever is taken off the list has nothing to say any more.
    assert!(matches!(with(&mut cluster, |cluster| remove(cluster, A, true)), Reply::NodesChanged(_)));
    assert_eq!(cluster.lease().holder, None);
    assert_eq!(run(&mut cluster, &acquire(B, 1)), granted(7));
}

#[test]
fn a_ring_is_seeded_once_and_by_nodes_that_are_listed() {
    let mut cluster = three();
    let seed = |placements: Vec<Vec<NodeId>>| Command::SeedRing { placements };
    let crowd: Vec<NodeId> = (0..17).map(NodeId).collect();
    for (placements, refusal) in [
        (vec![], Refusal::LastVnode),
        (vec![vec![A]; limits::VNODES_MAX + 1], Refusal::TooManyVnodes),
        (vec![vec![A], vec![]], Refusal::InvalidReplicaSet),
        (vec![vec![A, A]], Refusal::InvalidReplicaSet),
        (vec![crowd], Refusal::InvalidReplicaSet),
        (vec![vec![A, NodeId(9)]], Refusal::NoSuchNode),
    ] {
        refused(&mut cluster, &seed(placements), refusal);
    }
    refused(&mut cluster, &act(0, 1, RingAct::Clear), Refusal::NoTopology);
    run(&mut cluster, &seed(vec![vec![A, B], vec![B]]));
    refused(&mut cluster, &seed(vec![vec![A]]), Refusal::AlreadySeeded);
    let topology = cluster.topology().unwrap();
    assert_eq!((topology.version, topology.next_vnode, &topology.pending), (0, VnodeId(2), &None));
    assert_eq!(topology.ring, types::Ring::boot(2).unwrap());
    assert_eq!(topology.placements[&VnodeId(1)], [B]);
}

#[test]
fn a_ring_changes_one_step_at_a_time_under_the_lease() {
    let mut cluster = seeded();
    let split = |token| RingAct::BeginSplit { token, nodes: vec![B] };
    let merge = |vnode| RingAct::BeginMerge { vnode: VnodeId(vnode) };
    let changed = |version| Reply::RingChanged { version };
    for fence in [0, 2] {
        refused(&mut cluster, &act(0, fence, split(7)), Refusal::StaleFence);
    }
    for (expected, what, refusal) in [
        (1, split(7), Refusal::StaleRing),
        (0, split(0), Refusal::TokenTaken),
        (0, RingAct::BeginSplit { token: 7, nodes: vec![] }, Refusal::InvalidReplicaSet),
        (0, merge(0), Refusal::LastVnode),
        (0, merge(5), Refusal::NoSuchVnode),
        (0, RingAct::Advance, Refusal::NothingPending),
        (0, RingAct::Clear, Refusal::NothingPending),
        (0, RingAct::SetPlacement { vnode: VnodeId(1), nodes: vec![A] }, Refusal::NoSuchVnode),
    ] {
        refused(&mut cluster, &act(expected, 1, what), refusal);
    }
    assert_eq!(run(&mut cluster, &act(0, 1, split(7))), changed(1));
    for what in [split(8), merge(0)] {
        refused(&mut cluster, &act(1, 1, what), Refusal::ChangePending);
    }
    let topology = cluster.topology().unwrap();
    assert_eq!((topology.ring.len(), topology.ring_after().len()), (1, 2), "the old ring still holds");
    // Undone: the id is spent all the same.
    assert_eq!(run(&mut cluster, &act(1, 1, RingAct::Clear)), changed(2));
    assert_eq!(run(&mut cluster, &act(2, 1, split(7))), changed(3));
    let placement = RingAct::SetPlacement { vnode: VnodeId(0), nodes: vec![C] };
    assert_eq!(run(&mut cluster, &act(3, 1, placement)), changed(4));
    // The next holder goes on with it, and the earlier one is refused.
    run(&mut cluster, &take(B, 200, (1, 100)));
    refused(&mut cluster, &act(4, 1, RingAct::Advance), Refusal::StaleFence);
    assert_eq!(run(&mut cluster, &act(4, 2, RingAct::Advance)), changed(5));
    let topology = cluster.topology().unwrap();
    let vnodes: Vec<_> = topology.ring.iter().collect();
    assert_eq!(vnodes, [(VnodeId(0), 0), (VnodeId(2), 7)]);
    assert_eq!(
        (&topology.placements[&VnodeId(0)][..], &topology.placements[&VnodeId(2)][..]),
        (&[C][..], &[B][..])
    );
    // A node that a vnode has for a member is in the way, drained or not.
    with(&mut cluster, |cluster| Command::DrainNode(change(cluster, C)));
    let placed = remove(&cluster, C, false);
    refused(&mut cluster, &placed, Refusal::NotDrained);
    run(&mut cluster, &act(5, 2, merge(0)));
    assert_eq!(cluster.topology().unwrap().pending.as_ref().unwrap().begun, 6);
    assert_eq!(run(&mut cluster, &act(6, 2, RingAct::Advance)), changed(7));
    assert!(matches!(with(&mut cluster, |cluster| remove(cluster, C, false)), Reply::NodesChanged(_)));
    assert_eq!(cluster.topology().unwrap().ring.iter().collect::<Vec<_>>(), [(VnodeId(2), 7)]);
}

#[test]
fn a_switch_is_turned_on_when_every_node_honours_it() {
    let mut cluster = three();
    let seen = |node, incarnation, flags: &[&str]| Seen {
        node,
        incarnation: Incarnation(incarnation),
        flags: flags.iter().map(|flag| bytes(flag)).collect(),
    };
    let enable = |seen: &[Seen]| Command::EnableFlag(EnableFlag { flag: bytes("f"), seen: seen.to_vec() });
    let all = [seen(A, 5, &["f"]), seen(B, 5, &["f", "g"]), seen(C, 1, &["f"])];
    refused(&mut cluster, &enable(&all[..2]), Refusal::CapabilitiesChanged);
    let lacking = [all[0].clone(), seen(B, 5, &["g"]), all[2].clone()];
    refused(&mut cluster, &enable(&lacking), Refusal::FlagUnsupported);
    let bad = Command::EnableFlag(EnableFlag { flag: bytes("F"), seen: all.to_vec() });
    refused(&mut cluster, &bad, Refusal::InvalidFlag);
    // It was seen before it went back to an earlier build.
    run(&mut cluster, &set(B, 6, &[]));
    refused(&mut cluster, &enable(&all), Refusal::CapabilitiesChanged);
    run(&mut cluster, &set(B, 7, &["f"]));
    assert_eq!(run(&mut cluster, &enable(&all)), Reply::FlagEnabled);
    assert!(cluster.is_enabled("f"));
    assert_eq!(run(&mut cluster, &enable(&[])), Reply::FlagEnabled, "it is on");
    // No node comes back with a build that does not honour it.
    refused(&mut cluster, &set(B, 8, &["g"]), Refusal::FlagUnsupported);
    assert_eq!(cluster.flags().map(FlagName::as_str).collect::<Vec<_>>(), ["f"]);
}
