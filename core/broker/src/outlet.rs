//! Records on their way to a range whose primary is another node, or that has none for now.
//!
//! Owns, for each such range, the parts of requests that wait to be sent, those that were sent and have no outcome,
//! and what becomes of them. Does not place records and does not judge who is primary: `place` and `route` do.
//!
//! - Parts of one range are sent in the order in which they were accepted, and what was certainly not stored is sent
//!   again in that order. Once a later part may be stored, an earlier one is not sent any more: it is refused.
//! - What may have been stored is never sent again.
//! - A part that goes to a range which took the place of another waits for what was accepted for that one.
//! - Nothing waits here longer than [`WAIT`], [`WAIT_APART`] on a node that is apart; what is here is counted in the node's load of produce requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use metadata::vnode::RangeState;
use peer::Message;
use peer::message::part::{self, Append, AppendReply, Doubt, Outcome, Refusal};
use types::{Instant, NodeId, RangeId, RangeSeq, TopicId, limits};

use crate::action::Action;
use crate::event::AskId;
use crate::node::Node;
use crate::place::{Part, Records};
use crate::produce::{self, Asker};
use crate::route::Primary;
use crate::segments::Waiting;

/// How long a part waits for somebody who takes it.
const WAIT: Duration = Duration::from_secs(10);
/// How long it waits on a node that has been cut off from whoever decides for longer than an election takes: its client
/// may reach one that is not.
const WAIT_APART: Duration = Duration::from_secs(2);
/// How long an answer may take: its receiver may have to open a segment first.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// Pause before something that was refused is tried again, and the least time between two looks at what waits.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Everything that goes elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Outlets {
    ranges: BTreeMap<RangeId, Outlet>,
    asks: BTreeMap<AskId, Asked>,
    /// What goes out at the end of the burst.
    gathered: BTreeMap<RangeId, Gathered>,
    loads: BTreeMap<NodeId, Sending>,
    /// Ranges with something to send.
    waiting: BTreeSet<RangeId>,
    /// Number of the next part, in the order of acceptance.
    next: u64,
    look_at: Instant,
}

/// What one node has on its way to it.
#[derive(Clone, Copy, Debug, Default)]
struct Sending {
    parts: usize,
    bytes: usize,
}

/// A question with parts that have no outcome.
#[derive(Clone, Copy, Debug)]
struct Asked {
    range: RangeId,
    /// How many.
    parts: usize,
}

/// Parts that go together.
#[derive(Debug)]
struct Gathered {
    to: NodeId,
    ask: AskId,
    parts: Vec<part::Part>,
    bytes: usize,
}

/// One range's.
#[derive(Debug, Default)]
struct Outlet {
    /// In the order of acceptance.
    queue: VecDeque<Queued>,
    /// In the order in which they were sent, which is the same.
    sent: VecDeque<Sent>,
    sent_bytes: usize,
    /// Where they went. Another one has not taken any yet.
    target: Option<NodeId>,
    /// The last part that may be stored.
    stored: Option<u64>,
    /// Something was refused that is to be sent again: nothing goes before all that was sent has an outcome.
    refused: bool,
    /// Nothing is sent before.
    resume_at: Instant,
}

#[derive(Debug)]
struct Queued {
    number: u64,
    until: Instant,
    request: Waiting,
}

#[derive(Debug)]
struct Sent {
    ask: AskId,
    refused: bool,
    queued: Queued,
}

/// What a range's outlet does next.
enum Next {
    Nothing,
    /// Everything goes to the segment that is, or will be, here.
    Here,
    Send(NodeId),
    /// Others took the place of the range, or nobody.
    PlaceAgain,
}

impl Queued {
    fn bytes(&self) -> usize {
        self.request.records.records.len()
    }
}

impl Outlets {
    /// Whether another node was asked this about records of a client of this one.
    pub(crate) fn has_asked(&self, ask: AskId) -> bool {
        self.asks.contains_key(&ask)
    }

    /// Whether nothing is on its way to anywhere, which costs nothing to ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Ranges of a topic with anything here.
    fn of(&self, topic: TopicId) -> impl Iterator<Item = RangeId> {
        let all = RangeId { topic, seq: RangeSeq(0) }..=RangeId { topic, seq: RangeSeq(u64::MAX) };
        self.ranges.range(all).map(|(id, _)| *id)
    }

