//! The core thread: collects events, steps the node, performs its actions.
//!
//! Owns the queues into the core, the table of connections, and the one timer. Decides nothing.
//!
//! Invariants:
//! - only this thread touches the node, and it never waits for anything but its queues;
//! - requests wait in a bounded queue, so a slow core slows its clients; completions have a queue of their
//!   own and come first, because only they free what requests wait for.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use broker::{Action, Actions, ConnectionId, Event, Node, Reply, Session, Stop, Volume};
use storage::disk::{Completion, Job};
use tokio::sync::{mpsc, oneshot, watch};
use types::{Incarnation, NodeId};

use crate::audit::{Kind, Line};
use crate::clock::Clock;
use crate::cluster::Others;
use crate::disk::RealDisk;
use crate::identity::{Doors, Generated};
use crate::line::Answer;
use crate::metrics::{Metrics, Observed};
use crate::notices;
use crate::peer::PeerEvent;

/// Batches of client events waiting for the core.
const INPUTS_MAX: usize = 1024;
/// What other nodes say, waiting for the core, in pieces of up to 64; they are slowed down beyond it.
const PEERS_MAX: usize = 8;
/// Completions waiting for the core; a disk thread that finds it full waits.
const COMPLETIONS_MAX: usize = 16 * 1024;
/// How long whoever looks waits for the core.
const OBSERVE_WAIT: Duration = Duration::from_millis(500);
/// Events taken before actions are performed.
const BATCH_MAX: usize = 256;

/// What comes from the connections.
#[derive(Debug)]
enum Input {
    Connect(ConnectionId, mpsc::Sender<Answer>),
    Event(Event),
    Events(Vec<Event>),
    /// Somebody looks at the metrics.
    Observe(oneshot::Sender<Observed>),
}

/// What comes from the other nodes.
#[derive(Debug)]
pub(crate) enum FromPeers {
    /// By connections, in order.
    Events(Vec<PeerEvent>),
    /// By failure detection.
    Seen {
        node: NodeId,
        /// Of the life that is spoken of.
        incarnation: Incarnation,
        status: membership::Status,
    },
}

/// The way into the core, for connection tasks.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    inputs: mpsc::Sender<Input>,
    next: Arc<AtomicU64>,
}

impl Core {
    /// Makes a connection known, so that it can be answered; `None` when the core is gone.
    pub(crate) async fn connect(&self, answers: mpsc::Sender<Answer>) -> Option<ConnectionId> {
        let id = ConnectionId(self.next.fetch_add(1, Ordering::Relaxed));
        self.inputs.send(Input::Connect(id, answers)).await.is_ok().then_some(id)
    }

    /// Waits for room; `false` when the core is gone.
    pub(crate) async fn send(&self, event: Event) -> bool {
        self.inputs.send(Input::Event(event)).await.is_ok()
    }

    /// The same for several events, in order.
    pub(crate) async fn send_all(&self, events: Vec<Event>) -> bool {
        self.inputs.send(Input::Events(events)).await.is_ok()
    }
}

/// The way into the core for who only looks.
#[derive(Clone, Debug)]
pub(crate) struct WeakCore {
    inputs: mpsc::WeakSender<Input>,
    next: Arc<AtomicU64>,
}

impl WeakCore {
    /// `None` when the core is gone.
    pub(crate) fn upgrade(&self) -> Option<Core> {
        Some(Core { inputs: self.inputs.upgrade()?, next: self.next.clone() })
    }

    /// How the core and its disks are; `None` when it does not say so in time.
    pub(crate) async fn observe(&self) -> Option<Observed> {
        let (tell, told) = oneshot::channel();
        let ask = async {
            self.inputs.upgrade()?.send(Input::Observe(tell)).await.ok()?;
            told.await.ok()
        };
        tokio::time::timeout(OBSERVE_WAIT, ask).await.ok().flatten()
    }
}

/// How the core is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Recovering,
    Serving,
    /// It serves, and has handed over what it could: the process may end.
    Left,
    /// Nothing is served until a later build runs.
    Suspended,
    Stopped(Stop),
}

/// Where a disk thread puts its completions.
pub(crate) type Completions = mpsc::Sender<(Volume, Completion)>;

/// Made before the disks are opened, because they need to know where completions go.
#[derive(Debug)]
pub(crate) struct Queues {
    inputs: (mpsc::Sender<Input>, mpsc::Receiver<Input>),
    completions: (Completions, mpsc::Receiver<(Volume, Completion)>),
    peers: (mpsc::Sender<FromPeers>, mpsc::Receiver<FromPeers>),
    next: Arc<AtomicU64>,
}

impl Queues {
    pub(crate) fn new() -> Self {
        Self {
            inputs: mpsc::channel(INPUTS_MAX),
            completions: mpsc::channel(COMPLETIONS_MAX),
            peers: mpsc::channel(PEERS_MAX),
            next: Arc::default(),
        }
    }

    /// A way in for who only looks, before there is a core.
    pub(crate) fn weak(&self) -> WeakCore {
        WeakCore { inputs: self.inputs.0.downgrade(), next: self.next.clone() }
    }

