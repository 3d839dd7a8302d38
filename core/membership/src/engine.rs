//! The engine: `foca` 2, and, beside `packet` and `machine`, the only place that names its types.
//!
//! Owns our identity as the engine sees it, and the list of what it asks for. Decides only which of two identities of
//! one node stays. What the engine would do and we do ourselves: deadlines of suspects (it gives one only to those
//! that it suspected itself), forgetting the dead, coming back after having been declared dead, asking the dead.

use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use bytes::Bytes;
use foca::{BroadcastHandler, Foca, Invalidates, Notification, PeriodicParams, Runtime};
use rand_engine::SeedableRng;
use rand_engine::rngs::SmallRng;
use types::{Incarnation, NodeId, limits};

use crate::address::Address;
use crate::config::Tuning;
use crate::packet::EngineCodec;

pub(crate) type Engine = Foca<Identity, EngineCodec, SmallRng, NoBroadcasts>;
pub(crate) type Timer = foca::Timer<Identity>;

/// One life of a node at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) address: Address,
}

impl foca::Identity for Identity {
    /// A node is its id, wherever it is.
    type Addr = NodeId;

    /// Never by itself: a later incarnation may have to be reserved first.
    fn renew(&self) -> Option<Self> {
        None
    }

    fn addr(&self) -> NodeId {
        self.node
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.incarnation >= adversary.incarnation
    }
}

/// What travels along with the engine's packets is put there by us (`crate::digest`).
pub(crate) struct NoBroadcasts;

/// There is none.
pub(crate) enum NoKey {}

#[derive(Debug, thiserror::Error)]
#[error("no broadcasts are taken")]
pub(crate) struct Unexpected;

impl Invalidates for NoKey {
    fn invalidates(&self, _: &Self) -> bool {
        false
    }
}

impl BroadcastHandler<Identity> for NoBroadcasts {
    type Key = NoKey;
    type Error = Unexpected;

    fn receive_item(&mut self, _: &[u8], _: Option<&Identity>) -> Result<Option<NoKey>, Unexpected> {
        Err(Unexpected)
    }
}

/// What the engine asked for during one call.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) sends: Vec<(Identity, Bytes)>,
    pub(crate) timers: Vec<(Duration, Timer)>,
    /// It learned that this node is taken for dead.
    pub(crate) is_defunct: bool,
}

impl Runtime<Identity> for Asked {
    fn notify(&mut self, notification: Notification<'_, Identity>) {
        // Whatever else it tells of is read from its list of members.
        self.is_defunct |= notification == Notification::Defunct;
    }

    fn send_to(&mut self, to: Identity, data: &[u8]) {
        self.sends.push((to, Bytes::copy_from_slice(data)));
    }

    fn submit_after(&mut self, event: Timer, after: Duration) {
        self.timers.push((after, event));
    }
}

/// An engine that knows nobody.
pub(crate) fn engine(own: Identity, tuning: &Tuning, seed: u64) -> Engine {
    let count = |count: usize| NonZeroUsize::new(count.max(1)).expect("it is at least one");
    let every = |frequency, members| Some(PeriodicParams { frequency, num_members: count(members) });
    let config = foca::Config {
        probe_period: tuning.probe_period,
        probe_rtt: tuning.probe_timeout,
        num_indirect_probes: count(tuning.indirect_count),
        max_transmissions: NonZeroU8::new(tuning.news_sent_max.max(1)).expect("it is at least one"),
        suspect_to_down_after: tuning.suspicion,
        remove_down_after: None,
        max_packet_size: count(limits::MEMBER_NEWS_BYTES_MAX),
        notify_down_members: true,
        periodic_announce: every(tuning.exchange_every, 1),
        periodic_announce_to_down_members: None,
        periodic_gossip: every(tuning.gossip_every, 3),
    };
    let codec = EngineCodec { own: own.clone() };
    Foca::with_custom_broadcast(own, config, SmallRng::seed_from_u64(seed), codec, NoBroadcasts)
}
