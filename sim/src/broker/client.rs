//! Clients: what each may do, how fast it is, where it reads, and how it hears its answers.

use std::collections::VecDeque;

use broker::Permissions;
use bytes::Bytes;
use client::Error;
use client::link::Received;
use rand::Rng;
use rand::rngs::SmallRng;
use wire::{Page, Payload, Response};

use super::network::ConnId;
use super::workload::{Op, TOPICS};
use super::world::{Happening, World};
use crate::invariants::{Violation, ensure, inv_05};

/// What a client is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Anything, at random.
    Anybody,
    /// Reads for a group, page after page, and commits each.
    Worker,
    /// The same as a member.
    Member,
    /// Has records pushed.
    Subscriber,
    /// Splits and merges, and now and then ends a topic.
    Operator,
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) permissions: Permissions,
    pub(super) role: Role,
    /// Its name as a member.
    pub(super) member: Bytes,
    pub(super) conn: Option<ConnId>,
    /// Requests it sends before it waits for answers.
    pub(super) ahead: usize,
    /// What it likes to do, in percent: produce, fetch, commit; the rest is everything else.
    pub(super) taste: [u32; 3],
    /// Usual pause, microseconds.
    pause: u64,
    /// Where it reads each topic by cursor.
    pub(super) cursors: Vec<Option<Bytes>>,
    /// Cursors of pages it was given for a group and has not committed, by topic.
    pub(super) received: Vec<Option<(Bytes, Bytes)>>,
    /// Commits it is about to make: topic, group, cursor.
    pub(super) commits: VecDeque<(usize, Bytes, Bytes)>,
    /// Pushes it has not acknowledged: cursor and records.
    pub(super) pushed: VecDeque<(Bytes, u32)>,
}

impl Client {
    pub(super) fn new(number: usize, rng: &mut SmallRng) -> Self {
        let may = |admin, produce, consume| Permissions { admin, produce, consume };
        let all = [
            may(true, false, false),
            may(false, true, true),
            may(false, true, false),
            may(false, false, true),
        ];
        let role = match rng.random_range(0..10) {
            0..=2 => Role::Anybody,
            3 | 4 => Role::Worker,
            5 | 6 => Role::Member,
            7 => Role::Subscriber,
            _ => Role::Operator,
        };
        let permissions = match role {
            Role::Anybody => all[[0, 0, 1, 1, 1, 2, 3][rng.random_range(0..7)]],
            Role::Worker | Role::Member | Role::Subscriber => all[[0, 1, 3][rng.random_range(0..3)]],
            Role::Operator => all[0],
        };
        // Two clients may share a name: one member on two connections.
        let member = Bytes::from(format!("m{}", if rng.random_bool(0.25) { 0 } else { number }));
        Self {
            permissions,
            role,
            member,
            conn: None,
            ahead: [1, 4, 16, 48][rng.random_range(0..4)],
            taste: [[70, 15, 10], [5, 65, 28], [40, 35, 20], [30, 30, 20]][rng.random_range(0..4)],
            pause: [100, 1000, 20_000, 300_000][rng.random_range(0..4)],
            cursors: vec![None; TOPICS.len()],
            received: vec![None; TOPICS.len()],
            commits: VecDeque::new(),
            pushed: VecDeque::new(),
        }
    }

    pub(super) fn hung_up(&mut self) {
        self.conn = None;
        self.pushed.clear();
    }
}

impl World {
    /// A client has time.
    pub(super) fn think(&mut self, client: usize) -> Result<(), Violation> {
        if self.healing {
            return Ok(());
        }
        let tired = if self.calls.len() > self.weather.busy_until { 100 } else { 1 };
        let pause = tired * self.clients[client].pause;
        let pause = self.rng.random_range(0..=2 * pause);
        match self.clients[client].conn {
            None => self.connect(client)?,
            Some(conn) => self.act(client, conn),
        }
        // Nobody is in a hurry while there is nobody to talk to.
        let pause = if self.clients[client].conn.is_none() { pause + 5000 } else { pause };
        // Some are silent for so long that they are taken for gone.
        let silent = self.rng.random_bool(0.002);
        let pause = if silent { pause + self.rng.random_range(0..60_000_000) } else { pause };
        self.after(pause, Happening::Think(client));
        Ok(())
    }

