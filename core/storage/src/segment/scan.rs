//! Walking a log file in bounded windows: frame by frame while it is intact, byte by byte behind damage.

use bytes::Bytes;
use types::Offset;
use types::limits::SCAN_WINDOW_BYTES;

use super::index::Entry;
use crate::format::batch::{HEADER_BYTES, Header, Identity, MAGIC, Undecodable};
use crate::store::{Damage, DamageClass};

/// An intact frame.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// First byte in the log.
    pub position: u64,
    /// What it says.
    pub header: Header,
    /// How far the file was known to be synced when the frame was written.
    pub durable_before: u64,
}

impl Found {
    /// The index entry that leads to this frame.
    #[must_use]
    pub fn entry(&self) -> Entry {
        Entry { offset: self.header.base_offset, time: self.header.append_time, position: self.position }
    }
}

/// Where a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Exactly at the limit, after an intact frame (or at the start of an empty log).
    Limit {
        /// The limit.
        position: u64,
        /// The offset after the last frame.
        end: Offset,
    },
    /// At bytes that are not the next frame.
    Bad(Damage),
}

/// A walk over consecutive frames, checking both checksums of each. Holds no payload: a frame larger than the
/// window is checked piece by piece.
#[derive(Debug)]
pub struct Scan {
    identity: Identity,
    window: usize,
    limit: u64,
    at: u64,
    next: Offset,
    read_at: u64,
    payload: Option<Payload>,
    stop: Option<Stop>,
}

#[derive(Debug)]
struct Payload {
    found: Found,
    hasher: crc32fast::Hasher,
    left: u64,
}

impl Scan {
    /// A walk from the frame at `position`, which begins with offset `next`, to `limit` (exclusive).
    #[must_use]
    pub fn new(identity: Identity, position: u64, next: Offset, limit: u64) -> Self {
        let mut scan = Self {
            identity,
            window: SCAN_WINDOW_BYTES,
            limit,
            at: position,
            next,
            read_at: position,
            payload: None,
            stop: None,
        };
        scan.check_limit();
        scan
    }

    /// The next bytes wanted, `(position, length)`; `None` once the walk has ended.
    #[must_use]
    pub fn wants(&self) -> Option<(u64, usize)> {
        let left = usize::try_from(self.limit.saturating_sub(self.read_at)).unwrap_or(usize::MAX);
        self.stop.is_none().then_some((self.read_at, left.min(self.window)))
    }

    /// The offset the next frame must begin with.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.next
    }

    /// Where the next frame begins.
    #[must_use]
    pub fn byte_position(&self) -> u64 {
        self.at
    }

    /// Where the walk ended, once it has.
    #[must_use]
    pub fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// Takes the bytes at the position last wanted (fewer only where the file ends) and reports each frame they
    /// complete. `visit` answers whether to go on.
    pub fn feed(&mut self, mut data: Bytes, visit: &mut impl FnMut(&Found) -> bool) {
        let file_ends = self.wants().is_some_and(|(_, len)| data.len() < len);
        while self.stop.is_none() {
            let more =
                if self.payload.is_some() { self.payload(&mut data, visit) } else { self.header(&mut data) };
            if !more {
                break;
            }
        }
        if self.stop.is_none() && file_ends {
            self.bad(DamageClass::Short);
        }
    }

    /// Takes a header from the front of `data`; false when the rest is too short for one, or none is there.
    fn header(&mut self, data: &mut Bytes) -> bool {
        // A header that goes on in the next window is read again from its first byte.
        let Some(bytes) = data.first_chunk::<HEADER_BYTES>() else { return false };
        match Header::decode(bytes, self.identity) {
            Err(Undecodable::NotAHeader) => self.bad(DamageClass::Header),
            Err(Undecodable::Unsupported { .. }) => self.bad(DamageClass::Unsupported),
            Ok((header, _)) if header.base_offset != self.next => self.bad(DamageClass::Order),
            Ok((header, _)) if header.frame_len() > self.limit - self.at => self.bad(DamageClass::Short),
            Ok((header, durable_before)) => {
                let _ = data.split_to(HEADER_BYTES);
                self.read_at += HEADER_BYTES as u64;
                let found = Found { position: self.at, header, durable_before };
                let left = u64::from(header.payload_len);
                self.payload = Some(Payload { found, hasher: self.identity.seed.hasher(), left });
            }
        }
        self.stop.is_none()
    }

    /// Takes what `data` holds of the payload; false when it is used up before the payload's end.
    fn payload(&mut self, data: &mut Bytes, visit: &mut impl FnMut(&Found) -> bool) -> bool {
        let payload = self.payload.as_mut().expect("called while a payload is being read");
        let take = usize::try_from(payload.left).unwrap_or(usize::MAX).min(data.len());
        payload.hasher.update(&data.split_to(take));
        payload.left -= take as u64;
        self.read_at += take as u64;
        if payload.left > 0 {
            return false;
        }
        let payload = self.payload.take().expect("just used");
        if payload.hasher.finalize() != payload.found.header.payload_crc {
            self.bad(DamageClass::Payload);
            return false;
        }
        self.at += payload.found.header.frame_len();
        self.next = payload.found.header.end_offset();
        if visit(&payload.found) {
            self.check_limit();
        } else {
            self.stop = Some(Stop::Limit { position: self.at, end: self.next });
        }
        true
    }

    fn check_limit(&mut self) {
        let left = self.limit.saturating_sub(self.at);
        if left == 0 {
            self.stop = Some(Stop::Limit { position: self.at, end: self.next });
        } else if left < HEADER_BYTES as u64 {
            self.bad(DamageClass::Short);
        }
    }

    fn bad(&mut self, class: DamageClass) {
        self.stop = Some(Stop::Bad(Damage { position: self.at, offset: self.next, class }));
    }
}

