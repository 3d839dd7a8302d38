//! Consumers that read as groups, on any node: members that come, go, fall silent, crash and come back under their name
//! or another, and groups of one without members, while ranges split and merge and nodes die.
//!
//! Owns the consumers and what each does next; what a group may be given is [`judge`]'s, what must be in the end
//! [`heal`]'s. Everything is drawn from a stream of its own.

mod heal;
mod judge;

use std::collections::{BTreeMap, BTreeSet};

use broker::{
    Admin, Commit, ConnectionId, Event, Fetch, Fetched, Form, GroupInfo, Membership, Reply, Request,
    RequestId,
};
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::NodeId;
use types::cursor::Cursor;
use wire::Reason;
use wire::reason::Effect;

use self::judge::{Group, Page, View};
use super::consume::decoded;
use super::{Asked, bytes};
use crate::cluster::world::{Happening, World};
use crate::invariants::{Violation, ensure};

/// What a consumer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Page,
    Commit,
    Leave,
    Describe,
}

/// Somebody who reads as a group.
#[derive(Clone, Debug)]
struct Consumer {
    group: usize,
    /// Its name; nobody's when it is its group alone.
    member: Option<String>,
    node: Option<NodeId>,
    connection: u64,
    waits: bool,
    /// What it was given last and has not committed.
    page: Option<Page>,
    /// The last cursor that was stored.
    stored: Option<Bytes>,
    asleep_until: u64,
    /// It left for good.
    is_gone: bool,
    last: String,
}

/// See the module.
pub(super) struct Groups {
    rng: SmallRng,
    groups: Vec<Group>,
    consumers: Vec<Consumer>,
    /// What was told of each group by each node last, and when that was asked.
    told: BTreeMap<(usize, NodeId), (u64, GroupInfo)>,
    /// Asked on connections that are closed since: an answer may still come, to nobody.
    forsaken: BTreeSet<(NodeId, RequestId)>,
    /// Members are to leave.
    is_ending: bool,
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            rng: SmallRng::seed_from_u64(0),
            groups: Vec::new(),
            consumers: Vec::new(),
            told: BTreeMap::new(),
            forsaken: BTreeSet::new(),
            is_ending: false,
        }
    }
}

impl Groups {
    /// Groups on some of so many topics.
    pub(super) fn new(seed: u64, topics: usize) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x6772_6f75_7073_0000);
        let (mut groups, mut consumers) = (Vec::new(), Vec::new());
        for at in 0..rng.random_range(2..5) {
            let group = groups.len();
            groups.push(Group::new(rng.random_range(0..topics), format!("g{at}")));
            let members = [0, 0, 1, 2, 3, 5][rng.random_range(0..6)];
            let names = (0..members).map(|at| Some(format!("m{at}")));
            let names: Vec<Option<String>> = if members == 0 { vec![None] } else { names.collect() };
            for member in names {
                consumers.push(Consumer {
                    group,
                    member,
                    node: None,
                    connection: 0,
                    waits: false,
                    page: None,
                    stored: None,
                    asleep_until: 0,
                    is_gone: false,
                    last: String::new(),
                });
            }
        }
        Self { rng, groups, consumers, ..Self::default() }
    }

    /// Whether there are any.
    pub(super) fn is_on(&self) -> bool {
        !self.groups.is_empty()
    }
}

impl World {
    /// Consumers begin, in a run with groups.
    pub(super) fn begin_groups(&mut self) {
        if self.records.groups.is_on() {
            self.later(2_000_000, Happening::Consume);
        }
    }

    /// A consumer does something, and one does a little later.
    pub(in crate::cluster) fn handle_groups(&mut self) -> Result<(), Violation> {
        let pause = if self.records.groups.rng.random_bool(0.02) { 500_000 } else { 30_000 };
        let pause = self.records.groups.rng.random_range(500..pause);
        self.later(pause, Happening::Consume);
        if self.records.is_closed {
            return Ok(());
        }
        let groups = &mut self.records.groups;
        let at = groups.rng.random_range(0..groups.consumers.len());
        let consumer = &groups.consumers[at];
        let (is_member, is_over) = (consumer.member.is_some(), self.records.is_over);
        if consumer.is_gone && groups.is_ending {
            return self.ask_as(at, What::Describe);
        }
        if !consumer.waits && is_member && groups.is_ending {
            return self.ask_as(at, What::Leave);
        }
        if consumer.waits {
            if is_member && !is_over && groups.rng.random_bool(0.02) {
                return self.consumer_crashes(at);
            }
            return Ok(());
        }
        if self.now < consumer.asleep_until && !is_over {
            return Ok(());
        }
        let roll = groups.rng.random_range(0..100);
        match (consumer.page.is_some(), roll) {
            (true, _) if is_over || !is_member => self.ask_as(at, What::Commit),
            (true, 0..88) => self.ask_as(at, What::Commit),
            // It goes on without having committed.
            (true, 88..92) => {
                self.records.groups.consumers[at].page = None;
                Ok(())
            }
            (_, 92..95) if !is_over => {
                self.consumer_sleeps(at);
                Ok(())
            }
            (true, 95..97) => self.consumer_crashes(at),
            (true, _) => self.ask_as(at, What::Commit),
            (false, 95..97) if is_member && !is_over => self.ask_as(at, What::Leave),
            (false, 90..100) => self.ask_as(at, What::Describe),
            (false, 50..90) if is_over => self.ask_as(at, What::Describe),
            (false, _) => self.ask_as(at, What::Page),
        }
    }

