//! What clients do, one file for each operation: sample, send, judge the answer, predict the effect.

pub(super) mod ack;
pub(super) mod change;
pub(super) mod commit;
pub(super) mod create_topic;
pub(super) mod describe;
pub(super) mod end_topic;
pub(super) mod fetch;
pub(super) mod garbage;
pub(super) mod groups;
pub(super) mod list_topics;
pub(super) mod page;
pub(super) mod produce;
pub(super) mod seek;
pub(super) mod subscribe;

use std::fmt;

use broker::Operation;
use bytes::Bytes;
use rand::Rng;
use wire::{Request, Response};

use super::client::Role;
use super::model::{CallId, Change, Model};
use super::network::ConnId;
use super::world::World;
use crate::invariants::Violation;

/// Topics clients know of.
pub(super) const TOPICS: [&str; 3] = ["a", "orders.v1", "b_-"];
/// Names no topic has: never created, or not allowed.
const STRANGERS: [Option<&[u8]>; 6] =
    [Some(b"nobody"), None, Some(b""), Some(b".."), Some(b"a/b"), Some(b"\xff\0")];
/// Groups clients use.
const GROUPS: [&[u8]; 3] = [b"g", b"", b"workers\0"];

/// One request and what became of it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) client: usize,
    pub(super) conn: ConnId,
    /// `None` for bytes that are no request.
    pub(super) request: Option<Request>,
    pub(super) op: Op,
    /// Index of its topic's name, when it names one of ours.
    pub(super) name: Option<usize>,
    /// The life of the topic that there was when it reached the node.
    pub(super) topic: Option<usize>,
    /// A fetch may wait until then.
    pub(super) deadline: u64,
    /// What the node said; taken when the client has heard it.
    pub(super) answer: Option<Response>,
    /// The client has its answer, or knows that there will be none.
    pub(super) delivered: bool,
}

/// What a call is for.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Create {
        bits: u8,
    },
    End(end_topic::End),
    Change(Change),
    Produce(produce::Produce),
    Fetch(Box<fetch::Fetch>),
    Commit(commit::Commit),
    Leave(groups::Leave),
    Subscribe(subscribe::Subscribe),
    Ack(ack::Ack),
    Seek(seek::Seek),
    List(list_topics::List),
    Describe(describe::Describe),
    Groups(groups::List),
    Group(Option<Bytes>),
    /// A read by a made-up cursor, judged by whoever sent it.
    Raw,
    Garbage,
}

impl Call {
    pub(super) fn is_fetch(&self) -> bool {
        matches!(self.op, Op::Fetch(_) | Op::Raw)
    }

    /// Whether it may be unanswered although nothing is on its way.
    pub(super) fn may_wait(&self, now: u64) -> bool {
        self.is_fetch() && now <= self.deadline
    }

    /// Whether it reads as a member that has left, and so must not wait.
    pub(super) fn outlives_its_member(&self, model: &Model) -> bool {
        let (Op::Fetch(fetch), Some(topic)) = (&self.op, self.topic) else { return false };
        let topic = &model.topics[topic];
        let (Some(group), Some(member)) = (&fetch.group, &fetch.member) else { return false };
        !topic.deleted && topic.groups.get(group).is_some_and(|group| group.members.has_left(member))
    }

    /// Whether it waits for records that are there.
    pub(super) fn could_be_answered(&self, model: &Model, now: u64) -> bool {
        let (Op::Fetch(fetch), Some(topic)) = (&self.op, self.topic) else { return false };
        let topic = &model.topics[topic];
        let all_are_its = match (&fetch.group, &fetch.member) {
            (Some(group), Some(member)) => {
                topic.groups.get(group).is_some_and(|group| group.members.is_alone(member, now))
            }
            (_, _) => true,
        };
        !topic.deleted && all_are_its && topic.log.has_more(&fetch.start)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topic = self.name.map_or("?", |name| TOPICS[name]);
        write!(f, "[client {} on {}] {topic}: ", self.client, self.conn.0)?;
        match &self.op {
            Op::Create { bits } => write!(f, "create of {bits} bits"),
            Op::Produce(op) => write!(f, "produce {} records", op.count),
            Op::Fetch(op) => op.fmt(f),
            Op::Commit(op) => op.fmt(f),
            Op::Ack(op) => op.fmt(f),
            other => write!(f, "{other:?}"),
        }
    }
}

impl World {
    /// A connected client does something.
    pub(super) fn act(&mut self, client: usize, conn: ConnId) {
        if self.rng.random_bool(0.01) {
            return self.leave_connection(conn);
        }
        let Some(open) = self.conns.get(&conn) else { return };
        if open.subscribed.is_some() {
            ack::send(self, client, conn);
            return self.send_up(conn);
        }
        let room = self.clients[client].ahead.saturating_sub(open.undelivered);
        if room == 0 {
            return;
        }
        for _ in 0..self.rng.random_range(1..=room.min(6)) {
            self.choose(client, conn);
        }
        self.send_up(conn);
    }

