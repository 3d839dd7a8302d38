//! Who is alive: the membership machine on the UDP socket of the peer port.
//!
//! Owns the socket, the machine's clock and the file of its ceiling. Begins once another node has been connected for a
//! moment, so that a process that is about to be refused spreads no word of itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use membership::{Action, Address, Event, Key, Membership, Status};
use tokio::net::{UdpSocket, lookup_host};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use types::{Incarnation, NodeId, limits};

use super::{End, Identity};
use crate::boot::{Refusal, incarnation};
use crate::clock::Clock;
use crate::config::Config;
use crate::driver::FromPeers;

/// How long another node has to be connected before anything is said.
const AFTER_FIRST: Duration = Duration::from_secs(1);
/// For a name to be looked up.
const LOOK_UP: Duration = Duration::from_secs(2);
/// Names that are looked up at a time; a packet for one more is dropped, as packets may be.
const LOOK_UPS_MAX: usize = 64;

/// The socket of that port on every address, IPv6 included when the host has it. Needs a runtime.
pub(super) fn bind(port: u16) -> std::io::Result<UdpSocket> {
    let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let socket = match std::net::UdpSocket::bind(any6) {
        Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => std::net::UdpSocket::bind(any4)?,
        socket => socket?,
    };
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// What the machine is made with.
pub(super) fn settings(config: &Config, own: &Identity) -> membership::Config {
    let control_plane = own.control_plane.0;
    let address =
        Address::new(config.cluster.peer.as_bytes()).expect("its form was checked with the settings");
    let key = match &config.peer.secret {
        Some(secret) => Key::of_secret(secret.expose(), control_plane),
        None => Key::without_secret(control_plane),
    };
    let lives = (own.life.first, own.life.ceiling);
    membership::Config::new(own.node, Arc::clone(&config.cluster.name), address, lives, control_plane, key)
}

/// The task.
pub(super) struct Gossip {
    pub(super) socket: UdpSocket,
    pub(super) config: membership::Config,
    pub(super) log_dir: PathBuf,
    pub(super) clock: Clock,
    pub(super) seeds: Vec<String>,
    pub(super) listed: watch::Receiver<Vec<(NodeId, String)>>,
    /// Since when another node is connected.
    pub(super) met: watch::Receiver<Option<Instant>>,
    pub(super) core: mpsc::Sender<FromPeers>,
    pub(super) end: End,
    pub(super) stop: watch::Receiver<bool>,
}

impl Gossip {
    /// Runs until it is told to stop, or the core is gone, or this node must not go on.
    pub(super) async fn run(mut self) {
        let mut stop = self.stop.clone();
        tokio::select! {
            () = first_met(&mut self.met) => {}
            () = stopped(&mut stop) => return,
        }
        let mut seed = [0; 8];
        // Without randomness the order of probes is that of every node; that is no reason not to probe.
        let _ = getrandom::fill(&mut seed);
        let machine = Membership::new(self.config.clone(), u64::from_be_bytes(seed));
        let socket = Arc::new(self.socket);
        let running = Running {
            machine,
            sender: Sender { socket: Arc::clone(&socket), look_ups: Arc::new(Semaphore::new(LOOK_UPS_MAX)) },
            log_dir: self.log_dir,
            clock: self.clock,
            seeds: self.seeds,
            known: BTreeSet::new(),
            seen: BTreeMap::new(),
            core: self.core,
            end: self.end,
            wake_at: None,
            goes_on: true,
        };
        running.run(&socket, self.listed, stop).await;
    }
}

/// Ends when the node shuts down.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that whoever could say so is gone: the same.
    drop(stop.wait_for(|stop| *stop).await);
}

