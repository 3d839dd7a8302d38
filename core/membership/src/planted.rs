//! Bugs that can be put in on purpose, to show that the simulator finds them.
//!
//! Only a build with the feature `planted` can switch one on; a broker is never built with it.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// Packets made with another key count.
    TakeAnyKey,
    /// A packet that was received before counts again.
    TakeReplays,
    /// News of an earlier incarnation of a member replaces what is known of the later one.
    TakeEarlier,
    /// Seeds are asked once.
    AskOnce,
    /// Who was declared dead stays as it was.
    StayDead,
    /// The dead are left alone: nobody looks whether they came back.
    LeaveDead,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 6] = [
        Self::TakeAnyKey,
        Self::TakeReplays,
        Self::TakeEarlier,
        Self::AskOnce,
        Self::StayDead,
        Self::LeaveDead,
    ];
}
