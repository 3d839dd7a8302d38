//! Topics that move between vnodes, arcs, leases, replicas, policies, expiry, versions.

use super::*;

const MOVE: MigrationId = MigrationId(7);

fn migration(topic: TopicId, id: MigrationId, lease: u64) -> Migration {
    Migration { topic, id, lease: FenceToken(lease) }
}

fn begin(vnode: &mut Vnode) -> Export {
    assert_eq!(run(vnode, &Command::BeginMigration(migration(TOPIC, MOVE, 1))), Reply::MigrationBegun);
    vnode.export(TOPIC).unwrap()
}

fn insert(export: &Export, lease: u64) -> Command {
    Command::InsertTopic { export: Box::new(export.clone()), lease: FenceToken(lease) }
}

/// One command of each kind that changes a topic.
fn changes() -> Vec<Command> {
    let replicas = SetSegmentReplicas {
        segment: segment(0),
        expected: vec![NodeId(1), NodeId(2)],
        replicas: vec![NodeId(3)],
    };
    let expire = ExpireGroup { topic: TOPIC, group: Bytes::from_static(b"g"), idle_since: WallTime(99) };
    vec![
        Command::SealTopic { topic: TOPIC },
        Command::DeleteTopic { topic: TOPIC },
        Command::BindTopicPolicy { topic: TOPIC, policy: Some(Bytes::from_static(b"p")) },
        Command::SplitRange { range: ROOT },
        Command::MergeRanges { a: ROOT, b: RangeId { topic: OTHER, seq: RangeSeq(0) } },
        register(1, 3),
        seal(0, 3),
        Command::SetSegmentReplicas(replicas),
        Command::DeleteSegment { segment: segment(0) },
        Command::ExpireGroup(expire),
    ]
}

fn written() -> Vnode {
    let mut vnode = vnode();
    for command in [register(0, 0), seal(0, 3), commit("g", vec![tile(0, 16, 2)])] {
        run(&mut vnode, &command);
    }
    vnode
}

#[test]
fn a_fenced_topic_stands_still_and_its_neighbours_do_not() {
    let mut vnode = written();
    begin(&mut vnode);
    for command in changes() {
        refused(&mut vnode, &command, Refusal::Migrating);
    }
    let fenced = Reply::PositionsCommitted(vec![Err(Refusal::Migrating)]);
    assert_eq!(run(&mut vnode, &commit("g", vec![tile(0, 16, 9)])), fenced);
    refused(&mut vnode, &create("orders", OTHER, 4), Refusal::AlreadyExists);
    assert!(matches!(run(&mut vnode, &create("other", OTHER, 4)), Reply::TopicCreated { .. }));
    let elsewhere = RangeId { topic: OTHER, seq: RangeSeq(0) };
    refused(&mut vnode, &Command::MergeRanges { a: elsewhere, b: ROOT }, Refusal::DifferentTopic);
    assert!(matches!(run(&mut vnode, &Command::SplitRange { range: elsewhere }), Reply::RangeSplit { .. }));
    assert_eq!(vnode.positions(TOPIC, &GroupName::new(b"g").unwrap()), [tile(0, 16, 2)]);
    // Once the fence is lifted everything goes on.
    assert_eq!(run(&mut vnode, &Command::EndMigration(migration(TOPIC, MOVE, 1))), Reply::MigrationEnded);
    assert!(matches!(run(&mut vnode, &Command::SplitRange { range: ROOT }), Reply::RangeSplit { .. }));
}

#[test]
fn a_fence_belongs_to_one_move() {
    let mut vnode = vnode();
    let other = migration(TOPIC, MigrationId(8), 1);
    refused(&mut vnode, &Command::BeginMigration(migration(OTHER, MOVE, 1)), Refusal::NoSuchTopic);
    refused(&mut vnode, &Command::ExtractTopic(migration(TOPIC, MOVE, 1)), Refusal::NotFenced);
    begin(&mut vnode);
    begin(&mut vnode);
    refused(&mut vnode, &Command::BeginMigration(other), Refusal::Migrating);
    refused(&mut vnode, &Command::EndMigration(other), Refusal::Migrating);
    refused(&mut vnode, &Command::ExtractTopic(other), Refusal::NotFenced);
    assert_eq!(vnode.migrating().collect::<Vec<_>>(), [(TOPIC, MOVE)]);
    for topic in [OTHER, TOPIC, TOPIC] {
        let end = Command::EndMigration(migration(topic, MOVE, 1));
        assert_eq!(run(&mut vnode, &end), Reply::MigrationEnded);
    }
    assert_eq!(vnode.migration_of(TOPIC), None);
}

