//! The client's opaque token: where a reader of one topic goes on.
//!
//! Owns the token's content and its one encoding. Does not know what a position means: which ranges exist,
//! and how tiles regroup after a split or merge, is the broker's business.
//!
//! ```text
//! token  = URL-safe base64 without padding of
//! body   = version:u8 topic:u128 member tiles CRC-32 of all before it:u32
//! member = 00 | 01 length:varint bytes generation:varint
//! tiles  = count:varint tile*
//! tile   = head:u8 [start / size:varint] range:zigzag-varint next:varint
//! head   = log2 of the span's size, and 0x40 when `start` is written
//! ```
//!
//! A topic may have ten thousand ranges, so a tile is small: `start` is written only where the span before
//! did not end (the first one begins at 0), and `range` is the difference to the tile before.
//!
//! Invariants:
//! - a cursor has exactly one encoding, and nothing else decodes;
//! - tiles are sorted by the start of their span and never overlap;
//! - a token is printable ASCII (existing clients carry it as text) of at most
//!   [`limits::CURSOR_BYTES_MAX`] bytes; a longer one is refused before it is looked at.
//!
//! The checksum catches damage, not malice: a client can place itself anywhere inside a topic it may read.
//! The [`TopicId`] inside keeps it there.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::{self, Reader, Writer};
use crate::{Generation, KeySpan, MemberName, Offset, RangeSeq, TopicId, limits};

const VERSION: u8 = 2;
const CRC_BYTES: usize = 4;
/// Set in a tile's head when its start follows.
const START_GIVEN: u8 = 0x40;
/// Smallest encoded tile: one byte a field, no start.
const TILE_BYTES_MIN: usize = 3;
/// Largest: the head, a 32-bit varint and two full 64-bit varints.
const TILE_BYTES_MAX: usize = 1 + 5 + 10 + 10;
/// Everything but the tiles at its largest: the member's name, its length and its generation included.
const FIXED_BYTES_MAX: usize = 1 + 16 + (1 + 2 + limits::GROUP_NAME_BYTES_MAX + 10) + 3 + CRC_BYTES;

/// Bytes of token that one more tile takes at most: what to leave free in an answer for each tile.
pub const TILE_TOKEN_BYTES_MAX: usize = (TILE_BYTES_MAX * 4).div_ceil(3);
/// Bytes of a token without tiles at most, a member included.
pub const FIXED_TOKEN_BYTES_MAX: usize = (FIXED_BYTES_MAX * 4).div_ceil(3);

const _: () = assert!(
    (FIXED_BYTES_MAX + limits::CURSOR_TILES_MAX * TILE_BYTES_MAX).div_ceil(3) * 4 <= limits::CURSOR_BYTES_MAX,
    "whatever encodes also decodes"
);

/// A reader's whole place in one life of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The topic's id, so that a topic created again under the name refuses cursors of its predecessor.
    pub topic: TopicId,
    /// Whom it was issued to, when that was a group's member.
    pub member: Option<CursorMember>,
    /// Sorted by the start of the span, never overlapping, at most [`limits::CURSOR_TILES_MAX`]. A part of
    /// the keyspace that no tile covers is read from its beginning.
    pub tiles: Vec<Tile>,
}

/// The member a cursor was issued to, and the assignment it then had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorMember {
    /// Its name.
    pub member: MemberName,
    /// Of the assignment; a commit under an older one leaves reassigned ranges alone.
    pub generation: Generation,
}

/// One slice of the keyspace and where its reader stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The range being read for this slice: a current range or an ancestor not yet drained.
    pub range: RangeSeq,
    /// The slice.
    pub span: KeySpan,
    /// First offset of `range` not yet given to the reader.
    pub next: Offset,
}

/// The bytes are not a cursor this build issues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor")]
pub struct Invalid;

impl From<codec::Error> for Invalid {
    fn from(_: codec::Error) -> Self {
        Self
    }
}

impl Cursor {
    /// What a reader gets while its topic does not exist: no id and no tiles. The broker takes it as the
    /// beginning of whichever topic is created later, so a consumer may start before the first producer.
    #[must_use]
    pub fn unborn() -> Self {
        Self { topic: TopicId(0), member: None, tiles: Vec::new() }
    }

    /// Whether it is the one of a topic that did not exist. Random ids are never zero.
    #[must_use]
    pub fn is_unborn(&self) -> bool {
        *self == Self::unborn()
    }

