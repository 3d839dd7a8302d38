//! Keys to positions, and slices of the keyspace: which range a key belongs to, before and after any split
//! or merge.
//!
//! The key hash is **xxHash32 with seed 0 over the raw key bytes** ([`KeyHash::Xxh32`], identifier 1). It is
//! frozen: routing and the filtering of an ancestor's records both depend on it, so another hash would be a
//! new identifier stored in the topics that use it.

use std::fmt;

use xxhash_rust::xxh32::xxh32;

/// Which hash places a topic's keys; stored with the topic and fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyHash {
    /// xxHash32, seed 0.
    Xxh32,
}

impl KeyHash {
    /// The stored identifier.
    #[must_use]
    pub fn id(self) -> u8 {
        match self {
            Self::Xxh32 => 1,
        }
    }

    /// The hash with that identifier, if this build knows it.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        (id == 1).then_some(Self::Xxh32)
    }

    /// The 32-bit hash of `bytes`.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> u32 {
        match self {
            Self::Xxh32 => xxh32(bytes, 0),
        }
    }
}

/// A place in a keyspace: `0 <= position < size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u32);

/// A topic's keyspace: a power of two of positions, 2 to 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keyspace {
    bits: u8,
}

impl Keyspace {
    /// Width used when the creator names none.
    pub const DEFAULT_BITS: u8 = 16;

    /// A keyspace of `2^bits` positions; `None` unless `bits` is 1 to 32.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Self> {
        (1..=32).contains(&bits).then_some(Self { bits })
    }

    /// The keyspace a client asked for: 0 means the default width; `None` above 32.
    #[must_use]
    pub fn requested(bits: u8) -> Option<Self> {
        Self::from_bits(if bits == 0 { Self::DEFAULT_BITS } else { bits })
    }

    /// The width: the keyspace has `2^bits` positions.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Number of positions.
    #[must_use]
    pub fn size(self) -> u64 {
        1 << self.bits
    }

    /// The slice that covers every position.
    #[must_use]
    pub fn whole(self) -> KeySpan {
        KeySpan { start: 0, end: self.size() }
    }

    /// Where a key lies. Null is not a key: see [`KeySpan::keyless_position`].
    #[must_use]
    pub fn position(self, hash: KeyHash, key: &[u8]) -> Position {
        let mask = u32::try_from(self.size() - 1).expect("a keyspace has at most 2^32 positions");
        Position(hash.of(key) & mask)
    }
}

/// A half-open slice `[start, end)` of a keyspace: a power-of-two block aligned to its own size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeySpan {
    start: u64,
    end: u64,
}

impl KeySpan {
    /// The block `[start, end)`; `None` unless it is a non-empty power-of-two size, aligned to it, and inside
    /// `2^32` positions.
    #[must_use]
    pub fn new(start: u64, end: u64) -> Option<Self> {
        let size = end.checked_sub(start)?;
        let aligned = size.is_power_of_two() && start % size == 0 && end <= 1 << 32;
        aligned.then_some(Self { start, end })
    }

    /// First position.
    #[must_use]
    pub fn start(self) -> u64 {
        self.start
    }

    /// One past the last position.
    #[must_use]
    pub fn end(self) -> u64 {
        self.end
    }

    /// Number of positions, at least 1.
    #[must_use]
    pub fn size(self) -> u64 {
        self.end - self.start
    }

    /// Whether `position` lies inside.
    #[must_use]
    pub fn contains(self, position: Position) -> bool {
        (self.start..self.end).contains(&u64::from(position.0))
    }

    /// Whether every position of `other` lies inside.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The two halves, lower first; `None` for a single position.
    #[must_use]
    pub fn split(self) -> Option<(Self, Self)> {
        if self.size() < 2 {
            return None;
        }
        let middle = self.start + self.size() / 2;
        Some((Self { start: self.start, end: middle }, Self { start: middle, end: self.end }))
    }

    /// Whether the two are the halves of one aligned block. Symmetric; nothing is its own buddy.
    #[must_use]
    pub fn is_buddy_of(self, other: Self) -> bool {
        self.size() == other.size() && self.start ^ self.size() == other.start
    }

    /// The block two buddies form; `None` when they are not buddies.
    #[must_use]
    pub fn merge(self, other: Self) -> Option<Self> {
        self.is_buddy_of(other)
            .then(|| Self { start: self.start.min(other.start), end: self.end.max(other.end) })
    }

    /// Where a record without a key counts as lying, for the filter of later splits: it depends only on
    /// stored facts (this slice, the record's offset), so exactly one descendant owns the record.
    #[must_use]
    pub fn keyless_position(self, hash: KeyHash, offset: crate::Offset) -> Position {
        let spread = u64::from(hash.of(&offset.0.to_be_bytes())) % self.size();
        Position(u32::try_from(self.start + spread).expect("a position lies below 2^32"))
    }
}

impl fmt::Debug for KeySpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}
