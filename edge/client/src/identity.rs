//! Who a producer is, and how it numbers its requests so that they may be sent again.
//!
//! Owns the name a broker gave and the time that came with it. Pure: how long ago that was is an argument, and whoever
//! asks for a name sends the request.
//!
//! - A stamp is given once; the same one is sent with every repetition.
//! - Numbers of one name never repeat: a name whose numbers are used up is no name any more.

use std::time::Duration;

use types::{ProducerEpoch, ProducerId, Stamp, WallTime};

/// A name and what was numbered under it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    id: ProducerId,
    /// What time it was when it was given.
    given_ms: u64,
    next: u32,
}

impl Identity {
    /// A name, and what time it is as its broker says.
    pub(crate) fn new(id: u64, now_ms: u64) -> Self {
        Self { id: ProducerId(id), given_ms: now_ms.max(1), next: 0 }
    }

    /// The stamp of a request of so many records; `None` when there are no numbers left for them.
    ///
    /// `settled` is the first number under this name that has no outcome yet, if there is one; `since` the time that has
    /// passed since it was given.
    pub(crate) fn stamp(&mut self, count: u32, settled: Option<u32>, since: Duration) -> Option<Stamp> {
        let first = self.next;
        self.next = first.checked_add(count)?;
        let since = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Some(Stamp {
            producer: self.id,
            epoch: ProducerEpoch(0),
            first,
            settled: settled.map_or(first, |settled| settled.min(first)),
            born: WallTime(self.given_ms.saturating_add(since)),
        })
    }

    /// Whether a stamp is of this name.
    pub(crate) fn gave(&self, stamp: &Stamp) -> bool {
        stamp.producer == self.id
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ZERO: Duration = Duration::ZERO;

    #[test]
    fn requests_are_numbered_by_their_records_and_bear_the_time() {
        let mut identity = Identity::new(9, 1000);
        let first = identity.stamp(3, None, ZERO).unwrap();
        assert_eq!((first.first, first.settled, first.born), (0, 0, WallTime(1000)));
        let second = identity.stamp(2, Some(0), Duration::from_millis(50)).unwrap();
        assert_eq!((second.first, second.settled, second.born), (3, 0, WallTime(1050)));
        let third = identity.stamp(1, None, ZERO).unwrap();
        assert_eq!((third.first, third.settled), (5, 5));
        assert!(identity.gave(&third) && !Identity::new(8, 1).gave(&third));
        assert!([first, second, third].iter().all(|stamp| stamp.fits(1)));
    }

    #[test]
    fn a_name_is_used_up() {
        let mut identity = Identity::new(9, 0);
        assert!(identity.stamp(u32::MAX, None, ZERO).unwrap().fits(u32::MAX));
        assert_eq!(identity.stamp(1, None, ZERO), None);
    }
}
