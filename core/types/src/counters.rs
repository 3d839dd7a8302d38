//! Counters that order decisions: one newtype each, so that none is ever compared with another kind.

use std::fmt;

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The value nothing has counted up yet.
            pub const ZERO: Self = Self(0);

            /// The next value. Panics on overflow: 2^64 steps are not reached by counting.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.checked_add(1).expect("a counter that steps by one never reaches 2^64"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter! {
    /// A Raft term: orders the leaders of one Raft group.
    Term
}
counter! {
    /// Index of an entry in one Raft group's log. The first entry has index 1; 0 means "before the first".
    RaftIndex
}
counter! {
    /// A segment's epoch: registration gives 1, each fence raises it, and a copy refuses lower ones.
    Epoch
}
counter! {
    /// Life of a node as its peers see it; survives restarts and only grows.
    Incarnation
}
counter! {
    /// Version of a consumer group's assignment.
    Generation
}
counter! {
    /// Fencing token of the cluster lease.
    FenceToken
}
