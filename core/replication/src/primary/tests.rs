//! A primary against model copies, in every order that answers can come in.

use proptest::prelude::*;

use super::*;

const RULES: Rules = Rules {
    window: Window { batches: 4, bytes: 400 },
    read_bytes: 150,
    retry_after: Duration::from_millis(100),
};
const BATCH_BYTES: u64 = 50;
const BASE: Offset = Offset(10);

type Batch = (Offset, Offset);
type Actions = Vec<Action<Batch>>;

/// One follower's copy, and the node around it.
#[derive(Clone, Debug, Default)]
struct Copy {
    /// Ends of what it accepted, in order; the first so many are durable.
    ends: Option<Vec<Offset>>,
    durable: usize,
    rebuilding: bool,
    /// Appends that wait for their sync: the round they came in, and their end.
    unsynced: Vec<(u32, Offset)>,
}

impl Copy {
    fn end(&self) -> Offset {
        self.ends.as_ref().and_then(|ends| ends.last().copied()).unwrap_or(BASE)
    }

    fn durable_end(&self) -> Option<Offset> {
        let ends = self.ends.as_ref()?;
        Some(self.durable.checked_sub(1).map_or(BASE, |last| ends[last]))
    }

    /// What it is worth to a sealer.
    fn counts_for(&self) -> Option<Offset> {
        self.durable_end().filter(|_| !self.rebuilding)
    }
}

#[derive(Clone, Debug)]
enum Request {
    Ask(Ask),
    Append(Batch),
}

#[derive(Clone, Debug)]
struct Message {
    round: u32,
    request: Request,
}

/// A primary, its own copy, its followers, and what is between them.
struct World {
    now: Instant,
    primary: Primary<Batch>,
    /// Ends of the batches given out.
    ends: Vec<Offset>,
    own_synced: usize,
    copies: Vec<Copy>,
    up: Vec<bool>,
    /// For each follower both lanes, each in its order.
    lanes: Vec<[VecDeque<Message>; 2]>,
    replies: Vec<VecDeque<(u32, Answer)>>,
    reads: VecDeque<(usize, u32, Offset, usize)>,
    /// The highest end that each copy ever held, the primary's first.
    once_held: Vec<Option<Offset>>,
    removed: bool,
}

impl World {
    fn new(replicas: usize) -> Self {
        let mut primary = Primary::new(Instant(0), RULES, BASE, replicas);
        let mut out = Vec::new();
        primary.begin(&mut out);
        let followers = replicas - 1;
        let mut world = Self {
            now: Instant(0),
            primary,
            ends: Vec::new(),
            own_synced: 0,
            copies: vec![Copy::default(); followers],
            up: vec![true; followers],
            lanes: vec![Default::default(); followers],
            replies: vec![VecDeque::new(); followers],
            reads: VecDeque::new(),
            once_held: vec![None; replicas],
            removed: false,
        };
        world.perform(out);
        world.primary.own_created();
        world
    }

    fn perform(&mut self, out: Actions) {
        for action in out {
            match action {
                Action::Ask { follower, round, ask } => {
                    self.send(follower, Lane::Live, Message { round, request: Request::Ask(ask) });
                }
                Action::Send { follower, round, batch } => {
                    self.send(follower, Lane::Live, Message { round, request: Request::Append(batch) });
                }
                Action::Read { follower, round, from, bytes_max } => {
                    self.reads.push_back((follower, round, from, bytes_max));
                }
            }
        }
    }

    fn send(&mut self, follower: usize, lane: Lane, message: Message) {
        let index = follower - 1;
        if self.up[index] {
            self.lanes[index][usize::from(lane == Lane::Bulk)].push_back(message);
        } else {
            self.replies[index].push_back((message.round, Answer::Unreachable));
        }
    }

    fn end(&self) -> Offset {
        self.ends.last().copied().unwrap_or(BASE)
    }

    fn append(&mut self, count: u64) {
        let piece = Piece { from: self.end(), end: self.end().plus(count), bytes: BATCH_BYTES };
        self.ends.push(piece.end);
        let mut out = Vec::new();
        self.primary.appended(piece, || (piece.from, piece.end), &mut out);
        self.perform(out);
    }

    fn sync_own(&mut self) {
        if self.own_synced == self.ends.len() {
            return;
        }
        self.own_synced += 1;
        let (mut out, end) = (Vec::new(), self.ends[self.own_synced - 1]);
        self.primary.own_synced(self.now, end, &mut out);
        self.perform(out);
    }

