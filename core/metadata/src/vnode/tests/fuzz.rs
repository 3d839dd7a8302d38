//! Bytes from anywhere: they never stop a machine, and never leave it with a table that stops it later.

use proptest::prelude::*;

use super::steps::{Aside, a_history, entry_of};
use super::*;

/// What a history left, and its entries.
fn lived(steps: &[super::steps::Step]) -> (Vnode, Vec<Bytes>) {
    let (mut vnode, mut aside, mut entries) = (Vnode::default(), Aside::default(), Vec::new());
    for step in steps {
        if let Some(entry) = entry_of(step, &vnode, &mut aside) {
            vnode.apply(vnode.applied().next(), &entry);
            entries.push(entry);
        }
    }
    (vnode, entries)
}

/// A few bytes of something good replaced, removed or added.
fn damage(bytes: &[u8], changes: &[(prop::sample::Index, u8, u8)]) -> Bytes {
    let mut bytes = bytes.to_vec();
    for (at, what, byte) in changes {
        let at = at.index(bytes.len() + 1);
        match what % 4 {
            0 => bytes.truncate(at.max(bytes.len().saturating_sub(3))),
            1 => bytes.insert(at, *byte),
            _ if at < bytes.len() => bytes[at] = *byte,
            _ => bytes.push(*byte),
        }
    }
    bytes.into()
}

fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, u8)>> {
    let byte = prop_oneof![0..4_u8, any::<u8>()];
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), byte), 1..4)
}

/// Everything that can be read or done without knowing what is there.
fn exercise(mut vnode: Vnode) {
    assert_eq!(vnode.overview().len(), vnode.topic_count());
    let topics: Vec<TopicId> = vnode.topics().map(|(id, _)| id).collect();
    for topic in topics {
        assert!(vnode.topic_detail(topic).is_some());
        assert!(vnode.export(topic).is_some());
        assert!(vnode.leaf_ranges_of(topic).count() > 0);
        let ranges: Vec<RangeId> = vnode.ranges_of(topic).map(|(id, _)| id).collect();
        for id in ranges {
            let range = vnode.range(id).unwrap().clone();
            assert!(vnode.segment_at(id, Offset(0)).is_none_or(|(found, _)| found.range == id));
            assert!(!vnode.open_ancestors_of(id).contains(&id));
            let active = vnode.active_segment(id).map(|(id, _)| id);
            if let Some(segment) = active {
                let (length, byte_size, sealed_at) = (1, 1, WallTime(1));
                run(
                    &mut vnode,
                    &Command::SealSegment(SealSegment { segment, length, byte_size, lost: 0, sealed_at }),
                );
            }
            let segment = SegmentId { range: id, seq: range.next_segment_seq };
            let (start, replicas, opened_at) = (range.sealed_end, vec![NodeId(1)], WallTime(1));
            let register = RegisterSegment { segment, start, replicas, opened_at };
            run(&mut vnode, &Command::RegisterSegment(register));
            run(&mut vnode, &Command::SplitRange { range: id });
            let siblings: Vec<RangeSeq> = vnode.children_of(id).to_vec();
            if let [low, high] = siblings[..] {
                let [a, b] = [low, high].map(|seq| RangeId { topic, seq });
                run(&mut vnode, &Command::MergeRanges { a, b });
            }
        }
        run(&mut vnode, &Command::SealTopic { topic });
        run(&mut vnode, &Command::DeleteTopic { topic });
    }
    assert!(vnode.export(TopicId(0)).is_none_or(|export| export.topic().0 == TopicId(0)));
}

proptest! {
    #[test]
    fn no_entry_stops_the_machine(
        steps in a_history(5..40),
        bytes in prop::collection::vec(any::<u8>(), 0..60),
        kind in 0..20_u8,
        at in any::<prop::sample::Index>(),
        changes in changes(),
    ) {
        let (vnode, entries) = lived(&steps);
        let known_kind = [&[0, 1, 0, kind], &bytes[..]].concat();
        let damaged = damage(&entries[at.index(entries.len())], &changes);
        for entry in [bytes.into(), known_kind.into(), damaged] {
            let (mut before, mut after) = (vnode.clone(), vnode.clone());
            let reply = after.apply(after.applied().next(), &entry);
            if matches!(reply, Reply::Refused(_)) {
                before.beyond = after.beyond;
                before.applied = after.applied;
                prop_assert_eq!(&after, &before);
            }
            exercise(after);
        }
    }

    #[test]
    fn no_snapshot_stops_the_machine(
        steps in a_history(5..40),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        changes in changes(),
    ) {
        let (vnode, _) = lived(&steps);
        let headed = [b"MVN\x01\x00\x01", &bytes[..]].concat();
        let damaged = damage(&vnode.encode_snapshot(), &changes);
        for snapshot in [bytes.into(), headed.into(), damaged] {
            if let Ok(state) = Vnode::decode_snapshot(snapshot.clone()) {
                prop_assert_eq!(state.encode_snapshot(), snapshot);
                exercise(state);
            }
        }
    }

    #[test]
    fn no_export_stops_the_machine(steps in a_history(5..40), at in any::<prop::sample::Index>(), changes in changes()) {
        let (vnode, _) = lived(&steps);
        let topics: Vec<TopicId> = vnode.topics().map(|(id, _)| id).collect();
        prop_assume!(!topics.is_empty());
        let export = vnode.export(topics[at.index(topics.len())]).unwrap();
        let damaged = damage(&export.encode(), &changes);
        if let Ok(export) = Export::decode(damaged.clone()) {
            prop_assert_eq!(export.encode(), damaged);
            let mut vnode = Vnode::default();
            run(&mut vnode, &Command::InsertTopic { export: Box::new(export), lease: FenceToken(1) });
            exercise(vnode);
        }
    }
}
