//! One client connection, from its first byte to its last.
//!
//! Owns the connection's states, timers and buffers, and the order of its requests: produce requests overlap
//! with one another, everything else runs alone, so each request finds what the ones before it did. Frames
//! that nobody can work on yet stay in the buffer, and a full buffer is not read into: that is the back
//! pressure.
//!
//! Invariants:
//! - at most one frame is in work that is not a produce request, and then nothing else is;
//! - an answer is written whole, or the connection closes;
//! - whatever ends the task, the core hears that the connection is gone.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use broker::{ConnectionId, Event, Reply, Request, RequestId, Session};
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use types::limits;
use wire::frame::{self, PREFIX_BYTES};
use wire::request::Envelope;
use wire::{ApiKey, Gather, Payload, Reason, Response};

use super::{Shared, stopped, translate};
use crate::driver::{Answer, Core};
use crate::identity;

/// Produce requests of one connection that may wait for their sync.
const IN_FLIGHT_MAX: usize = 1024;
/// Bytes of produce requests of one connection that may wait for their sync; one may exceed it alone.
const IN_FLIGHT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Least room for reading.
const READ_BYTES_MIN: usize = 16 * 1024;
/// Most room made in one go for a frame that was announced: a claim until its bytes arrive.
const READ_BYTES_MAX: usize = 1024 * 1024;
/// Unread frames kept while requests are in work, so that a close is noticed.
const AHEAD_BYTES_MAX: usize = 64 * 1024;
/// How long the peer may take to read a last word before the connection is torn down.
const LINGER: Duration = Duration::from_secs(1);

/// Writes one unasked refusal and closes.
pub(super) async fn refuse(mut stream: TcpStream, reason: Reason, send_timeout: Duration) {
    let mut out = Gather::new();
    Response::Error(reason).encode(0, &mut out);
    if let Ok(Ok(())) = timeout(send_timeout, stream.write_all_buf(&mut out)).await {
        drain(&mut stream).await;
    }
}

/// Serves a connection until it ends.
pub(super) async fn run(
    stream: TcpStream,
    client: IpAddr,
    id: ConnectionId,
    shared: &Shared,
    stop: watch::Receiver<bool>,
) {
    drop(stream.set_nodelay(true));
    let mut unauthenticated =
        Unauthenticated { stream, buffer: BytesMut::with_capacity(READ_BYTES_MIN), shared };
    let Some((session, out)) = unauthenticated.authenticate(client, stop.clone()).await else { return };
    let Unauthenticated { stream, buffer, .. } = unauthenticated;
    let (answers, inbox) = mpsc::channel(IN_FLIGHT_MAX + 1);
    if !shared.core.connect(id, answers).await {
        return;
    }
    let connection = Connection {
        stream,
        id,
        session,
        core: &shared.core,
        shared,
        buffer,
        out,
        inbox,
        in_work: InWork::default(),
        next: None,
        input: Input::Open,
    };
    connection.serve(stop).await;
    shared.core.send(Event::Gone(id)).await;
}

/// A connection nobody has logged in on.
struct Unauthenticated<'a> {
    stream: TcpStream,
    buffer: BytesMut,
    shared: &'a Shared,
}

impl Unauthenticated<'_> {
    /// Waits for the one frame that may come first; `None` when the connection is over. The answer is not
    /// written yet.
    async fn authenticate(
        &mut self,
        client: IpAddr,
        mut stop: watch::Receiver<bool>,
    ) -> Option<(Session, Gather)> {
        let deadline = Instant::now() + self.shared.limits.auth_timeout;
        let limit = self.shared.limits.frame_bytes_max.min(limits::FRAME_BYTES_UNAUTHENTICATED_MAX);
        let body = loop {
            match frame::take(&mut self.buffer, limit) {
                Ok(Some(body)) => break body,
                Ok(None) => {}
                Err(_) => return self.close(0, Reason::FrameTooLarge).await,
            }
            self.buffer.reserve(READ_BYTES_MIN);
            let read = tokio::select! {
                read = timeout_at(deadline, self.stream.read_buf(&mut self.buffer)) => read,
                () = stopped(&mut stop) => return self.close(0, Reason::ServerShutdown).await,
            };
            match read {
                Ok(Ok(read)) if read > 0 => {}
                // The deadline passed, or the peer left: nothing is said.
                Ok(_) | Err(_) => return None,
            }
        };
        let Some((envelope, payload)) = Envelope::split(body) else {
            return self.close(0, Reason::AuthRequired).await;
        };
        let correlation_id = envelope.correlation_id;
        let Some(key) = ApiKey::from_number(envelope.api_key).filter(|key| key.authenticates()) else {
            return self.close(correlation_id, Reason::AuthRequired).await;
        };
        let reason = match wire::Request::decode(key, payload) {
            Ok(wire::Request::Auth { username, password }) => {
                match self.shared.users.verify(username.as_deref(), password.as_deref()) {
                    Some(session) => return self.welcome(session, correlation_id, client).await,
                    None => Reason::InvalidCredentials,
                }
            }
            Ok(wire::Request::MtlsAuth) => Reason::MtlsAuthDisabled,
            Ok(_) => Reason::OidcAuthDisabled,
            Err(_) => return self.close(0, Reason::AuthRequired).await,
        };
        tracing::info!(%client, reason = reason.as_str(), "authentication failed");
        self.close(correlation_id, reason).await
    }

    async fn welcome(
        &mut self,
        session: Session,
        correlation_id: u32,
        client: IpAddr,
    ) -> Option<(Session, Gather)> {
        let Ok(token) = identity::token() else {
            return self.close(correlation_id, Reason::InternalError).await;
        };
        tracing::debug!(%client, user = &*session.user, "authenticated");
        let mut out = Gather::new();
        Response::Ok(Payload::Token(token.into())).encode(correlation_id, &mut out);
        Some((session, out))
    }

    /// One last word; nothing is left to serve.
    async fn close<T>(&mut self, correlation_id: u32, reason: Reason) -> Option<T> {
        let mut out = Gather::new();
        Response::Error(reason).encode(correlation_id, &mut out);
        let written = timeout(self.shared.limits.send_timeout, self.stream.write_all_buf(&mut out)).await;
        if let Ok(Ok(())) = written {
            drain(&mut self.stream).await;
        }
        None
    }
}

