//! The lease: which node may do the work of the cluster that must not be done twice.
//!
//! Owns the holder and the fence. Time comes with the commands, from the clock of whoever leads the group; when a
//! holder stops believing it holds the lease is its own business, and earlier than the end recorded here.
//!
//! - the fence never decreases, and grows exactly when the lease passes to a holder it did not have just before;
//! - a lease is over when `at >= renewed at + duration`, by the clock in the command that asks. A clock that steps
//!   forward ends a lease early, which fences make harmless; one that steps back makes it last longer by the step.

use types::{FenceToken, NodeId, WallTime};

use super::{Cluster, Refusal, Reply};

/// The lease as everybody agrees on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// `None` when it was given back, or never taken.
    pub holder: Option<NodeId>,
    /// Given to the latest holder; 0 before the first.
    pub fence: FenceToken,
    /// Time of the latest renewal.
    pub renewed_at: WallTime,
    /// How long it lasts from there, milliseconds.
    pub duration_ms: u64,
}

impl Lease {
    /// Whether somebody holds it at that time.
    #[must_use]
    pub fn is_held(&self, at: WallTime) -> bool {
        self.holder.is_some() && at.0 < self.renewed_at.0.saturating_add(self.duration_ms)
    }

    /// Frees it when that node holds it. The fence is kept.
    pub(super) fn forget(&mut self, node: NodeId) {
        if self.holder == Some(node) {
            self.holder = None;
        }
    }
}

/// Arguments of [`Command::AcquireLease`](super::Command::AcquireLease).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireLease {
    /// Who wants it, or to keep it.
    pub candidate: NodeId,
    /// How long it is to last from now, milliseconds.
    pub duration_ms: u64,
    /// The proposing leader's clock.
    pub at: WallTime,
}

impl Cluster {
    pub(super) fn acquire_lease(&mut self, acquire: AcquireLease) -> Result<Reply, Refusal> {
        let AcquireLease { candidate, duration_ms, at } = acquire;
        self.nodes.check_listed(candidate)?;
        let is_holder = self.lease.holder == Some(candidate);
        if let Some(holder) = self.lease.holder.filter(|_| !is_holder && self.lease.is_held(at)) {
            return Ok(Reply::LeaseHeld { holder });
        }
        let fence = if is_holder { self.lease.fence } else { self.lease.fence.next() };
        self.lease = Lease { holder: Some(candidate), fence, renewed_at: at, duration_ms };
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
