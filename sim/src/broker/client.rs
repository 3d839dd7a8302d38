//! Clients: what each may do, how fast it is, where it reads, and how it hears its answers.

use broker::Permissions;
use bytes::Bytes;
use client::Error;
use client::link::Received;
use rand::Rng;
use rand::rngs::SmallRng;
use wire::{Payload, Response};

use super::network::ConnId;
use super::workload::Op;
use super::world::{Happening, World};
use crate::invariants::{Violation, ensure, inv_05};

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) permissions: Permissions,
    pub(super) conn: Option<ConnId>,
    /// Requests it sends before it waits for answers.
    pub(super) ahead: usize,
    /// What it likes to do, in percent: produce, fetch, commit; the rest is everything else.
    pub(super) taste: [u32; 3],
    /// Usual pause, microseconds.
    pause: u64,
    /// Where it reads each topic by cursor.
    pub(super) cursors: Vec<Option<Bytes>>,
    /// Tokens of the group's pages it received and has not committed, by topic.
    pub(super) received: Vec<Option<Bytes>>,
}

impl Client {
    pub(super) fn new(rng: &mut SmallRng) -> Self {
        let topics = super::workload::TOPICS.len();
        let may = |admin, produce, consume| Permissions { admin, produce, consume };
        let all = [
            may(true, false, false),
            may(false, true, true),
            may(false, true, false),
            may(false, false, true),
        ];
        Self {
            permissions: all[[0, 0, 1, 1, 1, 2, 3][rng.random_range(0..7)]],
            conn: None,
            ahead: [1, 4, 16, 48][rng.random_range(0..4)],
            taste: [[70, 15, 10], [5, 65, 28], [40, 35, 20], [30, 30, 20]][rng.random_range(0..4)],
            pause: [100, 1000, 20_000, 300_000][rng.random_range(0..4)],
            cursors: vec![None; topics],
            received: vec![None; topics],
        }
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
                    self.delivered(call, response)?;
                }
                Ok(Some(Received::Push(_) | Received::Ended(..) | Received::AckRefused(..))) => {
                    unreachable!("nobody subscribes")
                }
                Err(error) => {
                    self.link_broken(id, &error)?;
                    return self.hang_up(id);
                }
            }
        }
    }

    /// An answer has arrived: it is what the node said, and it is the first.
    fn delivered(&mut self, id: usize, response: Response) -> Result<(), Violation> {
        let call = &mut self.calls[id];
        inv_05::once(&*call, !call.delivered)?;
        call.delivered = true;
        let said = call.answer.take();
        inv_05::same(&*call, said.is_some_and(|said| same(&said, &response)))?;
        let (client, op) = (call.client, call.op.clone());
        if let Response::Ok(Payload::Page(page)) = &response
            && let Op::Fetch(fetch) = op
            && let Some(topic) = fetch.topic
        {
            let client = &mut self.clients[client];
            if fetch.group.is_some() && fetch.cursor.is_none() {
                client.received[topic] = Some(page.next_cursor.clone());
            }
            client.cursors[topic] = Some(page.next_cursor.clone());
        }
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

/// Whether the client understood what was said; a decoded page has its records in one slice.
fn same(said: &Response, heard: &Response) -> bool {
    match (said, heard) {
        (Response::Ok(Payload::Page(said)), Response::Ok(Payload::Page(heard))) => {
            let joined = |page: &wire::Page| page.records.concat();
            said.count == heard.count
                && said.next_cursor == heard.next_cursor
                && joined(said) == joined(heard)
        }
        (said, heard) => said == heard,
    }
}