    /// The node of a follower takes what one lane brings next.
    fn take(&mut self, index: usize, lane: usize) {
        let Some(Message { round, request }) = self.lanes[index][lane].pop_front() else { return };
        let copy = &mut self.copies[index];
        let answer = match request {
            Request::Ask(Ask::Create { .. }) if copy.ends.is_some() => Answer::Exists,
            Request::Ask(Ask::Create { rebuilding }) => {
                *copy = Copy { ends: Some(Vec::new()), rebuilding, ..Copy::default() };
                Answer::Created
            }
            _ if copy.ends.is_none() => Answer::Missing,
            Request::Ask(Ask::Inspect) => {
                Answer::Stands { end: copy.durable_end().unwrap(), rebuilding: copy.rebuilding, takes: true }
            }
            Request::Ask(Ask::Rebuilt) => {
                copy.rebuilding = false;
                Answer::Rebuilt
            }
            Request::Append((from, _)) if from != copy.end() => Answer::OutOfSync { end: copy.end() },
            Request::Append((_, end)) => {
                copy.ends.as_mut().unwrap().push(end);
                copy.unsynced.push((round, end));
                return;
            }
        };
        self.replies[index].push_back((round, answer));
    }

    fn sync(&mut self, index: usize) {
        let copy = &mut self.copies[index];
        copy.durable = copy.ends.as_ref().map_or(0, Vec::len);
        for (round, end) in std::mem::take(&mut copy.unsynced) {
            self.replies[index].push_back((round, Answer::Appended { end }));
        }
    }

    fn hear(&mut self, index: usize) {
        let Some((round, answer)) = self.replies[index].pop_front() else { return };
        let mut out = Vec::new();
        self.primary.answered(self.now, index + 1, round, answer, &mut out);
        self.perform(out);
    }

    fn read(&mut self) {
        let Some((follower, round, from, bytes_max)) = self.reads.pop_front() else { return };
        let mut pieces = Vec::new();
        let mut begin = BASE;
        for end in &self.ends[..self.own_synced] {
            let fits = pieces.is_empty() || (pieces.len() as u64 + 1) * BATCH_BYTES <= bytes_max as u64;
            if *end > from && fits {
                pieces.push(Piece { from: begin, end: *end, bytes: BATCH_BYTES });
            }
            begin = *end;
        }
        let (count, lane) = self.primary.read(self.now, follower, round, &pieces);
        for piece in &pieces[..count] {
            let request = Request::Append((piece.from, piece.end));
            self.send(follower, lane, Message { round, request });
        }
        let mut out = Vec::new();
        self.primary.go_on(follower, &mut out);
        self.perform(out);
    }

    /// The connection breaks: what is on its way gets no answer.
    fn cut(&mut self, index: usize) {
        if !std::mem::take(&mut self.up[index]) {
            return;
        }
        let lost: Vec<u32> = self.lanes[index]
            .iter_mut()
            .flat_map(std::mem::take)
            .map(|message| message.round)
            .chain(std::mem::take(&mut self.copies[index].unsynced).into_iter().map(|(round, _)| round))
            .collect();
        for round in lost {
            self.replies[index].push_back((round, Answer::Unanswered));
        }
        self.primary.down(self.now, index + 1);
    }

    /// A follower's process ends: what was not synced may be gone.
    fn crash(&mut self, index: usize) {
        self.cut(index);
        let copy = &mut self.copies[index];
        if let Some(ends) = &mut copy.ends {
            ends.truncate(copy.durable);
        }
    }

    fn remove(&mut self, index: usize) {
        self.crash(index);
        self.copies[index] = Copy::default();
        self.removed = true;
    }

    fn connect(&mut self, index: usize) {
        if !std::mem::replace(&mut self.up[index], true) {
            let mut out = Vec::new();
            self.primary.up(self.now, index + 1, &mut out);
            self.perform(out);
        }
    }

    fn tick(&mut self) {
        self.now = self.now.plus(Duration::from_millis(60));
        let mut out = Vec::new();
        self.primary.tick(self.now, &mut out);
        self.perform(out);
    }

    fn own_end(&self) -> Offset {
        self.own_synced.checked_sub(1).map_or(BASE, |last| self.ends[last])
    }

