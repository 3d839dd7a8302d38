//! The metadata's dealings with other nodes: letters of the groups, proposals on their way to a leader, tables that are
//! followed, and what others ask for.
//!
//! Decides whom to ask. What may be believed of an answer is said in `remote` and `follow`.

use std::time::Duration;

use bytes::Bytes;
use metadata::cluster::{ChangeRing, Command};
use peer::Message;
use peer::message::{
    Follow, FollowReply, ForwardReply, OfGroup, Propose, ProposeRefusal, ProposeReply, ReadIndexReply,
};
use raft::{Entry, ProposalId, ReadId, Role};
use types::{Instant, NodeId, RaftIndex, VnodeId, limits};

use super::follow::{self, News};
use super::origin::Origin;
use super::remote::{self, Key, Verdict};
use super::serve::{Caller, ENTRIES_BYTES_MAX, PART_BYTES};
use super::{CLUSTER, Fate, Meta};
use crate::action::{Action, Actions};
use crate::event::{AskId, CallId, PeerEvent};
use crate::planted::Bug;

/// A letter above this goes by itself, where it is in nobody's way.
const LETTER_BYTES_MAX: usize = 64 * 1024;
/// The largest that fits there, with what is around it.
const BULK_LETTER_BYTES_MAX: usize = limits::PEER_BULK_MESSAGE_BYTES_MAX - 64;
/// What an entry takes on the way beside its bytes: its term and its length.
const ENTRY_BYTES: usize = 8 + 4;
/// How often others are asked about replicas that hear no leader.
const ASK_AROUND_EVERY: Duration = Duration::from_secs(3);

impl Meta {
    /// Takes what is for the metadata of what happened between nodes.
    pub(crate) fn peer(&mut self, node: NodeId, event: PeerEvent, out: &mut Actions) {
        match event {
            PeerEvent::Up => drop(self.up.insert(node)),
            PeerEvent::Down => self.down(node),
            PeerEvent::Said(Message::Raft(letters)) => {
                for OfGroup { vnode, message } in letters {
                    self.host.receive(node, vnode, message);
                }
            }
            PeerEvent::Said(Message::RaftPart(OfGroup { vnode, message })) => {
                self.host.receive(node, vnode, message);
            }
            PeerEvent::Said(_) => {}
            PeerEvent::Asked { call, message } => self.asked_by((node, call), message, out),
            PeerEvent::Answered { ask, message } => self.answered(ask, Some(message)),
            PeerEvent::Unanswered { ask } => self.answered(ask, None),
            // Who leads and who follows is told by connections.
            PeerEvent::Seen { .. } => {}
        }
        self.settle(out);
    }

    fn down(&mut self, node: NodeId) {
        self.up.remove(&node);
        self.host.unreachable(node);
        self.served.down(node);
        self.fresh.down(node);
        self.confirms.down(node);
        self.follows.down(node, self.now);
        for (key, verdict) in self.remote.down(node, self.now) {
            self.judged(key, verdict);
        }
    }

    fn asked_by(&mut self, caller: Caller, message: Message, out: &mut Actions) {
        let answer = match message {
            Message::Propose(propose) => self.propose_for(caller, propose).map(Message::ProposeReply),
            Message::Follow(follow) => self.follow_for(caller, follow).map(Message::FollowReply),
            Message::ReadIndex { vnode } => self.read_for(caller, vnode).map(Message::ReadIndexReply),
            Message::Forward(_) => Some(Message::ForwardReply(ForwardReply::NotServed { hint: None })),
            // Not what one asks: the link lets no such thing through.
            Message::Raft(_)
            | Message::RaftPart(_)
            | Message::Attributes(_)
            | Message::ForwardReply(_)
            | Message::FollowReply(_)
            | Message::ProposeReply(_)
            | Message::ReadIndexReply(_)
            | Message::CopyReply(_)
            | Message::AppendReply(_)
            | Message::WatchReply(_)
            | Message::Assigned(_)
            | Message::AttendReply(_)
            | Message::CommitReply(_)
            | Message::MembersReply(_)
            | Message::Loads(_) => None,
            // The node's own business.
            Message::Copy(_)
            | Message::Append(_)
            | Message::Watch(_)
            | Message::Attend(_)
            | Message::CommitAs(_)
            | Message::Members(_) => None,
        };
        out.extend(answer.map(|message| answer_to(caller, message)));
    }

