//! INV-51: memory is bounded by configuration: nothing grows with what clients ask for.

use super::{Violation, ensure};

/// Judges how many long polls a node at rest has parked.
pub fn parked(count: usize, max: usize) -> Result<(), Violation> {
    ensure(count <= max, "INV-51", || format!("{count} long polls are parked, at most {max} are allowed"))
}

/// Judges how many jobs a disk was given and has not done: a few for each request that may be on its way.
pub fn jobs(count: usize, max: usize) -> Result<(), Violation> {
    ensure(count <= max, "INV-51", || format!("{count} jobs wait for a disk, at most {max} are explained"))
}

/// Judges what a node still holds when everything is answered and nobody is connected.
pub fn nothing_left(what: &str, left: bool) -> Result<(), Violation> {
    ensure(!left, "INV-51", || format!("nobody is connected, and the node still holds {what}"))
}

/// Judges a push: credit bounds what is on its way.
pub fn credit(stream: impl std::fmt::Display, in_flight: u32, window: u32) -> Result<(), Violation> {
    ensure(in_flight <= window, "INV-51", || {
        format!("{stream}: {in_flight} records are on their way, its window is {window}")
    })
}

/// Judges a push: the one before it was written.
pub fn one_push(stream: impl std::fmt::Display, pushing: bool) -> Result<(), Violation> {
    ensure(!pushing, "INV-51", || format!("{stream}: a push comes before the last one was written"))
}
