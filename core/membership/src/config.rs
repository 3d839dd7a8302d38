//! What a membership is made with, and the times it goes by.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use types::{Incarnation, NodeId};

use crate::address::Address;

/// Who this node is, and how it goes about it.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node; zero is nobody's.
    pub node: NodeId,
    /// For people. At most [`types::limits::NODE_NAME_BYTES_MAX`] bytes; what is longer is cut off.
    pub name: Arc<str>,
    /// Where others reach it.
    pub address: Address,
    /// Of this life of it: never used before, see [`crate::incarnation`].
    pub incarnation: Incarnation,
    /// Recorded durably; no incarnation above it is used. Not below `incarnation`.
    pub ceiling: Incarnation,
    /// Which cluster it belongs to.
    pub control_plane: u128,
    /// Of the packets.
    pub key: Key,
    /// Times.
    pub tuning: Tuning,
    /// A bug to put in.
    #[cfg(feature = "planted")]
    pub bug: Option<crate::planted::Bug>,
}

impl Config {
    /// With the settings of most nodes.
    #[must_use]
    pub fn new(
        node: NodeId,
        name: Arc<str>,
        address: Address,
        (incarnation, ceiling): (Incarnation, Incarnation),
        control_plane: u128,
        key: Key,
    ) -> Self {
        Self {
            node,
            name,
            address,
            incarnation,
            ceiling,
            control_plane,
            key,
            tuning: Tuning::default(),
            #[cfg(feature = "planted")]
            bug: None,
        }
    }
}

#[cfg(feature = "planted")]
impl Config {
    pub(crate) fn has_bug(&self, bug: crate::planted::Bug) -> bool {
        self.bug == Some(bug)
    }
}

/// How long what takes.
///
/// Only `suspicion` is worth changing: longer means fewer false deaths on a bad network, and later news of real ones.
/// All nodes should have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// One member is probed in each.
    pub probe_period: Duration,
    /// For an answer, before others are asked to try; less than half of the period.
    pub probe_timeout: Duration,
    /// How many are asked to try.
    pub indirect_count: usize,
    /// From suspicion to death, in a cluster of up to 15; a quarter more for each doubling above.
    pub suspicion: Duration,
    /// Between two times that a suspect is asked itself.
    pub ask_every: Duration,
    /// Between two rounds of news, while there are any.
    pub gossip_every: Duration,
    /// How often one piece of news is sent.
    pub news_sent_max: u8,
    /// Between two times that a member is asked for all it knows.
    pub exchange_every: Duration,
    /// Between two times that seeds are asked while no member is known to live.
    pub join_every: Duration,
    /// Between two times that one who may be apart is asked: seeds that no member has, dead members.
    pub reach_every: Duration,
    /// Dead members are forgotten after this.
    pub forget_after: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            probe_period: Duration::from_millis(1000),
            probe_timeout: Duration::from_millis(500),
            indirect_count: 3,
            suspicion: Duration::from_millis(3000),
            ask_every: Duration::from_millis(500),
            gossip_every: Duration::from_millis(200),
            news_sent_max: 10,
            exchange_every: Duration::from_secs(10),
            join_every: Duration::from_millis(1000),
            reach_every: Duration::from_secs(5),
            forget_after: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl Tuning {
    /// From suspicion to death in a cluster of that many.
    #[must_use]
    pub fn suspicion_of(&self, member_count: usize) -> Duration {
        let doublings = (member_count.max(8).ilog2()).saturating_sub(3);
        self.suspicion * (4 + doublings) / 4
    }
}

/// The key of the packets' MACs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl Key {
    /// From the cluster's secret.
    #[must_use]
    pub fn of_secret(secret: &[u8], control_plane: u128) -> Self {
        Self::derive(secret, b"malachi membership packets, secret", control_plane)
    }

    /// Of a cluster without one: it keeps clusters apart and notices damage, and keeps nobody out.
    #[must_use]
    pub fn without_secret(control_plane: u128) -> Self {
        Self::derive(&[], b"malachi membership packets, open", control_plane)
    }

    fn derive(secret: &[u8], use_of_it: &[u8], control_plane: u128) -> Self {
        let mac = Self::keyed(secret).chain_update(use_of_it).chain_update(control_plane.to_be_bytes());
        Self(mac.finalize().into_bytes().into())
    }

    fn keyed(key: &[u8]) -> Hmac<Sha256> {
        Hmac::new_from_slice(key).expect("HMAC takes a key of any length")
    }

    /// The MAC over `bytes`, not cut yet.
    pub(crate) fn mac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        Self::keyed(&self.0).chain_update(bytes)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspicion_grows_slowly_with_the_cluster() {
        let tuning = Tuning::default();
        let millis = |count| tuning.suspicion_of(count).as_millis();
        assert_eq!(
            [millis(1), millis(15), millis(16), millis(50), millis(500)],
            [3000, 3000, 3750, 4500, 6750]
        );
    }

    #[test]
    fn keys_differ_by_secret_and_by_cluster_and_are_not_printed() {
        let keys = [
            Key::of_secret(b"a", 1),
            Key::of_secret(b"b", 1),
            Key::of_secret(b"a", 2),
            Key::of_secret(b"", 1),
            Key::without_secret(1),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key));
        }
        assert_eq!(format!("{:?}", keys[0]), "Key");
    }
}
