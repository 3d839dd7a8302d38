//! Connections: bytes in order, late, and cut anywhere; an end of either side, and what it takes with it.

use std::collections::{BTreeMap, VecDeque};

use broker::{ConnectionId, Event, RequestId};
use bytes::{Buf, Bytes};
use client::link::Link;
use rand::Rng;
use wire::Page;

use super::edge::Edge;
use super::model::CallId;
use super::world::{Happening, World};
use crate::invariants::{Violation, ensure, inv_05};

/// A connection; its number is also what the node knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConnId(pub(super) u64);

/// Both ends of a connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) client: usize,
    pub(super) link: Link<CallId>,
    pub(super) edge: Edge,
    /// Calls sent, in order, whose frames the node's end has not seen.
    pub(super) sent: VecDeque<CallId>,
    /// Calls sent and not delivered; an open stream is one.
    pub(super) undelivered: usize,
    /// The call that asked for a stream, until that ends.
    pub(super) subscribed: Option<CallId>,
    /// Pushes on their way to the client, as the node gave them.
    pub(super) pushes: VecDeque<Page>,
    /// Acknowledgements by the number they may be refused under.
    pub(super) acks: BTreeMap<u32, CallId>,
    /// The client still has its end.
    client_open: bool,
    /// The node still has its end.
    edge_open: bool,
    /// When the last bytes arrive, each way.
    up_at: u64,
    down_at: u64,
}

impl Conn {
    /// Answers the client waits for; a stream may stay open for ever.
    pub(super) fn owed(&self) -> usize {
        self.undelivered - usize::from(self.subscribed.is_some())
    }
}

impl World {
    /// Connects a client, if there is a node that serves.
    pub(super) fn connect(&mut self, client: usize) -> Result<(), Violation> {
        if !self.process.as_ref().is_some_and(|process| process.ready && !process.stopped) {
            return Ok(());
        }
        let id = ConnId(self.conn_next);
        self.conn_next += 1;
        let Some(session) = self.log_in(client, id)? else { return Ok(()) };
        let conn = Conn {
            client,
            link: Link::new(types::limits::FRAME_BYTES_DEFAULT),
            edge: Edge::new(session),
            sent: VecDeque::new(),
            undelivered: 0,
            subscribed: None,
            pushes: VecDeque::new(),
            acks: BTreeMap::new(),
            client_open: true,
            edge_open: true,
            up_at: self.now,
            down_at: self.now,
        };
        self.conns.insert(id, conn);
        self.clients[client].conn = Some(id);
        self.say(|| format!("client {client} connects as {}", id.0));
        Ok(())
    }

    fn latency(&mut self) -> u64 {
        if self.rng.random_bool(0.01) {
            self.rng.random_range(0..100_000)
        } else {
            self.rng.random_range(20..400)
        }
    }

