//! Connections to the other nodes: dialled, accepted, kept at one for each node, and driven.
//!
//! Owns the peer port's listener, who is dialled and when again, and which of two connections stays. What is said on
//! one is decided elsewhere: messages come out as [`PeerEvent`]s and go in by [`Peers::send`]. The protocol itself is
//! the `peer` crate's.
//!
//! Invariants:
//! - a node is up at most once at a time: `Up` and `Down` of one node alternate, beginning with `Up`;
//! - a connection whose queue is full is given up, and nothing here ever waits for a slow peer;
//! - a stream whose messages the events' receiver does not take comes to a stop at the sender, within its window.

mod backoff;
mod connection;
mod dial;
mod listen;
mod table;
mod tls;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use peer::message::Shape;
use peer::{CallFailure, CallId, Claim, Message, Peer, Refusal, Setup, Trust, Unsent};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use types::{ControlPlaneId, Instant, NodeId};

use crate::clock::Clock;
use table::Table;
pub use tls::{Tls, TlsFiles, Unusable};

/// Between two lines about those who come and are refused.
const LINES_APART: Duration = Duration::from_secs(1);

/// How this node meets the others.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who it is. Its texts are printable and short: [`Claim::is_valid`].
    pub claim: Claim,
    /// What it believes a peer for. [`Trust::Certificate`] without TLS is a mistake of the caller's.
    pub trust: Trust,
    /// Mutual TLS; `None` is plaintext.
    pub tls: Option<Tls>,
    /// Commands that wait for one peer's connection; one more, and the connection is given up.
    pub queue_max: usize,
}

/// Somebody to be dialled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// `host:port`; the host is a name, looked up at each attempt, or a number, IPv6 in brackets.
    pub address: String,
    /// Who has to answer; `None` takes whoever does.
    pub node: Option<NodeId>,
}

/// A call that a peer made, and the connection it came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    connection: u64,
    call: CallId,
}

#[cfg(test)]
impl Caller {
    pub(crate) fn of(connection: u64, call: u32) -> Self {
        Self { connection, call: CallId(call) }
    }
}

/// What happens with the other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// A node is connected and has proved who it is.
    Up {
        /// Which one.
        node: NodeId,
        /// What it claims.
        peer: Peer,
    },
    /// It is no longer connected. Calls without an answer have failed by now, each by itself.
    Down {
        /// Which one.
        node: NodeId,
        /// One line.
        why: String,
    },
    /// It says something.
    Message {
        /// Who.
        node: NodeId,
        /// What.
        message: Message,
    },
    /// It asks something.
    Asked {
        /// Who.
        node: NodeId,
        /// Where the answer goes: [`Command::Answer`].
        caller: Caller,
        /// What.
        message: Message,
    },
    /// It no longer wants the answer.
    Cancelled {
        /// Which one.
        caller: Caller,
    },
    /// The answer to a [`Command::Call`].
    Answered {
        /// Who answers.
        node: NodeId,
        /// The call's.
        token: u64,
        /// The answer.
        message: Message,
    },
    /// A [`Command::Call`] has no answer and will have none.
    Failed {
        /// Who was asked.
        node: NodeId,
        /// The call's.
        token: u64,
        /// Why.
        failure: Failure,
    },
    /// A connection did not come about, or somebody was refused. Told as far as there is room: a stranger cannot fill
    /// the queue with it.
    Refused {
        /// Where the other side is.
        address: String,
        /// Why.
        cause: Cause,
    },
}

/// Why a connection ended or did not come about; one line for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// By the protocol.
    #[error("{0}")]
    Protocol(peer::Error),
    /// By what is below it: names, TCP, TLS.
    #[error("{0}")]
    Channel(String),
    /// This node does not listen any more.
    #[error("this node ends")]
    Ending,
}

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its time is over; it may have been done.
    Overdue,
    /// The peer does not know such calls; nothing was done.
    NotUnderstood,
    /// The connection ended; it may have been done.
    Disconnected,
    /// It was never sent.
    Unsent(Unsent),
}

impl From<CallFailure> for Failure {
    fn from(failure: CallFailure) -> Self {
        match failure {
            CallFailure::Overdue => Self::Overdue,
            CallFailure::NotUnderstood => Self::NotUnderstood,
        }
    }
}

/// What to do on a node's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Say something that wants no answer.
    Say(Message),
    /// Ask something; the answer or a failure comes back with the token.
    Call {
        /// The caller's own; not in use on this connection.
        token: u64,
        /// The question.
        message: Message,
        /// For how long the answer is of use.
        within: Duration,
    },
    /// The answer to a call is not wanted any more and does not come back.
    Cancel {
        /// The call's.
        token: u64,
    },
    /// Answer what a peer asked. Nothing happens when its connection is gone.
    Answer {
        /// Who asked.
        caller: Caller,
        /// The answer.
        message: Message,
    },
}

