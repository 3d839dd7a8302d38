//! The log's files: which one takes records, which comes next, and which are still needed.
//!
//! Invariants:
//! - files are contiguous in sequence: made one after the other, removed from the front one at a time, each
//!   name made durable before the next changes;
//! - the file that takes records is made of written zeros ahead of need, its name durable before its first
//!   record;
//! - what a group needs is counted by what is durable, not by what is on its way.

use std::collections::{BTreeMap, BTreeSet};

use types::VnodeId;

use crate::disk::FileId;
use crate::format::raft_log::{Spot, Stamp};

/// The file that takes records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    pub(super) stamp: Stamp,
    pub(super) file: FileId,
    /// Where the next record goes.
    pub(super) at: u64,
}

impl Current {
    pub(super) fn spot(&self) -> Spot {
        Spot { file: self.stamp.sequence, at: self.at }
    }
}

/// The file after it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spare {
    None,
    /// Zeroed up to `at`.
    Making {
        stamp: Stamp,
        file: FileId,
        at: u64,
    },
    Ready {
        stamp: Stamp,
        file: FileId,
    },
    /// It could not be made, and is tried again once the present file reaches `until`.
    Failed {
        until: u64,
    },
}

#[derive(Debug)]
pub(super) struct Files {
    /// Every log file, the spare one included.
    pub(super) all: BTreeMap<u64, Stamp>,
    pub(super) current: Current,
    pub(super) spare: Spare,
    /// Attempts to make it that failed, since the last that did not.
    pub(super) spare_failures: u64,
    /// A file is being removed from the front.
    pub(super) removing: bool,
    needs: Needs,
}

/// The oldest file each group needs.
#[derive(Debug, Default)]
struct Needs {
    by_group: BTreeMap<VnodeId, u64>,
    by_file: BTreeMap<u64, BTreeSet<VnodeId>>,
}

impl Files {
    pub(super) fn new(all: BTreeMap<u64, Stamp>, current: Current) -> Self {
        Self { all, current, spare: Spare::None, spare_failures: 0, removing: false, needs: Needs::default() }
    }

    /// From now on `group` needs files from `oldest` on; none at all for `None`.
    pub(super) fn need(&mut self, group: VnodeId, oldest: Option<u64>) {
        let needs = &mut self.needs;
        if let Some(old) = needs.by_group.remove(&group) {
            let groups = needs.by_file.get_mut(&old).expect("both maps hold the same pairs");
            groups.remove(&group);
            if groups.is_empty() {
                needs.by_file.remove(&old);
            }
        }
        if let Some(file) = oldest {
            needs.by_group.insert(group, file);
            needs.by_file.entry(file).or_default().insert(group);
        }
    }

    /// From now on `group` needs files from `oldest` on, beside those it needs already.
    pub(super) fn need_also(&mut self, group: VnodeId, oldest: Option<u64>) {
        let present = self.needs.by_group.get(&group).copied();
        if let Some(oldest) = oldest.filter(|oldest| present.is_none_or(|present| *oldest < present)) {
            self.need(group, Some(oldest));
        }
    }

    /// The oldest file.
    pub(super) fn front(&self) -> u64 {
        self.all.keys().next().copied().unwrap_or(self.current.stamp.sequence)
    }

    /// Files from the oldest to the one that takes records.
    pub(super) fn used(&self) -> usize {
        self.all.range(..=self.current.stamp.sequence).count()
    }

    /// The oldest file, if nobody needs it.
    pub(super) fn removable(&self) -> Option<Stamp> {
        let (front, stamp) = self.all.iter().next()?;
        let oldest_needed = self.needs.by_file.keys().next().copied().unwrap_or(u64::MAX);
        (*front < oldest_needed && *front < self.current.stamp.sequence).then_some(*stamp)
    }

    /// Groups for which the oldest file is kept.
    pub(super) fn holding_front(&self) -> impl Iterator<Item = VnodeId> {
        let front = self.front();
        self.needs.by_file.range(..=front).flat_map(|(_, groups)| groups.iter().copied())
    }

    /// The identity of the next file.
    pub(super) fn next_stamp(&self, seed: u64) -> Stamp {
        let sequence = self.current.stamp.sequence + 1;
        Stamp { sequence, salt: salt(seed, sequence) }
    }
}

/// Spreads the seed over the files (the finishing step of SplitMix64).
pub(super) fn salt(seed: u64, sequence: u64) -> u32 {
    let mut mixed = seed.wrapping_add(sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    u32::try_from(mixed >> 32).expect("the upper half fits")
}
