//! Ending a segment that its primary cannot end.
//!
//! Owns what the machine of `replication` asks for: fences, records carried, the seal in the tables. What follows from a
//! seal that is recorded is the same wherever it came from (`crate::elsewhere`).

use std::time::Duration;

use metadata::vnode::SealSegment;
use replication::sealing::{Answer, Ask, Filled, Sealing, Verdict};
use replication::standing::{Health, Standing};
use storage::store::{self, Extent, FailReason, State};
use types::{Epoch, Instant, NodeId, Offset, SegmentId, WallTime};

use super::fill::{Fill, Purpose};
use super::{Notice, SEALS_MAX, What};
use crate::action::{self, Cause};
use crate::copies::CopyAnswer;
use crate::meta;
use crate::node::Node;
use crate::planted::Bug;
use crate::segments::EPOCH_FIRST;

/// Pause before another try.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// Longest pause.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);
/// How long those that have not answered are waited for when enough have.
const ALL_WITHIN: Duration = Duration::from_millis(200);

/// A segment being ended.
#[derive(Debug)]
pub(super) struct Job {
    number: u64,
    sealing: Sealing,
    cause: Cause,
    /// Times it was given up before.
    tries: u32,
    /// Until then all that may answer are waited for; `None` once that is over.
    patient_until: Option<Instant>,
    /// The seal that is on its way to the tables.
    recording: Option<Verdict>,
    /// When the last record of any copy was appended, as far as they have said: the seal is not earlier.
    last_append: WallTime,
    /// Where the copy ends that reaches least far; for a bug only.
    shortest: Option<(Offset, u64)>,
}

/// One that was given up, to be tried again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resting {
    at: Instant,
    tries: u32,
    cause: Cause,
    epoch: Epoch,
}

/// How far the ending of a segment by this node is, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Others are ended first.
    Queued,
    /// Copies are asked, or records are carried; these have not answered.
    Asking(Vec<NodeId>),
    /// The end is on its way to the tables.
    Recording,
    /// Given up so often; it is tried again then.
    Resting { tries: u32, at: Instant },
}

impl super::Healing {
    /// How far the ending of a segment is; `None` when this node is not at it.
    pub(crate) fn ending_of(&self, segment: SegmentId) -> Option<Progress> {
        if let Some(job) = self.seals.get(&segment) {
            let asked = job.sealing.unanswered().collect();
            let recording = job.recording.is_some();
            return Some(if recording { Progress::Recording } else { Progress::Asking(asked) });
        }
        if let Some(resting) = self.resting.get(&segment) {
            return Some(Progress::Resting { tries: resting.tries, at: resting.at });
        }
        self.wanted.contains_key(&segment).then_some(Progress::Queued)
    }
}

impl Node {
    /// Ends a segment, whoever its primary is. Does nothing when that is under way, or when the tables say that it
    /// ended. What comes of it is seen in the tables.
    pub(crate) fn seal_segment(&mut self, segment: SegmentId, cause: Cause) {
        if self.healing.seals.contains_key(&segment) || self.healing.resting.contains_key(&segment) {
            return;
        }
        self.begin_seal(segment, cause, (0, EPOCH_FIRST.next()));
    }

    fn begin_seal(&mut self, segment: SegmentId, cause: Cause, (tries, epoch): (u32, Epoch)) {
        if self.healing.seals.len() >= SEALS_MAX {
            self.healing.wanted.insert(segment, cause);
            return;
        }
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        let Some(listed) = listed.filter(|listed| listed.is_active()) else { return };
        let mut sealing = Sealing::new(listed.start, listed.replicas.clone(), epoch).patient();
        let asks = sealing.begin();
        let number = self.healing.number();
        let patient_until = Some(self.core.now.plus(ALL_WITHIN));
        let (recording, shortest, last_append) = (None, None, WallTime::default());
        let job = Job { number, sealing, cause, tries, patient_until, recording, last_append, shortest };
        self.healing.seals.insert(segment, job);
        self.do_for_seal(segment, asks);
    }

