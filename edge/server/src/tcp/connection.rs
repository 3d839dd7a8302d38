//! One client connection after its login, to its last byte.
//!
//! Owns the connection's states, timers and buffers, and the order of its requests: produce requests overlap
//! with one another, everything else runs alone, so each request finds what the ones before it did. Frames
//! that nobody can work on yet stay in the buffer, and a full buffer is not read into: that is the back
//! pressure.
//!
//! ```text
//! requests ──(subscribe accepted)──▶ streaming: acknowledgements in, pushes out, no idle timeout
//! ```
//!
//! Invariants:
//! - at most one frame is in work that is not a produce request, and then nothing else is;
//! - an answer is written whole, or the connection closes;
//! - the core is told of a push once it was written, so at most one waits here.

use std::net::IpAddr;
use std::pin::pin;

use broker::{Event, Form, Request, RequestId, Session};
use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::time::Instant;
use wire::frame::{self, PREFIX_BYTES};
use wire::request::Envelope;
use wire::{ApiKey, Gather, Reason, Response};

use super::in_work::{IN_FLIGHT_MAX, InWork, Slot, Then};
use super::socket::{self, READ_BYTES_MIN, Socket};
use super::translate::{self, Ask};
use super::welcome::{self, Guest};
use super::{Shared, stopped};
use crate::audit::Change;
use crate::line::Line;
use crate::metrics::{Doing, Held};

/// Most room made in one go for a frame that was announced: a claim until its bytes arrive.
const READ_BYTES_MAX: usize = 1024 * 1024;
/// Room that is worth a read.
const READ_ROOM_MIN: usize = READ_BYTES_MIN / 4;
/// Unread frames kept while requests are in work, so that a close is noticed.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// Serves a connection until it ends.
pub(super) async fn run(socket: Socket, client: IpAddr, shared: &Shared, stop: watch::Receiver<bool>) {
    let waiting = shared.metrics.hold(Doing::Welcome);
    let Some(guest) = welcome::receive(socket, client, shared, stop.clone()).await else { return };
    drop(waiting);
    let Guest { socket, buffer, line, session, out } = guest;
    let connection = Connection {
        socket,
        client,
        in_work: InWork::starting_at(line.next),
        line,
        session,
        shared,
        buffer,
        out,
        events: Vec::new(),
        next: None,
        input: Input::Open,
        arrived: Instant::now(),
        now: Instant::now(),
        stream: None,
        revoked: false,
        doing: shared.metrics.hold(Doing::Serving),
    };
    connection.serve(stop).await;
}

/// A connection that serves requests.
pub(super) struct Connection<'a> {
    socket: Socket,
    pub(super) client: IpAddr,
    pub(super) line: Line,
    pub(super) session: Session,
    pub(super) shared: &'a Shared,
    buffer: BytesMut,
    pub(super) out: Gather,
    /// For the core, in order.
    pub(super) events: Vec<Event>,
    pub(super) in_work: InWork,
    /// Decoded, but not its turn.
    next: Option<Next>,
    pub(super) input: Input,
    /// When bytes came last.
    arrived: Instant,
    /// When the answers came that are being taken.
    pub(super) now: Instant,
    pub(super) stream: Option<Stream>,
    /// Whether the user was changed or deleted: what is in work is answered, then the connection closes.
    pub(super) revoked: bool,
    /// Counts it.
    pub(super) doing: Held,
}

/// An open push stream.
pub(super) struct Stream {
    /// The request that opened it.
    pub(super) id: RequestId,
    /// What pushes are sent under.
    pub(super) correlation_id: u32,
    /// Whether a push is in the buffer and not written yet.
    pub(super) pushing: bool,
}

/// What the peer may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Open,
    /// The peer sends nothing more; what it sent is still answered.
    Ended,
    /// Nothing that comes can be understood or is wanted: answer what is in work, say this, close.
    Refused(Reason),
    /// What is to be said was said: write it, close.
    Closing,
}

