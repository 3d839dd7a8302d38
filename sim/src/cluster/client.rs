//! What clients ask of any node, and what they make of the answers.

use std::collections::BTreeMap;

use broker::witness::CLUSTER_GROUP;
use broker::{
    Admin, Commit, ConnectionId, Event, Fetch, Form, Login, OfCluster, Permissions, Produce, RangeState,
    Reply, Request, RequestId, Users,
};
use bytes::{Bytes, BytesMut};
use rand::Rng;
use types::record::Record;
use types::{NodeId, RaftIndex, TopicName, VnodeId};
use wire::Reason;

use super::model::{ADDRESS, Told};
use super::node::ADMIN;
use super::records;
use super::world::{Happening, World};
use crate::invariants::{Violation, ensure};

/// How long a process that runs may take to answer, microseconds.
const PATIENCE: u64 = 60_000_000;

/// What is asked.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Create(String),
    Seal(String),
    Delete(String),
    Split(String),
    Merge(String),
    /// A cursor is asked for, to be committed for that group.
    Seek(String, String),
    Commit(String, String),
    CreateUser(String),
    DeleteUser(String),
    /// A login that failed is counted.
    Fail(String),
    List,
    Describe(String),
    /// Another number of vnodes is wished for.
    Reshard(u32),
    Produce(String),
    Fetch(String),
}

#[derive(Debug)]
struct Waiting {
    op: Op,
    at: u64,
}

/// Who waits for what.
#[derive(Debug, Default)]
pub(super) struct Clients {
    waiting: BTreeMap<(NodeId, RequestId), Waiting>,
    /// What the last describe of each topic listed: ranges that may be split, and pairs that may be merged.
    ranges: BTreeMap<String, Vec<u64>>,
}

impl Clients {
    /// Whether nobody waits.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn shown(&self) -> String {
        format!("{:?}", self.waiting)
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

impl World {
    /// Somebody asks for something, and the next one comes a little later.
    pub(super) fn ask(&mut self) -> Result<(), Violation> {
        if self.healing || self.is_story {
            return Ok(());
        }
        let pause = if self.rng.random_bool(0.04) { 2_500_000 } else { 90_000 };
        let pause = self.rng.random_range(1000..pause);
        self.later(pause, Happening::Ask);
        self.nobody_waits_long()?;
        let ids: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| node.process.is_some()).map(|(id, _)| *id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let id = ids[self.rng.random_range(0..ids.len())];
        let is_ready = self.process(id).ready;
        if (!is_ready && self.rng.random_bool(0.9)) || self.now < self.nodes[&id].paused_until {
            return Ok(());
        }
        let op = self.sample();
        self.request(id, op)
    }

    fn sample(&mut self) -> Op {
        let number = self.number();
        let topics = self.model.topics.keys().filter(|topic| !records::is_kept(topic));
        let topics: Vec<String> = topics.cloned().collect();
        let users: Vec<String> = self.model.users.keys().cloned().collect();
        let topic = (!topics.is_empty()).then(|| topics[self.rng.random_range(0..topics.len())].clone());
        let user = (!users.is_empty()).then(|| users[self.rng.random_range(0..users.len())].clone());
        let roll = self.rng.random_range(0..100);
        let (Some(topic), Some(user)) = (topic, user) else {
            return if roll < 50 {
                Op::Create(format!("t{number}"))
            } else {
                Op::CreateUser(format!("u{number}"))
            };
        };
        if self.rng.random_bool(0.03) {
            return Op::Reshard(0);
        }
        match roll {
            0..10 => Op::Create(format!("t{number}")),
            10..12 => Op::Create(topic),
            12..14 => Op::Seal(topic),
            14..18 => Op::Delete(topic),
            18..30 => Op::Split(topic),
            30..36 => Op::Merge(topic),
            36..48 => Op::Seek(topic, format!("g{number}")),
            48..54 => Op::CreateUser(format!("u{number}")),
            54..56 => Op::DeleteUser(user),
            56..70 => Op::Fail(user),
            70..76 => Op::List,
            76..88 => Op::Describe(topic),
            88..96 => Op::Produce(topic),
            _ => Op::Fetch(topic),
        }
    }

