//! One volume, one process at a time, and the requests under way.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::SmallRng;
use storage::disk::Disk;
use storage::store::{Action, Config, Notice, Reply, Request, RequestId, Store};
use types::{Instant, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId};

use super::model::{Copy, Exists, Model};
use super::trace::Failure;
use super::{Options, Summary};
use crate::disk::{Faults, SimDisk};
use crate::invariants::{Violation, ensure};

/// Steps of the disk in one run: hundreds of times what any needs that makes progress.
const STEPS_MAX: u64 = 1_000_000;

/// A request under way.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) segment: SegmentId,
    pub(super) request: Request,
    /// What had been acknowledged when it was made.
    pub(super) acked_end: Offset,
}

/// Why a life went no further.
#[derive(Debug)]
pub(super) enum Stop {
    /// The crash that was planned came.
    Crash,
    /// A promise was broken.
    Broken(Violation),
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Self {
        Self::Broken(violation)
    }
}

/// The simulated world.
pub(super) struct World {
    pub(super) options: Options,
    pub(super) disk: SimDisk,
    pub(super) store: Store,
    pub(super) model: Model,
    pub(super) now: Instant,
    pub(super) asked: BTreeMap<RequestId, Asked>,
    answered: BTreeMap<RequestId, Reply>,
    next_request: u64,
    started: bool,
    pub(super) foreign_seen: Vec<String>,
    /// Which journal files ever lost a bit of one of their two headers. When both did, nothing may be left that
    /// says which uses of the journal are concerned.
    pub(super) journal_headers_flipped: [bool; 2],
    /// Payload bytes of every batch, when all are alike.
    pub(super) uniform: Option<usize>,
    /// Disk steps until the crash; `None` is never.
    pub(super) crash_in: Option<u32>,
    steps: u64,
    pub(super) summary: Summary,
    pub(super) config: Config,
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let mut rng: SmallRng = rand::SeedableRng::seed_from_u64(seed ^ 0x0c0f_fee0);
        let range = RangeId {
            topic: TopicId(0xabc0_0000_0000_0000_0000_0000_0000_0000 + u128::from(seed)),
            seq: RangeSeq(1),
        };
        let copies = rng.random_range(1..5);
        let mut config = Config {
            seed,
            open_copies_max: rng.random_range(1..4),
            tail_cache_bytes: [0, 300, 1 << 20][rng.random_range(0..3)],
            preallocate_bytes: [(0, 0), (64, 512), (600, 3000)][rng.random_range(0..3)],
            preallocate_below_bytes: 2000,
            recycled_files_max: rng.random_range(0..3),
            recycled_bytes_min: 100,
            // None, one in which a file takes a few records, one that lasts for a while.
            journal_bytes: match rng.random_range(0..10) {
                0..=3 => 0,
                4..=6 => rng.random_range(1400..3000),
                _ => rng.random_range(3000..20_000),
            },
            journal_copies_min: rng.random_range(1..4),
            journal_part_bytes_max: rng.random_range(200..6000),
            bug: options.bug,
            ..Config::default()
        };
        let fresh = Copy { journaled: config.journal_bytes > 0, ..Copy::new() };
        let model =
            (0..copies).map(|seq| (SegmentId { range, seq: SegmentSeq(seq) }, fresh.clone())).collect();
        let mut faults = Faults::none();
        if rng.random_bool(0.3) {
            faults.names = crate::disk::NameLoss::Prefix;
        }
        config.spare_files_max = rng.random_range(0..3);
        config.spare_bytes = [600, 3000][rng.random_range(0..2)];
        config.spare_piece_bytes = 1000;
        let mut disk = SimDisk::new(seed, faults);
        if options.verbose {
            disk.record_trace();
        }
        Self {
            options,
            disk,
            store: Store::new(config.clone()),
            model,
            now: Instant(1),
            asked: BTreeMap::new(),
            answered: BTreeMap::new(),
            next_request: 0,
            started: false,
            foreign_seen: Vec::new(),
            journal_headers_flipped: [false; 2],
            uniform: rng.random_bool(0.3).then(|| [40, 441][rng.random_range(0..2)]),
            crash_in: None,
            steps: 0,
            summary: Summary::default(),
            config,
        }
    }

    pub(super) fn summary(&self) -> Summary {
        Summary { trace: self.summary.trace ^ self.disk.trace_hash().rotate_left(1), ..self.summary }
    }

    pub(super) fn failure(&self, seed: u64, violation: Violation) -> Failure {
        Failure { seed, cycles: self.summary.cycles, violation }
    }

    pub(super) fn say(&self, line: impl FnOnce() -> String) {
        if self.options.verbose {
            #[expect(clippy::print_stderr, reason = "asked for by the person who replays a seed")]
            {
                eprintln!("{}", line());
            }
        }
    }

    /// A new process looks at the directory.
    pub(super) fn start(&mut self) -> Result<(), Stop> {
        self.config.seed = self.config.seed.wrapping_add(0x1234_5678_9abc_def1);
        self.store = Store::new(self.config.clone());
        self.started = false;
        let mut out = Vec::new();
        self.store.start(&mut out);
        self.act(out)?;
        while !self.started {
            if !self.step()? {
                return Err(Violation::new("START", "the store neither started nor failed to").into());
            }
        }
        Ok(())
    }

    /// The process ends, by power loss or by itself.
    pub(super) fn end(&mut self, power: bool) {
        self.say(|| format!("== {}", if power { "POWER LOSS" } else { "KILL" }));
        if power {
            self.disk.crash();
        } else {
            self.disk.kill();
        }
        let left = std::mem::take(&mut self.asked);
        for asked in left.into_values() {
            self.unanswered(&asked);
        }
        self.answered.clear();
        for copy in self.model.values_mut() {
            copy.known = copy.exists == Exists::No && !copy.delete_pending;
            // A fault may have struck a write nobody lived to hear of.
            copy.poisoned |= copy.stopped || copy.may_fail;
            copy.stopped = false;
        }
        self.summary.cycles += 1;
    }

    /// What a request may have done that was never answered.
    fn unanswered(&mut self, asked: &Asked) {
        let Some(copy) = self.model.get_mut(&asked.segment) else { return };
        match &asked.request {
            Request::Create { .. } => {
                copy.exists = if copy.exists == Exists::Yes { Exists::Yes } else { Exists::Maybe }
            }
            Request::Seal { end, .. } => {
                copy.seals_pending.push(*end);
                copy.doubt_rebuilding();
            }
            Request::Rebuilt { .. } => copy.doubt_rebuilding(),
            Request::Latch { .. } => copy.latch_pending = true,
            Request::Delete { .. } => copy.delete_pending = true,
            Request::Append { .. }
            | Request::Fence { .. }
            | Request::Read { .. }
            | Request::SeekTime { .. }
            | Request::Verify { .. }
            | Request::Inspect { .. } => {}
        }
    }

    /// Makes a request and goes on.
    pub(super) fn send(&mut self, request: Request) -> Result<RequestId, Stop> {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let segment = request.segment();
        let acked_end = self.model.get(&segment).map_or(Offset::ZERO, Copy::acked_end);
        self.say(|| format!("{id:?} {}", brief(&request)));
        self.asked.insert(id, Asked { segment, request: request.clone(), acked_end });
        let mut out = Vec::new();
        self.store.request(self.now, id, request, &mut out);
        // A burst is some requests; what it gathered flies with the next step of the disk at the latest.
        if !id.0.is_multiple_of(3) {
            self.store.flush(&mut out);
        }
        self.act(out)?;
        Ok(id)
    }

    /// Makes a request and runs the disk until it is answered.
    pub(super) fn call(&mut self, request: Request) -> Result<Reply, Stop> {
        let id = self.send(request)?;
        loop {
            if let Some(reply) = self.answered.remove(&id) {
                return Ok(reply);
            }
            if !self.step()? {
                return Err(Violation::new("INV-5", format!("{id:?} was never answered")).into());
            }
        }
    }

    /// Runs one step of the disk; false when it has nothing to do.
    pub(super) fn step(&mut self) -> Result<bool, Stop> {
        self.steps += 1;
        ensure(self.steps < STEPS_MAX, "LIVENESS", || "the store never comes to rest".to_owned())?;
        if let Some(left) = &mut self.crash_in {
            if *left == 0 {
                return Err(Stop::Crash);
            }
            *left -= 1;
        }
        let mut out = Vec::new();
        self.store.flush(&mut out);
        self.act(out)?;
        let took = self.disk.step();
        if let Some(took) = took {
            self.now = self.now.plus(took);
        }
        let mut any = took.is_some();
        for line in self.disk.take_trace() {
            self.say(|| format!("      {line}"));
        }
        while let Some(completion) = self.disk.ready() {
            any = true;
            let mut out = Vec::new();
            self.store.complete(self.now, completion, &mut out);
            self.act(out)?;
        }
        Ok(any)
    }

    /// Lets time pass without an append.
    pub(super) fn tick(&mut self) -> Result<(), Stop> {
        self.now = self.now.plus(std::time::Duration::from_millis(1100));
        let mut out = Vec::new();
        self.store.tick(self.now, &mut out);
        self.act(out)
    }

    fn act(&mut self, actions: Vec<Action>) -> Result<(), Stop> {
        for action in actions {
            match action {
                Action::Disk(job) => self.disk.submit(job),
                Action::Started { foreign, .. } => {
                    self.started = true;
                    self.foreign_seen = foreign;
                }
                Action::StartFailed(error) => {
                    let excused = self.model.values().any(|copy| copy.may_fail);
                    ensure(excused, "START", || format!("no fault was ordered, and {error}"))?;
                    return Err(Stop::Crash);
                }
                Action::Notice(notice) => self.notice(&notice),
                Action::Reply(id, reply) => self.reply(id, reply)?,
            }
        }
        Ok(())
    }

    fn notice(&mut self, notice: &Notice) {
        self.say(|| format!("   {notice:?}"));
    }

    fn reply(&mut self, id: RequestId, reply: Reply) -> Result<(), Stop> {
        self.say(|| format!("   {id:?} -> {}", brief_reply(&reply)));
        self.summary.replies += 1;
        self.summary.trace = self.summary.trace.rotate_left(5) ^ digest(&reply) ^ id.0;
        let asked = self.asked.remove(&id);
        let asked = asked.ok_or_else(|| Violation::new("INV-5", format!("a second answer to {id:?}")))?;
        self.judge(&asked, &reply)?;
        self.answered.insert(id, reply);
        Ok(())
    }
}