#[test]
fn a_topic_moves_with_everything_it_has() {
    let (mut from, mut to) = (written(), Vnode::default());
    run(&mut from, &Command::SplitRange { range: ROOT });
    run(&mut from, &Command::BindTopicPolicy { topic: TOPIC, policy: Some(Bytes::from_static(b"cold")) });
    let export = begin(&mut from);
    assert_eq!(export.migration(), Some(MOVE));
    for _ in 0..2 {
        assert_eq!(run(&mut to, &insert(&export, 1)), Reply::TopicInserted);
    }
    let extract = Command::ExtractTopic(migration(TOPIC, MOVE, 1));
    assert_eq!(run(&mut from, &extract), Reply::TopicExtracted(Some(Box::new(export.clone()))));
    assert_eq!(run(&mut from, &extract), Reply::TopicExtracted(None));
    assert_eq!((from.topic_count(), from.migrating().count()), (0, 0));
    assert_eq!(to.export(TOPIC), Some(export));
    assert_eq!(to.migrating().count(), 0, "the fence stays behind");
    assert_eq!(to.positions(TOPIC, &GroupName::new(b"g").unwrap()), [tile(0, 16, 2)]);
    assert!(matches!(run(&mut to, &Command::SealTopic { topic: TOPIC }), Reply::TopicSealed));
}

#[test]
fn an_export_never_rolls_a_topic_back() {
    let (mut from, mut to) = (written(), Vnode::default());
    let unfenced = from.export(TOPIC).unwrap();
    refused(&mut to, &insert(&unfenced, 1), Refusal::NotFenced);
    let export = begin(&mut from);
    refused(&mut from, &insert(&export, 1), Refusal::StaleExport);
    run(&mut to, &insert(&export, 1));
    run(&mut to, &commit("g", vec![tile(0, 16, 3)]));
    refused(&mut to, &insert(&export, 1), Refusal::StaleExport);
    let mut taken = Vnode::default();
    run(&mut taken, &create("orders", OTHER, 4));
    refused(&mut taken, &insert(&export, 1), Refusal::AlreadyExists);
    // What arrives after the move is over would bring back what was deleted since.
    let mut over = Vnode::default();
    let settle =
        |expected, arc| Command::SetArc(SetArc { ring_version: 1, expected, arc, lease: FenceToken(1) });
    let all = Share::Arc(RingArc { after: 3, upto: 3 });
    run(&mut over, &settle(Share::Whole, all));
    refused(&mut over, &insert(&export, 1), Refusal::StaleExport);
    run(&mut over, &settle(all, Share::Nothing));
    refused(&mut over, &create("orders", OTHER, 4), Refusal::NotOwner);
    assert_eq!(run(&mut over, &insert(&export, 1)), Reply::TopicInserted);
    refused(&mut over, &Command::SealTopic { topic: TOPIC }, Refusal::NotOwner);
}

#[test]
fn an_export_of_none_or_two_topics_is_no_export() {
    let mut two = written();
    run(&mut two, &create("other", OTHER, 4));
    let both = Export { tables: two.tables.clone() };
    assert!(Export::decode(both.encode()).is_err());
    assert!(Export::decode(Export { tables: Vnode::default().tables }.encode()).is_err());
    let one = written().export(TOPIC).unwrap().encode();
    assert!(Export::decode(one.slice(..one.len() - 1)).is_err());
    assert!(Export::decode([&one[..], &[0]].concat().into()).is_err());
}

#[test]
fn an_earlier_lease_moves_nothing() {
    let mut vnode = written();
    let export = begin(&mut vnode);
    run(&mut vnode, &Command::EndMigration(migration(TOPIC, MOVE, 5)));
    assert_eq!(vnode.lease(), FenceToken(5));
    for command in [
        Command::BeginMigration(migration(TOPIC, MOVE, 4)),
        Command::EndMigration(migration(TOPIC, MOVE, 4)),
        Command::ExtractTopic(migration(TOPIC, MOVE, 4)),
        insert(&export, 4),
        Command::SetArc(SetArc {
            ring_version: 9,
            expected: Share::Whole,
            arc: Share::Whole,
            lease: FenceToken(4),
        }),
    ] {
        refused(&mut vnode, &command, Refusal::StaleFence);
    }
}

#[test]
fn an_arc_runs_from_after_its_start_to_its_end_and_round() {
    let arc = |after, upto| RingArc { after, upto };
    for (arc, inside, outside) in [
        (arc(10, 20), [11, 15, 20], [10, 21, u32::MAX]),
        (arc(u32::MAX - 1, 1), [u32::MAX, 0, 1], [2, 100, u32::MAX - 1]),
        (arc(4, 5), [5, 5, 5], [4, 6, 0]),
        (arc(u32::MAX, 0), [0, 0, 0], [1, 2, u32::MAX]),
    ] {
        assert!(inside.iter().all(|hash| arc.covers(*hash)), "{arc:?}");
        assert!(!outside.iter().any(|hash| arc.covers(*hash)), "{arc:?}");
    }
    assert!([0, 7, 8, u32::MAX].iter().all(|hash| arc(7, 7).covers(*hash)), "equal ends are the whole ring");
}