    fn consumer_sleeps(&mut self, at: usize) {
        let groups = &mut self.records.groups;
        let most = [500_000, 3_000_000, 20_000_000, 50_000_000][groups.rng.random_range(0..4)];
        let until = self.now + groups.rng.random_range(0..most);
        groups.consumers[at].asleep_until = until;
        self.say(|| format!("consumer {at} is silent until {until}"));
    }

    /// A consumer's process ends, and it comes back, as itself or under another name.
    fn consumer_crashes(&mut self, at: usize) -> Result<(), Violation> {
        let is_waiting = |asked: &Asked| matches!(asked, Asked::Group { consumer, .. } if *consumer == at);
        let waiting = self.records.waiting.iter().find(|(_, waiting)| is_waiting(&waiting.asked));
        let waiting = waiting.map(|(key, waiting)| (*key, waiting.asked));
        let number = self.number();
        let now = self.now;
        let groups = &mut self.records.groups;
        let is_other = groups.rng.random_bool(0.4);
        let consumer = &mut groups.consumers[at];
        (consumer.page, consumer.node) = (None, None);
        consumer.connection += 1;
        if is_other && consumer.member.is_some() {
            consumer.member = Some(format!("m{number}"));
        }
        self.say(|| format!("consumer {at} crashes"));
        let Some(((id, request), asked)) = waiting else { return Ok(()) };
        self.records.waiting.remove(&(id, request));
        let groups = &mut self.records.groups;
        groups.consumers[at].waits = false;
        groups.forsaken.insert((id, request));
        if matches!(asked, Asked::Group { what: What::Commit, .. }) {
            let group = groups.consumers[at].group;
            groups.groups[group].doubt(now);
        }
        self.step(id, Event::Gone(request.connection))
    }

