//! One server, from its configuration to its exit status.
//!
//! Owns the order of start and end. The ports are taken first, because a port in use is the commonest mistake
//! and nothing else has been touched by then; the client port starts to listen last, when requests can be
//! served.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use broker::{Event, Formation, Node, Stop};
use tokio::net::TcpSocket;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::boot::{self, Belonging, Opened, Refusal};
use crate::clock::Clock;
use crate::cluster::{self, Cluster, Ends, Identity, Others, Sockets};
use crate::config::{self, Config};
use crate::descriptors;
use crate::driver::{self, Around, Queues, Running, State};
use crate::http::{self, Readiness};
use crate::identity::{Doors, Seeds};
use crate::metrics::Metrics;
use crate::tcp::{self, Shared};
use crate::telemetry;
use crate::tls::Tls;

/// Sessions are swept at least this often.
const SWEEP_EVERY_MAX: Duration = Duration::from_secs(60);

/// How to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A configuration file; the environment wins over it. Without it, the one the environment names, or
    /// `malachi.toml` in the working directory.
    pub config_file: Option<PathBuf>,
}

/// Runs a server until it is told to stop, and gives the process's exit status: 0 after a shutdown, 78 when
/// the node must not run over the data it found, 1 otherwise. A refusal is one line on stderr.
#[must_use]
pub fn run(options: Options) -> ExitCode {
    match start(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            // The last thing the process says; nothing can be done when nobody hears it.
            drop(writeln!(std::io::stderr(), "{refusal}"));
            ExitCode::from(refusal.code())
        }
    }
}

fn start(options: &Options) -> Result<(), Refusal> {
    let config::Loaded { config, warnings } =
        config::load(options.config_file.as_deref()).map_err(invalid)?;
    telemetry::start(config.log_format);
    for warning in warnings {
        tracing::warn!(detail = warning, "configuration");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Refusal::Fix(format!("cannot start the runtime: {error}")))?;
    let result = runtime.block_on(serve(config));
    // Whatever is still running has had its time.
    runtime.shutdown_background();
    result
}

/// Every problem, a line each.
fn invalid(problems: Vec<config::Invalid>) -> Refusal {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Refusal::Fix(lines.join("\n"))
}

async fn serve(config: Config) -> Result<(), Refusal> {
    let stop = Stopper::install()?;
    let client = bind(config.ports.tcp, "MALACHI_TCP_PORT")?;
    let dashboard = bind(config.ports.dashboard, "MALACHI_DASHBOARD_PORT")?;
    let sockets = Sockets::bind(&config)?;
    let doors = Doors::open(&config.identity, config.connections.publish)
        .map_err(|error| Refusal::Fix(format!("cannot start the hashing threads: {error}")))?;
    let doors = Arc::new(doors);
    let tls = open_tls(&config)?;
    let metrics = Arc::new(Metrics::new());
    metrics.serves_tls(tls.is_some());
    let queues = Queues::new();
    let opened = boot::open(&config.storage, &queues)?;
    let ready = Readiness::default();
    let shared = http::Shared {
        ready: ready.clone(),
        doors: doors.clone(),
        metrics: metrics.clone(),
        core: queues.weak(),
        login: config.identity.http_login,
        limits: config.identity.head_limits,
    };
    let (dashboard_stop, dashboard_stopped) = watch::channel(false);
    let dashboard = listen(dashboard, config.ports.dashboard, "MALACHI_DASHBOARD_PORT")?;
    let dashboard = tokio::spawn(http::serve(dashboard, shared, dashboard_stopped));
    let sweeping = tokio::spawn(sweep(doors.clone(), config.identity.sweep_every));
    let clients = Clients { socket: client, doors, metrics, tls };
    let result = serve_node(&config, queues, opened, sockets, clients, &ready, stop).await;
    sweeping.abort();
    ready.set(false);
    dashboard_stop.send_replace(true);
    drop(tokio::time::timeout(config.shutdown_grace, dashboard).await);
    result
}

