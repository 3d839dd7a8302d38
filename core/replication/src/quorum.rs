//! Where the quorum of one replica set stands.
//!
//! Owns what each copy is known to hold durably and the end that this makes committed. Does not know why a copy holds
//! what it holds.
//!
//! Invariants:
//! - `committed` is never above an end that `ack_count(N)` copies have reported, and never decreases;
//! - a copy's end only grows while the copy counts.

use types::{Offset, quorum};

/// What the copies of one segment hold, and what follows from it.
#[derive(Clone, Debug)]
pub struct Quorum {
    /// Exclusive durable end of each copy, the primary's first; `None` until it is there, and while it does not count.
    matched: Vec<Option<Offset>>,
    committed: Option<Offset>,
}

impl Quorum {
    /// Of so many copies, the primary's included. Panics for none.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        assert!(replicas > 0, "a segment has a primary");
        Self { matched: vec![None; replicas], committed: None }
    }

    /// Copies of the set.
    #[must_use]
    pub fn replicas(&self) -> usize {
        self.matched.len()
    }

    /// Takes note that a copy durably holds everything below `end`; a lower end than known is ignored.
    ///
    /// Whether the committed end moved.
    pub fn report(&mut self, replica: usize, end: Offset) -> bool {
        let Some(matched) = self.matched.get_mut(replica) else { return false };
        if *matched >= Some(end) {
            return false;
        }
        *matched = Some(end);
        let held = self.held_by_quorum();
        let moved = held > self.committed;
        self.committed = self.committed.max(held);
        moved
    }

    /// A copy is not what it was any more: it counts again from its next report. What was committed stays so.
    pub fn forget(&mut self, replica: usize) {
        if let Some(matched) = self.matched.get_mut(replica) {
            *matched = None;
        }
    }

    /// What a copy is known to hold.
    #[must_use]
    pub fn matched(&self, replica: usize) -> Option<Offset> {
        self.matched.get(replica).copied().flatten()
    }

    /// Exclusive end of what a quorum has synced; `None` until a quorum of copies is there.
    #[must_use]
    pub fn committed(&self) -> Option<Offset> {
        self.committed
    }

    /// The highest end that enough copies hold now. Sets are small: counted without a copy of the list, because this
    /// runs for every answer.
    fn held_by_quorum(&self) -> Option<Offset> {
        let enough = quorum::ack_count(self.matched.len());
        let holders = |end: Offset| self.matched.iter().filter(|held| **held >= Some(end)).count();
        self.matched.iter().flatten().copied().filter(|end| holders(*end) >= enough).max()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_copy_is_its_own_quorum() {
        let mut quorum = Quorum::new(1);
        assert_eq!(quorum.committed(), None);
        assert!(quorum.report(0, Offset(5)));
        assert!(!quorum.report(0, Offset(5)));
        assert!(!quorum.report(0, Offset(4)));
        assert_eq!(quorum.committed(), Some(Offset(5)));
    }

    #[test]
    fn a_report_of_no_member_changes_nothing() {
        let mut quorum = Quorum::new(2);
        assert!(!quorum.report(2, Offset(9)));
        assert_eq!((quorum.committed(), quorum.matched(2)), (None, None));
    }

    proptest! {
        // P-12, P-13, P-14, against the arithmetic that is searched for in `types`.
        #[test]
        fn committed_is_what_a_majority_holds_and_never_decreases(
            n in 1_usize..6, steps in prop::collection::vec((0_usize..6, 0_u64..30, any::<bool>()), 0..60),
        ) {
            let mut quorum = Quorum::new(n);
            let (mut held, mut highest) = (vec![None; n], None);
            for (replica, end, forget) in steps {
                let replica = replica % n;
                if forget && end == 0 {
                    quorum.forget(replica);
                    held[replica] = None;
                    continue;
                }
                let moved = quorum.report(replica, Offset(end));
                held[replica] = held[replica].max(Some(Offset(end)));
                let before = highest;
                highest = highest.max(types::quorum::committed(&held));
                prop_assert_eq!(quorum.committed(), highest);
                prop_assert_eq!(moved, highest > before);
                prop_assert_eq!(quorum.matched(replica), held[replica]);
            }
        }
    }
}
