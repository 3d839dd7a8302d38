//! One connection between two nodes as a pure machine: bytes in, messages and bytes out.
//!
//! Owns the handshake, the frames, the streams of both directions, the calls, and when a silent peer is given up.
//! Does not read, write or wait: whoever drives it moves the bytes, tells the time, and looks in again when
//! [`Link::next_wake`] says so.
//!
//! Invariants:
//! - before the peer is proved nothing is sent or understood but the handshake;
//! - every call comes back exactly once: answered, failed, or from [`Link::abandon`];
//! - once broken, always broken: the last thing sent then is why.

mod calls;
mod frame;
mod handshake;
mod inbox;
mod outbox;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use types::{Instant, NodeId, limits};

pub use calls::CallId;
pub use inbox::Parcel;

use crate::hello::{Claim, Peer};
use crate::message::{Kind, Message, Shape, kind};
use crate::proof::{Role, Trust};
use crate::refusal::Refusal;
use crate::rope::Rope;
use crate::stream::StreamId;
use frame::{Frame, OWN, Own};
use handshake::{Handshake, Step};
use inbox::{Arrived, Inbox};
use outbox::Outbox;

const PING_AFTER: Duration = Duration::from_millis(limits::PEER_PING_MS);
const SILENCE: Duration = Duration::from_millis(limits::PEER_SILENCE_MS);

/// What a link begins with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Who this node is.
    pub claim: Claim,
    /// What it believes a peer for.
    pub trust: Trust,
    /// What the channel below has that no other has; the same on both sides. Empty without such a channel.
    pub binding: Bytes,
    /// Drawn for this connection alone.
    pub nonce: [u8; 32],
}

/// Why a link is of no use any more; one line for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// This side refuses the other.
    #[error("peer refused: {refusal}: {detail}")]
    Refuses {
        /// What it was told.
        refusal: Refusal,
        /// What it was not told.
        detail: String,
    },
    /// The other side refuses this one.
    #[error("refused by the peer: {0}")]
    RefusedBy(Refusal),
    /// The same, for a reason of a later build.
    #[error("refused by the peer for a reason that this build does not know, number {0}")]
    RefusedByLater(u16),
    /// The other side did not prove itself in time.
    #[error("the peer did not prove itself in time")]
    Unproved,
    /// Nothing was heard for too long.
    #[error("the peer is silent")]
    Silent,
    /// The bytes are not what the protocol says.
    #[error("the peer sends what makes no sense: {0}")]
    Malformed(&'static str),
}

/// Why something was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsent {
    /// The peer is not proved, or the link is broken.
    #[error("the connection is not up")]
    NotUp,
    /// As much waits already as may wait: the peer does not keep up.
    #[error("too much waits to be sent")]
    Full,
    /// It is larger than a message of its stream may be.
    #[error("the message is too large")]
    TooLarge,
}

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// Its time is over; the peer may or may not have done what was asked.
    Overdue,
    /// The peer does not know such calls; nothing was done.
    NotUnderstood,
}

/// What a connection brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// The peer is proved; from now on messages may be sent. Always the first.
    Up(Peer),
    /// A message that wants no answer.
    Said {
        /// The message.
        message: Message,
        /// To be released when the message is taken care of.
        parcel: Parcel,
    },
    /// A message that wants one: [`Link::answer`].
    Asked {
        /// Under which number.
        call: CallId,
        /// The message.
        message: Message,
        /// To be released when the message is taken care of.
        parcel: Parcel,
    },
    /// The answer to a call.
    Answered {
        /// Which one.
        call: CallId,
        /// The answer.
        message: Message,
        /// To be released when the message is taken care of.
        parcel: Parcel,
    },
    /// A call has no answer and will have none.
    Failed {
        /// Which one.
        call: CallId,
        /// Why.
        failure: CallFailure,
    },
    /// The peer no longer wants the answer to what it asked.
    Cancelled {
        /// Which one.
        call: CallId,
    },
    /// The peer does not know a kind of message that asks nothing; it was dropped there.
    NotUnderstood {
        /// The kind's number.
        kind: u16,
    },
}

#[derive(Debug)]
enum State {
    Handshake(Box<Handshake>),
    Up,
    Broken(Error),
}

