//! The followers of the segments that this node is primary of.
//!
//! Owns what is asked of their copies, what their answers make of the appends that wait, and when a segment ends for
//! their sake. Who is sent what, and what is committed, is decided by `replication::primary`; how a segment ends is in
//! `ending`. A segment that this node holds alone has nobody here, and costs nothing.
//!
//! When a segment ends because of its copies:
//!
//! | what | how |
//! |---|---|
//! | a later epoch, the own copy failed, no quorum in time | left to whoever can: `healing` |
//! | fewer copies than a quorum, and enough to find its end | the same |
//! | a follower's copy failed; one is behind, or the set is small, and a better one exists | drained and sealed |
//! | fewer copies than are needed to find its end | it waits for them |

use std::collections::VecDeque;
use std::time::Duration;

use replication::follower::{Lane, Window};
use replication::primary::{Action as Wish, Answer, Ask, Piece, Primary, Rules};
use storage::format::batch::{Batch, HEADER_BYTES};
use storage::store::{self, State as CopyState};
use types::{Instant, NodeId, Offset, RangeId, SegmentId, WallTime, limits, quorum};

use crate::action::Cause;
use crate::copies::CopyAnswer;
use crate::ending::Step;
use crate::node::{Node, Owner};
use crate::planted::Bug;
use crate::produce;
use crate::segments::{EPOCH_FIRST, InFlight, RETRY_AFTER, State};

/// How often followers are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often it is looked for better sets.
const BETTER_EVERY: Duration = Duration::from_secs(1);
/// How long the copies of a new segment may take to be made.
const OPEN_WITHIN: Duration = Duration::from_secs(5);
/// Segments that end at one look for the sake of a better set: a node that comes back is not to stop everything.
const MOVES_PER_LOOK: usize = 16;

const RULES: Rules = Rules {
    window: Window { batches: limits::REPLICA_WINDOW_BATCHES, bytes: limits::REPLICA_WINDOW_BYTES },
    read_bytes: limits::REPLICA_READ_BYTES,
    retry_after: RETRY_AFTER,
};

/// The copies of a segment that this node is primary of.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) segment: SegmentId,
    base: Offset,
    /// The primary first.
    replicas: Vec<NodeId>,
    pub(crate) primary: Primary<Batch>,
    /// When it was begun, or began to drain.
    pub(crate) since: Instant,
}

/// What is due about followers.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    at: Instant,
    better_at: Instant,
}

impl Crew {
    /// Whether every copy that is needed for it is there.
    pub(crate) fn is_there(&self) -> bool {
        self.primary.committed().is_some()
    }

    /// Who has a copy, the primary first.
    pub(crate) fn replicas(&self) -> &[NodeId] {
        &self.replicas
    }

    /// Why records are not taken, if they are not.
    pub(crate) fn refuses(&self, bytes: usize) -> Option<produce::Error> {
        if bytes + HEADER_BYTES > limits::COPY_FRAME_BYTES_MAX {
            return Some(produce::Error::TooLarge);
        }
        let full = self.primary.held_bytes() >= limits::REPLICA_HELD_BYTES_MAX;
        full.then_some(produce::Error::Overloaded)
    }

    /// A batch was given its place.
    pub(crate) fn takes(&mut self, batch: &Batch) -> Vec<Wish<Batch>> {
        let mut wishes = Vec::new();
        self.primary.appended(piece_of(batch), || batch.clone(), &mut wishes);
        wishes
    }

    /// Whether as many copies as are needed to find the segment's end are a quorum too. Of an even number they are not:
    /// what lies below the end may then be on fewer disks than an acknowledgement promises.
    pub(crate) fn ends_on_a_quorum(&self) -> bool {
        let copies = self.replicas.len();
        quorum::seal_count(copies) >= quorum::ack_count(copies)
    }

    fn follower(&self, node: NodeId) -> Option<usize> {
        self.replicas.iter().position(|replica| *replica == node).filter(|index| *index > 0)
    }
}

