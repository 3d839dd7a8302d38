//! How often somebody may try something.
//!
//! A bucket holds as many tokens as the limit, is refilled evenly over its window, and loses one with each try.
//! Kept as one instant for each identity: when its bucket will be full again. A full bucket is like none, so it
//! is forgotten, and the table is bounded by who tried within one window.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Identities remembered; a table this full takes no new one until some buckets are full again.
const IDENTITIES_MAX: usize = 65_536;

/// So many in so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// At least 1.
    pub(crate) limit: u32,
    pub(crate) window: Duration,
}

impl Rate {
    /// The time one token takes to come back.
    fn interval(self) -> Duration {
        self.window / self.limit.max(1)
    }
}

/// The buckets of one kind of try.
#[derive(Debug)]
pub(crate) struct Buckets<K> {
    rate: Rate,
    full_at: Mutex<HashMap<K, Instant>>,
}

impl<K: Clone + Eq + Hash> Buckets<K> {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, full_at: Mutex::default() }
    }

    /// Takes a token; the error is the time until there is one.
    pub(crate) fn take<Q>(&self, who: &Q, now: Instant) -> Result<(), Duration>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash + ToOwned<Owned = K>,
    {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let known = full_at.get(who).copied();
        self.wait(known, now)?;
        if known.is_none() && full_at.len() >= IDENTITIES_MAX {
            full_at.retain(|_, full_at| *full_at > now);
            if full_at.len() >= IDENTITIES_MAX {
                return Err(self.rate.interval());
            }
        }
        let next = known.unwrap_or(now).max(now) + self.rate.interval();
        match full_at.get_mut(who) {
            Some(at) => *at = next,
            None => drop(full_at.insert(who.to_owned(), next)),
        }
        Ok(())
    }

    /// Looks without taking.
    pub(crate) fn look<Q>(&self, who: &Q, now: Instant) -> Result<(), Duration>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        let known = self.full_at.lock().unwrap_or_else(PoisonError::into_inner).get(who).copied();
        self.wait(known, now)
    }

    /// Forgets full buckets.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        full_at.retain(|_, full_at| *full_at > now);
    }

    fn wait(&self, full_at: Option<Instant>, now: Instant) -> Result<(), Duration> {
        let missing = full_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        // With all but one token missing there is one left.
        let most = self.rate.window.saturating_sub(self.rate.interval());
        if missing <= most { Ok(()) } else { Err(missing - most) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_of_the_limit_and_then_one_for_each_interval() {
        let buckets = Buckets::<String>::new(Rate { limit: 10, window: 60 * SECOND });
        let start = Instant::now();
        for _ in 0..10 {
            buckets.take("a", start).unwrap();
        }
        assert_eq!(buckets.take("a", start), Err(6 * SECOND));
        assert_eq!(buckets.take("b", start), Ok(()), "others have their own");
        assert_eq!(buckets.take("a", start + 4 * SECOND), Err(2 * SECOND), "a refusal costs nothing");
        assert_eq!(buckets.take("a", start + 6 * SECOND), Ok(()));
        assert!(buckets.take("a", start + 6 * SECOND).is_err());
        let later = start + 3600 * SECOND;
        for _ in 0..10 {
            buckets.take("a", later).unwrap();
        }
        assert!(buckets.take("a", later).is_err(), "no more than the limit is saved up");
    }

    #[test]
    fn looking_takes_nothing() {
        let buckets = Buckets::<String>::new(Rate { limit: 1, window: SECOND });
        let now = Instant::now();
        assert!(buckets.look("a", now).is_ok() && buckets.look("a", now).is_ok());
        buckets.take("a", now).unwrap();
        assert!(buckets.look("a", now).is_err());
    }

    #[test]
    fn the_table_is_bounded_and_full_buckets_are_forgotten() {
        let buckets = Buckets::<u32>::new(Rate { limit: 2, window: SECOND });
        let now = Instant::now();
        for who in 0..u32::try_from(IDENTITIES_MAX).unwrap() {
            buckets.take(&who, now).unwrap();
        }
        assert!(buckets.take(&u32::MAX, now).is_err());
        assert_eq!(buckets.take(&7, now), Ok(()), "who is known goes on");
        assert_eq!(buckets.take(&u32::MAX, now + SECOND), Ok(()));
        assert_eq!(buckets.full_at.lock().unwrap().len(), 1);
        buckets.sweep(now + 3 * SECOND);
        assert!(buckets.full_at.lock().unwrap().is_empty());
    }
}
