//! Each range by itself: read through cursors made up for it, so that it is known which record lies where.
//!
//! Clients cannot ask for a range, but they can stand anywhere in a topic they may read. A made-up cursor stands
//! at the beginning of one range, and at the end of everything else.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::cursor::{Cursor, Tile};
use types::{KeySpan, Offset, RangeSeq};
use wire::{Payload, Request, Response};

use super::super::model::{Span, State, Which};
use super::super::workload::{Op, TOPICS, describe, produce};
use super::super::world::World;
use crate::invariants::{Violation, ensure, inv_03, inv_07, inv_10, inv_18};

impl World {
    /// Reads every range of a topic and judges what lies where.
    pub(super) fn check_ranges(&mut self, client: usize, name: usize) -> Result<(), Violation> {
        let ends = self.range_ends(client, name)?;
        let mut logs = Vec::with_capacity(ends.len());
        for range in 0..ends.len() as u64 {
            logs.push(self.read_range(client, name, range, &ends)?);
        }
        self.judge_ranges(name, &logs)
    }

    /// How many records each range has.
    fn range_ends(&mut self, client: usize, name: usize) -> Result<Vec<u64>, Violation> {
        let mut ends = Vec::new();
        loop {
            let conn = self.connected(client)?;
            let call = describe::send_of(self, client, conn, Some(name), ends.len() as u64, 100);
            match self.outcome(conn, call)? {
                Response::Ok(Payload::Topic(topic)) => {
                    ends.extend(topic.ranges.iter().map(|range| range.records));
                    if !topic.more {
                        return Ok(ends);
                    }
                }
                other => return Err(Violation::new("LIVENESS", format!("a description is {other:?}"))),
            }
        }
    }

    /// A cursor at the beginning of one range, and at the end of everything that is not its.
    fn made_up(&self, name: usize, range: u64, ends: &[u64]) -> Option<Bytes> {
        let topic = self.model.current(name)?;
        let span = topic.ranges.get(range)?.span;
        let mut tiles = vec![tile(range, span, 0)?];
        for (number, leaf) in topic.ranges.iter().filter(|(_, range)| range.state != State::Replaced) {
            let end = *ends.get(usize::try_from(number).ok()?)?;
            let mut outside = Vec::new();
            without(leaf.span, span, &mut outside);
            for span in outside {
                tiles.push(tile(number, span, end)?);
            }
        }
        tiles.sort_unstable_by_key(|tile| tile.span.start());
        Some(Cursor { topic: topic.id, member: None, tiles }.encode())
    }

    fn read_range(
        &mut self,
        client: usize,
        name: usize,
        range: u64,
        ends: &[u64],
    ) -> Result<Vec<Which>, Violation> {
        let end = usize::try_from(ends[range as usize]).unwrap_or(usize::MAX);
        let mut records = Vec::new();
        let mut cursor = self.made_up(name, range, ends);
        while records.len() < end {
            let before = records.len();
            let conn = self.connected(client)?;
            let max = self.some_max();
            let topic = Some(Bytes::from_static(TOPICS[name].as_bytes()));
            let fetch = wire::request::Fetch { topic, cursor, max, ..Default::default() };
            let call = self.send(client, conn, Some(name), Request::Fetch(fetch), Op::Raw);
            match self.outcome(conn, call)? {
                Response::Ok(Payload::Page(page)) => {
                    page.records.iter().for_each(|records_of| produce::split_to(records_of, &mut records));
                    cursor = Some(page.next_cursor);
                }
                other => return Err(Violation::new("LIVENESS", format!("a range is read as {other:?}"))),
            }
            if records.len() == before {
                let which = format!("range {range} of {}", TOPICS[name]);
                inv_07::no_hole(which, before as u64, end as u64)?;
            }
        }
        // What lies in the ranges that took its place comes next.
        records.truncate(end);
        let topic = self.model.current(name);
        let found = records.iter().map(|record| topic.and_then(|topic| topic.log.find(record)));
        found.collect::<Option<Vec<_>>>().ok_or_else(|| {
            Violation::new(
                "INV-3",
                format!("range {range} of {}: a record nobody produced there", TOPICS[name]),
            )
        })
    }

    fn judge_ranges(&mut self, name: usize, logs: &[Vec<Which>]) -> Result<(), Violation> {
        let Some(topic) = self.model.current(name) else { return Ok(()) };
        let log = &topic.log;
        let mut times: BTreeMap<Which, usize> = BTreeMap::new();
        let mut next: BTreeMap<usize, usize> = BTreeMap::new();
        // Numbers grow from parents to children, so every key's history comes in order.
        for (number, range) in topic.ranges.iter() {
            let id = topic.range_id(number);
            let records = &logs[number as usize];
            for which in records {
                *times.entry(*which).or_default() += 1;
                let label = log.label(*which);
                let home = log.position_of(*which).is_none_or(|at| range.span.0 <= at && at < range.span.1);
                inv_03::at_home(label, home)?;
                if let Which::Keyed { key, at } = which {
                    let next = next.entry(*key).or_default();
                    inv_10::in_order(label, *at < *next)?;
                    *next = at + 1;
                }
            }
            // Records of one request with keys of one range are one part, unless two ranges became one.
            if topic.ranges.is_of_splits(number) {
                for (segment, end) in self.model.segments.seals(id) {
                    let end_at = usize::try_from(end.0).unwrap_or(usize::MAX);
                    let batch = |at: Option<usize>| {
                        let which = records.get(at?).filter(|which| log.position_of(**which).is_some());
                        which.map(|which| log.entry(*which).batch)
                    };
                    let (before, after) = (batch(end_at.checked_sub(1)), batch(Some(end_at)));
                    let fits = end_at <= records.len() && (before.is_none() || before != after);
                    inv_18::at_a_boundary(segment, end, fits)?;
                }
            }
        }
        for which in log.all().filter(|which| log.entry(*which).outcome.is_due()) {
            inv_03::once(log.label(which), times.get(&which).copied().unwrap_or(0))?;
        }
        let extra = times.keys().find(|which| !log.entry(**which).outcome.is_due());
        ensure(extra.is_none(), "INV-41", || {
            format!(
                "{:?} lies in a range, and nobody was given it",
                extra.map(|which| log.label(*which).to_string())
            )
        })
    }
}

fn tile(range: u64, (start, end): Span, next: u64) -> Option<Tile> {
    Some(Tile { range: RangeSeq(range), span: KeySpan::new(start, end)?, next: Offset(next) })
}

/// The aligned blocks of `span` that `hole` leaves.
fn without(span: Span, hole: Span, out: &mut Vec<Span>) {
    let apart = span.1 <= hole.0 || hole.1 <= span.0;
    if apart {
        out.push(span);
    } else if !(hole.0 <= span.0 && span.1 <= hole.1) {
        let middle = span.0 + (span.1 - span.0) / 2;
        without((span.0, middle), hole, out);
        without((middle, span.1), hole, out);
    }
}
