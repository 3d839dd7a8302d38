//! What this node does for members that are connected to it and belong to a group that another node coordinates.
//!
//! Owns the talk with the coordinator: who attends is said at once when it comes, and every few seconds while it reads,
//! many in one message. A fetch never waits for that while its member has a share that is of use. What is known of each
//! member is kept by `attending`.
//!
//! Invariants:
//! - whoever waits for a share is answered before long, also when nobody can be asked;
//! - leaving always succeeds: the coordinator gives up whom it does not hear.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use peer::Message;
use peer::message::attend::{Assigned, Attends, Standing};
use types::{Generation, Instant, MemberName, NodeId, TopicId, limits};
use wire::Reason;

use super::attending::{Asked, AskedOf, Awaits, BEAT, Held, RETRY_AFTER, RIPEN_WITHIN, SESSION, WAIT};
use super::{Full, Key, Share};
use crate::action::{Action, Reply};
use crate::event::{AskId, Fetch, RequestId};
use crate::node::Node;

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Pause until there may be room for another question.
const ROOM_AFTER: Duration = Duration::from_millis(20);
/// How often it is looked whether others coordinate what this node did.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What looking for a member's share came to.
pub(crate) enum Attendance {
    /// This is its share.
    Share(Share),
    /// The coordinator is asked.
    Asked,
}

impl Node {
    /// Registers a member, or hears that it is alive, and looks for its share.
    pub(crate) fn attend(&mut self, key: &Key, member: &MemberName) -> Result<Attendance, Full> {
        if self.coordinates(key) {
            if self.gathers(key, Generation(0)) {
                return self.attend_gathering(key, member);
            }
            self.take_over(key);
            return self.join(key, member).map(Attendance::Share);
        }
        self.hand_over(key);
        let now = self.core.now;
        let attendee = self.attending.enter(key, member, now).ok_or(Full)?;
        attendee.seen = now;
        attendee.leaves = false;
        if attendee.share.as_ref().is_some_and(|held| held.until > now) {
            return Ok(Attendance::Share(self.share(key, member)));
        }
        attendee.share = None;
        self.attending.ask_by(key, member, now);
        Ok(Attendance::Asked)
    }

    /// Lets a fetch wait for its member's share.
    pub(crate) fn fetch_attending(
        &mut self,
        id: RequestId,
        of: (&Key, &MemberName),
        fetch: Fetch,
        until: Instant,
    ) {
        self.await_share(id, of, Awaits::Fetch(Box::new(fetch), until));
    }

    /// The same for a stream.
    pub(crate) fn stream_attending(&mut self, id: RequestId, key: &Key, member: &MemberName) {
        self.await_share(id, (key, member), Awaits::Stream);
    }

    fn await_share(&mut self, id: RequestId, (key, member): (&Key, &MemberName), awaits: Awaits) {
        let until = self.core.now.plus(WAIT);
        let has_room = self.attending.waiters < limits::WAITERS_MAX;
        match self.attending.get(key, member).filter(|_| has_room) {
            Some(attendee) => {
                attendee.awaits.push((id, until, awaits));
                self.attending.waiters += 1;
            }
            None => self.refuse(vec![(id, awaits)], Reason::Overloaded),
        }
    }

    /// Whether there is such a member, as far as is known here.
    pub(crate) fn has_member(&self, key: &Key, member: &MemberName) -> bool {
        self.groups.has(key, member) || self.attending.has(key, member)
    }

    /// A request of a member begins to wait.
    pub(crate) fn member_waits(&mut self, key: &Key, member: &MemberName) {
        match self.attending.get(key, member) {
            Some(attendee) => attendee.waiting += 1,
            None => self.groups.wait(key, member),
        }
    }

    /// It does not wait any more.
    pub(crate) fn member_waited(&mut self, key: &Key, member: &MemberName) {
        let now = self.core.now;
        match self.attending.get(key, member) {
            Some(attendee) => {
                attendee.waiting = attendee.waiting.saturating_sub(1);
                attendee.seen = now;
            }
            None => self.groups.waited(key, member, now),
        }
    }

