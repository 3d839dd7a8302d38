//! Bugs that can be put in on purpose, to show that the simulator finds them.
//!
//! Only a build with the feature `planted` can switch one on; a broker is never built with it.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// Writes of groups are reported before they were made.
    PersistEarly,
    /// What a replica had stored is removed before the list says that another one follows.
    ClearUnlisted,
    /// A successor begins with what the replica before it had stored.
    KeepOldState,
    /// A replica is forgotten whichever replica of its group the letter is about.
    ForgetAnyone,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 4] =
        [Self::PersistEarly, Self::ClearUnlisted, Self::KeepOldState, Self::ForgetAnyone];
}
