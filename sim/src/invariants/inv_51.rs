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
