//! What one copy says of itself, as far as ending a segment or making copies whole depends on it.

use types::{Epoch, Offset};

/// Where a copy stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Exclusive durable end.
    pub end: Offset,
    /// Bytes of frames below `end`.
    pub bytes: u64,
    /// Highest epoch it has durably accepted.
    pub epoch: Epoch,
    /// What can be done with it.
    pub health: Health,
}

/// What can be done with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It holds what it ever acknowledged, and takes appends.
    Open,
    /// It holds what it ever acknowledged, and takes no appends in this process lifetime.
    Stopped,
    /// It ended for good at its end.
    Sealed,
    /// It was made anew and may once have acknowledged more than it holds. What it holds is intact.
    Rebuilding,
    /// Its bytes are damaged.
    Damaged,
    /// Its device takes no writes, or it was declared out of service.
    OutOfService,
}
