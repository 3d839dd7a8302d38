//! Bytes that must not change: the snapshot and every command, as hexadecimal text beside this file.

use super::*;
use crate::cluster::snapshot::Error;

fn sample() -> Cluster {
    let mut cluster = Cluster::default();
    for command in commands() {
        run(&mut cluster, &command);
    }
    cluster
}

fn commands() -> Vec<Command> {
    [commands_of_users(), commands_of_control()].concat()
}

fn commands_of_control() -> Vec<Command> {
    use control::{A, B, C, acquire, act, set, take};
    use types::{FenceToken, Incarnation, NodeId, VnodeId};
    let add = |node, name: &str, expected| {
        let (name, peer, expected) = (bytes(name), bytes("h.example.com:4043"), NodesRevision(expected));
        Command::AddNode(AddNode { node, name, peer, expected })
    };
    let change = |node, expected| ChangeNode { node, expected: NodesRevision(expected) };
    let remove = |node, expected, force| Command::RemoveNode { change: change(node, expected), force };
    let split = |token, nodes: &[NodeId]| RingAct::BeginSplit { token, nodes: nodes.to_vec() };
    let seen = |node| Seen { node, incarnation: Incarnation(7), flags: vec![bytes("f"), bytes("g")] };
    let enable = EnableFlag { flag: bytes("g"), seen: vec![seen(A), seen(B)] };
    let quiet = SetNode {
        node: B,
        incarnation: Incarnation(8),
        peer: bytes("10.0.0.2:1"),
        client: None,
        attributes: vec![],
        flags: vec![bytes("g")],
    };
    vec![
        add(A, "a@h", 0),
        add(B, "b@h", 1),
        add(C, "c@h", 2),
        set(A, 7, &["f", "g"]),
        Command::SetNode(quiet),
        Command::DrainNode(change(C, 5)),
        remove(C, 6, true),
        Command::EnableFlag(enable),
        Command::SeedRing { placements: vec![vec![A, B], vec![B]] },
        acquire(A, 5_000),
        take(A, 5_000, (1, 5_000)),
        act(0, 1, split(77, &[B])),
        act(1, 1, RingAct::Advance),
        act(2, 1, RingAct::BeginMerge { vnode: VnodeId(1) }),
        act(3, 1, RingAct::Clear),
        act(4, 1, RingAct::SetPlacement { vnode: VnodeId(0), nodes: vec![B, A] }),
        act(5, 1, split(9, &[A, B])),
        Command::DrainNode(change(B, 7)),
        Command::UndrainNode(change(B, 8)),
        Command::DrainNode(change(B, 9)),
        Command::ReleaseLease { candidate: B, fence: FenceToken(1) },
    ]
}

