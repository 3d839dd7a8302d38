//! Reading back: what a range and its ancestors hold of producers, from the frames of their ended segments.
//!
//! Owns how far back each line of descent was read, and the one read on its way for a range. Whoever needs to know more
//! asks for one more piece; the latest piece that was not read comes first, so that the horizon falls with each.
//!
//! - Frames before a place that was read are not later than the first frame read there: the times of a range, and of an
//!   ancestor before its children, never decrease.
//! - Bounded: so many bytes and reads for one range; beyond them the horizon stays where it is.

use metadata::vnode::Vnode;
use storage::format::batch::Batch;
use storage::store;
use types::{
    KeySpan, NodeId, Offset, ProducerEpoch, ProducerId, RangeId, SegmentId, Stamp, WallTime, limits,
};

use super::table::Mark;
use crate::copies::CopyAnswer;
use crate::node::{Node, Owner};
use crate::planted::Bug;

/// See the module. By itself it says that nothing was read and nothing can be.
#[derive(Debug)]
pub(crate) struct Unread {
    lines: Vec<Line>,
    asked: Option<Asked>,
    /// The last piece could not be read: whoever waits for it is told, and the next asks again.
    failed: bool,
    bytes_left: u64,
    reads_left: u32,
    /// Number of the segment that began it all: tells answers to earlier questions apart.
    turn: u64,
}

/// One range with what was not read of it: everything below `upto`, and its ancestors.
#[derive(Clone, Copy, Debug)]
struct Line {
    range: RangeId,
    upto: Offset,
    /// No frame of that is later.
    bound: WallTime,
    /// There is nothing more to be read: it expired, or would be too much.
    is_over: bool,
}

/// A piece on its way: the frames of a segment from `from` on, up to where its line was read.
#[derive(Clone, Debug)]
struct Asked {
    line: usize,
    segment: SegmentId,
    from: Offset,
    tried: Vec<NodeId>,
    /// Where the piece begins.
    first: Option<(Offset, WallTime)>,
}

impl Default for Unread {
    fn default() -> Self {
        let nowhere = RangeId { topic: types::TopicId(0), seq: types::RangeSeq(0) };
        let line = Line { range: nowhere, upto: Offset::ZERO, bound: WallTime(u64::MAX), is_over: true };
        Self { lines: vec![line], ..Self::nothing() }
    }
}

impl Unread {
    /// Everything is known.
    pub(super) fn nothing() -> Self {
        Self {
            lines: Vec::new(),
            asked: None,
            failed: false,
            bytes_left: limits::PRODUCER_READ_BYTES_MAX,
            reads_left: limits::PRODUCER_READS_MAX,
            turn: 0,
        }
    }

    /// A segment begins at `upto`, and nothing is known of what its range holds before, none of which is later than
    /// `bound`.
    pub(super) fn before(segment: SegmentId, upto: Offset, bound: WallTime) -> Self {
        let line = Line { range: segment.range, upto, bound, is_over: false };
        Self { lines: vec![line], turn: segment.seq.0, ..Self::nothing() }
    }

    /// No frame that was not read is later.
    pub(super) fn bound(&self) -> WallTime {
        self.lines.iter().map(|line| line.bound).max().unwrap_or_default()
    }

    /// Whether reading on would lower the bound.
    pub(super) fn has_more(&self) -> bool {
        let can = self.reads_left > 0 && self.bytes_left > 0;
        can && self.latest().is_some_and(|at| self.lines[at].bound == self.bound())
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// The line with the latest frames that were not read.
    fn latest(&self) -> Option<usize> {
        let readable = self.lines.iter().enumerate().filter(|(_, line)| !line.is_over);
        readable.max_by_key(|(_, line)| line.bound).map(|(at, _)| at)
    }
}

/// The piece of a line that is to be read next.
enum Next {
    /// From here on, in this segment.
    Piece(SegmentId, Offset),
    /// The line begins there: its ancestors come next.
    Beginning,
    /// What comes before is not there any more.
    Gone,
}

fn next_of(vnode: &Vnode, line: &Line) -> Next {
    if line.upto == Offset::ZERO {
        return Next::Beginning;
    }
    let before = vnode.segments_of(line.range).rev().find(|(_, segment)| segment.start < line.upto);
    let Some((id, segment)) = before.filter(|(_, segment)| segment.end() >= Some(line.upto)) else {
        return Next::Gone;
    };
    let (records, wanted) = (line.upto.since(segment.start), limits::PRODUCER_PIECE_BYTES);
    let length = segment.end().map_or(records, |end| end.since(segment.start)).max(1);
    let bytes = u128::from(segment.sealed_bytes()) * u128::from(records) / u128::from(length);
    let share = u128::from(records) * u128::from(wanted) / bytes.max(1);
    let share = u64::try_from(share).unwrap_or(u64::MAX).clamp(1, records);
    let from = Offset(line.upto.0 - share);
    Next::Piece(id, from.max(segment.start))
}

impl Node {
    /// Asks for one more piece, unless one is on its way.
    pub(super) fn read_back(&mut self, id: RangeId) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let unread = &mut range.producers.unread;
        if unread.asked.is_some() || !unread.has_more() {
            return;
        }
        let Some(at) = unread.latest() else { return };
        if let Next::Piece(segment, from) = next_of(self.core.meta.of(id.topic), &unread.lines[at]) {
            unread.asked = Some(Asked { line: at, segment, from, tried: Vec::new(), first: None });
            self.ask_back(id);
        }
    }

