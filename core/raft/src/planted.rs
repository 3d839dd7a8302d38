//! Bugs that can be put in on purpose, to show that the simulator finds them.
//!
//! Only a build with the feature `planted` can switch one on; a broker is never built with it.

use crate::engine::{NOBODY, eraftpb};
use crate::group::Group;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// Messages leave before what they tell of is durable.
    SendEarly,
    /// A vote is given and not stored.
    ForgetVote,
    /// A member's own copy of an entry counts when it was handed to storage, not when storage says so.
    CountUnstored,
    /// A leader answers reads without asking whether it still leads.
    ReadAlone,
    /// A leader by its own vote alone speaks before its term is durable.
    LeadEarly,
    /// A message meant for an earlier life of a node counts for the later one.
    AnyLife,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 6] = [
        Self::SendEarly,
        Self::ForgetVote,
        Self::CountUnstored,
        Self::ReadAlone,
        Self::LeadEarly,
        Self::AnyLife,
    ];
}

/// What the bugs do, so that the code they sit in stays readable. Nothing happens without one.
impl Group {
    /// What binds the member is about to be stored.
    pub(crate) fn plant_hard_state(&self, hard: eraftpb::HardState) -> eraftpb::HardState {
        if self.config().has_bug(Bug::ForgetVote) {
            eraftpb::HardState { vote: NOBODY, ..hard }
        } else {
            hard
        }
    }
}
