//! Members that are connected here, of groups that another node coordinates: what was told of them, and what is to be
//! said next.
//!
//! Owns the share of each as it was told last, who waits to be told, and when the coordinator is asked again. Pure: who
//! the coordinator is, and what whoever waited does then, is the business of `front`.
//!
//! Invariants:
//! - a share is of use only until the coordinator may have given the member up, had it heard nothing since;
//! - a share is of use only once the tables here are as far as those it was worked out with: a member never begins
//!   behind what the owner before it has committed;
//! - each member is in the list of what is due, or in one question on its way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use peer::message::attend::Key;
use types::{Generation, GroupName, Instant, MemberName, NodeId, RaftIndex, RangeSeq, TopicId, limits};

use super::commits::Commits;
use crate::event::{AskId, ConnectionId, Fetch, RequestId};

/// Between two questions about a member that reads.
pub(super) const BEAT: Duration = Duration::from_secs(3);
/// Pause before a question that came to nothing is asked again.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(200);
/// How long whoever waits for a share does so while there is none: a coordinator that is new takes a while.
pub(super) const WAIT: Duration = Duration::from_secs(4);
/// How long a share waits for the tables here.
pub(super) const RIPEN_WITHIN: Duration = Duration::from_secs(2);
/// How long a member lives after it was heard last.
pub(super) const SESSION: Duration = Duration::from_millis(limits::MEMBER_SESSION_MS);

/// Every member of this kind.
#[derive(Debug, Default)]
pub(crate) struct Attending {
    groups: BTreeMap<Key, Attended>,
    due: BTreeSet<(Instant, Key, MemberName)>,
    pub(super) asks: BTreeMap<AskId, Asked>,
    /// Members with a share that waits for the tables.
    pub(super) unripe: BTreeSet<(Key, MemberName)>,
    pub(super) commits: Commits,
    /// How many wait for a share.
    pub(super) waiters: usize,
}

#[derive(Debug, Default)]
struct Attended {
    /// The last assignment it was told of, and when.
    told: Option<(Instant, Generation)>,
    members: BTreeMap<MemberName, Attendee>,
}

/// One member.
#[derive(Debug)]
pub(super) struct Attendee {
    /// When its last request was taken, or its last wait ended.
    pub(super) seen: Instant,
    /// Requests of it that wait, and streams.
    pub(super) waiting: u32,
    pub(super) share: Option<Held>,
    /// What was told last, of tables that are not here yet; and when it was.
    pub(super) next: Option<(RaftIndex, Held, Instant)>,
    due: Option<Instant>,
    /// Who is said to coordinate.
    pub(super) hint: Option<NodeId>,
    /// It is to leave.
    pub(super) leaves: bool,
    pub(super) awaits: Vec<(RequestId, Instant, Awaits)>,
}

/// A share as it was told.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) generation: Generation,
    pub(super) ranges: Vec<RangeSeq>,
    /// It is of no use from then on.
    pub(super) until: Instant,
}

/// What goes on once a member has a share.
#[derive(Debug)]
pub(super) enum Awaits {
    /// A fetch that may wait until then.
    Fetch(Box<Fetch>, Instant),
    /// The stream that this request opened.
    Stream,
    /// Whoever left.
    Leave,
}

/// Members that one question is about.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) to: NodeId,
    pub(super) at: Instant,
    pub(super) members: Vec<AskedOf>,
}

#[derive(Debug)]
pub(super) struct AskedOf {
    pub(super) key: Key,
    pub(super) member: MemberName,
    pub(super) idle: Duration,
    pub(super) leaves: bool,
    /// The receiver was said to coordinate by another that does not.
    pub(super) by_hint: bool,
}

impl Attending {
    /// Whether there is such a member.
    pub(crate) fn has(&self, key: &Key, member: &MemberName) -> bool {
        self.groups.get(key).is_some_and(|group| group.members.get(member).is_some_and(|of| !of.leaves))
    }

    /// Whether this was asked about members, their positions or their groups.
    pub(crate) fn has_asked(&self, ask: AskId) -> bool {
        self.asks.contains_key(&ask) || self.commits.has_asked(ask)
    }

    /// Its share, if it is of use.
    pub(crate) fn share(&self, key: &Key, member: &MemberName) -> Option<(Generation, &[RangeSeq])> {
        let held = self.groups.get(key)?.members.get(member)?.share.as_ref()?;
        Some((held.generation, &held.ranges))
    }

    /// Whether a member of a group has one.
    pub(super) fn has_shares(&self, key: &Key) -> bool {
        self.groups.get(key).is_some_and(|group| group.members.values().any(|of| of.share.is_some()))
    }

    pub(super) fn get(&mut self, key: &Key, member: &MemberName) -> Option<&mut Attendee> {
        self.groups.get_mut(key)?.members.get_mut(member)
    }

    /// The member, made now if it is new; `None` when there are too many.
    pub(super) fn enter(&mut self, key: &Key, member: &MemberName, now: Instant) -> Option<&mut Attendee> {
        if !self.groups.contains_key(key) && self.groups.len() >= limits::GROUPS_COORDINATED_MAX {
            return None;
        }
        let group = self.groups.entry(key.clone()).or_default();
        if !group.members.contains_key(member) {
            if group.members.len() >= limits::MEMBERS_PER_GROUP_MAX {
                return None;
            }
            group.members.insert(member.clone(), Attendee::new(now));
            self.due.insert((now, key.clone(), member.clone()));
        }
        self.get(key, member)
    }

