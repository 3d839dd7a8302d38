//! Members of consumer groups: who is there, and which ranges are whose.
//!
//! Owns the soft state of every group on a topic whose vnode this node leads: it coordinates them, wherever their
//! members are connected (`coordinator`). Of members that are connected here and belong to a group that another node
//! coordinates it keeps what it was told (`attending`, `front`). Nothing of it is durable, and members register again
//! with their next request after a restart or a change of the leader. Positions are metadata's. Does not read records.
//!
//! Invariants:
//! - every current range of the topic has exactly one owner while the group has a member;
//! - a member whose request waits is alive as long as it waits, and one that a stream reads as is a member as long as
//!   the stream is open;
//! - what a member read before its share changed hands moves nothing of what changed hands.

mod assignment;
mod attending;
mod commits;
mod coordinator;
mod front;
mod gathering;
mod moves;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use metadata::vnode::Vnode;
use types::cursor::{CursorMember, Tile};
use types::{
    Generation, GroupName, Instant, KeySpan, MemberName, NodeId, Offset, RangeId, RangeSeq, TopicId, VnodeId,
    limits,
};

use self::assignment::Assignment;
use crate::action::{GroupInfo, MemberInfo, Notice, Reply};
use crate::auth::{Operation, Session};
use crate::event::{Membership, RequestId};
use crate::node::Node;
use crate::planted::Bug;
use crate::tiles;
use wire::Reason;

pub(crate) use attending::Attending;
pub(crate) use front::Attendance;
pub(crate) use peer::message::attend::Key;

/// No room for another member or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many members")]
pub(crate) struct Full;

/// Every group with members.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<Key, Group>,
    /// When silent members are looked for next.
    tick_at: Option<Instant>,
    /// The latest, by vnode, of a group that lost its last member: one of the same name begins after it, so that no
    /// cursor from before passes for one of the new assignment.
    latest: BTreeMap<VnodeId, Generation>,
    /// Groups whose assignment changed since their members' nodes were told.
    changed: BTreeSet<Key>,
    /// When it is looked next whether others coordinate them by now.
    look_at: Instant,
    leads: gathering::Leads,
}

#[derive(Debug)]
struct Group {
    generation: Generation,
    members: BTreeMap<MemberName, Member>,
    assignment: Assignment,
    /// Other nodes that members are connected to, and when each spoke of one last.
    fronts: BTreeMap<NodeId, Instant>,
    /// Until then no range is anybody's: the coordinator is new, and members there are may not have been heard.
    gather_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    /// When its last request was taken, or its last wait ended.
    seen: Instant,
    /// Requests of it that wait here, and streams.
    waiting: u32,
    /// The other node that said last that it waits there, and when; none once it was heard here.
    held: Option<(NodeId, Instant)>,
}

impl Group {
    fn new(generation: Generation) -> Self {
        Self {
            generation,
            members: BTreeMap::new(),
            assignment: Assignment::default(),
            fronts: BTreeMap::new(),
            gather_until: None,
        }
    }

    fn next(&self) -> Generation {
        Generation(self.generation.0 + 1)
    }

    fn names(&self) -> BTreeSet<&MemberName> {
        self.members.keys().collect()
    }

    fn set_ranges(&mut self, vnode: &Vnode, topic: TopicId) -> bool {
        if self.gathers() {
            return false;
        }
        let next = self.next();
        let parents = |id: RangeId| {
            let listed = vnode.range(id).map(|range| range.parents.clone()).unwrap_or_default();
            listed.into_iter().map(|seq| RangeId { topic, seq }).collect()
        };
        let members: BTreeSet<&MemberName> = self.members.keys().collect();
        let current = vnode.leaf_ranges_of(topic).map(|(id, _)| id);
        let changed = self.assignment.set_ranges(current, parents, &members, next);
        if changed {
            self.generation = next;
        }
        changed
    }
}

