//! Steps of random histories. A step names its target by a number that picks among what is there when its turn
//! comes, so that histories get somewhere; some steps are wild instead, and most of those are refused.

use proptest::prelude::*;

use super::view::{BITS, PLACES};
use super::*;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Create {
        name: u8,
        bits: u8,
        known_id: Option<usize>,
    },
    SealTopic(usize),
    DeleteTopic(usize),
    Bind {
        topic: usize,
        policy: Option<&'static str>,
    },
    Split(usize),
    /// Any range at all, replaced or sealed ones too.
    SplitAny(usize),
    Merge(usize),
    MergeAny(usize, usize),
    OnSegment(OnSegment),
    Commit(Vec<WildCommit>),
    Expire {
        topic: usize,
        group: u8,
        idle_since: u64,
    },
    Begin(WildMove),
    End(WildMove),
    Extract(WildMove),
    /// Puts what a topic is now aside, to be inserted later. Not an entry.
    Export(usize),
    Insert {
        export: usize,
        lease: u8,
    },
    Arc {
        ring_version: u64,
        arc: Share,
        lease: u8,
    },
    Upgrade(u16),
    /// A command in an envelope of a version that nobody has yet.
    Gated(usize),
    Garbage(Vec<u8>),
}

/// A step about segments.
#[derive(Clone, Debug)]
pub(super) enum OnSegment {
    Open { range: usize, wrong: Wrong },
    SealActive { segment: usize, length: u64 },
    SealAny { segment: usize, length: u64 },
    DeleteAny(usize),
    Replicas { segment: usize, stale: bool, nodes: u8 },
}

/// What a registration has wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Nothing,
    Start,
    Number,
    Replicas,
}

#[derive(Clone, Debug)]
pub(super) struct WildCommit {
    topic: usize,
    group: u8,
    at: u64,
    tiles: Vec<(usize, u8, u64, u64)>,
    tidy: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WildMove {
    topic: usize,
    id: u8,
    lease: u8,
}

fn pick() -> impl Strategy<Value = usize> {
    0..1000_usize
}

fn a_move() -> impl Strategy<Value = WildMove> {
    (pick(), 0..2_u8, a_lease()).prop_map(|(topic, id, lease)| WildMove { topic, id, lease })
}

/// Mostly the highest, so that most steps are taken.
fn a_lease() -> impl Strategy<Value = u8> {
    prop_oneof![1 => 0..3_u8, 9 => Just(3)]
}

fn a_commit() -> impl Strategy<Value = WildCommit> {
    let tile = (pick(), 0..=BITS, 0..PLACES as u64, 0..3_u64);
    let tiles = prop::collection::vec(tile, 0..6);
    (pick(), 0..3_u8, 0..9_u64, tiles, prop::bool::weighted(0.9))
        .prop_map(|(topic, group, at, tiles, tidy)| WildCommit { topic, group, at, tiles, tidy })
}

fn an_arc() -> impl Strategy<Value = Share> {
    let arc = (any::<u32>(), any::<u32>()).prop_map(|(after, upto)| Share::Arc(RingArc { after, upto }));
    prop_oneof![6 => Just(Share::Whole), 2 => arc, 1 => Just(Share::Nothing)]
}

fn a_step() -> impl Strategy<Value = Step> {
    let policy = prop_oneof![Just(None), Just(Some("")), Just(Some("archive")), Just(Some("hot"))];
    let wrong = prop_oneof![
        8 => Just(Wrong::Nothing), 1 => Just(Wrong::Start), 1 => Just(Wrong::Number), 1 => Just(Wrong::Replicas)
    ];
    let known = prop::option::weighted(0.1, pick());
    let bits = prop_oneof![9 => Just(BITS), 1 => prop_oneof![Just(0_u8), Just(33)]];
    let on_segments = prop_oneof![
        8 => (pick(), wrong).prop_map(|(range, wrong)| OnSegment::Open { range, wrong }),
        5 => (pick(), 0..5_u64).prop_map(|(segment, length)| OnSegment::SealActive { segment, length }),
        1 => (pick(), 0..3_u64).prop_map(|(segment, length)| OnSegment::SealAny { segment, length }),
        4 => pick().prop_map(OnSegment::DeleteAny),
        2 => (pick(), any::<bool>(), 0..4_u8)
            .prop_map(|(segment, stale, nodes)| OnSegment::Replicas { segment, stale, nodes }),
    ];
    let tables = prop_oneof![
        4 => (0..4_u8, bits, known).prop_map(|(name, bits, known_id)| Step::Create { name, bits, known_id }),
        1 => pick().prop_map(Step::SealTopic),
        1 => pick().prop_map(Step::DeleteTopic),
        1 => (pick(), policy).prop_map(|(topic, policy)| Step::Bind { topic, policy }),
        8 => pick().prop_map(Step::Split),
        2 => pick().prop_map(Step::SplitAny),
        6 => pick().prop_map(Step::Merge),
        1 => (pick(), pick()).prop_map(|(a, b)| Step::MergeAny(a, b)),
        20 => on_segments.prop_map(Step::OnSegment),
        9 => prop::collection::vec(a_commit(), 0..4).prop_map(Step::Commit),
        2 => (pick(), 0..3_u8, 0..12_u64)
            .prop_map(|(topic, group, idle_since)| Step::Expire { topic, group, idle_since }),
    ];
    let moves = prop_oneof![
        2 => a_move().prop_map(Step::Begin),
        3 => a_move().prop_map(Step::End),
        2 => a_move().prop_map(Step::Extract),
        4 => pick().prop_map(Step::Export),
        4 => (pick(), a_lease()).prop_map(|(export, lease)| Step::Insert { export, lease }),
        1 => (0..3_u64, an_arc(), a_lease())
            .prop_map(|(ring_version, arc, lease)| Step::Arc { ring_version, arc, lease }),
    ];
    let others = prop_oneof![
        (0..2_u16).prop_map(Step::Upgrade),
        pick().prop_map(Step::Gated),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Step::Garbage),
    ];
    prop_oneof![12 => tables, 2 => moves, 1 => others]
}