    /// A consumer asks a node, the one it asked last as often as not.
    fn ask_as(&mut self, at: usize, what: What) -> Result<(), Violation> {
        let stays = self.records.groups.rng.random_bool(0.8);
        let node = self.records.groups.consumers[at].node.filter(|_| stays && what != What::Describe);
        let now = self.now;
        let serves = |node: &&crate::cluster::node::Node| {
            node.paused_until <= now && node.process.as_ref().is_some_and(|process| process.ready)
        };
        let stays = node.filter(|id| self.nodes.get(id).as_ref().is_some_and(serves));
        let ids: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| serves(node)).map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let groups = &mut self.records.groups;
        let id = stays.unwrap_or_else(|| ids[groups.rng.random_range(0..ids.len())]);
        // At the end every node has to say it: whoever did longest ago is asked.
        let group = groups.consumers[at].group;
        let said_at = |id: &NodeId| groups.told.get(&(group, *id)).map(|(asked, _)| *asked);
        let oldest = ids.iter().copied().min_by_key(said_at);
        let id = oldest.filter(|_| what == What::Describe && self.records.is_over).unwrap_or(id);
        let max = [1, 7, 100, 100][groups.rng.random_range(0..4)];
        let wait_ms = [0, 0, 300, 3000][groups.rng.random_range(0..4)];
        let consumer = &mut groups.consumers[at];
        let group = &groups.groups[consumer.group];
        let topic = Some(bytes(&self.records.topics[group.topic]));
        let name = Some(bytes(&group.name));
        let member = consumer.member.as_deref().map(bytes);
        let (request, wait_ms) = match what {
            What::Page => {
                let form = Form::Records;
                let fetch = Fetch { topic, cursor: None, group: name, member, max, wait_ms, form };
                (Request::Fetch(fetch), wait_ms)
            }
            What::Commit => {
                let cursor = consumer.page.as_ref().map(|page| page.cursor.clone());
                (Request::Commit(Commit { topic, group: name, cursor }), 0)
            }
            What::Leave => (Request::LeaveGroup(Membership { topic, group: name, member }), 0),
            What::Describe => (Request::Admin(Admin::DescribeGroup { topic, group: name }), 0),
        };
        if what != What::Describe {
            consumer.node = Some(id);
        }
        consumer.waits = true;
        self.ask_for(id, Asked::Group { consumer: at, what }, wait_ms, request)
    }

    pub(super) fn consumer_connection(&self, at: usize) -> ConnectionId {
        let at = u64::try_from(at).unwrap_or(u64::MAX);
        let connection = self.records.groups.consumers.iter().map(|consumer| consumer.connection);
        let crashes: u64 = connection.sum();
        ConnectionId(1_000_000 + crashes * 1000 + at)
    }

    /// Whether an answer is to whoever has gone meanwhile.
    pub(super) fn is_forsaken(&mut self, id: NodeId, request: RequestId) -> bool {
        self.records.groups.forsaken.remove(&(id, request))
    }

    fn view(&self, id: NodeId) -> View {
        let node = &self.nodes[&id];
        View {
            node: id,
            life: node.life,
            began: node.process.as_ref().map_or(0, |process| process.began),
            now: self.now,
            is_calm: self.records.is_over,
        }
    }

    /// A node answers a consumer.
    pub(super) fn consumer_heard(
        &mut self,
        id: NodeId,
        at: usize,
        (what, asked_at): (What, u64),
        reply: &Reply,
    ) -> Result<(), Violation> {
        self.say(|| format!("node {id} answers consumer {at}, {what:?}: {}", super::consume::brief(reply)));
        let now = self.now;
        let view = self.view(id);
        let groups = &mut self.records.groups;
        let consumer = &mut groups.consumers[at];
        consumer.waits = false;
        consumer.last = format!("node {id}, {what:?}: {}", super::consume::brief(reply));
        let group = &mut groups.groups[consumer.group];
        match (what, reply) {
            (What::Page, Reply::Fetched(fetched)) => self.consumer_given(at, fetched, view),
            (What::Commit, Reply::Committed) => {
                if let Some(page) = consumer.page.take() {
                    group.committed(&page, view);
                    consumer.stored = Some(page.cursor);
                }
                self.summary.commits += 1;
                Ok(())
            }
            (What::Leave, Reply::Left) => {
                consumer.is_gone = groups.is_ending;
                self.summary.left += 1;
                Ok(())
            }
            (What::Describe, Reply::Group(info)) => {
                if info.generation > 0 {
                    group.saw(info.generation);
                }
                groups.told.insert((consumer.group, id), (asked_at, info.clone()));
                Ok(())
            }
            (_, Reply::Failed(reason)) => {
                let is_wrong = matches!(
                    reason,
                    Reason::InternalError
                        | Reason::PermissionDenied
                        | Reason::InvalidCursor
                        | Reason::InvalidGroup
                        | Reason::TooManyGroups
                ) || (what == What::Commit && *reason == Reason::NoSuchTopic);
                ensure(!is_wrong, "READS", || {
                    format!("node {id} answers a good consumer's {what:?} with {reason:?}")
                })?;
                if what == What::Commit && reason.effect() == Effect::Unknown {
                    group.doubt(now);
                }
                self.summary.consumers_failed += 1;
                Ok(())
            }
            (_, other) => Err(Violation::new(
                "ANSWER",
                format!("node {id} answers a consumer's {what:?} with {other:?}"),
            )),
        }
    }

    /// A consumer is given a page.
    fn consumer_given(&mut self, at: usize, fetched: &Fetched, view: View) -> Result<(), Violation> {
        let cursor = Cursor::decode(&fetched.cursor);
        let cursor =
            cursor.map_err(|_| Violation::new("CODEC", format!("consumer {at} is given no cursor")))?;
        let mut records = Vec::new();
        for run in &fetched.runs {
            records.extend(decoded(&run.records)?);
        }
        let is_counted = u32::try_from(records.len()) == Ok(fetched.count);
        ensure(is_counted, "ANSWER", || {
            format!("{} records come, counted {}", records.len(), fetched.count)
        })?;
        if cursor.is_unborn() {
            return ensure(records.is_empty(), "ANSWER", || "records of no topic".to_owned());
        }
        let groups = &mut self.records.groups;
        let consumer = &mut groups.consumers[at];
        let stamp = cursor.member.as_ref().map(|member| member.member.as_bytes());
        ensure(stamp == consumer.member.as_ref().map(String::as_bytes), "MEMBERS", || {
            format!("consumer {at}, {:?}, gets a cursor of {:?}", consumer.member, cursor.member)
        })?;
        let group = &mut groups.groups[consumer.group];
        let who = format!("consumer {at} ({} {:?}) on node {}", group.name, consumer.member, view.node);
        let before = group.again;
        let names = group.given(&mut self.records.model, &who, &cursor, &records, view)?;
        self.summary.given += u64::from(fetched.count);
        self.summary.given_again += group.again - before;
        // A page of nothing moves the group past what is not for it.
        let is_new = consumer.stored.as_ref() != Some(&fetched.cursor);
        let is_worth = !names.is_empty() || (is_new && (self.records.is_over || groups.rng.random_bool(0.3)));
        let generation = cursor.member.map_or(0, |member| member.generation.0);
        consumer.page = is_worth.then(|| Page { cursor: fetched.cursor.clone(), generation, names });
        Ok(())
    }

    /// Nobody will answer a consumer.
    pub(super) fn consumer_unheard(&mut self, at: usize, what: What) {
        let groups = &mut self.records.groups;
        groups.consumers[at].waits = false;
        if what == What::Commit {
            let group = groups.consumers[at].group;
            groups.groups[group].doubt(self.now);
        }
    }
}