impl Groups {
    /// When [`Node::evict_members`] has something to look for.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        self.tick_at.filter(|_| !self.groups.is_empty())
    }

    fn start_ticks(&mut self, now: Instant) {
        self.tick_at.get_or_insert(now.plus(Duration::from_millis(limits::MEMBER_TICK_MS)));
    }

    /// Groups with members, and their members.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.groups.len(), self.groups.values().map(|group| group.members.len()).sum())
    }

    fn member_mut(&mut self, key: &Key, member: &MemberName) -> Option<&mut Member> {
        self.groups.get_mut(key)?.members.get_mut(member)
    }

    /// A request of a member begins to wait.
    pub(crate) fn wait(&mut self, key: &Key, member: &MemberName) {
        if let Some(member) = self.member_mut(key, member) {
            member.waiting += 1;
        }
    }

    /// It does not wait any more.
    pub(crate) fn waited(&mut self, key: &Key, member: &MemberName, now: Instant) {
        if let Some(member) = self.member_mut(key, member) {
            member.waiting = member.waiting.saturating_sub(1);
            member.seen = now;
        }
    }

    /// Whether a group has that member.
    pub(crate) fn has(&self, key: &Key, member: &MemberName) -> bool {
        self.groups.get(key).is_some_and(|group| group.members.contains_key(member))
    }

    /// Whether a request of a member waits, or a stream is open.
    fn is_waiting(&self, key: &Key, member: &MemberName) -> bool {
        let member = self.groups.get(key).and_then(|group| group.members.get(member));
        member.is_some_and(|member| member.waiting > 0)
    }

    /// The tiles that a member may still move: those of ranges that were its own without a break since the
    /// cursor was issued. A group without members has given nothing to anybody else.
    pub(crate) fn own_tiles(
        &self,
        vnode: &Vnode,
        key: &Key,
        holder: &CursorMember,
        tiles: Vec<Tile>,
    ) -> Vec<Tile> {
        let Some(group) = self.groups.get(key).filter(|group| !group.gathers()) else { return tiles };
        if group.generation == holder.generation && group.members.contains_key(&holder.member) {
            return tiles;
        }
        if holder.generation > group.generation {
            // Of another vnode that had the topic meanwhile.
            return Vec::new();
        }
        let owns = |id: RangeId| {
            let owner = group.assignment.owner(id);
            owner.is_some_and(|owner| owner.member == holder.member && owner.since <= holder.generation)
        };
        let spans: Vec<KeySpan> = vnode
            .leaf_ranges_of(key.topic)
            .filter(|(id, _)| owns(*id))
            .map(|(_, range)| range.span)
            .collect();
        let mut own = Vec::new();
        for tile in tiles {
            let cut =
                spans.iter().filter_map(|span| match (tile.span.covers(*span), span.covers(tile.span)) {
                    (true, _) => Some(Tile { span: *span, ..tile }),
                    (false, true) => Some(tile),
                    (false, false) => None,
                });
            own.extend(cut);
        }
        own
    }
}

/// The share of a member: its cursor's stamp and the slices it reads.
pub(crate) struct Share {
    pub(crate) cursor: CursorMember,
    pub(crate) spans: Vec<KeySpan>,
}

impl Node {
    /// Registers a member, or hears that it is alive.
    fn join(&mut self, key: &Key, member: &MemberName) -> Result<Share, Full> {
        let now = self.core.now;
        if self.register(key, member, Member { seen: now, waiting: 0, held: None })? {
            self.assigned(key);
        }
        if let Some(known) = self.groups.member_mut(key, member) {
            known.held = None;
        }
        Ok(self.share(key, member))
    }

    /// Registers a member that was heard then, or hears that it is alive; whether it is new.
    fn register(&mut self, key: &Key, member: &MemberName, of: Member) -> Result<bool, Full> {
        if !self.groups.groups.contains_key(key) {
            if self.groups.groups.len() >= limits::GROUPS_COORDINATED_MAX {
                return Err(Full);
            }
            let generation = self.first_generation(key.topic);
            self.groups.groups.insert(key.clone(), Group::new(generation));
            self.groups.start_ticks(self.core.now);
        }
        let vnode = self.core.meta.of(key.topic);
        let group = self.groups.groups.get_mut(key).expect("it was there or was inserted above");
        if let Some(known) = group.members.get_mut(member) {
            known.seen = known.seen.max(of.seen);
            return Ok(false);
        }
        if group.members.len() >= limits::MEMBERS_PER_GROUP_MAX {
            return Err(Full);
        }
        let first = group.members.is_empty();
        group.members.insert(member.clone(), of);
        let next = group.next();
        if group.gathers() {
            return Ok(true);
        }
        if first {
            group.set_ranges(vnode, key.topic);
        } else if group.assignment.join(member, next) {
            group.generation = next;
        }
        Ok(true)
    }