/// From open directories to the end: the cluster first, then the core, then the clients.
async fn serve_node(
    config: &Config,
    queues: Queues,
    opened: Opened,
    sockets: Option<Sockets>,
    clients: Clients,
    ready: &Readiness,
    mut stop: Stopper,
) -> Result<(), Refusal> {
    let (end, mut ends) = cluster::end();
    let known = cluster::own(config, &opened)?;
    let mut cluster = match sockets {
        Some(sockets) => Some(Cluster::start(config, &opened, known, sockets, end.clone())?),
        None => None,
    };
    let belonging = match (known, &mut cluster) {
        (Some(known), _) => known,
        (None, Some(cluster)) => tokio::select! {
            met = cluster.meet(config) => met?,
            () = stop.asked() => return Ok(()),
        },
        (None, None) => unreachable!("whoever looks for others meets them"),
    };
    let identity = Identity { node: opened.node, life: opened.life, control_plane: belonging.control_plane };
    let others = cluster.as_ref().map_or_else(|| Others::none(end), Cluster::others);
    let peers = queues.peers();
    let clock = Clock::new();
    let running = start_core(config, &clients, Core { queues, opened, belonging, others, clock })?;
    let joined = cluster.map(|cluster| cluster.run(config, identity, clock, peers));
    let served = serve_clients(config, clients, running, belonging, ready, &mut stop, &mut ends).await;
    if let Some(joined) = joined {
        joined.leave().await;
    }
    if let Some(thread) = served.thread {
        end_core(thread).await;
    }
    served.result
}

/// Forgets idle rate limits and expired sessions now and then.
async fn sweep(doors: Arc<Doors>, every: Duration) {
    let mut timer = tokio::time::interval(every.min(SWEEP_EVERY_MAX));
    loop {
        timer.tick().await;
        doors.sweep();
    }
}

/// What the client port is served with.
struct Clients {
    socket: TcpSocket,
    doors: Arc<Doors>,
    metrics: Arc<Metrics>,
    tls: Option<Arc<Tls>>,
}

/// Reads the certificates, and watches over them from then on.
fn open_tls(config: &Config) -> Result<Option<Arc<Tls>>, Refusal> {
    let Some(settings) = config.tls.clone() else { return Ok(None) };
    let tls = Arc::new(Tls::open(settings).map_err(|error| Refusal::Fix(error.to_string()))?);
    let hangup = signal(SignalKind::hangup())
        .map_err(|error| Refusal::Fix(format!("cannot watch signals: {error}")))?;
    let watched = tls.clone();
    tokio::spawn(async move { watched.watch(hangup).await });
    Ok(Some(tls))
}

/// How serving ended.
struct Served {
    result: Result<(), Refusal>,
    /// The core's, when it is worth waiting for.
    thread: Option<std::thread::JoinHandle<()>>,
}

async fn serve_clients(
    config: &Config,
    clients: Clients,
    running: Running,
    belonging: Belonging,
    ready: &Readiness,
    stop: &mut Stopper,
    ends: &mut Ends,
) -> Served {
    let Running { core, mut state, thread } = running;
    let early = |result| Served { result, thread: None };
    let recovered = tokio::select! {
        recovered = wait_for(&mut state, |state| *state != State::Recovering) => recovered,
        () = stop.asked() => return early(Ok(())),
        Some(refusal) = ends.recv() => return early(Err(refusal)),
    };
    match recovered {
        Ok(State::Stopped(stop)) => return early(Err(refusal(config, &stop))),
        Ok(State::Recovering | State::Serving | State::Left | State::Suspended) => {}
        Err(refusal) => return early(Err(refusal)),
    }
    if let Err(refusal) = settle(config, belonging).await {
        return early(Err(refusal));
    }
    let Clients { socket, doors, metrics, tls } = clients;
    let listener = match listen(socket, config.ports.tcp, "MALACHI_TCP_PORT") {
        Ok(listener) => listener,
        Err(refusal) => return early(Err(refusal)),
    };
    let (stop_clients, clients_stopped) = watch::channel(false);
    let shared = Shared { limits: config.connections, doors, core: core.clone(), metrics, tls };
    let mut clients = tokio::spawn(tcp::serve(listener, Arc::new(shared), clients_stopped));
    ready.set(true);
    tracing::info!(port = config.ports.tcp, "ready");
    let result = tokio::select! {
        () = stop.asked() => Ok(()),
        ended = ended(&mut state, ready) => ended.and_then(|stop| Err(refusal(config, &stop))),
        Some(refusal) = ends.recv() => Err(refusal),
    };
    ready.set(false);
    tracing::info!("shutting down");
    stop_clients.send_replace(true);
    let deadline = tokio::time::Instant::now() + config.shutdown_grace;
    if result.is_ok() {
        hand_over(core, &mut state, deadline).await;
    }
    if tokio::time::timeout_at(deadline, &mut clients).await.is_err() {
        clients.abort();
        tracing::warn!("connections were closed with work in flight");
    }
    Served { result, thread: Some(thread) }
}