    fn check(&mut self) {
        let ends = std::iter::once(Some(self.own_end())).chain(self.copies.iter().map(Copy::counts_for));
        for (once, now) in self.once_held.iter_mut().zip(ends) {
            *once = (*once).max(now);
        }
        // INV-10: nothing is committed that a quorum of copies never held.
        let held = types::quorum::committed(&self.once_held);
        assert!(self.primary.committed() <= held, "committed past what a quorum held");
        assert!(self.primary.readable_end() <= self.own_end(), "readable past the own copy");
        for copy in &self.copies {
            let ends = copy.ends.clone().unwrap_or_default();
            assert_eq!(ends[..], self.ends[..ends.len()], "copies agree up to the shorter end");
        }
        // A removed copy may take an acknowledged record with it, others may not: whoever seals finds it.
        if let Some(committed) = self.primary.committed().filter(|_| !self.removed) {
            let mut counted: Vec<_> = self.copies.iter().map(Copy::counts_for).collect();
            counted.push(Some(self.own_end()));
            let holders = counted.iter().filter(|end| **end >= Some(committed)).count();
            assert!(
                holders >= types::quorum::ack_count(counted.len()),
                "a sealer would miss what is committed"
            );
        }
        for index in 0..self.copies.len() {
            let on_the_way = self.primary.followers[index].bytes_left(RULES.window);
            assert!(on_the_way <= RULES.window.bytes);
        }
    }

