//! What is done to the volume behind the store's back.

use rand::Rng;
use rand::rngs::SmallRng;
use storage::disk::ErrorKind;
use storage::format::batch::Seed;
use storage::format::index::{self, Entry};
use storage::format::journal::{HEADER_BYTES, Header, RECORDS_AT, Stamp};
use storage::format::meta::META_BYTES;
use storage::segment::layout;
use types::{Offset, SegmentId, WallTime};

use super::model::{Exists, Frame, Rot};
use super::world::World;
use crate::disk::{Chance, Class, Injection, Side};

impl World {
    /// Chooses the faults of one life.
    pub(super) fn weather(&mut self, rng: &mut SmallRng) {
        self.disk.clear_injections();
        self.disk.set_read_only(false);
        let faults = self.disk.faults_mut();
        faults.capacity_bytes = None;
        (faults.read_error, faults.write_error, faults.sync_error, faults.name_error) = Default::default();
        for copy in self.model.values_mut() {
            copy.may_fail = false;
        }
        let bad = match rng.random_range(0..10) {
            0 => {
                let rare = Chance::one_in(rng.random_range(20..200));
                let faults = self.disk.faults_mut();
                match rng.random_range(0..4) {
                    0 => faults.read_error = rare,
                    1 => faults.write_error = rare,
                    2 => faults.sync_error = rare,
                    _ => faults.name_error = rare,
                }
                true
            }
            1 => {
                self.disk.faults_mut().capacity_bytes = Some(rng.random_range(2000..40_000));
                true
            }
            _ => false,
        };
        for copy in self.model.values_mut() {
            copy.may_fail = bad;
        }
    }

    /// Orders one fault on one copy; every other copy must not notice.
    pub(super) fn order_fault(&mut self, rng: &mut SmallRng, segment: SegmentId) {
        let class = [Class::Write, Class::Sync, Class::Read][rng.random_range(0..3)];
        let kind = [ErrorKind::Io, ErrorKind::Full][rng.random_range(0..2)];
        let path = Some(self.log_path(segment));
        self.say(|| format!("!! {class:?} of {path:?} will fail: {kind:?}"));
        self.disk.inject(Injection { class, path, skip: rng.random_range(0..3), times: 1, kind });
        self.excuse(segment);
    }

    pub(super) fn excuse(&mut self, segment: SegmentId) {
        if let Some(copy) = self.model.get_mut(&segment) {
            copy.may_fail = true;
        }
    }

    /// Removes, damages or forges a copy's index: nothing may come of it.
    pub(super) fn vandalise_index(&mut self, rng: &mut SmallRng, segment: SegmentId) {
        let path = layout::index(segment, self.model[&segment].base).to_string();
        self.say(|| format!("!! the index {path}"));
        let dir_exists = self.disk.bytes(&layout::meta(segment).to_string(), Side::View).is_some();
        match rng.random_range(0..3) {
            0 => self.disk.uproot(&path),
            1 => {
                let len = self.disk.bytes(&path, Side::Platter).map_or(0, <[u8]>::len) as u64;
                if len > 0 {
                    self.disk.corrupt(&path, rng.random_range(0..len), &[1 << rng.random_range(0..8)]);
                }
            }
            _ if dir_exists => {
                let entries = self.forged_entries(rng, segment);
                self.disk.plant_file(&path, index::encode(Seed::of(segment), &entries).to_vec());
            }
            _ => {}
        }
    }

    /// An index that decodes and lies: true places with false times, or places where nothing is.
    fn forged_entries(&self, rng: &mut SmallRng, segment: SegmentId) -> Vec<Entry> {
        let copy = &self.model[&segment];
        if rng.random_bool(0.5) {
            let time = |rng: &mut SmallRng| WallTime(rng.random_range(1000..1020));
            let place = |(position, frame): (u64, &Frame)| (frame.batch.header.base_offset, position);
            return copy
                .placed()
                .map(place)
                .map(|(offset, position)| Entry { offset, time: time(rng), position })
                .collect();
        }
        let (mut offset, mut position) = (copy.base.0, 0);
        (0..rng.random_range(1..6))
            .map(|_| {
                offset += rng.random_range(1..5);
                position += rng.random_range(1..3000);
                Entry { offset: Offset(offset), time: WallTime(rng.random_range(1000..1100)), position }
            })
            .collect()
    }

