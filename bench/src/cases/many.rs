//! Many segments, one small append each, against the same load on one segment.
//!
//! The raw side writes and syncs one file after the other; with several appends in flight it writes to as many
//! files and then syncs each of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use storage::store::{Config, RequestId};

use super::{Case, Context, Outcome, rate, timed};
use crate::check;
use crate::copy::Written;
use crate::engine::Engine;
use crate::raw::{RawFile, sync_all_of};
use crate::report::Row;

/// Payload bytes of one append.
pub(super) const PAYLOAD_BYTES: usize = 1000;
/// Appends on their way at one time.
const IN_FLIGHT: [usize; 2] = [1, 64];

/// No further round is begun after this time: syncs may be slow.
const TIME_MOST: Duration = Duration::from_secs(30);

/// One number of appends in flight.
#[derive(Debug, Default)]
struct Side {
    raw: Vec<f64>,
    many: Vec<f64>,
    one: Vec<f64>,
    many_syncs: u64,
    one_syncs: u64,
}

pub(super) fn run(context: &Context<'_>) -> anyhow::Result<Outcome> {
    let count = context.amount(1000, 6);
    let dir = context.dir.join("store");
    let room = usize::try_from(count)? * 2;
    let mut rows = Vec::new();
    let mut engine = Engine::open(&dir, Config { open_copies_max: room, ..Config::default() })?;
    let mut copies: Vec<_> = (0..count).map(|number| Written::new(number, PAYLOAD_BYTES)).collect();
    let mut alone = [Written::new(count, PAYLOAD_BYTES)];
    alone[0].create(&mut engine, false)?;
    let before = engine.counters().syncs;
    let (took, ()) = timed(|| copies.iter().try_for_each(|copy| copy.create(&mut engine, false)))?;
    let syncs = engine.counters().syncs - before;
    let row = Row::new(Case::Many, format!("creating {count}, one by one"), "copies/s", &[rate(count, took)]);
    rows.push(row.syncs(syncs, count));

    let (took, syncs) = appended(context, &mut engine, &mut copies, IN_FLIGHT[1])?;
    let name = format!("first append to each of {count}, {} in flight", IN_FLIGHT[1]);
    rows.push(Row::new(Case::Many, name, "appends/s", &[rate(count, took)]).syncs(syncs, count));

    let mut raw_files = raw_files(context, count)?;
    let mut sides = IN_FLIGHT.map(|_| Side::default());
    let started = Instant::now();
    let mut rounds = 0;
    // A round of single appends to a thousand segments takes as long as a thousand syncs.
    while rounds < context.rounds.min(3) && (rounds == 0 || started.elapsed() < TIME_MOST) {
        rounds += 1;
        for (side, in_flight) in sides.iter_mut().zip(IN_FLIGHT) {
            let (took, ()) = timed(|| write_raw(context, &mut raw_files, in_flight))?;
            side.raw.push(rate(count, took));
            let (took, syncs) = appended(context, &mut engine, &mut copies, in_flight)?;
            side.many.push(rate(count, took));
            side.many_syncs += syncs;
            let before = engine.counters().syncs;
            let (took, ()) = timed(|| {
                let end = alone[0].acknowledged + count;
                alone[0].fill_with(&mut engine, context.payloads, end, in_flight as u64)
            })?;
            side.one.push(rate(count, took));
            side.one_syncs += engine.counters().syncs - before;
        }
    }
    rows.extend(behind_idle(context, &mut engine, &mut copies, &mut raw_files[0])?);
    raw_files.into_iter().try_for_each(RawFile::remove)?;
    drop(engine);
    let operations = count * rounds as u64;
    for (side, in_flight) in sides.iter().zip(IN_FLIGHT) {
        let row = Row::new(Case::Many, format!("1 segment, {in_flight} in flight"), "appends/s", &side.one);
        rows.push(row.syncs(side.one_syncs, operations));
        let row =
            Row::new(Case::Many, format!("{count} segments, {in_flight} in flight"), "appends/s", &side.many);
        rows.push(row.against(&side.many, &side.raw).syncs(side.many_syncs, operations));
        let share: Vec<_> = side.many.iter().zip(&side.one).map(|(many, one)| many / one).collect();
        rows.push(Row::new(
            Case::Many,
            format!("{count} segments against 1, {in_flight} in flight"),
            "times",
            &share,
        ));
    }
    rows.extend(crowded(context, &dir, &mut copies)?);
    let copies: Vec<_> = copies.into_iter().chain(alone).collect();
    let checked = vec![check::read_back(&dir, context.payloads, &copies)?];
    Ok(Outcome { rows, checked })
}

