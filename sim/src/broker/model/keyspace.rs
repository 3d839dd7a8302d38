//! Where keys lie, worked out without the product's code.
//!
//! The hash is xxHash32 with seed 0, written down a second time from its definition: a build that places keys
//! otherwise than the one before it would lose records from view, and only something that does not share its code
//! can say so.

/// Half-open.
pub(in super::super) type Span = (u64, u64);

const PRIMES: [u32; 5] = [2_654_435_761, 2_246_822_519, 3_266_489_917, 668_265_263, 374_761_393];

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| (word << 8) | u32::from(*byte))
}

fn round(lane: u32, bytes: &[u8]) -> u32 {
    lane.wrapping_add(word(bytes).wrapping_mul(PRIMES[1])).rotate_left(13).wrapping_mul(PRIMES[0])
}

/// xxHash32 with seed 0.
pub(super) fn hash(bytes: &[u8]) -> u32 {
    let stripes = bytes.chunks_exact(16);
    let rest = stripes.remainder();
    let mut lanes = [PRIMES[0].wrapping_add(PRIMES[1]), PRIMES[1], 0, 0_u32.wrapping_sub(PRIMES[0])];
    for stripe in stripes {
        for (lane, bytes) in lanes.iter_mut().zip(stripe.chunks_exact(4)) {
            *lane = round(*lane, bytes);
        }
    }
    let mut hash = if bytes.len() >= 16 {
        let turned = [1, 7, 12, 18].iter().zip(lanes);
        turned.fold(0_u32, |sum, (turn, lane)| sum.wrapping_add(lane.rotate_left(*turn)))
    } else {
        PRIMES[4]
    };
    hash = hash.wrapping_add(bytes.len() as u32);
    let words = rest.chunks_exact(4);
    let bytes = words.remainder();
    for bytes in words {
        hash = hash.wrapping_add(word(bytes).wrapping_mul(PRIMES[2])).rotate_left(17).wrapping_mul(PRIMES[3]);
    }
    for byte in bytes {
        hash = hash
            .wrapping_add(u32::from(*byte).wrapping_mul(PRIMES[4]))
            .rotate_left(11)
            .wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(PRIMES[1]);
    hash = (hash ^ (hash >> 13)).wrapping_mul(PRIMES[2]);
    hash ^ (hash >> 16)
}

/// Positions of a topic that was asked for with so many bits.
pub(in super::super) fn size(bits: u8) -> u64 {
    match bits {
        1..=32 => 1 << bits,
        _ => 1 << 16,
    }
}

/// Where a key lies among `size` positions.
pub(in super::super) fn position(key: &[u8], size: u64) -> u64 {
    u64::from(hash(key)) % size
}

pub(in super::super) fn contains(span: Span, position: u64) -> bool {
    (span.0..span.1).contains(&position)
}

/// Spans as the fewest that cover the same positions, in order.
pub(in super::super) fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut out: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match out.last_mut() {
            Some(last) if span.0 <= last.1 => last.1 = last.1.max(span.1),
            _ => out.push(span),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        for (bytes, expected) in [
            (&b""[..], 0x02cc_5d05),
            (b"a", 0x550d_7456),
            (b"abc", 0x32d1_53ff),
            (b"Nobody inspects the spammish repetition", 0xe229_3b2f),
        ] {
            assert_eq!(hash(bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn neighbours_become_one() {
        assert_eq!(joined(vec![(4, 8), (0, 2), (2, 4), (10, 11)]), [(0, 8), (10, 11)]);
    }
}
