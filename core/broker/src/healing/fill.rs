//! Records carried from one copy to another.
//!
//! Owns how much is read and on its way at one time. Batches are handed on as they are; where they go is checked by
//! the copy that takes them, which knows its own end.

use std::collections::VecDeque;
use std::time::Duration;

use replication::sealing::Filled;
use storage::format::batch::Batch;
use storage::store::{self, Error, Reply};
use types::{Epoch, NodeId, Offset, SegmentId};

use super::What;
use super::seal::standing;
use crate::copies::CopyAnswer;
use crate::node::Node;

/// Bytes of one read; one batch may be larger.
const READ_BYTES: usize = 512 * 1024;
/// Appends on their way at one time.
const APPENDS_MAX: usize = 16;
/// How often a copy may say that it ends elsewhere.
const RESYNCS_MAX: u32 = 8;

/// Whom a filling is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A segment that is being ended.
    Seal { job: u64, round: u32 },
    /// A copy that is being made whole.
    Mend { job: u64 },
}

/// Records on their way.
#[derive(Debug)]
pub(super) struct Fill {
    segment: SegmentId,
    purpose: Purpose,
    from: NodeId,
    to: NodeId,
    /// Where the next read begins: everything below it is at the target, or was sent.
    at: Offset,
    /// Where it stops, exclusive.
    end: Offset,
    epoch: Epoch,
    /// Read and not sent.
    held: VecDeque<Batch>,
    in_flight: usize,
    /// The first thing that went wrong; what is in flight is waited for.
    failure: Option<Filled>,
    /// The target said that it ends there.
    resync: Option<Offset>,
    resyncs: u32,
    /// It waits for its turn.
    held_back: bool,
}

impl Fill {
    pub(super) fn new(
        segment: SegmentId,
        purpose: Purpose,
        (from, to): (NodeId, NodeId),
        (at, end): (Offset, Offset),
        epoch: Epoch,
    ) -> Self {
        Self {
            segment,
            purpose,
            from,
            to,
            at,
            end,
            epoch,
            held: VecDeque::new(),
            in_flight: 0,
            failure: None,
            resync: None,
            resyncs: 0,
            held_back: false,
        }
    }

    pub(super) fn is_held_back(&self) -> bool {
        self.held_back
    }

    /// Whether it goes behind what is urgent.
    fn is_bulk(&self) -> bool {
        matches!(self.purpose, Purpose::Mend { .. })
    }
}

impl Node {
    pub(super) fn begin_fill(&mut self, fill: Fill) {
        let number = self.healing.number();
        self.healing.fills.insert(number, fill);
        self.fill_on(number);
    }

    /// Goes on with what can be done now.
    fn fill_on(&mut self, number: u64) {
        let Some(fill) = self.healing.fills.get_mut(&number) else { return };
        let (segment, epoch, to, bulk) = (fill.segment, fill.epoch, fill.to, fill.is_bulk());
        if fill.failure.is_some() || fill.resync.is_some() {
            fill.held.clear();
        }
        let mut batches = Vec::new();
        while fill.in_flight < APPENDS_MAX
            && let Some(batch) = fill.held.pop_front()
        {
            fill.in_flight += 1;
            batches.push(batch);
        }
        let waits = fill.in_flight > 0 || !fill.held.is_empty();
        for batch in batches {
            let what = What::Append { fill: number, end: batch.header.end_offset() };
            self.heal_ask(to, what, bulk, store::Request::Append { segment, epoch, batches: vec![batch] });
        }
        if !waits {
            self.fill_next(number);
        }
    }

