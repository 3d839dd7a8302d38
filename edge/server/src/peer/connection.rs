//! One connection, from its first byte to its last: moves bytes, time, commands and events between a socket, a link
//! and the rest of the node.
//!
//! Nothing here waits for one thing while another could be done: a peer that does not read does not keep this node
//! from hearing it, and events that nobody takes do not keep it from being answered.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use peer::{CallId, Error, Link, Parcel, Peer, Received, Refusal, Rope, Unsent};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep_until, timeout};
use types::NodeId;

use super::table::{Commands, Entry, Heard, Orders};
use super::{Caller, Cause, Command, Ending, Failure, PeerEvent, Shared, stopped};
use crate::tcp::gate::Entered;

/// Least room for reading, and how much is made when there is less.
const READ_BYTES: (usize, usize) = (16 * 1024, 128 * 1024);
/// Commands obeyed before the socket is looked at again.
const COMMANDS_AT_ONCE: usize = 256;
/// How long the peer may take to read a last word.
const LINGER: Duration = Duration::from_secs(1);

/// What a link is driven over.
pub(super) trait Channel: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Channel for T {}

/// How a connection ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Who it was, when that was proved.
    pub(super) node: Option<NodeId>,
    /// Whether it was the connection to that node for a while.
    pub(super) counted: bool,
    pub(super) cause: Cause,
}

impl From<Error> for Cause {
    fn from(error: Error) -> Self {
        Self::Protocol(error)
    }
}

impl From<std::io::Error> for Cause {
    fn from(error: std::io::Error) -> Self {
        Self::Channel(error.to_string())
    }
}

impl<T> From<SendError<T>> for Cause {
    fn from(_: SendError<T>) -> Self {
        Self::Ending
    }
}

struct Connection {
    link: Link,
    shared: Arc<Shared>,
    number: u64,
    /// Who dialled, when it was this node.
    dialled_by: Option<NodeId>,
    node: Option<NodeId>,
    /// Whether it is, or was, the connection to that node.
    counts: bool,
    /// The one whose place it took, until that one's end has been told of.
    before: Option<watch::Receiver<()>>,
    told: (watch::Sender<()>, watch::Receiver<()>),
    commands: (Commands, Orders),
    end: (mpsc::Sender<Ending>, mpsc::Receiver<Ending>),
    /// Events that wait for room, with what they hold of a window: no more than the windows allow.
    pending: VecDeque<(PeerEvent, Option<Parcel>)>,
    tokens: BTreeMap<CallId, u64>,
    calls: BTreeMap<u64, CallId>,
    /// Dropped once the peer is proved.
    unproved: Option<Entered>,
    heard: Heard,
}

/// Drives a link until it ends. `dialled_by` is this node when it dialled, `None` when it was dialled.
pub(super) async fn run(
    link: Link,
    mut channel: Box<dyn Channel>,
    dialled_by: Option<NodeId>,
    unproved: Option<Entered>,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) -> Ended {
    let mut connection = Connection {
        link,
        number: shared.next_connection(),
        dialled_by,
        node: None,
        counts: false,
        before: None,
        told: watch::channel(()),
        commands: Commands::new(shared.queue_max),
        end: mpsc::channel(1),
        pending: VecDeque::new(),
        tokens: BTreeMap::new(),
        calls: BTreeMap::new(),
        unproved,
        heard: Heard::default(),
        shared,
    };
    let cause = connection.drive(&mut channel, &mut stop).await;
    connection.tell_end(&cause).await;
    let Connection { node, counts: counted, mut link, told, .. } = connection;
    drop(told);
    // The last word, if there is one, and a moment to read it.
    drop(timeout(LINGER, last_word(&mut link, &mut channel)).await);
    Ended { node, counted, cause }
}

async fn last_word(link: &mut Link, channel: &mut Box<dyn Channel>) -> std::io::Result<()> {
    while !link.outgoing().is_empty() {
        channel.write_buf(link.outgoing()).await?;
    }
    channel.flush().await?;
    channel.shutdown().await?;
    let mut sink = [0; 1024];
    while channel.read(&mut sink).await? > 0 {}
    Ok(())
}

