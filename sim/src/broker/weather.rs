//! The faults of one process lifetime, and when it ends.

use std::time::Duration;

use rand::Rng;
use storage::disk::{ErrorKind, Name, Path};
use types::RangeId;

use super::world::{Happening, World};
use crate::disk::{Chance, Class, Injection};

/// What may go wrong in this lifetime, and so what a client may be told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    /// Faults were ordered for the volume of the records, and for that of the metadata.
    pub(super) bad: [bool; 2],
    /// Disk steps until the process ends.
    pub(super) steps_left: Option<u32>,
    /// Number of the call after which clients slow down: a quiet time follows.
    pub(super) busy_until: usize,
    /// The wall clock is so many milliseconds off.
    pub(super) skew_ms: i64,
    /// The next range that is split or merged cannot end its segment for a while.
    pub(super) holds_next: bool,
    /// Which one that is.
    pub(super) held: Option<RangeId>,
}

impl Weather {
    /// Whether a failure may be the world's.
    pub(super) fn is_bad(self) -> bool {
        self.bad[0] || self.bad[1]
    }
}

impl World {
    /// Takes all faults back. What they did in this lifetime may still be told.
    pub(super) fn clear_weather(&mut self) {
        for disk in &mut self.disks {
            disk.clear_injections();
            disk.set_read_only(false);
            let faults = disk.faults_mut();
            faults.capacity_bytes = None;
            faults.slow = Chance::NEVER;
            (faults.read_error, faults.write_error, faults.sync_error, faults.name_error) =
                Default::default();
        }
        self.weather.steps_left = None;
        self.weather.holds_next = false;
    }

    /// Chooses the faults of the lifetime that begins.
    pub(super) fn choose_weather(&mut self) {
        self.clear_weather();
        self.weather = Weather { skew_ms: self.weather.skew_ms, ..Weather::default() };
        if self.healing {
            return;
        }
        match self.chaos.random_range(0..12) {
            0 | 1 => {}
            2 | 3 => self.weather.holds_next = true,
            4 => self.slow_disk(),
            5..=7 => self.failing_steps(),
            8 => self.ordered_fault(),
            9 => {
                self.failing_steps();
                self.ordered_fault();
            }
            10 => {
                self.weather.bad[0] = true;
                self.disks[0].faults_mut().capacity_bytes = Some(self.chaos.random_range(2000..40_000));
            }
            _ => {
                self.weather.bad[1] = true;
                self.disks[1].faults_mut().capacity_bytes = Some(self.chaos.random_range(4000..60_000));
            }
        }
        if self.chaos.random_bool(0.3) {
            self.weather.skew_ms = self.chaos.random_range(-3_600_000..3_600_000);
        }
        let steps = match self.chaos.random_range(0..4) {
            0 => self.chaos.random_range(0..60),
            1 => self.chaos.random_range(0..600),
            _ => self.chaos.random_range(0..2500),
        };
        self.weather.steps_left = Some(steps);
        self.weather.busy_until = self.calls.len() + self.chaos.random_range(0..400);
        // Short and busy, or long enough for copies to be idle and long polls to end.
        let micros = [30_000, 300_000, 3_000_000, 40_000_000][self.chaos.random_range(0..4)];
        let micros = self.chaos.random_range(0..micros);
        self.after(micros, Happening::End(self.model.life));
        self.say(|| format!("weather: {:?}, {micros} us", self.weather));
    }

    fn slow_disk(&mut self) {
        let volume = self.chaos.random_range(0..2);
        let chance = Chance::one_in(self.chaos.random_range(3..40));
        let faults = self.disks[volume].faults_mut();
        faults.slow = chance;
        faults.slow_max = Duration::from_millis(200);
    }

    fn failing_steps(&mut self) {
        let volume = self.chaos.random_range(0..2);
        let rare = Chance::one_in([10, 30, 100, 300][self.chaos.random_range(0..4)]);
        self.weather.bad[volume] = true;
        let faults = self.disks[volume].faults_mut();
        match self.chaos.random_range(0..4) {
            0 => faults.read_error = rare,
            1 => faults.write_error = rare,
            2 => faults.sync_error = rare,
            _ => faults.name_error = rare,
        }
    }

    fn ordered_fault(&mut self) {
        let volume = self.chaos.random_range(0..2);
        self.weather.bad[volume] = true;
        let classes =
            [Class::Read, Class::Write, Class::Sync, Class::SyncDir, Class::Open, Class::Name, Class::List];
        let class = classes[self.chaos.random_range(0..classes.len())];
        let kind = [ErrorKind::Io, ErrorKind::Full, ErrorKind::Other][self.chaos.random_range(0..3)];
        let skip = self.chaos.random_range(0..60);
        let times = [1, 2, 10][self.chaos.random_range(0..3)];
        self.say(|| format!("volume {volume}: {class:?} fails as {kind:?} {times} times after {skip}"));
        self.disks[volume].inject(Injection { class, path: None, skip, times, kind });
    }

    /// Ranges were replaced: the segment of one of them may not end, and nothing else is wrong.
    pub(super) fn hold(&mut self, ranges: &[RangeId]) {
        let active = ranges.iter().find_map(|range| self.model.segments.active(*range));
        let Some(segment) = active.filter(|_| self.weather.holds_next) else { return };
        let aside = Name::new(&segment.to_string()).zip(Name::new("copy.meta.tmp"));
        let Some((dir, name)) = aside else { return };
        self.weather.holds_next = false;
        self.weather.held = Some(segment.range);
        let times = self.chaos.random_range(1..40);
        self.say(|| format!("{segment} does not end for a while: {times} tries"));
        let path = Some(Path { dir: Some(dir), name });
        self.disks[0].inject(Injection { class: Class::Name, path, skip: 0, times, kind: ErrorKind::Full });
    }
}
