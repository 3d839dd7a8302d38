//! One process life: what is asked, and when it ends.

use bytes::Bytes;
use rand::Rng;
use rand::rngs::SmallRng;
use storage::format::batch::{Batch, Flags, Header, Producer, Seed};
use storage::store::{FailReason, Request};
use types::{Epoch, Offset, SegmentId, WallTime};

use super::model::{Exists, Frame};
use super::world::{Stop, World};
use crate::disk::Side;
use crate::invariants::{Violation, ensure};

/// A directory that bears a copy's name and explains itself by nothing.
const FOREIGN: &str = "000000000000000000000000000000ff-r0-s0";

impl World {
    /// One process life, from start to crash.
    pub(super) fn live(&mut self, rng: &mut SmallRng) -> Result<(), Violation> {
        self.weather(rng);
        self.at_rest(rng);
        self.crash_in = rng.random_bool(0.7).then(|| {
            let most = [10, 60, 400][rng.random_range(0..3)];
            rng.random_range(0..most)
        });
        let ended = self.run_life(rng);
        if let Err(Stop::Broken(violation)) = ended {
            return Err(violation);
        }
        let segments: Vec<SegmentId> = self.model.keys().copied().collect();
        for segment in segments {
            self.check_frozen(segment)?;
        }
        self.end(rng.random_bool(0.7));
        Ok(())
    }

    /// The last life: no faults, and everything that is left must be there and be usable.
    pub(super) fn heal(&mut self, rng: &mut SmallRng) -> Result<(), Violation> {
        self.disk.clear_injections();
        self.disk.set_read_only(false);
        *self.disk.faults_mut() = crate::disk::Faults::none();
        self.crash_in = None;
        let outcome = self.run_last_life(rng);
        self.end(true);
        match outcome {
            Err(Stop::Broken(violation)) => Err(violation),
            Err(Stop::Crash) => Err(Violation::new("LIVENESS", "a healthy disk did not let the store start")),
            Ok(()) => Ok(()),
        }
    }

    fn run_last_life(&mut self, rng: &mut SmallRng) -> Result<(), Stop> {
        for copy in self.model.values_mut() {
            copy.may_fail = false;
        }
        self.start()?;
        self.check_foreign()?;
        let segments: Vec<SegmentId> = self.model.keys().copied().collect();
        for segment in segments {
            self.audit(segment)?;
            let copy = &self.model[&segment];
            let usable = copy.is_healthy() && !copy.dead && copy.sealed.is_none() && !copy.delete_pending;
            if copy.exists == Exists::Yes && usable {
                let before = self.model[&segment].acked_end();
                let epoch = self.model[&segment].epoch_max;
                self.append_under(rng, segment, epoch)?;
                while self.step()? {}
                let after = self.model[&segment].acked_end();
                ensure(after > before, "LIVENESS", || format!("{segment}: a healthy copy takes no append"))?;
            }
        }
        Ok(())
    }

    /// What happens to the volume while no process runs.
    fn at_rest(&mut self, rng: &mut SmallRng) {
        for segment in self.model.keys().copied().collect::<Vec<_>>() {
            if rng.random_bool(0.06) {
                self.rot(rng, segment);
            }
            if rng.random_bool(0.2) {
                self.vandalise_index(rng, segment);
            }
        }
        if rng.random_bool(0.06) {
            self.rot_journal(rng);
        }
        if rng.random_bool(0.05) {
            self.disk.plant_dir(FOREIGN);
            self.disk
                .plant_file(&format!("{FOREIGN}/00000000000000000000.log"), b"someone's backup".to_vec());
        }
    }

    fn run_life(&mut self, rng: &mut SmallRng) -> Result<(), Stop> {
        self.start()?;
        self.check_foreign()?;
        let segments: Vec<SegmentId> = self.model.keys().copied().collect();
        if rng.random_bool(0.7) {
            for segment in &segments {
                self.audit(*segment)?;
            }
        }
        for _ in 0..rng.random_range(0..60) {
            let segment = segments[rng.random_range(0..segments.len())];
            if !self.model[&segment].known {
                self.audit(segment)?;
            }
            self.operate(rng, segment)?;
            for _ in 0..rng.random_range(0..6) {
                self.step()?;
            }
        }
        if rng.random_bool(0.5) {
            while self.step()? {}
            if rng.random_bool(0.5) {
                self.tick()?;
                while self.step()? {}
            }
        }
        Ok(())
    }

    fn check_foreign(&self) -> Result<(), Violation> {
        let excused = self.model.values().any(|copy| copy.may_fail);
        let strange = self.foreign_seen.iter().find(|name| *name != FOREIGN).filter(|_| !excused);
        ensure(strange.is_none(), "LEFTOVER", || format!("{strange:?} was left over and is called foreign"))?;
        let path = format!("{FOREIGN}/00000000000000000000.log");
        let Some(bytes) = self.disk.bytes(&path, Side::View) else { return Ok(()) };
        ensure(bytes == b"someone's backup", "G-61", || "a foreign directory was written to".to_owned())?;
        let reported = excused || self.foreign_seen.iter().any(|name| name == FOREIGN);
        ensure(reported, "G-61", || "a foreign directory was not reported".to_owned())
    }