/// A few topics, and what becomes of them.
pub(super) fn a_history(steps: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(a_step(), steps).prop_map(|steps| {
        let create = |name| Step::Create { name, bits: BITS, known_id: None };
        (0..3).map(create).chain(steps).collect()
    })
}

/// What a history keeps beside the machine.
#[derive(Debug, Default)]
pub(super) struct Aside {
    exports: Vec<Export>,
    topics_drawn: u128,
}

fn picked<T>(from: impl Iterator<Item = T>, pick: usize) -> Option<T> {
    let mut all: Vec<T> = from.collect();
    (!all.is_empty()).then(|| all.swap_remove(pick % all.len()))
}

/// Mostly one that is there.
fn a_topic(vnode: &Vnode, at: usize) -> TopicId {
    let known = picked(vnode.topics().map(|(id, _)| id), at / 16);
    known.filter(|_| !at.is_multiple_of(16)).unwrap_or(TopicId(0))
}

fn all_ranges(vnode: &Vnode) -> impl Iterator<Item = (RangeId, &Range)> {
    vnode.topics().flat_map(|(id, _)| vnode.ranges_of(id))
}

fn active_ranges(vnode: &Vnode) -> impl Iterator<Item = (RangeId, &Range)> {
    vnode.topics().flat_map(|(id, _)| vnode.active_ranges_of(id))
}

fn buddies(vnode: &Vnode) -> impl Iterator<Item = (RangeId, RangeId)> {
    let active: Vec<(RangeId, KeySpan)> = active_ranges(vnode).map(|(id, range)| (id, range.span)).collect();
    let pair = |(a, b): ((RangeId, KeySpan), (RangeId, KeySpan))| {
        (a.0.topic == b.0.topic && a.1.is_buddy_of(b.1)).then_some((a.0, b.0))
    };
    let pairs: Vec<_> =
        active.iter().flat_map(|a| active.iter().filter_map(move |b| pair((*a, *b)))).collect();
    pairs.into_iter()
}