    /// Flips a bit of the journal that later records testify to, or of one of a file's two headers.
    pub(super) fn rot_journal(&mut self, rng: &mut SmallRng) {
        let half = rng.random_range(0..2);
        let path = ["journal/a.log", "journal/b.log"][half];
        let Some(bytes) = self.disk.bytes(path, Side::Platter).map(<[u8]>::to_vec) else { return };
        let Some(stamp) = Stamp::decode(&bytes) else { return };
        let (mut at, mut spoken_for) = (RECORDS_AT as usize, 0);
        while let Some((header, _)) = bytes.get(at..).and_then(|rest| Header::decode(rest, stamp, at as u64))
        {
            if header.durable_before.sequence == stamp.sequence {
                spoken_for = header.durable_before.at;
            }
            at += HEADER_BYTES + header.payload_len as usize;
        }
        if rng.random_bool(0.2) {
            // The other header still tells, unless a crash comes while it is being written, now or in a later life.
            self.journal_headers_flipped[half] = true;
            for copy in self.model.values_mut() {
                copy.journal_header_flipped = true;
            }
            self.disk.corrupt(path, rng.random_range(0..36), &[1 << rng.random_range(0..8)]);
            return;
        }
        if spoken_for <= RECORDS_AT {
            return;
        }
        let at = rng.random_range(RECORDS_AT..spoken_for);
        let before = self.disk.bytes(path, Side::View).map(<[u8]>::to_vec);
        let bit = 1 << rng.random_range(0..8);
        self.disk.corrupt(path, at, &[bit]);
        if self.disk.bytes(path, Side::View).map(<[u8]>::to_vec) == before {
            self.disk.corrupt(path, at, &[bit]);
            return;
        }
        self.say(|| format!("!! a bit of {path} at {at}"));
        self.summary.flips += 1;
        for copy in self.model.values_mut() {
            copy.journal_rot = true;
        }
    }

    /// Flips a bit of a copy at rest: in its log, or in its `copy.meta`.
    pub(super) fn rot(&mut self, rng: &mut SmallRng, segment: SegmentId) {
        let copy = &self.model[&segment];
        if copy.exists != Exists::Yes
            || copy.dead
            || copy.rot.is_some()
            || copy.meta_flipped
            || copy.delete_pending
        {
            return;
        }
        if rng.random_bool(0.15) {
            let flipped = self.disk.flip_bit(
                &layout::meta(segment),
                rng.random_range(0..META_BYTES as u64),
                rng.random_range(0..8),
            );
            self.say(|| format!("!! a bit of copy.meta of {segment}: {flipped}"));
            self.model.get_mut(&segment).expect("just looked at").meta_flipped = flipped;
            self.summary.flips += u64::from(flipped);
            return;
        }
        let bytes = copy.acked_bytes();
        if bytes == 0 {
            return;
        }
        let at = rng.random_range(0..bytes);
        let Some(position) = copy.frame_at(at) else { return };
        let path = self.log_path(segment);
        let bit = rng.random_range(0..8);
        let before = self.log_bytes(segment, Side::View);
        if !self.disk.flip_bit(&path, at, bit) {
            return;
        }
        if self.log_bytes(segment, Side::View) == before {
            // The cache holds the byte unsynced and would mend the platter by and by: nothing to judge.
            self.disk.flip_bit(&path, at, bit);
            return;
        }
        self.summary.flips += 1;
        let log = self.log_bytes(segment, Side::View);
        let copy = self.model.get_mut(&segment).expect("just looked at");
        copy.rot = Some(Rot { position, frozen: None });
        if copy.rot_is_provable() {
            // Behind the rotten frame the journal may still bring frames home that were acknowledged.
            let frame = copy
                .placed()
                .find(|(at, _)| *at == position)
                .map(|(_, frame)| frame.batch.header.frame_len());
            let end = frame.filter(|_| copy.journaled).map_or(copy.acked_bytes(), |len| position + len);
            let kept = usize::try_from(end).unwrap_or(usize::MAX);
            copy.rot = Some(Rot { position, frozen: Some(log[..log.len().min(kept)].to_vec()) });
        }
        let provable = copy.rot_is_provable();
        self.say(|| {
            format!("!! a bit of {path:?} at {at}, in the frame at {position}, provable: {provable}")
        });
    }
}
