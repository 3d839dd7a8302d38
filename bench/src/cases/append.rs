//! One durable append at a time to one segment: how much of the raw speed is left.
//!
//! The raw side writes a frame's bytes over a file whose blocks are written already, and syncs. Ours does it
//! on a copy with a new file, which has to grow, and on one that got a recycled file, which has not.

use std::fs;

use anyhow::ensure;
use storage::segment::layout;
use storage::store::Config;
use types::Offset;

use super::{Case, Context, Outcome, rate, timed};
use crate::check;
use crate::copy::Written;
use crate::engine::Engine;
use crate::raw::RawFile;
use crate::report::{Goal, Row};

/// Payload bytes of one flush.
pub(super) const PAYLOADS: [usize; 3] = [4 * 1024, 64 * 1024, 1024 * 1024];
/// Flushes of one round.
const FLUSHES: [u64; 3] = [200, 100, 30];
/// Share of the raw speed that must be left.
const GOAL: Goal = Goal::RatioAtLeast(0.9);

pub(super) fn run(context: &Context<'_>) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    for (payload_bytes, flushes) in PAYLOADS.into_iter().zip(FLUSHES) {
        size(context, payload_bytes, context.amount(flushes, 3), &mut outcome)?;
    }
    Ok(outcome)
}

/// What one kind of copy did in each round.
#[derive(Debug, Default)]
struct Side {
    rates: Vec<f64>,
    syncs: u64,
}

fn size(
    context: &Context<'_>,
    payload_bytes: usize,
    flushes: u64,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let rounds = context.rounds as u64;
    let dir = context.dir.join(format!("append-{payload_bytes}"));
    // Small runs fill small files; every one of them is worth keeping here.
    let config = Config { recycled_bytes_min: 1, recycled_files_max: context.rounds, ..Config::default() };
    let mut engine = Engine::open(&dir, config)?;
    for number in 0..rounds {
        let mut filled = Written::new(1_000_000 + number, payload_bytes);
        filled.create(&mut engine, false)?;
        filled.fill(&mut engine, context.payloads, flushes)?;
        filled.delete(&mut engine)?;
    }
    let frame_bytes = Written::new(0, payload_bytes).frame_bytes();
    let path = context.dir.join(format!("raw-{payload_bytes}"));
    let mut raw_file = RawFile::new(&path, flushes * frame_bytes as u64)?;
    let (mut raw, mut fresh, mut recycled) = (Vec::new(), Side::default(), Side::default());
    let mut copies = Vec::new();
    for round in 0..rounds {
        let copy = Written::new(2 * round, payload_bytes);
        let frames: Vec<_> = (0..flushes).map(|index| copy.frame(context.payloads, index)).collect();
        let (took, ()) = timed(|| {
            for frame in &frames {
                raw_file.write(frame)?;
                raw_file.sync()?;
            }
            Ok(())
        })?;
        raw.push(rate(flushes, took));
        for (side, expect_full) in [(&mut fresh, false), (&mut recycled, true)] {
            let mut copy = Written::new(2 * round + u64::from(expect_full), payload_bytes);
            copy.create(&mut engine, expect_full)?;
            engine.settle()?;
            let log = dir.join(layout::log(copy.segment, Offset::ZERO).to_string());
            let (before, len) = (engine.counters().syncs, fs::metadata(&log)?.len());
            let (took, ()) = timed(|| copy.fill_with(&mut engine, context.payloads, flushes, 1))?;
            side.rates.push(rate(flushes, took));
            side.syncs += engine.counters().syncs - before;
            let grown = fs::metadata(&log)?.len() > len;
            ensure!(grown != expect_full, "a recycled file has to grow, or a new one has not");
            copies.push(copy);
        }
    }
    raw_file.remove()?;
    drop(engine);
    outcome.checked.push(check::read_back(&dir, context.payloads, &copies)?);
    fs::remove_dir_all(&dir)?;
    let kib = payload_bytes / 1024;
    for (what, side) in [("new file", &fresh), ("recycled file", &recycled)] {
        let row = Row::new(Case::Append, format!("{kib} KiB, {what}"), "appends/s", &side.rates);
        let row = row.against(&side.rates, &raw).goal(GOAL).syncs(side.syncs, rounds * flushes);
        outcome.rows.push(row);
    }
    Ok(())
}