    /// `None` when the answer comes later.
    fn propose_for(&mut self, caller: Caller, propose: Propose) -> Option<ProposeReply> {
        let Propose { vnode, command, .. } = propose;
        if !self.leads(vnode) {
            let hint = self.leader(vnode);
            return Some(ProposeReply::NotLeader { hint });
        }
        let Some(number) = self.served.propose(caller) else {
            return Some(ProposeReply::Refused(ProposeRefusal::Overloaded));
        };
        self.host.propose(vnode, ProposalId(number), command);
        None
    }

    fn read_for(&mut self, caller: Caller, vnode: VnodeId) -> Option<ReadIndexReply> {
        if !self.leads(vnode) {
            if self.planted.has(Bug::HintReads) && self.leader(vnode).is_some() {
                return Some(ReadIndexReply::Ready(self.applied_of(vnode)));
            }
            return Some(ReadIndexReply::NotLeader { hint: self.leader(vnode) });
        }
        let Some(number) = self.served.read(caller) else { return Some(ReadIndexReply::Overloaded) };
        self.host.read(vnode, ReadId(number));
        None
    }

    /// Everything committed when another node asked is applied here, or that cannot be known.
    pub(super) fn tell_reader(&mut self, id: ReadId, reply: ReadIndexReply) {
        match self.served.reader(id.0) {
            Some(caller) => self.answers.push((caller, Message::ReadIndexReply(reply))),
            None => self.confirms.told_here(id, &reply),
        }
    }

    /// What became of a proposal of another node; `false` when it is none.
    pub(super) fn tell_proposer(&mut self, id: ProposalId, reply: ProposeReply) -> bool {
        let Some(caller) = self.served.proposer(id.0) else { return false };
        self.answers.push((caller, Message::ProposeReply(reply)));
        true
    }

    fn follow_for(&mut self, caller: Caller, follow: Follow) -> Option<FollowReply> {
        let Follow { vnode, from, part, wait_ms } = follow;
        let Some(group) = self.host.group(vnode) else {
            // Whoever joins and has nothing may reach nobody but this node: who else there is it learns from these tables.
            let knows_nobody = vnode == CLUSTER && from == RaftIndex(1);
            if knows_nobody && self.cluster().applied() > RaftIndex::ZERO {
                return Some(self.followed(vnode, from, part));
            }
            return Some(FollowReply::NotHere { hint: self.leader(vnode) });
        };
        if from > group.applied() {
            let parked = self.served.park(vnode, caller, from, wait_ms, self.now);
            return (!parked).then_some(FollowReply::Overloaded);
        }
        Some(self.followed(vnode, from, part))
    }

    fn followed(&mut self, group: VnodeId, from: RaftIndex, part: Option<(RaftIndex, u64)>) -> FollowReply {
        if part.is_none()
            && let Some(entries) = self.host.applied_entries(group, from, ENTRIES_BYTES_MAX)
            // A single command may be larger than bulk takes: then the state it led to goes in parts.
            && entries.iter().map(|(_, entry)| entry.len() + ENTRY_BYTES).sum::<usize>() <= BULK_LETTER_BYTES_MAX
        {
            return FollowReply::Entries(entries);
        }
        let known =
            part.and_then(|(index, at)| Some((index, at, self.served.snapshot(group, index, self.now)?)));
        let (index, offset, state) = match known {
            Some(known) => known,
            None => match self.snapshot_of(group) {
                Some((index, state)) => (index, 0, state),
                None => return FollowReply::NotHere { hint: self.leader(group) },
            },
        };
        let total = state.len() as u64;
        let begin = usize::try_from(offset.min(total)).unwrap_or(state.len());
        let bytes = state.slice(begin..state.len().min(begin + PART_BYTES));
        FollowReply::Part { index, total, offset: begin as u64, bytes }
    }