    fn heal(&mut self) {
        for index in 0..self.copies.len() {
            self.connect(index);
        }
        for _ in 0..2000 {
            self.sync_own();
            self.read();
            for index in 0..self.copies.len() {
                self.take(index, 0);
                self.take(index, 1);
                self.sync(index);
                self.hear(index);
            }
            self.tick();
            self.check();
            let is_whole = |copy: &Copy| copy.counts_for() == Some(self.end());
            if self.copies.iter().all(is_whole) && self.primary.committed() == Some(self.end()) {
                return;
            }
        }
        panic!("not whole: {:?} {:?} of {:?}", self.primary, self.copies, self.end());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(u64),
    SyncOwn,
    Take(usize, usize),
    Sync(usize),
    Hear(usize),
    Read,
    Cut(usize),
    Crash(usize),
    Remove(usize),
    Connect(usize),
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0_usize..4;
    prop_oneof![
        6 => (1_u64..4).prop_map(Step::Append),
        6 => Just(Step::SyncOwn),
        12 => (which(), 0_usize..2).prop_map(|(index, lane)| Step::Take(index, lane)),
        10 => which().prop_map(Step::Sync),
        12 => which().prop_map(Step::Hear),
        6 => Just(Step::Read),
        1 => which().prop_map(Step::Cut),
        1 => which().prop_map(Step::Crash),
        1 => which().prop_map(Step::Remove),
        4 => which().prop_map(Step::Connect),
        3 => Just(Step::Tick),
    ]
}

fn run(world: &mut World, step: &Step) {
    let followers = world.copies.len();
    let of = |index: usize| index % followers.max(1);
    if followers == 0 && !matches!(step, Step::Append(_) | Step::SyncOwn | Step::Tick) {
        return;
    }
    match *step {
        Step::Append(count) => world.append(count),
        Step::SyncOwn => world.sync_own(),
        Step::Take(index, lane) => world.take(of(index), lane),
        Step::Sync(index) => world.sync(of(index)),
        Step::Hear(index) => world.hear(of(index)),
        Step::Read => world.read(),
        Step::Cut(index) => world.cut(of(index)),
        Step::Crash(index) => world.crash(of(index)),
        Step::Remove(index) => world.remove(of(index)),
        Step::Connect(index) => world.connect(of(index)),
        Step::Tick => world.tick(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn whatever_happens_commits_are_held_and_everybody_becomes_whole(
        replicas in 1_usize..6, steps in prop::collection::vec(step(), 0..250),
    ) {
        let mut world = World::new(replicas);
        for step in &steps {
            run(&mut world, step);
            world.check();
        }
        world.heal();
    }
}

/// A world whose copies are all there.
fn open(replicas: usize) -> World {
    let mut world = World::new(replicas);
    for index in 0..replicas - 1 {
        world.take(index, 0);
        world.hear(index);
    }
    assert_eq!(world.primary.committed(), Some(BASE));
    world
}

#[test]
fn one_copy_commits_by_itself_and_keeps_nothing() {
    let mut world = open(1);
    world.append(3);
    assert_eq!((world.primary.committed(), world.primary.held_bytes()), (Some(BASE), 0));
    world.sync_own();
    assert_eq!(world.primary.committed(), Some(BASE.plus(3)));
    assert!(world.primary.is_settled());
}

#[test]
fn a_batch_goes_live_to_all_and_is_committed_by_the_first_of_two_followers() {
    let mut world = open(3);
    world.append(2);
    world.sync_own();
    assert_eq!(world.primary.committed(), Some(BASE));
    world.take(1, 0);
    world.sync(1);
    world.hear(1);
    assert_eq!(world.primary.committed(), Some(BASE.plus(2)));
    assert!(world.primary.is_settled());
}

#[test]
fn two_followers_commit_without_the_primary_and_readers_wait_for_its_copy() {
    let mut world = open(3);
    world.append(2);
    for index in 0..2 {
        world.take(index, 0);
        world.sync(index);
        world.hear(index);
    }
    assert_eq!(world.primary.committed(), Some(BASE.plus(2)));
    assert_eq!((world.primary.readable_end(), world.primary.is_settled()), (BASE, false));
    world.sync_own();
    assert!(world.primary.is_settled());
}

#[test]
fn a_follower_takes_no_more_than_its_window_and_catches_up_from_the_primarys_copy() {
    let mut world = open(3);
    for _ in 0..20 {
        world.append(1);
        world.sync_own();
        world.take(1, 0);
        world.sync(1);
        world.hear(1);
    }
    assert_eq!(world.primary.committed(), Some(world.end()));
    assert_eq!(world.lanes[0][0].len(), RULES.window.batches, "beyond the window nothing is queued");
    assert_eq!(world.primary.held_bytes(), 0, "what is committed is read again");
    world.heal();
}

#[test]
fn a_copy_that_was_removed_is_made_anew_and_counts_only_when_it_is_whole() {
    let mut world = open(2);
    world.append(1);
    world.sync_own();
    world.take(0, 0);
    world.sync(0);
    world.hear(0);
    assert_eq!(world.primary.committed(), Some(BASE.plus(1)));
    world.check();
    world.remove(0);
    world.connect(0);
    world.append(1);
    world.sync_own();
    world.tick();
    world.tick();
    for _ in 0..4 {
        world.take(0, 0);
        world.hear(0);
    }
    assert!(world.copies[0].rebuilding, "{:?}", world.copies[0]);
    assert_eq!(world.primary.committed(), Some(BASE.plus(1)));
    world.heal();
    assert!(!world.copies[0].rebuilding);
}

#[test]
fn a_later_epoch_a_failed_copy_and_a_contradiction_put_a_follower_out() {
    let cases = [
        (Answer::Superseded, (true, false)),
        (Answer::Failed, (false, true)),
        (Answer::Appended { end: BASE.plus(9) }, (false, true)),
        (Answer::OutOfSync { end: BASE.plus(9) }, (false, true)),
    ];
    for (answer, expected) in cases {
        let mut world = open(3);
        world.append(1);
        world.primary.answered(Instant(0), 1, 0, answer, &mut Vec::new());
        let Standing { superseded, failed, there, .. } = world.primary.standing(Instant(0));
        assert_eq!(((superseded, failed), there), (expected, 2), "{answer:?}");
        world.append(1);
        assert_eq!(world.lanes[0][0].len(), 1, "{answer:?}: nothing more is sent there");
    }
}

#[test]
fn a_follower_is_behind_from_when_it_lacked_what_was_committed() {
    let mut world = open(3);
    let second = Duration::from_secs(1);
    world.now = world.now.plus(second);
    world.append(1);
    world.sync_own();
    world.take(1, 0);
    world.sync(1);
    world.hear(1);
    let (now, late) = (world.now, world.now.plus(second));
    world.primary.tick(now, &mut Vec::new());
    assert!(world.primary.standing(late).behind >= second);
    assert_eq!(world.primary.behind(late, second, u64::MAX).collect::<Vec<_>>(), [1]);
    world.take(0, 0);
    world.sync(0);
    world.hear(0);
    assert_eq!(world.primary.standing(late).behind, Duration::ZERO);
}

#[test]
fn a_follower_that_lacks_too_many_bytes_is_behind_at_once() {
    let mut world = open(3);
    let mut at = BASE;
    let mut grow = |primary: &mut Primary<Batch>, bytes: u64| {
        let piece = Piece { from: at, end: at.plus(1), bytes };
        primary.appended(piece, || (piece.from, piece.end), &mut Vec::new());
        at = piece.end;
        primary.behind(Instant(0), Duration::from_secs(1), 2 << 20).collect::<Vec<_>>()
    };
    for _ in 0..3 {
        assert_eq!(grow(&mut world.primary, 1 << 20), [0; 0]);
    }
    assert_eq!(grow(&mut world.primary, 1 << 20), [1, 2], "neither has taken anything");
}
