//! Lockouts: failed logins of a user from an address, and how long it must wait.
//!
//! The name does not have to be a user's: a name that nobody has is counted like any other, or the waiting
//! would tell them apart. Anybody who can reach a broker can add pairs, so the oldest make room for new ones.
//!
//! ```text
//!   failure ×5   lock          failure   longer lock              nothing for `forget_ms`
//!   ──┬┬┬┬┬──────────────┤─────┬────────────────────────┤────────────────────────────┤
//!      count 5           ends   count 6                  ends                         count 0
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use types::{RaftIndex, WallTime, limits};

use super::{Attempt, Cluster, Refusal, Reply, UserName};

/// What the duration of a lock is multiplied with, by how often the user reached the limit.
const MULTIPLIERS: [u64; 5] = [1, 3, 9, 24, 72];

/// The text of a client's address: 1 to 64 printable bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(Arc<str>);

impl Address {
    /// Checks and takes the text of an address; `None` when it cannot be one.
    #[must_use]
    pub fn new(address: &[u8]) -> Option<Self> {
        let fits = !address.is_empty() && address.len() <= limits::ADDRESS_BYTES_MAX;
        if !fits || !address.iter().all(u8::is_ascii_graphic) {
            return None;
        }
        std::str::from_utf8(address).ok().map(|address| Self(address.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How failures become locks; travels with each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockoutRules {
    /// Failures that make a lock.
    pub attempts_max: NonZeroU32,
    /// Length of the first lock, milliseconds.
    pub duration_ms: u64,
    /// Whether later locks are longer.
    pub progressive: bool,
    /// What is counted is forgotten so long after the last failure, or after the end of its lock, milliseconds.
    pub forget_ms: u64,
}

impl LockoutRules {
    /// How long the failure that makes `count` locks for, if it does.
    fn lock_ms(&self, count: u32) -> Option<u64> {
        let times = count / self.attempts_max;
        let step = usize::try_from(times).unwrap_or(usize::MAX).checked_sub(1)?;
        let multiplier = if self.progressive { MULTIPLIERS[step.min(MULTIPLIERS.len() - 1)] } else { 1 };
        Some(self.duration_ms.saturating_mul(multiplier))
    }
}

/// What is counted for one user at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lockout {
    /// Failures that count.
    pub count: u32,
    /// Attempts before this are refused unseen.
    pub locked_until: Option<WallTime>,
    /// From then on it is as if nothing had been counted.
    pub forget_at: WallTime,
    /// The entry of the last failure: what was touched longest ago goes first.
    pub(super) touched: RaftIndex,
}

impl Lockout {
    fn locked_at(&self, at: WallTime) -> Option<WallTime> {
        self.locked_until.filter(|until| *until > at)
    }
}

/// The table, and the derived order in which it forgets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lockouts {
    by_user: BTreeMap<UserName, BTreeMap<Address, Lockout>>,
    by_age: BTreeMap<RaftIndex, (UserName, Address)>,
}

impl Lockouts {
    pub(super) fn get(&self, user: &str, address: &Address) -> Option<&Lockout> {
        self.by_user.get(user).and_then(|addresses| addresses.get(address))
    }

    /// In the order of names and addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&UserName, &Address, &Lockout)> {
        self.by_user.iter().flat_map(|(user, addresses)| {
            addresses.iter().map(move |(address, lockout)| (user, address, lockout))
        })
    }

    /// One user's addresses, in order.
    pub(super) fn of_user(&self, user: &str) -> impl Iterator<Item = (&Address, &Lockout)> {
        self.by_user.get(user).into_iter().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.by_age.len()
    }

    /// `false`, and no change, when another pair was touched by the same entry.
    pub(super) fn insert(&mut self, user: UserName, address: Address, lockout: Lockout) -> bool {
        if self.by_age.contains_key(&lockout.touched) {
            return false;
        }
        self.remove(&user, &address);
        let full = self.len() >= limits::LOCKOUTS_MAX;
        if let Some((_, (user, address))) = full.then(|| self.by_age.pop_first()).flatten() {
            self.remove(&user, &address);
        }
        self.by_age.insert(lockout.touched, (user.clone(), address.clone()));
        self.by_user.entry(user).or_default().insert(address, lockout);
        true
    }

    fn remove(&mut self, user: &UserName, address: &Address) -> bool {
        let Some(addresses) = self.by_user.get_mut(user) else { return false };
        let Some(lockout) = addresses.remove(address) else { return false };
        if addresses.is_empty() {
            self.by_user.remove(user);
        }
        self.by_age.remove(&lockout.touched);
        true
    }

    /// Removes what is counted for a user, at one address or all; says at how many.
    pub(super) fn clear(&mut self, user: &UserName, address: Option<&Address>) -> usize {
        if let Some(address) = address {
            return usize::from(self.remove(user, address));
        }
        let addresses = self.by_user.remove(user).unwrap_or_default();
        for lockout in addresses.values() {
            self.by_age.remove(&lockout.touched);
        }
        addresses.len()
    }

    fn forget(&mut self, at: WallTime) -> usize {
        let due = self.iter().filter(|(_, _, lockout)| lockout.forget_at <= at);
        let due: Vec<_> = due.map(|(user, address, _)| (user.clone(), address.clone())).collect();
        due.iter().filter(|(user, address)| self.remove(user, address)).count()
    }
}

impl Cluster {
    pub(super) fn record_failure(
        &mut self,
        attempt: &Attempt,
        rules: LockoutRules,
    ) -> Result<Reply, Refusal> {
        let (user, address) = names(&attempt.user, &attempt.address)?;
        let at = attempt.at;
        let known = self.lockouts.get(user.as_str(), &address).filter(|known| known.forget_at > at);
        // An attempt that was let through before the lock began: it must not make the lock longer.
        if let Some((known, until)) = known.and_then(|known| Some((known, known.locked_at(at)?))) {
            let (count, locked_until) = (known.count, Some(until));
            return Ok(Reply::FailureRecorded { count, locked_until, locked_now: false });
        }
        let count = known.map_or(0, |known| known.count).saturating_add(1);
        let after = |from: WallTime, ms: u64| WallTime(from.0.saturating_add(ms));
        let locked_until = rules.lock_ms(count).map(|ms| after(at, ms));
        let forget_at = after(locked_until.unwrap_or(at), rules.forget_ms);
        let lockout = Lockout { count, locked_until, forget_at, touched: self.applied };
        assert!(self.lockouts.insert(user, address, lockout), "an entry is applied once");
        Ok(Reply::FailureRecorded { count, locked_until, locked_now: locked_until.is_some() })
    }

    pub(super) fn record_success(&mut self, user: &Bytes, address: &Bytes) -> Result<Reply, Refusal> {
        let (user, address) = names(user, address)?;
        Ok(Reply::LockoutsCleared { addresses: self.lockouts.clear(&user, Some(&address)) })
    }

    pub(super) fn unlock(&mut self, user: &Bytes, address: Option<&Bytes>) -> Result<Reply, Refusal> {
        let user = UserName::new(user).map_err(|_| Refusal::InvalidUserName)?;
        let address =
            address.map(|address| Address::new(address).ok_or(Refusal::InvalidAddress)).transpose()?;
        Ok(Reply::LockoutsCleared { addresses: self.lockouts.clear(&user, address.as_ref()) })
    }

    pub(super) fn forget_lockouts(&mut self, at: WallTime) -> Reply {
        Reply::LockoutsForgotten { pairs: self.lockouts.forget(at) }
    }
}

fn names(user: &Bytes, address: &Bytes) -> Result<(UserName, Address), Refusal> {
    let user = UserName::new(user).map_err(|_| Refusal::InvalidUserName)?;
    let address = Address::new(address).ok_or(Refusal::InvalidAddress)?;
    Ok((user, address))
}