    fn do_for_seal(&mut self, segment: SegmentId, asks: Vec<Ask>) {
        for ask in asks {
            let Some(job) = self.healing.seals.get_mut(&segment) else { return };
            let (number, round) = (job.number, job.sealing.round());
            match ask {
                Ask::Fence { node, epoch } => {
                    let what = What::Fence { segment, job: number, round, node };
                    self.heal_ask(node, what, false, store::Request::Fence { segment, epoch });
                }
                Ask::Make { node, epoch } => {
                    let what = What::Fence { segment, job: number, round, node };
                    let request = self.making(segment, epoch);
                    self.heal_ask(node, what, false, request);
                }
                Ask::Fill { from, to, at, end, epoch, round } => {
                    let purpose = Purpose::Seal { job: number, round };
                    self.begin_fill(Fill::new(segment, purpose, (from, to), (at, end), epoch));
                }
                Ask::Commit(verdict) => self.record_end(segment, verdict),
                Ask::GiveUp(short) => {
                    let (counted, needed) = (short.counted, short.needed);
                    if job.tries.is_power_of_two() {
                        self.tell(Notice::Unavailable { segment, counted, needed });
                    }
                    self.seal_later(segment);
                }
            }
        }
    }

    /// The request that makes a copy that has to be filled.
    pub(super) fn making(&self, segment: SegmentId, epoch: Epoch) -> store::Request {
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        let base = listed.map(|listed| listed.start).unwrap_or_default();
        store::Request::Create { segment, base, epoch, expect_full: false, rebuilding: true }
    }

    pub(super) fn tell(&mut self, notice: Notice) {
        self.core.notice(action::Notice::Healing(notice));
    }

    /// A copy of a segment that is being ended answered.
    pub(super) fn fence_answered(
        &mut self,
        (segment, number): (SegmentId, u64),
        round: u32,
        node: NodeId,
        answer: CopyAnswer,
    ) {
        let counts_nothing = self.core.config.has_bug(Bug::CountNothing);
        let counts_latched = self.core.config.has_bug(Bug::CountLatched);
        let seals_short = self.core.config.has_bug(Bug::SealShortest);
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        let base = listed.map(|listed| listed.start).unwrap_or_default();
        let Some(job) = self.healing.seals.get_mut(&segment).filter(|job| job.number == number) else {
            return;
        };
        if let CopyAnswer::Store(store::Reply::Fenced(extent)) = &answer {
            job.last_append = job.last_append.max(extent.last_append.unwrap_or_default());
        }
        let answer = answer_of(answer);
        let answer = if counts_nothing { planted_nothing(base, answer) } else { answer };
        let answer = if counts_latched { planted_latched(answer) } else { answer };
        if let (Answer::Fenced(standing), true) = (answer, seals_short) {
            let stands = (standing.end, standing.bytes);
            job.shortest = Some(job.shortest.map_or(stands, |least| least.min(stands)));
        }
        let asks = job.sealing.answered(round, node, answer);
        self.do_for_seal(segment, asks);
    }

    /// Records were carried for a segment that is being ended, or not.
    pub(super) fn seal_filled(
        &mut self,
        segment: SegmentId,
        number: u64,
        round: u32,
        to: NodeId,
        filled: Filled,
    ) {
        let Some(job) = self.healing.seals.get_mut(&segment).filter(|job| job.number == number) else {
            return;
        };
        let asks = job.sealing.filled(round, to, filled);
        self.do_for_seal(segment, asks);
    }

