//! Bytes to write: seeded, incompressible, and known again when they are read back.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Bytes that all payloads are cut from.
const POOL_BYTES: usize = 32 * 1024 * 1024;
/// Most different payloads of one length.
const SLOTS_MAX: usize = 4096;

/// A pool of random bytes with the plain CRC-32 of every payload cut from it.
#[derive(Debug)]
pub(crate) struct Payloads {
    pool: Bytes,
    plain: BTreeMap<usize, Vec<u32>>,
}

impl Payloads {
    /// A pool for payloads of these lengths, at most 32 MiB each.
    pub(crate) fn new(lengths: &[usize]) -> Self {
        let mut state = 0x6d61_6c61_6368_6921_u64;
        let mut pool = Vec::with_capacity(POOL_BYTES);
        while pool.len() < POOL_BYTES {
            // xorshift64*: fast, and nothing compresses what it gives.
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            pool.extend_from_slice(&state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
        }
        let pool = Bytes::from(pool);
        let crcs =
            |len: usize| (0..slots(len)).map(|slot| crc32fast::hash(&pool[slot * len..][..len])).collect();
        let plain = lengths.iter().map(|len| (*len, crcs(*len))).collect();
        Self { pool, plain }
    }

    /// Payload number `index` of a writer, with its plain CRC-32. `len` is one of those the pool was made for.
    pub(crate) fn get(&self, writer: u64, index: u64, len: usize) -> (Bytes, u32) {
        let crcs = self.plain.get(&len).expect("the pool was made for this length");
        let mixed = writer.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index) % crcs.len() as u64;
        let slot = usize::try_from(mixed).expect("below the number of slots");
        (self.pool.slice(slot * len..(slot + 1) * len), crcs[slot])
    }
}

fn slots(len: usize) -> usize {
    (POOL_BYTES / len).min(SLOTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_differ_and_checksums_match() {
        let payloads = Payloads::new(&[1024]);
        let (first, crc) = payloads.get(3, 0, 1024);
        assert_eq!(crc32fast::hash(&first), crc);
        assert_ne!(first, payloads.get(3, 1, 1024).0, "the next payload of the same writer");
        assert_ne!(first, payloads.get(4, 0, 1024).0, "the same payload of the next writer");
        assert_eq!(first, payloads.get(3, 0, 1024).0, "asked again");
    }
}
