//! The primary of one segment: who has what, who gets what next, what is committed.
//!
//! Owns the followers' places, the batches that are not settled yet, and the quorum. Does not give out offsets, keep
//! time by itself, or decide that a segment ends: it says how the copies stand, and the node decides.
//!
//! A batch comes to a follower *live*, out of memory, when it is exactly the next one there; a follower that lacks
//! more gets it read from the primary's own copy, in pieces. Nothing is queued for anybody beyond the window.
//!
//! Invariants:
//! - `committed` is the highest end that a quorum of copies durably holds, and never decreases;
//! - a copy counts with what it answered itself, and not while it is being rebuilt;
//! - batches are kept until a quorum has them and the primary's own copy can give them back.

use std::collections::VecDeque;
use std::time::Duration;

use types::{Instant, Offset};

use crate::follower::{Follower, Lane, Out, Stand, Window};
use crate::marks::Marks;
use crate::quorum::Quorum;

/// Times in a row a follower may be out of step before it is given a moment.
const MISSTEPS_MAX: u32 = 8;

/// How a primary treats its followers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What may be on its way to each.
    pub window: Window,
    /// Most bytes read from the own copy at one time.
    pub read_bytes: usize,
    /// Pause before one is asked again that did not answer.
    pub retry_after: Duration,
}

/// What is asked of a follower beside appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// To make its copy.
    Create {
        /// One was there before.
        rebuilding: bool,
    },
    /// Where its copy stands.
    Inspect,
    /// To take note that its copy is whole.
    Rebuilt,
}

/// What a follower said, or that it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its copy was made.
    Created,
    /// There is a copy already.
    Exists,
    /// There is no copy.
    Missing,
    /// It durably holds everything below `end`.
    Appended {
        /// Exclusive.
        end: Offset,
    },
    /// An append has to begin at `end`.
    OutOfSync {
        /// Accepted there, and not necessarily durable.
        end: Offset,
    },
    /// It refuses this epoch, or its copy is sealed.
    Superseded,
    /// Where its copy stands.
    Stands {
        /// Exclusive durable end.
        end: Offset,
        /// It does not count.
        rebuilding: bool,
        /// It takes appends.
        takes: bool,
    },
    /// It counts.
    Rebuilt,
    /// Its copy is out of service.
    Failed,
    /// It did not look at it: too much waits there.
    Busy,
    /// It was never sent.
    Unreachable,
    /// It was sent; nobody knows what became of it.
    Unanswered,
}

/// A batch, as far as its place goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset of its first record.
    pub from: Offset,
    /// Exclusive.
    pub end: Offset,
    /// Bytes of its frame.
    pub bytes: u64,
}

/// What has to be done about the followers. Each is counted in the order of the replica set, in which the primary is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<B> {
    /// Ask a follower; its answer goes to [`Primary::answered`] with the round.
    Ask {
        /// Who.
        follower: usize,
        /// Echoed.
        round: u32,
        /// What.
        ask: Ask,
    },
    /// Send a follower a batch, live.
    Send {
        /// Who.
        follower: usize,
        /// Echoed.
        round: u32,
        /// What.
        batch: B,
    },
    /// Read the own copy for a follower; the outcome goes to [`Primary::read`] with the round.
    Read {
        /// Who.
        follower: usize,
        /// Echoed.
        round: u32,
        /// First offset.
        from: Offset,
        /// Most bytes.
        bytes_max: usize,
    },
}

/// How the copies stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Somebody else ends the segment.
    pub superseded: bool,
    /// A follower's copy is out of service.
    pub failed: bool,
    /// Copies that are there, the primary's included.
    pub there: usize,
    /// The longest time that one of the followers has lacked something.
    pub behind: Duration,
    /// The same of the own copy: others acknowledge, and readers wait.
    pub own_behind: Duration,
}

/// What a follower is at, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Its copy is being made.
    Making,
    /// It was asked where its copy stands.
    Asking,
    /// It takes what it is sent.
    Following,
    /// It takes what it is sent, into a copy that does not count yet.
    Rebuilding,
    /// It did not answer, and is asked again.
    Away,
    /// Its copy is out of service.
    Failed,
    /// It acts under a later epoch, or its copy is sealed.
    Superseded,
}

