//! Commands that met a vnode which does not have the topic, or not yet.
//!
//! Owns their way from there: they wait until the vnode that is to have the topic takes commands for it, and are
//! proposed to that one. A refusal changed nothing, so a command that was refused may be proposed again; one whose
//! outcome nobody knows is never here.
//!
//! Invariants:
//! - every command has an end: it is decided, or refused as migrating when its time is over;
//! - positions of a topic are proposed in the order in which they came, also those that come while others wait.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use metadata::vnode::{Command, Commit, Refusal, Share, Vnode};
use types::{Instant, TopicId, TopicName, VnodeId};

use super::home::place_of;
use super::{Decided, Error, Meta, Then, VNODE};
use crate::event::RequestId;

/// How long a topic may move before its requests are refused. A move takes a few round trips.
const PATIENCE: Duration = Duration::from_secs(10);

/// A proposal and who waits for it.
#[derive(Debug)]
pub(super) struct Proposed {
    pub(super) then: Then,
    /// When it is given up, once it was refused because its topic moves.
    pub(super) until: Option<Instant>,
}

#[derive(Debug)]
struct Detour {
    command: Command,
    then: Then,
    until: Instant,
}

/// Positions of one request, and when they are given up once they were refused because their topic moves.
pub(super) type Waiting = (RequestId, Commit, Option<Instant>);

/// Commands that wait for a topic to arrive. As many as there are requests and ranges at most.
#[derive(Debug, Default)]
pub(super) struct Detours {
    commands: VecDeque<Detour>,
    commits: VecDeque<(RequestId, Commit, Instant)>,
}

impl Detours {
    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.commits.is_empty()
    }
}

impl Meta {
    /// The command, when it was refused by a vnode that does not have the topic, while another has it or will.
    pub(super) fn misled(&self, group: VnodeId, command: &Bytes, refusal: Refusal) -> Option<Command> {
        let command = Command::read(command)?;
        self.is_elsewhere(group, topic_of(&command), refusal).then_some(command)
    }

    /// An id that a vnode does not know may be that of a topic it gave away.
    fn is_elsewhere(&self, group: VnodeId, topic: Option<TopicId>, refusal: Refusal) -> bool {
        if matches!(refusal, Refusal::NotOwner | Refusal::Migrating) {
            return true;
        }
        let is_unknown =
            matches!(refusal, Refusal::NoSuchTopic | Refusal::NoSuchRange | Refusal::NoSuchSegment);
        let is_known = |topic: TopicId| self.of(topic).topic(topic).is_some();
        is_unknown && topic.is_some_and(|topic| is_known(topic) && self.home(topic) != Some(group))
    }

    /// Whether a topic is at no vnode that is known here, and yet is.
    pub(super) fn is_underway(&self, topic: TopicId) -> bool {
        self.home(topic).is_none() && self.of(topic).topic(topic).is_some()
    }

    /// A command was refused by the wrong vnode, or there is none to ask yet.
    pub(super) fn detour(&mut self, proposed: Proposed, command: Command) {
        let until = proposed.until.unwrap_or(self.now.plus(PATIENCE));
        self.detours.commands.push_back(Detour { command, then: proposed.then, until });
    }

    /// The same of positions.
    pub(super) fn detour_commit(&mut self, id: RequestId, commit: Commit, until: Option<Instant>) {
        let until = until.unwrap_or(self.now.plus(PATIENCE));
        self.detours.commits.push_back((id, commit, until));
    }

    /// Takes positions to be recorded; behind those of the topic that wait.
    pub(super) fn commit(&mut self, id: RequestId, commit: Commit) {
        let waits = self.detours.commits.iter().any(|(_, other, _)| other.topic == commit.topic);
        if waits || self.is_underway(commit.topic) {
            return self.detour_commit(id, commit, None);
        }
        self.queue_commit((id, commit, None));
    }

    fn queue_commit(&mut self, waiting: Waiting) {
        let vnode = self.home(waiting.1.topic).unwrap_or(VNODE);
        self.commits_of(vnode).commits.push_back(waiting);
    }

