//! What clients were told, and what must therefore be there in the end.
//!
//! Knows nothing of nodes, groups or logs. A change whose outcome nobody knows may be there or not, once; one that was
//! refused is not.

use std::collections::{BTreeMap, BTreeSet};

use metadata::cluster::{Address, Cluster};
use metadata::vnode::{TopicState, Vnode};
use types::{TopicName, VnodeId};

use crate::invariants::{Violation, ensure};

/// How often something was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// For sure.
    pub(super) sure: u64,
    /// Beside that, perhaps.
    pub(super) maybe: u64,
}

impl Count {
    pub(super) fn note(&mut self, told: Told) {
        match told {
            Told::Done => self.sure += 1,
            Told::Unknown => self.maybe += 1,
            Told::Refused => {}
        }
    }

    fn may_be(self, count: u64) -> bool {
        (self.sure..=self.sure + self.maybe).contains(&count)
    }

    pub(super) fn may_have_been(self) -> bool {
        self.sure + self.maybe > 0
    }
}

/// What became of a change, as far as a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Done,
    Unknown,
    Refused,
}

/// A topic by its name, which no other topic ever has.
#[derive(Clone, Debug, Default)]
pub(super) struct Topic {
    /// How often its creation was asked for.
    pub(super) asked: u64,
    pub(super) created: Count,
    pub(super) sealed: Count,
    pub(super) deleted: Count,
    /// Whether its removal was ever asked for.
    pub(super) is_doomed: bool,
    pub(super) splits: Count,
    pub(super) merges: Count,
    /// Ranges that took the place of others, as was told.
    pub(super) children: BTreeSet<u64>,
    pub(super) groups: BTreeMap<String, Count>,
}

/// A user by its name, which no other ever has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct User {
    pub(super) created: Count,
    pub(super) deleted: Count,
    /// Logins that failed.
    pub(super) failures: Count,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) topics: BTreeMap<String, Topic>,
    pub(super) users: BTreeMap<String, User>,
}

/// Where failed logins come from.
pub(super) const ADDRESS: &str = "192.0.2.1";

impl Model {
    pub(super) fn topic(&mut self, name: &str) -> &mut Topic {
        self.topics.entry(name.to_owned()).or_default()
    }

    pub(super) fn user(&mut self, name: &str) -> &mut User {
        self.users.entry(name.to_owned()).or_default()
    }

    /// A range took the place of others, which no other may be said to have done.
    pub(super) fn is_born(&mut self, name: &str, child: u64) -> Result<(), Violation> {
        let is_new = self.topic(name).children.insert(child);
        ensure(is_new, "OUTCOME", || format!("range {child} of {name} is born twice"))
    }

    /// Judges the tables of a node that has everything.
    pub(super) fn check(
        &self,
        cluster: &Cluster,
        vnodes: &BTreeMap<VnodeId, &Vnode>,
    ) -> Result<(), Violation> {
        for (name, topic) in &self.topics {
            self.check_topic(name, topic, vnodes)?;
        }
        for vnode in vnodes.values() {
            for (_, topic) in vnode.topics() {
                let is_known = self.topics.contains_key(topic.name.as_str());
                ensure(is_known, "OUTCOME", || format!("nobody asked for {}", topic.name.as_str()))?;
            }
        }
        let address = Address::new(ADDRESS.as_bytes()).expect("it is one");
        for (name, user) in &self.users {
            let is_there = cluster.user(name).is_some();
            let may = is_there && user.created.may_have_been() && user.deleted.sure == 0;
            let may_not = !is_there && (user.created.sure == 0 || user.deleted.may_have_been());
            ensure(may || may_not, "DURABILITY", || format!("{name} is there: {is_there}; {user:?}"))?;
            let failures = cluster.lockout(name, &address).map_or(0, |lockout| u64::from(lockout.count));
            // Nobody's failures are forgotten but with the user.
            let may = user.failures.may_be(failures) || user.deleted.may_have_been();
            ensure(may, "EXACTLY-ONCE", || format!("{failures} failures of {name}; {user:?}"))?;
        }
        Ok(())
    }

    fn check_topic(
        &self,
        name: &str,
        topic: &Topic,
        vnodes: &BTreeMap<VnodeId, &Vnode>,
    ) -> Result<(), Violation> {
        let key = TopicName::new(name.as_bytes()).expect("clients make names of letters and digits");
        let homes: Vec<_> =
            vnodes.iter().filter_map(|(id, vnode)| Some((id, vnode, vnode.topic_by_name(&key)?))).collect();
        ensure(homes.len() <= 1, "C-3", || format!("{name} is on {} vnodes", homes.len()))?;
        let Some((home, vnode, (id, listed))) = homes.first().copied() else {
            let may_not = topic.created.sure == 0 || topic.deleted.may_have_been();
            return ensure(may_not, "DURABILITY", || format!("{name} is gone; {topic:?}"));
        };
        let may = topic.created.may_have_been() && topic.deleted.sure == 0;
        ensure(may, "OUTCOME", || format!("{name} is there; {topic:?}"))?;
        ensure(vnode.owns(&key), "INV-47", || format!("{name} is on {home}, which does not own it"))?;
        let is_sealed = listed.state == TopicState::Sealed;
        let may = if is_sealed { topic.sealed.may_have_been() } else { topic.sealed.sure == 0 };
        ensure(may, "DURABILITY", || format!("{name} is sealed: {is_sealed}; {topic:?}"))?;
        // Those that nobody asked for are told by what the row counts. A merge that ends in 0 of two that do not may
        // be either.
        let (mut splits, mut merges, mut either) = (0, 0, 0);
        for (range, listed) in vnode.ranges_of(id) {
            let by_load = |seq: &types::RangeSeq| {
                vnode.range(types::RangeId { seq: *seq, ..range }).is_some_and(|range| range.load_splits > 0)
            };
            match listed.parents.len() {
                0 => {}
                1 => splits += u64::from(listed.load_splits == 0),
                _ if listed.load_splits > 0 => {}
                _ if listed.parents.iter().all(by_load) => either += 1,
                _ => merges += 1,
            }
        }
        let merged = (merges..=merges + either).any(|merges| topic.merges.may_be(merges));
        let may = splits % 2 == 0 && topic.splits.may_be(splits / 2) && merged;
        ensure(may, "EXACTLY-ONCE", || {
            format!("{name} has {splits} ranges by splits and {merges} by merges; {topic:?}")
        })?;
        let there: BTreeSet<u64> = vnode.ranges_of(id).map(|(range, _)| range.seq.0).collect();
        ensure(topic.children.is_subset(&there), "DURABILITY", || {
            format!("{name} has ranges {there:?}; {topic:?}")
        })?;
        for (group, count) in &topic.groups {
            let is_there = vnode.groups_of(id).any(|known| known.as_bytes() == group.as_bytes());
            let may = if is_there { count.may_have_been() } else { count.sure == 0 };
            ensure(may, "DURABILITY", || format!("group {group} of {name} is there: {is_there}; {count:?}"))?;
        }
        Ok(())
    }
}
