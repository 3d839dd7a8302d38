//! Which member owns which range: the highest score of (range, member) wins.
//!
//! Pure. Kept step by step, because a topic may have thousands of ranges and a group a thousand members:
//! whoever joins is compared with the owners only, and whoever leaves gives away only what it owned. The
//! result is the one that a computation from nothing would give, in whatever order things happened.

use std::collections::{BTreeMap, BTreeSet};

use types::keyspace::KeyHash;
use types::{Generation, MemberName, RangeId, RangeSeq};

/// Who owns a range, and since which assignment without a break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) member: MemberName,
    pub(super) since: Generation,
    score: u32,
}

/// The owners of a topic's current ranges. Empty without members.
#[derive(Debug, Default)]
pub(super) struct Assignment {
    owners: BTreeMap<RangeId, Owner>,
}

/// A hash that every build computes alike.
fn score(range: RangeId, member: &MemberName) -> u32 {
    let mut bytes = Vec::with_capacity(24 + member.as_bytes().len());
    bytes.extend_from_slice(&range.topic.0.to_be_bytes());
    bytes.extend_from_slice(&range.seq.0.to_be_bytes());
    bytes.extend_from_slice(member.as_bytes());
    KeyHash::Xxh32.of(&bytes)
}

/// The owner among `members`; equal scores go to the greater name.
fn best<'a>(range: RangeId, members: impl Iterator<Item = &'a MemberName>) -> Option<(u32, &'a MemberName)> {
    members.map(|member| (score(range, member), member)).max()
}

impl Assignment {
    pub(super) fn owner(&self, range: RangeId) -> Option<&Owner> {
        self.owners.get(&range)
    }

    /// The ranges of a member, in the order of ids.
    pub(super) fn of<'a>(&'a self, member: &'a MemberName) -> impl Iterator<Item = RangeId> + 'a {
        self.owners.iter().filter(|(_, owner)| owner.member == *member).map(|(range, _)| *range)
    }

    /// The ranges of every member that has any, in the order of their numbers.
    pub(super) fn by_member(&self) -> BTreeMap<MemberName, Vec<RangeSeq>> {
        let mut ranges: BTreeMap<MemberName, Vec<RangeSeq>> = BTreeMap::new();
        for (range, owner) in &self.owners {
            match ranges.get_mut(&owner.member) {
                Some(of) => of.push(range.seq),
                None => drop(ranges.insert(owner.member.clone(), vec![range.seq])),
            }
        }
        ranges
    }

    /// Gives a new member what it scores highest for, under the generation `next`; whether that is anything.
    pub(super) fn join(&mut self, member: &MemberName, next: Generation) -> bool {
        let mut changed = false;
        for (range, owner) in &mut self.owners {
            let score = score(*range, member);
            if (score, member) > (owner.score, &owner.member) {
                *owner = Owner { member: member.clone(), since: next, score };
                changed = true;
            }
        }
        changed
    }

    /// Gives away what a member owned; whether that was anything.
    pub(super) fn leave(
        &mut self,
        member: &MemberName,
        left: &BTreeSet<&MemberName>,
        next: Generation,
    ) -> bool {
        let mut changed = false;
        self.owners.retain(|range, owner| {
            if owner.member != *member {
                return true;
            }
            changed = true;
            let Some((score, heir)) = best(*range, left.iter().copied()) else { return false };
            *owner = Owner { member: heir.clone(), since: next, score };
            true
        });
        changed
    }