    /// Positions were recorded, or some of them at the wrong vnode.
    pub(super) fn commits_applied(
        &mut self,
        group: VnodeId,
        waiting: Vec<(RequestId, Option<Instant>)>,
        command: &Bytes,
        results: Vec<Result<(), Refusal>>,
    ) {
        let refused = results.iter().any(Result::is_err);
        let read = if refused { Command::read(command) } else { None };
        let commits =
            if let Some(Command::CommitPositions { commits }) = read { commits } else { Vec::new() };
        let mut commits = commits.into_iter();
        for ((id, until), result) in waiting.into_iter().zip(results) {
            match (result, commits.next()) {
                (Err(refusal), Some(commit)) if self.is_elsewhere(group, Some(commit.topic), refusal) => {
                    self.detour_commit(id, commit, until);
                }
                (result, _) => {
                    self.decided.push(Decided::Committed { id, result: result.map_err(Error::from) });
                }
            }
        }
        self.commits_of(group).commit_on_its_way = false;
    }

    /// Proposes what can be proposed by now, and refuses what waited for too long.
    pub(super) fn go_on(&mut self) {
        for detour in std::mem::take(&mut self.detours.commands) {
            let Detour { command, then, until } = detour;
            match self.open_home(&command) {
                Some(vnode) => self.propose_until(vnode, &command, then, Some(until)),
                None if until <= self.now => self.fail(then, Error::Migrating),
                None => self.detours.commands.push_back(Detour { command, then, until }),
            }
        }
        let mut held = Vec::new();
        for (id, commit, until) in std::mem::take(&mut self.detours.commits) {
            let is_open = !held.contains(&commit.topic) && self.open_home_of(commit.topic).is_some();
            if is_open {
                self.queue_commit((id, commit, Some(until)));
            } else if until <= self.now {
                self.decided.push(Decided::Committed { id, result: Err(Error::Migrating) });
            } else {
                held.push(commit.topic);
                self.detours.commits.push_back((id, commit, until));
            }
        }
    }

    /// The vnode that takes the command, as far as is known here; `None` while there is none.
    fn open_home(&self, command: &Command) -> Option<VnodeId> {
        if let Command::CreateTopic(create) = command {
            let Ok(name) = TopicName::new(&create.name) else { return Some(VNODE) };
            let home = self.home_of(&name);
            return self.takes(home, &name).then_some(home);
        }
        self.open_home_of(topic_of(command)?)
    }

    /// The same of a topic. One that is nowhere is unknown to whichever is asked.
    fn open_home_of(&self, topic: TopicId) -> Option<VnodeId> {
        let tables = self.of(topic);
        let Some(row) = tables.topic(topic) else { return Some(VNODE) };
        let home = self.home(topic)?;
        (self.takes(home, &row.name) && tables.migration_of(topic).is_none()).then_some(home)
    }

    fn takes(&self, vnode: VnodeId, name: &TopicName) -> bool {
        let tables: &Vnode = self.tables_of(vnode);
        tables.arc() == Share::Whole || self.covers(vnode, place_of(name))
    }
}

/// The topic a command is about, by its id; `None` for one that is about a name or a vnode.
fn topic_of(command: &Command) -> Option<TopicId> {
    match command {
        Command::SealTopic { topic }
        | Command::DeleteTopic { topic }
        | Command::BindTopicPolicy { topic, .. } => Some(*topic),
        Command::SplitRange { range }
        | Command::MergeRanges { a: range, .. }
        | Command::SplitByLoad { range }
        | Command::MergeByLoad { a: range, .. } => Some(range.topic),
        Command::RegisterSegment(register) => Some(register.segment.range.topic),
        Command::SealSegment(seal) => Some(seal.segment.range.topic),
        Command::SetSegmentReplicas(set) => Some(set.segment.range.topic),
        Command::DeleteSegment { segment } => Some(segment.range.topic),
        Command::ExpireGroup(expire) => Some(expire.topic),
        Command::CreateTopic(_)
        | Command::CommitPositions { .. }
        | Command::BeginMigration(_)
        | Command::EndMigration(_)
        | Command::ExtractTopic(_)
        | Command::InsertTopic { .. }
        | Command::SetArc(_)
        | Command::Upgrade { .. } => None,
    }
}
