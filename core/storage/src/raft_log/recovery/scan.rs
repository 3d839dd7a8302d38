//! Finding records in the bytes of log files, damaged or not.
//!
//! A file is walked record by record. Where none decodes, the next place where a header decodes is searched
//! for: a header is believed only with a CRC seeded by the file's identity and that very position, and with a
//! serial later than all before it. A record whose header is intact and whose payload is not still tells whose
//! it was, how long it is, and what was durable when it was written.

use bytes::Bytes;
use memchr::memmem;

use crate::format::raft_log::{self, HEADER_BYTES, Header, Kind, MAGIC, NoHeader, Spot, Stamp, Update};

/// What stands at a place of the log, in order.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// An intact record; `update` for one of that kind.
    Record { spot: Spot, header: Header, update: Option<Update> },
    /// An intact header before a payload that is not.
    Broken { spot: Spot, header: Header },
    /// Nothing decodes up to the next item or the end of the file; `zero` when there are only zeros.
    Gap { spot: Spot, zero: bool },
}

impl Item {
    pub(super) fn spot(&self) -> Spot {
        match self {
            Self::Record { spot, .. } | Self::Broken { spot, .. } | Self::Gap { spot, .. } => *spot,
        }
    }

    pub(super) fn header(&self) -> Option<&Header> {
        match self {
            Self::Record { header, .. } | Self::Broken { header, .. } => Some(header),
            Self::Gap { .. } => None,
        }
    }

    /// Whether it is an intact record.
    pub(super) fn is_good(&self) -> bool {
        match self {
            Self::Record { .. } => true,
            Self::Broken { .. } | Self::Gap { .. } => false,
        }
    }
}

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) items: Vec<Item>,
    /// The largest place any header testifies to: everything below was durable.
    pub(super) durable: Spot,
    last_serial: Option<u64>,
}

impl Scan {
    /// Walks the next file. Fails with the version of a record that a later build wrote.
    pub(super) fn file(&mut self, stamp: Stamp, bytes: &Bytes) -> Result<(), u8> {
        let mut at = 0;
        while at < bytes.len() {
            // Inside a file a record follows the one before it; what was lost before a file shows as a later
            // serial at its beginning.
            let follows = |header: &Header| match self.last_serial {
                None => true,
                Some(last) if at == 0 => header.serial > last,
                Some(last) => header.serial == last.saturating_add(1),
            };
            let found = header_at(stamp, at, bytes)?.filter(follows);
            at = match found {
                Some(header) => self.record(stamp, at, header, bytes),
                None => self.gap(stamp, at, bytes)?,
            };
        }
        Ok(())
    }

    fn record(&mut self, stamp: Stamp, at: usize, header: Header, bytes: &Bytes) -> usize {
        self.last_serial = Some(header.serial);
        self.durable = self.durable.max(header.durable_before);
        let spot = Spot { file: stamp.sequence, at: at as u64 };
        let end = (at + header.record_len()).min(bytes.len());
        let payload = bytes.slice(at + HEADER_BYTES..end);
        let intact = raft_log::payload_is_intact(stamp, spot.at, &header, &payload);
        let update = match header.kind {
            Kind::Update if intact => raft_log::decode_update(payload).ok(),
            Kind::Update | Kind::Forget | Kind::Mark => None,
        };
        let good = intact && (header.kind != Kind::Update || update.is_some());
        self.items.push(if good {
            Item::Record { spot, header, update }
        } else {
            Item::Broken { spot, header }
        });
        end
    }

    /// Adds a gap that begins at `at`, and the record it ends before, if any. Returns where that one ends.
    fn gap(&mut self, stamp: Stamp, at: usize, bytes: &Bytes) -> Result<usize, u8> {
        let spot = Spot { file: stamp.sequence, at: at as u64 };
        let mut from = at + 1;
        while let Some(found) = memmem::find(&bytes[from..], &MAGIC) {
            let candidate = from + found;
            let later = |header: &Header| self.last_serial.is_none_or(|last| header.serial > last);
            if let Some(header) = header_at(stamp, candidate, bytes)?.filter(later) {
                self.items.push(Item::Gap { spot, zero: is_zero(&bytes[at..candidate]) });
                return Ok(self.record(stamp, candidate, header, bytes));
            }
            from = candidate + 1;
        }
        self.items.push(Item::Gap { spot, zero: is_zero(&bytes[at..]) });
        Ok(bytes.len())
    }
}

fn header_at(stamp: Stamp, at: usize, bytes: &Bytes) -> Result<Option<Header>, u8> {
    match raft_log::decode_header(stamp, at as u64, &bytes[at..]) {
        Ok(header) => Ok(Some(header)),
        Err(NoHeader::None) => Ok(None),
        Err(NoHeader::LaterVersion(version)) => Err(version),
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}
