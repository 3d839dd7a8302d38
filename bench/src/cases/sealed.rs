//! What sealed copies cost that nobody uses: memory, descriptors, and time at the start.
//!
//! Their files are written by the formats' own encoders and synced all at once; through the store each would
//! take several syncs. The raw side of the start opens and reads each `copy.meta`.

use std::fs;
use std::path::Path;

use anyhow::ensure;
use storage::format::batch::Nonce;
use storage::format::index::{self, Entry};
use storage::format::meta::Meta;
use storage::segment::layout;
use storage::store::Config;
use types::{Offset, WallTime};

use super::{Case, Context, Outcome, active, timed};
use crate::check;
use crate::copy::{EPOCH, Written};
use crate::engine::Engine;
use crate::measure::{descriptors, resident_bytes};
use crate::payload::Payloads;
use crate::raw::sync_all_of;
use crate::report::{Goal, Row};

/// Payload bytes of the one batch each copy holds.
pub(super) const PAYLOAD_BYTES: usize = 200;
/// "A few hundred bytes", says the store.
const BYTES_MOST: f64 = 1024.0;
/// Directories the disk keeps open, whatever the number of copies; none is a copy's own.
const OPEN_MOST: f64 = 64.0;

pub(super) fn run(context: &Context<'_>) -> anyhow::Result<Outcome> {
    let count = context.amount(10_000, 20);
    let dir = context.dir.join("store");
    fs::create_dir(&dir)?;
    let mut copies: Vec<_> = (0..count).map(|number| Written::new(number, PAYLOAD_BYTES)).collect();
    for copy in &mut copies {
        write(&dir, copy, context.payloads, Some(WallTime(1)))?;
    }
    sync_all_of(&dir)?;

    // An empty store first, so that what any store costs is not counted as the copies'.
    let before = descriptors();
    let empty = Engine::open(&context.dir.join("empty"), Config::default())?;
    // The directory and its lock.
    let of_disk = descriptors() - before;
    drop(empty);
    let (mut raw, mut ours, mut bytes, mut open, mut syncs) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), 0);
    let mut used = Outcome::default();
    for round in 0..context.rounds.min(3) {
        let (took, ()) = timed(|| copies.iter().try_for_each(|copy| read_meta(&dir, copy)))?;
        raw.push(took.as_secs_f64());
        let (resident, opened) = (resident_bytes(), descriptors());
        let (took, mut engine) = timed(|| Engine::open(&dir, Config::default()))?;
        engine.settle()?;
        ensure!(engine.copies() == copies.len(), "{} copies of {} found", engine.copies(), copies.len());
        ours.push(took.as_secs_f64());
        open.push(exact((descriptors() - opened).saturating_sub(of_disk)));
        // Memory freed by a round is used again by the next, which would then seem to cost nothing.
        if round == 0 {
            bytes.push((resident_bytes() - resident).max(0.0) / exact(copies.len()));
            used = active::run(context)?;
        }
        syncs += engine.counters().syncs;
    }
    let mut checked = vec![check::read_back(&dir, context.payloads, &copies)?];
    checked.extend(used.checked);
    let rounds = ours.len() as u64;
    let mut rows = vec![
        Row::new(Case::Idle, format!("memory of each of {count} sealed"), "bytes", &bytes)
            .goal(Goal::AtMost(BYTES_MOST)),
        Row::new(Case::Idle, format!("descriptors held for {count} sealed"), "open", &open)
            .goal(Goal::AtMost(OPEN_MOST)),
        Row::new(Case::Idle, format!("start with {count} sealed"), "s", &ours)
            .against(&ours, &raw)
            .syncs(syncs, rounds * count),
    ];
    rows.extend(used.rows);
    Ok(Outcome { rows, checked })
}

pub(super) fn exact(count: usize) -> f64 {
    // Far below what an f64 holds exactly.
    #[allow(clippy::cast_precision_loss)]
    let exact = count as f64;
    exact
}

/// Writes the files of a copy with one batch.
pub(super) fn write(
    dir: &Path,
    copy: &mut Written,
    payloads: &Payloads,
    sealed_at: Option<WallTime>,
) -> anyhow::Result<()> {
    let segment = copy.segment;
    let mut meta = Meta::new(segment, Offset::ZERO, Nonce(copy.writer + 1), EPOCH);
    let identity = copy.identity(meta.nonce);
    let batch = copy.batch(payloads, 0);
    let mut log = batch.header.encode(identity, 0).to_vec();
    log.extend_from_slice(&batch.payload);
    let entry = Entry { offset: Offset::ZERO, time: batch.header.append_time, position: 0 };
    meta.durable_position = log.len() as u64;
    meta.durable_end = batch.header.end_offset();
    meta.sealed_at = sealed_at;
    let at = |path: storage::disk::Path| dir.join(path.to_string());
    fs::create_dir(dir.join(layout::dir(segment).as_str()))?;
    fs::write(at(layout::meta(segment)), meta.encode())?;
    fs::write(at(layout::log(segment, Offset::ZERO)), log)?;
    fs::write(at(layout::index(segment, Offset::ZERO)), index::encode(identity.seed, &[entry]))?;
    (copy.asked, copy.acknowledged) = (1, 1);
    Ok(())
}

fn read_meta(dir: &Path, copy: &Written) -> anyhow::Result<()> {
    let path = dir.join(layout::meta(copy.segment).to_string());
    ensure!(!fs::read(path)?.is_empty(), "an empty file");
    Ok(())
}