#[derive(Clone, Debug)]
struct Held<B> {
    piece: Piece,
    batch: B,
}

/// A segment's primary.
#[derive(Clone, Debug)]
pub struct Primary<B> {
    rules: Rules,
    base: Offset,
    appended_end: Offset,
    /// Exclusive end of what the own copy durably holds; `None` until it is there.
    synced_end: Option<Offset>,
    followers: Vec<Follower>,
    quorum: Quorum,
    /// In order, without gaps, up to `appended_end`; empty without followers.
    held: VecDeque<Held<B>>,
    held_bytes: u64,
    /// Of what was given out.
    marks: Marks,
    /// What was committed when the own copy last had everything that was committed before, and when that was.
    own_mark: (Offset, Instant),
}

impl<B: Clone> Primary<B> {
    /// Of a segment that begins at `base` and has so many copies.
    #[must_use]
    pub fn new(now: Instant, rules: Rules, base: Offset, replicas: usize) -> Self {
        Self {
            rules,
            base,
            appended_end: base,
            synced_end: None,
            followers: (1..replicas).map(|_| Follower::new(base, now)).collect(),
            quorum: Quorum::new(replicas),
            held: VecDeque::new(),
            held_bytes: 0,
            marks: Marks::default(),
            own_mark: (base, now),
        }
    }

    /// Whether there are other copies.
    #[must_use]
    pub fn has_followers(&self) -> bool {
        !self.followers.is_empty()
    }

    /// Bytes kept in memory because a quorum, or the own copy, does not have them yet.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Exclusive end of what a quorum durably holds; `None` until a quorum of copies is there.
    #[must_use]
    pub fn committed(&self) -> Option<Offset> {
        self.quorum.committed()
    }

    /// Exclusive end of what is committed and can be read from the own copy.
    #[must_use]
    pub fn readable_end(&self) -> Offset {
        self.committed().min(self.synced_end).unwrap_or(self.base)
    }