    fn operate(&mut self, rng: &mut SmallRng, segment: SegmentId) -> Result<(), Stop> {
        let copy = &self.model[&segment];
        if copy.dead || !copy.known {
            return Ok(());
        }
        if copy.exists != Exists::Yes {
            // A segment begins at one offset, however often its creation is asked for.
            let base = Offset(rng.random_range(0..2) * 100);
            let base = if copy.half_created { copy.base } else { base };
            let expect_full = rng.random_bool(0.7);
            let rebuilding = rng.random_bool(0.3);
            // What an unanswered creation left is found by asking again.
            if copy.exists == Exists::No || copy.half_created {
                self.model.get_mut(&segment).expect("chosen from the model").base = base;
                self.send(Request::Create { segment, base, epoch: Epoch(1), expect_full, rebuilding })?;
                self.pump_until_answered(segment)?;
            } else {
                self.audit(segment)?;
            }
            return Ok(());
        }
        let end = copy.acked_end();
        match rng.random_range(0..100) {
            0..=54 => self.append(rng, segment)?,
            55..=68 => {
                let from = Offset(rng.random_range(copy.base.0..=copy.submitted_end().0 + 1));
                self.send(Request::Read { segment, from, bytes_max: rng.random_range(1..6000) })?;
            }
            69..=72 => {
                let at = WallTime(rng.random_range(1000..=copy.last_time().0 + 1));
                self.send(Request::SeekTime { segment, at })?;
            }
            73..=77 => {
                let epoch = Epoch(rng.random_range(1..=copy.epoch_max.0 + 1));
                self.send(Request::Fence { segment, epoch })?;
            }
            78..=80 => {
                let frames = copy.frames.len();
                let boundary = |at: usize| copy.frames[at].batch.header.end_offset();
                let at = if frames > 0 && rng.random_bool(0.3) {
                    boundary(rng.random_range(0..frames))
                } else {
                    end
                };
                let at = if rng.random_bool(0.1) { Offset(at.0 + 1) } else { at };
                self.send(Request::Seal { segment, end: at, at: WallTime(7) })?;
            }
            81 if rng.random_bool(0.3) => {
                self.send(Request::Latch { segment, reason: FailReason::Eio })?;
            }
            81 => {
                self.send(Request::Rebuilt { segment })?;
            }
            82..=84 => {
                self.send(Request::Verify { segment })?;
            }
            85..=88 => {
                self.send(Request::Delete { segment })?;
                self.pump_until_answered(segment)?;
            }
            89..=91 => self.tick()?,
            92 | 93 => self.order_fault(rng, segment),
            94 | 95 => self.vandalise_index(rng, segment),
            _ => {
                self.send(Request::Inspect { segment })?;
            }
        }
        Ok(())
    }

    /// Whatever was asked of the copy is answered before anything else is: its very existence is in question.
    fn pump_until_answered(&mut self, segment: SegmentId) -> Result<(), Stop> {
        while self.asked.values().any(|asked| asked.segment == segment) {
            if !self.step()? {
                return Err(
                    Violation::new("INV-5", format!("{segment}: a request was never answered")).into()
                );
            }
        }
        Ok(())
    }

    fn append(&mut self, rng: &mut SmallRng, segment: SegmentId) -> Result<(), Stop> {
        let highest = self.model[&segment].epoch_max.0;
        let epoch = Epoch(rng.random_range(highest.saturating_sub(1).max(1)..=highest));
        self.append_under(rng, segment, epoch)
    }

    fn append_under(&mut self, rng: &mut SmallRng, segment: SegmentId, epoch: Epoch) -> Result<(), Stop> {
        let batches = vec![self.batch(rng, segment, epoch)];
        self.send(Request::Append { segment, epoch, batches })?;
        Ok(())
    }

    /// The next batch of a copy, which its model has from now on.
    fn batch(&mut self, rng: &mut SmallRng, segment: SegmentId, epoch: Epoch) -> Batch {
        let copy = self.model.get_mut(&segment).expect("chosen from the model");
        // Few different sizes, so that leftovers of an earlier flush often fit where a frame is due; in some seeds
        // all of one, so that they always do.
        let (some_len, some_count) =
            ([1, 40, 40, 40, 441, 441, 1200, 4400][rng.random_range(0..8)], rng.random_range(1..3));
        let (len, record_count) = self.uniform.map_or((some_len, some_count), |len| (len, 1));
        let mut payload = vec![0; len];
        rng.fill(&mut payload[..]);
        let seed = Seed::of(segment);
        let header = Header {
            flags: Flags::default(),
            payload_len: u32::try_from(len).expect("a few kilobytes"),
            record_count,
            base_offset: copy.submitted_end(),
            append_time: WallTime(copy.last_time().0 + rng.random_range(0..3)),
            epoch,
            producer: Producer::default(),
            payload_crc: seed.crc(&payload),
        };
        let batch = Batch { header, payload: Bytes::from(payload) };
        let testimony = copy.acked_bytes();
        copy.frames.push(Frame { batch: batch.clone(), acked: false, testimony });
        batch
    }
}
