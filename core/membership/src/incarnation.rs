//! The remembered incarnation: the arithmetic of `malachi.incarnation`, without the file.
//!
//! Nobody but a node raises its incarnation, and peers disregard what is below what they have seen of it. So a node
//! must never start below its own past. The file holds a *ceiling*: a number the node promises never to have gone
//! beyond. Numbers are taken up to it, and a higher one is recorded, durably, before going past it; a start takes
//! numbers above the recorded one. Seconds since 1970 are a lower bound, for a node whose file is gone: with a higher
//! recorded ceiling the ceiling decides, so that a clock set back lowers nobody.
//!
//! The caller writes beside, syncs, renames and syncs the directory; a start that cannot is refused (E11), and a
//! running node that cannot stops itself.
//!
//! ```text
//!   magic "MINC":4  version:u8 = 1  ceiling:u64  CRC-32 of all before:u32
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use types::Incarnation;
use types::codec::{self, Reader};

/// How many numbers are reserved at a time.
pub const BLOCK: u64 = 1024;
/// Name of the file, in the root of the log's data directory.
pub const FILE_NAME: &str = "malachi.incarnation";
/// No ceiling is above it, so that counting on never overflows.
pub const CEILING_MAX: Incarnation = Incarnation(1 << 62);

const MAGIC: u32 = u32::from_be_bytes(*b"MINC");
const VERSION: u8 = 1;

/// The numbers a life of a node may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The first, which no earlier life used.
    pub first: Incarnation,
    /// The last; recorded durably before the first is used.
    pub ceiling: Incarnation,
}

/// Why a node has no incarnation to start with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file's bytes are not what they should be. Guessing could start the node below its past.
    #[error("the incarnation file does not decode: {0}")]
    Damaged(codec::Error),
    /// The bytes are of a later build.
    #[error("the incarnation file is of version {0}, which this build does not know")]
    Later(u8),
    /// No number is left; a clock that is set absurdly far ahead does that.
    #[error("no incarnation is left above {0}")]
    Exhausted(Incarnation),
}

/// What a starting node reserves: `recorded` is the ceiling of its file, `None` when there is no file.
pub fn start(recorded: Option<Incarnation>, unix_seconds: u64) -> Result<Reservation, Error> {
    let base = Incarnation(recorded.map_or(0, |ceiling| ceiling.0).max(unix_seconds));
    let ceiling = Incarnation(base.0.saturating_add(BLOCK));
    if ceiling > CEILING_MAX {
        return Err(Error::Exhausted(base));
    }
    Ok(Reservation { first: base.next(), ceiling })
}

/// The ceiling to record next when `used` is in use and `ceiling` recorded; `None` while there is enough left.
#[must_use]
pub fn next_ceiling(used: Incarnation, ceiling: Incarnation) -> Option<Incarnation> {
    let left = ceiling.0.saturating_sub(used.0);
    let wanted = Incarnation(ceiling.0.max(used.0).saturating_add(BLOCK));
    (left < BLOCK / 2 && wanted <= CEILING_MAX).then_some(wanted)
}

/// The file's bytes.
#[must_use]
pub fn encode(ceiling: Incarnation) -> Bytes {
    let mut bytes = BytesMut::with_capacity(17);
    bytes.put_u32(MAGIC);
    bytes.put_u8(VERSION);
    bytes.put_u64(ceiling.0);
    let sum = crc32fast::hash(&bytes);
    bytes.put_u32(sum);
    bytes.freeze()
}

/// The ceiling the file's bytes hold.
pub fn decode(bytes: &[u8]) -> Result<Incarnation, Error> {
    let invalid = |what| Error::Damaged(codec::Error::Invalid(what));
    let mut reader = Reader::new(Bytes::copy_from_slice(&bytes[..bytes.len().min(64)]));
    if reader.u32().map_err(Error::Damaged)? != MAGIC {
        return Err(invalid("the file's magic"));
    }
    let version = reader.u8().map_err(Error::Damaged)?;
    if version != VERSION {
        return Err(Error::Later(version));
    }
    let ceiling = Incarnation(reader.u64().map_err(Error::Damaged)?);
    let sum = reader.u32().map_err(Error::Damaged)?;
    reader.finish().map_err(Error::Damaged)?;
    if sum != crc32fast::hash(&bytes[..13]) {
        return Err(invalid("the file's checksum"));
    }
    if ceiling > CEILING_MAX {
        return Err(invalid("the ceiling"));
    }
    Ok(ceiling)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_above_the_recorded_ceiling_and_above_the_clock() {
        let reserved = |recorded: Option<u64>, clock| {
            let reservation = start(recorded.map(Incarnation), clock).unwrap();
            (reservation.first.0, reservation.ceiling.0)
        };
        assert_eq!(reserved(None, 1_700_000_000), (1_700_000_001, 1_700_001_024));
        assert_eq!(reserved(Some(5), 1_700_000_000), (1_700_000_001, 1_700_001_024));
        // A clock that was set back lowers nobody.
        assert_eq!(reserved(Some(1_700_001_024), 3), (1_700_001_025, 1_700_002_048));
    }

    #[test]
    fn no_two_lives_share_a_number_whatever_the_clock_says() {
        let mut recorded = None;
        let mut last_used = Incarnation::ZERO;
        for clock in [100, 100, 0, 5000, 4999, 0] {
            let life = start(recorded, clock).unwrap();
            assert!(life.first > last_used);
            // It is killed after having used all it reserved.
            (recorded, last_used) = (Some(life.ceiling), life.ceiling);
        }
    }

    #[test]
    fn more_is_reserved_before_the_block_is_used_up() {
        let ceiling = Incarnation(5000);
        assert_eq!(next_ceiling(Incarnation(4000), ceiling), None);
        assert_eq!(next_ceiling(Incarnation(4488), ceiling), None);
        assert_eq!(next_ceiling(Incarnation(4489), ceiling), Some(Incarnation(6024)));
        // Somebody knows a later life of this node than it does itself.
        assert_eq!(next_ceiling(Incarnation(9000), ceiling), Some(Incarnation(10_024)));
        assert_eq!(next_ceiling(CEILING_MAX, CEILING_MAX), None);
    }

    #[test]
    fn there_is_an_end() {
        assert!(matches!(start(Some(CEILING_MAX), 0), Err(Error::Exhausted(_))));
        assert!(matches!(start(None, u64::MAX), Err(Error::Exhausted(_))));
    }

    #[test]
    fn the_file_is_read_back_and_its_golden_bytes_stay() {
        let bytes = encode(Incarnation(0x0102_0304));
        assert_eq!(bytes[..], *b"MINC\x01\x00\x00\x00\x00\x01\x02\x03\x04\x29\xaf\x84\xee");
        assert_eq!(decode(&bytes), Ok(Incarnation(0x0102_0304)));
    }

    #[test]
    fn whatever_is_wrong_with_the_file_is_noticed() {
        let good = encode(Incarnation(77));
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.to_vec();
                bad[at] ^= 1 << bit;
                assert!(decode(&bad).is_err(), "bit {bit} of byte {at}");
            }
            assert!(decode(&good[..at]).is_err());
        }
        assert!(decode(&[good.as_ref(), b"x"].concat()).is_err());
        assert_eq!(decode(b"MINC\x02 whatever a later build writes"), Err(Error::Later(2)));
    }
}