    /// Whether the own copy durably holds everything that was given out, and a quorum does.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.readable_end() == self.appended_end && self.synced_end.is_some()
    }

    /// Has every follower make its copy.
    pub fn begin(&mut self, out: &mut Vec<Action<B>>) {
        for (index, follower) in self.followers.iter().enumerate() {
            out.push(ask(index, follower, Ask::Create { rebuilding: false }));
        }
    }

    /// The own copy is there, and empty.
    pub fn own_created(&mut self) {
        self.synced_end = Some(self.base);
        self.quorum.report(0, self.base);
    }

    /// A batch was given its place, behind the one before. `batch` is asked for only when somebody may need it.
    pub fn appended(&mut self, piece: Piece, batch: impl FnOnce() -> B, out: &mut Vec<Action<B>>) {
        assert!(piece.from == self.appended_end && piece.end > piece.from, "offsets are given out in order");
        self.appended_end = piece.end;
        if self.followers.is_empty() {
            return;
        }
        self.held_bytes += piece.bytes;
        self.marks.note(piece.end, piece.bytes);
        self.held.push_back(Held { piece, batch: batch() });
        for index in 0..self.followers.len() {
            self.feed(index, out);
        }
    }

    /// The own copy durably holds everything below `end`.
    pub fn own_synced(&mut self, now: Instant, end: Offset, out: &mut Vec<Action<B>>) {
        assert!(end <= self.appended_end, "the copy holds what it was given");
        self.synced_end = self.synced_end.max(Some(end));
        self.quorum.report(0, end);
        if self.followers.is_empty() {
            return;
        }
        self.advanced(now);
        for index in 0..self.followers.len() {
            self.feed(index, out);
        }
    }

    /// A follower can be reached again. Whatever it said before, its process may be another one now.
    pub fn up(&mut self, now: Instant, follower: usize, out: &mut Vec<Action<B>>) {
        let Some(index) = self.index(follower) else { return };
        if !matches!(self.followers[index].stand, Stand::Out(_)) {
            self.inquire(now, index, out);
        }
    }

    /// A follower cannot be reached.
    pub fn down(&mut self, now: Instant, follower: usize) {
        let Some(index) = self.index(follower) else { return };
        if !matches!(self.followers[index].stand, Stand::Out(_)) {
            self.away(now, index);
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Action<B>>) {
        for index in 0..self.followers.len() {
            let due = matches!(self.followers[index].stand, Stand::Away { retry_at } if retry_at <= now);
            if due {
                self.inquire(now, index, out);
            }
            self.feed(index, out);
            self.probe(index, out);
        }
        self.advanced(now);
    }

    /// How the copies stand.
    #[must_use]
    pub fn standing(&self, now: Instant) -> Standing {
        let committed = self.committed().unwrap_or(self.base);
        let is_out = |why| self.followers.iter().any(|follower| follower.stand == Stand::Out(why));
        let behind = self.followers.iter().filter_map(|follower| follower.behind_since(committed)).min();
        Standing {
            superseded: is_out(Out::Superseded),
            failed: is_out(Out::Failed),
            there: 1 + self.followers.iter().filter(|follower| follower.is_there()).count(),
            behind: behind.map_or(Duration::ZERO, |since| now.since(since)),
            own_behind: if self.synced_end.unwrap_or(self.base) < self.own_mark.0.min(committed) {
                now.since(self.own_mark.1)
            } else {
                Duration::ZERO
            },
        }
    }

    /// What a follower is at; `None` for a number that is no follower's.
    #[must_use]
    pub fn doing(&self, follower: usize) -> Option<Doing> {
        let follower = &self.followers[self.index(follower)?];
        Some(match follower.stand {
            Stand::Making => Doing::Making,
            Stand::Asking => Doing::Asking,
            Stand::Following if follower.rebuilding => Doing::Rebuilding,
            Stand::Following => Doing::Following,
            Stand::Away { .. } => Doing::Away,
            Stand::Out(Out::Failed) => Doing::Failed,
            Stand::Out(Out::Superseded) => Doing::Superseded,
        })
    }

    /// Which followers have lacked something for so long, do not answer, or lack more than so many bytes.
    pub fn behind(&self, now: Instant, longer: Duration, bytes_max: u64) -> impl Iterator<Item = usize> {
        let committed = self.committed().unwrap_or(self.base);
        let late = move |follower: &Follower| {
            let long = follower.behind_since(committed).is_some_and(|since| now.since(since) >= longer);
            long || self.marks.behind(follower.held) > bytes_max
        };
        self.followers
            .iter()
            .enumerate()
            .filter(move |(_, follower)| late(follower))
            .map(|(index, _)| index + 1)
    }

    /// Which followers have a copy that is out of service.
    pub fn failed(&self) -> impl Iterator<Item = usize> {
        let is_out = |follower: &Follower| follower.stand == Stand::Out(Out::Failed);
        self.followers
            .iter()
            .enumerate()
            .filter(move |(_, follower)| is_out(follower))
            .map(|(index, _)| index + 1)
    }

    /// Copies of the set, the own one included.
    #[must_use]
    pub fn replicas(&self) -> usize {
        self.quorum.replicas()
    }

    /// Exclusive end of what a copy is known to hold, counted in the order of the set.
    #[must_use]
    pub fn matched(&self, replica: usize) -> Option<Offset> {
        self.quorum.matched(replica)
    }

    /// A follower answered, or did not.
    pub fn answered(
        &mut self,
        now: Instant,
        follower: usize,
        round: u32,
        answer: Answer,
        out: &mut Vec<Action<B>>,
    ) {
        let Some(index) = self.index(follower).filter(|index| self.followers[*index].round == round) else {
            return;
        };
        if matches!(self.followers[index].stand, Stand::Out(_)) {
            return;
        }
        match answer {
            Answer::Created => self.created(now, index),
            Answer::Exists => self.inquire(now, index, out),
            Answer::Missing => self.missing(now, index, out),
            Answer::Appended { end } => self.holds(now, index, end),
            Answer::OutOfSync { end } => self.out_of_sync(now, index, end),
            Answer::Superseded => self.out(now, index, Out::Superseded),
            Answer::Stands { takes: false, .. } | Answer::Failed => self.out(now, index, Out::Failed),
            Answer::Stands { end, rebuilding, takes: true } => self.stands(now, index, end, rebuilding),
            Answer::Rebuilt => self.rebuilt(now, index),
            Answer::Busy | Answer::Unreachable | Answer::Unanswered => self.away(now, index),
        }
        self.feed(index, out);
        self.advanced(now);
    }

    /// What was read for a follower: batches in order, the first of which holds the offset asked for; or none, when
    /// the read failed. Gives how many of them to send, and how.
    pub fn read(&mut self, now: Instant, follower: usize, round: u32, pieces: &[Piece]) -> (usize, Lane) {
        let Some(index) = self.index(follower).filter(|index| self.followers[*index].round == round) else {
            return (0, Lane::Bulk);
        };
        let (window, retry_at) = (self.rules.window, now.plus(self.rules.retry_after));
        let near = pieces.last().is_some_and(|last| Some(last.end) >= self.synced_end);
        let follower = &mut self.followers[index];
        follower.reading = false;
        if pieces.first().is_none_or(|first| first.from != follower.next) {
            // The own copy did not give it. Whether that copy is still good is for the node to find out.
            follower.begin_round(follower.held);
            follower.stands(Stand::Away { retry_at }, now);
            return (0, Lane::Bulk);
        }
        // What closes the gap goes with what comes live behind it; both lanes at once would overtake each other.
        let lane = follower.lane().unwrap_or(if near { Lane::Live } else { Lane::Bulk });
        let mut count = 0;
        for piece in pieces {
            if piece.from != follower.next || !follower.has_room(window, lane, piece.bytes) {
                break;
            }
            follower.sends(lane, piece.end, piece.bytes);
            count += 1;
        }
        (count, lane)
    }

    /// Goes on feeding a follower after what was read for it was sent.
    pub fn go_on(&mut self, follower: usize, out: &mut Vec<Action<B>>) {
        if let Some(index) = self.index(follower) {
            self.feed(index, out);
        }
    }

    fn index(&self, follower: usize) -> Option<usize> {
        follower.checked_sub(1).filter(|index| *index < self.followers.len())
    }

    /// Asks a follower where it stands.
    fn inquire(&mut self, now: Instant, index: usize, out: &mut Vec<Action<B>>) {
        let follower = &mut self.followers[index];
        follower.begin_round(follower.held);
        follower.stands(Stand::Asking, now);
        out.push(ask(index, follower, Ask::Inspect));
    }

    fn away(&mut self, now: Instant, index: usize) {
        let retry_at = now.plus(self.rules.retry_after);
        let follower = &mut self.followers[index];
        follower.begin_round(follower.held);
        follower.stands(Stand::Away { retry_at }, now);
    }

    fn out(&mut self, now: Instant, index: usize, why: Out) {
        let follower = &mut self.followers[index];
        follower.begin_round(follower.held);
        follower.stands(Stand::Out(why), now);
    }

    fn created(&mut self, now: Instant, index: usize) {
        let follower = &mut self.followers[index];
        if follower.stand != Stand::Making {
            return;
        }
        follower.made = true;
        (follower.next, follower.held) = (self.base, self.base);
        follower.stands(Stand::Following, now);
        if !follower.rebuilding {
            self.quorum.report(index + 1, self.base);
        }
    }

    /// There is no copy where there was one, or where one was asked for.
    fn missing(&mut self, now: Instant, index: usize, out: &mut Vec<Action<B>>) {
        let follower = &mut self.followers[index];
        if follower.stand == Stand::Making {
            // One is being removed.
            return self.away(now, index);
        }
        follower.rebuilding = follower.made;
        follower.held = self.base;
        follower.begin_round(self.base);
        follower.stands(Stand::Making, now);
        self.quorum.forget(index + 1);
        out.push(ask(index, follower, Ask::Create { rebuilding: follower.rebuilding }));
    }

    fn holds(&mut self, now: Instant, index: usize, end: Offset) {
        let follower = &mut self.followers[index];
        if end > follower.next || end < self.base {
            return self.out(now, index, Out::Failed);
        }
        follower.holds(end);
        if !follower.rebuilding {
            self.quorum.report(index + 1, end);
        }
    }

    /// It goes on from there. What it has accepted is counted once it says that it is durable.
    fn out_of_sync(&mut self, now: Instant, index: usize, end: Offset) {
        if end < self.base || end > self.appended_end {
            return self.out(now, index, Out::Failed);
        }
        let follower = &mut self.followers[index];
        follower.missteps += 1;
        if follower.missteps > MISSTEPS_MAX {
            follower.missteps = 0;
            return self.away(now, index);
        }
        follower.begin_round(end);
    }

    fn stands(&mut self, now: Instant, index: usize, end: Offset, rebuilding: bool) {
        let follower = &mut self.followers[index];
        let probed = std::mem::take(&mut follower.probing);
        // A copy that holds less than it acknowledged is not the copy it was.
        let lost = !rebuilding && end < self.quorum.matched(index + 1).unwrap_or(self.base);
        if lost || end < self.base || end > self.appended_end || (probed && end > follower.next) {
            return self.out(now, index, Out::Failed);
        }
        if rebuilding {
            self.quorum.forget(index + 1);
        }
        (follower.made, follower.rebuilding) = (true, rebuilding);
        if !probed {
            follower.held = end;
            follower.next = end;
            follower.stands(Stand::Following, now);
        }
        self.holds(now, index, end);
    }

    fn rebuilt(&mut self, now: Instant, index: usize) {
        let follower = &mut self.followers[index];
        (follower.rebuilding, follower.telling) = (false, false);
        let held = follower.held;
        self.holds(now, index, held);
    }

    /// Asks a follower that has nothing more to get how far it is, if that is not known.
    fn probe(&mut self, index: usize, out: &mut Vec<Action<B>>) {
        let follower = &mut self.followers[index];
        let unsure = follower.stand == Stand::Following
            && follower.is_quiet()
            && follower.held < follower.next
            && !(follower.reading || follower.probing || follower.telling);
        if unsure {
            follower.probing = true;
            out.push(ask(index, follower, Ask::Inspect));
        }
    }

    /// Sends a follower what it may get now.
    fn feed(&mut self, index: usize, out: &mut Vec<Action<B>>) {
        let window = self.rules.window;
        let follower = &mut self.followers[index];
        if follower.stand != Stand::Following {
            return;
        }
        if follower.rebuilding && !follower.telling && Some(follower.held) >= self.quorum.committed() {
            follower.telling = true;
            out.push(ask(index, follower, Ask::Rebuilt));
        }
        let first = self.held.partition_point(|held| held.piece.from < follower.next);
        let mut live = self.held.iter().skip(first).peekable();
        if live.peek().is_some_and(|held| held.piece.from == follower.next) {
            for Held { piece, batch } in live {
                if !follower.has_room(window, Lane::Live, piece.bytes) {
                    break;
                }
                follower.sends(Lane::Live, piece.end, piece.bytes);
                out.push(Action::Send { follower: index + 1, round: follower.round, batch: batch.clone() });
            }
            return;
        }
        let room = follower.bytes_left(window);
        // Half a window at least: reading for every byte that becomes free costs more than it brings.
        let worth = follower.is_quiet() || room >= window.bytes / 2;
        if Some(follower.next) < self.synced_end && worth && !follower.reading {
            follower.reading = true;
            let bytes_max = self.rules.read_bytes.min(usize::try_from(room).unwrap_or(usize::MAX)).max(1);
            let (round, from) = (follower.round, follower.next);
            out.push(Action::Read { follower: index + 1, round, from, bytes_max });
        }
    }

    /// Forgets what nobody needs from memory any more, and takes note of how far the copies are.
    fn advanced(&mut self, now: Instant) {
        let end = self.readable_end();
        while self.held.front().is_some_and(|held| held.piece.end <= end) {
            self.held_bytes -= self.held.pop_front().map_or(0, |held| held.piece.bytes);
        }
        let committed = self.committed().unwrap_or(self.base);
        if self.synced_end.unwrap_or(self.base) >= self.own_mark.0 {
            self.own_mark = (committed, now);
        }
        for follower in &mut self.followers {
            follower.note_committed(committed, now);
        }
    }
}

fn ask<B>(index: usize, follower: &Follower, ask: Ask) -> Action<B> {
    Action::Ask { follower: index + 1, round: follower.round, ask }
}

#[cfg(test)]
mod tests;