/// Lets the peer read the last word before the socket is dropped: one closed with unread input takes it back.
async fn drain(stream: &mut TcpStream) {
    let rest = async {
        stream.shutdown().await?;
        let mut sink = BytesMut::with_capacity(READ_BYTES_MIN);
        while stream.read_buf(&mut sink).await? > 0 {
            sink.clear();
        }
        std::io::Result::Ok(())
    };
    drop(timeout(LINGER, rest).await);
}

/// A connection that serves requests.
struct Connection<'a> {
    stream: TcpStream,
    id: ConnectionId,
    session: Session,
    core: &'a Core,
    shared: &'a Shared,
    buffer: BytesMut,
    out: Gather,
    inbox: mpsc::Receiver<Answer>,
    in_work: InWork,
    /// Decoded, but not its turn.
    next: Option<Next>,
    input: Input,
}

/// What the peer may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Open,
    /// The peer sends nothing more; what it sent is still answered.
    Ended,
    /// Nothing that comes can be understood: answer what is in work, say why, close.
    Refused(Reason),
}

/// A frame whose turn has not come.
enum Next {
    Ask(u32, Request),
    Refuse(u32, Reason),
}

/// Requests the core has, oldest first.
#[derive(Default)]
struct InWork {
    /// `None` once answered out of order.
    slots: VecDeque<Option<Slot>>,
    /// Number of the first slot.
    first: u64,
    open: usize,
    bytes: usize,
    /// Whether the one request in work is not a produce request.
    alone: bool,
    /// Whether it is one that may wait for something to happen.
    polling: bool,
}

#[derive(Clone, Copy)]
struct Slot {
    correlation_id: u32,
    bytes: usize,
}

impl InWork {
    /// Whether a request may start now.
    fn admits(&self, request: &Request) -> bool {
        let overlaps = request.may_overlap() && !self.alone;
        let room = self.open < IN_FLIGHT_MAX
            && self.slots.len() < 2 * IN_FLIGHT_MAX
            && self.bytes < IN_FLIGHT_BYTES_MAX;
        self.open == 0 || (overlaps && room)
    }

    /// Gives a request its number.
    fn start(&mut self, correlation_id: u32, request: &Request) -> u64 {
        let bytes = match request {
            Request::Produce(produce) => produce.records.len(),
            Request::CreateTopic { .. }
            | Request::Fetch(_)
            | Request::Commit(_)
            | Request::LeaveGroup { .. } => 0,
        };
        let number = self.first + self.slots.len() as u64;
        self.slots.push_back(Some(Slot { correlation_id, bytes }));
        self.open += 1;
        self.bytes += bytes;
        self.alone = !request.may_overlap();
        self.polling = matches!(request, Request::Fetch(_));
        number
    }

    /// Takes a request out; `None` when it is not in work.
    fn end(&mut self, number: u64) -> Option<u32> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let slot = self.slots.get_mut(index)?.take()?;
        self.open -= 1;
        self.bytes -= slot.bytes;
        self.alone = false;
        self.polling = false;
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
        }
        Some(slot.correlation_id)
    }
}

/// Why the connection is over.
enum End {
    /// Nothing more is owed.
    Done,
    /// The peer is gone, or too slow to be told anything.
    Lost,
    /// The node shuts down.
    Shutdown,
}

