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

use broker::{Action, Actions, ConnectionId, Event, Node, Reply, RequestId, Stop, Volume};
use storage::disk::{Completion, Job};
use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::disk::RealDisk;
use crate::notices;

/// Batches of client events waiting for the core.
const INPUTS_MAX: usize = 1024;
/// Completions waiting for the core; a disk thread that finds it full waits.
const COMPLETIONS_MAX: usize = 16 * 1024;
/// Events taken before actions are performed.
const BATCH_MAX: usize = 256;

/// The reply to one request of a connection.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) number: u64,
    pub(crate) reply: Reply,
}

/// What comes from the connections.
#[derive(Debug)]
enum Input {
    Connect(ConnectionId, mpsc::Sender<Answer>),
    Event(Event),
    Events(Vec<Event>),
}

/// The way into the core, for connection tasks.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    inputs: mpsc::Sender<Input>,
}

impl Core {
    /// Makes a connection known, so that it can be answered; `false` when the core is gone.
    pub(crate) async fn connect(&self, id: ConnectionId, answers: mpsc::Sender<Answer>) -> bool {
        self.inputs.send(Input::Connect(id, answers)).await.is_ok()
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

/// How the core is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Recovering,
    Serving,
    Stopped(Stop),
}

/// Where a disk thread puts its completions.
pub(crate) type Completions = mpsc::Sender<(Volume, Completion)>;

/// Made before the disks are opened, because they need to know where completions go.
#[derive(Debug)]
pub(crate) struct Queues {
    inputs: (mpsc::Sender<Input>, mpsc::Receiver<Input>),
    completions: (Completions, mpsc::Receiver<(Volume, Completion)>),
}

impl Queues {
    pub(crate) fn new() -> Self {
        Self { inputs: mpsc::channel(INPUTS_MAX), completions: mpsc::channel(COMPLETIONS_MAX) }
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

/// Starts the core thread.
pub(crate) fn start(node: Node, disks: Disks, queues: Queues, clock: Clock) -> std::io::Result<Running> {
    let (inputs_in, inputs) = queues.inputs;
    // The disks hold the senders that matter: without them nothing can complete.
    let (_, completions) = queues.completions;
    let (state_in, state) = watch::channel(State::Recovering);
    // Only a timer is needed: the runtime is a queue with a deadline.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let driver = Driver {
        node,
        disks,
        clock,
        actions: Actions::new(),
        log_jobs: Vec::new(),
        connections: HashMap::new(),
        wake_at: None,
        state: state_in,
    };
    let body = move || runtime.block_on(driver.run(inputs, completions));
    let thread = std::thread::Builder::new().name("core".to_owned()).spawn(body)?;
    Ok(Running { core: Core { inputs: inputs_in }, state, thread })
}

struct Driver {
    node: Node,
    disks: Disks,
    clock: Clock,
    actions: Actions,
    /// Jobs of the burst under way.
    log_jobs: Vec<Job>,
    connections: HashMap<ConnectionId, mpsc::Sender<Answer>>,
    wake_at: Option<types::Instant>,
    state: watch::Sender<State>,
}

impl Driver {
    async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Input>,
        mut completions: mpsc::Receiver<(Volume, Completion)>,
    ) {
        let mut completed = Vec::new();
        let mut arrived = Vec::new();
        self.step_all([Event::Start]);
        self.end_burst();
        while !matches!(*self.state.borrow(), State::Stopped(_)) {
            let wake = self.clock.at(self.wake_at.unwrap_or(types::Instant(u64::MAX / 2)));
            tokio::select! {
                biased;
                _ = completions.recv_many(&mut completed, BATCH_MAX) => {
                    self.step_all(completed.drain(..).map(|(volume, done)| Event::Disk(volume, done)));
                }
                count = inputs.recv_many(&mut arrived, BATCH_MAX) => {
                    if count == 0 {
                        return;
                    }
                    arrived.drain(..).for_each(|input| self.input(input));
                }
                () = tokio::time::sleep_until(wake), if self.wake_at.is_some() => {
                    self.step_all([Event::Timer]);
                }
            }
            self.end_burst();
        }
    }

    fn input(&mut self, input: Input) {
        match input {
            Input::Connect(id, answers) => {
                self.connections.insert(id, answers);
            }
            Input::Event(event) => {
                if let Event::Gone(id) = event {
                    self.connections.remove(&id);
                }
                self.step_all([event]);
            }
            Input::Events(events) => self.step_all(events),
        }
    }

    fn step_all(&mut self, events: impl IntoIterator<Item = Event>) {
        let now = self.clock.now();
        self.node.step(now, Event::Wall(self.clock.wall()), &mut self.actions);
        for event in events {
            self.node.step(now, event, &mut self.actions);
        }
        self.perform_all();
    }

    /// The events that were waiting have been handled: what they gathered goes to the disks together.
    fn end_burst(&mut self) {
        self.node.flush(&mut self.actions);
        self.perform_all();
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
            Action::Reply { id, reply } => self.reply(id, reply),
            Action::WakeAt(at) => self.wake_at = Some(at),
            Action::Ready => drop(self.state.send(State::Serving)),
            Action::Stop(stop) => drop(self.state.send(State::Stopped(stop))),
            Action::Notice(notice) => notices::log(&notice),
        }
    }

    fn reply(&mut self, id: RequestId, reply: Reply) {
        let Some(answers) = self.connections.get(&id.connection) else { return };
        // Room for everything a connection may have in work: full means that it is not ours any more.
        if answers.try_send(Answer { number: id.number, reply }).is_err() {
            self.connections.remove(&id.connection);
        }
    }
}
