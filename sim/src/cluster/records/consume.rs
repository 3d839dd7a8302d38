//! Clients that read a topic from its beginning, a page at a time, each page from any node.

use broker::{Fetch, Fetched, Form, Reply, Request};
use bytes::Bytes;
use rand::Rng;
use types::codec::Reader as Bytewise;
use types::cursor::{Cursor, Tile};
use types::record::Record;
use types::{NodeId, Offset, RangeId, RangeSeq, TopicName};

use super::model::Progress;
use super::{Asked, bytes};
use crate::cluster::world::World;
use crate::invariants::{Violation, ensure, inv_25};

/// A client that reads one topic.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    pub(super) topic: usize,
    cursor: Option<Bytes>,
    pub(super) progress: Progress,
    /// It asked, and was not answered.
    pub(super) waits: bool,
    /// It asks one node only.
    pub(super) only: Option<NodeId>,
    /// What lies before it for sure, as the node it asked had it when it was asked.
    before_it: Option<String>,
    pub(super) last: String,
}

impl Reader {
    pub(super) fn new(topic: usize) -> Self {
        Self {
            topic,
            cursor: None,
            progress: Progress::default(),
            waits: false,
            only: None,
            before_it: None,
            last: String::new(),
        }
    }

    pub(super) fn of_node(topic: usize, only: NodeId) -> Self {
        Self { only: Some(only), ..Self::new(topic) }
    }
}

impl World {
    /// Some client asks for the next page.
    pub(super) fn read_some(&mut self) -> Result<(), Violation> {
        if self.records.readers.is_empty() {
            return Ok(());
        }
        let at = self.records.rng.random_range(0..self.records.readers.len());
        let reader = &self.records.readers[at];
        if reader.waits {
            return Ok(());
        }
        let Some(id) = reader.only.or_else(|| self.some_running()) else { return Ok(()) };
        if self.nodes.get(&id).is_none_or(|node| node.process.is_none()) {
            return Ok(());
        }
        self.read_on(id, at)
    }

    /// A client asks a node for its next page.
    pub(super) fn read_on(&mut self, id: NodeId, at: usize) -> Result<(), Violation> {
        let before_it = self.due_before(id, at);
        let rng = &mut self.records.rng;
        let wait_ms = [0, 0, 300, 3000][rng.random_range(0..4)];
        let max = [1, 7, 100, 100][rng.random_range(0..4)];
        let reader = &mut self.records.readers[at];
        reader.waits = true;
        reader.before_it = before_it;
        let fetch = Fetch {
            topic: Some(bytes(&self.records.topics[reader.topic])),
            cursor: reader.cursor.clone(),
            group: None,
            member: None,
            max,
            wait_ms,
            form: Form::Records,
        };
        self.ask_for(id, Asked::Fetch { reader: at }, wait_ms, Request::Fetch(fetch))
    }

    /// A client is given a page, or told why not.
    pub(super) fn fetched(&mut self, id: NodeId, at: usize, reply: &Reply) -> Result<(), Violation> {
        self.say(|| format!("node {id} answers reader {at}: {}", brief(reply)));
        let reader = &mut self.records.readers[at];
        reader.waits = false;
        reader.last = format!("node {id}: {}", brief(reply));
        match reply {
            Reply::Fetched(fetched) => {
                let before_it = reader.before_it.take().filter(|_| fetched.count == 0);
                inv_25::no_end(format!("reader {at} on node {id}"), before_it)?;
                self.turn_page(at, fetched)
            }
            Reply::Failed(reason @ (wire::Reason::InternalError | wire::Reason::PermissionDenied)) => {
                Err(Violation::new("READS", format!("node {id} answers a good reader with {reason:?}")))
            }
            Reply::Failed(_) => {
                self.summary.reads_failed += 1;
                Ok(())
            }
            other => Err(Violation::new("ANSWER", format!("node {id} answers a fetch with {other:?}"))),
        }
    }

    fn turn_page(&mut self, at: usize, fetched: &Fetched) -> Result<(), Violation> {
        let records = &mut self.records;
        let reader = &mut records.readers[at];
        let mut count = 0;
        for run in &fetched.runs {
            for record in decoded(&run.records)? {
                count += 1;
                records.model.read(reader.topic, &mut reader.progress, &record)?;
            }
        }
        ensure(count == fetched.count, "ANSWER", || {
            format!("{count} records come with a count of {}", fetched.count)
        })?;
        reader.cursor = Some(fetched.cursor.clone());
        self.summary.records_read += u64::from(count);
        Ok(())
    }

    /// Something that a node must not take for the end of the data, since its tables say that there is more: a range
    /// of which the reader reads every key is sealed further on.
    fn due_before(&self, id: NodeId, at: usize) -> Option<String> {
        let reader = &self.records.readers[at];
        let name = TopicName::new(self.records.topics[reader.topic].as_bytes()).ok()?;
        let node = &self.nodes.get(&id)?.process.as_ref()?.node;
        let mut vnodes = self.groups_of(id).into_iter().filter_map(|group| node.vnode_tables(group));
        let (tables, topic) =
            vnodes.find_map(|tables| tables.topic_by_name(&name).map(|(id, _)| (tables, id)))?;
        let tiles = match &reader.cursor {
            Some(cursor) => Cursor::decode(cursor).ok()?.tiles,
            None => Vec::new(),
        };
        let root = RangeId { topic, seq: RangeSeq(0) };
        let root =
            tables.range(root).map(|range| Tile { range: RangeSeq(0), span: range.span, next: Offset(0) });
        let tiles = if tiles.is_empty() { root.into_iter().collect() } else { tiles };
        tiles.into_iter().find_map(|tile| {
            let range = tables.range(RangeId { topic, seq: tile.range })?;
            let is_due = range.span == tile.span && range.sealed_end > tile.next;
            is_due.then(|| format!("{tile:?} of a range that is sealed up to {}", range.sealed_end))
        })
    }
}

/// The records of a run.
pub(super) fn decoded(run: &Bytes) -> Result<Vec<Record>, Violation> {
    let mut bytes = Bytewise::new(run.clone());
    let mut records = Vec::new();
    while bytes.remaining() > 0 {
        let record = Record::decode(&mut bytes);
        records.push(record.map_err(|error| Violation::new("CODEC", format!("a run of records: {error}")))?);
    }
    Ok(records)
}

/// An answer in few words.
pub(super) fn brief(reply: &Reply) -> String {
    match reply {
        Reply::Fetched(fetched) => {
            let cursor = Cursor::decode(&fetched.cursor).map(|cursor| cursor.tiles);
            format!("{} records, then {cursor:?}", fetched.count)
        }
        other => format!("{other:?}"),
    }
}