#[test]
fn what_lies_outside_the_arc_is_refused_and_kept() {
    let mut vnode = written();
    // xxHash32 of "orders".
    let place = types::keyspace::KeyHash::Xxh32.of(b"orders");
    let set = |ring_version, expected, arc| {
        Command::SetArc(SetArc { ring_version, expected, arc, lease: FenceToken(1) })
    };
    let without = Share::Arc(RingArc { after: place, upto: place.wrapping_sub(1) });
    assert_eq!(run(&mut vnode, &set(3, Share::Whole, without)), Reply::ArcSet);
    assert_eq!((vnode.arc(), vnode.ring_version()), (without, 3));
    let name = TopicName::new(b"orders").unwrap();
    assert!(!vnode.owns(&name) && vnode.topic_by_name(&name).is_some());
    for command in changes() {
        refused(&mut vnode, &command, Refusal::NotOwner);
    }
    let foreign = Reply::PositionsCommitted(vec![Err(Refusal::NotOwner)]);
    assert_eq!(run(&mut vnode, &commit("g", vec![tile(0, 16, 9)])), foreign);
    // The name is looked at before anything else about it, and the arc before the fence.
    refused(&mut vnode, &create("orders", TOPIC, 99), Refusal::NotOwner);
    begin(&mut vnode);
    refused(&mut vnode, &Command::SealTopic { topic: TOPIC }, Refusal::NotOwner);
    refused(&mut vnode, &set(2, without, Share::Whole), Refusal::StaleRing);
    refused(&mut vnode, &set(3, Share::Whole, Share::Nothing), Refusal::StaleRing);
    let only = Share::Arc(RingArc { after: place.wrapping_sub(1), upto: place });
    assert_eq!(run(&mut vnode, &set(3, without, only)), Reply::ArcSet);
    refused(&mut vnode, &Command::SealTopic { topic: TOPIC }, Refusal::Migrating);
    refused(&mut vnode, &create("other", OTHER, 4), Refusal::NotOwner);
    let lost = Command::SealTopic { topic: OTHER };
    refused(&mut vnode, &lost, Refusal::NoSuchTopic);
}

#[test]
fn replicas_change_on_sealed_segments_from_what_they_were() {
    let mut vnode = vnode();
    let set = |expected: &[u128], replicas: &[u128]| {
        let nodes = |ids: &[u128]| ids.iter().map(|id| NodeId(*id)).collect();
        let (expected, replicas) = (nodes(expected), nodes(replicas));
        Command::SetSegmentReplicas(SetSegmentReplicas { segment: segment(0), expected, replicas })
    };
    refused(&mut vnode, &set(&[1, 2], &[3]), Refusal::NoSuchSegment);
    run(&mut vnode, &register(0, 0));
    refused(&mut vnode, &set(&[1, 2], &[]), Refusal::InvalidReplicaSet);
    refused(&mut vnode, &set(&[1, 2], &[3]), Refusal::SegmentActive);
    run(&mut vnode, &seal(0, 4));
    refused(&mut vnode, &set(&[2, 1], &[3]), Refusal::StaleReplicaSet);
    refused(&mut vnode, &set(&[1, 2], &[3, 3]), Refusal::InvalidReplicaSet);
    assert_eq!(run(&mut vnode, &set(&[1, 2], &[3, 1])), Reply::ReplicasSet);
    refused(&mut vnode, &set(&[1, 2], &[3]), Refusal::StaleReplicaSet);
    assert_eq!(vnode.segment(segment(0)).unwrap().replicas, [NodeId(3), NodeId(1)]);
}

#[test]
fn a_policy_is_bound_by_name_and_unbound() {
    let mut vnode = vnode();
    let bind = |topic, policy: Option<&[u8]>| {
        let policy = policy.map(Bytes::copy_from_slice);
        Command::BindTopicPolicy { topic, policy }
    };
    refused(&mut vnode, &bind(OTHER, None), Refusal::NoSuchTopic);
    for bad in [&b""[..], &[b'x'; limits::POLICY_NAME_BYTES_MAX + 1], b"\xff"] {
        refused(&mut vnode, &bind(TOPIC, Some(bad)), Refusal::InvalidPolicy);
    }
    for policy in [Some(&b"cold"[..]), Some(b"hot"), None] {
        assert_eq!(run(&mut vnode, &bind(TOPIC, policy)), Reply::PolicyBound);
        let bound = vnode.topic(TOPIC).unwrap().policy.as_ref().map(|name| name.as_str().as_bytes());
        assert_eq!(bound, policy);
    }
}