    /// Something happened that may let what waits go on.
    pub(crate) fn look_soon(&mut self, now: Instant) {
        self.look_at = self.look_at.min(now);
        for id in &self.waiting {
            if let Some(outlet) = self.ranges.get_mut(id) {
                outlet.resume_at = now;
            }
        }
    }

    /// Parts that wait for a primary of a range, and parts it was sent; `None` when there is neither.
    pub(crate) fn waiting_for(&self, id: RangeId) -> Option<(usize, usize)> {
        self.ranges.get(&id).map(|outlet| (outlet.queue.len(), outlet.sent.len()))
    }

    /// When what waits is to be looked at.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.look_at)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn insert(&mut self, id: RangeId, queued: Queued) {
        let outlet = self.ranges.entry(id).or_default();
        let at = outlet.queue.partition_point(|other| other.number < queued.number);
        outlet.queue.insert(at, queued);
        self.waiting.insert(id);
    }

    fn remove(&mut self, id: RangeId) -> VecDeque<Queued> {
        self.waiting.remove(&id);
        self.ranges.remove(&id).map(|outlet| outlet.queue).unwrap_or_default()
    }

    fn has_room(&self, id: RangeId, to: NodeId, bytes: usize) -> bool {
        let Some(outlet) = self.ranges.get(&id) else { return false };
        let (parts, of_range) = (outlet.sent.len(), outlet.sent_bytes);
        let load = self.loads.get(&to).copied().unwrap_or_default();
        // Whoever has not taken one yet may refuse one message and take the next: then what was in the first could not
        // be sent again. Of one message nothing is taken behind what was refused.
        let asked = outlet.sent.front().map(|sent| sent.ask);
        let opens = outlet.stored.is_some() || asked == self.gathered.get(&id).map(|gathered| gathered.ask);
        let parts_max = if opens { limits::OUTLET_PARTS_MAX } else { 1 };
        let fits = parts < parts_max
            && of_range.saturating_add(bytes) <= limits::OUTLET_BYTES_MAX
            && load.bytes.saturating_add(bytes) <= limits::OUTLET_BYTES_PER_NODE_MAX;
        // A part that is larger than that must still be possible.
        fits || (parts == 0 && load.bytes < limits::OUTLET_BYTES_PER_NODE_MAX)
    }

    /// The question that the next part may go with, with room for so many bytes.
    fn gathering(&self, id: RangeId, to: NodeId, bytes: usize) -> Option<AskId> {
        let gathered = self.gathered.get(&id)?;
        let fits = gathered.parts.len() < limits::OUTLET_PARTS_MAX
            && gathered.bytes.saturating_add(bytes) <= limits::OUTLET_GROUP_BYTES;
        (gathered.to == to && fits).then_some(gathered.ask)
    }

    /// Puts the next part of a range to those that go out at the end of the burst, under `ask`.
    fn gather(&mut self, id: RangeId, to: NodeId, ask: AskId) -> Option<()> {
        let outlet = self.ranges.get_mut(&id)?;
        let queued = outlet.queue.pop_front()?;
        let bytes = queued.bytes();
        let Records { records, count, crc, stamp } = queued.request.records.clone();
        outlet.target = Some(to);
        outlet.sent_bytes += bytes;
        outlet.sent.push_back(Sent { ask, refused: false, queued });
        if outlet.queue.is_empty() {
            self.waiting.remove(&id);
        }
        let load = self.loads.entry(to).or_default();
        load.parts += 1;
        load.bytes += bytes;
        self.asks.entry(ask).or_insert(Asked { range: id, parts: 0 }).parts += 1;
        let new = || Gathered { to, ask, parts: Vec::new(), bytes: 0 };
        let gathered = self.gathered.entry(id).or_insert_with(new);
        gathered.parts.push(part::Part { count, crc, records, stamp });
        gathered.bytes += bytes;
        Some(())
    }

    /// Whether something waits for the end of the burst.
    pub(crate) fn has_gathered(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// The part whose outcome comes next, with the range and its place among what was sent.
    fn answered(&mut self, ask: AskId) -> Option<(RangeId, usize)> {
        let asked = self.asks.get_mut(&ask)?;
        let id = asked.range;
        asked.parts -= 1;
        if asked.parts == 0 {
            self.asks.remove(&ask);
        }
        let outlet = self.ranges.get(&id)?;
        let at = outlet.sent.iter().position(|sent| sent.ask == ask && !sent.refused)?;
        let bytes = outlet.sent[at].queued.bytes();
        if let Some(to) = outlet.target
            && let Some(load) = self.loads.get_mut(&to)
        {
            load.parts -= 1;
            load.bytes -= bytes;
            if load.parts == 0 {
                self.loads.remove(&to);
            }
        }
        Some((id, at))
    }

    /// Takes out what has waited too long.
    fn take_due(&mut self, now: Instant) -> Vec<Queued> {
        let mut due = Vec::new();
        let ids: Vec<RangeId> = self.waiting.iter().copied().collect();
        for id in ids {
            let Some(outlet) = self.ranges.get_mut(&id) else { continue };
            for queued in std::mem::take(&mut outlet.queue) {
                if queued.until <= now { due.push(queued) } else { outlet.queue.push_back(queued) }
            }
            if outlet.queue.is_empty() {
                self.waiting.remove(&id);
                if outlet.sent.is_empty() {
                    self.ranges.remove(&id);
                }
            }
        }
        due
    }
}

