//! The record of the Raft log: what one group changed, or a mark that testifies to what is durable.
//!
//! ```text
//!  0  magic "RL", version 1, kind 1     zeros never decode
//!  4  payload length         u32
//!  8  serial                 u64        of the record in the log, consecutive across files
//! 16  group                  u64        of a mark: all ones
//! 24  group serial           u64        of the record among its group's, consecutive, from 1
//! 32  durable before         u64 u64    file sequence and position known to be synced when this was written
//! 48  payload CRC            u32        over seed, payload
//! 52  header CRC             u32        over seed, bytes 0..52
//! 56  payload
//! ```
//!
//! The payload of an *update* is the group's whole binding state after it, and entries:
//!
//! ```text
//! term:u64  vote(00 | 01 node:u128)  commit:u64  snapshot index:u64  snapshot term:u64  last index:u64
//! first index:u64  entries(count:u32 (term:u64 data:blob)*)
//! ```
//!
//! It drops the entries at and after `first index` (when it carries any), adds its own, and drops those past
//! `last index` and those up to the snapshot. So the group's latest record and its live entries are all that
//! recovery needs. *Forget* and *mark* have no payload.
//!
//! The seed of both CRCs is the file's sequence and salt and the record's position. A record of another file
//! or place never decodes here, and bytes that a client put into an entry cannot imitate one, because the
//! salt is drawn when the file is made. Magic, version and the header CRC stay where they are in every
//! version, so that a later one is recognised and refused, never guessed at.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{self, Reader, Writer};
use types::{NodeId, RaftIndex, Term, VnodeId};

/// Bytes of a record before its payload.
pub const HEADER_BYTES: usize = 56;
/// The group number that marks carry; no vnode has it.
pub const MARK_GROUP: VnodeId = VnodeId(u64::MAX);
/// First two bytes of every record.
pub const MAGIC: [u8; 2] = *b"RL";
const VERSION: u8 = 1;
const CRC_AT: usize = 52;
/// Smallest encoded entry: its term and no data.
const ENTRY_BYTES_MIN: usize = 8 + 4;

/// Identity of one log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Its number; files follow one another in this order.
    pub sequence: u64,
    /// Drawn when the file is made.
    pub salt: u32,
}

/// A byte position in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// Sequence of the file.
    pub file: u64,
    /// Byte position in it.
    pub at: u64,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A group's new state, and entries.
    Update,
    /// The group left this node.
    Forget,
    /// Nothing but testimony: everything before it is durable.
    Mark,
}

/// What a record says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// Bytes that follow the header.
    pub payload_len: u32,
    /// Its number in the log.
    pub serial: u64,
    /// Whose it is.
    pub group: VnodeId,
    /// Its number among the group's records.
    pub group_serial: u64,
    /// Everything below was synced when the record was written.
    pub durable_before: Spot,
    payload_crc: u32,
}

impl Header {
    /// Bytes of the whole record.
    #[must_use]
    pub fn record_len(&self) -> usize {
        HEADER_BYTES + self.payload_len as usize
    }
}

/// Why no header was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHeader {
    /// No record of this file begins here.
    None,
    /// A record of a later build begins here.
    LaterVersion(u8),
}

/// A group's binding state and some entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Latest term seen.
    pub term: Term,
    /// Vote in it.
    pub voted_for: Option<NodeId>,
    /// Commit index known.
    pub commit: RaftIndex,
    /// Last entry the durable snapshot covers; 0 when there is none.
    pub snapshot_index: RaftIndex,
    /// Its term.
    pub snapshot_term: Term,
    /// Last entry of the log after this record.
    pub last: RaftIndex,
    /// Index of the first entry carried; 0 when there is none.
    pub first: RaftIndex,
    /// Entries from `first` to `last`.
    pub entries: Vec<(Term, Bytes)>,
}

/// What an encoder is told about a record.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The file it goes to.
    pub stamp: Stamp,
    /// Where in the file.
    pub at: u64,
    /// Its number in the log.
    pub serial: u64,
    /// Whose it is.
    pub group: VnodeId,
    /// Its number among the group's records.
    pub group_serial: u64,
    /// What is known to be durable.
    pub durable_before: Spot,
}

fn seed(stamp: Stamp, at: u64) -> crc32fast::Hasher {
    let mut hasher = crc32fast::Hasher::new();
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&stamp.sequence.to_be_bytes());
    bytes[8..12].copy_from_slice(&stamp.salt.to_be_bytes());
    bytes[12..].copy_from_slice(&at.to_be_bytes());
    hasher.update(&bytes);
    hasher
}

fn crc(stamp: Stamp, at: u64, bytes: &[u8]) -> u32 {
    let mut hasher = seed(stamp, at);
    hasher.update(bytes);
    hasher.finalize()
}

