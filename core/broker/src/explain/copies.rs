//! Segments and how their copies are, by asking everybody who holds one.
//!
//! Owns the looks under way and what an answer says about a copy's health. Decides nothing and mends nothing: that is
//! `healing`'s, which asks by itself.
//!
//! - A look asks so many copies at one time, and there are so many looks at one time.
//! - Every answer comes, if only as that there will be none: a look ends by itself.

use std::collections::VecDeque;

use bytes::Bytes;
use metadata::vnode::Segment;
use storage::store::{self, Damage, Extent, FailReason, Report, State};
use types::{NodeId, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId};
use wire::Reason;
use wire::request::Depth;
use wire::response::{CopyHealth, CopyInfo, Explanation, SegmentInfo, SegmentPage};

use crate::action::Reply;
use crate::control::fitting;
use crate::copies::CopyAnswer;
use crate::event::{ConnectionId, RequestId};
use crate::node::{Node, Owner};

/// Looks at one time.
const LOOKS_MAX: usize = 8;
/// Copies that one look asks at one time.
const WINDOW: usize = 32;
/// Segments of a page whose copies are read through: more would take longer than anybody waits.
const VERIFIED_MAX: u32 = 4;
/// Most bytes said about one copy.
const DETAIL_BYTES_MAX: usize = 120;
/// Bytes of a page beside its segments.
const PAGE_BYTES: usize = 6 + 4 + 1;

/// Copies being looked at, and whom to tell.
#[derive(Debug)]
pub(super) struct Look {
    id: RequestId,
    topic: TopicId,
    page: SegmentPage,
    /// Exclusive end of what a copy of an active segment should hold, where that is known; as the page's.
    should_hold: Vec<Option<Offset>>,
    /// Not asked yet: places in the page.
    left: VecDeque<Spot>,
    asked: usize,
    depth: Depth,
    /// Told with it.
    explanation: Option<Box<Explanation>>,
}

/// One copy of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    segment: usize,
    copy: usize,
}

impl Look {
    pub(super) fn is_of(&self, connection: ConnectionId) -> bool {
        self.id.connection == connection
    }

    fn segment(&self, spot: Spot) -> Option<SegmentId> {
        let segment = self.page.segments.get(spot.segment)?;
        let range = RangeId { topic: self.topic, seq: RangeSeq(segment.range) };
        Some(SegmentId { range, seq: SegmentSeq(segment.segment) })
    }

    fn copy(&mut self, spot: Spot) -> Option<&mut CopyInfo> {
        self.page.segments.get_mut(spot.segment)?.copies.get_mut(spot.copy)
    }
}

impl Node {
    /// Answers with a page of a topic's segments; `None` when copies are asked first.
    pub(crate) fn list_segments(
        &mut self,
        id: RequestId,
        topic: Option<&Bytes>,
        from: (u64, u64),
        max: u32,
        depth: Depth,
    ) -> Result<Option<Reply>, Reason> {
        let topic = topic.and_then(|topic| self.topic(topic)).ok_or(Reason::NoSuchTopic)?;
        let vnode = self.core.meta.of(topic);
        let is_wanted = |segment: &SegmentId| (segment.range.seq.0, segment.seq.0) >= from;
        let ranges = vnode.ranges_of(topic).map(|(range, _)| range).filter(|range| range.seq.0 >= from.0);
        let listed = ranges.flat_map(|range| vnode.segments_of(range)).filter(|(id, _)| is_wanted(id));
        let infos = listed.map(|(id, segment)| info(id, segment));
        let max = if depth == Depth::Verify { max.clamp(1, VERIFIED_MAX) } else { max };
        let left = self.core.config.frame_bytes_max.saturating_sub(PAGE_BYTES);
        let (segments, more) = fitting(infos, max, left, bytes_at_most)?;
        self.look_at_copies(id, topic, SegmentPage { segments, more }, depth, None)
    }

    /// Tells an explanation with how the copies of a range's active segment are.
    pub(super) fn look_and_tell(
        &mut self,
        id: RequestId,
        range: RangeId,
        explanation: Explanation,
    ) -> Result<Option<Reply>, Reason> {
        let active = self.core.meta.of(range.topic).active_segment(range);
        let segments = active.map(|(id, segment)| info(id, segment)).into_iter().collect();
        let page = SegmentPage { segments, more: false };
        self.look_at_copies(id, range.topic, page, Depth::Copies, Some(Box::new(explanation)))
    }