    /// Cuts bytes into what arrives together.
    fn cut(&mut self, mut bytes: Bytes) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        while bytes.len() > 1 && self.rng.random_bool(0.3) {
            let at = self.rng.random_range(1..bytes.len());
            pieces.push(bytes.split_to(at));
        }
        pieces.push(bytes);
        pieces
    }

    /// Puts what the client wants to send on its way.
    pub(super) fn send_up(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let bytes = conn.link.outgoing().split().freeze();
        if bytes.is_empty() {
            return;
        }
        for piece in self.cut(bytes) {
            let at = self.now + self.latency();
            let Some(conn) = self.conns.get_mut(&id) else { return };
            conn.up_at = conn.up_at.max(at);
            let at = conn.up_at;
            self.at(at, Happening::ToEdge(id, piece));
        }
    }

    /// Puts what the node's end wants to send on its way.
    pub(super) fn send_down(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let out = conn.edge.out();
        let len = out.remaining();
        if len == 0 {
            return;
        }
        let bytes = out.copy_to_bytes(len);
        for piece in self.cut(bytes) {
            let at = self.now + self.latency();
            let Some(conn) = self.conns.get_mut(&id) else { return };
            conn.down_at = conn.down_at.max(at);
            let at = conn.down_at;
            self.at(at, Happening::ToClient(id, piece));
        }
    }

    /// The client closes its end; what is on its way to the node still arrives.
    pub(super) fn hang_up(&mut self, id: ConnId) -> Result<(), Violation> {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.client_open) else { return Ok(()) };
        conn.client_open = false;
        let client = conn.client;
        let lost = conn.link.abandon();
        // Every ticket comes back exactly once, with its answer or without.
        let expected = conn.undelivered;
        inv_05::same("a lost connection", lost.len() == expected)?;
        let at = conn.up_at + 1;
        for call in lost {
            ensure(!self.calls[call].delivered, "INV-5", || {
                format!("{} was delivered and lost", self.calls[call])
            })?;
            self.calls[call].delivered = true;
        }
        self.clients[client].hung_up();
        self.say(|| format!("client {client} is off {}", id.0));
        // One that broke without a word: the client may be back before the node hears of it.
        let broke = !self.healing && self.rng.random_bool(0.2);
        let unheard = if broke { self.rng.random_range(0..3_000_000) } else { 0 };
        self.at(at.max(self.now) + unheard, Happening::Gone(id));
        Ok(())
    }

    /// The client learns that nothing more will come.
    pub(super) fn client_cut(&mut self, id: ConnId) -> Result<(), Violation> {
        self.hang_up(id)?;
        self.forget(id);
        Ok(())
    }

    /// The node's end closes; the client learns after what was said before.
    pub(super) fn close_edge(&mut self, id: ConnId) -> Result<(), Violation> {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.edge_open) else { return Ok(()) };
        conn.edge_open = false;
        let at = conn.down_at.max(self.now) + 1;
        self.at(at, Happening::Cut(id));
        self.node_lost(id)
    }

    /// The node's end learns that the client is gone.
    pub(super) fn edge_gone(&mut self, id: ConnId) -> Result<(), Violation> {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.edge_open) else {
            self.forget(id);
            return Ok(());
        };
        conn.edge_open = false;
        self.node_lost(id)?;
        self.forget(id);
        Ok(())
    }

    fn node_lost(&mut self, id: ConnId) -> Result<(), Violation> {
        // Whatever may wait for a time is dropped; the rest is still judged when it is answered.
        let (first, last) = (request_id(id, 0), request_id(id, u64::MAX));
        let ids: Vec<(RequestId, CallId)> =
            self.waiting.range(first..=last).map(|(id, call)| (*id, *call)).collect();
        for (request, call) in ids {
            if self.calls[call].is_fetch() {
                self.waiting.remove(&request);
                self.dropped.insert(request);
            }
        }
        let open = self.model.streams.range(first..=last).next().map(|(id, _)| *id);
        if let Some(stream) = open {
            self.stream_over(stream);
        }
        self.step(Event::Gone(ConnectionId(id.0)))
    }

    fn forget(&mut self, id: ConnId) {
        if self.conns.get(&id).is_some_and(|conn| !conn.client_open && !conn.edge_open) {
            self.conns.remove(&id);
        }
    }

    /// The process is gone, and with it every connection; what it had said may arrive or not.
    pub(super) fn cut_all(&mut self) {
        for id in self.conns.keys().copied().collect::<Vec<_>>() {
            let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.edge_open) else { continue };
            conn.edge_open = false;
            let at = if self.rng.random_bool(0.5) { conn.down_at.max(self.now) + 1 } else { self.now };
            self.at(at, Happening::Cut(id));
        }
    }

    pub(super) fn edge_is_open(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|conn| conn.edge_open)
    }

    pub(super) fn client_is_open(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|conn| conn.client_open)
    }
}

/// A request as the node numbers it.
pub(super) fn request_id(conn: ConnId, number: u64) -> RequestId {
    RequestId { connection: ConnectionId(conn.0), number }
}