impl Node {
    /// Begins with the copies of a segment that was registered with this node as its primary.
    pub(crate) fn muster(&mut self, id: RangeId, segment: SegmentId, base: Offset) {
        let now = self.core.now;
        let listed = self.core.meta.of(id.topic).segment(segment);
        let replicas = listed.map(|listed| listed.replicas.clone()).unwrap_or_default();
        let Some(range) = self.ranges.get_mut(&id) else { return };
        if replicas.len() < 2 {
            range.crew = None;
            return;
        }
        let mut primary = Primary::new(now, RULES, base, replicas.len());
        let mut wishes = Vec::new();
        primary.begin(&mut wishes);
        range.crew = Some(Box::new(Crew { segment, base, replicas, primary, since: now }));
        self.replicated.insert(id);
        self.perform(id, wishes);
    }

    fn crew(&mut self, segment: SegmentId) -> Option<&mut Crew> {
        let crew = self.ranges.get_mut(&segment.range)?.crew.as_deref_mut()?;
        (crew.segment == segment).then_some(crew)
    }

    /// Does what the primary wishes for.
    pub(crate) fn perform(&mut self, id: RangeId, wishes: Vec<Wish<Batch>>) {
        let Some(crew) = self.ranges.get(&id).and_then(|range| range.crew.as_deref()) else { return };
        let (segment, base) = (crew.segment, crew.base);
        let planted = self.core.config.has_bug(Bug::CountRebuilding);
        for wish in wishes {
            let (follower, round, request) = match wish {
                Wish::Read { follower, round, from, bytes_max } => {
                    let owner = Owner::FollowRead { segment, follower, round };
                    self.core.ask(owner, store::Request::Read { segment, from, bytes_max });
                    continue;
                }
                Wish::Ask { follower, round, ask } => {
                    let request = match ask {
                        Ask::Create { rebuilding } => store::Request::Create {
                            segment,
                            base,
                            epoch: EPOCH_FIRST,
                            expect_full: base > Offset::ZERO,
                            rebuilding: rebuilding && !planted,
                        },
                        Ask::Inspect => store::Request::Inspect { segment },
                        Ask::Rebuilt => store::Request::Rebuilt { segment },
                    };
                    (follower, round, request)
                }
                Wish::Send { follower, round, batch } => {
                    self.send_to_follower(segment, follower, round, batch);
                    continue;
                }
            };
            let crew = self.ranges.get(&id).and_then(|range| range.crew.as_deref());
            let Some(holder) = crew.and_then(|crew| crew.replicas.get(follower).copied()) else { return };
            self.core.ask_copy(holder, Owner::Follow { segment, follower, round, bulk: false }, request);
        }
    }

    fn send_to_follower(&mut self, segment: SegmentId, follower: usize, round: u32, batch: Batch) {
        let holder = self.crew(segment).and_then(|crew| crew.replicas.get(follower).copied());
        let owner = Owner::Follow { segment, follower, round, bulk: false };
        if let Some(holder) = holder {
            self.core.append_to_copy(holder, owner, segment, batch);
        }
    }

    /// A follower's copy answered, or will not.
    pub(crate) fn followed(&mut self, segment: SegmentId, follower: usize, round: u32, answer: CopyAnswer) {
        let now = self.core.now;
        // What was asked of a segment that has ended since is of no consequence.
        let Some(answer) = answer_of(answer) else { return };
        let Some(crew) = self.crew(segment) else { return };
        let mut wishes = Vec::new();
        crew.primary.answered(now, follower, round, answer, &mut wishes);
        self.perform(segment.range, wishes);
        self.advance(segment.range);
    }

    /// What a follower lacks was read from the own copy, or could not be.
    pub(crate) fn read_for_follower(
        &mut self,
        segment: SegmentId,
        follower: usize,
        round: u32,
        reply: store::Reply,
    ) {
        let now = self.core.now;
        let Some(crew) = self.crew(segment) else { return };
        let Some(holder) = crew.replicas.get(follower).copied() else { return };
        let (batches, failed) = match reply {
            store::Reply::Read(batches) => (batches, false),
            store::Reply::Failed(error) => (Vec::new(), is_broken(&error)),
            store::Reply::Created
            | store::Reply::Appended { .. }
            | store::Reply::Sought(_)
            | store::Reply::Fenced(_)
            | store::Reply::Sealed(_)
            | store::Reply::Rebuilt(_)
            | store::Reply::Latched
            | store::Reply::Verified(_)
            | store::Reply::Deleted
            | store::Reply::Inspected(_) => (Vec::new(), false),
        };
        let pieces: Vec<Piece> = batches.iter().map(piece_of).collect();
        let (count, lane) = crew.primary.read(now, follower, round, &pieces);
        let owner = Owner::Follow { segment, follower, round, bulk: lane == Lane::Bulk };
        for batch in batches.into_iter().take(count) {
            self.core.append_to_copy(holder, owner, segment, batch);
        }
        if failed {
            return self.abandon(segment.range);
        }
        let Some(crew) = self.crew(segment) else { return };
        let mut wishes = Vec::new();
        crew.primary.go_on(follower, &mut wishes);
        self.perform(segment.range, wishes);
    }

