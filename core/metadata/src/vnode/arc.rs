//! Which topics belong to a vnode: the slice of the hash ring it owns.
//!
//! Owns the arc and the version of the ring it comes from. Where the other vnodes stand on the ring, and when
//! an arc changes hands, is decided elsewhere.
//!
//! A command by the id of a topic that is not here is `no_such_topic` whatever the arc, because an id does not
//! say where its topic belongs. Whoever knows the name asks [`Vnode::owns`] before it takes that for an answer.

use types::keyspace::KeyHash;
use types::{FenceToken, RingArc, TopicName};

use super::{Refusal, Reply, Vnode};

/// Which topics belong to a vnode, by the place of their names on the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// Every topic: what a vnode begins with, and goes by until it is told otherwise.
    #[default]
    Whole,
    /// Those inside this slice.
    Arc(RingArc),
    /// None: the vnode is on its way onto the ring, or left it.
    Nothing,
}

impl Share {
    /// Whether a place on the ring lies inside.
    #[must_use]
    pub fn covers(self, hash: u32) -> bool {
        match self {
            Self::Whole => true,
            Self::Arc(arc) => arc.covers(hash),
            Self::Nothing => false,
        }
    }
}

/// Arguments of [`Command::SetArc`](super::Command::SetArc).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetArc {
    /// Of the ring the arc comes from; at least the recorded one.
    pub ring_version: u64,
    /// What belongs to the vnode before: a step that is late finds that it is not so any more.
    pub expected: Share,
    /// What belongs to the vnode from now on. Fine when it does already.
    pub arc: Share,
    /// Token of the lease under which it is proposed.
    pub lease: FenceToken,
}

/// What a vnode knows of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) ring_version: u64,
    pub(super) arc: Share,
}

impl Owned {
    /// Whether a topic of that name belongs here.
    pub(super) fn covers(self, name: &[u8]) -> bool {
        self.arc.covers(KeyHash::Xxh32.of(name))
    }

    /// Whether the vnode was told that a topic of that name belongs here: no move brings it any more.
    pub(super) fn is_settled(self, name: &[u8]) -> bool {
        self.arc != Share::Whole && self.covers(name)
    }
}

impl Vnode {
    pub(super) fn set_arc(&mut self, set: SetArc) -> Result<Reply, Refusal> {
        self.check_lease(set.lease)?;
        if set.ring_version < self.owned.ring_version {
            return Err(Refusal::StaleRing);
        }
        if ![set.expected, set.arc].contains(&self.owned.arc) {
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

    /// What belongs to the vnode.
    #[must_use]
    pub fn arc(&self) -> Share {
        self.owned.arc
    }

    /// Version of the ring the arc comes from; 0 when none was ever set.
    #[must_use]
    pub fn ring_version(&self) -> u64 {
        self.owned.ring_version
    }
}
