//! After a crash: which frames of which copies only the journal has.
//!
//! Reading follows the rule of `recovery`: with `S` = the furthest place in a file that any record of it, or the
//! header of the file that follows, testifies to, bytes that do not decode below `S` were synced once and are
//! rot, and at or above `S` they belong to a flush that did not complete, in which nothing was acknowledged.
//!
//! - Torn: what stands there and behind is dropped.
//! - Rot in a payload: its header says which copy should reach how far; if that copy's own file does not, the
//!   copy is damaged (its recovery finds that out).
//! - Rot in a header, or both headers of a file gone: nobody can say which copies lost frames, so every copy
//!   that takes appends leaves service, unless it was made later. A shortened history is never passed off as a
//!   whole one.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::SegmentId;

use crate::format::batch::Nonce;
use crate::format::journal::{
    FILE_HEADER_BYTES, HEADER_BYTES, Header, MAGIC, RECORDS_AT, SECOND_HEADER_AT, Stamp,
};

/// What the journal holds for one life of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owed {
    /// Runs of frames with their place in the log, in the order they were journaled.
    pub(crate) patches: Vec<Patch>,
    /// The log was once durable up to here.
    pub(crate) must_reach: u64,
}

/// A run of frames and its place in a copy's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub(crate) position: u64,
    pub(crate) bytes: Bytes,
}

/// What the journal holds for a segment, by the life of its copy.
pub(super) type Lives = BTreeMap<Nonce, Owed>;

/// What both files hold.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replay {
    pub(super) owed: BTreeMap<SegmentId, Lives>,
    /// Frames of unknown copies are lost, in uses of the journal up to this one.
    pub(super) unknown_loss: Option<u64>,
    /// The highest sequence seen.
    pub(super) sequence: u64,
}

struct File {
    stamp: Stamp,
    bytes: Bytes,
    /// Every record whose header decodes, intact or not.
    found: Vec<(u64, Header, Option<Bytes>)>,
    /// Places where a record was due and no header decoded.
    gaps: Vec<u64>,
}

impl Replay {
    /// Reads both files' bytes. `believe_all` is a planted bug: nothing is ever rot.
    pub(super) fn read(files: [Bytes; 2], believe_all: bool) -> Self {
        let mut replay = Self::default();
        let mut read: Vec<File> = Vec::new();
        let mut nameless = false;
        for bytes in files {
            match stamp_of(&bytes) {
                Some(stamp) => read.push(File::read(stamp, bytes)),
                None => nameless |= second_was_written(&bytes) && !believe_all,
            }
        }
        if nameless {
            // The files are used in turn, so its use is the one before the other's, or the one after.
            replay.unknown_loss = Some(read.first().map_or(u64::MAX, |file| file.stamp.sequence + 1));
        }
        read.sort_by_key(|file| file.stamp.sequence);
        let mut later: Option<Stamp> = None;
        let mut synced = Vec::new();
        for file in read.iter().rev() {
            let sequence = file.stamp.sequence;
            let spoken = file.found.iter().map(|(_, header, _)| header.durable_before);
            let spoken =
                spoken.filter(|spot| spot.sequence == sequence).map(|spot| spot.at).max().unwrap_or(0);
            let ended =
                later.filter(|later| later.sequence == sequence + 1).map_or(0, |later| later.previous_end);
            synced.push(spoken.max(ended));
            later = Some(file.stamp);
        }
        for file in read {
            replay.sequence = replay.sequence.max(file.stamp.sequence);
            replay.take(file, synced.pop().unwrap_or(0), believe_all);
        }
        replay
    }

    /// Takes what a file holds that was known to be synced below `synced`.
    fn take(&mut self, file: File, synced: u64, believe_all: bool) {
        let is_rot = |at: u64| at < synced && !believe_all;
        let torn_at = file.gaps.iter().copied().filter(|at| !is_rot(*at)).min().unwrap_or(u64::MAX);
        if file.gaps.iter().any(|at| is_rot(*at)) {
            self.unknown_loss = self.unknown_loss.max(Some(file.stamp.sequence));
        }
        for (at, header, payload) in file.found {
            if at >= torn_at {
                return;
            }
            let owed = self.owed.entry(header.segment).or_default().entry(header.nonce).or_default();
            match payload {
                Some(bytes) => owed.patches.push(Patch { position: header.position, bytes }),
                None if is_rot(at) => {
                    let end = header.position + u64::from(header.payload_len);
                    owed.must_reach = owed.must_reach.max(end);
                }
                None => return,
            }
        }
    }
}

/// The second header is written once the first is synced. Only if there is something of it can records have been
/// acknowledged; without it a first header that does not decode was torn when the file's first use began.
fn second_was_written(bytes: &Bytes) -> bool {
    let at = usize::try_from(SECOND_HEADER_AT).expect("a small constant");
    bytes.get(at..at + FILE_HEADER_BYTES).is_some_and(|header| header.iter().any(|byte| *byte != 0))
}

fn stamp_of(bytes: &Bytes) -> Option<Stamp> {
    let second =
        usize::try_from(SECOND_HEADER_AT).ok().and_then(|at| bytes.get(at..)).and_then(Stamp::decode);
    // While a new use begins the first header is ahead of the second.
    Stamp::decode(bytes).into_iter().chain(second).max_by_key(|stamp| stamp.sequence)
}

impl File {
    fn read(stamp: Stamp, bytes: Bytes) -> Self {
        let mut file = Self { stamp, bytes, found: Vec::new(), gaps: Vec::new() };
        let finder = memchr::memmem::Finder::new(&MAGIC);
        let mut at = usize::try_from(RECORDS_AT).expect("a small constant");
        while let Some(rest) = file.bytes.get(at..) {
            if let Some((header, payload)) = file.record(at) {
                file.found.push((at as u64, header, payload));
                at += HEADER_BYTES + header.payload_len as usize;
                continue;
            }
            if file.gaps.last().is_none_or(|gap| *gap != at as u64) {
                file.gaps.push(at as u64);
            }
            let next = finder.find_iter(rest).map(|found| at + found).find(|at| file.record(*at).is_some());
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        file
    }

    fn record(&self, at: usize) -> Option<(Header, Option<Bytes>)> {
        let (header, crc) = Header::decode(self.bytes.get(at..)?, self.stamp, at as u64)?;
        let start = at + HEADER_BYTES;
        let end = start.checked_add(header.payload_len as usize)?;
        let payload = (end <= self.bytes.len()).then(|| self.bytes.slice(start..end));
        Some((header, payload.filter(|payload| Header::vouches(self.stamp, at as u64, crc, payload))))
    }
}
