//! What may go wrong with a simulated disk, and how likely it is.
//!
//! Power loss needs no chance here: it happens when the owner of the disk calls `crash`. Everything in this
//! file stays within the contract of the trait except [`Lies`], which exist to check the checker.

use std::time::Duration;

use rand::Rng;
use storage::disk::{ErrorKind, Path};

/// How often something happens, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance(pub u32);

impl Chance {
    /// Not once.
    pub const NEVER: Self = Self(0);

    /// Once in `n` times on average; `n` of 0 is never.
    #[must_use]
    pub fn one_in(n: u32) -> Self {
        Self(1_000_000u32.checked_div(n).unwrap_or(0))
    }

    /// Draws. A chance of zero draws nothing, so that adding a fault leaves runs without it as they were.
    pub(crate) fn strikes(self, rng: &mut impl Rng) -> bool {
        self.0 > 0 && rng.random_range(0..1_000_000) < self.0
    }
}

/// How unsynced names come out of a power loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameLoss {
    /// Each change of a directory is kept or lost independently: what the contract says.
    #[default]
    Independent,
    /// The changes of each directory survive as a prefix: what journaling file systems do.
    Prefix,
}

/// Faults that strike at random.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Bytes the volume holds; `None` is boundless. Files and directories cost [`super::NODE_BYTES`] each.
    pub capacity_bytes: Option<u64>,
    /// A read fails with `EIO`.
    pub read_error: Chance,
    /// A write, zeroing or truncation fails with `EIO`, having done a part of its work.
    pub write_error: Chance,
    /// A sync of a file fails with `EIO`, having done a part of its work.
    pub sync_error: Chance,
    /// Any step on names (create, open, rename, remove, list, sync of a directory) fails with `EIO`.
    pub name_error: Chance,
    /// A step takes up to `slow_max` instead of its usual time.
    pub slow: Chance,
    /// Bound of slowness.
    pub slow_max: Duration,
    /// How unsynced names come out of a power loss.
    pub names: NameLoss,
}

impl Faults {
    /// A healthy disk, which still loses power as badly as the contract allows.
    #[must_use]
    pub fn none() -> Self {
        Self {
            capacity_bytes: None,
            read_error: Chance::NEVER,
            write_error: Chance::NEVER,
            sync_error: Chance::NEVER,
            name_error: Chance::NEVER,
            slow: Chance::NEVER,
            slow_max: Duration::from_secs(1),
            names: NameLoss::Independent,
        }
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::none()
    }
}

/// Kinds of steps, as far as faults tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// `Read`.
    Read,
    /// `Write`, `Zero` and `Truncate`.
    Write,
    /// `Sync`.
    Sync,
    /// `SyncDir`.
    SyncDir,
    /// `Open`.
    Open,
    /// `CreateDir`, `RemoveDir`, `Create`, `Rename` and `Remove`.
    Name,
    /// `List`.
    List,
}

/// A fault ordered for a certain step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    /// Which kind of step.
    pub class: Class,
    /// Only steps on this file; for a rename either of its paths. `None` is every file and directory.
    pub path: Option<Path>,
    /// Matching steps that still succeed first.
    pub skip: u32,
    /// Matching steps that then fail; `u32::MAX` is for ever.
    pub times: u32,
    /// How they fail.
    pub kind: ErrorKind,
}

impl Injection {
    /// The next step of a class fails, once.
    #[must_use]
    pub fn next(class: Class, kind: ErrorKind) -> Self {
        Self { class, path: None, skip: 0, times: 1, kind }
    }

    /// Counts one matching step, and says whether it fails.
    pub(crate) fn strikes(&mut self, class: Class, paths: &[&str]) -> bool {
        let named = self.path.as_ref().is_none_or(|path| paths.contains(&path.to_string().as_str()));
        if self.class != class || !named || self.times == 0 {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.times < u32::MAX {
            self.times -= 1;
        }
        true
    }
}

/// Ways to break the contract, to see whether the checks of a simulation notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lies {
    /// A sync of a file says it is done and does nothing.
    pub ignore_sync: bool,
    /// A sync of a directory says it is done and does nothing.
    pub ignore_sync_dir: bool,
    /// A file whose sync failed shows, even when opened again, what the cache holds instead of what the
    /// platter does (as Linux may while the pages stay in memory).
    pub stale_reopen: bool,
}