    /// Asks a node.
    pub(super) fn request(&mut self, id: NodeId, op: Op) -> Result<(), Violation> {
        let request = match &op {
            Op::Create(topic) => {
                let known = self.model.topic(topic);
                if known.is_doomed {
                    return Ok(());
                }
                known.asked += 1;
                Request::CreateTopic { topic: Some(bytes(topic)), keyspace_bits: 16 }
            }
            Op::Seal(topic) => Request::Admin(Admin::SealTopic { topic: Some(bytes(topic)) }),
            Op::Delete(topic) => {
                // One that may be made a second time is not removed.
                let known = self.model.topic(topic);
                if known.asked > 1 {
                    return Ok(());
                }
                known.is_doomed = true;
                Request::Admin(Admin::DeleteTopic { topic: Some(bytes(topic)) })
            }
            Op::Split(topic) => {
                let Some(range) = self.some_range(topic) else {
                    return self.request(id, Op::Describe(topic.clone()));
                };
                Request::Admin(Admin::SplitRange { topic: Some(bytes(topic)), range })
            }
            Op::Merge(topic) => {
                let (Some(a), Some(b)) = (self.some_range(topic), self.some_range(topic)) else {
                    return self.request(id, Op::Describe(topic.clone()));
                };
                Request::Admin(Admin::MergeRanges { topic: Some(bytes(topic)), a, b })
            }
            Op::Seek(topic, _) => Request::Admin(Admin::SeekTime { topic: Some(bytes(topic)), at_ms: 0 }),
            Op::Commit(..) => return Ok(()),
            Op::CreateUser(name) => {
                let permissions = Permissions { admin: false, produce: true, consume: false };
                Request::Users(Users::Create { username: bytes(name), hash: "$test$".into(), permissions })
            }
            Op::DeleteUser(name) => Request::Users(Users::Delete { username: bytes(name) }),
            Op::Fail(name) => {
                let login = Login::Failed { username: bytes(name), address: ADDRESS.into() };
                let request = self.await_answer(id, op);
                return self.step(id, Event::Login { id: request, login });
            }
            Op::List => Request::Admin(Admin::ListTopics { prefix: None, after: None, max: 1000 }),
            Op::Describe(topic) => {
                Request::Admin(Admin::DescribeTopic { topic: Some(bytes(topic)), from_range: 0, max: 1000 })
            }
            Op::Reshard(0) => return self.wish_for_vnodes(),
            Op::Reshard(to) => Request::Cluster(OfCluster::Reshard { to: *to, dry_run: false }),
            Op::Produce(topic) => Request::Produce(one_record(topic)),
            Op::Fetch(topic) => Request::Fetch(Fetch {
                topic: Some(bytes(topic)),
                cursor: None,
                group: None,
                member: None,
                max: 10,
                wait_ms: 0,
                form: Form::Records,
            }),
        };
        self.ask_node(id, op, request)
    }

    fn some_range(&mut self, topic: &str) -> Option<u64> {
        let ranges = self.clients.ranges.get(topic).filter(|ranges| !ranges.is_empty())?;
        Some(ranges[self.rng.random_range(0..ranges.len())])
    }

    fn await_answer(&mut self, id: NodeId, op: Op) -> RequestId {
        let number = self.number();
        let request = RequestId { connection: ConnectionId(number % 5), number };
        self.say(|| format!("client asks node {id}: {op:?}"));
        self.clients.waiting.insert((id, request), Waiting { op, at: self.now });
        request
    }

    fn ask_node(&mut self, id: NodeId, op: Op, request: Request) -> Result<(), Violation> {
        let number = self.await_answer(id, op);
        let session = self.process(id).node.session(ADMIN);
        self.step(id, Event::Request { id: number, session, request })
    }

