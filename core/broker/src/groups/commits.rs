//! Positions of members, and questions about groups, between the nodes they come to and the coordinator.
//!
//! Owns what is on its way, in both directions. Only the coordinator knows what is still a member's to move, so it is
//! the one to propose a member's positions; positions that no member stands for go straight to the metadata.
//!
//! Invariants:
//! - positions are proposed by one coordinator at most: who may have taken them is not asked twice;
//! - a commit is answered once the tables here hold it, so that the next fetch begins behind it;
//! - so many are on their way at most, and each has one answer.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use peer::Message;
use peer::message::attend::{CommitAs, CommitReply, MembersReply, Refusal};
use types::{Generation, Instant, NodeId, RaftIndex, TopicId, limits};
use wire::Reason;

use super::Key;
use super::attending::RETRY_AFTER;
use super::moves::{Lags, Wish};
use crate::action::{Action, GroupInfo, MemberInfo, Reply};
use crate::commit::{self, Proposed};
use crate::event::{AskId, CallId, ConnectionId, RequestId};
use crate::meta;
use crate::node::Node;

/// How long the coordinator may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long the tables here may take to come to what is stored.
const SEEN_WITHIN: Duration = Duration::from_secs(5);
/// No client is connected here: what other nodes asked is numbered under it.
const PEERS: ConnectionId = ConnectionId(u64::MAX);

/// What is on its way.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    asks: BTreeMap<AskId, Asked>,
    /// To be asked once more.
    retries: Vec<(Instant, Asked)>,
    /// Stored; answered once the tables here are so far, or then.
    stored: Vec<(RequestId, TopicId, RaftIndex, Instant)>,
    /// Those of other nodes.
    served: BTreeMap<RequestId, (NodeId, CallId, TopicId)>,
    /// Groups that are being put somewhere else, by whoever asked for it.
    pub(super) moves: BTreeMap<RequestId, Lags>,
    next: u64,
}

#[derive(Debug)]
struct Asked {
    id: RequestId,
    key: Key,
    /// The positions; none for whoever asks who the members are.
    cursor: Option<Bytes>,
    /// What is done when there are no members; none for whoever only wants to know.
    wish: Option<Wish>,
    to: NodeId,
    /// Somebody has said already that he does not coordinate.
    again: bool,
}

impl Commits {
    fn is_full(&self) -> bool {
        self.asks.len() + self.retries.len() + self.stored.len() >= limits::GROUP_ASKS_MAX
    }

    /// Whether this was asked.
    pub(super) fn has_asked(&self, ask: AskId) -> bool {
        self.asks.contains_key(&ask)
    }

    /// When there is something to do.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let retry = self.retries.iter().map(|(at, _)| *at);
        retry.chain(self.stored.iter().map(|(.., until)| *until)).min()
    }
}

impl Node {
    /// Has the coordinator store a member's positions; answered by `committed`.
    pub(crate) fn commit_elsewhere(
        &mut self,
        id: RequestId,
        key: Key,
        cursor: Bytes,
    ) -> Result<(), commit::Error> {
        if self.attending.commits.is_full() {
            return Err(commit::Error::Overloaded);
        }
        let to = self.whom_to_ask(key.topic).filter(|to| self.core.liveness.is_up(*to));
        let to = to.ok_or(commit::Error::NotOwner)?;
        self.ask_coordinator(Asked { id, key, cursor: Some(cursor), wish: None, to, again: false });
        Ok(())
    }

    /// Asks the coordinator who the members of a group are; `false` when nobody can be asked.
    pub(crate) fn ask_members(&mut self, id: RequestId, key: &Key) -> bool {
        self.ask_members_with(id, key, None)
    }

    /// The same before something is done to the group.
    pub(super) fn ask_members_for(&mut self, id: RequestId, key: &Key, wish: Wish) -> bool {
        self.ask_members_with(id, key, Some(wish))
    }

    fn ask_members_with(&mut self, id: RequestId, key: &Key, wish: Option<Wish>) -> bool {
        let to = self.whom_to_ask(key.topic).filter(|to| self.core.liveness.is_up(*to));
        match to.filter(|_| !self.attending.commits.is_full()) {
            Some(to) => {
                let key = key.clone();
                self.ask_coordinator(Asked { id, key, cursor: None, wish, to, again: false });
            }
            None => return false,
        }
        true
    }

