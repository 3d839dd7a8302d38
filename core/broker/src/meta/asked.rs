//! What this node has proposed and not heard of.
//!
//! Owns the numbers of proposals and that each has one outcome, even when nobody can know what became of it.

use std::collections::BTreeMap;

use types::NodeId;

use super::origin::Origin;

/// Why nobody will hear what a proposal did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It certainly was not and will not be recorded.
    NotRecorded,
    /// It may have been, or may yet be.
    Unknown,
}

/// Proposals without an outcome.
#[derive(Debug)]
pub(crate) struct Asked<Then> {
    node: NodeId,
    life: u64,
    next: u64,
    waiting: BTreeMap<u64, Then>,
}

impl<Then> Asked<Then> {
    /// Numbers begin with `first`: proposals of one node have different ones whatever they are for.
    pub(crate) fn new(node: NodeId, life: u64, first: u64) -> Self {
        Self { node, life, next: first, waiting: BTreeMap::new() }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// A new proposal.
    pub(crate) fn ask(&mut self, then: Then) -> Origin {
        let origin = self.own(self.next);
        self.next += 1;
        self.waiting.insert(origin.number, then);
        origin
    }

    /// What an entry of this process says of itself.
    pub(crate) fn own(&self, number: u64) -> Origin {
        Origin { node: self.node, life: self.life, number, led: None }
    }

    /// The same without anybody who waits.
    #[cfg(any(test, feature = "planted"))]
    pub(crate) fn ask_unheard(&self) -> Origin {
        self.own(u64::MAX >> 1)
    }

    /// Whoever waits for the proposal that an entry came from, if it is one of this process.
    pub(crate) fn heard(&mut self, origin: Origin) -> Option<Then> {
        if self.is_own(origin) { self.lost(origin.number) } else { None }
    }

    /// Whether a proposal is one of this process.
    pub(crate) fn is_own(&self, origin: Origin) -> bool {
        (origin.node, origin.life) == (self.node, self.life)
    }

    /// Nothing will be heard of the proposal.
    pub(crate) fn lost(&mut self, number: u64) -> Option<Then> {
        self.waiting.remove(&number)
    }
}
