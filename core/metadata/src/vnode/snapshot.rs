//! The whole state as bytes, canonically: equal states give equal bytes.
//!
//! ```text
//! snapshot = magic "MVN" format:u8  machine version:u16  applied:u64
//!            ring version:u64 arc(00 | 01 after:u32 upto:u32)  lease:u64
//!            migrating(count:u32 (topic:u128 migration:u128)*)  tables
//! ```
//!
//! Integrity against the disk is the file's own checksum, one layer down; what is checked here is that the
//! parts make sense together, so that no later command meets a broken table.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{self, Reader, Writer};
use types::{FenceToken, RaftIndex};

use super::arc::Owned;
use super::tables::Tables;
use super::{Export, Vnode, fields};
use crate::machine::Version;

const MAGIC: [u8; 3] = *b"MVN";
const FORMAT: u8 = 1;
/// Bytes of a topic's fence.
const MIGRATING_BYTES: usize = 32;

/// Why bytes are not a snapshot, or an export, that this build can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A later build wrote it in another layout.
    #[error("snapshot format {0} is later than this build's {FORMAT}")]
    LaterFormat(u8),
    /// A later build wrote it under rules this one does not have.
    #[error("machine version {} is later than this build's {}", .0.0, Version::BUILD.0)]
    LaterVersion(Version),
    /// It does not decode.
    #[error("not a snapshot: {0}")]
    Codec(#[from] codec::Error),
    /// It decodes, but the rows contradict each other.
    #[error("not a snapshot: {0}")]
    Inconsistent(&'static str),
}

impl Vnode {
    /// The canonical encoding of the state.
    #[must_use]
    pub fn encode_snapshot(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.extend_from_slice(&MAGIC);
        out.put_u8(FORMAT);
        out.put_u16(self.version.0);
        out.put_u64(self.applied.0);
        out.put_u64(self.owned.ring_version);
        fields::put_arc(&mut out, self.owned.arc);
        out.put_u64(self.lease.0);
        out.put_count(self.migrating.len());
        for (topic, id) in &self.migrating {
            out.put_u128(topic.0);
            out.put_u128(id.0);
        }
        self.tables.encode(&mut out);
        out.freeze()
    }

    /// The state a snapshot holds.
    pub fn decode_snapshot(bytes: Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len())?[..] != MAGIC {
            return Err(Error::Inconsistent("the magic number differs"));
        }
        match reader.u8()? {
            FORMAT => {}
            0 => return Err(Error::Inconsistent("no format version")),
            later => return Err(Error::LaterFormat(later)),
        }
        let version = Version(reader.u16()?);
        if version > Version::BUILD {
            return Err(Error::LaterVersion(version));
        }
        let mut state = Self::new(version);
        state.applied = RaftIndex(reader.u64()?);
        let ring_version = reader.u64()?;
        state.owned = Owned { ring_version, arc: fields::arc(&mut reader)? };
        state.lease = FenceToken(reader.u64()?);
        let mut order = Ascending::default();
        for _ in 0..reader.count(MIGRATING_BYTES)? {
            let topic = fields::topic_id(&mut reader)?;
            order.check(topic)?;
            state.migrating.insert(topic, fields::migration_id(&mut reader)?);
        }
        state.tables = Tables::decode(&mut reader)?;
        reader.finish()?;
        if state.migrating.keys().any(|topic| state.tables.topics.get(*topic).is_none()) {
            return Err(Error::Inconsistent("a topic that is not there is fenced"));
        }
        Ok(state)
    }
}

impl Export {
    /// The canonical encoding: the tables of one topic.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.tables.encode(&mut out);
        out.freeze()
    }

    /// The topic that was exported.
    pub fn decode(bytes: Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let tables = Tables::decode(&mut reader)?;
        reader.finish()?;
        if tables.topics.len() != 1 {
            return Err(Error::Inconsistent("not the rows of one topic"));
        }
        Ok(Self { tables })
    }
}

/// Refuses rows that are repeated or out of order, so that a state has one encoding.
pub(super) struct Ascending<K>(Option<K>);

impl<K> Default for Ascending<K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: Ord> Ascending<K> {
    pub(super) fn check(&mut self, key: K) -> Result<(), Error> {
        if self.0.as_ref().is_some_and(|last| *last >= key) {
            return Err(Error::Inconsistent("rows are out of order"));
        }
        self.0 = Some(key);
        Ok(())
    }
}