fn digest(reply: &Reply) -> u64 {
    u64::from(crc(format!("{reply:?}").as_bytes()))
}

fn crc(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn brief(request: &Request) -> String {
    let segment = request.segment().seq.0;
    match request {
        Request::Append { epoch, batches, .. } => {
            let at = batches.first().map_or(0, |batch| batch.header.base_offset.0);
            let records: u32 = batches.iter().map(|batch| batch.header.record_count).sum();
            let bytes: u64 = batches.iter().map(|batch| batch.header.frame_len()).sum();
            format!("s{segment} Append at {at} x{records} in {}, {bytes} bytes, epoch {epoch}", batches.len())
        }
        Request::Create { base, epoch, expect_full, rebuilding, .. } => {
            format!("s{segment} Create at {base}, epoch {epoch}, full {expect_full}, rebuilding {rebuilding}")
        }
        Request::Read { from, bytes_max, .. } => format!("s{segment} Read from {from}, {bytes_max} bytes"),
        Request::SeekTime { at, .. } => format!("s{segment} SeekTime {at}"),
        Request::Fence { epoch, .. } => format!("s{segment} Fence epoch {epoch}"),
        Request::Seal { end, .. } => format!("s{segment} Seal at {end}"),
        Request::Rebuilt { .. } => format!("s{segment} Rebuilt"),
        Request::Latch { .. } => format!("s{segment} Latch"),
        Request::Verify { .. } => format!("s{segment} Verify"),
        Request::Delete { .. } => format!("s{segment} Delete"),
        Request::Inspect { .. } => format!("s{segment} Inspect"),
    }
}

fn brief_reply(reply: &Reply) -> String {
    match reply {
        Reply::Read(batches) => {
            format!("Read({} batches from {})", batches.len(), batches[0].header.base_offset)
        }
        Reply::Created
        | Reply::Appended { .. }
        | Reply::Sought(_)
        | Reply::Fenced(_)
        | Reply::Rebuilt(_)
        | Reply::Sealed(_)
        | Reply::Latched
        | Reply::Verified(_)
        | Reply::Deleted
        | Reply::Inspected(_)
        | Reply::Failed(_) => format!("{reply:?}"),
    }
}
