//! What all replicated machines share: the envelope of a command, the version gate, the digest of a state.
//!
//! ```text
//! entry = version:u16  kind:u16  body
//! ```
//!
//! `version` is the machine version that introduced this layout of this kind. A group runs at one *effective*
//! version; an entry above it is refused the same way on every member, exactly as a build that has never
//! heard of it would refuse it. Which layouts of which kinds exist is the machine's business.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{self, Reader};
use xxhash_rust::xxh64::xxh64;

/// Version of the rules all members of a group apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u16);

impl Version {
    /// What this build can apply. The first release is 1; 0 is no version.
    pub const BUILD: Self = Self(1);
}

/// A command as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The version that introduced this layout.
    pub version: Version,
    /// Which command; numbers are never reused.
    pub kind: u16,
    /// Its arguments, in the layout that `version` and `kind` name.
    pub body: Bytes,
}

impl Envelope {
    /// Splits an entry; fails only when it is shorter than the envelope.
    pub fn decode(entry: &Bytes) -> Result<Self, codec::Error> {
        let mut reader = Reader::new(entry.clone());
        let version = Version(reader.u16()?);
        let kind = reader.u16()?;
        let body = reader.take(reader.remaining())?;
        Ok(Self { version, kind, body })
    }

    /// Writes the envelope's fields; the body follows.
    pub fn open(version: Version, kind: u16, out: &mut BytesMut) {
        out.put_u16(version.0);
        out.put_u16(kind);
    }
}

/// Digest of a canonical encoding, for comparing members at the same applied index. Not a checksum against
/// malice, and not stored.
#[must_use]
pub fn digest(canonical: &[u8]) -> u64 {
    xxh64(canonical, 0)
}
