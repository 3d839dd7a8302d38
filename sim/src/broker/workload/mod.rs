//! What clients do, one file for each operation: sample, send, judge the answer, predict the effect.

pub(super) mod commit;
pub(super) mod create_topic;
pub(super) mod fetch;
pub(super) mod garbage;
pub(super) mod produce;

use std::fmt;

use broker::Operation;
use bytes::Bytes;
use rand::Rng;
use wire::{Request, Response};

use super::model::{CallId, Model};
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
    /// Its topic was known to exist when it reached the node.
    pub(super) known: bool,
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
    Create { topic: Option<usize> },
    Produce(produce::Produce),
    Fetch(fetch::Fetch),
    Commit(commit::Commit),
    Leave,
    Garbage,
}

impl Op {
    /// Index of its topic, when it names one of ours.
    pub(super) fn topic(&self) -> Option<usize> {
        match self {
            Self::Create { topic } => *topic,
            Self::Produce(op) => op.topic,
            Self::Fetch(op) => op.topic,
            Self::Commit(op) => op.topic,
            Self::Leave | Self::Garbage => None,
        }
    }

    /// What its client needs to be allowed.
    pub(super) fn operation(&self) -> Option<Operation> {
        match self {
            Self::Create { .. } | Self::Produce(_) => Some(Operation::Produce),
            Self::Fetch(_) | Self::Commit(_) | Self::Leave => Some(Operation::Consume),
            Self::Garbage => None,
        }
    }
}

impl Call {
    pub(super) fn is_fetch(&self) -> bool {
        matches!(self.op, Op::Fetch(_))
    }

    /// Whether it may be unanswered although nothing is on its way.
    pub(super) fn may_wait(&self, now: u64) -> bool {
        self.is_fetch() && now <= self.deadline
    }

    /// Whether it waits for records that are there.
    pub(super) fn could_be_answered(&self, model: &Model) -> bool {
        let Op::Fetch(fetch) = &self.op else { return false };
        fetch.topic.is_some_and(|topic| self.known && fetch.stands_before(model.topics[topic].kept()))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topic = self.op.topic().map_or("?", |topic| TOPICS[topic]);
        write!(f, "[client {} on {}] {topic}: ", self.client, self.conn.0)?;
        match &self.op {
            Op::Create { .. } => f.write_str("create"),
            Op::Produce(op) => write!(f, "produce {} records", op.count),
            Op::Fetch(op) => op.fmt(f),
            Op::Commit(op) => op.fmt(f),
            Op::Leave => f.write_str("leave"),
            Op::Garbage => f.write_str("garbage"),
        }
    }
}

impl World {
    /// A connected client does something.
    pub(super) fn act(&mut self, client: usize, conn: ConnId) {
        if self.rng.random_bool(0.01) {
            return self.leave_connection(conn);
        }
        let Some(undelivered) = self.conns.get(&conn).map(|conn| conn.undelivered) else { return };
        let room = self.clients[client].ahead.saturating_sub(undelivered);
        if room == 0 {
            return;
        }
        for _ in 0..self.rng.random_range(1..=room.min(6)) {
            self.choose(client, conn);
        }
        self.send_up(conn);
    }

    fn choose(&mut self, client: usize, conn: ConnId) {
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
        let topic = self.some_topic();
        let unborn = topic.is_some_and(|topic| !self.model.topics[topic].may_exist());
        if unborn && self.rng.random_bool(0.5) && self.clients[client].may(Operation::Produce) {
            return create_topic::send(self, client, conn, topic);
        }
        match self.rng.random_range(0..100) {
            n if n < produce => produce::send(self, client, conn, topic),
            n if n < produce + fetch => fetch::send(self, client, conn, topic),
            n if n < produce + fetch + commit => commit::send(self, client, conn, topic),
            _ if self.rng.random_bool(0.3) => garbage::send(self, client, conn),
            _ if self.rng.random_bool(0.3) => {
                let request = Request::LeaveGroup { topic: name_of(topic), group: None, member: None };
                self.send(client, conn, request, Op::Leave);
            }
            _ => create_topic::send(self, client, conn, topic),
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

    /// Sends a request; gives its call.
    pub(super) fn send(&mut self, client: usize, id: ConnId, request: Request, op: Op) -> CallId {
        let call = self.calls.len();
        self.calls.push(Call {
            client,
            conn: id,
            request: Some(request),
            op,
            known: false,
            deadline: 0,
            answer: None,
            delivered: false,
        });
        self.say(|| format!("{call} {}", self.calls[call]));
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
}

/// A topic's name; without an index, one that no topic has.
fn name_of(topic: Option<usize>) -> Option<Bytes> {
    topic.map(|topic| Bytes::from_static(TOPICS[topic].as_bytes()))
}