    fn ask_coordinator(&mut self, asked: Asked) {
        let ask = self.core.meta.ask_id();
        let (to, key) = (asked.to, asked.key.clone());
        let message = match &asked.cursor {
            Some(cursor) => Message::CommitAs(CommitAs { key, cursor: cursor.clone() }),
            None => Message::Members(key),
        };
        self.attending.commits.asks.insert(ask, asked);
        self.core.out.push(Action::Ask { to, ask, message, within: ANSWER_WITHIN });
    }

    /// The coordinator answered, or will not.
    pub(super) fn coordinator_answered(&mut self, ask: AskId, reply: Option<Message>) {
        let Some(asked) = self.attending.commits.asks.remove(&ask) else { return };
        match (&asked.cursor, reply) {
            (Some(_), Some(Message::CommitReply(CommitReply::NotCoordinator { hint })))
            | (None, Some(Message::MembersReply(MembersReply::NotCoordinator { hint }))) => {
                self.ask_once_more(asked, hint);
            }
            (None, Some(Message::MembersReply(MembersReply::Members { members, .. })))
                if asked.wish.is_some() =>
            {
                let Asked { id, key, wish, .. } = asked;
                if let Some(wish) = wish {
                    self.grant_unless(id, key, wish, !members.is_empty());
                }
            }
            (None, Some(Message::MembersReply(MembersReply::Members { generation, members }))) => {
                let members = members.into_iter().map(|member| MemberInfo {
                    name: Bytes::copy_from_slice(member.name.as_bytes()),
                    ranges: member.ranges,
                    idle_ms: member.idle_ms,
                });
                let members = (generation, members.collect());
                let info = self.group_told(&asked.key, members);
                self.core.reply(asked.id, Reply::Group(info));
            }
            (None, _) => self.core.reply(asked.id, Reply::Failed(Reason::Unavailable)),
            (Some(_), Some(Message::CommitReply(CommitReply::Stored { as_of }))) => {
                let until = self.core.now.plus(SEEN_WITHIN);
                self.attending.commits.stored.push((asked.id, asked.key.topic, as_of, until));
                self.keep_commits();
            }
            (Some(_), Some(Message::CommitReply(CommitReply::Refused(refusal)))) => {
                self.commit_done(asked.id, Err(refused(refusal)));
            }
            (Some(_), _) => self.commit_done(asked.id, Err(commit::Error::Meta(meta::Error::Unknown))),
        }
    }

    /// Whoever was asked has done nothing: the one he names is asked, or after a pause whoever is known to lead then.
    fn ask_once_more(&mut self, asked: Asked, hint: Option<NodeId>) {
        if asked.again {
            return self.no_coordinator(&asked);
        }
        match hint.filter(|hint| self.core.liveness.is_up(*hint)) {
            Some(to) => self.ask_coordinator(Asked { to, again: true, ..asked }),
            None => self.attending.commits.retries.push((self.core.now.plus(RETRY_AFTER), asked)),
        }
    }

    fn no_coordinator(&mut self, asked: &Asked) {
        match asked.cursor {
            Some(_) => self.commit_done(asked.id, Err(commit::Error::NotOwner)),
            None => self.core.reply(asked.id, Reply::Failed(Reason::NotOwner)),
        }
    }

