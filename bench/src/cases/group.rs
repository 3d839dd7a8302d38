//! One appender against many that wait together on one segment.
//!
//! The raw side of many appenders is their frames in one write and one sync: no scheme that syncs before it
//! acknowledges does better.

use storage::store::Config;

use super::{Case, Context, Outcome, rate, timed};
use crate::check;
use crate::copy::Written;
use crate::engine::Engine;
use crate::raw::RawFile;
use crate::report::{Goal, Row};

/// Payload bytes of one record.
pub(super) const PAYLOAD_BYTES: usize = 100;
/// Appenders that wait together.
const APPENDERS: u64 = 64;

/// One number of appenders.
#[derive(Debug)]
struct Side {
    appenders: u64,
    raw: Vec<f64>,
    ours: Vec<f64>,
    syncs: u64,
}

impl Side {
    fn new(appenders: u64) -> Self {
        Self { appenders, raw: Vec::new(), ours: Vec::new(), syncs: 0 }
    }

    fn row(&self, acks: u64) -> Row {
        let plural = if self.appenders == 1 { "appender" } else { "appenders" };
        let row = Row::new(Case::Group, format!("{} {plural}", self.appenders), "acks/s", &self.ours);
        row.against(&self.ours, &self.raw).syncs(self.syncs, acks)
    }
}

pub(super) fn run(context: &Context<'_>) -> anyhow::Result<Outcome> {
    let turns = context.amount(60, 3);
    let dir = context.dir.join("store");
    let mut engine = Engine::open(&dir, Config::default())?;
    let mut copy = Written::new(0, PAYLOAD_BYTES);
    copy.create(&mut engine, false)?;
    let frame = copy.frame(context.payloads, 0);
    let raw_bytes = turns * APPENDERS * copy.frame_bytes() as u64;
    let mut raw_file = RawFile::new(&context.dir.join("raw"), raw_bytes)?;
    let mut sides = [Side::new(1), Side::new(APPENDERS)];
    for _ in 0..context.rounds {
        for side in &mut sides {
            let frames: Vec<_> = (0..side.appenders).flat_map(|_| frame.clone()).collect();
            let (took, ()) = timed(|| {
                for _ in 0..turns {
                    raw_file.write(&frames)?;
                    raw_file.sync()?;
                }
                Ok(())
            })?;
            let acks = turns * side.appenders;
            side.raw.push(rate(acks, took));
            let before = engine.counters().syncs;
            let end = copy.acknowledged + acks;
            let (took, ()) = timed(|| copy.fill_with(&mut engine, context.payloads, end, side.appenders))?;
            side.ours.push(rate(acks, took));
            side.syncs += engine.counters().syncs - before;
        }
    }
    raw_file.remove()?;
    drop(engine);
    let checked = vec![check::read_back(&dir, context.payloads, &[copy])?];
    let rounds = context.rounds as u64;
    let mut rows: Vec<_> = sides.iter().map(|side| side.row(rounds * turns * side.appenders)).collect();
    let [one, many] = &sides;
    let gain =
        |many: &[f64], one: &[f64]| many.iter().zip(one).map(|(many, one)| many / one).collect::<Vec<_>>();
    let (ours, raw) = (gain(&many.ours, &one.ours), gain(&many.raw, &one.raw));
    let row = Row::new(Case::Group, format!("{APPENDERS} appenders against 1"), "times", &ours);
    rows.push(row.against(&ours, &raw).goal(Goal::AtLeast(20.0)));
    Ok(Outcome { rows, checked })
}