    fn record_end(&mut self, segment: SegmentId, verdict: Verdict) {
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        let Some(start) = listed.map(|listed| listed.start) else { return self.seal_over(segment) };
        let Some(job) = self.healing.seals.get_mut(&segment) else { return };
        let (end, byte_size) = job.shortest.unwrap_or((verdict.end, verdict.bytes));
        let length = end.since(start);
        job.recording = Some(verdict);
        // The clock that its records were stamped by may be ahead of this one; what follows them is to be later.
        let sealed_at = self.core.wall.max(job.last_append);
        self.core.end_segment(SealSegment { segment, length, byte_size, lost: 0, sealed_at });
    }

    /// The tables took the end of a segment, or did not.
    pub(crate) fn end_recorded(&mut self, segment: SegmentId, result: Result<(), meta::Error>) {
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        match (listed.map(|listed| listed.end()), result) {
            // Whichever end is recorded holds: another may have been first.
            (Some(Some(_)), Ok(()) | Err(_)) => self.segment_ended(segment),
            (Some(None), Ok(()) | Err(_)) => self.seal_later(segment),
            (None, Ok(()) | Err(_)) => self.segment_gone(segment),
        }
    }

    /// The tables say that a segment ended, whoever had it recorded. What this node remembers of it is put right.
    fn segment_ended(&mut self, segment: SegmentId) {
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        let Some((start, end)) = listed.and_then(|listed| Some((listed.start, listed.end()?))) else {
            return;
        };
        let listed_lost = listed.map(metadata::vnode::Segment::lost).unwrap_or_default();
        self.ended_by(segment);
        self.sealed_elsewhere(segment);
        if end == start && listed_lost == 0 {
            self.core.delete_segment(segment);
        }
    }

    /// A segment ended: nobody has to end it any more, and its copies are looked at.
    pub(crate) fn ended_by(&mut self, segment: SegmentId) {
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        let end = listed.and_then(metadata::vnode::Segment::end).unwrap_or_default();
        let job = self.healing.seals.get(&segment);
        if let Some(Job { recording: Some(verdict), cause, .. }) = job {
            let (whole, cause) = (verdict.whole, *cause);
            self.core.notice(action::Notice::SegmentSealed { segment, end, cause });
            self.tell(Notice::Sealed { segment, end, whole });
        }
        self.seal_over(segment);
        self.mend_soon(segment);
    }

    /// The tables do not list a segment any more: it ended, and was deleted.
    fn segment_gone(&mut self, segment: SegmentId) {
        self.seal_over(segment);
        self.sealed_elsewhere(segment);
    }

    fn seal_over(&mut self, segment: SegmentId) {
        self.healing.seals.remove(&segment);
        self.healing.wanted.remove(&segment);
        self.healing.resting.remove(&segment);
        self.seal_more();
    }

    fn seal_more(&mut self) {
        while self.healing.seals.len() < SEALS_MAX
            && let Some((next, cause)) = self.healing.wanted.pop_first()
        {
            self.seal_segment(next, cause);
        }
    }

    fn seal_later(&mut self, segment: SegmentId) {
        let Some(job) = self.healing.seals.remove(&segment) else { return };
        let tries = job.tries.saturating_add(1);
        let at = self.core.now.plus(RETRY_AFTER.saturating_mul(tries).min(RETRY_AFTER_MAX));
        self.healing
            .resting
            .insert(segment, Resting { at, tries, cause: job.cause, epoch: job.sealing.epoch() });
        self.seal_more();
    }

    /// Begins again with those that were given up and are due, and goes on with those that have waited for all.
    pub(super) fn retry_seals(&mut self) {
        let now = self.core.now;
        let is_over = |job: &Job| job.patient_until.is_some_and(|until| until <= now);
        let over = self.healing.seals.iter().filter(|(_, job)| is_over(job)).map(|(segment, _)| *segment);
        for segment in over.collect::<Vec<_>>() {
            let Some(job) = self.healing.seals.get_mut(&segment) else { continue };
            job.patient_until = None;
            let asks = job.sealing.go_on();
            self.do_for_seal(segment, asks);
        }
        let due = self.healing.resting.iter().filter(|(_, resting)| resting.at <= now);
        for (segment, resting) in due.map(|(segment, resting)| (*segment, *resting)).collect::<Vec<_>>() {
            let listed = self.core.meta.of(segment.range.topic).segment(segment);
            match listed.map(metadata::vnode::Segment::is_active) {
                Some(true) if self.healing.seals.len() >= SEALS_MAX => return,
                Some(true) => {
                    self.healing.resting.remove(&segment);
                    self.begin_seal(segment, resting.cause, (resting.tries, resting.epoch));
                }
                Some(false) => self.segment_ended(segment),
                None => self.segment_gone(segment),
            }
        }
    }