/// One end of one connection.
#[derive(Debug)]
pub struct Link {
    state: State,
    incoming: BytesMut,
    out: Rope,
    inbox: Inbox,
    outbox: Outbox,
    made: calls::Outgoing,
    asked: calls::Incoming,
    cancels: VecDeque<CallId>,
    events: VecDeque<Received>,
    /// A sign of life the peer waits for.
    pong: Option<u64>,
    heard: Instant,
    /// When a sign of life was asked for last, and how often.
    pinged: (Instant, u64),
    looked: Instant,
}

impl Link {
    /// The end that dialled; `node` is whom it expects, if it knows.
    ///
    /// Panics when the setup's claim is not valid.
    #[must_use]
    pub fn dial(setup: Setup, node: Option<NodeId>, now: Instant) -> Self {
        Self::begin(setup, Role::Dialler, node, now)
    }

    /// The end that was dialled.
    ///
    /// Panics when the setup's claim is not valid.
    #[must_use]
    pub fn accept(setup: Setup, now: Instant) -> Self {
        Self::begin(setup, Role::Accepter, None, now)
    }

    fn begin(setup: Setup, role: Role, dialled: Option<NodeId>, now: Instant) -> Self {
        let deadline = now.plus(Duration::from_millis(limits::PEER_HANDSHAKE_MS));
        let (handshake, first) = Handshake::begin(setup, role, dialled, deadline);
        let mut out = Rope::new();
        if let Some(first) = first {
            first.put(out.fields());
        }
        Self {
            state: State::Handshake(Box::new(handshake)),
            incoming: BytesMut::new(),
            out,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            made: calls::Outgoing::default(),
            asked: calls::Incoming::default(),
            cancels: VecDeque::new(),
            events: VecDeque::new(),
            pong: None,
            heard: now,
            pinged: (now, 0),
            looked: now,
        }
    }

    /// Where received bytes are to be added. After each addition call [`receive`](Self::receive) until it gives
    /// nothing: then there is never more than one unfinished frame in it.
    pub fn incoming(&mut self) -> &mut BytesMut {
        &mut self.incoming
    }

    /// Bytes to be sent; take from the front what was. Little is put there ahead of need, so that what becomes
    /// urgent does not wait: ask again when it was sent.
    pub fn outgoing(&mut self) -> &mut Rope {
        match self.state {
            State::Handshake(_) | State::Broken(_) => {}
            State::Up => self.fill(),
        }
        &mut self.out
    }

    /// Both at once: bytes to be sent, and where received ones go.
    pub fn buffers(&mut self) -> (&mut Rope, &mut BytesMut) {
        self.outgoing();
        (&mut self.out, &mut self.incoming)
    }

    fn fill(&mut self) {
        use bytes::Buf as _;
        let mut own = || {
            if let Some(number) = self.pong.take() {
                return Some(Own::Pong(number));
            }
            if let Some((stream, bytes)) = self.inbox.credit() {
                return Some(Own::Credit { stream: stream.number(), bytes });
            }
            if let Some(call) = self.cancels.pop_front() {
                return Some(Own::Cancel(call.0));
            }
            self.asked.next_unknown().map(|(kind, call)| Own::Unknown { kind, call })
        };
        while self.out.remaining() < limits::PEER_OUT_BYTES {
            match own() {
                Some(frame) => frame.put(self.out.fields()),
                None => break,
            }
        }
        self.outbox.fill(&mut self.out);
    }

    /// Sends a message that wants no answer, on its own stream.
    ///
    /// Panics on one that does, or is one.
    pub fn say(&mut self, message: &Message) -> Result<(), Unsent> {
        assert_eq!(message.kind().shape(), Shape::Says, "calls and answers have methods of their own");
        self.push(message.stream(), message, 0)
    }

    /// Sends a message that wants an answer, on its own stream; the answer or a failure comes back under the number.
    ///
    /// Panics on any other.
    pub fn call(&mut self, message: &Message, now: Instant, deadline: Instant) -> Result<CallId, Unsent> {
        assert_eq!(message.kind().shape(), Shape::Asks, "only what asks has an answer");
        let call = self.made.make(message.kind(), now, deadline).ok_or(Unsent::Full)?;
        if let Err(unsent) = self.push(message.stream(), message, call.0) {
            self.made.forget(call);
            return Err(unsent);
        }
        Ok(call)
    }