/// The entry a step proposes; `None` when it proposes nothing or there is nothing to pick from.
pub(super) fn entry_of(step: &Step, vnode: &Vnode, aside: &mut Aside) -> Option<Bytes> {
    let command = match step {
        Step::Gated(at) => {
            let mut entry = Command::SealTopic { topic: a_topic(vnode, *at) }.encode().to_vec();
            entry[1] = 2;
            return Some(entry.into());
        }
        Step::Garbage(bytes) => return Some(bytes.clone().into()),
        Step::Export(at) => {
            let fenced = picked(vnode.migrating().map(|(id, _)| id), at / 4);
            let topic = fenced.filter(|_| !at.is_multiple_of(4)).unwrap_or_else(|| a_topic(vnode, *at));
            aside.exports.extend(vnode.export(topic));
            return None;
        }
        Step::Create { name, bits, known_id } => {
            aside.topics_drawn += 1;
            let drawn = TopicId(aside.topics_drawn);
            let id = known_id.map_or(drawn, |at| a_topic(vnode, at));
            Some(create(["a", "b", "c", "no name"][usize::from(*name)], id, *bits))
        }
        Step::SealTopic(at) => Some(Command::SealTopic { topic: a_topic(vnode, *at) }),
        Step::DeleteTopic(at) => Some(Command::DeleteTopic { topic: a_topic(vnode, *at) }),
        Step::Bind { topic, policy } => {
            let policy = policy.map(|name| Bytes::from_static(name.as_bytes()));
            Some(Command::BindTopicPolicy { topic: a_topic(vnode, *topic), policy })
        }
        Step::Split(at) if at % 2 == 0 => {
            picked(active_ranges(vnode), at / 2).map(|(range, _)| Command::SplitByLoad { range })
        }
        Step::Split(at) => picked(active_ranges(vnode), *at).map(|(range, _)| Command::SplitRange { range }),
        Step::SplitAny(at) => picked(all_ranges(vnode), *at).map(|(range, _)| Command::SplitRange { range }),
        Step::Merge(at) if at % 2 == 0 => {
            picked(buddies(vnode), at / 2).map(|(a, b)| Command::MergeByLoad { a, b })
        }
        Step::Merge(at) => picked(buddies(vnode), *at).map(|(a, b)| Command::MergeRanges { a, b }),
        Step::MergeAny(a, b) => picked(all_ranges(vnode), *a)
            .zip(picked(all_ranges(vnode), *b))
            .map(|((a, _), (b, _))| Command::MergeRanges { a, b }),
        Step::Upgrade(to) => Some(Command::Upgrade { to: Version(*to) }),
        Step::OnSegment(step) => about_segments(step, vnode),
        Step::Commit(commits) => {
            Some(Command::CommitPositions { commits: commits.iter().map(|c| c.made(vnode)).collect() })
        }
        Step::Expire { topic, group, idle_since } => Some(Command::ExpireGroup(ExpireGroup {
            topic: a_topic(vnode, *topic),
            group: vec![b'g', *group].into(),
            idle_since: WallTime(*idle_since),
        })),
        Step::Begin(wild) => Some(Command::BeginMigration(wild.made(vnode))),
        Step::End(wild) => Some(Command::EndMigration(wild.under_way(vnode))),
        Step::Extract(wild) => {
            let migration = wild.under_way(vnode);
            aside.exports.extend(vnode.export(migration.topic));
            Some(Command::ExtractTopic(migration))
        }
        Step::Insert { export, lease } => {
            let gone = aside.exports.iter().filter(|export| vnode.topic(export.topic().0).is_none());
            let gone = picked(gone, *export).filter(|_| !export.is_multiple_of(4));
            gone.or_else(|| picked(aside.exports.iter(), *export)).map(|export| {
                let lease = FenceToken(u64::from(*lease));
                Command::InsertTopic { export: Box::new(export.clone()), lease }
            })
        }
        Step::Arc { ring_version, arc, lease } => {
            let (ring_version, arc) = (*ring_version, *arc);
            // Sometimes worked out from what is not so, or not any more.
            let expected = if ring_version == 1 { Share::Nothing } else { vnode.arc() };
            Some(Command::SetArc(SetArc {
                ring_version,
                expected,
                arc,
                lease: FenceToken(u64::from(*lease)),
            }))
        }
    };
    command.map(|command| command.encode())
}