    /// The own copy took an append.
    pub(crate) fn own_copy_synced(&mut self, id: RangeId, end: Offset) {
        let now = self.core.now;
        let Some(crew) = self.ranges.get_mut(&id).and_then(|range| range.crew.as_deref_mut()) else { return };
        let mut wishes = Vec::new();
        crew.primary.own_synced(now, end, &mut wishes);
        self.perform(id, wishes);
        self.advance(id);
    }

    /// Answers what a quorum has by now, and goes on with what waits for that.
    pub(crate) fn advance(&mut self, id: RangeId) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let Some(crew) = range.crew.as_deref() else { return };
        let (committed, readable) = (crew.primary.committed(), crew.primary.readable_end());
        let committed = plant_commit(&self.core.config, &crew.primary, committed);
        let (in_flight, end) = match &mut range.state {
            State::Creating { .. } => return self.open_when_there(id),
            State::Open(open) => (&mut open.in_flight, &mut open.committed_end),
            State::Ending(ending) => {
                let Some(end) = ending.committed_end.as_mut() else { return };
                (&mut ending.in_flight, end)
            }
            State::Idle
            | State::Blocked
            | State::Registering
            | State::Unmade { .. }
            | State::Stale { .. }
            | State::Stopped => return,
        };
        let grown = readable > *end;
        *end = (*end).max(readable);
        let mut answered: Vec<InFlight> = Vec::new();
        while in_flight.front().is_some_and(|append| Some(append.end) <= committed) {
            answered.extend(in_flight.pop_front());
        }
        let topic = range.topic.clone();
        for append in answered {
            self.append_answered(id, &append, Ok(append.count));
        }
        if grown {
            self.wake(&topic, Some(id));
        }
        self.drained(id);
    }

    /// A node can be reached, or cannot any more.
    pub(crate) fn follower_heard(&mut self, node: NodeId, up: bool) {
        let now = self.core.now;
        for id in self.replicated.iter().copied().collect::<Vec<_>>() {
            let crew = self.ranges.get_mut(&id).and_then(|range| range.crew.as_deref_mut());
            let Some((crew, follower)) = crew.and_then(|crew| crew.follower(node).map(|at| (crew, at)))
            else {
                continue;
            };
            let mut wishes = Vec::new();
            if up {
                crew.primary.up(now, follower, &mut wishes);
            } else {
                crew.primary.down(now, follower);
            }
            self.perform(id, wishes);
            self.look_at_crew(id);
        }
    }

    /// Looks at followers, now and then.
    pub(crate) fn keep_followers(&mut self) {
        let now = self.core.now;
        if !self.serves() || self.looks.at > now {
            return;
        }
        self.looks.at = now.plus(LOOK_EVERY);
        for id in self.replicated.iter().copied().collect::<Vec<_>>() {
            let Some(crew) = self.ranges.get_mut(&id).and_then(|range| range.crew.as_deref_mut()) else {
                self.replicated.remove(&id);
                continue;
            };
            let mut wishes = Vec::new();
            crew.primary.tick(now, &mut wishes);
            self.perform(id, wishes);
            self.advance(id);
            self.look_at_crew(id);
        }
        if self.looks.better_at <= now {
            self.looks.better_at = now.plus(BETTER_EVERY);
            self.look_for_better();
        }
    }

    /// When they are looked at next.
    pub(crate) fn next_look_at_followers(&self) -> Option<Instant> {
        let better = self.has_better_to_look_for().then_some(self.looks.better_at);
        let look = (!self.replicated.is_empty()).then_some(self.looks.at);
        better.map(|at| at.max(self.looks.at)).into_iter().chain(look).min()
    }

    fn has_better_to_look_for(&self) -> bool {
        self.core.config.segment_replicas > 1 && self.core.meta.cluster().nodes().nth(1).is_some()
    }

    /// Whether the copies of a segment are a reason to end it.
    fn look_at_crew(&mut self, id: RangeId) {
        let (now, within) = (self.core.now, self.core.config.replicate_within);
        let Some(range) = self.ranges.get(&id) else { return };
        let Some(crew) = range.crew.as_deref() else { return };
        let standing = crew.primary.standing(now);
        let (copies, since) = (crew.replicas.len(), crew.since);
        let can_commit = standing.there >= quorum::ack_count(copies);
        let can_end = standing.there >= quorum::seal_count(copies);
        let lost = standing.superseded || (!can_commit && can_end);
        if standing.failed {
            self.avoid_failed(id);
        }
        if standing.own_behind >= self.core.config.behind_max {
            // Its producers do not notice, its readers do: others begin the next segments.
            self.core.avoid(self.core.config.node);
        }
        let Some(range) = self.ranges.get(&id) else { return };
        match &range.state {
            State::Open(open) => {
                let late = is_late(&open.in_flight, now, within);
                if lost || late {
                    self.abandon(id);
                } else if standing.failed {
                    self.drain(id, Cause::Moved);
                    self.drained(id);
                }
            }
            State::Creating { .. } if lost || now.since(since) >= OPEN_WITHIN => self.abandon(id),
            State::Ending(ending) if matches!(ending.step, Step::Draining { .. }) => {
                if lost || now.since(since) >= within || is_late(&ending.in_flight, now, within) {
                    self.abandon(id);
                }
            }
            State::Creating { .. }
            | State::Ending(_)
            | State::Idle
            | State::Blocked
            | State::Registering
            | State::Unmade { .. }
            | State::Stale { .. }
            | State::Stopped => {}
        }
        self.give_up_late(id);
    }

    /// Tells producers that wait for too long that nobody knows.
    fn give_up_late(&mut self, id: RangeId) {
        let (now, within) = (self.core.now, self.core.config.replicate_within);
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let in_flight = match &mut range.state {
            State::Open(open) => &mut open.in_flight,
            State::Ending(ending) => &mut ending.in_flight,
            State::Idle
            | State::Blocked
            | State::Registering
            | State::Unmade { .. }
            | State::Creating { .. }
            | State::Stale { .. }
            | State::Stopped => return,
        };
        let mut late: Vec<InFlight> = Vec::new();
        while is_late(in_flight, now, within) {
            late.extend(in_flight.pop_front());
        }
        for append in late {
            self.append_answered(id, &append, Err(produce::Error::NoQuorum));
        }
    }

    fn avoid_failed(&mut self, id: RangeId) {
        let Some(crew) = self.ranges.get(&id).and_then(|range| range.crew.as_deref()) else { return };
        let failed: Vec<NodeId> =
            crew.primary.failed().filter_map(|follower| crew.replicas.get(follower).copied()).collect();
        failed.into_iter().for_each(|node| self.core.avoid(node));
    }

    /// Ends some segments that could be held by more nodes, or by better ones.
    fn look_for_better(&mut self) {
        if !self.has_better_to_look_for() {
            return;
        }
        let (now, longer) = (self.core.now, self.core.config.behind_max);
        let bytes_max = self.core.config.behind_bytes_max;
        let able = self.core.able_nodes();
        let own_goes = self.core.gives_way();
        let wanted = self.core.config.segment_replicas.min(able.len());
        let mut moves: Vec<(RangeId, Vec<NodeId>)> = Vec::new();
        for (id, range) in &self.ranges {
            let State::Open(open) = &range.state else { continue };
            if now.since(open.opened_at) < longer {
                continue;
            }
            let (good, late) = match range.crew.as_deref() {
                Some(crew) => {
                    let late = crew.primary.behind(now, longer, bytes_max);
                    let late: Vec<NodeId> = late.filter_map(|at| crew.replicas.get(at).copied()).collect();
                    (
                        crew.replicas
                            .iter()
                            .filter(|node| able.contains(node) && !late.contains(node))
                            .count(),
                        late,
                    )
                }
                None => (usize::from(able.contains(&self.core.config.node)), Vec::new()),
            };
            // Who is late is no better elsewhere: without those there have to be more.
            let others = able.iter().filter(|node| !late.contains(node)).count().min(wanted);
            if own_goes || others > good {
                moves.push((*id, late));
                if moves.len() >= MOVES_PER_LOOK {
                    break;
                }
            }
        }
        for (id, late) in moves {
            // One that cannot be reached is not asked anyway.
            let slow = late.into_iter().filter(|node| self.core.liveness.usable(*node)).collect::<Vec<_>>();
            slow.into_iter().for_each(|node| self.core.avoid(node));
            self.drain(id, Cause::Moved);
            self.drained(id);
        }
    }

    /// Tells the followers of a segment that this node has sealed where it ended. Whoever does not hear of it is told by
    /// those who look after the copies of sealed segments.
    pub(crate) fn dismiss(&mut self, id: RangeId, sealed: Option<(Offset, WallTime)>) {
        self.replicated.remove(&id);
        let Some(crew) = self.ranges.get_mut(&id).and_then(|range| range.crew.take()) else { return };
        let Some((end, at)) = sealed else { return };
        let segment = crew.segment;
        for (follower, holder) in crew.replicas.into_iter().enumerate().skip(1) {
            let owner = Owner::Follow { segment, follower, round: 0, bulk: false };
            self.core.ask_copy(holder, owner, store::Request::Seal { segment, end, at });
        }
    }
}