/// What this node leads is led by others from now on, as far as there is time for that.
async fn hand_over(core: driver::Core, state: &mut watch::Receiver<State>, deadline: tokio::time::Instant) {
    let over = async {
        if core.send(Event::Leave).await {
            drop(wait_for(state, |state| !matches!(state, State::Recovering | State::Serving)).await);
        }
    };
    if tokio::time::timeout_at(deadline, over).await.is_err() {
        tracing::warn!("groups are still led here");
    }
}

/// What there is on the disk is there for good from now on.
async fn settle(config: &Config, belonging: Belonging) -> Result<(), Refusal> {
    if belonging.settled {
        return Ok(());
    }
    let storage = config.storage.clone();
    let settled = tokio::task::spawn_blocking(move || boot::settle(&storage, belonging)).await;
    settled.map_err(|error| Refusal::Fix(format!("the cluster could not be recorded: {error}")))?
}

/// The core ends once no connection is left; the disks are closed with it.
async fn end_core(thread: std::thread::JoinHandle<()>) {
    let ended = tokio::task::spawn_blocking(move || thread.join());
    if tokio::time::timeout(Duration::from_secs(10), ended).await.is_err() {
        tracing::warn!("the core did not end in time");
    }
}

/// Ends when the node stops by itself, and gives why. A node that only stops to serve is not ready any more.
async fn ended(state: &mut watch::Receiver<State>, ready: &Readiness) -> Result<Stop, Refusal> {
    loop {
        match wait_for(state, |state| matches!(state, State::Suspended | State::Stopped(_))).await? {
            State::Stopped(stop) => return Ok(stop),
            State::Recovering | State::Serving | State::Left | State::Suspended => {}
        }
        ready.set(false);
        // It goes nowhere from there but to its end.
        let more = state.changed().await;
        more.map_err(|_| Refusal::Fix("the core stopped".to_owned()))?;
    }
}

async fn wait_for(
    state: &mut watch::Receiver<State>,
    wanted: impl Fn(&State) -> bool,
) -> Result<State, Refusal> {
    let seen = state.wait_for(wanted).await.map(|state| state.clone());
    // The core thread ended without saying why: it failed an assertion, and has told so itself.
    seen.map_err(|_| Refusal::Fix("the core stopped".to_owned()))
}

/// What the core is made of.
struct Core {
    queues: Queues,
    opened: Opened,
    belonging: Belonging,
    others: Others,
    clock: Clock,
}

