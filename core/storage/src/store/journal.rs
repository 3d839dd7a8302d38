//! The journal's state: two files used in turn, and which copies still need what each of them holds.
//!
//! When many copies have a little to make durable, their frames go here together and one sync acknowledges them
//! all. Each copy's own file is written later; until then the frames are held in memory, and after a crash they
//! are taken from here (`replay`). A file is used again once every copy whose frames it holds has them in its
//! own file, synced. While neither file has room, everything goes to the copies' files directly.

use std::collections::BTreeSet;

use bytes::Bytes;
use types::SegmentId;

use super::copy::Mark;
use crate::disk::{FileId, Name, Path, Step};
use crate::format::batch::Nonce;
use crate::format::journal::{HEADER_BYTES, Header, RECORDS_AT, SECOND_HEADER_AT, Spot, Stamp};

/// Frames of one copy, on their way to the journal.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) segment: SegmentId,
    pub(super) nonce: Nonce,
    pub(super) position: u64,
    pub(super) mark: Mark,
    pub(super) data: Vec<Bytes>,
}

/// Whether the journal can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// There are no files yet.
    Absent,
    /// The files are being made.
    Making,
    /// Frames can be journaled.
    Ready,
    /// Something failed: not in this process lifetime.
    Unusable,
}

#[derive(Debug, Default)]
struct Half {
    file: Option<FileId>,
    stamp: Option<Stamp>,
    /// Copies whose own files lack frames this one holds.
    owed: BTreeSet<SegmentId>,
}

/// The journal of one store.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) state: State,
    bytes_max: u64,
    /// A planted bug: nobody's needs keep a file from being used again.
    reckless: bool,
    halves: [Half; 2],
    current: usize,
    at: u64,
    next_sequence: u64,
    /// Everything before is synced.
    durable: Spot,
}

impl Journal {
    pub(super) fn new(bytes_max: u64, reckless: bool) -> Self {
        Self {
            state: if bytes_max == 0 { State::Unusable } else { State::Absent },
            bytes_max,
            reckless,
            halves: Default::default(),
            current: 1,
            at: u64::MAX,
            next_sequence: 1,
            durable: Spot::default(),
        }
    }

    pub(super) fn dir() -> Name {
        Name::new("journal").expect("lower-case letters make a name")
    }

    pub(super) fn path(half: usize) -> Path {
        let name = Name::new(["a.log", "b.log"][half]).expect("lower-case letters and a dot make a name");
        Path { dir: Some(Self::dir()), name }
    }

    /// The files were found and emptied, or made, under these numbers.
    pub(super) fn ready(&mut self, files: [FileId; 2]) {
        self.halves = files.map(|file| Half { file: Some(file), ..Half::default() });
        self.state = State::Ready;
    }

    /// Uses up to `sequence` belong to the past. One more is left out: a file without a readable header may have
    /// had it.
    pub(super) fn go_on_after(&mut self, sequence: u64) {
        self.next_sequence = self.next_sequence.max(sequence.saturating_add(2));
    }

    /// The first use that frames of a copy made now can go to.
    pub(super) fn born(&self) -> u64 {
        let current = self.halves[self.current].stamp.filter(|_| self.state == State::Ready);
        current.map_or(self.next_sequence, |stamp| stamp.sequence)
    }

    /// The steps that make both files: real blocks, so that journaling never changes a length.
    pub(super) fn make(&mut self, files: [FileId; 2]) -> Vec<Step> {
        self.state = State::Making;
        let mut steps = Vec::new();
        for (half, file) in files.into_iter().enumerate() {
            steps.push(Step::Create { file, path: Self::path(half) });
            steps.push(Step::Zero { file, at: 0, len: self.bytes_max });
            steps.push(Step::Sync(file));
        }
        steps.push(Step::SyncDir(Some(Self::dir())));
        steps.push(Step::SyncDir(None));
        steps
    }

    /// Bytes of records, headers included, that can be journaled now.
    pub(super) fn room(&self) -> u64 {
        if self.state != State::Ready {
            return 0;
        }
        let other = &self.halves[1 - self.current];
        let here = self.bytes_max.saturating_sub(self.at);
        let free = other.owed.is_empty() || self.reckless;
        // The header of the next use says where this one ended, synced: so everything sent must have landed.
        let sent =
            self.halves[self.current].stamp.map(|stamp| Spot { sequence: stamp.sequence, at: self.at });
        let landed = sent.is_none_or(|sent| self.durable == sent);
        let there = if free && landed { self.bytes_max.saturating_sub(RECORDS_AT) } else { 0 };
        here.max(there)
    }