    /// The way in for what other nodes say.
    pub(crate) fn peers(&self) -> mpsc::Sender<FromPeers> {
        self.peers.0.clone()
    }

    /// Opens one disk whose completions come here.
    pub(crate) fn open_disk(&self, volume: Volume, root: &Path) -> std::io::Result<RealDisk> {
        let completions = self.completions.0.clone();
        RealDisk::open(root, &crate::disk::Options::default(), move |completion| {
            // The core is gone only when the process is about to end.
            drop(completions.blocking_send((volume, completion)));
        })
    }
}

/// Both data directories.
#[derive(Debug)]
pub(crate) struct Disks {
    pub(crate) log: RealDisk,
    pub(crate) raft: RealDisk,
}

/// A running core. It ends when the last [`Core`] is dropped, or when the node stops.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) core: Core,
    pub(crate) state: watch::Receiver<State>,
    pub(crate) thread: std::thread::JoinHandle<()>,
}

/// What the core's actions reach besides disks and connections.
#[derive(Debug)]
pub(crate) struct Around {
    pub(crate) clock: Clock,
    pub(crate) doors: Arc<Doors>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) others: Others,
    /// To be told when its user was made.
    pub(crate) generated: Option<Generated>,
}

/// Starts the core thread.
pub(crate) fn start(node: Node, disks: Disks, queues: Queues, around: Around) -> std::io::Result<Running> {
    let (inputs_in, inputs) = queues.inputs;
    // The disks hold the senders that matter: without them nothing can complete.
    let (_, completions) = queues.completions;
    // Kept, so that a queue that nobody puts anything into does not end.
    let (peers_in, peers) = queues.peers;
    let (state_in, state) = watch::channel(State::Recovering);
    // Only a timer is needed: the runtime is a queue with a deadline.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let driver = Driver {
        node,
        disks,
        around,
        actions: Actions::new(),
        log_jobs: Vec::new(),
        connections: HashMap::new(),
        waiting: (0, 0),
        wake_at: None,
        now: types::Instant(0),
        state: state_in,
    };
    let body = move || {
        runtime.block_on(driver.run(inputs, completions, peers));
        drop(peers_in);
    };
    let thread = std::thread::Builder::new().name("core".to_owned()).spawn(body)?;
    Ok(Running { core: Core { inputs: inputs_in, next: queues.next }, state, thread })
}

/// Who can be answered.
struct Peer {
    answers: mpsc::Sender<Answer>,
    /// Once it has logged in.
    session: Option<Session>,
}

struct Driver {
    node: Node,
    disks: Disks,
    around: Around,
    actions: Actions,
    /// Jobs of the burst under way.
    log_jobs: Vec<Job>,
    connections: HashMap<ConnectionId, Peer>,
    /// Batches of requests and completions that were left waiting by the burst under way.
    waiting: (usize, usize),
    wake_at: Option<types::Instant>,
    /// Of the burst under way.
    now: types::Instant,
    state: watch::Sender<State>,
}