    /// Replaces lines that were read to their beginning by those of their ancestors; not while one of them is read.
    pub(super) fn skip_to_unread(&mut self, id: RangeId) {
        let forgets = self.core.config.has_bug(Bug::ForgetParents);
        let vnode = self.core.meta.of(id.topic);
        let own = vnode.range(id).map(|listed| listed.span);
        let Some(range) = self.ranges.get_mut(&id) else { return };
        if range.producers.unread.asked.is_some() {
            return;
        }
        let lines = &mut range.producers.unread.lines;
        let mut at = 0;
        while let Some(line) = lines.get(at).copied() {
            match next_of(vnode, &line) {
                _ if line.is_over => at += 1,
                Next::Piece(..) => at += 1,
                Next::Gone => lines[at].is_over = true,
                Next::Beginning => {
                    lines.swap_remove(at);
                    let parents = vnode.range(line.range).map(|listed| &listed.parents[..]);
                    for seq in parents.unwrap_or_default().iter().filter(|_| !forgets) {
                        let parent = RangeId { topic: id.topic, seq: *seq };
                        let Some(listed) = vnode.range(parent) else { continue };
                        // Of two children of one range both may be ancestors here; it is read once.
                        let is_new = lines.iter().all(|line| line.range != parent);
                        if is_new && own.is_some_and(|own| is_related(own, listed.span)) {
                            let upto = listed.sealed_end;
                            lines.push(Line { range: parent, upto, bound: line.bound, is_over: false });
                        }
                    }
                }
            }
        }
    }

    fn ask_back(&mut self, id: RangeId) {
        let Some(range) = self.ranges.get(&id) else { return };
        let unread = &range.producers.unread;
        let Some(Asked { segment, from, tried, .. }) = &unread.asked else { return };
        let (segment, from, turn) = (*segment, *from, unread.turn);
        let Some(holder) = self.next_holder(segment, from, tried) else { return self.read_back_failed(id) };
        let bytes_max = usize::try_from(limits::PRODUCER_PIECE_BYTES).unwrap_or(usize::MAX);
        let owner = Owner::Producers { range: id, turn };
        self.ask_copy(holder, owner, store::Request::Read { segment, from, bytes_max });
    }

    /// A copy answered, or did not.
    pub(crate) fn read_back_answered(&mut self, holder: NodeId, id: RangeId, turn: u64, answer: CopyAnswer) {
        let batches = if let store::Reply::Read(batches) = answer.or_failed() { batches } else { Vec::new() };
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let unread = &mut range.producers.unread;
        let Some(asked) = unread.asked.as_mut().filter(|_| unread.turn == turn) else { return };
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
            asked.tried.push(holder);
            return self.ask_back(id);
        };
        asked.first.get_or_insert((first.header.base_offset, first.header.append_time));
        asked.from = last.header.end_offset();
        let bytes = batches.iter().map(|batch| batch.header.frame_len()).sum();
        unread.bytes_left = unread.bytes_left.saturating_sub(bytes);
        unread.reads_left = unread.reads_left.saturating_sub(1);
        let line = unread.lines[asked.line];
        let is_whole = asked.from >= line.upto;
        if is_whole && let Some((upto, bound)) = asked.first {
            let line = &mut unread.lines[asked.line];
            (line.upto, line.bound) = (upto.min(line.upto), bound.min(line.bound));
            unread.asked = None;
        }
        self.learn(id, line.range, &batches);
        if is_whole {
            self.skip_to_unread(id);
            return self.append_waiting(id);
        }
        self.ask_back(id);
    }

    /// Frames of a range say what a descendant, or the range itself, has of their producers.
    fn learn(&mut self, id: RangeId, from: RangeId, batches: &[Batch]) {
        let vnode = self.core.meta.of(id.topic);
        let span_of = |id: RangeId| vnode.range(id).map(|range| range.span);
        let (Some(own), Some(theirs)) = (span_of(id), span_of(from)) else { return };
        let mark = if theirs.covers(own) { Mark::Whole } else { Mark::Part(theirs) };
        let Some(range) = self.ranges.get_mut(&id) else { return };
        for header in batches.iter().map(|batch| &batch.header) {
            let producer = header.producer;
            if producer.id == 0 {
                continue;
            }
            let stamp = Stamp {
                producer: ProducerId(producer.id),
                epoch: ProducerEpoch(producer.epoch),
                first: producer.first_sequence,
                settled: 0,
                born: header.append_time,
            };
            range.producers.table.note(&stamp, mark, header.append_time);
        }
    }

    /// No copy could be read: whoever waits is refused and may try again.
    fn read_back_failed(&mut self, id: RangeId) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let unread = &mut range.producers.unread;
        (unread.asked, unread.failed) = (None, true);
        self.append_waiting(id);
        if let Some(range) = self.ranges.get_mut(&id) {
            range.producers.unread.failed = false;
        }
    }
}

/// Whether two ranges have keys in common; slices are aligned blocks.
fn is_related(a: KeySpan, b: KeySpan) -> bool {
    a.covers(b) || b.covers(a)
}
