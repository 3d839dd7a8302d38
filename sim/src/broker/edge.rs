//! What stands in for the server's end of a connection: frames to requests, replies to frames.
//!
//! Owns the order of a connection's requests, as `edge/server` does: produce requests overlap with one another,
//! everything else runs alone, and an open stream takes acknowledgements only. Every frame is known to the world
//! as a call, in the order they were sent, so that the decoded request can be compared with what the client meant.

use std::collections::BTreeMap;

use broker::{Event, Fetched, Reply, Request, RequestId, Session};
use bytes::{Bytes, BytesMut};
use rand::Rng;
use wire::request::Envelope;
use wire::{ApiKey, Gather, Payload, Reason, Response, frame};

use super::model::CallId;
use super::network::{ConnId, request_id};
use super::translate;
use super::world::{Happening, World};
use crate::invariants::{Violation, ensure};

/// The node's end of a connection.
#[derive(Debug)]
pub(super) struct Edge {
    session: Session,
    buffer: BytesMut,
    out: Gather,
    /// Requests the node has: the client's number for each.
    in_work: BTreeMap<u64, u32>,
    /// The one in work is not one that overlaps with others.
    alone: bool,
    /// Decoded, but not its turn.
    next: Option<Next>,
    number: u64,
    /// Nothing that comes can be understood.
    refused: bool,
    /// The open stream, and what pushes are sent under.
    stream: Option<(RequestId, u32)>,
}

/// A frame whose turn has not come.
#[derive(Debug)]
enum Next {
    Ask(u32, CallId, Request),
    Refuse(u32, CallId, Reason),
    Close(CallId, Reason),
}

impl Edge {
    pub(super) fn new(session: Session) -> Self {
        Self {
            session,
            buffer: BytesMut::new(),
            out: Gather::default(),
            in_work: BTreeMap::new(),
            alone: false,
            next: None,
            number: 0,
            refused: false,
            stream: None,
        }
    }

    pub(super) fn out(&mut self) -> &mut Gather {
        &mut self.out
    }

    fn admits(&self, request: &Request) -> bool {
        self.in_work.is_empty() || (request.may_overlap() && !self.alone)
    }
}