/// Adds an update to `out`.
pub fn encode_update(place: Place, update: &Update, out: &mut BytesMut) {
    encode(place, 1, out, |out| {
        out.put_u64(update.term.0);
        out.put_bool(update.voted_for.is_some());
        if let Some(node) = update.voted_for {
            out.put_u128(node.0);
        }
        out.put_u64(update.commit.0);
        out.put_u64(update.snapshot_index.0);
        out.put_u64(update.snapshot_term.0);
        out.put_u64(update.last.0);
        out.put_u64(update.first.0);
        out.put_count(update.entries.len());
        for (term, data) in &update.entries {
            out.put_u64(term.0);
            out.put_blob(data);
        }
    });
}

/// Adds a forget record to `out`.
pub fn encode_forget(place: Place, out: &mut BytesMut) {
    encode(place, 2, out, |_| {});
}

/// Adds a mark to `out`; its group is [`MARK_GROUP`].
pub fn encode_mark(place: Place, out: &mut BytesMut) {
    encode(place, 3, out, |_| {});
}

fn encode(place: Place, kind: u8, out: &mut BytesMut, payload: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_slice(&MAGIC);
    out.put_u8(VERSION);
    out.put_u8(kind);
    out.put_u32(0);
    out.put_u64(place.serial);
    out.put_u64(place.group.0);
    out.put_u64(place.group_serial);
    out.put_u64(place.durable_before.file);
    out.put_u64(place.durable_before.at);
    out.put_u64(0);
    payload(out);
    let (header, payload) = out[start..].split_at_mut(HEADER_BYTES);
    let len = u32::try_from(payload.len()).expect("an append is limited far below 4 GiB");
    header[4..8].copy_from_slice(&len.to_be_bytes());
    header[48..CRC_AT].copy_from_slice(&crc(place.stamp, place.at, payload).to_be_bytes());
    let header_crc = crc(place.stamp, place.at, &header[..CRC_AT]);
    header[CRC_AT..].copy_from_slice(&header_crc.to_be_bytes());
}

/// The header of a record that begins at position `at` of a file; `bytes` are the file's from there on.
pub fn decode_header(stamp: Stamp, at: u64, bytes: &[u8]) -> Result<Header, NoHeader> {
    let Some(bytes) = bytes.get(..HEADER_BYTES).filter(|bytes| bytes[..2] == MAGIC) else {
        return Err(NoHeader::None);
    };
    if bytes[CRC_AT..] != crc(stamp, at, &bytes[..CRC_AT]).to_be_bytes() {
        return Err(NoHeader::None);
    }
    if bytes[2] > VERSION {
        return Err(NoHeader::LaterVersion(bytes[2]));
    }
    fields(&bytes[3..CRC_AT]).map_err(|_| NoHeader::None)
}

fn fields(bytes: &[u8]) -> Result<Header, codec::Error> {
    let mut reader = Reader::new(Bytes::copy_from_slice(bytes));
    let kind = match reader.u8()? {
        1 => Kind::Update,
        2 => Kind::Forget,
        3 => Kind::Mark,
        _ => return Err(codec::Error::Invalid("a record's kind")),
    };
    let header = Header {
        kind,
        payload_len: reader.u32()?,
        serial: reader.u64()?,
        group: VnodeId(reader.u64()?),
        group_serial: reader.u64()?,
        durable_before: Spot { file: reader.u64()?, at: reader.u64()? },
        payload_crc: reader.u32()?,
    };
    if (kind == Kind::Mark) != (header.group == MARK_GROUP) {
        return Err(codec::Error::Invalid("a record's group"));
    }
    Ok(header)
}

/// Whether `payload` is what the header at `at` vouches for.
#[must_use]
pub fn payload_is_intact(stamp: Stamp, at: u64, header: &Header, payload: &[u8]) -> bool {
    payload.len() == header.payload_len as usize && crc(stamp, at, payload) == header.payload_crc
}

/// The update in an intact payload.
pub fn decode_update(payload: Bytes) -> Result<Update, codec::Error> {
    let mut reader = Reader::new(payload);
    let term = Term(reader.u64()?);
    let voted_for = if reader.bool()? { Some(NodeId(reader.u128()?)) } else { None };
    let commit = RaftIndex(reader.u64()?);
    let snapshot_index = RaftIndex(reader.u64()?);
    let snapshot_term = Term(reader.u64()?);
    let last = RaftIndex(reader.u64()?);
    let first = RaftIndex(reader.u64()?);
    let count = reader.count(ENTRY_BYTES_MIN)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push((Term(reader.u64()?), reader.blob()?));
    }
    reader.finish()?;
    let update = Update { term, voted_for, commit, snapshot_index, snapshot_term, last, first, entries };
    if is_consistent(&update) { Ok(update) } else { Err(codec::Error::Invalid("an update")) }
}