    /// Takes up the current ranges of the topic; whether anything changed. A range whose parent had the same
    /// owner was never anybody else's: `parents` tells which ranges a new one took the place of.
    pub(super) fn set_ranges(
        &mut self,
        current: impl Iterator<Item = RangeId>,
        parents: impl Fn(RangeId) -> Vec<RangeId>,
        members: &BTreeSet<&MemberName>,
        next: Generation,
    ) -> bool {
        let mut owners = BTreeMap::new();
        let mut changed = false;
        for range in current {
            let owner = self.owners.get(&range).cloned();
            let owner = owner.or_else(|| {
                changed = true;
                let (score, member) = best(range, members.iter().copied())?;
                // Of two parents the one that changed hands last counts.
                let since = parents(range).into_iter().map(|parent| match self.owners.get(&parent) {
                    Some(owner) if owner.member == *member => owner.since,
                    Some(_) | None => next,
                });
                Some(Owner { member: member.clone(), since: since.max().unwrap_or(next), score })
            });
            if let Some(owner) = owner {
                owners.insert(range, owner);
            }
        }
        changed |= owners.len() != self.owners.len();
        self.owners = owners;
        changed
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use types::TopicId;

    use super::*;

    fn member(n: u8) -> MemberName {
        MemberName::new(&[n]).unwrap()
    }

    fn range(seq: u64) -> RangeId {
        RangeId { topic: TopicId(7), seq: RangeSeq(seq) }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Join(u8),
        Leave(u8),
        Ranges(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0_u8..6).prop_map(Step::Join),
            (0_u8..6).prop_map(Step::Leave),
            (0_u64..20, 1_u64..20).prop_map(|(first, count)| Step::Ranges(first, count)),
        ]
    }

    proptest! {
        /// P-20 to P-23, and that the steps end where a computation from nothing does.
        #[test]
        fn every_range_has_the_one_owner_that_scores_highest(steps in prop::collection::vec(step(), 1..40)) {
            let mut assignment = Assignment::default();
            let mut members: BTreeSet<MemberName> = BTreeSet::new();
            let mut ranges: Vec<RangeId> = (0..8).map(range).collect();
            for (n, step) in (1..).zip(steps) {
                let before: BTreeMap<RangeId, Owner> = assignment.owners.clone();
                let next = Generation(n);
                match &step {
                    Step::Join(name) => {
                        let name = member(*name);
                        if members.insert(name.clone()) {
                            if members.len() == 1 {
                                let all = members.iter().collect();
                                assignment.set_ranges(ranges.iter().copied(), |_| Vec::new(), &all, next);
                            } else {
                                assignment.join(&name, next);
                            }
                            for (range, owner) in &before {
                                let now = &assignment.owners[range];
                                prop_assert!(now == owner || now.member == name, "only the new one gains");
                            }
                        }
                    }
                    Step::Leave(name) => {
                        let name = member(*name);
                        if members.remove(&name) {
                            assignment.leave(&name, &members.iter().collect(), next);
                            for (range, owner) in before.iter().filter(|(_, owner)| owner.member != name) {
                                prop_assert_eq!(assignment.owner(*range), Some(owner), "others keep theirs");
                            }
                        }
                    }
                    Step::Ranges(first, count) => {
                        ranges = (*first..first + count).map(range).collect();
                        let all = members.iter().collect();
                        assignment.set_ranges(ranges.iter().copied(), |_| Vec::new(), &all, next);
                    }
                }
                let expected: Vec<(RangeId, MemberName)> = ranges
                    .iter()
                    .filter_map(|range| best(*range, members.iter().rev()).map(|(_, m)| (*range, m.clone())))
                    .collect();
                let owners = assignment.owners.iter().map(|(range, owner)| (*range, owner.member.clone()));
                prop_assert_eq!(owners.collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn a_child_of_a_kept_range_is_kept_since_the_same_assignment() {
        let only = member(1);
        let all: BTreeSet<&MemberName> = [&only].into();
        let mut assignment = Assignment::default();
        assignment.set_ranges([range(0)].into_iter(), |_| Vec::new(), &all, Generation(1));
        assignment.set_ranges([range(1), range(2)].into_iter(), |_| vec![range(0)], &all, Generation(2));
        assert_eq!(assignment.owner(range(1)).unwrap().since, Generation(1));
        let parents = |_| vec![range(1), range(9)];
        assignment.set_ranges([range(3)].into_iter(), parents, &all, Generation(3));
        assert_eq!(assignment.owner(range(3)).unwrap().since, Generation(3), "one parent was nobody's");
    }
}