    /// A member that this node coordinated until now.
    pub(super) fn adopt(
        &mut self,
        key: &Key,
        member: MemberName,
        (seen, waiting): (Instant, u32),
        held: Held,
        now: Instant,
    ) {
        let attendee = Attendee { seen, waiting, share: Some(held), ..Attendee::new(now) };
        self.due.insert((now, key.clone(), member.clone()));
        self.groups.entry(key.clone()).or_default().members.insert(member, attendee);
    }

    /// Asks about a member then, or earlier if that is due; nothing while it is asked about.
    pub(super) fn ask_by(&mut self, key: &Key, member: &MemberName, at: Instant) {
        let Some(attendee) = self.groups.get_mut(key).and_then(|group| group.members.get_mut(member)) else {
            return;
        };
        if let Some(due) = attendee.due.filter(|due| *due > at) {
            self.due.remove(&(due, key.clone(), member.clone()));
            self.due.insert((at, key.clone(), member.clone()));
            attendee.due = Some(at);
        }
    }

    /// It is asked about no longer: the next time then.
    pub(super) fn ask_again(&mut self, key: &Key, member: &MemberName, at: Instant) {
        let Some(attendee) = self.get(key, member) else { return };
        if attendee.due.replace(at).is_none() {
            self.due.insert((at, key.clone(), member.clone()));
        }
    }

    /// There is another assignment, which is asked for then.
    pub(super) fn told(&mut self, key: &Key, generation: Generation, now: Instant, at: Instant) {
        let Some(group) = self.groups.get_mut(key) else { return };
        group.told = Some((now, generation));
        let members: Vec<MemberName> = group.members.keys().cloned().collect();
        for member in members {
            self.ask_by(key, &member, at);
        }
    }

    /// Whether another assignment than that was told of since.
    pub(super) fn is_told_since(&self, key: &Key, at: Instant, known: Generation) -> bool {
        let told = self.groups.get(key).and_then(|group| group.told);
        told.is_some_and(|(told, generation)| told >= at && generation != known)
    }

    /// The next member that is due; it counts as asked about.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(Key, MemberName)> {
        self.due.first().filter(|(at, ..)| *at <= now)?;
        let (_, key, member) = self.due.pop_first()?;
        if let Some(attendee) = self.get(&key, &member) {
            attendee.due = None;
        }
        Some((key, member))
    }

    /// When one is.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, ..)| *at)
    }

    pub(super) fn remove(&mut self, key: &Key, member: &MemberName) -> Option<Attendee> {
        let group = self.groups.get_mut(key)?;
        let attendee = group.members.remove(member)?;
        if group.members.is_empty() {
            self.groups.remove(key);
        }
        if let Some(at) = attendee.due {
            self.due.remove(&(at, key.clone(), member.clone()));
        }
        self.unripe.remove(&(key.clone(), member.clone()));
        self.waiters -= attendee.awaits.len();
        Some(attendee)
    }

    /// All of a group's members.
    pub(super) fn take_group(&mut self, key: &Key) -> Option<Vec<(MemberName, Attendee)>> {
        let members: Vec<MemberName> = self.groups.get(key)?.members.keys().cloned().collect();
        let take = |member: MemberName| Some((member.clone(), self.remove(key, &member)?));
        Some(members.into_iter().filter_map(take).collect())
    }

    /// What waits for a member's share.
    pub(super) fn take_awaits(&mut self, key: &Key, member: &MemberName) -> Vec<(RequestId, Awaits)> {
        let awaits = self.get(key, member).map(|attendee| std::mem::take(&mut attendee.awaits));
        let awaits = awaits.unwrap_or_default();
        self.waiters -= awaits.len();
        awaits.into_iter().map(|(id, _, awaits)| (id, awaits)).collect()
    }

    /// What has waited long enough.
    pub(super) fn take_overdue(
        &mut self,
        key: &Key,
        member: &MemberName,
        now: Instant,
    ) -> Vec<(RequestId, Awaits)> {
        let Some(attendee) = self.get(key, member) else { return Vec::new() };
        let overdue: Vec<_> = attendee.awaits.extract_if(.., |(_, until, _)| *until <= now).collect();
        self.waiters -= overdue.len();
        overdue.into_iter().map(|(id, _, awaits)| (id, awaits)).collect()
    }

    /// How many questions are on their way to a node.
    pub(super) fn asked_of(&self, node: NodeId) -> usize {
        self.asks.values().filter(|asked| asked.to == node).count()
    }

    /// A connection closed: nobody waits there.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        if self.waiters == 0 {
            return;
        }
        for attendee in self.groups.values_mut().flat_map(|group| group.members.values_mut()) {
            let before = attendee.awaits.len();
            attendee.awaits.retain(|(id, ..)| id.connection != connection);
            self.waiters -= before - attendee.awaits.len();
        }
    }

    /// Groups of a topic.
    pub(super) fn keys_of(&self, topic: TopicId) -> Vec<Key> {
        let first = Key { topic, group: GroupName::new(b"").expect("an empty name is allowed") };
        let keys = self.groups.range(first..).map(|(key, _)| key);
        keys.take_while(|key| key.topic == topic).cloned().collect()
    }
}

impl Attendee {
    fn new(now: Instant) -> Self {
        Self {
            seen: now,
            waiting: 0,
            share: None,
            next: None,
            due: Some(now),
            hint: None,
            leaves: false,
            awaits: Vec::new(),
        }
    }

    /// How long ago it was heard.
    pub(super) fn idle(&self, now: Instant) -> Duration {
        if self.waiting > 0 { Duration::ZERO } else { now.since(self.seen) }
    }

    /// Whether nobody would miss it.
    pub(super) fn is_gone(&self, now: Instant) -> bool {
        self.awaits.is_empty() && self.idle(now) > SESSION
    }
}