fn start_core(config: &Config, clients: &Clients, made_of: Core) -> Result<Running, Refusal> {
    let Core { queues, opened, belonging, others, clock } = made_of;
    let Clients { doors, metrics, .. } = clients;
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| Refusal::Fix(format!("no randomness: {error}")))?;
    let part = |at: usize| u64::from_be_bytes(*seed[at..].first_chunk().expect("the seed has 32 bytes"));
    let id = opened.node;
    let mut node = broker::Config::new(id, u128::from(part(0)) << 64 | u128::from(part(8)));
    node.own = cluster::own_words(config, &opened);
    node.formation =
        if belonging.formed { Formation::Forms { vnodes: config.cluster.vnodes } } else { Formation::Joins };
    node.vnode_replicas = config.cluster.vnode_replicas;
    node.segment_replicas = config.cluster.segment_replicas;
    node.placement = config.cluster.placement.clone();
    (node.lease, node.rebalance) = (config.cluster.lease, config.cluster.rebalance);
    node.replicate_within = config.cluster.replicate_within;
    node.behind_max = config.cluster.behind_max;
    node.behind_bytes_max = config.cluster.behind_bytes_max;
    node.mend_bytes_per_second = config.cluster.mend_bytes_per_second;
    node.replace_after = config.cluster.replace_after;
    node.segment_bytes = config.storage.segment_bytes;
    node.frame_bytes_max = config.connections.frame_bytes_max;
    node.segment_age = Some(config.storage.segment_age);
    node.orphans = config.storage.orphans;
    let upkeep = config.storage.upkeep.clone();
    (node.retention, node.orphan_sweep, node.scrub) = (upkeep.retention, upkeep.orphan_sweep, upkeep.scrub);
    node.resize = upkeep.resize;
    node.acl_strict = config.identity.acl_strict;
    let lockout = config.identity.lockout;
    node.lockout.attempts_max = lockout.attempts_max;
    node.lockout.duration_ms = u64::try_from(lockout.base.as_millis()).unwrap_or(u64::MAX);
    node.lockout.progressive = lockout.progressive;
    let seeds = config.identity.defaults.clone().seeds(doors.passwords);
    let Seeds { users, generated } =
        seeds.map_err(|error| Refusal::Fix(format!("default users: {error}")))?;
    node.seed_users = users;
    let descriptors = descriptors::raise();
    node.store.open_copies_max = descriptors::copies(descriptors);
    node.store.seed = part(16);
    node.raft_log.seed = part(24);
    tracing::info!(
        node = %id,
        name = &*config.cluster.name,
        cluster = %belonging.control_plane,
        incarnation = opened.life.first.0,
        log_dir = %config.storage.log_dir.display(),
        raft_dir = %config.storage.raft_dir.display(),
        descriptors,
        "starting"
    );
    let around = Around { clock, doors: doors.clone(), metrics: metrics.clone(), others, generated };
    driver::start(Node::new(node), opened.disks, queues, around)
        .map_err(|error| Refusal::Fix(format!("cannot start the core: {error}")))
}

fn refusal(config: &Config, stop: &Stop) -> Refusal {
    let log_dir = config.storage.log_dir.display();
    let raft_dir = config.storage.raft_dir.display();
    match stop {
        Stop::Unreadable { .. } => Refusal::Fix(stop.to_string()),
        Stop::Damaged { .. } => {
            Refusal::Data(format!("{stop} ({raft_dir}); restore the directory from a backup"))
        }
        Stop::Orphans { .. } => Refusal::Data(format!(
            "{stop}: {log_dir} holds records that {raft_dir} knows nothing of; bring the right raft directory back"
        )),
        Stop::Outdated { .. } => Refusal::Data(format!(
            "{stop}: {raft_dir} is an older copy or lost its end; bring back the one that belongs to {log_dir}"
        )),
        Stop::UnknownFlag { .. } => Refusal::Data(format!("{stop}; start a release that knows it")),
        Stop::LaterFormat { .. } => {
            Refusal::Data(format!("{stop}; start the release that wrote it or a later one"))
        }
    }
}

fn bind(port: u16, variable: &str) -> Result<TcpSocket, Refusal> {
    tcp::bind(port).map_err(|error| Refusal::Fix(format!("{variable}: cannot use port {port}: {error}")))
}

fn listen(socket: TcpSocket, port: u16, variable: &str) -> Result<tokio::net::TcpListener, Refusal> {
    tcp::listen(socket)
        .map_err(|error| Refusal::Fix(format!("{variable}: cannot listen on port {port}: {error}")))
}

/// Hears the signals that ask for a shutdown.
struct Stopper {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stopper {
    fn install() -> Result<Self, Refusal> {
        let install =
            |kind| signal(kind).map_err(|error| Refusal::Fix(format!("cannot watch signals: {error}")));
        Ok(Self {
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
        })
    }

    /// Ends when the process is asked to stop.
    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_that_stops_to_serve_is_not_ready_and_goes_on() {
        let ready = Readiness::default();
        ready.set(true);
        let (tell, mut state) = watch::channel(State::Serving);
        tell.send(State::Suspended).unwrap();
        let stop = Stop::Orphans { copies: 1 };
        let end = async {
            let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
            while ready.get() {
                assert!(tokio::time::Instant::now() < deadline);
                tokio::task::yield_now().await;
            }
            tell.send(State::Stopped(stop.clone())).unwrap();
        };
        let (ended, ()) = tokio::join!(ended(&mut state, &ready), end);
        assert_eq!(ended.unwrap(), stop);
    }
}