/// A frame whose turn has not come.
enum Next {
    Ask(Slot, Request),
    /// Hashing, or a refusal, for administrators only: the core is asked whether the session is one.
    Check(Slot),
    Say(u32, Response),
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
            End::Done => match self.input {
                Input::Refused(reason) => self.say(reason).await,
                Input::Closing => socket::drain(&mut self.socket).await,
                Input::Open | Input::Ended => {}
            },
            End::Shutdown => self.say(Reason::ServerShutdown).await,
        }
    }

    /// A last word under no request, then the close.
    async fn say(mut self, reason: Reason) {
        Response::Error(reason).encode(0, &mut self.out);
        if self.flush().await {
            socket::drain(&mut self.socket).await;
        }
    }

    async fn work(&mut self, stop: &mut watch::Receiver<bool>) -> End {
        let mut quiet_since = Instant::now();
        let mut answers = Vec::new();
        let mut stopping = false;
        // Kept over all turns: to ask for either anew each time costs a lock.
        let mut stopped = pin!(stopped(stop));
        let mut quiet = pin!(tokio::time::sleep_until(quiet_since + self.shared.limits.recv_timeout));
        loop {
            if !stopping && !self.revoked {
                self.dispatch();
            }
            if !(self.flush().await && self.tell_core().await) {
                return End::Lost;
            }
            let idle = self.in_work.is_empty();
            let over = idle || self.in_work.is_polling();
            if self.revoked && over {
                self.part();
            }
            if stopping && over {
                return End::Shutdown;
            }
            if self.input == Input::Closing {
                return if self.flush().await { End::Done } else { End::Lost };
            }
            if idle && self.input != Input::Open {
                return End::Done;
            }
            let reading =
                self.input == Input::Open && !stopping && (idle || self.buffer.len() < AHEAD_BYTES_MAX);
            if reading {
                self.make_room();
            }
            tokio::select! {
                biased;
                received = self.line.inbox.recv_many(&mut answers, IN_FLIGHT_MAX) => {
                    if received == 0 {
                        return End::Lost;
                    }
                    self.now = Instant::now();
                    quiet_since = self.now;
                    answers.drain(..).for_each(|answer| self.answer(answer));
                }
                read = self.socket.read_buf(&mut self.buffer), if reading => match read {
                    Ok(0) => {
                        self.input = Input::Ended;
                        // A long poll has nobody left to wait for.
                        if self.in_work.is_polling() {
                            return End::Lost;
                        }
                    }
                    Ok(read) => {
                        self.shared.metrics.input_bytes.inc_by(read as u64);
                        self.arrived = Instant::now();
                        quiet_since = self.arrived;
                    }
                    Err(_) => return End::Lost,
                },
                () = &mut stopped, if !stopping => stopping = true,
                () = &mut quiet, if idle && self.stream.is_none() => {
                    // It was set when less had been heard.
                    let idle_until = quiet_since + self.shared.limits.recv_timeout;
                    if idle_until <= Instant::now() {
                        return End::Lost;
                    }
                    quiet.as_mut().reset(idle_until);
                }
            }
        }
    }

    /// Starts every request whose turn it is.
    fn dispatch(&mut self) {
        while !self.in_work.is_opening() {
            let Some(next) = self.next.take().or_else(|| self.decode()) else { return };
            match next {
                Next::Ask(slot, mut request) if self.in_work.admits(&request) => {
                    if let (Request::Fetch(fetch), Input::Ended) = (&mut request, self.input) {
                        fetch.wait_ms = 0;
                    }
                    self.ask(slot, request);
                }
                Next::Check(slot) if self.in_work.is_empty() => {
                    self.ask(slot, Request::Users(broker::Users::Check));
                }
                Next::Say(correlation_id, response) if self.in_work.is_empty() => {
                    response.encode(correlation_id, &mut self.out);
                }
                Next::Ask(..) | Next::Check(_) | Next::Say(..) => {
                    self.next = Some(next);
                    break;
                }
            }
        }
    }

    /// Hands a request to the core.
    pub(super) fn ask(&mut self, slot: Slot, request: Request) {
        self.shared.metrics.requested(slot.operation);
        let number = self.in_work.start(slot, &request);
        let id = RequestId { connection: self.line.id, number };
        self.events.push(Event::Request { id, session: self.session.clone(), request });
    }

    /// Sends what was gathered; `false` when the core is gone.
    async fn tell_core(&mut self) -> bool {
        if let Some(stream) = &mut self.stream
            && std::mem::take(&mut stream.pushing)
        {
            self.events.push(Event::Pushed { stream: stream.id });
        }
        self.events.is_empty() || self.line.core.send_all(std::mem::take(&mut self.events)).await
    }

    /// The next whole frame, decoded.
    fn decode(&mut self) -> Option<Next> {
        if matches!(self.input, Input::Refused(_) | Input::Closing) {
            return None;
        }
        match frame::take(&mut self.buffer, self.shared.limits.frame_bytes_max) {
            Ok(body) => Some(match Envelope::split(body?) {
                None => refusal(0, Reason::MalformedRequest),
                Some((envelope, payload)) if self.stream.is_some() => self.streaming(envelope, payload),
                Some((envelope, payload)) => self.request(envelope, payload),
            }),
            Err(_) => {
                self.input = Input::Refused(Reason::FrameTooLarge);
                None
            }
        }
    }

    fn request(&self, envelope: Envelope, payload: bytes::Bytes) -> Next {
        let Envelope { api_key, correlation_id } = envelope;
        let asked = translate::request(api_key, payload, self.shared.limits.frame_bytes_max);
        let slot = |then| self.slot(envelope, then);
        match asked {
            Ok(Ask::Node(request, form)) => {
                let mut slot = slot(Then::Answer(form));
                slot.change = Change::of(&request).map(Box::new);
                if let Request::Produce(produce) = &request {
                    if !self.may_publish() {
                        return self.refusal(slot, Reason::RateLimited);
                    }
                    slot.bytes = produce.records.len();
                } else if let Request::Subscribe(_) = &request {
                    slot.then = Then::Stream;
                }
                Next::Ask(slot, request)
            }
            Ok(Ask::Hash(new, password)) => {
                let change = Some(Box::new(new.change()));
                let allowed = self.shared.doors.passwords.allow(&password);
                let refused = Then::Refuse(Reason::InvalidPassword);
                let then = if allowed { Then::Hash(new, password) } else { refused };
                Next::Check(Slot { change, ..slot(then) })
            }
            Ok(Ask::Refuse(reason)) => Next::Check(slot(Then::Refuse(reason))),
            Ok(Ask::Answer(response)) => {
                self.shared.metrics.requested(ApiKey::Hello);
                self.shared.metrics.answered(ApiKey::Hello, &broker::Reply::Done, std::time::Duration::ZERO);
                Next::Say(correlation_id, response)
            }
            Err(reason) => match ApiKey::from_number(api_key) {
                Some(_) => self.refusal(slot(Then::Refuse(reason)), reason),
                None => refusal(correlation_id, reason),
            },
        }
    }

    /// A refusal of an operation there is.
    fn refusal(&self, slot: Slot, reason: Reason) -> Next {
        self.shared.metrics.refused(slot.operation, reason);
        refusal(slot.correlation_id, reason)
    }

    fn streaming(&self, envelope: Envelope, payload: bytes::Bytes) -> Next {
        match translate::stream_ack(envelope.api_key, payload) {
            Ok(request) => Next::Ask(self.slot(envelope, Then::Answer(Form::Records)), request),
            Err((reason, attributed)) => {
                refusal(if attributed { envelope.correlation_id } else { 0 }, reason)
            }
        }
    }

    fn slot(&self, envelope: Envelope, then: Then) -> Slot {
        let operation =
            ApiKey::from_number(envelope.api_key).expect("a request has an operation this build knows");
        Slot {
            correlation_id: envelope.correlation_id,
            operation,
            arrived: self.arrived,
            bytes: 0,
            then,
            change: None,
        }
    }

    fn may_publish(&self) -> bool {
        let publish = self.shared.doors.publish.as_ref();
        let may = publish.is_none_or(|buckets| buckets.take(&self.session.user, self.arrived).is_ok());
        if !may {
            self.shared.metrics.blocked("publish");
        }
        may
    }

    /// The user was changed or deleted: a stream is told so.
    fn part(&mut self) {
        if let Some(stream) = self.stream.take() {
            Response::Error(Reason::PermissionDenied).encode(stream.correlation_id, &mut self.out);
        }
        self.input = Input::Closing;
    }

    fn make_room(&mut self) {
        let wanted = frame::missing(&self.buffer).unwrap_or(PREFIX_BYTES);
        if self.buffer.capacity() - self.buffer.len() >= wanted.max(READ_ROOM_MIN) {
            return;
        }
        // Twice what has arrived at most: memory follows bytes, not claims.
        let most = READ_BYTES_MAX.min((2 * self.buffer.len()).max(READ_BYTES_MIN));
        self.buffer.reserve(wanted.clamp(READ_BYTES_MIN, most));
    }

    /// Writes what there is to write; `false` when that cannot be done in time.
    async fn flush(&mut self) -> bool {
        if !self.out.has_remaining() {
            return true;
        }
        self.shared.metrics.output_bytes.inc_by(self.out.remaining() as u64);
        socket::write(&mut self.socket, &mut self.out, self.shared.limits.send_timeout).await
    }
}

fn refusal(correlation_id: u32, reason: Reason) -> Next {
    Next::Say(correlation_id, Response::Error(reason))
}