    /// Answers a call, on the stream it came by. Nothing happens when the peer no longer wants it.
    ///
    /// Panics on an answer of another kind than was asked for.
    pub fn answer(&mut self, call: CallId, message: &Message) -> Result<(), Unsent> {
        let Some((asked, stream)) = self.asked.close(call) else { return Ok(()) };
        assert_eq!(message.kind().number(), kind::answer_to(asked), "an answer fits its question");
        self.push(stream, message, call.0)
    }

    /// The answer to a call is not wanted any more; it does not come back.
    pub fn cancel(&mut self, call: CallId) {
        if self.made.forget(call) {
            self.cancels.push_back(call);
        }
    }

    fn push(&mut self, stream: StreamId, message: &Message, call: u32) -> Result<(), Unsent> {
        use bytes::Buf as _;
        match self.state {
            State::Handshake(_) | State::Broken(_) => return Err(Unsent::NotUp),
            State::Up => {}
        }
        let mut bytes = Rope::new();
        message.encode(&mut bytes);
        if bytes.remaining() > stream.class().message_bytes_max() {
            return Err(Unsent::TooLarge);
        }
        let pushed = self.outbox.push(stream, message.kind().number(), call, bytes);
        if pushed { Ok(()) } else { Err(Unsent::Full) }
    }

    /// A message is taken care of: its stream may bring more.
    pub fn release(&mut self, parcel: &Parcel) {
        self.inbox.release(parcel);
    }