fn is_late(in_flight: &VecDeque<InFlight>, now: Instant, within: Duration) -> bool {
    in_flight.front().is_some_and(|append| now.since(append.at) >= within)
}

fn piece_of(batch: &Batch) -> Piece {
    let header = &batch.header;
    Piece { from: header.base_offset, end: header.end_offset(), bytes: header.frame_len() }
}

/// What is committed, unless a bug says otherwise.
fn plant_commit(
    config: &crate::config::Config,
    primary: &Primary<Batch>,
    committed: Option<Offset>,
) -> Option<Offset> {
    if config.has_bug(Bug::AckUnreplicated) {
        return committed.max(primary.matched(0));
    }
    if config.has_bug(Bug::CountPrimaryTwice) {
        let mut ends: Vec<_> = (0..primary.replicas()).map(|replica| primary.matched(replica)).collect();
        ends[1] = ends[0];
        return committed.max(quorum::committed(&ends));
    }
    committed
}

/// What an answer says to the primary; `None` when it says nothing.
fn answer_of(answer: CopyAnswer) -> Option<Answer> {
    use store::{Error as E, Reply as R};
    let answer = match answer {
        CopyAnswer::Unreachable => Answer::Unreachable,
        CopyAnswer::Unanswered => Answer::Unanswered,
        CopyAnswer::Store(R::Created) => Answer::Created,
        CopyAnswer::Store(R::Appended { end }) => Answer::Appended { end },
        CopyAnswer::Store(R::Rebuilt(_)) => Answer::Rebuilt,
        CopyAnswer::Store(R::Inspected(extent)) => match extent.state {
            CopyState::Active if extent.epoch > EPOCH_FIRST => Answer::Superseded,
            CopyState::Sealed => Answer::Superseded,
            CopyState::Active => {
                Answer::Stands { end: extent.end, rebuilding: extent.rebuilding, takes: true }
            }
            CopyState::Stopped(_) | CopyState::Latched(_) => Answer::Failed,
        },
        CopyAnswer::Store(R::Failed(error)) => match error {
            E::NoSuchSegment => Answer::Missing,
            E::Exists => Answer::Exists,
            E::Sealed { .. } | E::Fenced { .. } => Answer::Superseded,
            E::OutOfSync { end } => Answer::OutOfSync { end },
            E::Overloaded => Answer::Busy,
            E::OutOfRange { .. }
            | E::EndOfData { .. }
            | E::CannotSeal { .. }
            | E::Damaged(_)
            | E::Latched(_)
            | E::Storage(_) => Answer::Failed,
        },
        CopyAnswer::Store(
            R::Read(_)
            | R::Sought(_)
            | R::Fenced(_)
            | R::Sealed(_)
            | R::Latched
            | R::Verified(_)
            | R::Deleted,
        ) => return None,
    };
    Some(answer)
}

/// Whether the own copy cannot be relied on any more.
fn is_broken(error: &store::Error) -> bool {
    use store::Error as E;
    match error {
        E::Damaged(_) | E::Latched(_) | E::Storage(_) | E::NoSuchSegment => true,
        E::Exists
        | E::Sealed { .. }
        | E::Fenced { .. }
        | E::OutOfSync { .. }
        | E::OutOfRange { .. }
        | E::EndOfData { .. }
        | E::CannotSeal { .. }
        | E::Overloaded => false,
    }
}
