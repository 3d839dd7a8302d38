//! Producers that repeat themselves: which of their requests a range has, so that none is appended twice.
//!
//! Owns, for each range this node is primary of, what is remembered of producers ([`table`]) and how far back it was
//! read from earlier segments ([`unread`]). Does not place records and does not append them: `segments` asks here first.
//! `docs/idempotence.md` says why this is enough.
//!
//! - A request is judged only while its range takes appends, and against everything the range and its ancestors hold.
//! - What is neither remembered nor certainly new is refused, never appended.
//! - A repetition is answered with the outcome of what it repeats, and not before that has one.

mod table;
mod unread;

use std::time::Duration;

use metadata::vnode::RangeState;
use types::record::Walk;
use types::{KeySpan, Offset, RangeId, SegmentId, SegmentSeq, Stamp, TopicId, WallTime, limits};

pub(crate) use self::table::Verdict;
use self::table::{Mark, Table};
use self::unread::Unread;
use crate::action::Reply;
use crate::auth::{Operation, Session};
use crate::event::RequestId;
use crate::node::Node;
use crate::place::Records;
use crate::planted::Bug;
use crate::produce;
use crate::segments::{InFlight, State, Waiting};

/// How often producers that fell silent are looked for.
const TICK: Duration = Duration::from_secs(5);

/// What a range knows of producers.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    table: Table,
    unread: Unread,
    /// The last segment of which every append went through here.
    last: Option<SegmentId>,
}

/// What becomes of a request that bears a stamp.
pub(crate) enum Judged {
    /// It is appended, as it is or without what an ancestor has.
    Append(Waiting, Option<Records>),
    /// It has been answered, or is kept until it can be.
    Settled,
}

impl Producers {
    /// What is remembered: producers, and requests of them.
    pub(crate) fn len(&self) -> (usize, usize) {
        self.table.len()
    }

    fn judge(&self, stamp: &Stamp) -> Verdict {
        self.table.judge(stamp, self.unread.bound())
    }

    /// A request was given its place, below `end`.
    pub(crate) fn took(&mut self, stamp: &Stamp, segment: SegmentId, end: Offset, at: WallTime) {
        self.last = Some(segment);
        self.table.note(stamp, Mark::Own(end), at);
        self.table.settled(stamp);
    }
}

impl Node {
    /// A segment of a range begins to take appends at `base`: what was in flight and did not come to be stored is
    /// forgotten, and what others have appended since has to be read.
    pub(crate) fn resume_producers(&mut self, id: RangeId, segment: SegmentId, base: Offset) {
        let forgets = self.core.config.has_bug(Bug::ForgetProducers);
        let keeps = self.core.config.has_bug(Bug::KeepUnstored);
        let vnode = self.core.meta.of(id.topic);
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let end_of = |last: SegmentId| {
            let follows = SegmentSeq(last.seq.0 + 1) == segment.seq;
            if follows { Some(base) } else { vnode.segment(last).and_then(metadata::vnode::Segment::end) }
        };
        let producers = &mut range.producers;
        match producers.last.and_then(end_of) {
            Some(end) if end == base && !forgets => {
                if !keeps {
                    producers.table.cut(base);
                }
            }
            Some(_) | None => {
                // Whatever lies before `base` is earlier than the range's clock, and than this node's now.
                let bound = range.appended_at.max(self.core.wall);
                producers.table = Table::default();
                producers.unread =
                    if forgets { Unread::nothing() } else { Unread::before(segment, base, bound) };
                self.skip_to_unread(id);
            }
        }
        if let Some(range) = self.ranges.get_mut(&id) {
            range.producers.last = Some(segment);
        }
    }

    /// Judges a request that bears a stamp, of a range that takes appends.
    pub(crate) fn judge_producer(&mut self, id: RangeId, stamp: Stamp, request: Waiting) -> Judged {
        let limit = self.core.wall.0.saturating_add(limits::PRODUCER_AHEAD_MS);
        let accepts = self.core.config.has_bug(Bug::AcceptForgotten);
        let early = self.core.config.has_bug(Bug::EchoEarly);
        let Some(range) = self.ranges.get_mut(&id) else { return Judged::Settled };
        if stamp.born.0 > limit.max(range.appended_at.0) {
            // The clock here is behind: it will have come further when this is sent again.
            return self.settle_producer(request, Err(produce::Error::Unavailable));
        }
        let count = request.records.count;
        let mut verdict = range.producers.judge(&stamp);
        if verdict == Verdict::Forgotten {
            // What had to be read may have expired, or have come to its beginning.
            self.skip_to_unread(id);
            let Some(range) = self.ranges.get(&id) else { return Judged::Settled };
            verdict = range.producers.judge(&stamp);
        }
        let Some(range) = self.ranges.get_mut(&id) else { return Judged::Settled };
        match verdict {
            Verdict::New => Judged::Append(request, None),
            Verdict::Stored => self.settle_producer(request, Ok(count)),
            Verdict::Below(_) if early => self.settle_producer(request, Ok(count)),
            Verdict::Below(end) => self.echo(id, end, request),
            Verdict::Partly(spans) => {
                let rest = self.without(id.topic, &stamp, &request.records, &spans);
                match rest {
                    Some(rest) if rest.count == 0 => self.settle_producer(request, Ok(count)),
                    Some(rest) => Judged::Append(request, Some(rest)),
                    None => self.settle_producer(request, Err(produce::Error::NoSuchTopic)),
                }
            }
            Verdict::Fenced => self.settle_producer(request, Err(produce::Error::Fenced)),
            Verdict::Forgotten if accepts => Judged::Append(request, None),
            Verdict::Forgotten if range.producers.unread.has_failed() => {
                self.settle_producer(request, Err(produce::Error::Unavailable))
            }
            Verdict::Forgotten if range.producers.unread.has_more() => {
                range.waiting.push_back(request);
                self.read_back(id);
                Judged::Settled
            }
            Verdict::Forgotten | Verdict::Settled => {
                self.settle_producer(request, Err(produce::Error::Forgotten))
            }
        }
    }