/// A search of everything behind the first bad frame, byte by byte, for headers of this copy: what they
/// testify, and how far they reach.
///
/// Only the header of a frame found here has to be intact: it was written after the sync it speaks of, whatever
/// became of its payload.
#[derive(Debug)]
pub struct TailSearch {
    identity: Identity,
    finder: memchr::memmem::Finder<'static>,
    start: u64,
    read_at: u64,
    file_len: u64,
    window: usize,
    /// The largest `durable before` of any header found.
    pub testimony: u64,
    /// Where the furthest frame found ends, at most the file's length; the search's start if none was.
    pub reach: u64,
    /// Whether the bytes where the next header would stand are all zero.
    pub clean: bool,
}

impl TailSearch {
    /// A search of `[start, file_len)`.
    #[must_use]
    pub fn new(identity: Identity, start: u64, file_len: u64) -> Self {
        Self {
            identity,
            finder: memchr::memmem::Finder::new(&MAGIC).into_owned(),
            start,
            read_at: start,
            file_len,
            window: SCAN_WINDOW_BYTES,
            testimony: 0,
            reach: start,
            clean: true,
        }
    }

    /// The next bytes wanted; `None` once the whole tail was searched.
    #[must_use]
    pub fn wants(&self) -> Option<(u64, usize)> {
        let left = usize::try_from(self.file_len.saturating_sub(self.read_at)).unwrap_or(usize::MAX);
        (left > 0).then_some((self.read_at, left.min(self.window)))
    }

    /// Takes the bytes at the position last wanted.
    pub fn feed(&mut self, data: &[u8]) {
        if self.read_at == self.start {
            self.clean = data.iter().take(HEADER_BYTES).all(|byte| *byte == 0);
        }
        for at in self.finder.find_iter(data) {
            let Some(bytes) = data[at..].first_chunk::<HEADER_BYTES>() else { break };
            if let Ok((header, durable_before)) = Header::decode(bytes, self.identity) {
                let end = self.read_at.saturating_add(at as u64).saturating_add(header.frame_len());
                self.testimony = self.testimony.max(durable_before);
                self.reach = self.reach.max(end.min(self.file_len));
            }
        }
        // The next window starts with the bytes in which a header that is cut here would begin.
        let overlap = if data.len() < self.window { 0 } else { HEADER_BYTES - 1 };
        self.read_at += (data.len() - overlap) as u64;
        if data.is_empty() {
            self.read_at = self.file_len;
        }
    }
}

#[cfg(test)]
mod tests;