#[test]
fn a_group_expires_unless_it_committed_meanwhile() {
    let mut vnode = vnode();
    let expire = |topic, group: &'static [u8], idle_since| {
        let (group, idle_since) = (Bytes::from_static(group), WallTime(idle_since));
        Command::ExpireGroup(ExpireGroup { topic, group, idle_since })
    };
    run(&mut vnode, &commit("g", vec![tile(0, 16, 2)]));
    let group = GroupName::new(b"g").unwrap();
    assert_eq!(vnode.committed_at(TOPIC, &group), Some(WallTime(3)));
    refused(&mut vnode, &expire(OTHER, b"g", 9), Refusal::NoSuchTopic);
    refused(&mut vnode, &expire(TOPIC, b"h", 9), Refusal::NoSuchGroup);
    refused(&mut vnode, &expire(TOPIC, &[b'x'; 256], 9), Refusal::InvalidGroup);
    refused(&mut vnode, &expire(TOPIC, b"g", 3), Refusal::GroupNotIdle);
    assert_eq!(run(&mut vnode, &expire(TOPIC, b"g", 4)), Reply::GroupExpired);
    assert_eq!((vnode.groups_of(TOPIC).count(), vnode.committed_at(TOPIC, &group)), (0, None));
    refused(&mut vnode, &expire(TOPIC, b"g", 4), Refusal::NoSuchGroup);
    // A clock that steps back makes no group older than it is.
    for at in [8, 2] {
        let (group, tiles) = (Bytes::from_static(b"g"), vec![tile(0, 16, 2)]);
        let commits = vec![Commit { topic: TOPIC, group, tiles, at: WallTime(at) }];
        run(&mut vnode, &Command::CommitPositions { commits });
    }
    assert_eq!(vnode.committed_at(TOPIC, &group), Some(WallTime(8)));
}

#[test]
fn the_effective_version_only_rises_and_never_past_the_build() {
    let mut vnode = vnode();
    for to in [0, 1] {
        assert_eq!(run(&mut vnode, &Command::Upgrade { to: Version(to) }), Reply::Upgraded(Version(1)));
    }
    let before = vnode.clone();
    let entry = Command::Upgrade { to: Version(2) }.encode();
    let after = create("other", OTHER, 4).encode();
    for entry in [entry, after] {
        let reply = vnode.apply(vnode.applied().next(), &entry);
        assert_eq!(reply, Reply::Refused(Refusal::LaterVersion));
        assert_eq!(vnode.beyond_build(), Some(Version(2)));
        assert_eq!((vnode.applied(), vnode.encode_snapshot()), (before.applied(), before.encode_snapshot()));
    }
    // What was saved on the way is still read by this build, and by the one that can go on.
    assert_eq!(Vnode::decode_snapshot(vnode.encode_snapshot()), Ok(before));
}

/// One command carries all rows of a topic that moves. What would not fit is told before anything stands still.
#[test]
fn a_topic_that_does_not_fit_one_entry_is_not_fenced() {
    let mut vnode = Vnode::default();
    for command in [create("orders", TOPIC, 8), register(0, 0), seal(0, 3)] {
        run(&mut vnode, &command);
    }
    let slice =
        |n: u64| Tile { range: RangeSeq(0), span: KeySpan::new(n, n + 1).unwrap(), next: Offset(n % 3) };
    // Neighbours that stand at one offset would be one row.
    let tiles: Vec<Tile> = (0..64).map(slice).collect();
    let group = |n: usize| Bytes::from(format!("{n:0>250}"));
    let mut fits = true;
    for n in 0..limits::GROUPS_PER_TOPIC_MAX - 1 {
        let commit = Commit { topic: TOPIC, group: group(n), tiles: tiles.clone(), at: WallTime(1) };
        let committed = run(&mut vnode, &Command::CommitPositions { commits: vec![commit] });
        assert_eq!(committed, Reply::PositionsCommitted(vec![Ok(())]));
        // Looked at now and then, because it copies everything.
        if n % 8192 == 8191 {
            let export = vnode.export(TOPIC).unwrap();
            fits = insert(&export, 1).encode().len() <= limits::RAFT_COMMAND_BYTES_MAX;
            let begun = run(&mut vnode, &Command::BeginMigration(migration(TOPIC, MOVE, 1)));
            let wanted = if fits { Reply::MigrationBegun } else { Reply::Refused(Refusal::TopicTooLarge) };
            assert_eq!(begun, wanted, "{n} groups");
            assert_eq!(vnode.migration_of(TOPIC).is_some(), fits);
            run(&mut vnode, &Command::EndMigration(migration(TOPIC, MOVE, 1)));
            if !fits {
                break;
            }
        }
    }
    assert!(!fits, "there was more than one entry holds");
    // It goes on where it is.
    run(&mut vnode, &register(1, 3));
}