    /// The token. Panics when the tiles break the rules of [`Cursor::tiles`]: only our own mistake can.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        assert!(self.tiles.len() <= limits::CURSOR_TILES_MAX, "more tiles than a token holds");
        assert!(sorted_apart(&self.tiles), "tiles are sorted and do not overlap");
        let mut body = BytesMut::with_capacity(64 + self.tiles.len() * 8);
        body.put_u8(VERSION);
        body.put_u128(self.topic.0);
        body.put_bool(self.member.is_some());
        if let Some(CursorMember { member, generation }) = &self.member {
            body.put_varint(member.as_bytes().len() as u64);
            body.extend_from_slice(member.as_bytes());
            body.put_varint(generation.0);
        }
        body.put_varint(self.tiles.len() as u64);
        let mut before = Before::FIRST;
        for tile in &self.tiles {
            before.encode(tile, &mut body);
        }
        let crc = crc32fast::hash(&body);
        body.put_u32(crc);
        Bytes::from(URL_SAFE_NO_PAD.encode(&body))
    }

    /// The cursor a token stands for. Total, allocates in proportion to the token, accepts only what
    /// [`encode`](Self::encode) writes.
    pub fn decode(token: &[u8]) -> Result<Self, Invalid> {
        if token.len() > limits::CURSOR_BYTES_MAX {
            return Err(Invalid);
        }
        let body = Bytes::from(URL_SAFE_NO_PAD.decode(token).map_err(|_| Invalid)?);
        let checked = body.len().checked_sub(CRC_BYTES).ok_or(Invalid)?;
        if body[checked..] != crc32fast::hash(&body[..checked]).to_be_bytes() {
            return Err(Invalid);
        }
        let mut reader = Reader::new(body.slice(..checked));
        if reader.u8()? != VERSION {
            return Err(Invalid);
        }
        let topic = TopicId(reader.u128()?);
        let member = if reader.bool()? { Some(CursorMember::decode(&mut reader)?) } else { None };
        let tiles = decode_tiles(&mut reader)?;
        reader.finish()?;
        Ok(Self { topic, member, tiles })
    }
}

impl CursorMember {
    fn decode(reader: &mut Reader) -> Result<Self, Invalid> {
        let len = usize::try_from(reader.varint()?).map_err(|_| Invalid)?;
        let member = MemberName::new(&reader.take(len)?).map_err(|_| Invalid)?;
        Ok(Self { member, generation: Generation(reader.varint()?) })
    }
}

/// What a tile is told apart from: the one in front of it.
struct Before {
    end: u64,
    range: u64,
}

impl Before {
    const FIRST: Self = Self { end: 0, range: 0 };

    fn encode(&mut self, tile: &Tile, body: &mut BytesMut) {
        let span = tile.span;
        let log = u8::try_from(span.size().ilog2()).expect("a logarithm of 64 bits is below 64");
        if span.start() == self.end {
            body.put_u8(log);
        } else {
            body.put_u8(log | START_GIVEN);
            body.put_varint(span.start() >> log);
        }
        body.put_varint(zigzag(tile.range.0.wrapping_sub(self.range) as i64));
        body.put_varint(tile.next.0);
        (self.end, self.range) = (span.end(), tile.range.0);
    }

    /// Only the form [`encode`](Self::encode) writes, which also keeps tiles sorted and apart.
    fn decode(&mut self, reader: &mut Reader) -> Result<Tile, Invalid> {
        let head = reader.u8()?;
        let size = 1_u64.checked_shl(u32::from(head & !START_GIVEN)).ok_or(Invalid)?;
        let start = if head & START_GIVEN == 0 {
            self.end
        } else {
            let start = reader.varint()?.checked_mul(size).ok_or(Invalid)?;
            if start <= self.end {
                return Err(Invalid);
            }
            start
        };
        let span = KeySpan::new(start, start.checked_add(size).ok_or(Invalid)?).ok_or(Invalid)?;
        let range = self.range.wrapping_add(unzigzag(reader.varint()?) as u64);
        (self.end, self.range) = (span.end(), range);
        Ok(Tile { range: RangeSeq(range), span, next: Offset(reader.varint()?) })
    }
}

