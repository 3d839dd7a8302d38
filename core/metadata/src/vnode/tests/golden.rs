//! Bytes that must not change: the snapshot and every command, as hexadecimal text beside this file.

use std::collections::BTreeSet;

use super::*;
use crate::vnode::snapshot::Error;

fn sample() -> Vnode {
    let mut vnode = vnode();
    for command in commands() {
        let reply = run(&mut vnode, &command);
        assert!(!matches!(reply, Reply::Refused(_)), "{command:?}: {reply:?}");
    }
    vnode
}

/// One of each kind at least.
fn commands() -> Vec<Command> {
    let lease = FenceToken(1);
    let migration = |topic, id| Migration { topic, id: MigrationId(id), lease };
    let range = |seq| RangeId { seq: RangeSeq(seq), ..ROOT };
    vec![
        create("other", OTHER, 16),
        Command::SealTopic { topic: OTHER },
        Command::DeleteTopic { topic: OTHER },
        register(0, 0),
        seal(0, 5),
        register(1, 5),
        seal(1, 2),
        register(2, 7),
        Command::DeleteSegment { segment: segment(0) },
        create("sealed", TopicId(0x99), 1),
        Command::SealTopic { topic: TopicId(0x99) },
        commit("readers", vec![tile(0, 8, 3), tile(8, 12, 4)]),
        commit("leavers", vec![tile(0, 16, 1)]),
        Command::ExpireGroup(ExpireGroup {
            topic: TOPIC,
            group: Bytes::from_static(b"leavers"),
            idle_since: WallTime(4),
        }),
        Command::SplitRange { range: ROOT },
        Command::SplitRange { range: range(2) },
        Command::MergeRanges { a: range(4), b: range(3) },
        Command::SplitByLoad { range: range(5) },
        Command::SplitByLoad { range: range(6) },
        Command::MergeByLoad { a: range(8), b: range(9) },
        commit("readers", vec![Tile { range: RangeSeq(5), ..tile(12, 16, 9) }]),
        Command::SetSegmentReplicas(SetSegmentReplicas {
            segment: segment(1),
            expected: vec![NodeId(1), NodeId(2)],
            replicas: vec![NodeId(2), NodeId(3), NodeId(4)],
        }),
        Command::BindTopicPolicy { topic: TOPIC, policy: Some(Bytes::from_static(b"archive")) },
        Command::BindTopicPolicy { topic: TopicId(0x99), policy: None },
        Command::InsertTopic { export: Box::new(moved()), lease },
        Command::BeginMigration(migration(TopicId(0x99), 8)),
        Command::EndMigration(migration(TopicId(0x99), 8)),
        Command::BeginMigration(migration(TOPIC, 8)),
        Command::BeginMigration(migration(TopicId(0x77), 9)),
        Command::ExtractTopic(migration(TopicId(0x77), 9)),
        Command::InsertTopic { export: Box::new(moved()), lease },
        Command::SetArc(SetArc { ring_version: 1, expected: Share::Whole, arc: Share::Whole, lease }),
        Command::SetArc(SetArc {
            ring_version: 2,
            expected: Share::Whole,
            arc: Share::Arc(RingArc { after: 5, upto: 3 }),
            lease,
        }),
        Command::Upgrade { to: Version(1) },
    ]
}

/// A topic that comes from another vnode.
fn moved() -> Export {
    let topic = TopicId(0x77);
    let mut from = Vnode::default();
    run(&mut from, &create("moved", topic, 2));
    run(&mut from, &Command::SplitRange { range: RangeId { topic, seq: RangeSeq(0) } });
    run(&mut from, &Command::BeginMigration(Migration { topic, id: MigrationId(7), lease: FenceToken(0) }));
    from.export(topic).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn the_snapshot_is_the_golden_one() {
    let bytes = sample().encode_snapshot();
    assert_eq!(hex(&bytes), include_str!("../golden/snapshot-1.hex").trim());
    assert_eq!(Vnode::decode_snapshot(bytes).unwrap(), sample());
}

#[test]
fn the_commands_are_the_golden_ones() {
    let kinds: BTreeSet<u8> = commands().iter().map(|command| command.encode()[3]).collect();
    assert_eq!(kinds, (1..=20).collect(), "every kind has a golden entry");
    let lines: Vec<String> = commands().iter().map(|command| hex(&command.encode())).collect();
    assert_eq!(lines.join("\n"), include_str!("../golden/commands-1.hex").trim());
}

#[test]
fn a_snapshot_that_is_cut_changed_or_of_a_later_build_is_refused() {
    let good = sample().encode_snapshot();
    for len in 0..good.len() {
        assert!(Vnode::decode_snapshot(good.slice(..len)).is_err(), "{len}");
    }
    let changed = |at: usize, value: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = value;
        Vnode::decode_snapshot(bytes.into())
    };
    assert_eq!(changed(3, 2), Err(Error::LaterFormat(2)));
    assert_eq!(changed(5, 9), Err(Error::LaterVersion(crate::machine::Version(9))));
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