/// One append at the moment in which all other copies, idle at last, record where they end.
fn behind_idle(
    context: &Context<'_>,
    engine: &mut Engine,
    copies: &mut [Written],
    raw_file: &mut RawFile,
) -> anyhow::Result<Vec<Row>> {
    let count = copies.len();
    let frame = copies[0].frame(context.payloads, 0);
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..context.rounds.min(3) {
        let (took, ()) = timed(|| {
            raw_file.write(&frame)?;
            Ok(raw_file.sync()?)
        })?;
        raw.push(took.as_secs_f64() * 1e3);
        appended(context, engine, copies, IN_FLIGHT[1])?;
        engine.settle()?;
        engine.tick_idle()?;
        let (took, reply) = timed(|| engine.call(copies[0].append(context.payloads)))?;
        copies[0].appended(&reply)?;
        engine.settle()?;
        ours.push(took.as_secs_f64() * 1e3);
    }
    let name = format!("one append while {count} idle segments record their ends");
    Ok(vec![Row::new(Case::Many, name, "ms", &ours).against(&ours, &raw)])
}

/// The same load where only half of the log files may be open.
fn crowded(context: &Context<'_>, dir: &std::path::Path, copies: &mut [Written]) -> anyhow::Result<Vec<Row>> {
    let (count, in_flight) = (copies.len() as u64, IN_FLIGHT[1]);
    let config = Config { open_copies_max: copies.len() / 2, ..Config::default() };
    let mut engine = Engine::open(dir, config)?;
    let names = [
        format!("first append to each of {count} after a start, room for half"),
        format!("{count} segments, {in_flight} in flight, room for half"),
    ];
    let mut rows = Vec::new();
    for name in names {
        let (took, syncs) = appended(context, &mut engine, copies, in_flight)?;
        rows.push(Row::new(Case::Many, name, "appends/s", &[rate(count, took)]).syncs(syncs, count));
    }
    Ok(rows)
}

/// Appends once to each copy, round robin; how long it took and how often the disk was synced.
pub(super) fn appended(
    context: &Context<'_>,
    engine: &mut Engine,
    copies: &mut [Written],
    in_flight: usize,
) -> anyhow::Result<(Duration, u64)> {
    let before = engine.counters().syncs;
    let (took, ()) = timed(|| round_robin(context, engine, copies, in_flight))?;
    Ok((took, engine.counters().syncs - before))
}

fn round_robin(
    context: &Context<'_>,
    engine: &mut Engine,
    copies: &mut [Written],
    in_flight: usize,
) -> anyhow::Result<()> {
    let mut waiting: BTreeMap<RequestId, usize> = BTreeMap::new();
    let mut next = 0;
    while next < copies.len() || !waiting.is_empty() {
        while next < copies.len() && waiting.len() < in_flight {
            waiting.insert(engine.request(copies[next].append(context.payloads))?, next);
            next += 1;
        }
        let (id, reply) = engine.reply()?;
        let copy = waiting.remove(&id).context("a reply that nobody waits for")?;
        copies[copy].appended(&reply)?;
    }
    Ok(())
}

fn raw_files(context: &Context<'_>, count: u64) -> anyhow::Result<Vec<RawFile>> {
    let new = |number| RawFile::unsynced(&context.dir.join(format!("raw-{number}")), 64 * 1024);
    let files = (0..count).map(new).collect::<Result<Vec<_>, _>>()?;
    sync_all_of(&context.dir)?;
    Ok(files)
}

fn write_raw(context: &Context<'_>, files: &mut [RawFile], in_flight: usize) -> anyhow::Result<()> {
    let frame = Written::new(0, PAYLOAD_BYTES).frame(context.payloads, 0);
    for group in files.chunks_mut(in_flight) {
        group.iter_mut().try_for_each(|file| file.write(&frame))?;
        group.iter().try_for_each(RawFile::sync)?;
    }
    Ok(())
}