    fn choose(&mut self, client: usize, conn: ConnId) {
        if let Some((name, group, cursor)) = self.clients[client].commits.pop_front() {
            return commit::send_of(self, client, conn, Some(name), Some(group), Some(cursor));
        }
        if self.conns.get(&conn).is_some_and(|conn| conn.subscribed.is_some()) {
            return;
        }
        let name = self.some_topic();
        let unborn = name.is_some_and(|name| self.model.names[name].current.is_none());
        if unborn && self.rng.random_bool(0.5) && self.clients[client].may(Operation::Produce) {
            return create_topic::send(self, client, conn, name);
        }
        match self.clients[client].role {
            Role::Worker if self.rng.random_bool(0.8) => {
                fetch::send_as_group(self, client, conn, name, false)
            }
            Role::Member if self.rng.random_bool(0.8) => {
                if self.rng.random_bool(0.02) {
                    groups::send_leave(self, client, conn, name);
                } else {
                    fetch::send_as_group(self, client, conn, name, true);
                }
            }
            Role::Subscriber if self.rng.random_bool(0.8) => {
                if self.conns.get(&conn).is_some_and(|conn| conn.undelivered == 0) {
                    subscribe::send(self, client, conn, name);
                }
            }
            Role::Operator if self.rng.random_bool(0.6) => self.operate(client, conn, name),
            _ => self.do_anything(client, conn, name),
        }
    }

    /// What operators do.
    fn operate(&mut self, client: usize, conn: ConnId, name: Option<usize>) {
        match self.rng.random_range(0..100) {
            0..=64 => change::send(self, client, conn, name),
            65..=70 => end_topic::send(self, client, conn, name),
            71..=80 => describe::send(self, client, conn, name),
            81..=86 => list_topics::send(self, client, conn),
            87..=93 => groups::send_describe(self, client, conn, name),
            _ => groups::send_list(self, client, conn, name),
        }
    }

    fn do_anything(&mut self, client: usize, conn: ConnId, name: Option<usize>) {
        let [mut produce, mut fetch, mut commit] = self.clients[client].taste;
        // Whoever may not mostly knows it.
        if self.rng.random_bool(0.95) {
            let who = &self.clients[client];
            if !who.may(Operation::Produce) {
                (produce, fetch, commit) = (0, fetch + produce, commit + 5);
            } else if !who.may(Operation::Consume) {
                (produce, fetch, commit) = (95, 0, 0);
            }
        }
        match self.rng.random_range(0..100) {
            n if n < produce => produce::send(self, client, conn, name),
            n if n < produce + fetch => fetch::send(self, client, conn, name),
            n if n < produce + fetch + commit => commit::send(self, client, conn, name),
            _ => match self.rng.random_range(0..100) {
                0..=19 => garbage::send(self, client, conn),
                20..=29 => groups::send_leave(self, client, conn, name),
                30..=49 => seek::send(self, client, conn, name),
                50..=69 => self.operate(client, conn, name),
                _ => create_topic::send(self, client, conn, name),
            },
        }
    }

    fn some_topic(&mut self) -> Option<usize> {
        match self.rng.random_range(0..100) {
            0..=59 => Some(0),
            60..=84 => Some(1),
            85..=96 => Some(2),
            _ => None,
        }
    }

    /// A new call.
    fn call(
        &mut self,
        client: usize,
        conn: ConnId,
        name: Option<usize>,
        request: Option<Request>,
        op: Op,
    ) -> CallId {
        let id = self.calls.len();
        self.calls.push(Call {
            client,
            conn,
            request,
            op,
            name,
            topic: None,
            deadline: 0,
            answer: None,
            delivered: false,
        });
        self.say(|| format!("{id} {}", self.calls[id]));
        id
    }

    /// Sends a request; gives its call.
    pub(super) fn send(
        &mut self,
        client: usize,
        id: ConnId,
        name: Option<usize>,
        request: Request,
        op: Op,
    ) -> CallId {
        let call = self.call(client, id, name, Some(request), op);
        if let Some(conn) = self.conns.get_mut(&id)
            && let Some(request) = &self.calls[call].request
        {
            conn.link.send(request, call);
            conn.undelivered += 1;
            conn.sent.push_back(call);
        }
        call
    }

    /// The client closes the connection, whatever is on its way.
    fn leave_connection(&mut self, conn: ConnId) {
        let left: Result<(), Violation> = self.hang_up(conn);
        // Only a ticket that is lost can fail, and that is found again when the run ends.
        drop(left);
    }

    /// The name to send for a topic; without an index, one that no topic has.
    fn name_to_send(&mut self, name: Option<usize>) -> Option<Bytes> {
        match name {
            Some(name) => Some(Bytes::from_static(TOPICS[name].as_bytes())),
            None => STRANGERS[self.rng.random_range(0..STRANGERS.len())].map(Bytes::from_static),
        }
    }

    fn some_group(&mut self) -> Bytes {
        Bytes::from_static(GROUPS[self.rng.random_range(0..GROUPS.len())])
    }
}
