//! Which topics belong to a vnode: the slice of the hash ring it owns.
//!
//! Owns the arc and the version of the ring it comes from. Where the other vnodes stand on the ring, and when
//! an arc changes hands, is decided elsewhere.
//!
//! A command by the id of a topic that is not here is `no_such_topic` whatever the arc, because an id does not
//! say where its topic belongs. Whoever knows the name asks [`Vnode::owns`] before it takes that for an answer.

use types::keyspace::KeyHash;
use types::{FenceToken, TopicName};

use super::{Refusal, Reply, Vnode};

/// A slice of the ring of 32-bit hashes: from `after`, exclusive, to `upto`, inclusive, over the end of the
/// ring and on from its start where need be. Equal bounds are the whole ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingArc {
    /// Place of the vnode before this one; exclusive.
    pub after: u32,
    /// Place of this vnode; inclusive.
    pub upto: u32,
}

impl RingArc {
    /// Whether a place on the ring lies inside.
    #[must_use]
    pub fn covers(self, hash: u32) -> bool {
        // Distance from the first place of the arc: the place before it is the farthest.
        let from_first = |place: u32| place.wrapping_sub(self.after).wrapping_sub(1);
        from_first(hash) <= from_first(self.upto)
    }
}

/// Arguments of [`Command::SetArc`](super::Command::SetArc).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetArc {
    /// Of the ring the arc comes from; at least the recorded one.
    pub ring_version: u64,
    /// `None` for the whole ring.
    pub arc: Option<RingArc>,
    /// Token of the lease under which it is proposed.
    pub lease: FenceToken,
}

/// What a vnode knows of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) ring_version: u64,
    pub(super) arc: Option<RingArc>,
}

impl Owned {
    /// Whether a topic of that name belongs here.
    pub(super) fn covers(self, name: &[u8]) -> bool {
        self.arc.is_none_or(|arc| arc.covers(KeyHash::Xxh32.of(name)))
    }
}

impl Vnode {
    pub(super) fn set_arc(&mut self, set: SetArc) -> Result<Reply, Refusal> {
        self.check_lease(set.lease)?;
        if set.ring_version < self.owned.ring_version {
            return Err(Refusal::StaleRing);
        }
        self.lease = set.lease;
        self.owned = Owned { ring_version: set.ring_version, arc: set.arc };
        Ok(Reply::ArcSet)
    }

    /// Whether topics of that name belong here. While a topic moves it may be listed and not belong here, or
    /// belong here and not be listed yet.
    #[must_use]
    pub fn owns(&self, name: &TopicName) -> bool {
        self.owned.covers(name.as_str().as_bytes())
    }

    /// The vnode's arc; `None` for the whole ring.
    #[must_use]
    pub fn arc(&self) -> Option<RingArc> {
        self.owned.arc
    }

    /// Version of the ring the arc comes from; 0 when none was ever set.
    #[must_use]
    pub fn ring_version(&self) -> u64 {
        self.owned.ring_version
    }
}
