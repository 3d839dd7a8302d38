//! What this node does for members that are connected to other nodes: it coordinates the groups on every topic whose
//! vnode it leads.
//!
//! Owns who is told that an assignment changed, and how groups come and go with the lead of their vnode. What a member's
//! node does with what it is told is in `front`.
//!
//! Invariants:
//! - assignments are numbered by the term in which they were made: a later coordinator's are later than all of an
//!   earlier one, whatever the clocks say;
//! - an assignment is said to a node only as an answer, with all of its members' shares as they are at the end of what
//!   it asked: that there is a new one is merely told.

use std::collections::BTreeMap;
use std::time::Duration;

use peer::Message;
use peer::message::attend::{self, Assigned, Attends, MembersReply, Standing};
use types::{Generation, Instant, MemberName, NodeId, RangeSeq, TopicId, VnodeId, limits};

use super::{Full, Group, Key, Member};
use crate::action::Action;
use crate::event::CallId;
use crate::node::Node;

/// A node that said a member waits there is believed that long.
const HELD: Duration = Duration::from_secs(10);
/// Bits of a generation below the term.
const BELOW_TERM: u32 = 32;
/// Bits below the vnode's.
const BELOW_VNODE: u32 = 24;

/// The number before the first assignment of a vnode's leader in a term. The vnode is part of it, because topics move:
/// what one vnode's leader said must not pass for what another's says.
fn before_first(vnode: VnodeId, term: u64) -> Generation {
    Generation((term << BELOW_TERM) | ((vnode.0 & 0xff) << BELOW_VNODE))
}

impl Node {
    /// Whether this node is the one to say who reads what. A node without others is, whatever became of its log.
    pub(crate) fn coordinates(&self, key: &Key) -> bool {
        match self.core.meta.home(key.topic) {
            Some(vnode) => self.core.meta.leads(vnode) || !self.may_lag(),
            // The topic is on its way from one vnode to another: whoever coordinated goes on until it has arrived.
            None => self.groups.groups.contains_key(key),
        }
    }

    /// Who is, as far as is known here.
    pub(super) fn coordinator(&self, topic: TopicId) -> Option<NodeId> {
        self.core.meta.leader(self.core.meta.home(topic)?)
    }

    /// The number that a new group begins with: later than any of an earlier coordinator, whose cursors may still come.
    pub(super) fn first_generation(&self, topic: TopicId) -> Generation {
        let Some(vnode) = self.core.meta.home(topic) else { return Generation(0) };
        let term = self.core.meta.group(vnode).map_or(0, |group| group.term().0);
        let latest = self.groups.latest.get(&vnode).copied();
        latest.unwrap_or(Generation(0)).max(before_first(vnode, term))
    }

    /// A group has no members here any more.
    pub(super) fn forget_group(&mut self, key: &Key) -> Option<Group> {
        let group = self.groups.groups.remove(key)?;
        self.groups.changed.remove(key);
        if let Some(vnode) = self.core.meta.home(key.topic) {
            let latest = self.groups.latest.entry(vnode).or_default();
            *latest = (*latest).max(group.generation);
        }
        Some(group)
    }

    /// Takes what a node says of its members, then tells what they are by now.
    pub(crate) fn attend_for(&mut self, node: NodeId, call: CallId, members: Vec<Attends>) {
        let taken: Vec<Option<Standing>> =
            members.iter().map(|attends| self.hear_of(node, attends)).collect();
        let mut room = limits::ATTEND_RANGES_MAX;
        let mut shares: BTreeMap<Key, BTreeMap<MemberName, Vec<RangeSeq>>> = BTreeMap::new();
        let mut standings = Vec::with_capacity(members.len());
        for (attends, taken) in members.into_iter().zip(taken) {
            standings.push(match taken {
                Some(standing) => standing,
                None => self.standing(attends, &mut shares, &mut room),
            });
        }
        self.core.out.push(Action::Answer { to: node, call, message: Message::AttendReply(standings) });
    }

    /// Takes what a node says of one member; what there is to say to that, unless it is a share.
    fn hear_of(&mut self, node: NodeId, attends: &Attends) -> Option<Standing> {
        let Attends { key, member, idle_ms, leaves, .. } = attends;
        if !self.serves() || !self.coordinates(key) || self.core.meta.home(key.topic).is_none() {
            let hint = self.coordinator(key.topic).filter(|hint| *hint != self.core.config.node);
            return Some(Standing::NotCoordinator { hint });
        }
        if !self.gathers(key, attends.known) {
            self.take_over(key);
        }
        let now = self.core.now;
        if *leaves {
            let held = self.groups.groups.get(key).and_then(|group| group.members.get(member)?.held);
            // Of one that waits elsewhere the end is heard from there.
            let is_elsewhere = held.is_some_and(|(other, at)| other != node && now.since(at) < HELD);
            if !is_elsewhere && !self.groups.is_waiting(key, member) {
                self.leave(key, member);
            }
            return Some(Standing::Gone);
        }
        let seen = Instant(now.0.saturating_sub(idle_ms.saturating_mul(1000)));
        let held = Some((node, now)).filter(|_| *idle_ms == 0);
        match self.register(key, member, Member { seen, waiting: 0, held }) {
            Err(Full) => return Some(Standing::Full),
            Ok(true) => self.assigned(key),
            Ok(false) => {}
        }
        if let Some(group) = self.groups.groups.get_mut(key) {
            group.fronts.insert(node, now);
            if let Some(known) = group.members.get_mut(member) {
                known.held = held.or(known.held);
            }
        }
        None
    }

