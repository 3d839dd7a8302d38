//! The holder alone, and several of them around one lease while processes pause, answers are late or lost, and
//! clocks step.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn timing() -> Timing {
    Timing::new(ms(15), ms(10), ms(2)).unwrap()
}

fn at(ms: u64) -> Instant {
    Instant(ms * 1000)
}

fn tick(holder: &mut Holder, now: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    holder.tick(at(now), &mut actions);
    actions
}

fn answered(holder: &mut Holder, now: u64, attempt: u64, answer: Answer) -> Vec<Action> {
    let mut actions = Vec::new();
    holder.answered(at(now), Attempt(attempt), answer, &mut actions);
    actions
}

const ONE: FenceToken = FenceToken(1);
const TWO: FenceToken = FenceToken(2);

#[test]
fn the_three_times_are_in_order() {
    for (duration, deadline, retry) in [(10, 10, 2), (15, 2, 2), (15, 10, 0), (9, 10, 2), (15, 1, 2)] {
        assert!(Timing::new(ms(duration), ms(deadline), ms(retry)).is_err());
    }
    let default = Timing::default();
    assert_eq!(Timing::new(default.duration, default.renew_deadline, default.retry_period), Ok(default));
}

#[test]
fn a_renewal_counts_from_when_it_was_sent() {
    let mut holder = Holder::new(timing(), at(0));
    assert_eq!(tick(&mut holder, 0), [Action::Acquire(Attempt(0))]);
    assert_eq!(tick(&mut holder, 1), []);
    // The answer takes 9 of the 10 milliseconds.
    assert_eq!(answered(&mut holder, 9, 0, Answer::Granted(ONE)), [Action::Gained(ONE)]);
    assert_eq!((holder.fence(at(9)), holder.fence(at(10))), (Some(ONE), None));
    assert_eq!(holder.wake_at(), at(2), "the next attempt is due");
    assert_eq!(tick(&mut holder, 9), [Action::Acquire(Attempt(1))]);
    assert_eq!(answered(&mut holder, 10, 1, Answer::Granted(ONE)), []);
    assert_eq!(holder.fence(at(18)), Some(ONE));
}

#[test]
fn an_answer_that_comes_too_late_gives_nothing() {
    let mut holder = Holder::new(timing(), at(0));
    tick(&mut holder, 0);
    let late = answered(&mut holder, 10, 0, Answer::Granted(ONE));
    assert_eq!(late, [Action::Gained(ONE), Action::Lost(ONE)]);
    assert_eq!(holder.fence(at(10)), None);
    // An attempt given up for a newer one says nothing at all.
    assert_eq!(tick(&mut holder, 10), [Action::Acquire(Attempt(1))]);
    assert_eq!(tick(&mut holder, 20), [Action::Acquire(Attempt(2))]);
    assert_eq!(answered(&mut holder, 21, 1, Answer::Granted(ONE)), []);
    assert_eq!(holder.fence(at(21)), None);
}

#[test]
fn a_holder_that_cannot_reach_anybody_gives_up_in_time() {
    let mut holder = Holder::new(timing(), at(0));
    tick(&mut holder, 0);
    answered(&mut holder, 0, 0, Answer::Granted(ONE));
    let (mut attempt, mut lost) = (1, None);
    for now in 1..15 {
        for action in tick(&mut holder, now) {
            match action {
                Action::Acquire(asked) => {
                    assert_eq!(asked, Attempt(attempt));
                    assert_eq!(answered(&mut holder, now, attempt, Answer::Unreachable), []);
                    attempt += 1;
                }
                Action::Lost(fence) => lost = Some((now, fence)),
                Action::Release(_) | Action::Gained(_) => panic!("{action:?}"),
            }
        }
    }
    assert_eq!((lost, attempt), (Some((10, ONE)), 8), "asked every other millisecond");
}

#[test]
fn it_is_lost_at_once_where_another_one_holds_it() {
    let mut holder = Holder::new(timing(), at(0));
    tick(&mut holder, 0);
    answered(&mut holder, 0, 0, Answer::Granted(ONE));
    tick(&mut holder, 2);
    assert_eq!(answered(&mut holder, 2, 1, Answer::Held), [Action::Lost(ONE)]);
    tick(&mut holder, 4);
    assert_eq!(answered(&mut holder, 4, 2, Answer::Granted(TWO)), [Action::Gained(TWO)]);
    tick(&mut holder, 6);
    let changed = answered(&mut holder, 6, 3, Answer::Granted(FenceToken(4)));
    assert_eq!(changed, [Action::Lost(TWO), Action::Gained(FenceToken(4))]);
    let mut actions = Vec::new();
    holder.release(at(7), &mut actions);
    assert_eq!(actions, [Action::Lost(FenceToken(4)), Action::Release(FenceToken(4))]);
    assert_eq!((holder.fence(at(7)), tick(&mut holder, 8), holder.wake_at()), (None, vec![], at(9)));
    // The release has not arrived when the node asks again: what it gave back it gives back again.
    tick(&mut holder, 9);
    let again = answered(&mut holder, 9, 4, Answer::Granted(FenceToken(4)));
    assert_eq!((again, holder.fence(at(9))), (vec![Action::Release(FenceToken(4))], None));
}

/// The rule of the table, once more: whose, fence, when renewed.
#[derive(Default)]
struct Lease {
    holder: Option<usize>,
    fence: u64,
    renewals: u64,
}