    fn look_at_copies(
        &mut self,
        id: RequestId,
        topic: TopicId,
        page: SegmentPage,
        depth: Depth,
        explanation: Option<Box<Explanation>>,
    ) -> Result<Option<Reply>, Reason> {
        let spots = page
            .segments
            .iter()
            .enumerate()
            .flat_map(|(segment, info)| (0..info.copies.len()).map(move |copy| Spot { segment, copy }));
        let left: VecDeque<Spot> = if depth == Depth::Tables { VecDeque::new() } else { spots.collect() };
        let known = |info: &SegmentInfo| match info.end {
            Some(end) => Some(Offset(end)),
            None => self.known_end(RangeId { topic, seq: RangeSeq(info.range) }),
        };
        let should_hold = page.segments.iter().map(known).collect();
        let look = Look { id, topic, page, should_hold, left, asked: 0, depth, explanation };
        if look.left.is_empty() {
            return Ok(Some(reply(look)));
        }
        if self.explains.looks.len() >= LOOKS_MAX {
            return Err(Reason::Overloaded);
        }
        self.explains.next += 1;
        let number = self.explains.next;
        self.explains.looks.insert(number, look);
        self.look_on(number);
        Ok(None)
    }

    /// Asks as many as may be asked at one time, and tells when there is nobody left.
    fn look_on(&mut self, number: u64) {
        while let Some(look) = self.explains.looks.get_mut(&number).filter(|look| look.asked < WINDOW)
            && let Some(spot) = look.left.pop_front()
        {
            let Some(segment) = look.segment(spot) else { continue };
            let Some(holder) = look.copy(spot).map(|copy| copy.node) else { continue };
            look.asked += 1;
            self.ask_copy(holder, Owner::Look { number, spot }, store::Request::Inspect { segment });
        }
        let is_over = |look: &mut Look| look.asked == 0 && look.left.is_empty();
        if self.explains.looks.get_mut(&number).is_some_and(is_over)
            && let Some(look) = self.explains.looks.remove(&number)
        {
            let id = look.id;
            self.core.reply(id, reply(look));
        }
    }

    /// A copy answered, or will not.
    pub(crate) fn look_answered(&mut self, holder: NodeId, number: u64, spot: Spot, answer: CopyAnswer) {
        let Some(look) = self.explains.looks.get_mut(&number) else { return };
        look.asked -= 1;
        let should_hold = look.should_hold.get(spot.segment).copied().flatten();
        let Some(segment) = look.segment(spot) else { return };
        let Some(info) = look.page.segments.get(spot.segment) else { return };
        let (ended, bytes, start) = (info.end.is_some(), info.bytes, info.start);
        let is_to_verify = look.depth == Depth::Verify;
        let Some(copy) = look.copy(spot) else { return };
        match answer {
            CopyAnswer::Store(store::Reply::Inspected(extent)) => {
                let should = should_hold.map(|end| (end, ended.then_some(bytes)));
                inspected(copy, &extent, should);
                if is_to_verify && may_be_read(copy.health) {
                    look.asked += 1;
                    let request = store::Request::Verify { segment };
                    self.ask_copy(holder, Owner::Look { number, spot }, request);
                }
            }
            CopyAnswer::Store(store::Reply::Verified(report)) => verified(copy, start, &report),
            CopyAnswer::Store(store::Reply::Failed(error)) => failed(copy, &error),
            CopyAnswer::Store(_) => say(copy, CopyHealth::Unreachable, "an answer to another question"),
            CopyAnswer::Unreachable => say(copy, CopyHealth::Unreachable, "its node cannot be reached"),
            CopyAnswer::Unanswered => say(copy, CopyHealth::Unreachable, "its node did not answer"),
        }
        self.look_on(number);
    }
}

fn reply(look: Look) -> Reply {
    match look.explanation {
        Some(mut explanation) => {
            explanation.segment = look.page.segments.into_iter().next();
            Reply::Explained(explanation)
        }
        None => Reply::Segments(look.page),
    }
}

fn info(id: SegmentId, segment: &Segment) -> SegmentInfo {
    let unasked = |node: &NodeId| CopyInfo {
        node: *node,
        health: CopyHealth::Unasked,
        end: None,
        bytes: 0,
        detail: Bytes::new(),
    };
    SegmentInfo {
        range: id.range.seq.0,
        segment: id.seq.0,
        start: segment.start.0,
        end: segment.end().map(|end| end.0),
        bytes: segment.sealed_bytes(),
        copies: segment.replicas.iter().map(unasked).collect(),
    }
}