    /// Asks again what is to be, and answers what the tables here have come to.
    pub(super) fn keep_commits(&mut self) {
        let now = self.core.now;
        let retries: Vec<_> = self.attending.commits.retries.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, asked) in retries {
            if self.coordinates(&asked.key) {
                self.ask_self(asked);
                continue;
            }
            match self.whom_to_ask(asked.key.topic).filter(|to| self.core.liveness.is_up(*to)) {
                Some(to) => self.ask_coordinator(Asked { to, again: true, ..asked }),
                None => self.no_coordinator(&asked),
            }
        }
        if self.attending.commits.stored.is_empty() {
            return;
        }
        let meta = &self.core.meta;
        let is_seen = |(_, topic, as_of, until): &mut (RequestId, TopicId, RaftIndex, Instant)| {
            meta.applied_for(*topic) >= *as_of || *until <= now
        };
        let seen: Vec<_> = self.attending.commits.stored.extract_if(.., is_seen).collect();
        for (id, ..) in seen {
            self.commit_done(id, Ok(()));
        }
    }

    /// This node coordinates by now.
    fn ask_self(&mut self, asked: Asked) {
        let Asked { id, key, cursor, wish, .. } = asked;
        let Some(cursor) = cursor else {
            if let Some(wish) = wish {
                let has_members = !self.group_info(&key).members.is_empty();
                return self.grant_unless(id, key, wish, has_members);
            }
            let info = self.group_info(&key);
            return self.core.reply(id, Reply::Group(info));
        };
        match self.propose_positions(id, key, Some(&cursor)) {
            Ok(Proposed::Yes) => {}
            Ok(Proposed::Nothing) => self.commit_done(id, Ok(())),
            Err(error) => self.commit_done(id, Err(error)),
        }
    }

    /// Stores positions for another node's member.
    pub(crate) fn commit_for(&mut self, node: NodeId, call: CallId, commit: CommitAs) {
        let CommitAs { key, cursor } = commit;
        let topic = key.topic;
        if !self.serves() || !self.coordinates(&key) || self.core.meta.home(topic).is_none() {
            let hint = self.core.meta.home(topic).and_then(|vnode| self.core.meta.leader(vnode));
            let hint = hint.filter(|hint| *hint != self.core.config.node);
            return self.answer_commit(node, call, CommitReply::NotCoordinator { hint });
        }
        let commits = &mut self.attending.commits;
        if commits.served.len() >= limits::GROUP_ASKS_MAX {
            return self.answer_commit(node, call, CommitReply::Refused(Refusal::Overloaded));
        }
        commits.next += 1;
        let id = RequestId { connection: PEERS, number: commits.next };
        commits.served.insert(id, (node, call, topic));
        match self.propose_positions(id, key, Some(&cursor)) {
            Ok(Proposed::Yes) => {}
            Ok(Proposed::Nothing) => drop(self.commit_served(id, Ok(()))),
            Err(error) => drop(self.commit_served(id, Err(error))),
        }
    }

    /// Positions were decided on; whether they are another node's.
    pub(crate) fn commit_served(&mut self, id: RequestId, result: Result<(), commit::Error>) -> bool {
        let Some((node, call, topic)) = self.attending.commits.served.remove(&id) else { return false };
        let reply = match result {
            Ok(()) => CommitReply::Stored { as_of: self.core.meta.applied_for(topic) },
            Err(error) => reply_of(error),
        };
        self.answer_commit(node, call, reply);
        true
    }

    fn answer_commit(&mut self, to: NodeId, call: CallId, reply: CommitReply) {
        self.core.out.push(Action::Answer { to, call, message: Message::CommitReply(reply) });
    }

    pub(super) fn commits_parted(&mut self, node: NodeId) {
        let lost = self.attending.commits.asks.iter().filter(|(_, asked)| asked.to == node);
        let lost: Vec<AskId> = lost.map(|(ask, _)| *ask).collect();
        for ask in lost {
            self.coordinator_answered(ask, None);
        }
    }

    fn group_told(&self, key: &Key, (generation, members): (Generation, Vec<MemberInfo>)) -> GroupInfo {
        GroupInfo { generation: generation.0, members, ..self.group_info(key) }
    }
}

fn refused(refusal: Refusal) -> commit::Error {
    match refusal {
        Refusal::InvalidCursor => commit::Error::InvalidCursor,
        Refusal::NoSuchTopic => commit::Error::NoSuchTopic,
        Refusal::TooManyGroups => commit::Error::Meta(meta::Error::TooManyGroups),
        Refusal::Overloaded => commit::Error::Overloaded,
        Refusal::Unavailable => commit::Error::Meta(meta::Error::Unavailable),
        Refusal::Migrating => commit::Error::Meta(meta::Error::Migrating),
    }
}

fn reply_of(error: commit::Error) -> CommitReply {
    CommitReply::Refused(match error {
        commit::Error::InvalidCursor | commit::Error::Meta(meta::Error::Refused) => Refusal::InvalidCursor,
        commit::Error::NoSuchTopic | commit::Error::Meta(meta::Error::NoSuchTopic) => Refusal::NoSuchTopic,
        commit::Error::Meta(meta::Error::TooManyGroups) => Refusal::TooManyGroups,
        commit::Error::Meta(meta::Error::Migrating) => Refusal::Migrating,
        commit::Error::Overloaded => Refusal::Overloaded,
        commit::Error::Meta(meta::Error::Unavailable) | commit::Error::NotOwner => Refusal::Unavailable,
        commit::Error::Denied
        | commit::Error::InvalidGroup
        | commit::Error::Meta(
            meta::Error::Unknown
            | meta::Error::Sealed
            | meta::Error::NoSuchRange
            | meta::Error::CannotSplit
            | meta::Error::NotBuddies
            | meta::Error::InsufficientDomains
            | meta::Error::TooManyRanges
            | meta::Error::AlreadyExists
            | meta::Error::InvalidTopicName,
        ) => return CommitReply::Unknown,
    })
}
