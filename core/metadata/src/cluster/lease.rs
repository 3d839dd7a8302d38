//! The lease: which node may do the work of the cluster that must not be done twice.
//!
//! Owns the holder and the fence. Decides nothing by a clock: whoever wants the lease of another says which renewal it
//! has seen unchanged for as long as the lease lasts, by its own clock that never steps, and gets it when there was none
//! since. When a holder stops believing it holds the lease is its own business, and earlier than anybody else may ask.
//!
//! - the fence never decreases, and grows exactly when the lease passes to a holder it did not have just before;
//! - no two renewals under one fence have the same time, whatever wall clocks do: fence and time name a renewal.

use types::{FenceToken, NodeId, WallTime};

use super::{Cluster, Refusal, Reply};

/// No clock is believed to be later than this, so that there is always a later time for the next renewal.
const RENEWED_AT_MAX: u64 = 1 << 62;

/// The lease as everybody agrees on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// `None` when it was given back, or never taken.
    pub holder: Option<NodeId>,
    /// Given to the latest holder; 0 before the first.
    pub fence: FenceToken,
    /// Time of the latest renewal by the holder's wall clock, or the next that no renewal had. For people, and to tell
    /// renewals apart.
    pub renewed_at: WallTime,
    /// How long it lasts from there, milliseconds.
    pub duration_ms: u64,
}

impl Lease {
    /// Names the latest renewal.
    #[must_use]
    pub fn renewal(&self) -> Renewal {
        Renewal { fence: self.fence, at: self.renewed_at }
    }

    /// Frees it when that node holds it. The fence is kept.
    pub(super) fn forget(&mut self, node: NodeId) {
        if self.holder == Some(node) {
            self.holder = None;
        }
    }
}

/// One renewal of the lease. No other has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Renewal {
    /// Under which fence.
    pub fence: FenceToken,
    /// [`Lease::renewed_at`] of it.
    pub at: WallTime,
}

/// Arguments of [`Command::AcquireLease`](super::Command::AcquireLease).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireLease {
    /// Who wants it, or to keep it.
    pub candidate: NodeId,
    /// How long it is to last from now, milliseconds.
    pub duration_ms: u64,
    /// The candidate's wall clock.
    pub at: WallTime,
    /// The renewal that the candidate has seen unchanged for as long as the lease lasts.
    pub over: Option<Renewal>,
}

impl Cluster {
    pub(super) fn acquire_lease(&mut self, acquire: AcquireLease) -> Result<Reply, Refusal> {
        let AcquireLease { candidate, duration_ms, at, over } = acquire;
        self.nodes.check_listed(candidate)?;
        let is_holder = self.lease.holder == Some(candidate);
        let is_over = over == Some(self.lease.renewal());
        if let Some(holder) = self.lease.holder.filter(|_| !is_holder && !is_over) {
            return Ok(Reply::LeaseHeld { holder });
        }
        let fence = if is_holder { self.lease.fence } else { self.lease.fence.next() };
        let renewed_at = at.0.min(RENEWED_AT_MAX).max(self.lease.renewed_at.0.saturating_add(1));
        self.lease = Lease { holder: Some(candidate), fence, renewed_at: WallTime(renewed_at), duration_ms };
        Ok(Reply::LeaseGranted(fence))
    }

    pub(super) fn release_lease(&mut self, candidate: NodeId, fence: FenceToken) -> Reply {
        if fence == self.lease.fence {
            self.lease.forget(candidate);
        }
        Reply::LeaseReleased
    }

    /// Refuses whoever does not act under the fence that was given last.
    pub(super) fn check_fence(&self, fence: FenceToken) -> Result<(), Refusal> {
        let is_current = fence == self.lease.fence && fence > FenceToken::ZERO;
        if is_current { Ok(()) } else { Err(Refusal::StaleFence) }
    }
}