    /// A node is back: what waits may go on.
    pub(super) fn retry_seals_soon(&mut self) {
        let now = self.core.now;
        self.healing.resting.values_mut().for_each(|resting| resting.at = now);
    }

    pub(super) fn next_seal(&self) -> Option<Instant> {
        // While there is no room for more, whatever makes room goes on with them.
        let has_room = self.healing.seals.len() < SEALS_MAX;
        let resting = self.healing.resting.values().map(|resting| resting.at).min().filter(|_| has_room);
        let patient = self.healing.seals.values().filter_map(|job| job.patient_until).min();
        resting.into_iter().chain(patient).min()
    }
}

/// With a bug: what is not there, or was made anew, never held anything.
fn planted_nothing(base: Offset, answer: Answer) -> Answer {
    let open = Standing { end: base, bytes: 0, epoch: EPOCH_FIRST.next(), health: Health::Open };
    match answer {
        Answer::Made => Answer::Fenced(open),
        Answer::Fenced(standing) if standing.health == Health::Rebuilding => {
            Answer::Fenced(Standing { health: Health::Open, ..standing })
        }
        Answer::Fenced(_)
        | Answer::Refused { .. }
        | Answer::Missing
        | Answer::Exists
        | Answer::Unreadable
        | Answer::Silent => answer,
    }
}

/// With a bug: whatever happened to a copy, it is as good as any.
fn planted_latched(answer: Answer) -> Answer {
    match answer {
        Answer::Fenced(standing) if matches!(standing.health, Health::Damaged | Health::OutOfService) => {
            Answer::Fenced(Standing { health: Health::Stopped, ..standing })
        }
        Answer::Fenced(_)
        | Answer::Made
        | Answer::Refused { .. }
        | Answer::Missing
        | Answer::Exists
        | Answer::Unreadable
        | Answer::Silent => answer,
    }
}

fn answer_of(answer: CopyAnswer) -> Answer {
    use store::{Error as E, Reply as R};
    match answer {
        CopyAnswer::Store(R::Fenced(extent)) => Answer::Fenced(standing(&extent)),
        CopyAnswer::Store(R::Created) => Answer::Made,
        CopyAnswer::Store(R::Failed(E::NoSuchSegment)) => Answer::Missing,
        CopyAnswer::Store(R::Failed(E::Exists)) => Answer::Exists,
        CopyAnswer::Store(R::Failed(E::Fenced { epoch })) => Answer::Refused { epoch },
        CopyAnswer::Store(R::Failed(E::Damaged(_))) => Answer::Unreadable,
        CopyAnswer::Store(_) | CopyAnswer::Unreachable | CopyAnswer::Unanswered => Answer::Silent,
    }
}

/// A copy as `replication` sees it.
pub(super) fn standing(extent: &Extent) -> Standing {
    let health = match extent.state {
        State::Latched(FailReason::Other) => Health::Damaged,
        State::Latched(FailReason::Enospc | FailReason::Eio | FailReason::Erofs) => Health::OutOfService,
        State::Sealed => Health::Sealed,
        State::Active | State::Stopped(_) if extent.rebuilding => Health::Rebuilding,
        State::Active => Health::Open,
        State::Stopped(_) => Health::Stopped,
    };
    Standing { end: extent.end, bytes: extent.bytes, epoch: extent.epoch, health }
}