    /// What a member reads now.
    pub(crate) fn share(&self, key: &Key, member: &MemberName) -> Share {
        let vnode = self.core.meta.of(key.topic);
        let group = self.groups.groups.get(key).filter(|group| !group.gathers());
        if group.is_none()
            && let Some((generation, ranges)) = self.attending.share(key, member)
        {
            let spans = ranges.iter().filter_map(|seq| vnode.range(RangeId { topic: key.topic, seq: *seq }));
            let mut spans: Vec<KeySpan> = spans.map(|range| range.span).collect();
            spans.sort_unstable();
            return Share { cursor: CursorMember { member: member.clone(), generation }, spans };
        }
        let ranges = group.map(|group| group.assignment.of(member));
        let mut spans: Vec<KeySpan> =
            ranges.into_iter().flatten().filter_map(|id| vnode.range(id)).map(|range| range.span).collect();
        spans.sort_unstable();
        let generation = group.map_or(Generation(0), |group| group.generation);
        Share { cursor: CursorMember { member: member.clone(), generation }, spans }
    }

    /// Answers a member that leaves; always ok for whoever may read the topic.
    pub(crate) fn leave_group(&mut self, id: RequestId, session: &Session, who: &Membership) {
        let name = who.topic.clone().unwrap_or_default();
        if !self.may(session, Operation::Consume, &name) {
            return self.core.reply(id, Reply::Failed(Reason::PermissionDenied));
        }
        if let Some((key, member)) = self.membership(who) {
            if self.core.config.has_bug(Bug::ComeBack) {
                self.leave(&key, &member);
            } else {
                // Its own long polls would bring it back.
                self.release(&name, &key, &member);
                if !self.coordinates(&key) {
                    return self.leave_elsewhere(id, &key, &member);
                }
                self.leave_unless_waiting(&key, &member);
            }
        }
        self.core.reply(id, Reply::Left);
    }

    /// The group and member that a request names, when both can exist.
    fn membership(&mut self, who: &Membership) -> Option<(Key, MemberName)> {
        let topic = self.topic(who.topic.as_ref()?)?;
        let group = GroupName::new(who.group.as_ref()?).ok()?;
        let member = MemberName::new(who.member.as_ref()?).ok()?;
        Some((Key { topic, group }, member))
    }

    /// Takes a member out of its group, unless a stream or a request elsewhere reads as it: a client that comes back
    /// under its name may be there before the node hears that its last connection is gone.
    pub(crate) fn leave_unless_waiting(&mut self, key: &Key, member: &MemberName) {
        if self.attending.has(key, member) {
            return self.part_elsewhere(key, member);
        }
        if !self.groups.is_waiting(key, member) || self.core.config.has_bug(Bug::LeaveStreaming) {
            self.leave(key, member);
        }
    }

    /// Takes a member out of its group.
    fn leave(&mut self, key: &Key, member: &MemberName) {
        let ownerless = self.core.config.has_bug(Bug::LeaveOwnerless);
        let Some(group) = self.groups.groups.get_mut(key) else { return };
        if group.members.remove(member).is_none() {
            return;
        }
        if group.members.is_empty() && !group.gathers() {
            self.forget_group(key);
            return;
        }
        let next = group.next();
        let left: BTreeSet<&MemberName> = group.members.keys().collect();
        if !ownerless && group.assignment.leave(member, &left, next) {
            group.generation = next;
        }
        self.assigned(key);
    }

    /// Takes silent members out, now and then.
    pub(crate) fn evict_members(&mut self) {
        let now = self.core.now;
        if self.groups.tick_at.is_none_or(|at| at > now) {
            return;
        }
        self.groups.tick_at = Some(now.plus(Duration::from_millis(limits::MEMBER_TICK_MS)));
        let silent = |member: &Member| {
            member.waiting == 0 && now.since(member.seen) > Duration::from_millis(limits::MEMBER_SESSION_MS)
        };
        let mut gone = Vec::new();
        for (key, group) in &self.groups.groups {
            let members = group.members.iter().filter(|(_, member)| silent(member));
            gone.extend(members.map(|(name, _)| (key.clone(), name.clone())));
        }
        for (key, member) in gone {
            self.leave(&key, &member);
        }
    }

    /// The ranges of a topic changed.
    pub(crate) fn reassign_topic(&mut self, topic: TopicId) {
        let keys: Vec<Key> = self.keys_of(topic);
        for key in keys {
            let vnode = self.core.meta.of(topic);
            let Some(group) = self.groups.groups.get_mut(&key) else { continue };
            if group.set_ranges(vnode, topic) {
                self.assigned(&key);
            }
        }
    }

