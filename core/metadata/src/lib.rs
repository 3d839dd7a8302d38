//! Every replicated table, as deterministic machines.
//!
//! Owns what a log of commands means: `apply(state, entry) -> reply`. Does not know that it is replicated,
//! who proposes, which node leads, or what time it is; whatever depends on a choice, a clock or a
//! configuration travels inside the command.

pub mod cluster;
pub mod machine;
pub mod ring_change;
pub mod vnode;