impl World {
    /// Bytes reach the node's end.
    pub(super) fn edge_received(&mut self, id: ConnId, bytes: &Bytes) {
        if !self.edge_is_open(id) {
            return;
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.edge.buffer.extend_from_slice(bytes);
        self.after(0, Happening::EdgeTurn(id));
    }

    /// Starts every request whose turn it is.
    pub(super) fn edge_turn(&mut self, id: ConnId) -> Result<(), Violation> {
        while self.edge_is_open(id)
            && let Some(next) = self.edge_next(id)?
        {
            let Some(conn) = self.conns.get_mut(&id) else { return Ok(()) };
            let edge = &mut conn.edge;
            match next {
                Next::Ask(correlation_id, call, request) if edge.admits(&request) => {
                    let number = edge.number;
                    edge.number += 1;
                    edge.in_work.insert(number, correlation_id);
                    edge.alone = !request.may_overlap();
                    self.ask(id, number, call, request)?;
                }
                Next::Refuse(correlation_id, call, reason) if edge.in_work.is_empty() => {
                    self.say_to(id, correlation_id, call, Response::Error(reason));
                }
                Next::Close(call, reason) if edge.in_work.is_empty() => {
                    self.say_to(id, 0, call, Response::Error(reason));
                    return self.close_edge(id);
                }
                Next::Ask(..) | Next::Refuse(..) | Next::Close(..) => {
                    edge.next = Some(next);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn ask(&mut self, id: ConnId, number: u64, call: CallId, request: Request) -> Result<(), Violation> {
        let request_id = request_id(id, number);
        let Some(session) = self.conns.get(&id).map(|conn| conn.edge.session.clone()) else { return Ok(()) };
        self.waiting.insert(request_id, call);
        self.arrived(call, request_id);
        self.step(Event::Request { id: request_id, session, request })
    }

    fn say_to(&mut self, id: ConnId, correlation_id: u32, call: CallId, response: Response) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        response.encode(correlation_id, &mut conn.edge.out);
        self.calls[call].answer = Some(response);
        self.send_down(id);
    }

    /// The node has answered; nobody may be there to hear it.
    pub(super) fn edge_answer(&mut self, id: ConnId, number: u64, call: CallId, reply: Reply) {
        if !self.edge_is_open(id) {
            return;
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(correlation_id) = conn.edge.in_work.remove(&number) else { return };
        conn.edge.alone = false;
        let turn = self.rng.random_range(0..20);
        self.after(turn, Happening::EdgeTurn(id));
        match (&reply, &self.calls[call].request) {
            (Reply::Subscribed, _) => {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.edge.stream = Some((request_id(id, number), correlation_id));
                }
            }
            // An acknowledgement that is one is not answered.
            (Reply::Acked, _) => self.calls[call].delivered = true,
            (_, request) => {
                let batches = matches!(request, Some(wire::Request::FetchBatches(_)));
                self.say_to(id, correlation_id, call, translate::response(reply, batches));
            }
        }
    }

    /// Records for a stream; gives the page as it goes out, when somebody is there.
    pub(super) fn edge_push(&mut self, stream: RequestId, fetched: Fetched) {
        let id = ConnId(stream.connection.0);
        if !self.edge_is_open(id) {
            return;
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some((_, correlation_id)) = conn.edge.stream.filter(|(id, _)| *id == stream) else { return };
        let page = translate::page(fetched);
        Response::Ok(Payload::Page(page.clone())).encode(correlation_id, &mut conn.edge.out);
        conn.pushes.push_back(page);
        self.send_down(id);
        // The socket takes it when the client reads; some are slow, and some stop.
        let wait = match self.rng.random_range(0..100) {
            0..=79 => self.rng.random_range(0..200),
            80..=96 => self.rng.random_range(0..50_000),
            _ => self.rng.random_range(0..20_000_000),
        };
        self.after(wait, Happening::Pushed(self.model.life, stream));
    }

    /// The last push of a stream was written.
    pub(super) fn pushed(&mut self, life: u32, stream: RequestId) -> Result<(), Violation> {
        let open = self.edge_is_open(ConnId(stream.connection.0));
        if self.model.life != life || !open {
            return Ok(());
        }
        if let Some(stream) = self.model.streams.get_mut(&stream) {
            stream.pushing = false;
        }
        self.step(Event::Pushed { stream })
    }

    /// The node ends a stream: one last word, then the close.
    pub(super) fn edge_ends_stream(&mut self, stream: RequestId, reason: Reason) {
        let id = ConnId(stream.connection.0);
        if !self.edge_is_open(id) {
            return;
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.edge.refused = true;
        if let Some((_, correlation_id)) = conn.edge.stream.take() {
            Response::Error(reason).encode(correlation_id, &mut conn.edge.out);
            self.send_down(id);
        }
        // The node hears of it as of everything else: once it has told all it had to tell.
        self.after(0, Happening::Close(id));
    }

    /// The next whole frame, decoded.
    fn edge_next(&mut self, id: ConnId) -> Result<Option<Next>, Violation> {
        let limit = self.config.frame_bytes_max;
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(None) };
        if let Some(next) = conn.edge.next.take() {
            return Ok(Some(next));
        }
        if conn.edge.refused {
            return Ok(None);
        }
        let body = frame::take(&mut conn.edge.buffer, limit);
        if body == Ok(None) {
            return Ok(None);
        }
        let streaming = conn.edge.stream.is_some();
        let call = conn.sent.pop_front();
        let call = call.ok_or_else(|| Violation::new("WIRE", "a frame that nobody sent"))?;
        let Ok(Some(body)) = body else {
            conn.edge.refused = true;
            return Ok(Some(Next::Close(call, Reason::FrameTooLarge)));
        };
        let Some((envelope, payload)) = Envelope::split(body) else {
            return Ok(Some(Next::Refuse(0, call, Reason::MalformedRequest)));
        };
        let decoded = decode(envelope.api_key, payload, streaming);
        let same = match (&decoded, &self.calls[call].request) {
            (Ok(decoded), Some(meant)) => decoded == meant,
            (Err(_), None) => true,
            (Ok(_), None) | (Err(_), Some(_)) => false,
        };
        ensure(same, "WIRE", || format!("{} arrived as {decoded:?}", self.calls[call]))?;
        let correlation_id = envelope.correlation_id;
        Ok(Some(match decoded.and_then(translate::request) {
            Ok(request) => Next::Ask(correlation_id, call, request),
            Err(reason) => Next::Refuse(correlation_id, call, reason),
        }))
    }
}

fn decode(api_key: u16, payload: Bytes, streaming: bool) -> Result<wire::Request, Reason> {
    let key = ApiKey::from_number(api_key).ok_or(Reason::UnknownApiKey)?;
    if streaming && key != ApiKey::StreamAck {
        return Err(Reason::UnexpectedFrame);
    }
    if key.authenticates() || (key == ApiKey::StreamAck && !streaming) {
        return Err(Reason::UnknownApiKey);
    }
    wire::Request::decode(key, payload).map_err(|_| Reason::MalformedRequest)
}