fn commands_of_users() -> Vec<Command> {
    let permissions = Permissions { admin: true, produce: false, consume: true };
    let rules = LockoutRules { attempts_max: NonZeroU32::new(2).unwrap(), ..RULES };
    let attempt = Attempt { user: bytes("ann"), address: bytes("::1"), at: WallTime(700) };
    let lock = Command::RecordFailure { attempt, rules };
    let policy = Policy {
        age_ms_max: Setting::Value(86_400_000),
        bytes_max: Setting::Off,
        read_age_ms_max: Setting::Value(60_000),
        unread_age_ms_max: Setting::Value(604_800_000),
        spread_by: Setting::Value(bytes("rack")),
    };
    vec![
        create("ann", 5),
        create("bob@example.com", 6),
        create("gone", 7),
        delete("gone"),
        password("ann", "second", 8),
        Command::SetPermissions { user: bytes("ann"), permissions, at: WallTime(9) },
        Command::SetRole { user: bytes("bob@example.com"), role: Some(Role::Viewer), at: WallTime(10) },
        grant("ann", Operation::Produce, "orders"),
        grant("ann", Operation::Consume, "logs.*"),
        grant("ann", Operation::Consume, "x"),
        revoke("ann", Operation::Consume, "x"),
        grant("nobody", Operation::Consume, "*"),
        lock.clone(),
        lock,
        failure("ann", "10.0.0.1", 800),
        failure("bob", "10.0.0.1", 900),
        Command::RecordSuccess { user: bytes("bob"), address: bytes("10.0.0.1") },
        Command::Unlock { user: bytes("carl"), address: None },
        Command::Unlock { user: bytes("carl"), address: Some(bytes("::1")) },
        Command::ForgetLockouts { at: WallTime(1) },
        Command::DefinePolicy { name: bytes("short"), policy },
        Command::DefinePolicy { name: bytes("none"), policy: Policy::default() },
        Command::DeletePolicy { name: bytes("none") },
        Command::Upgrade { to: crate::machine::Version::BUILD },
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn the_snapshot_is_the_golden_one() {
    let bytes = sample().encode_snapshot();
    assert_eq!(hex(&bytes), include_str!("../golden/snapshot-2.hex").trim());
    assert_eq!(Cluster::decode_snapshot(bytes).unwrap(), sample());
}

#[test]
fn the_sample_has_something_of_everything() {
    let cluster = sample();
    let topology = cluster.topology().unwrap();
    assert_eq!((cluster.nodes().count(), cluster.flags().count()), (2, 1));
    assert_eq!((topology.version, topology.ring.len(), topology.pending.is_some()), (6, 3, true));
    assert!(cluster.lease().holder.is_some());
}

#[test]
fn a_snapshot_without_nodes_and_ring_is_still_read() {
    let text = include_str!("../golden/snapshot-1.hex").trim();
    let bytes: Vec<u8> =
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect();
    let mut cluster = Cluster::default();
    for command in commands_of_users() {
        run(&mut cluster, &command);
    }
    assert_eq!(Cluster::decode_snapshot(bytes.into()), Ok(cluster));
}

#[test]
fn the_commands_are_the_golden_ones() {
    let lines: Vec<String> = commands().iter().map(|command| hex(&command.encode())).collect();
    assert_eq!(lines.join("\n"), include_str!("../golden/commands-1.hex").trim());
}

#[test]
fn a_snapshot_that_is_cut_changed_or_of_a_later_build_is_refused() {
    let good = sample().encode_snapshot();
    for len in 0..good.len() {
        assert!(Cluster::decode_snapshot(good.slice(..len)).is_err(), "{len}");
    }
    let changed = |at: usize, value: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = value;
        Cluster::decode_snapshot(bytes.into())
    };
    assert_eq!(changed(3, 3), Err(Error::LaterFormat(3)));
    assert_eq!(changed(5, 9), Err(Error::LaterVersion(crate::machine::Version(9))));
    let first_section = 3 + 1 + 2 + 8;
    assert_eq!(changed(first_section + 1, 2), Err(Error::LaterSection { tag: 1, format: 2 }));
    // Whatever one byte becomes: an error, or a state that encodes to exactly these bytes.
    for at in 0..good.len() {
        for flip in [0x01, 0x80, 0xff] {
            if let Ok(state) = changed(at, good[at] ^ flip) {
                assert_ne!(state.encode_snapshot(), good);
                assert_eq!(state.encode_snapshot()[at], good[at] ^ flip);
            }
        }
    }
}

#[test]
fn rows_that_contradict_each_other_are_refused() {
    let refused = |change: &dyn Fn(&mut Cluster)| {
        let mut cluster = sample();
        change(&mut cluster);
        Cluster::decode_snapshot(cluster.encode_snapshot())
    };
    let early = refused(&|cluster| cluster.users.next_revision = UserRevision(1));
    assert_eq!(early, Err(Error::Inconsistent("a revision that was not given yet")));
    // A later entry would want the same place in the order of lockouts.
    let future = refused(&|cluster| cluster.applied = RaftIndex(3));
    assert!(matches!(future, Err(Error::Inconsistent(_))), "{future:?}");
}
