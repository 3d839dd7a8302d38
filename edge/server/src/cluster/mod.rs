//! This node among the others: from the peer port to the core and back.
//!
//! Owns the order in which a node gets to know its cluster, the tasks that carry what happens between nodes, and how
//! they end. The connections themselves are `peer`'s, who is alive is told by the `membership` crate, and what any of
//! it means the core decides.
//!
//! ```text
//! peer connections ─▶ carry ─▶ (bounded queue) ─▶ driver: Others ─▶ core      gossip: UDP ⇄ membership ─▶ the same
//!        ▲────────────────────────────────────────── Others ◀─ actions            queue
//! ```
//!
//! Invariants:
//! - nothing of a cluster is written before the data directories say that they are of it;
//! - the core hears of a node only while that node says it is of the same cluster, or of none yet;
//! - whatever ends this node by itself is told once, as a refusal.

mod carry;
mod gossip;
mod meet;
mod others;

use std::sync::Arc;
use std::time::Duration;

use peer::{Claim, Trust};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use types::{ControlPlaneId, NodeId};

use crate::boot::{Belonging, Opened, Refusal};
use crate::clock::Clock;
use crate::config::cluster::Role;
use crate::config::{Config, Storage};
use crate::driver::FromPeers;
use crate::peer::{PeerEvent, Peers, Running, Settings, Target};
use crate::tcp;
use gossip::Gossip;
pub(crate) use others::Others;

/// Events between the connections and whoever carries them on.
const EVENTS_MAX: usize = 64;
/// Commands that wait for one connection.
const COMMANDS_MAX: usize = 16 * 1024;

/// The peer port's sockets; bound early, so that a port in use is found before anything else is touched.
#[derive(Debug)]
pub(crate) struct Sockets {
    peers: TcpSocket,
    gossip: UdpSocket,
}

impl Sockets {
    /// `None` for a node that meets nobody.
    pub(crate) fn bind(config: &Config) -> Result<Option<Self>, Refusal> {
        let port = config.peer.port;
        if !config.cluster.meets {
            return Ok(None);
        }
        let failed = |error: std::io::Error| {
            Refusal::Fix(format!("MALACHI_PEER_PORT: cannot use port {port}: {error}"))
        };
        let peers = tcp::bind(port).map_err(failed)?;
        let gossip = gossip::bind(port).map_err(failed)?;
        Ok(Some(Self { peers, gossip }))
    }
}

/// This node's place among others, before the core runs.
#[derive(Debug)]
pub(crate) struct Cluster {
    peers: Peers,
    running: Running,
    events: mpsc::Receiver<PeerEvent>,
    gossip: UdpSocket,
    end: End,
    stop: watch::Sender<bool>,
    seeds: Vec<String>,
    listed: watch::Sender<Vec<(NodeId, String)>>,
}

/// How a node that must not go on says so.
#[derive(Clone, Debug)]
pub(crate) struct End(mpsc::Sender<Refusal>);

impl End {
    fn now(&self, refusal: Refusal) {
        // One is enough.
        drop(self.0.try_send(refusal));
    }
}

/// Gives the one reason for which the node must not go on, if there ever is one.
pub(crate) type Ends = mpsc::Receiver<Refusal>;

/// Makes the way in which a node says that it must not go on.
pub(crate) fn end() -> (End, Ends) {
    let (end, ends) = mpsc::channel(1);
    (End(end), ends)
}

