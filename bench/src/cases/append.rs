//! One durable append at a time to one segment: how much of the raw speed is left.
//!
//! The raw side writes a frame's bytes over a file whose blocks are written already, and syncs. Ours does it on a
//! copy with a new file, which has to grow; on one that got a file of zeros, which the store made while it was idle;
//! and on one that got a recycled file. The last two do not grow.

use std::fs;
use std::path::Path;

use anyhow::ensure;
use storage::segment::layout;
use storage::store::Config;
use types::{Offset, limits};

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

/// What file a copy gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    New,
    Spare,
    Recycled,
}

impl Kind {
    const ALL: [Self; 3] = [Self::New, Self::Spare, Self::Recycled];

    fn name(self) -> &'static str {
        match self {
            Self::New => "new file",
            Self::Spare => "spare file",
            Self::Recycled => "recycled file",
        }
    }
}

/// What one kind of copy did in each round.
#[derive(Debug)]
struct Side {
    kind: Kind,
    rates: Vec<f64>,
    syncs: u64,
    copies: Vec<Written>,
}

fn size(
    context: &Context<'_>,
    payload_bytes: usize,
    flushes: u64,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let rounds = context.rounds as u64;
    let frame_bytes = Written::new(0, payload_bytes).frame_bytes() as u64;
    let dirs = ["made", "recycled"].map(|what| context.dir.join(format!("append-{payload_bytes}-{what}")));
    // Small runs fill small files; every one of them is worth keeping here.
    // They are larger than what is written to them, or the store would write zeros ahead of what may come.
    let made = flushes + 2 * limits::PREALLOCATE_BYTES.1 / frame_bytes + 1;
    let (recycled_bytes_min, spare_bytes) = (1, made * frame_bytes);
    let making = Config { recycled_files_max: 0, spare_files_max: 1, spare_bytes, ..Config::default() };
    let recycling = Config {
        recycled_files_max: context.rounds,
        recycled_bytes_min,
        spare_files_max: 0,
        ..Config::default()
    };
    let mut engines = [Engine::open(&dirs[0], making)?, Engine::open(&dirs[1], recycling)?];
    for number in 0..rounds {
        let mut filled = Written::new(1_000_000 + number, payload_bytes);
        filled.create(&mut engines[1], false)?;
        filled.fill(&mut engines[1], context.payloads, made)?;
        filled.delete(&mut engines[1])?;
    }
    let path = context.dir.join(format!("raw-{payload_bytes}"));
    let mut raw_file = RawFile::new(&path, flushes * frame_bytes)?;
    let mut raw = Vec::new();
    let mut sides = Kind::ALL.map(|kind| Side { kind, rates: Vec::new(), syncs: 0, copies: Vec::new() });
    // The first that is expected to fill shows the store that spare files are wanted.
    Written::new(2_000_000, payload_bytes).create(&mut engines[0], true)?;
    for round in 0..rounds {
        let copy = Written::new(round, payload_bytes);
        let frames: Vec<_> = (0..flushes).map(|index| copy.frame(context.payloads, index)).collect();
        let (took, ()) = timed(|| {
            for frame in &frames {
                raw_file.write(frame)?;
                raw_file.sync()?;
            }
            Ok(())
        })?;
        raw.push(rate(flushes, took));
        for side in &mut sides {
            let which = usize::from(side.kind == Kind::Recycled);
            side.measure(context, &mut engines[which], &dirs[which], round, payload_bytes, flushes)?;
        }
    }
    raw_file.remove()?;
    drop(engines);
    for (which, dir) in dirs.iter().enumerate() {
        let of = |side: &&Side| usize::from(side.kind == Kind::Recycled) == which;
        let mut copies: Vec<_> = sides.iter().filter(of).flat_map(|side| side.copies.clone()).collect();
        if which == 0 {
            copies.push(Written::new(2_000_000, payload_bytes));
        }
        outcome.checked.push(check::read_back(dir, context.payloads, &copies)?);
        fs::remove_dir_all(dir)?;
    }
    let kib = payload_bytes / 1024;
    for side in &sides {
        let row =
            Row::new(Case::Append, format!("{kib} KiB, {}", side.kind.name()), "appends/s", &side.rates);
        let row = row.against(&side.rates, &raw).goal(GOAL).syncs(side.syncs, rounds * flushes);
        outcome.rows.push(row);
    }
    Ok(())
}

impl Side {
    /// Appends to a copy with this kind of file.
    fn measure(
        &mut self,
        context: &Context<'_>,
        engine: &mut Engine,
        dir: &Path,
        round: u64,
        payload_bytes: usize,
        flushes: u64,
    ) -> anyhow::Result<()> {
        let expect_full = self.kind != Kind::New;
        if self.kind == Kind::Spare {
            engine.tick_until(|gauges| gauges.spare_files > 0)?;
        }
        let number = 3 * round + Kind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or(0) as u64;
        let mut copy = Written::new(number, payload_bytes);
        copy.create(engine, expect_full)?;
        engine.settle()?;
        let log = dir.join(layout::log(copy.segment, Offset::ZERO).to_string());
        let (before, len) = (engine.counters().syncs, fs::metadata(&log)?.len());
        let (took, ()) = timed(|| copy.fill_with(engine, context.payloads, flushes, 1))?;
        self.rates.push(rate(flushes, took));
        self.syncs += engine.counters().syncs - before;
        let grown = fs::metadata(&log)?.len() > len;
        ensure!(grown != expect_full, "a file made before has to grow, or a new one has not");
        self.copies.push(copy);
        Ok(())
    }
}