    /// Bytes reach the client.
    pub(super) fn client_received(&mut self, id: ConnId, bytes: &Bytes) -> Result<(), Violation> {
        if !self.client_is_open(id) {
            return Ok(());
        }
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        conn.link.incoming().extend_from_slice(bytes);
        loop {
            let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
            match conn.link.receive() {
                Ok(None) => return Ok(()),
                Ok(Some(Received::Answer(call, response))) => {
                    conn.undelivered -= 1;
                    self.delivered(call, &response)?;
                }
                Ok(Some(Received::Push(page))) => self.push_delivered(id, &page)?,
                Ok(Some(Received::Ended(call, response))) => {
                    conn.undelivered -= 1;
                    conn.subscribed = None;
                    self.calls[call].delivered = true;
                    self.say(|| format!("{} ended: {response:?}", self.calls[call]));
                    return self.hang_up(id);
                }
                Ok(Some(Received::AckRefused(number, response))) => {
                    if let Some(call) = conn.acks.remove(&number) {
                        self.delivered(call, &response)?;
                    }
                }
                Err(error) => {
                    self.link_broken(id, &error)?;
                    return self.hang_up(id);
                }
            }
        }
    }

    /// An answer has arrived: it is what the node said, and it is the first.
    fn delivered(&mut self, id: usize, response: &Response) -> Result<(), Violation> {
        let call = &mut self.calls[id];
        inv_05::once(&*call, !call.delivered)?;
        call.delivered = true;
        let said = call.answer.take();
        inv_05::same(&*call, said.is_some_and(|said| same(&said, response)))?;
        let (client, op) = (call.client, call.op.clone());
        let (Response::Ok(Payload::Page(_) | Payload::Batches(_) | Payload::Cursor(_)), Some(name)) =
            (response, self.calls[id].name)
        else {
            return Ok(());
        };
        let cursor = match response {
            Response::Ok(Payload::Page(page)) => page.next_cursor.clone(),
            Response::Ok(Payload::Batches(page)) => page.next_cursor.clone(),
            Response::Ok(Payload::Cursor(cursor)) => cursor.clone(),
            _ => return Ok(()),
        };
        let commits = self.rng.random_bool(0.8);
        let client = &mut self.clients[client];
        if let Op::Fetch(fetch) = op
            && let Some(group) = fetch.reads_for()
        {
            if commits && client.role != Role::Anybody {
                client.commits.push_back((name, group.clone(), cursor.clone()));
            }
            client.received[name] = Some((group.clone(), cursor.clone()));
            if fetch.member.is_some() {
                return Ok(());
            }
        }
        client.cursors[name] = Some(cursor);
        Ok(())
    }

    /// A push has arrived: the one that was given, in order.
    fn push_delivered(&mut self, id: ConnId, page: &Page) -> Result<(), Violation> {
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
        let said = conn.pushes.pop_front();
        let right = said.is_some_and(|said| same_page(&said, page));
        inv_05::same(format_args!("a push on connection {}", id.0), right)?;
        let client = &mut self.clients[conn.client];
        client.pushed.push_back((page.next_cursor.clone(), page.count));
        Ok(())
    }

    /// A link breaks only over frames that were no requests.
    fn link_broken(&mut self, id: ConnId, error: &Error) -> Result<(), Violation> {
        let garbled = self.conns.get(&id).is_some_and(|conn| self.clients_garbage(conn.client, id));
        ensure(garbled, "WIRE", || format!("connection {} breaks over {error}", id.0))
    }

    fn clients_garbage(&self, client: usize, id: ConnId) -> bool {
        self.calls.iter().rev().any(|call| call.client == client && call.conn == id && call.request.is_none())
    }
}

fn same_page(said: &Page, heard: &Page) -> bool {
    said.count == heard.count
        && said.next_cursor == heard.next_cursor
        && said.records.concat() == heard.records.concat()
}

/// Whether the client understood what was said; a decoded page has its records in one slice.
fn same(said: &Response, heard: &Response) -> bool {
    match (said, heard) {
        (Response::Ok(Payload::Page(said)), Response::Ok(Payload::Page(heard))) => same_page(said, heard),
        (said, heard) => said == heard,
    }
}