    fn keys_of(&self, topic: TopicId) -> Vec<Key> {
        let first = Key { topic, group: GroupName::new(b"").expect("an empty name is allowed") };
        self.groups
            .groups
            .range(first..)
            .take_while(|(key, _)| key.topic == topic)
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// A topic is gone, and its groups with it.
    pub(crate) fn forget_groups(&mut self, topic: TopicId) {
        for key in self.keys_of(topic) {
            self.forget_group(&key);
        }
        self.forget_attending(topic);
    }

    /// Whoever reads as a member of the group looks at its new share.
    fn assigned(&mut self, key: &Key) {
        let Some(group) = self.groups.groups.get(key).filter(|group| !group.gathers()) else { return };
        let Some(name) = self.topic_name(key.topic) else { return };
        self.core.notice(Notice::Assigned {
            topic: String::from_utf8_lossy(&name).into_owned(),
            group: Bytes::copy_from_slice(key.group.as_bytes()),
            generation: group.generation.0,
            members: group.names().len(),
        });
        self.groups.changed.insert(key.clone());
        self.restream(key);
        self.wake_group(&name, key);
    }

    /// A group for people.
    pub(crate) fn group_info(&self, key: &Key) -> GroupInfo {
        let now = self.core.now;
        let group = self.groups.groups.get(key);
        let member = |(name, member): (&MemberName, &Member)| {
            let owned = group.map_or(0, |group| group.assignment.of(name).count());
            MemberInfo {
                name: Bytes::copy_from_slice(name.as_bytes()),
                ranges: u32::try_from(owned).unwrap_or(u32::MAX),
                idle_ms: u64::try_from(now.since(member.seen).as_millis()).unwrap_or(u64::MAX),
            }
        };
        let members = group.map(|group| group.members.iter().map(member).collect()).unwrap_or_default();
        let (lag, lag_exact) = self.lag(key.topic, &self.core.positions(&key.group, key.topic));
        GroupInfo { generation: group.map_or(0, |group| group.generation.0), members, lag, lag_exact }
    }

    /// Requests of a group's members that wait, and streams, by member.
    pub(crate) fn waiting_in(&self, key: &Key) -> impl Iterator<Item = (&MemberName, u32)> {
        let group = self.groups.groups.get(key);
        group.into_iter().flat_map(|group| group.members.iter()).map(|(name, member)| (name, member.waiting))
    }

    /// The first offset of a range that is stored, or its end when none is.
    fn stored_from(&self, id: RangeId) -> Offset {
        let first = self.core.meta.of(id.topic).segments_of(id).next();
        first.map_or_else(|| self.end_of(id), |(_, segment)| segment.start)
    }

    /// Records at or after a position, as far as this node knows, and whether all of them are the reader's.
    fn lag(&self, topic: TopicId, known: &[Tile]) -> (u64, bool) {
        let vnode = self.core.meta.of(topic);
        let Some(whole) = vnode.whole_of(topic) else { return (0, true) };
        let (mut lag, mut exact) = (0, true);
        // Of each range that a tile will come to: how much of its keys tiles come for.
        let mut ahead: BTreeMap<RangeSeq, u64> = BTreeMap::new();
        for tile in tiles::start(known, &[], &[whole]) {
            let id = RangeId { topic, seq: tile.range };
            // What has expired is nothing the group could still read.
            lag += self.end_of(id).since(tile.next.max(self.stored_from(id)).min(self.end_of(id)));
            exact &= vnode.range(id).is_some_and(|range| range.span == tile.span);
            let (mut seen, mut next) = (BTreeSet::new(), vnode.children_of(id).to_vec());
            while let Some(seq) = next.pop() {
                let id = RangeId { topic, seq };
                let Some(range) = vnode.range(id) else { continue };
                // Two aligned blocks that overlap lie one in the other.
                let keys = match (range.span.covers(tile.span), tile.span.covers(range.span)) {
                    (true, _) => tile.span.size(),
                    (false, true) => range.span.size(),
                    (false, false) => continue,
                };
                if seen.insert(seq) {
                    *ahead.entry(seq).or_default() += keys;
                    next.extend(vnode.children_of(id));
                }
            }
        }
        for (seq, keys) in ahead {
            let id = RangeId { topic, seq };
            lag += self.end_of(id).since(self.stored_from(id).min(self.end_of(id)));
            exact &= vnode.range(id).is_some_and(|range| range.span.size() == keys);
        }
        (lag, exact)
    }
}