    /// A state to hand out: the one that others are being given, unless it is old.
    fn snapshot_of(&mut self, group: VnodeId) -> Option<(RaftIndex, Bytes)> {
        if let Some(index) = self.served.kept_index(group)
            && self.host.applied_entries(group, index.next(), 0).is_some()
        {
            return Some((index, self.served.snapshot(group, index, self.now)?));
        }
        let (last_command, state) = self.save_at(group)?;
        // The entries after the last command carry none: whoever has this state has those too.
        let own = self.host.group(group).filter(|_| !self.is_catching_up(group)).map(raft::Group::applied);
        let index = own.map_or(last_command, |own| own.max(last_command));
        self.served.keep(group, index, state.clone(), self.now);
        Some((index, state))
    }

    /// Something of a group was applied: whoever waits for it is answered.
    pub(super) fn wake_followers(&mut self, group: VnodeId) {
        let Some(applied) = self.host.group(group).map(raft::Group::applied) else { return };
        for (caller, from) in self.served.wake(group, applied) {
            let reply = self.followed(group, from, None);
            self.answers.push((caller, Message::FollowReply(reply)));
        }
    }

    fn answered(&mut self, ask: AskId, message: Option<Message>) {
        match message {
            Some(Message::FollowReply(reply)) => self.follow_answered(ask, Some(reply)),
            Some(Message::ProposeReply(reply)) => self.propose_answered(ask, Some(&reply)),
            Some(Message::ReadIndexReply(reply)) => self.told_how_far(ask, Some(&reply)),
            // Nothing else was asked for.
            Some(_) | None => {
                self.follow_answered(ask, None);
                self.propose_answered(ask, None);
                self.told_how_far(ask, None);
            }
        }
    }

    fn propose_answered(&mut self, ask: AskId, reply: Option<&ProposeReply>) {
        // Whoever is followed may be behind, and whoever proposes waits for the entry to come to the tables here.
        if let (Some(ProposeReply::Applied { index, .. }), Some((group, leader))) =
            (reply, self.remote.asked(ask))
            && self.is_followed(group)
            && self.applied_of(group) < *index
        {
            self.follows.ask_instead(group, leader);
        }
        let nothing_done = ProposeReply::NotLeader { hint: None };
        let is_unknown = matches!(reply, None | Some(ProposeReply::Unknown));
        let reply =
            if is_unknown && self.planted.has(Bug::ResendUnknown) { Some(&nothing_done) } else { reply };
        let recorded_in = matches!(reply, Some(ProposeReply::Applied { .. }))
            .then(|| self.remote.asked(ask))
            .flatten()
            .map(|(group, _)| group);
        if let Some((key, verdict)) = self.remote.answered(ask, reply, self.now) {
            self.judged(key, verdict);
        }
        if let Some(group) = recorded_in {
            self.look_for_passed(group);
        }
    }

    fn follow_answered(&mut self, ask: AskId, reply: Option<FollowReply>) {
        let news = self.follows.answered(ask, reply, self.now);
        // The node became a replica while the answer was on its way: what the answer brings, the replica is about to
        // apply, and whoever waits for it would be told that it was there already.
        // Of a vnode that left the ring nothing is here any more that entries would continue.
        match news.filter(|(group, _)| self.is_followed(*group) && !self.is_gone(*group)) {
            Some((group, News::Entries(first, entries))) => {
                let gap = usize::from(entries.len() > 1 && self.planted.has(Bug::FollowPastGap));
                for (index, (term, data)) in (first.0..).zip(entries).skip(gap) {
                    self.apply_followed(group, Entry { index: RaftIndex(index), term, data });
                }
            }
            Some((group, News::State(index, state))) => self.restore_followed(group, index, state),
            None => {}
        }
    }

    /// Nothing more will be heard of a proposal on its way.
    pub(super) fn judged(&mut self, key: Key, verdict: Verdict) {
        self.remote.release(key);
        let fate = match verdict {
            Verdict::NotRecorded => Fate::NotRecorded,
            Verdict::Unknown => Fate::Unknown,
        };
        self.lost(key.0, ProposalId(key.1), fate);
    }