    /// A node answers.
    pub(super) fn replied(&mut self, id: NodeId, request: RequestId, reply: Reply) -> Result<(), Violation> {
        if let Some(heard) = self.hear_records(id, request, &reply) {
            return heard;
        }
        let Some(Waiting { op, .. }) = self.clients.waiting.remove(&(id, request)) else {
            return Err(Violation::new("INV-5", format!("node {id} answers {request:?} again: {reply:?}")));
        };
        self.note(request.number);
        self.say(|| format!("node {id} answers {op:?}: {reply:?}"));
        let told = match &reply {
            Reply::Failed(reason) => self.failed(id, &op, *reason)?,
            _ => Told::Done,
        };
        self.tell(&op, told);
        if told == Told::Done {
            self.done(id, &op, reply)?;
        }
        Ok(())
    }

    /// What a failure says about whether something was done.
    fn failed(&self, id: NodeId, op: &Op, reason: Reason) -> Result<Told, Violation> {
        let wrong = |what: &str| {
            Err(Violation::new("OUTCOME", format!("node {id} answers {op:?} with {reason:?}: {what}")))
        };
        match (op, reason) {
            (Op::Create(topic), Reason::AlreadyExists) => {
                let known = &self.model.topics[topic];
                if known.asked < 2 { wrong("it was asked for once") } else { Ok(Told::Refused) }
            }
            (Op::CreateUser(_), Reason::UserExists) => wrong("it was asked for once"),
            // Nothing of these is recorded.
            (
                Op::Create(_) | Op::Seal(_) | Op::Delete(_) | Op::Split(_) | Op::Merge(_) | Op::Commit(..),
                Reason::Unavailable,
            ) => Ok(Told::Refused),
            (Op::Split(_) | Op::Merge(_), Reason::Sealed) => Ok(Told::Refused),
            (_, Reason::InternalError) => wrong("nothing of that kind happened"),
            _ => match reason.effect() {
                wire::reason::Effect::None => Ok(Told::Refused),
                wire::reason::Effect::Unknown => Ok(Told::Unknown),
            },
        }
    }

    fn tell(&mut self, op: &Op, told: Told) {
        let is_change = match op {
            Op::Create(topic) => {
                self.model.topic(topic).created.note(told);
                true
            }
            Op::Seal(topic) => {
                self.model.topic(topic).sealed.note(told);
                true
            }
            Op::Delete(topic) => {
                self.model.topic(topic).deleted.note(told);
                true
            }
            Op::Split(topic) => {
                self.model.topic(topic).splits.note(told);
                true
            }
            Op::Merge(topic) => {
                self.model.topic(topic).merges.note(told);
                true
            }
            Op::Commit(topic, group) => {
                self.model.topic(topic).groups.entry(group.clone()).or_default().note(told);
                true
            }
            Op::CreateUser(name) => {
                self.model.user(name).created.note(told);
                true
            }
            Op::DeleteUser(name) => {
                self.model.user(name).deleted.note(told);
                true
            }
            Op::Fail(name) => {
                self.model.user(name).failures.note(told);
                true
            }
            Op::Seek(..) | Op::Reshard(_) | Op::List | Op::Describe(_) | Op::Produce(_) | Op::Fetch(_) => {
                false
            }
        };
        match told {
            _ if !is_change => self.summary.reads += u64::from(told == Told::Done),
            Told::Done => self.summary.acknowledged += 1,
            Told::Unknown => self.summary.unknown += 1,
            Told::Refused => self.summary.refused += 1,
        }
    }

