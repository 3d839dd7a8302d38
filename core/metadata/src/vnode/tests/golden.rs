//! Bytes that must not change: the snapshot and every command, as hexadecimal text beside this file.

use super::*;
use crate::vnode::snapshot::Error;

fn sample() -> Vnode {
    let mut vnode = vnode();
    for command in commands() {
        run(&mut vnode, &command);
    }
    // Ranges with parents come with splits; the layout has them already.
    let left = Range {
        span: KeySpan::new(0, 8).unwrap(),
        parents: vec![RangeSeq(0)],
        state: RangeState::Sealed,
        ..vnode.range(ROOT).unwrap().clone()
    };
    let right = Range { span: KeySpan::new(8, 16).unwrap(), state: RangeState::Active, ..left.clone() };
    vnode.ranges.get_mut(ROOT).unwrap().state = RangeState::Replaced;
    vnode.ranges.insert(RangeId { seq: RangeSeq(1), ..ROOT }, left);
    vnode.ranges.insert(RangeId { seq: RangeSeq(2), ..ROOT }, right);
    vnode.topics.set_next_range_seq(TOPIC, RangeSeq(3));
    vnode
}

fn commands() -> Vec<Command> {
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
    ]
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
