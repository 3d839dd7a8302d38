//! What goes to the disk together, and by which way.
//!
//! Appends are gathered while earlier flushes run, so the running syncs are the batching window and no timer is
//! needed. Two flights may be under way, so that the disk finds the next one waiting when it has done the last.
//! A copy that has much to write gets its own write and sync; when many have little, they share the journal.

use types::SegmentId;

use super::Store;
use super::desk::{Desk, Owner};
use super::journal::{Journal, Part, State};
use crate::disk::{self, Output, Step};
use crate::format::journal::HEADER_BYTES;
use crate::planted::Bug;

/// Flights under way at one time.
const FLIGHTS_MAX: usize = 2;
/// The part of all log files that one flight may have to open.
const FLIGHT_SHARE: usize = 4;
/// Copies brought from the journal to their own files with each flight.
const WRITE_BACK: usize = 8;
/// The same, when nothing else is going on.
const WRITE_BACK_IDLE: usize = 64;

impl Store {
    /// Sends what waits to the disk, if it is not busy with enough already.
    pub(super) fn send_gathered(&mut self) {
        while self.desk.flights() < FLIGHTS_MAX {
            let waiting = self.desk.take_dirty();
            if waiting.is_empty() {
                return;
            }
            let flight = self.desk.begin_flight();
            let (small, mut large) = self.sort(waiting);
            let journaled = self.fitting(small, &mut large);
            self.flush_to_files(flight, large);
            if !journaled.is_empty() {
                self.flush_to_journal(flight, journaled);
                for segment in self.desk.journal.overdue(WRITE_BACK) {
                    self.flush_to_file(flight, segment);
                }
            }
            self.desk.end_if_empty(flight);
        }
    }

    /// Those of the `small` copies that the journal has room for and pays for. Of the others, those that find no
    /// room beside them wait for the next flight; when it does not pay they go to `large`.
    fn fitting(&mut self, mut small: Vec<SegmentId>, large: &mut Vec<SegmentId>) -> Vec<SegmentId> {
        let least = self.desk.config.journal_copies_min;
        if small.len() >= least && self.desk.journal.state == State::Absent {
            self.make_journal();
        }
        rotate(&mut small, self.desk.journaled_last);
        let mut left = self.desk.journal.room();
        let need = |segment: &SegmentId| self.copies.get(segment).map_or(0, |copy| copy.unsent_bytes());
        let fits = small.iter().take_while(|segment| {
            let need = need(segment) + HEADER_BYTES as u64;
            let fits = need <= left;
            left = left.saturating_sub(need);
            fits
        });
        let fitting = fits.count();
        if small.len() < least || fitting < least {
            large.append(&mut small);
        } else if fitting < small.len() {
            self.desk.dirty.extend(small.split_off(fitting));
            self.desk.journaled_last = small.last().copied();
        }
        small
    }

    /// Flushes copies to their own files, as many as one flight takes; the others wait for the next, and come first
    /// then, so that a node with thousands of busy copies needs neither thousands of descriptors nor patience.
    fn flush_to_files(&mut self, flight: u64, mut segments: Vec<SegmentId>) {
        let most = (self.desk.config.open_copies_max / FLIGHT_SHARE).max(1);
        if segments.len() > most {
            rotate(&mut segments, self.desk.flushed_last);
            self.desk.dirty.extend(segments.split_off(most));
            self.desk.flushed_last = segments.last().copied();
        }
        for segment in segments {
            self.flush_to_file(flight, segment);
        }
    }

    fn sort(&self, waiting: Vec<SegmentId>) -> (Vec<SegmentId>, Vec<SegmentId>) {
        let most = self.desk.config.journal_part_bytes_max;
        let use_sequence = self.desk.journal.born();
        let is_small = |segment: &SegmentId| {
            self.copies.get(segment).is_some_and(|copy| {
                let bytes = copy.unsent_bytes();
                bytes > 0 && bytes <= most && copy.may_journal(use_sequence)
            })
        };
        waiting.into_iter().partition(is_small)
    }

    fn make_journal(&mut self) {
        let files = [self.desk.new_file(), self.desk.new_file()];
        self.desk.run(Owner::Nobody, vec![Step::CreateDir(Journal::dir())]);
        let steps = self.desk.journal.make(files);
        self.desk.run(Owner::MakeJournal(files), steps);
    }

