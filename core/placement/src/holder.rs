//! One node's side of the cluster lease: when to ask for it, and whether it is held right now.
//!
//! Owns the deadlines. The lease itself is a replicated table: its answers come back as events here. What is done
//! under the lease carries its fence, and whoever receives it refuses a lower one than it has seen; this machine
//! only keeps honest nodes from acting in vain.
//!
//! Invariants:
//! - a renewal counts from when it was *sent*: the table cannot have taken it earlier;
//! - [`Holder::fence`] is worked out at the moment of asking, so a process that was paused answers no as soon as it
//!   runs again, before any timer has;
//! - a holder gives up after the renewal deadline, which is shorter than the lease: where clocks run equally fast,
//!   nobody else is given the lease before that.
//!
//! ```text
//! sent      retry      retry      retry            deadline          lease ends
//! |----------|----------|----------|-----------------|----------------|
//! is held until the deadline; asked for every retry period; another node gets it at the end at the earliest
//! ```

use std::time::Duration;

use types::{FenceToken, Instant};

/// How long a lease lasts and how it is kept. Made by [`Timing::new`], so the three are in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// The three times of a lease are out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a lease must last longer than its renewal deadline, and that longer than the retry period: \
     {duration:?} > {renew_deadline:?} > {retry_period:?} > 0 does not hold"
)]
pub struct OutOfOrder {
    duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

impl Timing {
    /// Refused unless `duration > renew_deadline > retry_period > 0`.
    pub fn new(
        duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, OutOfOrder> {
        let in_order =
            duration > renew_deadline && renew_deadline > retry_period && retry_period > Duration::ZERO;
        if in_order {
            Ok(Self { duration, renew_deadline, retry_period })
        } else {
            Err(OutOfOrder { duration, renew_deadline, retry_period })
        }
    }

    /// How long the lease lasts after each renewal.
    #[must_use]
    pub fn duration(self) -> Duration {
        self.duration
    }
}

impl Default for Timing {
    /// 15 s, 10 s and 2 s.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Number of an attempt to acquire or renew; grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt(pub u64);

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The table says that this node holds the lease.
    Granted(FenceToken),
    /// The table says that another one does.
    Held,
    /// Nothing can be said: it may have been taken or not.
    Unreachable,
}

/// What the node has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Propose to acquire or renew for [`Timing::duration`], and answer with the attempt.
    Acquire(Attempt),
    /// Propose to release; what comes of it does not matter.
    Release(FenceToken),
    /// The lease is held: go on with what an earlier holder left.
    Gained(FenceToken),
    /// The lease is not held any more: stop between two steps.
    Lost(FenceToken),
}

/// One node's view of the lease.
#[derive(Clone, Debug)]
pub struct Holder {
    timing: Timing,
    held: Option<Held>,
    /// The attempt whose answer is awaited, and when it was sent.
    asked: Option<(Attempt, Instant)>,
    next: Attempt,
    ask_at: Instant,
    /// The fence that was given back last. It is never acted under again: the release may still be on its way.
    released: Option<FenceToken>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    fence: FenceToken,
    sent: Instant,
}

impl Holder {
    /// A node that holds nothing and asks at its first tick.
    #[must_use]
    pub fn new(timing: Timing, now: Instant) -> Self {
        Self { timing, held: None, asked: None, next: Attempt(0), ask_at: now, released: None }
    }

    /// The fence to act under; `None` while the lease is not held for certain. Right at any moment, whatever has
    /// or has not come in.
    #[must_use]
    pub fn fence(&self, now: Instant) -> Option<FenceToken> {
        self.held.filter(|held| self.is_fresh(held.sent, now)).map(|held| held.fence)
    }

    /// When [`Holder::tick`] has something to do next, at the latest.
    #[must_use]
    pub fn wake_at(&self) -> Instant {
        let give_up = self.held.map(|held| held.sent.plus(self.timing.renew_deadline));
        give_up.map_or(self.ask_at, |at| at.min(self.ask_at))
    }

    /// Looks at the time: gives up what was not renewed for too long, and asks when it is time to.
    pub fn tick(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.give_up_if_late(now, actions);
        if now < self.ask_at {
            return;
        }
        self.ask_at = now.plus(self.timing.retry_period);
        // An answer that takes longer than the period is still worth waiting for: asking anew would only make the
        // queue longer that it waits in.
        if self.asked.is_some_and(|(_, sent)| self.is_fresh(sent, now)) {
            return;
        }
        let attempt = self.next;
        self.next = Attempt(attempt.0 + 1);
        self.asked = Some((attempt, now));
        actions.push(Action::Acquire(attempt));
    }

    /// Takes the answer to an attempt; one to an attempt that was given up says nothing.
    pub fn answered(&mut self, now: Instant, attempt: Attempt, answer: Answer, actions: &mut Vec<Action>) {
        let Some((asked, sent)) = self.asked else { return };
        if asked != attempt {
            return;
        }
        self.asked = None;
        match answer {
            Answer::Granted(fence) => self.granted(fence, sent, actions),
            Answer::Held => self.lose(actions),
            Answer::Unreachable => {}
        }
        self.give_up_if_late(now, actions);
    }

    /// Gives the lease back, so that nobody has to wait for its end. Asks again only after a retry period.
    pub fn release(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if let Some(Held { fence, .. }) = self.held {
            self.lose(actions);
            self.released = Some(fence);
            actions.push(Action::Release(fence));
        }
        self.asked = None;
        self.ask_at = now.plus(self.timing.retry_period);
    }

    /// Asks at the next tick, instead of waiting for the end of the retry period.
    pub fn hurry(&mut self, now: Instant) {
        self.ask_at = self.ask_at.min(now);
    }

    /// Gives the lease back and asks for it at once: for another fence.
    pub fn turn(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.release(now, actions);
        self.ask_at = now;
    }

    fn granted(&mut self, fence: FenceToken, sent: Instant, actions: &mut Vec<Action>) {
        match self.held {
            _ if self.released == Some(fence) => actions.push(Action::Release(fence)),
            Some(held) if held.fence == fence => self.held = Some(Held { fence, sent: sent.max(held.sent) }),
            Some(_) | None => {
                // Another fence: somebody else held it in between.
                self.lose(actions);
                self.held = Some(Held { fence, sent });
                actions.push(Action::Gained(fence));
            }
        }
    }

    fn give_up_if_late(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.held.is_some_and(|held| !self.is_fresh(held.sent, now)) {
            self.lose(actions);
        }
    }

    fn lose(&mut self, actions: &mut Vec<Action>) {
        if let Some(held) = self.held.take() {
            actions.push(Action::Lost(held.fence));
        }
    }

    fn is_fresh(&self, sent: Instant, now: Instant) -> bool {
        now.since(sent) < self.timing.renew_deadline
    }
}

#[cfg(test)]
mod tests;
