//! All segment copies of one data directory.
//!
//! A pure machine: [`Request`]s and disk completions in, [`Action`]s out. It owns what a copy's bytes mean and
//! what has been decided about the copy; it knows nothing of quorums, other nodes or topics.
//!
//! - Copies are independent: a failure takes one copy out of service and no other (INV-27).
//! - Whatever a reply says is durable when the reply is made.
//! - A copy that nobody uses costs no descriptor and a few hundred bytes.

mod config;
mod copy;
mod desk;
mod flush;
mod gauges;
mod journal;
pub(crate) mod replay;
mod request;
mod spares;
mod start;

use std::collections::BTreeMap;
use std::time::Duration;

use types::{Instant, SegmentId, limits};

pub use config::Config;
pub use gauges::Gauges;
pub use request::{
    Action, Damage, DamageClass, Error, Extent, FailReason, Notice, Reply, Report, Request, RequestId, State,
    Status,
};

use self::copy::Copy;
use self::desk::{Desk, Owner};
use self::start::Start;
use crate::disk;
use crate::format::meta::Meta;

/// Durable ends recorded with each tick: an append arriving now waits for the syncs that these share.
const RECORDS_PER_TICK: usize = 32;
/// The same while copies are being opened: whoever reads many of them would wait for each of these ticks.
const RECORDS_PER_BUSY_TICK: usize = 4;

/// Copies whose `copy.meta` could not be read at the start that are tried again with each tick.
const UNREAD_PER_TICK: usize = 4;

/// The copies of one data directory.
#[derive(Debug)]
pub struct Store {
    desk: Desk,
    start: Start,
    copies: BTreeMap<SegmentId, Copy>,
}