    /// Puts a proposal into the group's log here, or on its way to whoever leads the group.
    pub(super) fn submit(&mut self, group: VnodeId, number: u64, entry: Bytes) {
        let decides_here = |group: &raft::Group| matches!(group.role(), Role::Leader | Role::Stopped);
        let alone = self.up.is_empty() && self.host.has(group);
        if alone || self.host.group(group).is_some_and(decides_here) {
            return self.host.propose(group, ProposalId(number), entry);
        }
        if entry.len() > limits::RAFT_COMMAND_BYTES_MAX {
            return self.lost(group, ProposalId(number), Fate::NotRecorded);
        }
        self.remote.hold((group, number), entry, self.now);
    }

    /// Asks whoever has to be asked. Called when everything else is silent.
    pub(super) fn ask_others(&mut self, out: &mut Actions) {
        for key in self.remote.idle(self.now) {
            self.send_proposal(key, out);
        }
        for group in self.follows.due(self.now) {
            let (from, candidates) = (self.applied_of(group).next(), self.candidates(group));
            let ask = self.ask_id();
            if let Some((to, follow)) = self.follows.ask(group, from, &candidates, ask) {
                let (message, within) = (Message::Follow(follow), follow::ANSWER_WITHIN);
                out.push(Action::Ask { to, ask, message, within });
            }
        }
        for (to, letters) in self.host.take_mail() {
            if self.up.contains(&to) {
                say_letters(to, letters, out);
            }
        }
        out.extend(self.answers.drain(..).map(|(caller, message)| answer_to(caller, message)));
    }

    fn send_proposal(&mut self, key: Key, out: &mut Actions) {
        if self.leads(key.0) {
            if let Some(entry) = self.remote.take(key) {
                self.host.propose(key.0, ProposalId(key.1), entry);
            }
            return;
        }
        let known = self.leader(key.0).filter(|leader| self.up.contains(leader));
        // Whoever does not lead says who does, and has done nothing.
        let any = || self.remote.in_turn(key, &self.candidates(key.0));
        let Some(to) = known.or_else(any) else { return };
        let ask = self.ask_id();
        if let Some(propose) = self.remote.ask(key, to, ask) {
            let (message, within) = (Message::Propose(propose), remote::ANSWER_WITHIN);
            out.push(Action::Ask { to, ask, message, within });
        }
    }

    /// Whose an entry is; with a bug, always this process's.
    pub(super) fn plant_own(&self, origin: Option<Origin>) -> Option<Origin> {
        let number = origin?.number;
        if self.planted.has(Bug::HearForeign) { Some(self.asked.own(number)) } else { origin }
    }

    /// A change of the ring under whatever fence the tables show, with a bug.
    pub(super) fn plant_fence(&self, command: &Command) -> Option<Command> {
        let Command::ChangeRing(change) = command else { return None };
        let change = ChangeRing { fence: self.cluster().lease().fence, ..change.clone() };
        self.planted.has(Bug::AnyFence).then_some(Command::ChangeRing(change))
    }

    /// A number for something this node asks another.
    pub(crate) fn ask_id(&mut self) -> AskId {
        self.next_ask += 1;
        AskId(self.next_ask)
    }

    /// Whether this node leads a group and may record a proposal.
    pub(crate) fn leads(&self, group: VnodeId) -> bool {
        self.led_term(group).is_some()
    }

    /// Who leads a group, as far as is known here.
    pub(crate) fn leader(&self, group: VnodeId) -> Option<NodeId> {
        let known = self.host.leader(group).map(|(leader, _)| leader);
        known.or_else(|| self.remote.hint(group).filter(|_| self.host.group(group).is_none()))
    }

    /// Nodes that may have a group, those that are said to first.
    pub(crate) fn candidates(&self, group: VnodeId) -> Vec<NodeId> {
        let hint = self.remote.hint(group).into_iter();
        let placed = self.placed(group);
        let mut nodes: Vec<NodeId> = hint.chain(placed).filter(|node| self.up.contains(node)).collect();
        nodes.extend(self.up.iter().filter(|node| !nodes.contains(node)).copied().collect::<Vec<_>>());
        nodes
    }

