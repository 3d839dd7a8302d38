//! A coordinator that is new waits for the members there are before it says who reads what.
//!
//! Owns that pause. Whoever attends first would otherwise be given everything, and lose most of it again to those who
//! attend a moment later: records that two members read, for as long as it takes all of them to be heard. Members go
//! on by the shares they had, which do not contradict each other because the coordinator before gave them out together;
//! whoever has none waits.
//!
//! Invariants:
//! - the pause is one beat of the members' nodes and a little more, far below the time a share holds: every node that
//!   can be reached has spoken by its end, and no share has run out;
//! - nobody is given a range in it, so what a member moves by a share of before is nobody else's.

use std::collections::BTreeMap;
use std::time::Duration;

use types::{Generation, Instant, MemberName, Term, VnodeId};

use super::attending::{BEAT, SESSION};
use super::{Full, Group, Key};
use crate::groups::Attendance;
use crate::node::Node;

/// Longer than a beat by what a node may need to hear of another coordinator.
const GATHER: Duration = Duration::from_millis(3_500);
/// How often it is looked whether this node leads.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const _: () = assert!(GATHER.as_millis() > BEAT.as_millis() && GATHER.as_millis() * 4 < SESSION.as_millis());

/// Since when this node leads vnodes.
#[derive(Debug, Default)]
pub(super) struct Leads {
    since: BTreeMap<VnodeId, (Term, Instant)>,
    look_at: Instant,
}

impl Group {
    /// Whether it waits for its members.
    pub(super) fn gathers(&self) -> bool {
        self.gather_until.is_some()
    }
}

impl Node {
    /// Whether a group that this node coordinates waits for its members; begins that where it is due.
    pub(super) fn gathers(&mut self, key: &Key, known: Generation) -> bool {
        if let Some(group) = self.groups.groups.get(key) {
            return group.gathers();
        }
        if !self.may_lag() || !self.is_new_coordinator(key, known) {
            return false;
        }
        let generation = self.first_generation(key.topic);
        let gather_until = Some(self.core.now.plus(GATHER));
        self.groups.groups.insert(key.clone(), Group { gather_until, ..Group::new(generation) });
        self.groups.start_ticks(self.core.now);
        true
    }

    /// Whether another may have coordinated a group until a moment ago: a member had a share, or the lead is new.
    fn is_new_coordinator(&mut self, key: &Key, known: Generation) -> bool {
        if known > Generation(0) || self.attending.has_shares(key) {
            return true;
        }
        let Some(vnode) = self.core.meta.home(key.topic) else { return false };
        let Some(term) = self.core.meta.group(vnode).map(raft::Group::term) else { return false };
        let now = self.core.now;
        match self.groups.leads.since.get(&vnode) {
            Some((of, since)) if *of == term => now.since(*since) < GATHER,
            Some(_) | None => {
                self.groups.leads.since.insert(vnode, (term, now));
                true
            }
        }
    }

    /// Takes a member that is connected here while its group waits: it goes on by the share it has.
    pub(super) fn attend_gathering(&mut self, key: &Key, member: &MemberName) -> Result<Attendance, Full> {
        let now = self.core.now;
        let attendee = self.attending.enter(key, member, now).ok_or(Full)?;
        attendee.seen = now;
        attendee.leaves = false;
        let has_share = attendee.share.as_ref().is_some_and(|held| held.until > now);
        Ok(if has_share { Attendance::Share(self.share(key, member)) } else { Attendance::Asked })
    }

    /// When whoever attends for a group here has its turn again.
    pub(super) fn gathered_at(&self, key: &Key) -> Instant {
        let until = self.groups.groups.get(key).and_then(|group| group.gather_until);
        until.unwrap_or(self.core.now)
    }

    /// Assigns ranges in groups that have waited long enough, and notes which vnodes this node leads.
    pub(super) fn end_gathering(&mut self) {
        let now = self.core.now;
        let is_due = |(_, group): &(&Key, &Group)| group.gather_until.is_some_and(|until| until <= now);
        let due: Vec<Key> = self.groups.groups.iter().filter(is_due).map(|(key, _)| key.clone()).collect();
        for key in due {
            let vnode = self.core.meta.of(key.topic);
            let Some(group) = self.groups.groups.get_mut(&key) else { continue };
            group.gather_until = None;
            if !group.members.is_empty() {
                group.set_ranges(vnode, key.topic);
            }
            self.take_over(&key);
            let is_empty = self.groups.groups.get(&key).is_none_or(|group| group.members.is_empty());
            if is_empty {
                self.forget_group(&key);
            } else {
                self.assigned(&key);
            }
        }
        if self.groups.leads.look_at <= now && self.may_lag() {
            self.groups.leads.look_at = now.plus(LOOK_EVERY);
            self.note_leads();
        }
    }

    fn note_leads(&mut self) {
        let (meta, now) = (&self.core.meta, self.core.now);
        let led = meta.led_groups().filter_map(|vnode| Some((vnode, meta.group(vnode)?.term())));
        let before = std::mem::take(&mut self.groups.leads.since);
        for (vnode, term) in led {
            let known = before.get(&vnode).copied().filter(|(of, _)| *of == term);
            self.groups.leads.since.insert(vnode, known.unwrap_or((term, now)));
        }
    }

    /// For how long a group goes on waiting, for people.
    pub(crate) fn gathers_for(&self, key: &Key) -> Option<Duration> {
        let until = self.groups.groups.get(key)?.gather_until?;
        Some(until.since(self.core.now))
    }

    /// When there is something to do.
    pub(super) fn next_gathered(&self) -> Option<Instant> {
        self.groups.groups.values().filter_map(|group| group.gather_until).min()
    }
}