fn is_consistent(update: &Update) -> bool {
    let counted = match update.entries.len() as u64 {
        0 => update.first == RaftIndex::ZERO,
        count => {
            let end = update.first.0.checked_add(count);
            update.first > update.snapshot_index && end == update.last.0.checked_add(1)
        }
    };
    let ordered = update.entries.windows(2).all(|pair| pair[0].0 <= pair[1].0);
    let seen = update.entries.iter().all(|(term, _)| *term <= update.term);
    // Indexes are counted from 1 by steps of one; the largest number would have no successor.
    let countable = update.last.0 < u64::MAX;
    let nested = update.snapshot_index <= update.commit && update.commit <= update.last;
    counted && ordered && seen && countable && nested
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { sequence: 7, salt: 0xfeed_beef };

    fn place(at: u64) -> Place {
        let durable_before = Spot { file: 6, at: 4096 };
        Place { stamp: STAMP, at, serial: 99, group: VnodeId(3), group_serial: 5, durable_before }
    }

    fn update() -> Update {
        Update {
            term: Term(4),
            voted_for: Some(NodeId(0x0123)),
            commit: RaftIndex(11),
            snapshot_index: RaftIndex(10),
            snapshot_term: Term(2),
            last: RaftIndex(12),
            first: RaftIndex(11),
            entries: vec![(Term(2), Bytes::from_static(b"one")), (Term(4), Bytes::new())],
        }
    }

    fn encoded(at: u64) -> Bytes {
        let mut out = BytesMut::new();
        encode_update(place(at), &update(), &mut out);
        out.freeze()
    }

    #[test]
    fn an_update_comes_back() {
        let bytes = encoded(512);
        let header = decode_header(STAMP, 512, &bytes).unwrap();
        assert_eq!((header.serial, header.group, header.group_serial), (99, VnodeId(3), 5));
        assert_eq!(header.durable_before, Spot { file: 6, at: 4096 });
        assert_eq!(header.record_len(), bytes.len());
        assert!(payload_is_intact(STAMP, 512, &header, &bytes[HEADER_BYTES..]));
        assert_eq!(decode_update(bytes.slice(HEADER_BYTES..)), Ok(update()));
    }

    #[test]
    fn the_bytes_are_the_documented_ones() {
        let hex: String = encoded(512).iter().map(|b| format!("{b:02x}")).collect();
        let expected = concat!(
            "524c010100000060000000000000006300000000000000030000000000000005",
            "00000000000000060000000000001000f0f87e5ab4d3c009",
            "00000000000000040100000000000000000000000000000123000000000000000b",
            "000000000000000a0000000000000002000000000000000c000000000000000b",
            "000000020000000000000002000000036f6e65000000000000000400000000",
        );
        assert_eq!(hex, expected);
    }

    #[test]
    fn a_record_decodes_only_where_and_in_the_file_it_was_written_for() {
        let bytes = encoded(512);
        assert_eq!(decode_header(STAMP, 513, &bytes), Err(NoHeader::None));
        for other in [Stamp { sequence: 8, ..STAMP }, Stamp { salt: 1, ..STAMP }] {
            assert_eq!(decode_header(other, 512, &bytes), Err(NoHeader::None));
        }
        assert_eq!(decode_header(STAMP, 512, &[0; 128]), Err(NoHeader::None));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let good = encoded(0);
        for bit in 0..good.len() * 8 {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let intact = decode_header(STAMP, 0, &bytes)
                .is_ok_and(|h| payload_is_intact(STAMP, 0, &h, &bytes[HEADER_BYTES..]));
            assert!(!intact, "bit {bit}");
        }
    }

    #[test]
    fn a_later_version_is_recognised() {
        let mut bytes = encoded(0).to_vec();
        bytes[2] = 2;
        let fixed = crc(STAMP, 0, &bytes[..CRC_AT]);
        bytes[CRC_AT..HEADER_BYTES].copy_from_slice(&fixed.to_be_bytes());
        assert_eq!(decode_header(STAMP, 0, &bytes), Err(NoHeader::LaterVersion(2)));
    }

    #[test]
    fn payloads_that_contradict_themselves_are_refused() {
        let payload = |change: fn(&mut Update)| {
            let mut bad = update();
            change(&mut bad);
            let mut out = BytesMut::new();
            encode_update(place(0), &bad, &mut out);
            decode_update(out.freeze().slice(HEADER_BYTES..))
        };
        assert!(payload(|_| {}).is_ok());
        assert!(payload(|u| u.last = RaftIndex(13)).is_err());
        assert!(payload(|u| u.first = RaftIndex(10)).is_err());
        assert!(payload(|u| u.commit = RaftIndex(13)).is_err());
        assert!(payload(|u| u.entries[0].0 = Term(5)).is_err());
        assert!(decode_update(Bytes::from_static(&[0xff; 80])).is_err());
        for len in 0..encoded(0).len() - HEADER_BYTES {
            assert!(decode_update(encoded(0).slice(HEADER_BYTES..HEADER_BYTES + len)).is_err());
        }
    }
}