fn about_segments(step: &OnSegment, vnode: &Vnode) -> Option<Command> {
    let any = |at: usize| picked(vnode.segments(), at);
    let seal = |(segment, _): (SegmentId, &Segment), length: u64| {
        // Some with a loss behind them.
        let (byte_size, lost, sealed_at) = (length * 10, length.saturating_sub(2), WallTime(length));
        Command::SealSegment(SealSegment { segment, length, byte_size, lost, sealed_at })
    };
    match step {
        OnSegment::Open { range, wrong } => picked(active_ranges(vnode), *range).map(|(id, range)| {
            let off = |which| u64::from(*wrong == which);
            let seq = SegmentSeq(range.next_segment_seq.0 + off(Wrong::Number));
            let start = Offset(range.sealed_end.0 + off(Wrong::Start));
            let replicas = vec![NodeId(1), NodeId(if *wrong == Wrong::Replicas { 1 } else { 2 })];
            let (segment, opened_at) = (SegmentId { range: id, seq }, WallTime(start.0));
            Command::RegisterSegment(RegisterSegment { segment, start, replicas, opened_at })
        }),
        OnSegment::SealActive { segment, length } => {
            let active = vnode.segments().filter(|(_, segment)| segment.is_active());
            picked(active, *segment).map(|found| seal(found, *length))
        }
        OnSegment::SealAny { segment, length } => any(*segment).map(|found| seal(found, *length)),
        OnSegment::DeleteAny(at) => any(*at).map(|(segment, _)| Command::DeleteSegment { segment }),
        OnSegment::Replicas { segment, stale, nodes } => any(*segment).map(|(segment, found)| {
            let mut expected = found.replicas.clone();
            if *stale {
                expected.push(NodeId(9));
            }
            let replicas = (0..u128::from(*nodes)).map(NodeId).collect();
            Command::SetSegmentReplicas(SetSegmentReplicas { segment, expected, replicas })
        }),
    }
}

impl WildMove {
    /// Mostly what some topic is fenced for.
    fn under_way(&self, vnode: &Vnode) -> Migration {
        let made = self.made(vnode);
        let fenced = picked(vnode.migrating(), self.topic).filter(|_| !self.topic.is_multiple_of(4));
        fenced.map_or(made, |(topic, id)| Migration { topic, id, ..made })
    }

    fn made(&self, vnode: &Vnode) -> Migration {
        let id = MigrationId(u128::from(self.id) + 1);
        Migration { topic: a_topic(vnode, self.topic), id, lease: FenceToken(u64::from(self.lease)) }
    }
}

impl WildCommit {
    /// Tiles inside ranges of the topic, whichever they are; mostly sorted and disjoint, sometimes not.
    fn made(&self, vnode: &Vnode) -> Commit {
        let topic = a_topic(vnode, self.topic);
        let tile = |&(range, bits, place, next): &(usize, u8, u64, u64)| {
            let (id, range) = picked(vnode.ranges_of(topic), range)?;
            let size = (1_u64 << bits).min(if self.tidy { range.span.size() } else { PLACES as u64 });
            let start = (range.span.start() + place % range.span.size()) / size * size;
            let span = KeySpan::new(start, start + size).unwrap();
            Some(Tile { range: id.seq, span, next: Offset(next) })
        };
        let mut tiles: Vec<Tile> = self.tiles.iter().filter_map(tile).collect();
        if self.tidy {
            tiles.sort_by_key(|tile| (tile.span.start(), tile.span.end()));
            let mut end = 0;
            tiles.retain(|tile| {
                let keep = tile.span.start() >= end;
                end = if keep { tile.span.end() } else { end };
                keep
            });
        }
        Commit { topic, group: vec![b'g', self.group].into(), tiles, at: WallTime(self.at) }
    }
}