impl Cluster {
    /// Begins to listen and to look for the nodes of the list; `known` is the cluster this node is of, if it is of one.
    pub(crate) fn start(
        config: &Config,
        opened: &Opened,
        known: Option<Belonging>,
        sockets: Sockets,
        end: End,
    ) -> Result<Self, Refusal> {
        let listener = tcp::listen(sockets.peers).map_err(|error| {
            Refusal::Fix(format!("MALACHI_PEER_PORT: cannot listen on port {}: {error}", config.peer.port))
        })?;
        let trust = match (&config.peer.secret, &config.peer.tls) {
            (Some(secret), _) => Trust::Secret(secret.clone()),
            (None, Some(_)) => Trust::Certificate,
            (None, None) => Trust::Anybody,
        };
        let claim = Claim {
            control_plane: known.map(|known| known.control_plane),
            node: opened.node,
            incarnation: opened.life.first,
            features: 0,
            name: config.cluster.name.to_string(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
            address: config.cluster.peer.to_string(),
        };
        let settings = Settings { claim, trust, tls: config.peer.tls.clone(), queue_max: COMMANDS_MAX };
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let (peers, running) = Peers::start(settings, listener, sender);
        let seeds: Vec<String> = config.cluster.others.iter().map(|seed| seed.address.clone()).collect();
        peers.dial(seeds.iter().map(|address| Target { address: address.clone(), node: None }).collect());
        let (stop, _) = watch::channel(false);
        let (listed, _) = watch::channel(Vec::new());
        Ok(Self { peers, running, events, gossip: sockets.gossip, end, stop, seeds, listed })
    }

    /// Waits until it is clear which cluster this node is of: one it finds, or a new one.
    pub(crate) async fn meet(&mut self, config: &Config) -> Result<Belonging, Refusal> {
        let list = &config.cluster.others;
        tracing::info!(name = &*config.cluster.name, nodes = list.len(), "looking for the cluster");
        let found = meet::decide(config.cluster.role, list, &mut self.events).await?;
        let belonging = belong(&config.storage, found).await?;
        self.peers.join(belonging.control_plane);
        self.peers.renew();
        Ok(belonging)
    }

    /// What the core reaches other nodes by.
    pub(crate) fn others(&self) -> Others {
        Others::new(self.peers.clone(), self.seeds.clone(), self.listed.clone())
    }

    /// Carries what happens between nodes to the core, from now until [`Joined::leave`].
    pub(crate) fn run(
        self,
        config: &Config,
        opened: Identity,
        clock: Clock,
        core: mpsc::Sender<FromPeers>,
    ) -> Joined {
        let Self { peers, running, events, gossip, end, stop, seeds, listed } = self;
        let (met_in, met) = watch::channel(None);
        let gossip = Gossip {
            socket: gossip,
            config: gossip::settings(config, &opened),
            log_dir: config.storage.log_dir.clone(),
            clock,
            seeds,
            listed: listed.subscribe(),
            met,
            core: core.clone(),
            end: end.clone(),
            stop: stop.subscribe(),
        };
        let gossip = tokio::spawn(gossip.run());
        let carry = tokio::spawn(carry::run(events, opened.control_plane, core, met_in, end));
        Joined { peers, running, carry, gossip, stop }
    }
}

/// Who this node is, once it belongs to a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) life: membership::incarnation::Reservation,
    pub(crate) control_plane: ControlPlaneId,
}

/// The tasks of a node that belongs to a cluster.
#[derive(Debug)]
pub(crate) struct Joined {
    peers: Peers,
    running: Running,
    carry: JoinHandle<()>,
    gossip: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Joined {
    /// Tells the others, closes every connection and waits for that, within bounds.
    pub(crate) async fn leave(self) {
        let Self { peers, running, carry, gossip, stop } = self;
        stop.send_replace(true);
        peers.stop();
        let ended = async {
            drop(gossip.await);
            running.ended().await;
        };
        if tokio::time::timeout(Duration::from_secs(5), ended).await.is_err() {
            tracing::warn!("peer connections did not end in time");
        }
        // It has carried what they told of their ends, and would wait for more.
        carry.abort();
    }
}

/// Which cluster a node without data is of, durably.
async fn belong(storage: &Storage, found: meet::Found) -> Result<Belonging, Refusal> {
    let storage = storage.clone();
    let record = move || match found {
        meet::Found::Nobody => crate::boot::form(&storage),
        meet::Found::Cluster(control_plane) => crate::boot::join(&storage, control_plane),
    };
    let recorded = tokio::task::spawn_blocking(record).await;
    recorded.map_err(|error| Refusal::Fix(format!("the cluster could not be recorded: {error}")))?
}

/// The cluster of a node that meets nobody, or forms one at once.
pub(crate) fn own(config: &Config, opened: &Opened) -> Result<Option<Belonging>, Refusal> {
    match opened.belonging {
        Some(known) if !known.formed && !config.cluster.meets => Err(unmet("was formed by another node")),
        // Nothing was formed yet, and the list says now that it is to be looked for.
        Some(known) if known.formed && !known.settled && config.cluster.role != Role::Alone => Ok(None),
        Some(known) => Ok(Some(known)),
        None if config.cluster.role == Role::Alone => crate::boot::form(&config.storage).map(Some),
        None => Ok(None),
    }
}

/// Why a node must not go on that no setting tells how to meet the others of its cluster.
fn unmet(why: &str) -> Refusal {
    Refusal::Data(format!(
        "this data belongs to a cluster that {why}, and nothing is set about meeting them; set \
         MALACHI_CLUSTER_SECRET, or MALACHI_DIST_TLS, and MALACHI_PEER_ADDRESS as they were"
    ))
}

/// What the core is told about this node.
pub(crate) fn own_words(config: &Config, opened: &Opened) -> broker::Own {
    let cluster = &config.cluster;
    broker::Own {
        name: Arc::clone(&cluster.name),
        peer: Arc::clone(&cluster.peer),
        client: Some(Arc::clone(&cluster.client)),
        attributes: cluster.attributes.clone(),
        flags: broker::FLAGS.iter().map(|flag| Arc::from(*flag)).collect(),
        incarnation: opened.life.first,
    }
}