impl Connection {
    async fn drive(&mut self, channel: &mut Box<dyn Channel>, stop: &mut watch::Receiver<bool>) -> Cause {
        let (mut reader, mut writer) = tokio::io::split(channel);
        let (mut unflushed, events) = (false, self.shared.events.clone());
        // Kept over all turns: to ask for either anew each time costs a lock.
        let mut stopped = pin!(stopped(stop));
        let mut alarm = pin!(sleep_until(self.shared.clock.at(self.link.next_wake())));
        loop {
            if let Err(cause) = self.take_received() {
                return cause;
            }
            let wake = self.shared.clock.at(self.link.next_wake());
            // One that comes too early costs a look.
            if wake < alarm.deadline() {
                alarm.as_mut().reset(wake);
            }
            let (outgoing, incoming) = self.link.buffers();
            let has_outgoing = !outgoing.is_empty();
            if incoming.capacity() - incoming.len() < READ_BYTES.0 {
                incoming.reserve(READ_BYTES.1);
            }
            let next: Result<(), Cause> = tokio::select! {
                () = &mut stopped => {
                    Err(self.link.refuse(Refusal::Closing, "this node shuts down".to_owned()).into())
                }
                Some(Ending { refusal, detail }) = self.end.1.recv() => {
                    Err(self.link.refuse(refusal, detail).into())
                }
                read = reader.read_buf(incoming) => match read {
                    Ok(0) => Err(Cause::Channel("the peer closed the connection".to_owned())),
                    Ok(_) => {
                        self.heard.set(self.shared.clock.now());
                        Ok(())
                    }
                    Err(error) => Err(error.into()),
                },
                // TLS keeps what it could not send until it is flushed.
                written = write(&mut writer, outgoing), if has_outgoing || unflushed => {
                    unflushed = has_outgoing;
                    written.map_err(Cause::from)
                }
                () = told(&mut self.before), if self.before.is_some() => {
                    self.before = None;
                    Ok(())
                }
                room = events.reserve(), if self.before.is_none() && !self.pending.is_empty() => match room {
                    Ok(room) => {
                        self.hand_over(room);
                        while !self.pending.is_empty() && let Ok(room) = events.try_reserve() {
                            self.hand_over(room);
                        }
                        Ok(())
                    }
                    Err(error) => Err(error.into()),
                },
                Some(commands) = self.commands.1.next() => self.obey_all(commands),
                () = &mut alarm => {
                    let ticked = self.link.tick(self.shared.clock.now()).map_err(Cause::from);
                    alarm.as_mut().reset(self.shared.clock.at(self.link.next_wake()));
                    ticked
                }
            };
            if let Err(cause) = next {
                return cause;
            }
        }
    }

    fn take_received(&mut self) -> Result<(), Cause> {
        let now = self.shared.clock.now();
        while let Some(received) = self.link.receive(now)? {
            self.received(received)?;
        }
        Ok(())
    }

    /// Hands the oldest event to who listens: the peer may send as much more.
    fn hand_over(&mut self, room: mpsc::Permit<'_, PeerEvent>) {
        if let Some((event, parcel)) = self.pending.pop_front() {
            room.send(event);
            parcel.iter().for_each(|parcel| self.link.release(parcel));
        }
    }

    fn received(&mut self, received: Received) -> Result<(), Cause> {
        let (event, parcel) = match received {
            Received::Up(peer) => return self.up(peer),
            Received::Said { message, parcel } => {
                (PeerEvent::Message { node: self.proved(), message }, Some(parcel))
            }
            Received::Asked { call, message, parcel } => {
                let caller = Caller { connection: self.number, call };
                (PeerEvent::Asked { node: self.proved(), caller, message }, Some(parcel))
            }
            Received::Answered { call, message, parcel } => {
                let token = self.forget(call).expect("a call comes back once");
                (PeerEvent::Answered { node: self.proved(), token, message }, Some(parcel))
            }
            Received::Failed { call, failure } => {
                let token = self.forget(call).expect("a call comes back once");
                (PeerEvent::Failed { node: self.proved(), token, failure: failure.into() }, None)
            }
            Received::Cancelled { call } => {
                (PeerEvent::Cancelled { caller: Caller { connection: self.number, call } }, None)
            }
            Received::NotUnderstood { kind } => {
                tracing::debug!(node = %self.proved(), kind, "a peer does not know a kind of message");
                return Ok(());
            }
        };
        self.pending.push_back((event, parcel));
        Ok(())
    }

    /// The peer is proved: from now on this may be the connection that counts.
    fn up(&mut self, peer: Peer) -> Result<(), Cause> {
        let node = peer.claim.node;
        let entry = Entry {
            connection: self.number,
            incarnation: peer.claim.incarnation,
            address: peer.claim.address.clone(),
            dialled_by: self.dialled_by.unwrap_or(node),
            commands: self.commands.0.clone(),
            end: self.end.0.clone(),
            told: self.told.1.clone(),
            heard: self.heard.clone(),
        };
        self.unproved = None;
        self.node = Some(node);
        match self.shared.table.enter(node, entry, self.shared.clock.now()) {
            Ok(replaced) => {
                self.counts = true;
                self.before = replaced.map(|entry| entry.told);
                tracing::info!(%node, name = peer.claim.name, build = peer.claim.build, "peer connected");
                self.pending.push_back((PeerEvent::Up { node, peer }, None));
                Ok(())
            }
            Err(refusal) => {
                let name = peer.claim.name;
                Err(self.link.refuse(refusal, format!("{name} ({node}) is connected already")).into())
            }
        }
    }