impl Connection<'_> {
    async fn serve(mut self, mut stop: watch::Receiver<bool>) {
        match self.work(&mut stop).await {
            End::Lost => {}
            End::Done => {
                if let Input::Refused(reason) = self.input {
                    self.say(reason).await;
                }
            }
            End::Shutdown => self.say(Reason::ServerShutdown).await,
        }
    }

    /// A last word under no request, then the close.
    async fn say(mut self, reason: Reason) {
        Response::Error(reason).encode(0, &mut self.out);
        if self.flush().await {
            drain(&mut self.stream).await;
        }
    }

    async fn work(&mut self, stop: &mut watch::Receiver<bool>) -> End {
        let mut quiet_since = Instant::now();
        let mut answers = Vec::new();
        let mut stopping = false;
        loop {
            if !stopping && !self.dispatch().await {
                return End::Lost;
            }
            if !self.flush().await {
                return End::Lost;
            }
            let idle = self.in_work.open == 0;
            if stopping && (idle || self.in_work.polling) {
                return End::Shutdown;
            }
            if idle && self.input != Input::Open {
                return End::Done;
            }
            let reading =
                self.input == Input::Open && !stopping && (idle || self.buffer.len() < AHEAD_BYTES_MAX);
            if reading {
                self.make_room();
            }
            let idle_until = quiet_since + self.shared.limits.recv_timeout;
            tokio::select! {
                biased;
                received = self.inbox.recv_many(&mut answers, IN_FLIGHT_MAX), if !idle => {
                    if received == 0 {
                        return End::Lost;
                    }
                    answers.drain(..).for_each(|answer| self.answer(answer));
                    quiet_since = Instant::now();
                }
                read = self.stream.read_buf(&mut self.buffer), if reading => match read {
                    Ok(0) => {
                        self.input = Input::Ended;
                        // A long poll has nobody left to wait for.
                        if self.in_work.polling {
                            return End::Lost;
                        }
                    }
                    Ok(_) => quiet_since = Instant::now(),
                    Err(_) => return End::Lost,
                },
                () = stopped(stop), if !stopping => stopping = true,
                () = tokio::time::sleep_until(idle_until), if idle => return End::Lost,
            }
        }
    }

    /// Starts every request whose turn it is; `false` when the core is gone.
    async fn dispatch(&mut self) -> bool {
        let mut batch = Vec::new();
        while let Some(next) = self.next.take().or_else(|| self.decode()) {
            match next {
                Next::Ask(correlation_id, mut request) if self.in_work.admits(&request) => {
                    if let (Request::Fetch(fetch), Input::Ended) = (&mut request, self.input) {
                        fetch.wait_ms = 0;
                    }
                    let number = self.in_work.start(correlation_id, &request);
                    batch.push(Event::Request {
                        id: RequestId { connection: self.id, number },
                        session: self.session.clone(),
                        request,
                    });
                }
                Next::Refuse(correlation_id, reason) if self.in_work.open == 0 => {
                    Response::Error(reason).encode(correlation_id, &mut self.out);
                }
                Next::Ask(..) | Next::Refuse(..) => {
                    self.next = Some(next);
                    break;
                }
            }
        }
        batch.is_empty() || self.core.send_all(batch).await
    }

    /// The next whole frame, decoded.
    fn decode(&mut self) -> Option<Next> {
        if matches!(self.input, Input::Refused(_)) {
            return None;
        }
        match frame::take(&mut self.buffer, self.shared.limits.frame_bytes_max) {
            Ok(body) => {
                let Some((envelope, payload)) = Envelope::split(body?) else {
                    return Some(Next::Refuse(0, Reason::MalformedRequest));
                };
                let request = translate::request(envelope.api_key, payload, self.session.permissions);
                Some(match request {
                    Ok(request) => Next::Ask(envelope.correlation_id, request),
                    Err(reason) => Next::Refuse(envelope.correlation_id, reason),
                })
            }
            Err(_) => {
                self.input = Input::Refused(Reason::FrameTooLarge);
                None
            }
        }
    }

    fn answer(&mut self, Answer { number, reply }: Answer) {
        if let Some(correlation_id) = self.in_work.end(number) {
            respond(reply, correlation_id, &mut self.out);
        }
    }

    fn make_room(&mut self) {
        let wanted = frame::missing(&self.buffer).unwrap_or(PREFIX_BYTES);
        // Twice what has arrived at most: memory follows bytes, not claims.
        let most = READ_BYTES_MAX.min((2 * self.buffer.len()).max(READ_BYTES_MIN));
        self.buffer.reserve(wanted.clamp(READ_BYTES_MIN, most));
    }

    /// Writes what there is to write; `false` when that cannot be done in time.
    async fn flush(&mut self) -> bool {
        if !self.out.has_remaining() {
            return true;
        }
        let write = self.stream.write_all_buf(&mut self.out);
        matches!(timeout(self.shared.limits.send_timeout, write).await, Ok(Ok(())))
    }
}

fn respond(reply: Reply, correlation_id: u32, out: &mut Gather) {
    translate::response(reply).encode(correlation_id, out);
}