    /// Something was done, or read.
    fn done(&mut self, id: NodeId, op: &Op, reply: Reply) -> Result<(), Violation> {
        match (op, reply) {
            (Op::Create(topic), Reply::Created) => {
                let home = self.home(id, topic);
                let is_there = home.is_some() || self.model.topic(topic).is_doomed;
                ensure(is_there, "READS", || format!("node {id} made {topic} and does not have it"))?;
                self.acknowledge(home);
            }
            (Op::Seal(topic) | Op::Delete(topic), Reply::Done) | (Op::Commit(topic, _), Reply::Committed) => {
                let home = self.home(id, topic);
                self.acknowledge(home);
            }
            (Op::Split(topic), Reply::Split { left, right }) => {
                self.model.is_born(topic, left)?;
                self.model.is_born(topic, right)?;
                let home = self.home(id, topic);
                self.acknowledge(home);
            }
            (Op::Merge(topic), Reply::Merged { child }) => {
                self.model.is_born(topic, child)?;
                let home = self.home(id, topic);
                self.acknowledge(home);
            }
            (Op::CreateUser(_) | Op::DeleteUser(_) | Op::Fail(_), Reply::Done) => {
                let applied = self.applied(id, CLUSTER_GROUP).unwrap_or_default();
                self.views.acknowledge(CLUSTER_GROUP, applied);
            }
            (Op::Seek(topic, group), Reply::Sought(cursor)) => {
                let commit =
                    Commit { topic: Some(bytes(topic)), group: Some(bytes(group)), cursor: Some(cursor) };
                return self.ask_node(id, Op::Commit(topic.clone(), group.clone()), Request::Commit(commit));
            }
            (Op::List, Reply::Topics(topics, _)) => {
                let sorted = topics.windows(2).all(|pair| pair[0].name < pair[1].name);
                ensure(sorted, "C-3", || format!("node {id} lists a topic twice: {topics:?}"))?;
            }
            (Op::Describe(topic), Reply::Topic(_, ranges, _)) => {
                let active = ranges.iter().filter(|range| range.state == RangeState::Active);
                self.clients.ranges.insert(topic.clone(), active.map(|range| range.range).collect());
            }
            (Op::Reshard(_), Reply::Resharding(_))
            | (Op::Produce(_), Reply::Stored(1))
            | (Op::Fetch(_), Reply::Fetched(_)) => {}
            (op, reply) => {
                return Err(Violation::new("ANSWER", format!("node {id} answers {op:?} with {reply:?}")));
            }
        }
        Ok(())
    }

    /// The vnode that has a topic as a node sees it, and how far that vnode is there.
    fn home(&self, id: NodeId, topic: &str) -> Option<(VnodeId, RaftIndex)> {
        let name = TopicName::new(topic.as_bytes()).ok()?;
        let node = &self.nodes[&id].process.as_ref()?.node;
        let vnodes = self.groups_of(id).into_iter().filter(|group| *group != CLUSTER_GROUP);
        let has = |vnode: &VnodeId| {
            node.vnode_tables(*vnode).is_some_and(|tables| tables.topic_by_name(&name).is_some())
        };
        let vnode = vnodes.into_iter().find(has)?;
        Some((vnode, node.vnode_tables(vnode)?.applied()))
    }

    fn acknowledge(&mut self, home: Option<(VnodeId, RaftIndex)>) {
        if let Some((vnode, applied)) = home {
            self.views.acknowledge(vnode, applied);
        }
    }

    /// A process is gone: nobody will hear what became of what it was asked.
    pub(super) fn nobody_hears(&mut self, id: NodeId) {
        self.hear_no_records(id);
        let lost: Vec<_> = self.clients.waiting.keys().filter(|(node, _)| *node == id).copied().collect();
        for key in lost {
            if let Some(waiting) = self.clients.waiting.remove(&key) {
                self.tell(&waiting.op, Told::Unknown);
            }
        }
    }

    /// Nobody waits for ever, except for a process that stands still.
    fn nobody_waits_long(&self) -> Result<(), Violation> {
        for ((id, request), waiting) in &self.clients.waiting {
            let since = waiting.at.max(self.nodes.get(id).map_or(0, |node| node.paused_until));
            ensure(since + PATIENCE > self.now, "INV-5", || {
                format!("node {id} does not answer {request:?}: {waiting:?}")
            })?;
        }
        Ok(())
    }
}

fn one_record(topic: &str) -> Produce {
    let mut records = BytesMut::new();
    let value = Bytes::from_static(b"value");
    Record { key: None, value, timestamp: 0, headers: Vec::new() }.encode(&mut records);
    let records = records.freeze();
    let crc = crc32fast::hash(&records);
    Produce { topic: Some(bytes(topic)), records, count: 1, crc, stamp: None }
}
