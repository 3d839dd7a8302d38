//! What active copies cost that nobody uses any more: memory and descriptors after one small append to each.
//!
//! Their first frame is written by the formats' own encoders and synced all at once; through the store each
//! creation would take several syncs. Runs while the sealed copies are there, so that no freed memory of theirs hides
//! anything.

use std::fs;

use anyhow::ensure;
use storage::store::Config;

use super::sealed::{exact, write};
use super::{Case, Context, Outcome, many};
use crate::check;
use crate::copy::Written;
use crate::engine::Engine;
use crate::measure::{descriptors, resident_bytes};
use crate::raw::sync_all_of;
use crate::report::{Goal, Row};

/// Payload bytes of each batch.
pub(super) const PAYLOAD_BYTES: usize = 200;
/// A copy that was used, with the batch that is still in the tail cache.
const BYTES_MOST: f64 = 4096.0;

pub(super) fn run(context: &Context<'_>) -> anyhow::Result<Outcome> {
    let count = context.amount(2_000, 20);
    let dir = context.dir.join("active");
    fs::create_dir(&dir)?;
    let mut copies: Vec<_> = (0..count).map(|number| Written::new(number, PAYLOAD_BYTES)).collect();
    for copy in &mut copies {
        write(&dir, copy, context.payloads, None)?;
    }
    sync_all_of(&dir)?;
    let start = (resident_bytes(), descriptors());
    let mut engine = Engine::open(&dir, Config::default())?;
    engine.settle()?;
    let found = resident_bytes();
    many::appended(context, &mut engine, &mut copies, 64)?;
    engine.settle()?;
    let used = resident_bytes();
    // Until each has recorded its end, and given back what only an append needs.
    for _ in 0..count {
        engine.tick_idle()?;
        engine.settle()?;
    }
    let rested = resident_bytes();
    let gauges = engine.gauges();
    ensure!(gauges.active == copies.len(), "{gauges:?}");
    let open = exact(descriptors().saturating_sub(start.1));
    let bytes = |until: f64| [(until - start.0).max(0.0) / exact(copies.len())];
    let row =
        |what: &str, unit, value: &[f64]| Row::new(Case::Idle, format!("{what} {count} active"), unit, value);
    let rows = vec![
        row("memory of each of", "bytes", &bytes(found)),
        row("memory after an append to each of", "bytes", &bytes(used)),
        row("memory once idle of each of", "bytes", &bytes(rested)).goal(Goal::AtMost(BYTES_MOST)),
        row("log files open for", "open", &[exact(gauges.open_files)])
            .goal(Goal::AtMost(exact(types::limits::OPEN_COPIES_DEFAULT))),
        row("descriptors held for", "open", &[open]),
    ];
    drop(engine);
    let checked = vec![check::read_back(&dir, context.payloads, &copies)?];
    Ok(Outcome { rows, checked })
}