impl Command {
    /// Whether its message is of the shape it is for.
    fn fits(&self) -> bool {
        match self {
            Self::Say(message) => message.kind().shape() == Shape::Says,
            Self::Call { message, .. } => message.kind().shape() == Shape::Asks,
            Self::Answer { message, .. } => message.kind().shape() == Shape::Answers,
            Self::Cancel { .. } => true,
        }
    }
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// There is no connection to that node.
    #[error("not connected")]
    NotConnected,
    /// Its queue is full; the connection is given up.
    #[error("the queue is full")]
    Full,
}

/// A connection is to end.
#[derive(Clone, Debug)]
struct Ending {
    refusal: Refusal,
    detail: String,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    claim: Mutex<Claim>,
    trust: Trust,
    tls: Option<Tls>,
    queue_max: usize,
    clock: Clock,
    table: Table,
    events: mpsc::Sender<PeerEvent>,
    connections: AtomicU64,
    /// When a line was last written about somebody who was refused.
    told: Mutex<Option<Instant>>,
}

impl Shared {
    fn setup(&self, binding: Bytes) -> std::io::Result<Setup> {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Setup { claim: self.claim(), trust: self.trust.clone(), binding, nonce })
    }

    fn claim(&self) -> Claim {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether another line may be written about those who come: strangers can be refused as often as they like.
    fn may_tell(&self) -> bool {
        let now = self.clock.now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let may = told.is_none_or(|told| now.since(told) >= LINES_APART);
        if may {
            *told = Some(now);
        }
        may
    }

    /// Tells of a connection that did not come about.
    fn refused(&self, address: &str, cause: &Cause) {
        let (address, cause) = (address.to_owned(), cause.clone());
        // A full queue has more important things in it.
        drop(self.events.try_send(PeerEvent::Refused { address, cause }));
    }
}

/// The connections of this node to all others. Cheap to copy; all copies are the same.
#[derive(Clone, Debug)]
pub struct Peers {
    shared: Arc<Shared>,
    targets: watch::Sender<Vec<Target>>,
    stop: watch::Sender<bool>,
}

/// The tasks behind a [`Peers`].
#[derive(Debug)]
pub struct Running(JoinHandle<()>);

impl Running {
    /// Waits until the last connection has ended, after [`Peers::stop`]. What there is to tell of their ends is told
    /// first, so take the events meanwhile, or drop their receiver.
    pub async fn ended(self) {
        if let Err(error) = self.0.await {
            tracing::error!(%error, "peer connections failed");
        }
    }
}

impl Peers {
    /// Begins to listen and to dial; needs a runtime. What happens goes to `events`, whose receiver decides by its
    /// pace how fast the peers may send.
    ///
    /// Panics when the settings contradict themselves.
    #[must_use]
    pub fn start(
        settings: Settings,
        listener: TcpListener,
        events: mpsc::Sender<PeerEvent>,
    ) -> (Self, Running) {
        let Settings { claim, trust, tls, queue_max } = settings;
        assert!(claim.is_valid(), "a node's own texts are checked where they come from");
        assert!(trust != Trust::Certificate || tls.is_some(), "certificates are seen by TLS alone");
        let shared = Arc::new(Shared {
            claim: Mutex::new(claim),
            trust,
            tls,
            queue_max: queue_max.max(1),
            clock: Clock::new(),
            table: Table::new(),
            events,
            connections: AtomicU64::new(1),
            told: Mutex::new(None),
        });
        let (targets, stop) = (watch::Sender::new(Vec::new()), watch::Sender::new(false));
        let mut tasks = JoinSet::new();
        tasks.spawn(listen::serve(listener, Arc::clone(&shared), stop.subscribe()));
        tasks.spawn(dial::keep(Arc::clone(&shared), targets.subscribe(), stop.subscribe()));
        let running = tokio::spawn(async move {
            while let Some(ended) = tasks.join_next().await {
                log_panic(ended);
            }
        });
        (Self { shared, targets, stop }, Running(running))
    }

    /// Sets who is dialled from now on. Connections that are up stay up.
    pub fn dial(&self, mut targets: Vec<Target>) {
        targets.sort_unstable();
        targets.dedup();
        self.targets.send_replace(targets);
    }

    /// Hands over what to do on the connection to `node`, in order; never waits. Gives back all of it when it is not
    /// taken.
    ///
    /// Panics on a command with a message of another shape than it is for.
    pub fn send(&self, node: NodeId, commands: Vec<Command>) -> Result<(), (Trouble, Vec<Command>)> {
        assert!(commands.iter().all(Command::fits), "a message fits its command");
        self.shared.table.send(node, commands)
    }

    /// This node belongs to a cluster from now on; said on connections that come.
    pub fn join(&self, control_plane: ControlPlaneId) {
        self.shared.claim.lock().unwrap_or_else(PoisonError::into_inner).control_plane = Some(control_plane);
    }

    /// Ends every connection so that it is made anew: what this node claims is another now.
    pub fn renew(&self) {
        self.shared.table.end_all(Refusal::Closing, "it is made anew");
    }

    /// Ends every connection, after telling the other side.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// Ends when the node shuts down.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that whoever could say so is gone: the same.
    drop(stop.wait_for(|stop| *stop).await);
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "peer connection task failed");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]
mod tests;