/// With what will be said about each copy.
fn bytes_at_most(info: &SegmentInfo) -> usize {
    info.encoded_len() + info.copies.len() * (8 + DETAIL_BYTES_MAX)
}

/// `should` is where the copy should end, with its bytes when the segment has ended.
fn inspected(copy: &mut CopyInfo, extent: &Extent, should: Option<(Offset, Option<u64>)>) {
    copy.end = Some(extent.end.0);
    copy.bytes = extent.bytes;
    let is_short = should.is_some_and(|(end, _)| extent.end < end);
    match extent.state {
        State::Latched(reason) => say(copy, CopyHealth::Latched, why(reason)),
        State::Stopped(reason) => say(copy, CopyHealth::Stopped, why(reason)),
        State::Active if extent.rebuilding => say(copy, CopyHealth::Rebuilding, ""),
        State::Active if is_short => say(copy, CopyHealth::Short, ""),
        State::Active => say(copy, CopyHealth::Intact, ""),
        State::Sealed => match should {
            Some((end, Some(bytes))) if (extent.end, extent.bytes) == (end, bytes) => {
                say(copy, CopyHealth::Settled, "");
            }
            Some((end, Some(_))) if extent.end < end => {
                say(copy, CopyHealth::Short, "sealed before the segment's end");
            }
            Some((_, Some(_))) => {
                say(copy, CopyHealth::Damaged, "sealed with other records than were recorded")
            }
            Some((_, None)) | None => {
                say(copy, CopyHealth::Intact, "sealed, which the tables do not say yet")
            }
        },
    }
}

fn verified(copy: &mut CopyInfo, start: u64, report: &Report) {
    let Report { records, bytes, damage } = *report;
    match damage {
        Some(damage) => say(copy, CopyHealth::Damaged, &place_of(&damage)),
        None if copy.end.is_some_and(|end| start.saturating_add(records) < end) => {
            say(copy, CopyHealth::Damaged, "fewer records than it says");
        }
        None => {
            let health = copy.health;
            say(copy, health, &format!("{records} records, {bytes} bytes are intact"));
        }
    }
}

fn failed(copy: &mut CopyInfo, error: &store::Error) {
    use store::Error as E;
    match error {
        E::NoSuchSegment => say(copy, CopyHealth::Missing, ""),
        E::Latched(reason) => say(copy, CopyHealth::Latched, why(*reason)),
        E::Damaged(damage) => say(copy, CopyHealth::Damaged, &place_of(damage)),
        E::Exists
        | E::Sealed { .. }
        | E::Fenced { .. }
        | E::OutOfSync { .. }
        | E::OutOfRange { .. }
        | E::EndOfData { .. }
        | E::CannotSeal { .. }
        | E::Storage(_)
        | E::Overloaded => say(copy, CopyHealth::Unreachable, &error.to_string()),
    }
}

fn may_be_read(health: CopyHealth) -> bool {
    match health {
        CopyHealth::Settled
        | CopyHealth::Intact
        | CopyHealth::Short
        | CopyHealth::Rebuilding
        | CopyHealth::Stopped
        | CopyHealth::Damaged => true,
        CopyHealth::Unasked | CopyHealth::Latched | CopyHealth::Missing | CopyHealth::Unreachable => false,
    }
}

fn say(copy: &mut CopyInfo, health: CopyHealth, detail: &str) {
    copy.health = health;
    let most = detail.len().min(DETAIL_BYTES_MAX);
    let end = (0..=most).rev().find(|at| detail.is_char_boundary(*at)).unwrap_or(0);
    copy.detail = Bytes::copy_from_slice(&detail.as_bytes()[..end]);
}

fn place_of(damage: &Damage) -> String {
    format!("damaged at byte {}, offset {}: {:?}", damage.position, damage.offset, damage.class)
}

pub(super) fn why(reason: FailReason) -> &'static str {
    match reason {
        FailReason::Enospc => "the volume was full",
        FailReason::Eio => "the device failed",
        FailReason::Erofs => "the volume is read-only",
        FailReason::Other => "damaged, or taken out of service",
    }
}