    /// The steps that write these parts and sync them, and the place they end at. Only while there is room.
    pub(super) fn write(&mut self, parts: &[Part], sync: bool, salt: u64) -> (Vec<Step>, Spot, usize) {
        let bytes: u64 = parts.iter().map(|part| HEADER_BYTES as u64 + part_len(part)).sum();
        let mut steps = Vec::with_capacity(8);
        if self.at.checked_add(bytes).is_none_or(|end| end > self.bytes_max) {
            self.switch(&mut steps, salt);
        }
        let half = &mut self.halves[self.current];
        let (file, stamp) = (half.file.expect("a ready journal has its files"), half.stamp.expect("in use"));
        let mut data = Vec::with_capacity(parts.len() * 3);
        let mut at = self.at;
        for part in parts {
            let len = part_len(part);
            let header = Header {
                payload_len: u32::try_from(len).expect("parts are far smaller than the journal"),
                segment: part.segment,
                nonce: part.nonce,
                position: part.position,
                durable_before: self.durable,
            };
            data.push(header.encode(stamp, at, &part.data));
            data.extend(part.data.iter().cloned());
            at += HEADER_BYTES as u64 + len;
            half.owed.insert(part.segment);
        }
        steps.push(Step::Write { file, at: self.at, data });
        if sync {
            steps.push(Step::Sync(file));
        }
        self.at = at;
        (steps, Spot { sequence: stamp.sequence, at }, self.current)
    }

    /// Begins a new use of the other file: one header after the other, so that one of them is always whole.
    fn switch(&mut self, steps: &mut Vec<Step>, salt: u64) {
        self.current = 1 - self.current;
        let previous_end = if self.at == u64::MAX { 0 } else { self.at };
        let stamp = Stamp { sequence: self.next_sequence, salt, previous_end };
        self.next_sequence += 1;
        let half = &mut self.halves[self.current];
        let file = half.file.expect("a ready journal has its files");
        half.stamp = Some(stamp);
        self.at = RECORDS_AT;
        steps.push(Step::Write { file, at: 0, data: vec![stamp.encode()] });
        steps.push(Step::Sync(file));
        steps.push(Step::Write { file, at: SECOND_HEADER_AT, data: vec![stamp.encode()] });
    }

    /// Bytes written to the present use.
    pub(super) fn bytes(&self) -> u64 {
        if self.at == u64::MAX { 0 } else { self.at }
    }

    /// Copies that still need either file; one that needs both counts twice.
    pub(super) fn copies(&self) -> usize {
        self.halves.iter().map(|half| half.owed.len()).sum()
    }

    /// Whether frames can be journaled, or could once the files are made.
    pub(super) fn is_usable(&self) -> bool {
        self.state != State::Unusable
    }

    /// Everything before `spot` is durable.
    pub(super) fn synced(&mut self, spot: Spot) {
        self.durable = self.durable.max(spot);
    }

    /// A copy has everything below `written` in its own file; `journaled` is how far each file speaks of it.
    pub(super) fn settled(&mut self, segment: SegmentId, journaled: &[u64; 2], written: u64) {
        for (half, furthest) in self.halves.iter_mut().zip(journaled) {
            if *furthest <= written {
                half.owed.remove(&segment);
            }
        }
    }

    /// A copy needs nothing from the journal any more, whatever it holds.
    pub(super) fn forget(&mut self, segment: SegmentId) {
        for half in &mut self.halves {
            half.owed.remove(&segment);
        }
    }

    /// Copies whose frames should be brought to their own files next: those that keep the file not in use.
    pub(super) fn overdue(&self, most: usize) -> Vec<SegmentId> {
        self.halves[1 - self.current].owed.iter().take(most).copied().collect()
    }

    /// Copies that still need either file.
    pub(super) fn owed(&self, most: usize) -> Vec<SegmentId> {
        self.halves.iter().flat_map(|half| &half.owed).take(most).copied().collect()
    }
}

fn part_len(part: &Part) -> u64 {
    part.data.iter().map(|slice| slice.len() as u64).sum()
}
