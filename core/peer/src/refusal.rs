//! Why a node does not talk to another: one number each, told in one frame before the connection closes.
//!
//! A number is never reused. What the other side is told is the number alone; the values that explain it stay with
//! the one who refuses.

use std::fmt;

/// Why a connection between nodes is not to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The two builds have no version of the protocol in common.
    Version,
    /// The two sides prove themselves in different ways.
    Authentication,
    /// The proof is not of the same secret, or somebody is in between.
    Secret,
    /// Each belongs to a cluster, and not to the same.
    ControlPlane,
    /// Both have the same node id: a copied data directory, or a node that dialled itself.
    SameNode,
    /// Another node answers than the one that was dialled.
    OtherNode,
    /// A later incarnation of the same node is connected.
    Superseded,
    /// The two are connected already.
    Connected,
    /// There are as many connections as there may be.
    Busy,
    /// The node is shutting down.
    Closing,
    /// What was sent makes no sense.
    Malformed,
    /// Another process of the same node is connected and alive: one of the two runs on a copied data directory.
    Duplicate,
}

impl Refusal {
    /// All of them, by number.
    pub const ALL: [Self; 12] = [
        Self::Version,
        Self::Authentication,
        Self::Secret,
        Self::ControlPlane,
        Self::SameNode,
        Self::OtherNode,
        Self::Superseded,
        Self::Connected,
        Self::Busy,
        Self::Closing,
        Self::Malformed,
        Self::Duplicate,
    ];

    /// Its number in a frame.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Self::Version => 1,
            Self::Authentication => 2,
            Self::Secret => 3,
            Self::ControlPlane => 4,
            Self::SameNode => 5,
            Self::OtherNode => 6,
            Self::Superseded => 7,
            Self::Connected => 8,
            Self::Busy => 9,
            Self::Closing => 10,
            Self::Malformed => 11,
            Self::Duplicate => 12,
        }
    }

    /// The refusal of a number; `None` for one of a later build.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.number() == number)
    }

    /// Its name in logs and documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Version => "no_common_version",
            Self::Authentication => "authentication_differs",
            Self::Secret => "wrong_secret",
            Self::ControlPlane => "another_control_plane",
            Self::SameNode => "same_node_id",
            Self::OtherNode => "another_node",
            Self::Superseded => "superseded",
            Self::Connected => "connected_already",
            Self::Busy => "busy",
            Self::Closing => "closing",
            Self::Malformed => "malformed",
            Self::Duplicate => "duplicate_node",
        }
    }

    /// Whether the same attempt may succeed later without anybody doing anything.
    #[must_use]
    pub fn passes(self) -> bool {
        match self {
            Self::Superseded | Self::Connected | Self::Busy | Self::Closing => true,
            Self::Version
            | Self::Authentication
            | Self::Secret
            | Self::ControlPlane
            | Self::SameNode
            | Self::OtherNode
            | Self::Malformed
            | Self::Duplicate => false,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_they_were() {
        for (number, refusal) in (1..).zip(Refusal::ALL) {
            assert_eq!(refusal.number(), number);
            assert_eq!(Refusal::from_number(number), Some(refusal));
        }
        assert_eq!((Refusal::from_number(0), Refusal::from_number(13)), (None, None));
    }
}
