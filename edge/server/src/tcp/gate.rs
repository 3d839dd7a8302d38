//! How many connections there may be: per client address, then in total.
//!
//! Those beyond are told so and given a moment to read it, and meanwhile hold a descriptor each. So that a flood
//! of them does not take the descriptors that segments need, only so many are told at a time; the others are
//! closed without a word.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections that may be told at one time why they are refused.
const TURNED_AWAY_MAX: usize = 1024;

/// Which limit refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// This address has as many as it may.
    Address,
    /// There are as many as there may be.
    Total,
}

/// Counts connections.
#[derive(Debug)]
pub(crate) struct Gate {
    per_address_max: Option<usize>,
    total_max: Option<usize>,
    /// The total is the sum of the counts, kept beside them.
    counts: Mutex<(usize, HashMap<IpAddr, usize>)>,
    turned_away: Arc<Semaphore>,
}

/// A counted connection; leaves when it is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    gate: Arc<Gate>,
    address: IpAddr,
}

impl Gate {
    pub(crate) fn new(per_address_max: Option<usize>, total_max: Option<usize>) -> Arc<Self> {
        let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
        Arc::new(Self { per_address_max, total_max, counts: Mutex::default(), turned_away })
    }

    /// Room to tell a connection why it is refused, until the permit is dropped; `None` when there is none.
    pub(crate) fn turn_away(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turned_away).try_acquire_owned().ok()
    }

    /// Counts one more connection from an address in canonical form.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Result<Entered, Full> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (total, by_address) = &mut *counts;
        let of_address = by_address.get(&address).copied().unwrap_or(0);
        if self.per_address_max.is_some_and(|max| of_address >= max) {
            return Err(Full::Address);
        }
        if self.total_max.is_some_and(|max| *total >= max) {
            return Err(Full::Total);
        }
        *total += 1;
        by_address.insert(address, of_address + 1);
        Ok(Entered { gate: Arc::clone(self), address })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.gate.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (total, by_address) = &mut *counts;
        *total -= 1;
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_judged_first_and_leaving_makes_room() {
        let gate = Gate::new(Some(2), Some(3));
        let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let first = gate.enter(a).unwrap();
        let _second = gate.enter(a).unwrap();
        let _third = gate.enter(b).unwrap();
        assert_eq!(gate.enter(a).unwrap_err(), Full::Address);
        assert_eq!(gate.enter(b).unwrap_err(), Full::Total);
        drop(first);
        assert!(gate.enter(b).is_ok());
    }

    #[test]
    fn only_so_many_are_told_why_at_a_time() {
        let gate = Gate::new(Some(0), None);
        let mut told: Vec<_> = (0..TURNED_AWAY_MAX).map(|_| gate.turn_away().unwrap()).collect();
        assert!(gate.turn_away().is_none());
        told.pop();
        assert!(gate.turn_away().is_some());
    }

    #[test]
    fn no_limit_is_no_limit_and_nothing_is_left_behind() {
        let gate = Gate::new(None, None);
        let address: IpAddr = "::1".parse().unwrap();
        let all: Vec<Entered> = (0..1000).map(|_| gate.enter(address).unwrap()).collect();
        drop(all);
        let counts = gate.counts.lock().unwrap();
        assert!(counts.0 == 0 && counts.1.is_empty());
    }
}