impl Lease {
    /// `over` is the renewal that the candidate has seen for long enough.
    fn acquire(&mut self, candidate: usize, over: Option<u64>) -> Answer {
        let free = self.holder.is_none() || over == Some(self.renewals);
        if self.holder != Some(candidate) {
            if !free {
                return Answer::Held;
            }
            (self.holder, self.fence) = (Some(candidate), self.fence + 1);
        }
        self.renewals += 1;
        Answer::Granted(FenceToken(self.fence))
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Time passes for everybody; a process that is paused does nothing.
    Pass(u64),
    /// One process stops or goes on.
    Pause(usize),
    /// The table takes what somebody asked.
    Take(usize),
    /// Its answer arrives, or that there is none.
    Arrive(usize, bool),
    Release(usize),
    /// What somebody gave back reaches the table.
    Free(usize),
    /// What the table says reaches somebody.
    Hear(usize),
    /// Somebody is in a hurry.
    Hurry(usize),
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..4_u64).prop_map(Step::Pass),
        3 => (3..12_u64).prop_map(Step::Pass),
        1 => (0..3_usize).prop_map(Step::Pause),
        5 => (0..3_usize).prop_map(Step::Take),
        5 => (0..3_usize, prop::bool::weighted(0.8)).prop_map(|(node, arrives)| Step::Arrive(node, arrives)),
        1 => (0..3_usize).prop_map(Step::Release),
        1 => (0..3_usize).prop_map(Step::Free),
        3 => (0..3_usize).prop_map(Step::Hear),
        1 => (0..3_usize).prop_map(Step::Hurry),
    ]
}

struct Node {
    holder: Holder,
    paused: bool,
    /// Given back, and not known to the table.
    given_back: Option<FenceToken>,
    /// The renewal it has heard of last, and when.
    heard: (u64, u64),
    /// Asked and not taken; taken and not answered.
    out: Option<(Attempt, Option<u64>)>,
    back: Option<(Attempt, Answer)>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// C-1, P-33: no two nodes hold it at a time, whatever is late or lost. C-2: the fence grows exactly when the holder
    /// changes. A receiver that refuses a fence below the highest it has seen takes no more from the earlier one once the
    /// later one has acted.
    #[test]
    fn nobody_acts_beside_another(steps in prop::collection::vec(a_step(), 1..200)) {
        let holder = || Holder::new(timing(), at(0));
        let node = || Node { holder: holder(), paused: false, given_back: None, heard: (0, 0), out: None, back: None };
        let mut nodes = [node(), node(), node()];
        let (mut lease, mut now) = (Lease::default(), 0_u64);
        let (mut highest, mut owner) = (FenceToken::ZERO, None);
        for step in steps {
            let mut actions: Vec<(usize, Action)> = Vec::new();
            let mut act = |node: usize, of: Vec<Action>| actions.extend(of.into_iter().map(|a| (node, a)));
            match step {
                Step::Pass(ms) => now += ms,
                Step::Pause(node) => nodes[node].paused = !nodes[node].paused,
                Step::Take(node) => {
                    let before = (lease.holder, lease.fence);
                    if let Some((attempt, over)) = nodes[node].out.take() {
                        let answer = lease.acquire(node, over);
                        nodes[node].back = Some((attempt, answer));
                    }
                    prop_assert_eq!(lease.fence - before.1, u64::from(lease.holder != before.0));
                }
                Step::Arrive(node, arrives) => {
                    if let (Some((attempt, answer)), false) = (nodes[node].back.take(), nodes[node].paused) {
                        let answer = if arrives { answer } else { Answer::Unreachable };
                        act(node, answered(&mut nodes[node].holder, now, attempt.0, answer));
                    }
                }
                Step::Release(node) if !nodes[node].paused => {
                    let mut of = Vec::new();
                    nodes[node].holder.release(at(now), &mut of);
                    act(node, of);
                }
                Step::Release(_) => {}
                Step::Free(node) => {
                    let fence = nodes[node].given_back.take();
                    if lease.holder == Some(node) && fence == Some(FenceToken(lease.fence)) {
                        lease.holder = None;
                    }
                }
                Step::Hear(node) if !nodes[node].paused && nodes[node].heard.0 != lease.renewals => {
                    nodes[node].heard = (lease.renewals, now);
                }
                Step::Hurry(node) if !nodes[node].paused => nodes[node].holder.hurry(at(now)),
                Step::Hear(_) | Step::Hurry(_) => {}
            }
            for (i, node) in nodes.iter_mut().enumerate().filter(|(_, node)| !node.paused) {
                act(i, tick(&mut node.holder, now));
            }
            for (node, action) in actions {
                match action {
                    Action::Acquire(attempt) => {
                        let (renewal, since) = nodes[node].heard;
                        nodes[node].out = Some((attempt, (now - since >= 15).then_some(renewal)));
                    }
                    Action::Release(fence) => nodes[node].given_back = Some(fence),
                    Action::Gained(_) | Action::Lost(_) => {}
                }
            }
            let holding: Vec<(usize, FenceToken)> =
                (0..3).filter_map(|i| Some((i, nodes[i].holder.fence(at(now))?))).collect();
            prop_assert!(holding.len() <= 1, "{holding:?}");
            // Everybody who believes it acts; one receiver looks at the fences.
            for (node, fence) in holding {
                if fence >= highest {
                    prop_assert!(fence > highest || owner == Some(node), "a fence has one owner");
                    (highest, owner) = (fence, Some(node));
                }
                prop_assert!(fence.0 <= lease.fence);
            }
        }
    }
}
