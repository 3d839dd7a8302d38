//! Who is alive, as far as this node can tell.
//!
//! Owns failure detection, what is known of every member, the bytes of the packets that carry it, and the number a
//! node's life is told by ([`incarnation`]). Does not know what members do, opens no socket, reads no clock: it takes
//! an [`Event`] and returns [`Action`]s. It is the slow way to notice a failure; whoever writes to a node notices
//! sooner that it does not answer.
//!
//! The engine is `foca` 2, a SWIM implementation without input or output, which nothing outside this crate sees. It
//! gives: probes in a shuffled round, suspects included, so that the time until somebody is probed is bounded;
//! indirect probes; suspicion and its refutation; news carried by whatever is sent. We add:
//!
//! - a node is its id. A later incarnation of it replaces the earlier one at once, wherever it is; an earlier or the
//!   same one at another address is refused, and both sides are told ([`Action::Duplicate`], [`Action::Superseded`]);
//! - every suspect has a deadline, whoever suspected it, and until then it is asked itself, again and again, and told
//!   that it is suspected: nobody is declared dead on hearsay. This is what makes false deaths rare on a bad network;
//! - time in which this node did not run is not counted: who comes back from a pause does not take the others for dead;
//! - who was declared dead and is not comes back as a later incarnation, and gives up what it believed of others' death
//!   while it was apart;
//! - seeds are addresses and no members: nothing is known of a seed before it speaks for itself. They are asked until
//!   a first member is seen, and later those that no living member has; dead members are asked too, so that two halves
//!   of a cluster find each other again;
//! - packets carry a MAC and a number: what was not made with the cluster's key, or was received before, changes
//!   nothing;
//! - a small [`Digest`] of each member travels along. What it is a digest of is exchanged by others.
//!
//! Invariants:
//! - the incarnation known of a member never decreases (C-9), and a node never uses one above its recorded ceiling;
//! - suspect is not dead: placement may avoid a suspect, but only [`Status::Down`] justifies what cannot be undone;
//! - memory is bounded by the number of members, which is bounded, whatever arrives;
//! - no timer outlives the machine it belongs to: a wake-up carries nothing, and what is due is looked up here.

pub mod address;
pub mod config;
pub mod digest;
mod engine;
pub mod event;
pub mod incarnation;
mod machine;
mod packet;
#[cfg(feature = "planted")]
pub mod planted;
#[cfg(test)]
mod tests;

pub use address::Address;
pub use config::{Config, Key, Tuning};
pub use digest::Digest;
pub use event::{Action, Event, MemberView, Status};
pub use machine::{Load, Membership, Tally};