    fn settle_producer(&mut self, request: Waiting, result: Result<u32, produce::Error>) -> Judged {
        self.produced(request.asker, request.bytes(), result);
        Judged::Settled
    }

    /// A repetition of something that was given its place and lies below `end`: it is answered when that is.
    fn echo(&mut self, id: RangeId, end: Offset, request: Waiting) -> Judged {
        let now = self.core.now;
        let count = request.records.count;
        let Some(range) = self.ranges.get_mut(&id) else { return Judged::Settled };
        let has_crew = range.crew.is_some();
        let State::Open(open) = &mut range.state else { return Judged::Settled };
        if end <= open.committed_end {
            return self.settle_producer(request, Ok(count));
        }
        let at = open.in_flight.partition_point(|append| append.end < end);
        if let Some(append) = open.in_flight.get_mut(at).filter(|append| append.end == end) {
            append.echoes.push(request);
            return Judged::Settled;
        }
        if !has_crew {
            // Its append has failed, and the segment is about to end.
            return self.settle_producer(request, Err(produce::Error::Storage));
        }
        // Whoever asked first was told that nobody knows; by now somebody may.
        let Waiting { asker, records } = request;
        let bytes = records.records.len();
        let append = InFlight { asker, count, bytes, end, at: now, records: None, echoes: Vec::new() };
        open.in_flight.insert(at, append);
        self.advance(id);
        Judged::Settled
    }

    /// The records of a request that lie outside some slices; `None` when their topic is gone.
    fn without(
        &self,
        topic: TopicId,
        stamp: &Stamp,
        records: &Records,
        spans: &[KeySpan],
    ) -> Option<Records> {
        let metadata = self.core.meta.of(topic).topic(topic)?;
        let (keyspace, hash) = (metadata.keyspace, metadata.key_hash);
        let (mut kept, mut count) = (bytes::BytesMut::new(), 0);
        for span in Walk::new(&records.records).map_while(Result::ok) {
            let position = match span.key {
                Some(key) => keyspace.position(hash, key),
                None => stamp.keyless_position(keyspace),
            };
            if !spans.iter().any(|slice| slice.contains(position)) {
                kept.extend_from_slice(&records.records[span.start..span.end]);
                count += 1;
            }
        }
        let records = kept.freeze();
        let crc = crc32fast::hash(&records);
        Some(Records { records, count, crc, stamp: Some(*stamp) })
    }

    /// Forgets who has been silent for long, and more when a node remembers too much, now and then.
    pub(crate) fn keep_producers(&mut self) {
        let now = self.core.now;
        if self.producers_tick_at > now {
            return;
        }
        self.producers_tick_at = now.plus(TICK);
        let mut requests = 0;
        for range in self.ranges.values_mut() {
            let silent_since =
                range.appended_at.max(self.core.wall).0.saturating_sub(limits::PRODUCER_IDLE_MS);
            range.producers.table.drop_until(WallTime(silent_since));
            requests += range.producers.len().1;
        }
        while requests > limits::PRODUCER_REQUESTS_PER_NODE_MAX {
            let before = requests;
            requests = 0;
            for range in self.ranges.values_mut() {
                range.producers.table.drop_oldest();
                requests += range.producers.len().1;
            }
            if requests == before {
                return;
            }
        }
    }

    /// Names a producer and tells it the time: not earlier than anything its topic holds, as far as is known here.
    pub(crate) fn new_producer(&mut self, id: RequestId, session: &Session, topic: Option<&bytes::Bytes>) {
        let name = topic.cloned().unwrap_or_default();
        let reply = if self.may(session, Operation::Produce, &name) {
            self.topic(&name).ok_or(produce::Error::NoSuchTopic)
        } else {
            Err(produce::Error::Denied)
        };
        let reply = match reply {
            Ok(topic) => Reply::Producer { id: self.draw_producer(), now: self.clock_of(topic) },
            Err(error) => Reply::Failed(error.reason()),
        };
        self.core.reply(id, reply);
    }

    fn draw_producer(&mut self) -> types::ProducerId {
        loop {
            let drawn = self.core.random.u128();
            let half = u64::try_from(drawn >> 64).expect("half of 128 bits");
            if half != 0 {
                return types::ProducerId(half);
            }
        }
    }

    fn clock_of(&self, topic: TopicId) -> WallTime {
        let vnode = self.core.meta.of(topic);
        let active = vnode.ranges_of(topic).filter(|(_, range)| range.state == RangeState::Active);
        let known = active.map(|(id, _)| self.last_time(id).max(self.time_before(id)));
        known.max().unwrap_or_default().max(self.core.wall)
    }
}