impl Outlet {
    fn take_sent(&mut self, at: usize) -> Option<Queued> {
        let sent = self.sent.remove(at)?;
        self.sent_bytes -= sent.queued.bytes();
        Some(sent.queued)
    }

    /// Everything up to `number` may be behind something that is stored: what was refused of it is given up.
    fn stored_up_to(&mut self, number: u64) -> Vec<Queued> {
        self.stored = self.stored.max(Some(number));
        let mut given_up = Vec::new();
        while let Some(at) = self.sent.iter().position(|sent| sent.refused && sent.queued.number < number) {
            given_up.extend(self.take_sent(at));
        }
        given_up
    }

    /// Once everything that was sent has an outcome, what was refused is the first to be sent again.
    fn take_back(&mut self, resume_at: Instant) {
        if !self.refused || self.sent.iter().any(|sent| !sent.refused) {
            return;
        }
        self.refused = false;
        // Whoever is asked next has taken none yet, and everything up to the last that may be stored has its outcome.
        self.stored = None;
        self.resume_at = resume_at;
        self.sent_bytes = 0;
        while let Some(sent) = self.sent.pop_back() {
            self.queue.push_front(sent.queued);
        }
    }
}

impl Node {
    /// Whether a part of a range must go behind what is here already.
    pub(crate) fn goes_by_outlet(&self, id: RangeId) -> bool {
        !self.outlets.is_empty() && (self.outlets.ranges.contains_key(&id) || self.is_behind_outlet(id))
    }

    /// Whether records of the topic wait here for a range that was replaced: they were accepted earlier.
    fn is_behind_outlet(&self, id: RangeId) -> bool {
        let vnode = self.core.meta.of(id.topic);
        let is_active = |id: RangeId| vnode.range(id).is_some_and(|range| range.state == RangeState::Active);
        self.outlets.of(id.topic).any(|other| other != id && !is_active(other))
    }

    /// Takes a counted part for a range that is not this node's.
    pub(crate) fn send_out(&mut self, id: RangeId, request: Waiting) {
        let (number, until) = (self.outlets.number(), self.core.now.plus(WAIT));
        self.outlets.insert(id, Queued { number, until, request });
        self.outlet_on(id);
    }

