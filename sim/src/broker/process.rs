//! One process after another over the same disks, and the node in it.

use broker::{Action, Actions, Event, Node, Volume};
use rand::Rng;
use storage::disk::{Completion, Disk};
use types::{Instant, WallTime, limits};

use super::audit::Due;
use super::model::Life;
use super::world::{Happening, World};
use crate::disk::SimDisk;
use crate::invariants::{Violation, ensure, inv_05, inv_51};

/// Jobs a node may have given a disk beside those its requests explain: openings, zeros, records of ends.
const JOBS_UNEXPLAINED_MAX: usize = 100;

/// A running process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) node: Node,
    /// What the node's own clock is ahead of the world's: it starts anew, anywhere.
    clock: u64,
    pub(super) ready: bool,
    /// Jobs that the start had left undone when the node was ready.
    start_jobs: usize,
    /// The node has said that it cannot serve what it found.
    pub(super) stopped: bool,
    /// The metadata log failed: only another start helps.
    pub(super) metadata_stopped: bool,
    /// A copy or a directory is out of service for the rest of this lifetime: a `copy.meta` could not be read at
    /// the start, or the names of a directory could not be synced.
    pub(super) out_of_service: bool,
    wake_at: Option<u64>,
    /// Whether each disk has a step in the queue.
    busy: [bool; 2],
    /// Completions on their way to the node.
    completions: usize,
    /// Events were handled since the last flush.
    gathering: bool,
}

impl Process {
    /// Only another start helps.
    pub(super) fn is_hopeless(&self) -> bool {
        self.stopped || self.metadata_stopped || self.out_of_service
    }
}

/// The wall clock at the beginning.
const WALL_MS: u64 = 1_700_000_000_000;

impl World {
    /// A process starts.
    pub(super) fn start_process(&mut self) -> Result<(), Violation> {
        if self.process.is_some() {
            return Ok(());
        }
        self.choose_weather();
        let mut config = self.config.clone();
        config.seed = self.chaos.random();
        config.store.seed = self.chaos.random();
        config.raft_log.seed = self.chaos.random();
        self.say(|| format!("== start of lifetime {}", self.model.life));
        self.process = Some(Process {
            node: Node::new(config),
            clock: self.chaos.random_range(0..1 << 40),
            ready: false,
            start_jobs: 0,
            stopped: false,
            metadata_stopped: false,
            out_of_service: false,
            wake_at: None,
            busy: [false; 2],
            completions: 0,
            gathering: false,
        });
        self.step(Event::Start)
    }

    /// The process ends, if it still is that one.
    pub(super) fn end_process_of(&mut self, life: Life) {
        if self.healing || self.model.life != life {
            return;
        }
        let Some(process) = &self.process else { return };
        // The last one may live on when the faults stop: it must come round by itself.
        if self.lives_left == 1 && process.ready && !process.is_hopeless() && self.chaos.random_bool(0.6) {
            self.lives_left = 0;
        } else {
            self.end_process();
        }
    }

    /// The process ends, by power loss or by itself.
    pub(super) fn end_process(&mut self) {
        let power = self.chaos.random_bool(0.6);
        self.say(|| {
            format!("== {} in lifetime {}", if power { "POWER LOSS" } else { "KILL" }, self.model.life)
        });
        for disk in &mut self.disks {
            if power {
                disk.crash();
            } else {
                disk.kill();
            }
        }
        self.count_cut();
        self.process = None;
        self.leave_unknown();
        self.waiting.clear();
        self.dropped.clear();
        self.cut_all();
        self.model.life_ended(power);
        self.logins.life_ended();
        self.audit.life_ended();
        self.summary.lives += 1;
        self.lives_left = self.lives_left.saturating_sub(1);
        let pause = self.chaos.random_range(0..2_000_000);
        self.after(pause, Happening::Start);
    }

    /// Feeds one event to the node and performs what it asks for.
    pub(super) fn step(&mut self, event: Event) -> Result<(), Violation> {
        let wall = self.wall_ms();
        self.model.wall_max = self.model.wall_max.max(wall);
        let Some(process) = &mut self.process else { return Ok(()) };
        let now = Instant(process.clock + self.now);
        let mut actions = Actions::new();
        process.node.step(now, Event::Wall(WallTime(wall)), &mut actions);
        process.node.step(now, event, &mut actions);
        process.node.flush(&mut actions);
        let gathering = std::mem::replace(&mut process.gathering, true);
        for action in actions {
            self.perform(action)?;
        }
        self.audit_changes()?;
        if self.rng.random_bool(0.6) {
            return self.flush();
        }
        // More events may belong to this burst.
        if !gathering {
            let burst = self.rng.random_range(0..30);
            self.after(burst, Happening::Flush(self.model.life));
        }
        self.look_at_rest()
    }