    /// Nothing is on its way: reads more, or ends.
    fn fill_next(&mut self, number: u64) {
        let now = self.core.now;
        let Some(fill) = self.healing.fills.get_mut(&number) else { return };
        if let Some(failure) = fill.failure {
            return self.fill_over(number, failure);
        }
        if let Some(at) = fill.resync.take() {
            fill.resyncs += 1;
            fill.at = at;
            if fill.resyncs > RESYNCS_MAX {
                return self.fill_over(number, Filled::TargetFailed);
            }
        }
        let (segment, bulk) = (fill.segment, fill.is_bulk());
        if fill.at >= fill.end {
            let (to, what) = (fill.to, What::Stands { fill: number });
            return self.heal_ask(to, what, bulk, store::Request::Inspect { segment });
        }
        fill.held_back = bulk && self.healing.pace_at > now;
        if fill.held_back {
            return;
        }
        let (from, at) = (fill.from, fill.at);
        let request = store::Request::Read { segment, from: at, bytes_max: READ_BYTES };
        self.heal_ask(from, What::Read { fill: number }, bulk, request);
    }

    /// Goes on with those that waited for their turn.
    pub(super) fn resume_fills(&mut self) {
        let held_back = self.healing.fills.iter().filter(|(_, fill)| fill.held_back);
        for number in held_back.map(|(number, _)| *number).collect::<Vec<_>>() {
            if self.healing.pace_at <= self.core.now {
                self.fill_next(number);
            }
        }
    }

    pub(super) fn fill_read(&mut self, number: u64, answer: CopyAnswer) {
        let now = self.core.now;
        let Some(fill) = self.healing.fills.get_mut(&number) else { return };
        let batches = match answer {
            CopyAnswer::Store(Reply::Read(batches)) => batches,
            CopyAnswer::Store(_) | CopyAnswer::Unreachable | CopyAnswer::Unanswered => {
                return self.fill_over(number, Filled::SourceFailed);
            }
        };
        let mut bytes = 0;
        for batch in batches {
            let (first, end) = (batch.header.base_offset, batch.header.end_offset());
            if first != fill.at || end > fill.end {
                break;
            }
            fill.at = end;
            bytes += batch.header.frame_len();
            fill.held.push_back(batch);
        }
        if fill.held.is_empty() {
            // Its batches lie otherwise than they should.
            return self.fill_over(number, Filled::SourceFailed);
        }
        if fill.is_bulk() {
            let rate = self.core.config.mend_bytes_per_second.max(1);
            let pause = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate);
            self.healing.pace_at = self.healing.pace_at.max(now).plus(pause);
        }
        self.fill_on(number);
    }

    pub(super) fn fill_appended(&mut self, number: u64, end: Offset, answer: CopyAnswer) {
        let Some(fill) = self.healing.fills.get_mut(&number) else { return };
        fill.in_flight -= 1;
        let failed = match answer {
            CopyAnswer::Store(Reply::Appended { .. }) => None,
            // Another fills it too, or it has more than was known: those after this one fail for the same reason.
            CopyAnswer::Store(Reply::Failed(Error::OutOfSync { end: at })) => {
                fill.resync = Some(at.max(fill.resync.unwrap_or_default()));
                None
            }
            CopyAnswer::Store(Reply::Failed(Error::Fenced { epoch })) => Some(Filled::Refused { epoch }),
            // It may end where it should: the copy is asked.
            CopyAnswer::Store(Reply::Failed(Error::Sealed { end: at })) if at == fill.end || at == end => {
                fill.resync = Some(at);
                None
            }
            CopyAnswer::Store(_) | CopyAnswer::Unreachable | CopyAnswer::Unanswered => {
                Some(Filled::TargetFailed)
            }
        };
        if fill.failure.is_none() {
            fill.failure = failed;
        }
        self.fill_on(number);
    }

    pub(super) fn fill_stands(&mut self, number: u64, answer: CopyAnswer) {
        let filled = match answer {
            CopyAnswer::Store(Reply::Inspected(extent)) => Filled::Whole(standing(&extent)),
            CopyAnswer::Store(_) | CopyAnswer::Unreachable | CopyAnswer::Unanswered => Filled::TargetFailed,
        };
        self.fill_over(number, filled);
    }

    fn fill_over(&mut self, number: u64, filled: Filled) {
        let Some(fill) = self.healing.fills.remove(&number) else { return };
        match fill.purpose {
            Purpose::Seal { job, round } => self.seal_filled(fill.segment, job, round, fill.to, filled),
            Purpose::Mend { job } => self.mend_filled(fill.segment, job, filled),
        }
    }
}