async fn first_met(met: &mut watch::Receiver<Option<Instant>>) {
    loop {
        let since = *met.borrow_and_update();
        let long_enough = async {
            match since {
                Some(since) => sleep_until(since + AFTER_FIRST).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = long_enough => return,
            changed = met.changed() => if changed.is_err() { std::future::pending::<()>().await },
        }
    }
}

struct Running {
    machine: Membership,
    sender: Sender,
    log_dir: PathBuf,
    clock: Clock,
    seeds: Vec<String>,
    /// Nodes the cluster listed last.
    known: BTreeSet<NodeId>,
    /// What the core was told last.
    seen: BTreeMap<NodeId, (Incarnation, Status)>,
    core: mpsc::Sender<FromPeers>,
    end: End,
    wake_at: Option<Instant>,
    goes_on: bool,
}

impl Running {
    async fn run(
        mut self,
        socket: &UdpSocket,
        mut listed: watch::Receiver<Vec<(NodeId, String)>>,
        mut stop: watch::Receiver<bool>,
    ) {
        let nodes = listed.borrow_and_update().clone();
        self.listed(nodes).await;
        self.step(Event::Start).await;
        let mut buffer = vec![0; limits::MEMBER_PACKET_BYTES_MAX + 1];
        while self.goes_on {
            let wake = self.wake_at.unwrap_or_else(|| Instant::now() + Duration::from_secs(60));
            tokio::select! {
                received = socket.recv_from(&mut buffer) => match received {
                    Ok((count, _)) => self.step(Event::Packet(Bytes::copy_from_slice(&buffer[..count]))).await,
                    // A port that is not there answers; that it is gone is found out otherwise.
                    Err(error) => tracing::debug!(%error, "membership packet not received"),
                },
                () = sleep_until(wake) => {
                    self.wake_at = None;
                    self.step(Event::Timer).await;
                }
                changed = listed.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let nodes = listed.borrow_and_update().clone();
                    self.listed(nodes).await;
                }
                () = stopped(&mut stop) => {
                    self.step(Event::Leave).await;
                    return;
                }
            }
        }
    }

    /// Others are looked for where the cluster says they are, and where the list says.
    async fn listed(&mut self, nodes: Vec<(NodeId, String)>) {
        let known: BTreeSet<NodeId> = nodes.iter().map(|(node, _)| *node).collect();
        let gone: Vec<NodeId> = self.known.difference(&known).copied().collect();
        self.known = known;
        let places = nodes.into_iter().map(|(_, address)| address).chain(self.seeds.iter().cloned());
        let places: BTreeSet<String> = places.collect();
        let seeds = places.iter().filter_map(|place| Address::new(place.as_bytes()).ok()).collect();
        self.step(Event::Seeds(seeds)).await;
        for node in gone {
            self.step(Event::Forget(node)).await;
        }
    }

    async fn step(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.machine.step(self.clock.now(), event, &mut actions);
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            if let Some(event) = self.perform(action).await {
                let mut more = Vec::new();
                self.machine.step(self.clock.now(), event, &mut more);
                actions.extend(more);
            }
        }
    }

    /// Gives what comes of it, if that is known at once.
    async fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Send { to, bytes } => self.sender.send(&to, bytes).await,
            Action::WakeAt(at) => self.wake_at = Some(self.clock.at(at)),
            Action::Changed(view) => {
                let (node, incarnation, status) = (view.node, view.incarnation, view.status);
                if self.seen.insert(node, (incarnation, status)) == Some((incarnation, status)) {
                    return None;
                }
                tracing::info!(%node, name = &*view.name, incarnation = incarnation.0, ?status, "member seen");
                self.goes_on &= self.core.send(FromPeers::Seen { node, incarnation, status }).await.is_ok();
            }
            Action::Forgotten(node) => {
                self.seen.remove(&node);
                tracing::info!(%node, "member forgotten");
            }
            Action::Reserve(ceiling) => return self.reserve(ceiling).await,
            Action::Renewed(incarnation) => {
                tracing::info!(
                    incarnation = incarnation.0,
                    "taken for dead, going on as a later incarnation"
                );
            }
            Action::Duplicate { node, kept, refused } => {
                tracing::warn!(%node, %kept, %refused, "two processes claim to be one node");
            }
            Action::Superseded { by, incarnation } => self.end_with(format!(
                "another process of this node is at {by}, incarnation {}; end one of the two",
                incarnation.0
            )),
        }
        None
    }

    async fn reserve(&mut self, ceiling: Incarnation) -> Option<Event> {
        let dir = self.log_dir.clone();
        let raised = tokio::task::spawn_blocking(move || incarnation::raise(&dir, ceiling)).await;
        match raised {
            Ok(Ok(())) => Some(Event::Reserved(ceiling)),
            failed => {
                let path = incarnation::path(&self.log_dir);
                self.end_with(format!("{} cannot be written: {failed:?}", path.display()));
                None
            }
        }
    }

    fn end_with(&mut self, why: String) {
        self.goes_on = false;
        self.end.now(Refusal::Fix(why));
    }
}

/// Sends packets to addresses as they are told, names included.
struct Sender {
    socket: Arc<UdpSocket>,
    look_ups: Arc<Semaphore>,
}

impl Sender {
    async fn send(&self, to: &Address, bytes: Bytes) {
        if let Ok(address) = to.as_str().parse::<SocketAddr>() {
            return send(&self.socket, address, &bytes).await;
        }
        // A name is looked up aside: whoever resolves it may take its time.
        let Ok(permit) = Arc::clone(&self.look_ups).try_acquire_owned() else { return };
        let (socket, name) = (Arc::clone(&self.socket), to.as_str().to_owned());
        tokio::spawn(async move {
            if let Ok(Ok(mut addresses)) = timeout(LOOK_UP, lookup_host(name)).await
                && let Some(address) = addresses.next()
            {
                send(&socket, address, &bytes).await;
            }
            drop(permit);
        });
    }
}

async fn send(socket: &UdpSocket, to: SocketAddr, bytes: &[u8]) {
    let is_six = socket.local_addr().is_ok_and(|own| own.is_ipv6());
    let to = match to {
        SocketAddr::V4(four) if is_six => SocketAddr::from((four.ip().to_ipv6_mapped(), four.port())),
        to @ (SocketAddr::V4(_) | SocketAddr::V6(_)) => to,
    };
    if let Err(error) = socket.send_to(bytes, to).await {
        tracing::debug!(%error, %to, "membership packet not sent");
    }
}