    /// What waits here for a range that another node turned out to be primary of goes there.
    pub(crate) fn place_waiting_again(&mut self, id: RangeId) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        for request in std::mem::take(&mut range.waiting) {
            match request.asker {
                Asker::Client(_) => self.send_out(id, request),
                // Whoever has placed it finds out for itself.
                Asker::Peer { .. } => self.append_again(id, request),
            }
        }
    }

    /// Does what can be done about what waits for one range.
    fn outlet_on(&mut self, id: RangeId) {
        loop {
            match self.outlet_next(id) {
                Next::Nothing => return,
                Next::Here => {
                    self.know_range(id);
                    for queued in self.outlets.remove(id) {
                        self.append_to(id, queued.request);
                    }
                    return;
                }
                Next::PlaceAgain => return self.outlet_replaced(id),
                Next::Send(to) => self.outlet_send(id, to),
            }
        }
    }

    fn outlet_next(&self, id: RangeId) -> Next {
        let Some(outlet) = self.outlets.ranges.get(&id) else { return Next::Nothing };
        let Some(first) = outlet.queue.front() else { return Next::Nothing };
        let is_settled = outlet.sent.is_empty();
        if outlet.resume_at > self.core.now || (outlet.refused && !is_settled) {
            return Next::Nothing;
        }
        let state = self.core.meta.of(id.topic).range(id).map(|range| range.state);
        match (state, self.primary_of(id)) {
            (None | Some(RangeState::Replaced | RangeState::Sealed), _) if is_settled => Next::PlaceAgain,
            (None | Some(RangeState::Replaced | RangeState::Sealed), _) => Next::Nothing,
            (Some(RangeState::Active), _) if self.is_behind_outlet(id) => Next::Nothing,
            (Some(RangeState::Active), Primary::Here) if is_settled => Next::Here,
            (Some(RangeState::Active), Primary::At(node)) => {
                let may = is_settled || outlet.target == Some(node);
                let sends =
                    may && self.core.liveness.is_up(node) && self.outlets.has_room(id, node, first.bytes());
                if sends { Next::Send(node) } else { Next::Nothing }
            }
            (Some(RangeState::Active), Primary::Here | Primary::Nobody) => Next::Nothing,
        }
    }

    fn outlet_send(&mut self, id: RangeId, to: NodeId) {
        let first = self.outlets.ranges.get(&id).and_then(|outlet| outlet.queue.front());
        if first.is_some_and(|first| first.bytes() > limits::COPY_FRAME_BYTES_MAX) {
            let outlet = self.outlets.ranges.get_mut(&id);
            let too_large = outlet.and_then(|outlet| outlet.queue.pop_front());
            self.outlet_tidy(id);
            return self.give_up(too_large, produce::Error::TooLarge);
        }
        let bytes = first.map_or(0, Queued::bytes);
        let ask = self.outlets.gathering(id, to, bytes).unwrap_or_else(|| {
            self.send_parts_of(id);
            self.core.meta.ask_id()
        });
        self.outlets.gather(id, to, ask);
    }

    /// Sends what was gathered for one range.
    fn send_parts_of(&mut self, id: RangeId) {
        if let Some(Gathered { to, ask, parts, .. }) = self.outlets.gathered.remove(&id) {
            let message = Message::Append(Append { range: id, parts });
            self.core.out.push(Action::Ask { to, ask, message, within: ANSWER_WITHIN });
        }
    }

    /// Sends everything that was gathered in the burst.
    pub(crate) fn send_parts(&mut self) {
        while let Some(id) = self.outlets.gathered.keys().next().copied() {
            self.send_parts_of(id);
        }
    }

    /// Others took the place of a range and everything that was sent to it has an outcome.
    fn outlet_replaced(&mut self, id: RangeId) {
        let mut ranges = BTreeSet::new();
        for Queued { number, until, request } in self.outlets.remove(id) {
            let Waiting { asker, records } = request;
            let (bytes, count) = (records.records.len(), records.count);
            match self.place_again(id, records) {
                Ok(parts) => {
                    self.load.part(asker, count, parts.len());
                    for Part { range, records } in parts {
                        let request = Waiting { asker, records };
                        self.outlets.insert(range, Queued { number, until, request });
                        ranges.insert(range);
                    }
                }
                Err(error) => self.produced(asker, bytes, Err(error.into())),
            }
        }
        // What was accepted later for these waits for it no longer, either.
        ranges.extend(self.outlets.of(id.topic));
        for range in ranges {
            self.outlet_on(range);
        }
    }

    /// A node answered what it was sent, or will not.
    pub(crate) fn outlet_answered(&mut self, ask: AskId, reply: Option<AppendReply>) {
        let Some(Asked { range, parts }) = self.outlets.asks.get(&ask).copied() else { return };
        let mut outcomes = reply.map(|reply| reply.0).unwrap_or_default().into_iter();
        for _ in 0..parts {
            self.part_answered(ask, outcomes.next());
        }
        self.outlet_on(range);
    }

    /// One part has its outcome, in the order in which they were sent.
    fn part_answered(&mut self, ask: AskId, outcome: Option<Outcome>) {
        let Some((id, at)) = self.outlets.answered(ask) else { return };
        let resume_at = self.core.now.plus(LOOK_EVERY);
        let gives_way = matches!(outcome, Some(Outcome::NotStored(Refusal::NotPrimary { hint: Some(_) })))
            && self.core.meta.of(id.topic).active_segment(id).is_none();
        let Some(outlet) = self.outlets.ranges.get_mut(&id) else { return };
        if let Some(target) = outlet.target.filter(|_| gives_way) {
            self.core.avoid(target);
        }
        let number = outlet.sent[at].queued.number;
        let is_late = outlet.stored > Some(number);
        let mut given_up = Vec::new();
        let outcome = match outcome {
            Some(Outcome::Stored { count }) => {
                let all = count == outlet.sent[at].queued.request.records.count;
                given_up = outlet.stored_up_to(number);
                Some(if all { Ok(count) } else { Err(produce::Error::Storage) })
            }
            // It may be stored: what was accepted before it must not come behind it.
            Some(Outcome::Unknown(Doubt::Storage)) => {
                given_up = outlet.stored_up_to(number);
                Some(Err(produce::Error::Storage))
            }
            Some(Outcome::Unknown(Doubt::Timeout)) | None => {
                given_up = outlet.stored_up_to(number);
                Some(Err(produce::Error::Unanswered))
            }
            Some(Outcome::NotStored(Refusal::Overloaded)) => Some(Err(produce::Error::Overloaded)),
            Some(Outcome::NotStored(Refusal::Forgotten)) => Some(Err(produce::Error::Forgotten)),
            Some(Outcome::NotStored(Refusal::Fenced)) => Some(Err(produce::Error::Fenced)),
            Some(Outcome::NotStored(Refusal::InsufficientDomains)) => {
                Some(Err(produce::Error::InsufficientDomains))
            }
            Some(Outcome::NotStored(_)) if is_late => Some(Err(produce::Error::Unavailable)),
            Some(Outcome::NotStored(
                Refusal::NotPrimary { .. }
                | Refusal::Sealed
                | Refusal::NoSuchTopic
                | Refusal::Unroutable
                | Refusal::Unavailable,
            )) => {
                outlet.sent[at].refused = true;
                outlet.refused = true;
                None
            }
        };
        // What was given up lay before it.
        let at = outlet.sent.iter().position(|sent| sent.queued.number == number);
        let settled = outcome.and_then(|outcome| Some((outlet.take_sent(at?)?, outcome)));
        outlet.take_back(resume_at);
        self.outlet_tidy(id);
        for earlier in given_up {
            self.give_up(Some(earlier), produce::Error::Unavailable);
        }
        if let Some((queued, outcome)) = settled {
            self.produced(queued.request.asker, queued.bytes(), outcome);
        }
    }

    fn give_up(&mut self, queued: Option<Queued>, error: produce::Error) {
        if let Some(queued) = queued {
            self.produced(queued.request.asker, queued.bytes(), Err(error));
        }
    }

    /// An outlet with nothing in it is none; one with something to send is looked at.
    fn outlet_tidy(&mut self, id: RangeId) {
        let Some(outlet) = self.outlets.ranges.get(&id) else { return };
        if !outlet.queue.is_empty() {
            self.outlets.waiting.insert(id);
            return;
        }
        self.outlets.waiting.remove(&id);
        if outlet.sent.is_empty() {
            self.outlets.ranges.remove(&id);
            // What was accepted for the ranges that took its place may go.
            self.outlets.look_soon(self.core.now);
        }
    }

    /// The connection to a node is another one, or none: nothing sent over the last one is answered.
    pub(crate) fn outlets_parted(&mut self, node: NodeId) {
        let there = |id: &RangeId| self.outlets.ranges.get(id).is_some_and(|o| o.target == Some(node));
        let lost = self.outlets.asks.iter().filter(|(_, asked)| there(&asked.range));
        let lost: Vec<AskId> = lost.map(|(ask, _)| *ask).collect();
        // What was not sent yet has nowhere to go.
        self.outlets.gathered.retain(|_, gathered| gathered.to != node);
        for ask in lost {
            self.outlet_answered(ask, None);
        }
    }

    /// Looks at everything that waits, now and then and when something changed.
    pub(crate) fn keep_outlets(&mut self) {
        let now = self.core.now;
        if self.outlets.waiting.is_empty() || self.outlets.look_at > now {
            return;
        }
        self.outlets.look_at = now.plus(LOOK_EVERY);
        let due = if self.core.meta.is_apart() { now.plus(WAIT.saturating_sub(WAIT_APART)) } else { now };
        for queued in self.outlets.take_due(due) {
            self.give_up(Some(queued), produce::Error::Unavailable);
        }
        for id in self.outlets.waiting.iter().copied().collect::<Vec<_>>() {
            self.outlet_on(id);
        }
        // Not behind what else is due: whoever takes them may be about to be fenced by this very node.
        self.send_parts();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::event::{ConnectionId, RequestId};

    fn id() -> RangeId {
        RangeId { topic: TopicId(7), seq: RangeSeq(0) }
    }

    fn part(number: u64) -> Queued {
        let asker = Asker::Client(RequestId { connection: ConnectionId(1), number });
        let records = Records { records: Bytes::from_static(b"records"), count: 1, crc: 0, stamp: None };
        Queued { number, until: Instant(number), request: Waiting { asker, records } }
    }

    /// An outlet that has sent so many parts, the first of them numbered 1 and asked as 1.
    fn sent(count: u64) -> Outlets {
        let mut outlets = Outlets::default();
        for number in 1..=count {
            outlets.insert(id(), part(number));
            outlets.gather(id(), NodeId(2), AskId(number)).unwrap();
            assert_eq!(outlets.gathered.remove(&id()).unwrap().parts[0].count, 1);
        }
        outlets
    }

    fn numbers(queue: impl IntoIterator<Item = Queued>) -> Vec<u64> {
        queue.into_iter().map(|queued| queued.number).collect()
    }

    #[test]
    fn what_was_refused_goes_first_once_all_have_an_outcome() {
        let mut outlets = sent(3);
        outlets.insert(id(), part(4));
        assert_eq!(outlets.answered(AskId(2)), Some((id(), 1)));
        let outlet = outlets.ranges.get_mut(&id()).unwrap();
        (outlet.sent[1].refused, outlet.refused) = (true, true);
        outlet.take_back(Instant(9));
        assert_eq!(outlet.sent.len(), 3, "others may yet be stored");
        assert_eq!(numbers(outlet.take_sent(0)), [1]);
        outlet.sent[1].refused = true;
        outlet.take_back(Instant(9));
        assert_eq!((outlet.sent.len(), outlet.sent_bytes, outlet.resume_at), (0, 0, Instant(9)));
        assert_eq!(numbers(outlets.remove(id())), [2, 3, 4]);
        assert!(outlets.is_empty());
    }

    #[test]
    fn what_lies_before_something_stored_is_given_up() {
        let mut outlets = sent(4);
        let outlet = outlets.ranges.get_mut(&id()).unwrap();
        outlet.sent.iter_mut().take(2).for_each(|sent| sent.refused = true);
        assert_eq!(numbers(outlet.stored_up_to(4)), [1, 2], "the third has no outcome yet");
        assert_eq!(outlet.stored, Some(4));
        assert!(numbers(outlet.stored_up_to(3)).is_empty() && outlet.stored == Some(4));
    }

    #[test]
    fn the_window_opens_with_the_first_that_is_taken() {
        let mut outlets = sent(1);
        outlets.insert(id(), part(2));
        assert!(!outlets.has_room(id(), NodeId(2), 7));
        outlets.ranges.get_mut(&id()).unwrap().stored = Some(1);
        assert!(outlets.has_room(id(), NodeId(2), 7));
        assert!(!outlets.has_room(id(), NodeId(2), limits::OUTLET_BYTES_MAX));
        assert_eq!(outlets.answered(AskId(1)), Some((id(), 0)));
        assert_eq!(outlets.answered(AskId(1)), None);
        assert!(outlets.loads.is_empty());
        let outlet = outlets.ranges.get_mut(&id()).unwrap();
        assert_eq!(numbers(outlet.take_sent(0)), [1]);
        assert!(outlets.has_room(id(), NodeId(2), limits::OUTLET_BYTES_MAX + 1), "alone anything may go");
    }

    #[test]
    fn parts_wait_in_the_order_of_their_acceptance_and_not_for_ever() {
        let mut outlets = Outlets::default();
        [5, 2, 9].into_iter().for_each(|number| outlets.insert(id(), part(number)));
        assert_eq!(numbers(outlets.take_due(Instant(4))), [2]);
        assert_eq!(numbers(outlets.take_due(Instant(9))), [5, 9]);
        assert!(outlets.is_empty() && outlets.next_look().is_none());
    }
}