impl Driver {
    async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Input>,
        mut completions: mpsc::Receiver<(Volume, Completion)>,
        mut peers: mpsc::Receiver<FromPeers>,
    ) {
        let mut completed = Vec::new();
        let mut said = Vec::new();
        let mut arrived = Vec::new();
        self.begin_burst();
        self.step_all([Event::Start]);
        self.end_burst();
        while !matches!(*self.state.borrow(), State::Stopped(_)) {
            let wake = self.around.clock.at(self.wake_at.unwrap_or(types::Instant(u64::MAX / 2)));
            let mut woken = false;
            tokio::select! {
                biased;
                _ = completions.recv_many(&mut completed, BATCH_MAX) => {}
                // Never the end: the thread holds a sender.
                _ = peers.recv_many(&mut said, BATCH_MAX) => {}
                // Something failed before it began.
                () = std::future::ready(()), if self.around.others.has_unsent() => {}
                count = inputs.recv_many(&mut arrived, BATCH_MAX) => {
                    if count == 0 {
                        return;
                    }
                }
                () = tokio::time::sleep_until(wake), if self.wake_at.is_some() => woken = true,
            }
            let started = std::time::Instant::now();
            self.begin_burst();
            if woken {
                self.step_all([Event::Timer]);
            }
            if !completed.is_empty() {
                self.step_all(completed.drain(..).map(|(volume, done)| Event::Disk(volume, done)));
            }
            let unsent = self.around.others.take_unsent();
            if !said.is_empty() || !unsent.is_empty() {
                // Clients have their turn while nodes talk.
                while arrived.len() < BATCH_MAX
                    && let Ok(input) = inputs.try_recv()
                {
                    arrived.push(input);
                }
                let mut events = Vec::new();
                for from in said.drain(..) {
                    self.around.others.events(from, &mut events);
                }
                events.extend(unsent);
                self.step_all(events);
            }
            self.waiting = (inputs.len(), completions.len());
            arrived.drain(..).for_each(|input| self.input(input));
            self.end_burst();
            self.around.metrics.core_bursts.inc();
            self.around.metrics.core_busy.inc_by(started.elapsed().as_secs_f64());
        }
    }

    fn observe(&self) -> Observed {
        let (requests_waiting, completions_waiting) = self.waiting;
        Observed {
            gauges: self.node.gauges(),
            requests_waiting,
            completions_waiting,
            log: self.disks.log.counters(),
            raft: self.disks.raft.counters(),
        }
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::Connect(id, answers) => {
                self.connections.insert(id, Peer { answers, session: None });
            }
            Input::Event(event) => {
                if let Event::Gone(id) = event {
                    self.connections.remove(&id);
                }
                self.step_all([event]);
            }
            Input::Events(events) => self.step_all(events),
            // Whoever asked may have given up.
            Input::Observe(tell) => drop(tell.send(self.observe())),
        }
    }

    fn step_all(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.node.step(self.now, event, &mut self.actions);
        }
        self.perform_all();
    }

    /// Tells the node what time it is; the events of a burst happen at one time.
    fn begin_burst(&mut self) {
        self.now = self.around.clock.now();
        self.node.step(self.now, Event::Wall(self.around.clock.wall()), &mut self.actions);
    }

    /// The events that were waiting have been handled: what they gathered goes to the disks together.
    fn end_burst(&mut self) {
        self.node.flush(&mut self.actions);
        self.perform_all();
        self.around.others.send_all();
        self.disks.log.submit_all(self.log_jobs.drain(..));
    }

    fn perform_all(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        actions.drain(..).for_each(|action| self.perform(action));
        self.actions = actions;
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Disk(Volume::Log, job) => self.log_jobs.push(job),
            Action::Disk(Volume::Raft, job) => self.disks.raft.submit(job),
            Action::Reply { id, reply } => {
                self.remember(id.connection, &reply);
                self.answer(id.connection, Answer::Reply { number: id.number, reply });
            }
            Action::Push { stream, fetched } => {
                self.answer(stream.connection, Answer::Push { stream: stream.number, fetched });
            }
            Action::StreamEnded { stream, reason } => {
                self.answer(stream.connection, Answer::Ended { stream: stream.number, reason });
            }
            Action::Renewed { connection, session } => {
                if let Some(peer) = self.connections.get_mut(&connection) {
                    peer.session = Some(session.clone());
                }
                self.answer(connection, Answer::Renewed(session));
            }
            Action::Revoked { user, revision } => self.revoke(&user, revision),
            Action::Seeded { user } => self.seeded(&user),
            Action::WakeAt(at) => self.wake_at = Some(at),
            Action::Ready => drop(self.state.send(State::Serving)),
            Action::Suspended => drop(self.state.send(State::Suspended)),
            Action::Say { to, message } => self.around.others.say(to, message),
            Action::Ask { to, ask, message, within } => self.around.others.ask(to, ask, message, within),
            Action::Answer { to, call, message } => self.around.others.answer(to, call, message),
            Action::Peers(nodes) => self.around.others.listed(nodes),
            Action::Left => drop(self.state.send(State::Left)),
            Action::Stop(stop) => drop(self.state.send(State::Stopped(stop))),
            Action::Notice(notice) => {
                notices::log(&notice);
                notices::count(&notice, &self.around.metrics);
            }
        }
    }

    fn answer(&mut self, connection: ConnectionId, answer: Answer) {
        let Some(peer) = self.connections.get(&connection) else { return };
        // Room for everything a connection may have in work: full means that it is not ours any more.
        if peer.answers.try_send(answer).is_err() {
            self.connections.remove(&connection);
        }
    }

    fn remember(&mut self, connection: ConnectionId, reply: &Reply) {
        if let Reply::Welcome(session) = reply
            && let Some(peer) = self.connections.get_mut(&connection)
        {
            peer.session = Some(session.clone());
        }
    }

    /// Rare, so it may look at every connection.
    fn revoke(&mut self, user: &str, revision: u64) {
        self.around.doors.sessions.revoke(user, revision);
        let ended = |session: &Option<Session>| {
            session.as_ref().is_some_and(|s| &*s.user == user && s.revision < revision)
        };
        let connections = self.connections.iter().filter(|(_, peer)| ended(&peer.session));
        let connections: Vec<ConnectionId> = connections.map(|(id, _)| *id).collect();
        tracing::info!(user, connections = connections.len(), "sessions revoked");
        self.around.metrics.audited(Kind::SessionRevoked);
        let detail = format!("connections={}", connections.len());
        let (actor, action) = ("system", "revoke_all_sessions");
        let kind = Kind::SessionRevoked;
        Line { kind, actor, client: None, action, failure: None, object: user, detail: &detail }.write();
        for connection in connections {
            self.answer(connection, Answer::Revoked);
        }
    }

    fn seeded(&mut self, user: &str) {
        tracing::info!(user, "default user created");
        let Some(generated) = self.around.generated.take_if(|generated| generated.is_for(user)) else {
            return;
        };
        if let Err(error) = generated.announce(&mut std::io::stderr()) {
            tracing::error!(user, reason = %error, "the made up password could not be shown");
        }
        tracing::warn!(user, "administrator created, its password was shown once on standard error");
    }
}