    /// A member leaves by name; answered once its coordinator has heard, or cannot be told.
    pub(super) fn leave_elsewhere(&mut self, id: RequestId, key: &Key, member: &MemberName) {
        self.hand_over(key);
        let now = self.core.now;
        let Some(attendee) = self.attending.enter(key, member, now).filter(|attendee| attendee.waiting == 0)
        else {
            return self.core.reply(id, Reply::Left);
        };
        attendee.leaves = true;
        self.attending.ask_by(key, member, now);
        self.await_share(id, (key, member), Awaits::Leave);
    }

    /// The same for one that nothing here reads as any more.
    pub(super) fn part_elsewhere(&mut self, key: &Key, member: &MemberName) {
        let now = self.core.now;
        if let Some(attendee) = self.attending.get(key, member).filter(|attendee| attendee.waiting == 0) {
            attendee.leaves = true;
            self.attending.ask_by(key, member, now);
        }
    }

    /// The coordinator says that there is another assignment.
    pub(crate) fn heard_assigned(&mut self, assigned: &Assigned) {
        // Whoever joins seldom does so alone.
        let now = self.core.now;
        self.attending.told(&assigned.key, assigned.generation, now, now.plus(ROOM_AFTER));
    }

    /// Asks about members that are due, and goes on with what the tables here have reached.
    pub(crate) fn keep_attending(&mut self) {
        let now = self.core.now;
        if self.groups.look_at <= now && !self.groups.groups.is_empty() {
            self.groups.look_at = now.plus(LOOK_EVERY);
            self.hand_over_lost();
        }
        self.end_gathering();
        self.tell_fronts();
        self.keep_commits();
        self.ripen();
        let mut changed = BTreeSet::new();
        let mut batches: BTreeMap<NodeId, Vec<AskedOf>> = BTreeMap::new();
        while let Some((key, member)) = self.attending.take_due(now) {
            if self.coordinates(&key) {
                if self.gathers(&key, Generation(0)) {
                    let at = self.gathered_at(&key).plus(ROOM_AFTER);
                    self.attending.ask_again(&key, &member, at);
                } else {
                    self.take_over(&key);
                }
                continue;
            }
            if let Some((to, asked)) = self.turn_of(key, member, &mut changed) {
                batches.entry(to).or_default().push(asked);
            }
        }
        for (to, members) in batches {
            self.ask_about(to, members);
        }
        self.tell_readers(changed);
    }

