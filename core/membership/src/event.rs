//! All that can happen to a node's membership, and all it can ask for.

use std::sync::Arc;

use bytes::Bytes;
use types::{Incarnation, Instant, NodeId};

use crate::address::Address;
use crate::digest::Digest;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The node serves: it looks for others. Given once; what is given before it is kept or ignored.
    Start,
    /// A datagram, all of it. It is checked before it changes anything. Where it came from does not matter: answers
    /// go to where its sender says it is.
    Packet(Bytes),
    /// The time of the last [`Action::WakeAt`] has come. One that comes early, late or twice does no harm.
    Timer,
    /// This node's own digest is another now.
    SetOwn(Digest),
    /// Where to look for others; replaces what was given before. More than
    /// [`types::limits::MEMBER_SEEDS_MAX`] are cut off.
    Seeds(Vec<Address>),
    /// The node is not in the list of members any more: forget it once it is dead.
    Forget(NodeId),
    /// What [`Action::Reserve`] asked for is durable.
    Reserved(Incarnation),
    /// This node stops: others are told, and nothing is sent after that.
    Leave,
}

/// Something the caller must do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a datagram. It may be lost, repeated, or overtaken.
    Send {
        /// Where to.
        to: Address,
        /// At most [`types::limits::MEMBER_PACKET_BYTES_MAX`].
        bytes: Bytes,
    },
    /// Give an [`Event::Timer`] at this time. Replaces the time given before.
    WakeAt(Instant),
    /// Something is known of a member that was not before.
    Changed(MemberView),
    /// The member is known no more.
    Forgotten(NodeId),
    /// Record this ceiling durably and say so with [`Event::Reserved`]. A node that cannot stops itself.
    Reserve(Incarnation),
    /// This node lives on as another incarnation: it was taken for dead, or had lost count.
    Renewed(Incarnation),
    /// Two nodes claim one id. Whoever is refused is told too. Given once for each pair of addresses.
    Duplicate {
        /// The id.
        node: NodeId,
        /// Who is kept.
        kept: Address,
        /// Who is refused.
        refused: Address,
    },
    /// A later incarnation of this very node, or the same one, is elsewhere and was there first: this one takes no
    /// further part. Its process should end and say why.
    Superseded {
        /// Where the other one is.
        by: Address,
        /// Its incarnation.
        incarnation: Incarnation,
    },
}

/// What this node thinks of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// It answers.
    Alive,
    /// It did not answer somebody, and has not said yet that it lives. Not dead.
    Suspect,
    /// It had time to say so and did not, or it left.
    Down,
}

/// What is known of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Who.
    pub node: NodeId,
    /// For people; empty until it is heard.
    pub name: Arc<str>,
    /// Where.
    pub address: Address,
    /// Of its present life. Never decreases (C-9).
    pub incarnation: Incarnation,
    /// Whether it lives.
    pub status: Status,
    /// As it last said; `None` until it is heard.
    pub digest: Option<Digest>,
}
