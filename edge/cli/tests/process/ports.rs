//! Ports for the brokers of one test process, so that nobody else is given them between two starts.
//!
//! A port that the system gives for the asking is free the moment it is let go, and the next that asks may be given it
//! again: two listeners of one broker, or a broker that is down and somebody's outgoing connection. So a process takes
//! a block of ports below those the system gives out, holds the block by its first port for as long as it lives, and
//! hands out the others once each.

use std::net::TcpListener;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Below what systems give to outgoing connections.
const PORTS: Range<u16> = 12_000..28_000;
/// One that holds the block, and those that it is for.
const BLOCK: u16 = 200;

struct Block {
    /// Nobody else takes the block while this listens.
    _held: TcpListener,
    left: Range<u16>,
}

impl Block {
    /// The first one that nobody holds; the search begins somewhere else in every process.
    fn claim() -> Self {
        let count = (PORTS.end - PORTS.start) / BLOCK;
        let first = u16::try_from(std::process::id() % u32::from(count)).unwrap();
        let mut starts = (0..count).map(|at| PORTS.start + (first + at) % count * BLOCK);
        let claimed = starts.find_map(|start| {
            let held = TcpListener::bind(("127.0.0.1", start)).ok()?;
            Some(Self { _held: held, left: start + 1..start + BLOCK })
        });
        claimed.expect("a block of ports is free")
    }
}

/// Free ports that no other call gives, here or in another process.
pub(crate) fn free<const N: usize>() -> [u16; N] {
    static BLOCK: Mutex<Option<Block>> = Mutex::new(None);
    let mut block: MutexGuard<'_, Option<Block>> = BLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let block = block.get_or_insert_with(Block::claim);
    std::array::from_fn(|_| {
        let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        block.left.find(is_free).expect("a test needs few ports")
    })
}