    /// Bytes that wait to be put into frames.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.outbox.bytes()
    }

    /// The next thing among the received bytes; `None` when more bytes are needed.
    ///
    /// After an error the link is of no use: send what is [`outgoing`](Self::outgoing), which tells the other side
    /// why, and close.
    pub fn receive(&mut self, now: Instant) -> Result<Option<Received>, Error> {
        self.looked = now;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let limit = match &self.state {
                State::Broken(error) => return Err(error.clone()),
                State::Handshake(_) => limits::PEER_HANDSHAKE_BYTES_MAX,
                State::Up => limits::PEER_CHUNK_BYTES,
            };
            let frame = match frame::take(&mut self.incoming, limit) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(None),
                Err(frame::TooLarge) => return Err(self.fail(Error::Malformed("a frame above the limit"))),
            };
            self.heard = now;
            self.take(frame).map_err(|error| self.fail(error))?;
        }
    }

    fn take(&mut self, frame: Frame) -> Result<(), Error> {
        match &mut self.state {
            State::Broken(error) => Err(error.clone()),
            State::Handshake(handshake) => {
                if frame.stream != OWN {
                    return Err(Error::Malformed("a message before a proof"));
                }
                match handshake.take(decode_own(frame)?)? {
                    Step::Send(own) => own.put(self.out.fields()),
                    Step::Up(own, peer) => {
                        if let Some(own) = own {
                            own.put(self.out.fields());
                        }
                        self.state = State::Up;
                        self.events.push_back(Received::Up(peer));
                    }
                }
                Ok(())
            }
            State::Up if frame.stream == OWN => self.take_own(decode_own(frame)?),
            State::Up => match self.inbox.take(frame).map_err(Error::Malformed)? {
                None => Ok(()),
                Some(arrived) => self.arrived(arrived),
            },
        }
    }

    fn take_own(&mut self, own: Own) -> Result<(), Error> {
        match own {
            Own::Hello(_) | Own::Proof(_) => return Err(Error::Malformed("a second handshake")),
            Own::Refused(why) => return Err(handshake::refused_by(why)),
            Own::Ping(number) => self.pong = Some(number),
            // Hearing it is all there is to it. What a later build adds here is its own affair.
            Own::Pong(_) | Own::Later(_) => {}
            Own::Credit { stream, bytes } => {
                let stream = StreamId::from_number(stream).ok_or(Error::Malformed("no such stream"))?;
                let credit = self.outbox.credit(stream, bytes);
                credit.map_err(|outbox::TooMuch| Error::Malformed("more credit than was used"))?;
            }
            Own::Cancel(call) => {
                let call = CallId(call);
                if self.asked.close(call).is_some() {
                    self.events.push_back(Received::Cancelled { call });
                }
            }
            Own::Unknown { kind, call: 0 } => self.events.push_back(Received::NotUnderstood { kind }),
            Own::Unknown { call, .. } => {
                let call = CallId(call);
                if self.made.forget(call) {
                    self.events.push_back(Received::Failed { call, failure: CallFailure::NotUnderstood });
                }
            }
        }
        Ok(())
    }

    fn arrived(&mut self, arrived: Arrived) -> Result<(), Error> {
        let Arrived { kind: number, call, bytes, parcel } = arrived;
        let Some(kind) = Kind::from_number(number) else {
            self.inbox.release(&parcel);
            return match Shape::of(number) {
                Some(Shape::Says | Shape::Asks) => {
                    self.asked.not_understood(number, call).map_err(Error::Malformed)
                }
                Some(Shape::Answers) | None => Err(Error::Malformed("an answer to nothing")),
            };
        };
        let message =
            Message::decode(kind, bytes).map_err(|_| Error::Malformed("a message that does not decode"))?;
        let event = match kind.shape() {
            Shape::Says => Received::Said { message, parcel },
            Shape::Asks => {
                let call = self.asked.open(call, number, parcel.stream).map_err(Error::Malformed)?;
                Received::Asked { call, message, parcel }
            }
            Shape::Answers => {
                if !self.made.answered(call, number).map_err(Error::Malformed)? {
                    self.inbox.release(&parcel);
                    return Ok(());
                }
                Received::Answered { call: CallId(call), message, parcel }
            }
        };
        self.events.push_back(event);
        Ok(())
    }

    /// Looks at the time: calls that are overdue fail, a quiet peer is asked for a sign of life, a silent one given
    /// up. Received bytes come first: what has arrived is not silence.
    pub fn tick(&mut self, now: Instant) -> Result<(), Error> {
        // Whoever was not looking cannot say that the other side was silent meanwhile.
        if now.since(self.looked) > SILENCE / 2 {
            self.heard = self.heard.max(now);
        }
        self.looked = now;
        match &self.state {
            State::Broken(error) => return Err(error.clone()),
            State::Handshake(handshake) => {
                let in_time = now < handshake.deadline();
                return if in_time { Ok(()) } else { Err(self.fail(Error::Unproved)) };
            }
            State::Up => {}
        }
        if now.since(self.heard) >= SILENCE {
            return Err(self.fail(Error::Silent));
        }
        while let Some((call, since)) = self.made.overdue(now) {
            self.cancels.push_back(call);
            self.events.push_back(Received::Failed { call, failure: CallFailure::Overdue });
            // Neither the answer nor the sign of life that was asked for meanwhile.
            if self.heard <= since && now.since(since) >= 2 * PING_AFTER {
                return Err(self.fail(Error::Silent));
            }
        }
        if now.since(self.heard) >= PING_AFTER && now.since(self.pinged.0) >= PING_AFTER {
            self.pinged = (now, self.pinged.1 + 1);
            Own::Ping(self.pinged.1).put(self.out.fields());
        }
        Ok(())
    }

    /// When [`tick`](Self::tick) is due.
    #[must_use]
    pub fn next_wake(&self) -> Instant {
        match &self.state {
            State::Handshake(handshake) => handshake.deadline(),
            State::Broken(_) => self.looked,
            State::Up => {
                let ping = self.heard.max(self.pinged.0).plus(PING_AFTER);
                self.made.next_deadline().map_or(ping, |deadline| deadline.min(ping))
            }
        }
    }

    /// Ends the connection from this side; the other is told why.
    pub fn refuse(&mut self, refusal: Refusal, detail: String) -> Error {
        self.fail(Error::Refuses { refusal, detail })
    }

    fn fail(&mut self, error: Error) -> Error {
        if let State::Broken(first) = &self.state {
            return first.clone();
        }
        let last_word = match &error {
            Error::Refuses { refusal, .. } => Some(*refusal),
            Error::Malformed(_) => Some(Refusal::Malformed),
            Error::RefusedBy(_) | Error::RefusedByLater(_) | Error::Unproved | Error::Silent => None,
        };
        if let Some(refusal) = last_word {
            Own::Refused(refusal.number()).put(self.out.fields());
        }
        self.incoming = BytesMut::new();
        self.state = State::Broken(error.clone());
        error
    }

    /// Gives up: every call without an answer, in the order they were made until numbers wrap.
    pub fn abandon(&mut self) -> Vec<CallId> {
        self.made.abandon()
    }
}

fn decode_own(frame: Frame) -> Result<Own, Error> {
    Own::decode(frame.kind, frame.body).map_err(|_| Error::Malformed("a frame of the connection"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]
mod tests;
