//! Time as this node lived it, and what is due when.
//!
//! A process that was stopped, or a machine that slept, wakes up with every deadline passed and the answers it waited
//! for still in its socket's buffer. Taking the time it missed for time the others did not answer would declare all
//! of them dead at once. So the time by which a wake-up is late is not counted.

use std::collections::BTreeMap;
use std::time::Duration;

use types::Instant;

use crate::engine::Timer;
use crate::event::Action;

/// A wake-up may be that late without anything being wrong.
const LATE: Duration = Duration::from_millis(250);

/// The time that was lived.
#[derive(Debug, Default)]
pub(super) struct Clock {
    missed: Duration,
    wake_at: Option<Instant>,
}

impl Clock {
    /// The lived time at `real`, which is when something happens.
    pub(super) fn lived(&mut self, real: Instant) -> Instant {
        if let Some(wake_at) = self.wake_at {
            let late = real.since(wake_at);
            if late > LATE {
                self.missed += late;
                self.wake_at = Some(real);
            }
        }
        Instant(real.0.saturating_sub(u64::try_from(self.missed.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Asks to be woken at the lived time `due`.
    pub(super) fn wake(&mut self, due: Option<Instant>, out: &mut Vec<Action>) {
        let wake_at = due.map(|due| due.plus(self.missed));
        if self.wake_at != wake_at {
            self.wake_at = wake_at;
            out.extend(wake_at.map(Action::WakeAt));
        }
    }
}

/// What the engine wants to be reminded of. At most one of each kind: a new one of a kind ends the old one.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeMap<(Instant, u64), Timer>,
    number: u64,
}

impl Timers {
    pub(super) fn set(&mut self, at: Instant, timer: Timer) {
        let kind = std::mem::discriminant(&timer);
        self.due.retain(|_, other| std::mem::discriminant(other) != kind);
        self.number += 1;
        self.due.insert((at, self.number), timer);
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        let (&(at, number), _) = self.due.first_key_value()?;
        if at > now { None } else { self.due.remove(&(at, number)) }
    }

    pub(super) fn count(&self) -> usize {
        self.due.len()
    }

    pub(super) fn clear(&mut self) {
        self.due.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_was_missed_is_not_counted() {
        let mut clock = Clock::default();
        let mut out = Vec::new();
        assert_eq!(clock.lived(Instant(1_000_000)), Instant(1_000_000));
        clock.wake(Some(Instant(1_500_000)), &mut out);
        // A little late is on time.
        assert_eq!(clock.lived(Instant(1_700_000)), Instant(1_700_000));
        // Ten seconds are not, and are missed once.
        assert_eq!(clock.lived(Instant(11_500_000)), Instant(1_500_000));
        assert_eq!(clock.lived(Instant(11_500_001)), Instant(1_500_001));
        clock.wake(Some(Instant(2_000_000)), &mut out);
        let wakes: [u64; 2] = [1_500_000, 12_000_000];
        assert_eq!(out, wakes.map(|at| Action::WakeAt(Instant(at))));
    }

    #[test]
    fn a_timer_ends_an_earlier_one_of_its_kind() {
        let mut timers = Timers::default();
        timers.set(Instant(5), foca::Timer::ProbeRandomMember(0));
        timers.set(Instant(7), foca::Timer::PeriodicGossip(0));
        timers.set(Instant(9), foca::Timer::ProbeRandomMember(1));
        assert_eq!((timers.count(), timers.next()), (2, Some(Instant(7))));
        assert_eq!(timers.take_due(Instant(6)), None);
        assert_eq!(timers.take_due(Instant(9)), Some(foca::Timer::PeriodicGossip(0)));
        assert_eq!(timers.take_due(Instant(9)), Some(foca::Timer::ProbeRandomMember(1)));
    }
}
