//! Recovery, verification and sequential reading of data the page cache holds.
//!
//! The raw side reads the same file through one buffer, and sums it up where ours does. Rates per core count
//! the processor time of all threads; the others count time on the wall.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{bail, ensure};
use storage::segment::layout;
use storage::store::{Config, Reply, Report, Request};
use types::Offset;

use super::{Case, Context, Outcome, timed};
use crate::check;
use crate::copy::Written;
use crate::engine::Engine;
use crate::measure::cpu_seconds;
use crate::report::{Goal, Row};

/// Payload bytes of one batch: a single record of 1 KiB, and a batch of them.
pub(super) const PAYLOADS: [usize; 2] = [1024, 64 * 1024];
/// Bytes read by one call or request.
const READ_BYTES: usize = 1024 * 1024;

pub(super) fn run(context: &Context<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    for payload_bytes in PAYLOADS {
        size(context, payload_bytes, &mut outcome)?;
    }
    Ok(outcome)
}

/// GB/s of several rounds.
#[derive(Debug, Default)]
struct Speed {
    wall: Vec<f64>,
    core: Vec<f64>,
}

impl Speed {
    fn add(&mut self, bytes: u64, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let used = cpu_seconds();
        let (took, ()) = timed(work)?;
        // Far below what an f64 holds exactly.
        #[allow(clippy::cast_precision_loss)]
        let gigabytes = bytes as f64 / 1e9;
        self.wall.push(gigabytes / took.as_secs_f64());
        self.core.push(gigabytes / (cpu_seconds() - used));
        Ok(())
    }
}

fn size(context: &Context<'_>, payload_bytes: usize, outcome: &mut Outcome) -> anyhow::Result<()> {
    let dir = context.dir.join(format!("store-{payload_bytes}"));
    let mut copies = [Written::new(0, payload_bytes), Written::new(1, payload_bytes)];
    let frame_bytes = copies[0].frame_bytes() as u64;
    let count = context.amount(128 * 1024 * 1024, 256 * 1024) / frame_bytes;
    let bytes = count * frame_bytes;
    let mut engine = Engine::open(&dir, Config::default())?;
    for copy in &mut copies {
        copy.create(&mut engine, false)?;
        copy.fill_with(&mut engine, context.payloads, count, 1024)?;
    }
    let [active, sealed] = &copies;
    sealed.seal(&mut engine)?;
    // Otherwise each recovery would end with writing the last flush again and a sync of it.
    engine.settle()?;
    engine.tick_idle()?;
    engine.settle()?;
    drop(engine);

    let file = File::open(dir.join(layout::log(sealed.segment, Offset::ZERO).to_string()))?;
    let (mut raw_sum, mut raw_read) = (Speed::default(), Speed::default());
    let (mut recover, mut verify, mut read) = (Speed::default(), Speed::default(), Speed::default());
    for _ in 0..context.rounds {
        raw_sum.add(bytes, || read_raw(&file, bytes, true))?;
        let mut engine = Engine::open(&dir, Config::default())?;
        recover.add(bytes, || recovered(&mut engine, active))?;
        verify.add(bytes, || verified(&mut engine, sealed, bytes))?;
        raw_read.add(bytes, || read_raw(&file, bytes, false))?;
        read.add(bytes, || read_all(&mut engine, sealed))?;
    }
    outcome.checked.push(check::read_back(&dir, context.payloads, &copies)?);
    std::fs::remove_dir_all(&dir)?;
    let kib = payload_bytes / 1024;
    let mut row = |what: &str, ours: &[f64], raw: &[f64], goal: Option<Goal>| {
        let row =
            Row::new(Case::Scan, format!("{what}, batches of {kib} KiB"), "GB/s", ours).against(ours, raw);
        outcome.rows.push(goal.map_or(row.clone(), |goal| row.goal(goal)));
    };
    row("recovery, per core", &recover.core, &raw_sum.core, Some(Goal::AtLeast(2.0)));
    row("recovery, wall", &recover.wall, &raw_sum.wall, None);
    row("verify, per core", &verify.core, &raw_sum.core, Some(Goal::AtLeast(2.0)));
    row("verify, wall", &verify.wall, &raw_sum.wall, None);
    row("read by 1 MiB, per core", &read.core, &raw_read.core, None);
    row("read by 1 MiB, wall", &read.wall, &raw_read.wall, Some(Goal::AtLeast(3.0)));
    Ok(())
}

fn read_raw(file: &File, bytes: u64, sum: bool) -> anyhow::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let (mut at, mut crc) = (0, 0);
    while at < bytes {
        let read = file.read_at(&mut buffer, at)?;
        ensure!(read > 0, "the log ends at {at}");
        if sum {
            crc ^= crc32fast::hash(&buffer[..read]);
        }
        at += read as u64;
    }
    std::hint::black_box(crc);
    Ok(())
}

fn recovered(engine: &mut Engine, copy: &Written) -> anyhow::Result<()> {
    let end = Offset(copy.acknowledged);
    let reply = engine.call(Request::Inspect { segment: copy.segment })?;
    ensure!(matches!(&reply, Reply::Inspected(extent) if extent.end == end), "recovery: {reply:?}");
    Ok(())
}

fn verified(engine: &mut Engine, copy: &Written, bytes: u64) -> anyhow::Result<()> {
    let due = Report { records: copy.acknowledged, bytes, damage: None };
    let reply = engine.call(Request::Verify { segment: copy.segment })?;
    ensure!(matches!(&reply, Reply::Verified(report) if *report == due), "verification: {reply:?}");
    Ok(())
}

fn read_all(engine: &mut Engine, copy: &Written) -> anyhow::Result<()> {
    let mut from = Offset::ZERO;
    while from < Offset(copy.acknowledged) {
        let request = Request::Read { segment: copy.segment, from, bytes_max: READ_BYTES };
        let reply = engine.call(request)?;
        let Reply::Read(batches) = reply else { bail!("read from {from}: {reply:?}") };
        from = batches.last().map_or(from, |batch| batch.header.end_offset());
    }
    Ok(())
}
