//! What every reader is given: records, and a cursor that says where it stands then.

use std::fmt::Display;
use std::rc::Rc;

use broker::Fetched;
use bytes::Bytes;
use types::cursor::{Cursor, Tile};

use super::produce;
use crate::broker::model::{Holder, Page, Place, Reader, Seen, Span, Token, keyspace};
use crate::broker::world::World;
use crate::invariants::{Violation, ensure, inv_07};

/// Bytes of an answer that are neither records nor the cursor's own: envelope, count, the cursor's length.
const RESPONSE_BYTES: usize = 6 + 4 + 5;

/// A page, and whose it is.
pub(in super::super) struct Given<'a> {
    pub(in super::super) who: &'a dyn Display,
    /// Index of the topic's life.
    pub(in super::super) topic: usize,
    pub(in super::super) reader: Reader,
    pub(in super::super) start: &'a Place,
    /// Whose share it is, under which assignment.
    pub(in super::super) holder: Option<Holder>,
    /// The reader stood there, when it came with a cursor.
    pub(in super::super) from: Option<Bytes>,
    /// Most records.
    pub(in super::super) max: u32,
}

/// Where a reader may be, for a member the slices of its cursor.
pub(in super::super) fn decoded(who: &dyn Display, token: &Bytes) -> Result<Cursor, Violation> {
    Cursor::decode(token).map_err(|_| {
        Violation::new("ANSWER", format!("{who} gets {}, which is no cursor", token.escape_ascii()))
    })
}

/// Judges a page and learns from it.
pub(in super::super) fn judge(
    world: &mut World,
    given: &Given<'_>,
    fetched: &Fetched,
    cursor: &Cursor,
) -> Result<Seen, Violation> {
    let Given { who, topic, .. } = given;
    let (mut records, mut times) = (Vec::new(), Vec::new());
    for run in &fetched.runs {
        let before = records.len();
        produce::split_to(&run.records, &mut records);
        times.resize(records.len(), run.append_time.0);
        ensure(records.len() - before == run.count as usize && run.count > 0, "ANSWER", || {
            format!("{who}: {} records in a run of {}", records.len() - before, run.count)
        })?;
    }
    let count = records.len();
    ensure(count == fetched.count as usize && count <= given.max as usize, "ANSWER", || {
        format!("{who}: {count} records, {} announced, at most {} wanted", fetched.count, given.max)
    })?;
    let bytes = RESPONSE_BYTES + fetched.cursor.len() + records.iter().map(Bytes::len).sum::<usize>();
    ensure(count <= 1 || bytes <= world.config.frame_bytes_max, "ANSWER", || {
        format!("{who}: {bytes} bytes, at most {} are allowed", world.config.frame_bytes_max)
    })?;
    let spans = stands(world, given, cursor)?;
    if let Some(from) = &given.from {
        moves(who, &decoded(who, from)?, cursor, count)?;
    }
    let (life, power_lost) = (world.model.life, world.model.power_lost);
    let topic = &mut world.model.topics[*topic];
    let covers = given.holder.is_some().then(|| Rc::from(spans));
    let page = Page {
        who,
        reader: given.reader,
        start: given.start,
        records: &records,
        times: Some(times),
        covers,
        single: topic.is_single(),
        life,
        power_lost,
    };
    let gone = topic.deleted;
    let seen = if gone && records.is_empty() {
        Seen { start: given.start.clone(), after: given.start.clone().within(page.covers.clone()) }
    } else {
        topic.log.read(&page)?
    };
    world.summary.delivered += count as u64;
    let token =
        Token { topic: given.topic, place: Rc::new(seen.after.clone()), holder: given.holder.clone() };
    world.model.give(&fetched.cursor, token);
    Ok(seen)
}

/// Judges where a cursor stands; gives the slices it speaks of.
fn stands(world: &mut World, given: &Given<'_>, cursor: &Cursor) -> Result<Vec<Span>, Violation> {
    let who = given.who;
    let topic = &world.model.topics[given.topic];
    let known = |tile: &Tile| {
        topic
            .ranges
            .get(tile.range.0)
            .is_some_and(|range| range.span.0 <= tile.span.start() && tile.span.end() <= range.span.1)
    };
    let mut spans = Vec::with_capacity(cursor.tiles.len());
    for tile in &cursor.tiles {
        ensure(known(tile), "ANSWER", || format!("{who} stands in {tile:?}, which is not there"))?;
        world.model.segments.read_up_to(topic.range_id(tile.range.0), tile.next)?;
        spans.push((tile.span.start(), tile.span.end()));
    }
    let spans = keyspace::joined(spans);
    let whole = spans == [(0, keyspace::size(topic.bits))];
    ensure(whole || given.holder.is_some(), "INV-42", || {
        format!("{who} reads everything, and its cursor speaks of {spans:?}")
    })?;
    Ok(spans)
}

/// Judges how far a reader moved that stays in the ranges it reads whole.
fn moves(who: &dyn Display, from: &Cursor, to: &Cursor, count: usize) -> Result<(), Violation> {
    let places =
        |cursor: &Cursor| cursor.tiles.iter().map(|tile| (tile.range, tile.span)).collect::<Vec<_>>();
    let each = from.tiles.len() == 1 && places(from) == places(to);
    if !each {
        return Ok(());
    }
    let moved = from.tiles.iter().zip(&to.tiles).map(|(from, to)| to.next.0.checked_sub(from.next.0));
    let moved = moved.sum::<Option<u64>>();
    inv_07::contiguous(who, count as u64, moved.unwrap_or(u64::MAX))
}