    /// A burst of events is over, if it still is that process.
    pub(super) fn flush_of(&mut self, life: Life) -> Result<(), Violation> {
        if self.model.life == life { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Violation> {
        let Some(process) = &mut self.process else { return Ok(()) };
        process.gathering = false;
        let mut actions = Actions::new();
        process.node.flush(&mut actions);
        for action in actions {
            self.perform(action)?;
        }
        self.audit_changes()?;
        self.look_at_rest()
    }

    /// What the node's wall clock shows, milliseconds.
    pub(super) fn wall_ms(&self) -> u64 {
        (WALL_MS + self.now / 1000).saturating_add_signed(self.weather.skew_ms)
    }

    fn perform(&mut self, action: Action) -> Result<(), Violation> {
        let Some(process) = &mut self.process else { return Ok(()) };
        match action {
            Action::Reply { id, reply } if Self::is_login(id) => return self.login_answered(id, reply),
            Action::Reply { id, reply } if Self::is_audit(id) => self.audit.answer = Some(reply),
            Action::Reply { id, reply } => return self.replied(id, reply),
            Action::Disk(volume, job) => {
                let volume = index(volume);
                self.disks[volume].submit(job);
                // A start looks at every copy there is.
                let (ready, left) = (process.ready, process.start_jobs);
                if !process.busy[volume] {
                    process.busy[volume] = true;
                    self.after(0, Happening::DiskStep(volume, self.model.life));
                }
                if ready {
                    let asked = self.waiting.len() + self.dropped.len() + self.model.streams.len();
                    let ranges: u64 = self.model.topics.iter().map(|topic| topic.ranges.len()).sum();
                    let explained = left + JOBS_UNEXPLAINED_MAX + 4 * (asked + ranges as usize);
                    inv_51::jobs(self.disks[volume].outstanding(), explained)?;
                }
            }
            Action::WakeAt(at) => {
                let at = at.0.saturating_sub(process.clock).max(self.now);
                process.wake_at = Some(at);
                self.at(at, Happening::Wake(self.model.life, at));
            }
            Action::Ready => {
                process.ready = true;
                process.start_jobs = self.disks.iter().map(SimDisk::outstanding).sum();
                self.say(|| "   ready".to_owned());
                self.model.life_began();
                self.audit.due = Some(Due::Start);
            }
            Action::Say { .. } | Action::Ask { .. } | Action::Answer { .. } | Action::Peers(_) => {
                return Err(Violation::new("ANSWER", "a node alone has nobody to talk to"));
            }
            Action::Left => return Err(Violation::new("ANSWER", "nobody asked the node to leave")),
            Action::Suspended => {
                return Err(Violation::new("ANSWER", "the node stops serving, and nothing was upgraded"));
            }
            Action::Stop(stop) => {
                process.stopped = true;
                self.say(|| format!("   STOP {stop}"));
                ensure(self.weather.is_bad(), "START", || {
                    format!("no fault was ordered, and the node stops: {stop}")
                })?;
                self.after(1000, Happening::End(self.model.life));
            }
            Action::Notice(notice) => self.noticed(&notice)?,
            Action::Seeded { user } => self.seeded(user)?,
            Action::Push { stream, fetched } => self.push(stream, fetched)?,
            Action::StreamEnded { stream, reason } => self.stream_ended(stream, reason)?,
            Action::Renewed { .. } | Action::Revoked { .. } => {
                return Err(Violation::new("ANSWER", format!("nobody asked for {action:?}")));
            }
        }
        Ok(())
    }

    /// A disk runs a step; the crash that was planned for one of them comes between it and its completion.
    pub(super) fn disk_step(&mut self, volume: usize, life: Life) -> Result<(), Violation> {
        let Some(process) = self.process.as_mut().filter(|_| self.model.life == life) else { return Ok(()) };
        let took = self.disks[volume].step();
        let took = took.map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        let mut completed = Vec::new();
        while let Some(completion) = self.disks[volume].ready() {
            completed.push(completion);
        }
        process.busy[volume] = took.is_some();
        process.completions += completed.len();
        let took = took.unwrap_or(0);
        for completion in completed {
            self.after(took, Happening::DiskDone(volume, life, completion));
        }
        if self.process.as_ref().is_some_and(|process| process.busy[volume]) {
            self.after(took, Happening::DiskStep(volume, life));
        }
        for line in self.disks[volume].take_trace() {
            self.say(|| format!("      {volume}: {line}"));
        }
        if let Some(left) = &mut self.weather.steps_left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.end_process_of(life);
            }
        }
        // The last completion may have left before the disk was found idle.
        self.look_at_rest()
    }

    /// A completion reaches the node.
    pub(super) fn disk_done(&mut self, volume: usize, life: Life, done: Completion) -> Result<(), Violation> {
        let Some(process) = self.process.as_mut().filter(|_| self.model.life == life) else { return Ok(()) };
        process.completions -= 1;
        let volume = if volume == 0 { Volume::Log } else { Volume::Raft };
        self.step(Event::Disk(volume, done))?;
        // A timer that nobody asked for is harmless.
        if self.rng.random_bool(0.01) { self.step(Event::Timer) } else { Ok(()) }
    }

    /// The node's timer.
    pub(super) fn wake(&mut self, life: Life, at: u64) -> Result<(), Violation> {
        let current = self.process.as_ref().is_some_and(|process| process.wake_at == Some(at));
        if self.model.life != life || !current {
            return Ok(());
        }
        self.step(Event::Timer)
    }

    /// With no disk at work, nothing may wait but long polls, and not too many of them.
    fn look_at_rest(&self) -> Result<(), Violation> {
        let Some(process) = &self.process else { return Ok(()) };
        let at_rest = process.completions == 0
            && !process.gathering
            && self.disks.iter().all(|disk| disk.outstanding() == 0);
        if !at_rest || process.stopped || !process.ready {
            return Ok(());
        }
        let stuck = self.waiting.values().find(|call| {
            let call = &self.calls[**call];
            !call.may_wait(self.now)
                || call.could_be_answered(&self.model, self.now)
                || call.outlives_its_member(&self.model)
        });
        let stuck = stuck.copied().or_else(|| self.stuck_stream());
        inv_05::all_answered(stuck.map(|call| &self.calls[call]))?;
        ensure(self.logins.are_answered(), "INV-5", || "a login is not answered".to_owned())?;
        let streams = self.model.streams.values().filter(|stream| stream.may_push()).count();
        let parked = self.waiting.len() + streams;
        inv_51::parked(parked, self.config.waiters_max.min(limits::WAITERS_MAX))
    }
}

fn index(volume: Volume) -> usize {
    match volume {
        Volume::Log => 0,
        Volume::Raft => 1,
    }
}