    /// Obeys commands and what waits behind them, so that small messages share a write.
    fn obey_all(&mut self, commands: Vec<Command>) -> Result<(), Cause> {
        let mut next = Some(commands);
        let mut count = 0;
        while let Some(commands) = next {
            count += commands.len();
            commands.into_iter().try_for_each(|command| self.obey(command))?;
            next = if count < COMMANDS_AT_ONCE { self.commands.1.waiting() } else { None };
        }
        Ok(())
    }

    fn obey(&mut self, command: Command) -> Result<(), Cause> {
        let sent = match command {
            Command::Say(message) => self.link.say(&message),
            Command::Call { token, message, within } => {
                let now = self.shared.clock.now();
                match self.link.call(&message, now, now.plus(within)) {
                    Ok(call) => {
                        self.tokens.insert(call, token);
                        self.calls.insert(token, call);
                        Ok(())
                    }
                    Err(unsent) => {
                        let (node, failure) = (self.proved(), Failure::Unsent(unsent));
                        self.pending.push_back((PeerEvent::Failed { node, token, failure }, None));
                        Err(unsent)
                    }
                }
            }
            Command::Cancel { token } => {
                if let Some(call) = self.calls.remove(&token) {
                    self.tokens.remove(&call);
                    self.link.cancel(call);
                }
                Ok(())
            }
            Command::Answer { caller, message } if caller.connection == self.number => {
                self.link.answer(caller.call, &message)
            }
            Command::Answer { .. } => Ok(()),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(Unsent::Full) => {
                let detail = "it does not keep up with what it is sent".to_owned();
                Err(self.link.refuse(Refusal::Busy, detail).into())
            }
            Err(unsent @ (Unsent::TooLarge | Unsent::NotUp)) => {
                tracing::warn!(node = %self.proved(), reason = %unsent, "message not sent");
                Ok(())
            }
        }
    }

    fn forget(&mut self, call: CallId) -> Option<u64> {
        let token = self.tokens.remove(&call)?;
        self.calls.remove(&token);
        Some(token)
    }

    fn proved(&self) -> NodeId {
        self.node.expect("messages and commands come after the proof")
    }

    /// Tells of the end what there is to tell: every call without an answer, then that the node is down. Its place is
    /// free only after that: a connection that found none would tell that the node is up before this one has told that
    /// it is down, and whoever listens would go on without a node that is there.
    async fn tell_end(&mut self, cause: &Cause) {
        let Some(node) = self.node else { return };
        self.tell_all(node, cause).await;
        self.shared.table.leave(node, self.number);
    }

    async fn tell_all(&mut self, node: NodeId, cause: &Cause) {
        // From here on nobody hands anything over; what was handed over last is seen by the loop below.
        self.commands.1.close();
        let mut failed: Vec<u64> =
            self.link.abandon().into_iter().filter_map(|call| self.forget(call)).collect();
        while let Some(commands) = self.commands.1.waiting() {
            failed.extend(commands.into_iter().filter_map(|command| match command {
                Command::Call { token, .. } => Some(token),
                Command::Say(_) | Command::Cancel { .. } | Command::Answer { .. } => None,
            }));
        }
        for token in failed {
            let event = PeerEvent::Failed { node, token, failure: Failure::Disconnected };
            self.pending.push_back((event, None));
        }
        if self.counts {
            tracing::info!(%node, reason = %cause, "peer disconnected");
            self.pending.push_back((PeerEvent::Down { node, why: cause.to_string() }, None));
        }
        told(&mut self.before).await;
        // All of them and in order: whoever counts on one `Down` for each `Up` is not let down by a full queue.
        for (event, _) in self.pending.drain(..) {
            if self.shared.events.send(event).await.is_err() {
                return;
            }
        }
    }
}

/// Writes some of what there is, or flushes when there is nothing. Given up half-way, it has done nothing.
async fn write(writer: &mut (impl AsyncWrite + Unpin), outgoing: &mut Rope) -> std::io::Result<()> {
    if outgoing.is_empty() { writer.flush().await } else { writer.write_buf(outgoing).await.map(drop) }
}

/// Ends when the connection before, if there is one, has told of its end.
async fn told(before: &mut Option<watch::Receiver<()>>) {
    if let Some(before) = before {
        // Nothing is ever sent: an error means that the sender is gone.
        while before.changed().await.is_ok() {}
    }
}