    fn standing(
        &self,
        attends: Attends,
        shares: &mut BTreeMap<Key, BTreeMap<MemberName, Vec<RangeSeq>>>,
        room: &mut usize,
    ) -> Standing {
        let Some(group) = self.groups.groups.get(&attends.key) else { return Standing::Again };
        // Until everybody has been heard each goes on with what it has.
        if group.gathers() || group.generation == attends.known {
            return Standing::Same;
        }
        // Looked through once for all members of the group.
        let by_member = shares.entry(attends.key.clone()).or_insert_with(|| group.assignment.by_member());
        let ranges = by_member.get(&attends.member).cloned().unwrap_or_default();
        if ranges.len() > *room && *room < limits::ATTEND_RANGES_MAX {
            return Standing::Again;
        }
        *room = room.saturating_sub(ranges.len());
        let as_of = self.core.meta.applied_for(attends.key.topic);
        Standing::Share { generation: group.generation, as_of, ranges }
    }

    /// Tells the nodes of a group's members that there is another assignment.
    pub(crate) fn tell_fronts(&mut self) {
        let now = self.core.now;
        let session = Duration::from_millis(limits::MEMBER_SESSION_MS);
        for key in std::mem::take(&mut self.groups.changed) {
            let Some(group) = self.groups.groups.get_mut(&key) else { continue };
            group.fronts.retain(|_, at| now.since(*at) <= session);
            let generation = group.generation;
            for to in group.fronts.keys().copied() {
                let message = Message::Assigned(Assigned { key: key.clone(), generation });
                self.core.out.push(Action::Say { to, message });
            }
        }
    }

    /// Gives up the groups of vnodes that others lead: whoever reads here goes on as their member.
    pub(super) fn hand_over_lost(&mut self) {
        let is_lost = |key: &&Key| self.core.meta.home(key.topic).is_some() && !self.coordinates(key);
        let lost: Vec<Key> = self.groups.groups.keys().filter(is_lost).cloned().collect();
        for key in lost {
            self.hand_over(&key);
        }
    }

    /// Goes on with the members of a group that are connected here as another's; each keeps its share until told.
    pub(super) fn hand_over(&mut self, key: &Key) {
        let Some(group) = self.forget_group(key) else { return };
        let mut by_member = group.assignment.by_member();
        let until = self.core.now.plus(Duration::from_millis(limits::MEMBER_SESSION_MS));
        for (name, member) in group.members {
            if member.held.is_some() && member.waiting == 0 {
                continue;
            }
            let ranges = by_member.remove(&name).unwrap_or_default();
            let held = super::attending::Held { generation: group.generation, ranges, until };
            self.attending.adopt(key, name, (member.seen, member.waiting), held, self.core.now);
        }
    }

    /// Goes on with members that are connected here and were another's: this node coordinates their group by now.
    pub(super) fn take_over(&mut self, key: &Key) {
        let Some(members) = self.attending.take_group(key) else { return };
        let mut awaits = Vec::new();
        for (name, member) in members {
            awaits.extend(member.awaits.into_iter().map(|(id, _, awaits)| (id, awaits)));
            if member.leaves {
                continue;
            }
            let (seen, waiting) = (member.seen, member.waiting);
            // One more than may be is told so when it asks again.
            let taken = self.register(key, &name, Member { seen, waiting, held: None });
            if matches!(taken, Ok(false))
                && let Some(known) = self.groups.member_mut(key, &name)
            {
                known.waiting += waiting;
            }
        }
        self.assigned(key);
        self.go_on_with(awaits);
    }

    /// Tells another node who the members of a group are.
    pub(crate) fn members_for(&mut self, node: NodeId, call: CallId, key: &Key) {
        let reply = if self.serves() && self.coordinates(key) {
            let group = self.groups.groups.get(key);
            let ranges = group.map(|group| group.assignment.by_member()).unwrap_or_default();
            let one = |(name, member): (&MemberName, &Member)| attend::Member {
                name: name.clone(),
                ranges: u32::try_from(ranges.get(name).map_or(0, Vec::len)).unwrap_or(u32::MAX),
                idle_ms: u64::try_from(self.core.now.since(member.seen).as_millis()).unwrap_or(u64::MAX),
            };
            MembersReply::Members {
                generation: group.map_or(Generation(0), |group| group.generation),
                members: group.map(|group| group.members.iter().map(one).collect()).unwrap_or_default(),
            }
        } else {
            let hint = self.coordinator(key.topic).filter(|hint| *hint != self.core.config.node);
            MembersReply::NotCoordinator { hint }
        };
        self.core.out.push(Action::Answer { to: node, call, message: Message::MembersReply(reply) });
    }
}