    /// Gives up on what is overdue, and lets followers go that have waited long enough.
    pub(super) fn expire(&mut self) {
        for (key, verdict) in self.remote.overdue(self.now) {
            self.judged(key, verdict);
        }
        for caller in self.served.take_due(self.now) {
            self.answers.push((caller, Message::FollowReply(FollowReply::Entries(Vec::new()))));
        }
    }

    /// Now and then, about replicas here that hear no leader: they may have left while nobody could tell them.
    pub(super) fn ask_around(&mut self) {
        if self.ask_around_at <= self.now {
            self.ask_around_at = self.now.plus(ASK_AROUND_EVERY);
            let others: Vec<NodeId> = self.up.iter().copied().collect();
            self.host.ask_around(&others);
        }
    }

    /// A group is not here any more.
    pub(super) fn left(&mut self, group: VnodeId) {
        for caller in self.served.take_all(group) {
            let reply = FollowReply::NotHere { hint: None };
            self.answers.push((caller, Message::FollowReply(reply)));
        }
    }

    /// When something of this is due next, beside ticks. What is due already is the next tick's: a timer that was asked
    /// for and has come would not be asked for again.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let due =
            [self.served.next_due(), self.follows.retry_at(), self.confirms.next_due()].into_iter().flatten();
        due.filter(|at| *at > self.now).min()
    }

    /// Which groups are followed: those of the cluster that this node is no replica of.
    pub(super) fn follow_others(&mut self) {
        if self.up.is_empty() {
            return;
        }
        let groups = std::iter::once(CLUSTER).chain(self.all_vnodes());
        let wanted: Vec<VnodeId> = groups.filter(|group| self.is_followed(*group)).collect();
        self.follows.set(wanted.into_iter());
    }

    /// Whether the tables of a group are not this node's own replica's.
    pub(super) fn is_followed(&self, group: VnodeId) -> bool {
        self.host.group(group).is_none() || self.is_catching_up(group)
    }
}

fn answer_to((to, call): (NodeId, CallId), message: Message) -> Action {
    Action::Answer { to, call, message }
}

fn say_letters(to: NodeId, letters: Vec<(VnodeId, Bytes)>, out: &mut Actions) {
    let of_group = |(vnode, message)| OfGroup { vnode, message };
    let (large, small): (Vec<_>, Vec<_>) =
        letters.into_iter().map(of_group).partition(|letter| letter.message.len() > LETTER_BYTES_MAX);
    if !small.is_empty() {
        out.push(Action::Say { to, message: Message::Raft(small) });
    }
    for letter in large {
        // An append has at least one entry, whose command may be larger than all that bulk takes.
        let is_bulk = letter.message.len() <= BULK_LETTER_BYTES_MAX;
        let message = if is_bulk { Message::RaftPart(letter) } else { Message::Raft(vec![letter]) };
        out.push(Action::Say { to, message });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_of_any_size_goes_where_it_is_taken() {
        let sizes = [
            1,
            LETTER_BYTES_MAX + 1,
            limits::RAFT_APPEND_BYTES,
            BULK_LETTER_BYTES_MAX,
            BULK_LETTER_BYTES_MAX + 1,
            limits::RAFT_MESSAGE_BYTES_MAX,
        ];
        for size in sizes {
            let mut out = Actions::default();
            say_letters(NodeId(2), vec![(VnodeId(1), Bytes::from(vec![0; size]))], &mut out);
            let mut said = out.into_iter();
            let (Some(Action::Say { message, .. }), None) = (said.next(), said.next()) else {
                panic!("one message says one letter");
            };
            assert!(message.fits(), "a letter of {size} bytes is too large for its stream");
            let is_bulk = matches!(message, Message::RaftPart(_));
            assert_eq!(
                is_bulk,
                (LETTER_BYTES_MAX + 1..=BULK_LETTER_BYTES_MAX).contains(&size),
                "{size} bytes"
            );
        }
    }
}