    /// Takes the completion of the making of the journal's files.
    pub(super) fn journal_made(&mut self, files: [disk::FileId; 2], result: Result<Output, disk::Error>) {
        match result {
            Ok(_) => self.desk.journal.ready(files),
            Err(_) => self.desk.journal.state = State::Unusable,
        }
    }

    fn flush_to_file(&mut self, flight: u64, segment: SegmentId) {
        if let Some(copy) = self.copies.get_mut(&segment)
            && copy.flush(&mut self.desk, flight)
        {
            self.desk.one_more(flight);
        }
    }

    fn flush_to_journal(&mut self, flight: u64, small: Vec<SegmentId>) {
        let mut parts = Vec::with_capacity(small.len());
        for segment in small {
            let Some(copy) = self.copies.get_mut(&segment) else { continue };
            let nonce = copy.nonce();
            if let Some((position, mark, data)) = copy.take_unsent() {
                parts.push(Part { segment, nonce, position, mark, data });
            }
        }
        let sync = !self.desk.config.has_bug(Bug::SkipSync);
        let salt = self.desk.new_salt();
        let (steps, spot, half) = self.desk.journal.write(&parts, sync, salt);
        for part in &parts {
            if let Some(copy) = self.copies.get_mut(&part.segment) {
                copy.is_journaled(half, part.mark);
            }
        }
        let covered = parts.iter().map(|part| (part.segment, part.mark)).collect();
        self.desk.one_more(flight);
        self.desk.run(Owner::Journal { flight, spot, covered }, steps);
    }

    /// Takes the completion of a write to the journal.
    pub(super) fn journal_done(
        &mut self,
        spot: crate::format::journal::Spot,
        covered: Vec<(SegmentId, super::copy::Mark)>,
        result: Result<Output, disk::Error>,
    ) {
        if result.is_ok() {
            self.desk.journal.synced(spot);
        } else {
            self.desk.journal.state = State::Unusable;
        }
        for (segment, mark) in covered {
            let journaled = result.is_ok();
            self.with(
                segment,
                |copy, desk| {
                    if journaled { copy.journaled(desk, mark) } else { copy.not_journaled(desk) }
                },
            );
        }
    }

    /// Brings copies from the journal to their own files while little else is going on.
    pub(super) fn write_back(&mut self) {
        if self.desk.flights() > 0 {
            return;
        }
        let flight = self.desk.begin_flight();
        for segment in self.desk.journal.owed(WRITE_BACK_IDLE) {
            self.flush_to_file(flight, segment);
        }
        self.desk.end_if_empty(flight);
    }
}

/// In order, beginning after `last`, so that everybody's turn comes.
fn rotate(segments: &mut [SegmentId], last: Option<SegmentId>) {
    segments.sort_unstable();
    let next = segments.partition_point(|segment| Some(*segment) <= last);
    segments.rotate_left(next);
}

impl Desk {
    /// A copy has something to send.
    pub(super) fn wants_flush(&mut self, segment: SegmentId) {
        self.dirty.insert(segment);
    }

    fn take_dirty(&mut self) -> Vec<SegmentId> {
        std::mem::take(&mut self.dirty).into_iter().collect()
    }

    fn flights(&self) -> usize {
        self.flights.len()
    }

    /// Something is on its way to the disk, or about to be.
    pub(super) fn is_flushing(&self) -> bool {
        !self.flights.is_empty() || !self.dirty.is_empty()
    }

    fn begin_flight(&mut self) -> u64 {
        self.next_flight += 1;
        self.flights.insert(self.next_flight, 0);
        self.next_flight
    }

    fn one_more(&mut self, flight: u64) {
        *self.flights.entry(flight).or_insert(0) += 1;
    }

    fn end_if_empty(&mut self, flight: u64) {
        if self.flights.get(&flight) == Some(&0) {
            self.flights.remove(&flight);
        }
    }

    /// One job of a flight has completed.
    pub(super) fn landed(&mut self, flight: u64) {
        if let Some(left) = self.flights.get_mut(&flight) {
            *left = left.saturating_sub(1);
        }
        self.end_if_empty(flight);
    }
}
