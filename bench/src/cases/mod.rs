//! What is measured, and how much of it.

mod active;
mod append;
mod group;
mod many;
mod scan;
mod sealed;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;

use crate::check::Checked;
use crate::machine::Machine;
use crate::payload::Payloads;
use crate::report::{Report, Row};

/// A part of the run that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// What copies cost that nobody uses, sealed or not. First, because freed memory of the others would hide it.
    Idle,
    /// One durable append at a time.
    Append,
    /// One appender against many that wait together.
    Group,
    /// Many segments against one.
    Many,
    /// Recovery, verification and reading of cached data.
    Scan,
}

impl Case {
    /// Every case, in the order they run.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Append, Self::Group, Self::Many, Self::Scan];

    /// What a person calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Append => "append",
            Self::Group => "group",
            Self::Many => "many",
            Self::Scan => "scan",
        }
    }
}

/// How much of everything.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to measure; made if missing. What is left there by an earlier run is not touched.
    pub dir: PathBuf,
    /// A tiny run, whose numbers mean nothing.
    pub quick: bool,
    /// Rounds of each measurement.
    pub rounds: usize,
    /// Which cases.
    pub cases: Vec<Case>,
}

/// What a case needs.
#[derive(Debug)]
struct Context<'a> {
    dir: PathBuf,
    payloads: &'a Payloads,
    rounds: usize,
    quick: bool,
}

impl Context<'_> {
    /// `full`, or `quick` in a tiny run.
    fn amount(&self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }
}

/// What a case gives.
#[derive(Debug, Default)]
struct Outcome {
    rows: Vec<Row>,
    checked: Vec<Checked>,
}

/// Runs the plan. `said` is told what is being done.
///
/// # Errors
/// When the machine fails, and when anything that was acknowledged is not read back as it was written.
pub fn run(plan: &Plan, said: &mut dyn FnMut(&str)) -> anyhow::Result<Report> {
    std::fs::create_dir_all(&plan.dir).with_context(|| format!("making {}", plan.dir.display()))?;
    let machine = Machine::look(&plan.dir);
    let mut lengths = vec![group::PAYLOAD_BYTES, many::PAYLOAD_BYTES, sealed::PAYLOAD_BYTES];
    lengths.extend(append::PAYLOADS);
    lengths.extend(scan::PAYLOADS);
    let payloads = Payloads::new(&lengths);
    let mut report = Report {
        machine,
        quick: plan.quick,
        rounds: plan.rounds,
        rows: Vec::new(),
        verified_batches: 0,
        verified_bytes: 0,
    };
    for case in Case::ALL.into_iter().filter(|case| plan.cases.contains(case)) {
        said(case.name());
        let scratch = Scratch::new(&plan.dir, case)?;
        let context = Context {
            dir: scratch.dir.clone(),
            payloads: &payloads,
            rounds: plan.rounds.max(1),
            quick: plan.quick,
        };
        let outcome = match case {
            Case::Idle => sealed::run(&context),
            Case::Append => append::run(&context),
            Case::Group => group::run(&context),
            Case::Many => many::run(&context),
            Case::Scan => scan::run(&context),
        };
        let outcome = outcome.with_context(|| format!("case {}", case.name()))?;
        report.rows.extend(outcome.rows);
        report.verified_batches += outcome.checked.iter().map(|checked| checked.batches).sum::<u64>();
        report.verified_bytes += outcome.checked.iter().map(|checked| checked.bytes).sum::<u64>();
    }
    Ok(report)
}

/// A directory of one case; removed when the case ends, however it ends.
#[derive(Debug)]
struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    fn new(parent: &Path, case: Case) -> anyhow::Result<Self> {
        let dir = parent.join(format!("malachi-bench-{}-{}", case.name(), std::process::id()));
        // Fails when it exists: nothing of somebody else's is measured, or removed at the end.
        std::fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        Ok(Self { dir })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What could not be removed is left for a person; the numbers stand.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// How long something took, and what it gave.
fn timed<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(Duration, T)> {
    let started = Instant::now();
    let given = work()?;
    Ok((started.elapsed(), given))
}

/// Operations in a second.
fn rate(operations: u64, took: Duration) -> f64 {
    // Far below what an f64 holds exactly.
    #[allow(clippy::cast_precision_loss)]
    let operations = operations as f64;
    operations / took.as_secs_f64()
}