impl Store {
    /// A store that has not looked at its directory yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { desk: Desk::new(config), start: Start::default(), copies: BTreeMap::new() }
    }

    /// Looks at the directory; ends with [`Action::Started`] or [`Action::StartFailed`]. Requests made before
    /// that are refused as [`Error::Overloaded`].
    pub fn start(&mut self, out: &mut Vec<Action>) {
        self.look();
        out.append(&mut self.desk.actions);
    }

    /// Sends what the requests and completions since the last call have gathered to the disk.
    ///
    /// Whoever drives the store calls this after each burst of calls: what is gathered in one burst shares a
    /// sync. Nothing that was appended moves before it.
    pub fn flush(&mut self, out: &mut Vec<Action>) {
        self.send_gathered();
        out.append(&mut self.desk.actions);
    }

    /// Takes a request. Its reply comes in these actions or in those of a later call, exactly once.
    pub fn request(&mut self, now: Instant, id: RequestId, request: Request, out: &mut Vec<Action>) {
        self.desk.now = now;
        self.dispatch(id, request);
        self.settle(out);
    }

    /// Takes the completion of a job.
    pub fn complete(&mut self, now: Instant, completion: disk::Completion, out: &mut Vec<Action>) {
        self.desk.now = now;
        let result = completion.result;
        match self.desk.owner_of(completion.job) {
            Some(Owner::Start(lookup)) => self.looked(lookup, result),
            Some(Owner::Flush { flight, segment, mark }) => {
                self.desk.landed(flight);
                self.with(segment, |copy, desk| copy.flush_done(desk, mark, result));
            }
            Some(Owner::Journal { flight, spot, covered }) => {
                self.desk.landed(flight);
                self.journal_done(spot, covered, result);
            }
            Some(Owner::MakeJournal(files)) => self.journal_made(files, result),
            Some(Owner::Piece(piece)) => self.piece_done(piece, result),
            Some(Owner::Read(segment, op)) => {
                self.with(segment, |copy, desk| copy.read_done(desk, op, result))
            }
            Some(Owner::Task(segment)) => {
                self.with(segment, |copy, desk| copy.task_done(desk, result));
                if !self.start.done {
                    self.brought_home(segment);
                }
            }
            Some(Owner::Nobody) | None => {}
        }
        self.settle(out);
    }

    /// Does what can wait: records the durable ends of copies that have been idle for a while, writes zeros ahead
    /// of need, reads again what could not be read. Call it a few times a second.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.desk.now = now;
        let idle = Duration::from_millis(limits::IDLE_RECORD_MS);
        let due = |(_, since): &(&SegmentId, &Instant)| now.since(**since) >= idle;
        let most = if self.desk.opening > 0 { RECORDS_PER_BUSY_TICK } else { RECORDS_PER_TICK };
        let due = self.desk.unrecorded.iter().filter(due).map(|(segment, _)| *segment).take(most);
        let due: Vec<SegmentId> = due.collect();
        for segment in due {
            self.desk.unrecorded.remove(&segment);
            self.with(segment, |copy, desk| copy.record_end(desk));
        }
        self.write_back();
        self.read_unread();
        self.write_ahead(true);
        self.settle(out);
    }

    /// Tries again to read some `copy.meta` files that could not be read.
    fn read_unread(&mut self) {
        for _ in 0..self.desk.unread.len().min(UNREAD_PER_TICK) {
            let Some(segment) = self.desk.unread.pop_front() else { return };
            let Some(copy) = self.copies.get_mut(&segment).filter(|copy| copy.is_unread()) else { continue };
            copy.read_again(&mut self.desk);
            self.desk.unread.push_back(segment);
        }
    }

    /// What there is of every copy, in order of segment; costs nothing but the walk.
    pub fn copies(&self) -> impl Iterator<Item = (SegmentId, Status)> {
        self.copies.iter().map(|(segment, copy)| (*segment, copy.status()))
    }

    /// What there is of one copy; `None` when it is not here.
    #[must_use]
    pub fn status(&self, segment: SegmentId) -> Option<Status> {
        self.copies.get(&segment).map(Copy::status)
    }

    fn dispatch(&mut self, id: RequestId, request: Request) {
        let segment = request.segment();
        if !self.start.done {
            return self.desk.reply(id, Reply::Failed(Error::Overloaded));
        }
        self.clear_the_way(&request);
        if let Some(copy) = self.copies.get_mut(&segment) {
            copy.request(&mut self.desk, id, request);
            return self.bury(segment);
        }
        match request {
            Request::Create { base, epoch, expect_full, rebuilding, .. } => {
                let meta = Meta { rebuilding, ..Meta::new(segment, base, self.desk.new_nonce(), epoch) };
                let copy = Copy::create(&mut self.desk, id, meta, expect_full);
                self.copies.insert(segment, copy);
            }
            Request::Delete { .. } => self.desk.reply(id, Reply::Deleted),
            Request::Append { .. }
            | Request::Read { .. }
            | Request::SeekTime { .. }
            | Request::Fence { .. }
            | Request::Seal { .. }
            | Request::Rebuilt { .. }
            | Request::Latch { .. }
            | Request::Verify { .. }
            | Request::Inspect { .. } => self.desk.reply(id, Reply::Failed(Error::NoSuchSegment)),
        }
    }

    /// A copy that nobody can read is in the way of one that is to be made in its place: like what a creation that
    /// failed has left, it is written over. Whoever asks for that has seen that it is not needed.
    fn clear_the_way(&mut self, request: &Request) {
        if let Request::Create { segment, base, rebuilding: true, .. } = request
            && self.status(*segment) == Some(Status::Unreadable)
        {
            self.copies.remove(segment);
            self.desk.journal.forget(*segment);
            self.desk.half_created.insert(*segment, *base);
        }
    }

    fn with(&mut self, segment: SegmentId, act: impl FnOnce(&mut Copy, &mut Desk)) {
        if let Some(copy) = self.copies.get_mut(&segment) {
            act(copy, &mut self.desk);
            self.bury(segment);
        }
    }

    /// Forgets a copy that is gone; what waited for it is answered, or begins its next life.
    fn bury(&mut self, segment: SegmentId) {
        if !self.copies.get(&segment).is_some_and(Copy::is_gone) {
            return;
        }
        let queue = self.copies.remove(&segment).map(Copy::into_queue).unwrap_or_default();
        for (id, request) in queue {
            self.dispatch(id, request);
        }
    }

    /// Brings what all copies share back within its limits and hands out the actions.
    fn settle(&mut self, out: &mut Vec<Action>) {
        while let Some((segment, base)) = self.desk.cache_surplus() {
            self.with(segment, |copy, _| copy.uncache(base));
        }
        for segment in self.desk.surplus() {
            self.with(segment, |copy, desk| copy.close(desk));
        }
        while self.desk.may_open() {
            let Some(segment) = self.desk.wanting.pop_front() else { break };
            self.with(segment, |copy, desk| copy.may_open_now(desk));
        }
        out.append(&mut self.desk.actions);
    }
}