/// Small differences of either sign as small numbers: 0, -1, 1, -2, …
fn zigzag(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn decode_tiles(reader: &mut Reader) -> Result<Vec<Tile>, Invalid> {
    let count = usize::try_from(reader.varint()?).map_err(|_| Invalid)?;
    if count > limits::CURSOR_TILES_MAX || count > reader.remaining() / TILE_BYTES_MIN {
        return Err(Invalid);
    }
    let mut tiles = Vec::with_capacity(count);
    let mut before = Before::FIRST;
    for _ in 0..count {
        tiles.push(before.decode(reader)?);
    }
    Ok(tiles)
}

fn sorted_apart(tiles: &[Tile]) -> bool {
    tiles.is_sorted_by(|a, b| a.span.end() <= b.span.start())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one_range() -> Cursor {
        let span = KeySpan::new(0, 1 << 16).unwrap();
        let tile = Tile { range: RangeSeq(0), span, next: Offset(1_000_000) };
        Cursor { topic: TopicId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef), member: None, tiles: vec![tile] }
    }

    /// Wraps a hand-made body as a token whose checksum is right.
    fn token(body: &[u8]) -> String {
        let mut body = body.to_vec();
        body.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
        URL_SAFE_NO_PAD.encode(body)
    }

    #[test]
    fn a_published_token_keeps_its_bytes() {
        let token = one_range().encode();
        assert_eq!(token, "AgEjRWeJq83vASNFZ4mrze8AARAAwIQ9NAjmNA");
        assert_eq!(Cursor::decode(&token), Ok(one_range()));
    }

    #[test]
    fn what_is_not_canonical_is_refused() {
        let head = |rest: &[u8]| [&[VERSION][..], &[7; 16], rest].concat();
        let good = head(&[0, 1, 16, 0, 5]);
        assert!(Cursor::decode(token(&good).as_bytes()).is_ok());
        let bad: [(&str, Vec<u8>); 14] = [
            ("other version", [&[1][..], &good[1..]].concat()),
            ("leftover", [&good[..], &[0]].concat()),
            ("long varint", head(&[0, 1, 16, 0x80, 0, 5])),
            ("count above the bytes", head(&[0, 2, 16, 0, 5])),
            ("huge count", head(&[0, 0xff, 0xff, 0xff, 0xff, 0x0f])),
            ("span past the keyspace", head(&[0, 1, 0x40 | 32, 1, 0, 5])),
            ("follows the last span", head(&[0, 2, 32, 0, 5, 0, 0, 5])),
            ("span size of 2^63", head(&[0, 1, 63, 0, 5])),
            ("start past all numbers", head(&[0, 1, 0x40 | 63, 2, 0, 5])),
            ("unknown bit of the head", head(&[0, 1, 0x80 | 16, 0, 5])),
            ("start that need not be written", head(&[0, 1, 0x40 | 16, 0, 0, 5])),
            ("overlap", head(&[0, 2, 4, 0, 5, 0x40 | 3, 1, 1, 5])),
            ("not aligned", head(&[0, 2, 2, 0, 5, 3, 1, 5])),
            ("member flag", head(&[2, 0, 0, 0])),
        ];
        for (name, body) in bad {
            assert_eq!(Cursor::decode(token(&body).as_bytes()), Err(Invalid), "{name}");
        }
    }

    #[test]
    fn padding_whitespace_and_excess_length_are_refused() {
        let good = String::from_utf8(one_range().encode().to_vec()).unwrap();
        for bad in [format!("{good}="), format!("{good}\n"), format!(" {good}"), String::new()] {
            assert_eq!(Cursor::decode(bad.as_bytes()), Err(Invalid), "{bad:?}");
        }
        assert_eq!(Cursor::decode(&vec![b'A'; limits::CURSOR_BYTES_MAX + 1]), Err(Invalid));
    }

    #[test]
    fn a_reader_without_a_topic_has_a_cursor_too() {
        let token = Cursor::unborn().encode();
        assert!(Cursor::decode(&token).unwrap().is_unborn());
        assert!(!one_range().is_unborn());
    }

    #[test]
    fn the_largest_cursor_fits_and_decodes() {
        // Every start is written in full and every range is as far as can be from the one before.
        let span = |i: u64| KeySpan::new((1 << 31) + 2 * i, (1 << 31) + 2 * i + 1).unwrap();
        let range = |i: u64| RangeSeq(if i.is_multiple_of(2) { 1 << 63 } else { 0 });
        let tile = |i| Tile { range: range(i), span: span(i), next: Offset(u64::MAX) };
        let member = MemberName::new(&[0xff; limits::GROUP_NAME_BYTES_MAX]).unwrap();
        let cursor = Cursor {
            topic: TopicId(u128::MAX),
            member: Some(CursorMember { member, generation: Generation(u64::MAX) }),
            tiles: (0..limits::CURSOR_TILES_MAX as u64).map(tile).collect(),
        };
        let token = cursor.encode();
        assert_eq!(
            token.len(),
            (FIXED_BYTES_MAX + limits::CURSOR_TILES_MAX * TILE_BYTES_MAX).saturating_mul(4).div_ceil(3)
        );
        assert!(token.len() <= limits::CURSOR_BYTES_MAX);
        assert!(token.len() <= FIXED_TOKEN_BYTES_MAX + limits::CURSOR_TILES_MAX * TILE_TOKEN_BYTES_MAX);
        assert_eq!(Cursor::decode(&token), Ok(cursor));
    }

    /// Ten thousand equal ranges made by splitting, each some records in.
    fn wide() -> Cursor {
        let tile = |i: u64| Tile {
            range: RangeSeq(10_000 + i),
            span: KeySpan::new(i << 8, (i + 1) << 8).unwrap(),
            next: Offset(1_000 + i),
        };
        Cursor { topic: TopicId(7), member: None, tiles: (0..10_000).map(tile).collect() }
    }

    #[test]
    fn a_wide_topic_has_a_cursor_of_a_few_bytes_a_range() {
        let token = wide().encode();
        assert_eq!(Cursor::decode(&token), Ok(wide()));
        assert!(token.len() < 10_000 * 6, "{}", token.len());
    }

    #[test]
    fn differences_fold_and_unfold() {
        for (difference, folded) in [(0, 0), (-1, 1), (1, 2), (i64::MIN, u64::MAX), (i64::MAX, u64::MAX - 1)]
        {
            assert_eq!((zigzag(difference), unzigzag(folded)), (folded, difference));
        }
    }

    prop_compose! {
        fn member()(
            name in prop::collection::vec(any::<u8>(), 0..=limits::GROUP_NAME_BYTES_MAX),
            generation in any::<u64>(),
        ) -> CursorMember {
            CursorMember { member: MemberName::new(&name).unwrap(), generation: Generation(generation) }
        }
    }

    prop_compose! {
        // Blocks are made by halving the keyspace at random, so any tiling can come up; some are left out.
        fn tiles()(
            cuts in prop::collection::vec(any::<u8>(), 0..20),
            facts in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 21),
            bits in 0_u32..=32,
        ) -> Vec<Tile> {
            let mut spans = vec![KeySpan::new(0, 1 << bits).unwrap()];
            for cut in cuts {
                let at = usize::from(cut) % spans.len();
                if let Some((low, high)) = spans[at].split() {
                    spans.splice(at..=at, [low, high]);
                }
            }
            let tile = |(span, (range, next, keep)): (KeySpan, (u64, u64, bool))| {
                keep.then_some(Tile { range: RangeSeq(range), span, next: Offset(next) })
            };
            spans.into_iter().zip(facts).filter_map(tile).collect()
        }
    }

    prop_compose! {
        fn cursor()(topic in any::<u128>(), member in prop::option::of(member()), tiles in tiles()) -> Cursor {
            Cursor { topic: TopicId(topic), member, tiles }
        }
    }

    proptest! {
        #[test]
        fn round_trip_as_printable_text(cursor in cursor()) {
            let token = cursor.encode();
            prop_assert!(token.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')));
            prop_assert_eq!(Cursor::decode(&token), Ok(cursor));
        }

        #[test]
        fn any_flipped_bit_is_refused(cursor in cursor(), at in any::<prop::sample::Index>(), bit in 0_u32..8) {
            let mut token = cursor.encode().to_vec();
            let at = at.index(token.len());
            token[at] ^= 1_u8 << bit;
            prop_assert_eq!(Cursor::decode(&token), Err(Invalid));
        }

        #[test]
        fn any_cut_is_refused(cursor in cursor(), at in any::<prop::sample::Index>()) {
            let token = cursor.encode();
            prop_assert_eq!(Cursor::decode(&token[..at.index(token.len())]), Err(Invalid));
        }

        // A right checksum proves nothing: whoever sends a token can compute one.
        #[test]
        fn what_decodes_is_the_one_encoding(body in prop::collection::vec(any::<u8>(), 0..80)) {
            let body = [&[VERSION][..], &[0; 16], &body].concat();
            let token = token(&body);
            if let Ok(cursor) = Cursor::decode(token.as_bytes()) {
                prop_assert_eq!(cursor.encode(), token);
            }
        }

        #[test]
        fn a_changed_body_with_a_right_checksum_decodes_to_itself_or_not_at_all(
            cursor in cursor(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            let mut body = URL_SAFE_NO_PAD.decode(cursor.encode()).unwrap();
            body.truncate(body.len() - CRC_BYTES);
            let at = at.index(body.len());
            body[at] = byte;
            let token = token(&body);
            if let Ok(cursor) = Cursor::decode(token.as_bytes()) {
                prop_assert_eq!(cursor.encode(), token);
            }
        }
    }
}