    /// When there is something to do.
    pub(crate) fn next_members_work(&self) -> Option<Instant> {
        let look = (!self.groups.groups.is_empty()).then_some(self.groups.look_at);
        // The tables come with steps of their own.
        let ripe = self.attending.unripe.first().map(|_| self.core.now.plus(RIPEN_WITHIN));
        let gathered = self.next_gathered();
        [look, ripe, gathered, self.attending.next_due(), self.attending.commits.next_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// What is to be asked about a member whose turn it is, and of whom.
    fn turn_of(
        &mut self,
        key: Key,
        member: MemberName,
        changed: &mut BTreeSet<Key>,
    ) -> Option<(NodeId, AskedOf)> {
        let now = self.core.now;
        let overdue = self.attending.take_overdue(&key, &member, now);
        self.refuse(overdue, Reason::NotOwner);
        let attendee = self.attending.get(&key, &member)?;
        if attendee.is_gone(now) {
            self.attending.remove(&key, &member);
            return None;
        }
        if attendee.share.as_ref().is_some_and(|held| held.until <= now) {
            // By now another may read it.
            attendee.share = None;
            changed.insert(key.clone());
        }
        let (hint, idle, leaves) = (attendee.hint.take(), attendee.idle(now), attendee.leaves);
        let to = hint.or_else(|| self.whom_to_ask(key.topic)).filter(|to| self.core.liveness.is_up(*to));
        let Some(to) = to else {
            self.attending.ask_again(&key, &member, now.plus(RETRY_AFTER));
            return None;
        };
        Some((to, AskedOf { key, member, idle, leaves, by_hint: hint.is_some() }))
    }

    /// The coordinator of a topic's groups, or somebody who may know it.
    pub(super) fn whom_to_ask(&self, topic: TopicId) -> Option<NodeId> {
        let vnode = self.core.meta.home(topic)?;
        let own = self.core.config.node;
        let known = self.core.meta.leader(vnode).filter(|leader| *leader != own);
        known.or_else(|| self.core.meta.candidates(vnode).into_iter().find(|node| *node != own))
    }

    fn ask_about(&mut self, to: NodeId, members: Vec<AskedOf>) {
        let now = self.core.now;
        let mut rest = members.into_iter().peekable();
        while rest.peek().is_some() && self.attending.asked_of(to) < limits::ATTENDS_IN_FLIGHT_MAX {
            let members: Vec<AskedOf> = rest.by_ref().take(limits::ATTEND_MEMBERS_MAX).collect();
            let says = members.iter().map(|asked| self.says_of(asked)).collect();
            let ask = self.core.meta.ask_id();
            self.attending.asks.insert(ask, Asked { to, at: now, members });
            self.core.out.push(Action::Ask {
                to,
                ask,
                message: Message::Attend(says),
                within: ANSWER_WITHIN,
            });
        }
        for AskedOf { key, member, .. } in rest {
            self.attending.ask_again(&key, &member, now.plus(ROOM_AFTER));
        }
    }

    fn says_of(&self, asked: &AskedOf) -> Attends {
        let known = self.attending.share(&asked.key, &asked.member).map(|(generation, _)| generation);
        Attends {
            key: asked.key.clone(),
            member: asked.member.clone(),
            known: known.unwrap_or(Generation(0)),
            idle_ms: u64::try_from(asked.idle.as_millis()).unwrap_or(u64::MAX),
            leaves: asked.leaves,
        }
    }

    /// A coordinator answered, or will not; an answer of another kind than was asked for is none.
    pub(crate) fn members_answered(&mut self, ask: AskId, message: Option<Message>) {
        if self.attending.asks.contains_key(&ask) {
            let standings = match message {
                Some(Message::AttendReply(standings)) => Some(standings),
                Some(_) | None => None,
            };
            return self.attend_answered(ask, standings);
        }
        self.coordinator_answered(ask, message);
    }

    /// The coordinator said what members are to it, or will not.
    pub(super) fn attend_answered(&mut self, ask: AskId, standings: Option<Vec<Standing>>) {
        let Some(Asked { at, members, .. }) = self.attending.asks.remove(&ask) else { return };
        let mut standings = standings.unwrap_or_default().into_iter();
        for asked in members {
            self.stands(at, &asked, standings.next());
        }
        self.ripen();
    }

    fn stands(&mut self, at: Instant, asked: &AskedOf, standing: Option<Standing>) {
        let now = self.core.now;
        let AskedOf { key, member, idle, .. } = asked;
        // Had it heard nothing since, the coordinator gives it up then.
        let until = at.plus(SESSION.saturating_sub(*idle));
        let known = match &standing {
            Some(Standing::Share { generation, .. }) => Some(*generation),
            Some(
                Standing::Same
                | Standing::Gone
                | Standing::Full
                | Standing::NotCoordinator { .. }
                | Standing::Again,
            )
            | None => self.attending.share(key, member).map(|(generation, _)| generation),
        };
        let outdated = self.attending.is_told_since(key, at, known.unwrap_or(Generation(0)));
        let next = now.plus(if outdated { ROOM_AFTER } else { BEAT });
        let Some(attendee) = self.attending.get(key, member) else { return };
        let again = match standing {
            Some(Standing::Share { generation, as_of, ranges }) => {
                attendee.next = Some((as_of, Held { generation, ranges, until }, now));
                self.attending.unripe.insert((key.clone(), member.clone()));
                next
            }
            Some(Standing::Same) => {
                if let Some(held) = &mut attendee.share {
                    held.until = held.until.max(until);
                }
                let waits = !attendee.awaits.is_empty();
                if attendee.share.is_some() && waits {
                    let awaits = self.attending.take_awaits(key, member);
                    self.go_on_with(awaits);
                }
                next
            }
            Some(Standing::Gone) if attendee.leaves => {
                let awaits = self.attending.take_awaits(key, member);
                self.attending.remove(key, member);
                return self.refuse(awaits, Reason::NotOwner);
            }
            Some(Standing::Full) => {
                let awaits = self.attending.take_awaits(key, member);
                self.attending.remove(key, member);
                return self.refuse(awaits, Reason::Overloaded);
            }
            Some(Standing::NotCoordinator { hint: Some(hint) }) if !asked.by_hint => {
                attendee.hint = Some(hint);
                now
            }
            // It came back before the answer did, or there is more to say than fits one.
            Some(Standing::Gone | Standing::Again) => now.plus(ROOM_AFTER),
            Some(Standing::NotCoordinator { .. }) | None => now.plus(RETRY_AFTER),
        };
        self.attending.ask_again(key, member, again);
    }

    /// Lets members read by the shares that the tables here have come to.
    fn ripen(&mut self) {
        if self.attending.unripe.is_empty() {
            return;
        }
        let now = self.core.now;
        let mut changed = BTreeSet::new();
        let mut awaits = Vec::new();
        for (key, member) in self.attending.unripe.clone() {
            let reached = self.core.meta.applied_for(key.topic);
            let Some(attendee) = self.attending.get(&key, &member) else { continue };
            let ripe =
                attendee.next.take_if(|(as_of, _, at)| reached >= *as_of || now.since(*at) > RIPEN_WITHIN);
            let Some((_, held, _)) = ripe else { continue };
            let known = attendee.share.as_ref().map(|share| share.generation);
            if known != Some(held.generation) {
                changed.insert(key.clone());
            }
            attendee.share = Some(held);
            awaits.extend(self.attending.take_awaits(&key, &member));
            self.attending.unripe.remove(&(key, member));
        }
        self.tell_readers(changed);
        self.go_on_with(awaits);
    }

    /// Whoever reads as a member of these groups looks at its new share.
    fn tell_readers(&mut self, changed: BTreeSet<Key>) {
        for key in changed {
            let Some(name) = self.topic_name(key.topic) else { continue };
            self.restream(&key);
            self.wake_group(&name, &key);
        }
    }

    /// Whoever waited for a share looks for it again.
    pub(super) fn go_on_with(&mut self, awaits: Vec<(RequestId, Awaits)>) {
        for (id, awaits) in awaits {
            match awaits {
                Awaits::Fetch(fetch, deadline) => self.begin(id, *fetch, deadline, false),
                Awaits::Stream => self.stream_begin(id),
                Awaits::Leave => self.core.reply(id, Reply::Left),
            }
        }
    }

    /// There is no share to wait for.
    fn refuse(&mut self, awaits: Vec<(RequestId, Awaits)>, reason: Reason) {
        for (id, awaits) in awaits {
            match awaits {
                Awaits::Fetch(..) => self.core.reply(id, Reply::Failed(reason)),
                Awaits::Stream => self.end_stream(id, reason),
                Awaits::Leave => self.core.reply(id, Reply::Left),
            }
        }
    }

    /// The connection to a node is another one, or none: nothing asked over the last one is answered.
    pub(crate) fn members_parted(&mut self, node: NodeId) {
        let lost = self.attending.asks.iter().filter(|(_, asked)| asked.to == node);
        let lost: Vec<AskId> = lost.map(|(ask, _)| *ask).collect();
        for ask in lost {
            self.attend_answered(ask, None);
        }
        self.commits_parted(node);
    }

    /// A topic is gone, and whoever attends for it.
    pub(super) fn forget_attending(&mut self, topic: TopicId) {
        for key in self.attending.keys_of(topic) {
            let members = self.attending.take_group(&key).unwrap_or_default();
            // They look the topic up again.
            let awaits = members.into_iter().flat_map(|(_, attendee)| attendee.awaits);
            let awaits = awaits.map(|(id, _, awaits)| (id, awaits)).collect();
            self.go_on_with(awaits);
        }
    }
}
