//! The machine as its driver sees it.

mod doubles;
mod harness;
mod hostile;
mod liveness;
mod renewal;
