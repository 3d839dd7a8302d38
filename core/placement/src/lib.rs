//! Which nodes hold what, how the ring is cut finer and coarser, and who may do so at a time.
//!
//! Owns decisions of the control plane as functions of what is known: the same inputs give the same answer on
//! every node, whatever the order in which they were learned. Does not know the replicated tables, who leads,
//! or how a decision is carried out; nothing here has an effect.

pub mod domains;
pub mod holder;
pub mod place;
pub mod rank;
pub mod rebalance;
pub mod repair;
pub mod reshard;
