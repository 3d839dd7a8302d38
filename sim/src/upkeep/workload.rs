//! What is asked of the node, and readers that know what they must be given.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use broker::{Admin, Commit, Fetch, Fetched, Form, Produce, Reply, Request, RequestId};
use bytes::{Bytes, BytesMut};
use metadata::cluster::{Command, Policy, Setting};
use rand::Rng;
use types::cursor::Cursor;
use types::record::{Record, Walk};
use types::{Offset, RangeId, RangeSeq, TopicId};

use super::world::World;
use crate::invariants::{Violation, ensure, inv_43};

const TOPICS: [&str; 3] = ["a", "b", "c"];
const POLICIES: [&str; 3] = ["one", "two", "three"];
const GROUPS: [&str; 2] = ["g", "h"];

/// Readers, one for each topic, and what is known of the records.
#[derive(Debug, Default)]
pub(super) struct Readers {
    cursors: BTreeMap<usize, Bytes>,
    /// Acknowledged records, by number: where a reader stood when it was produced is not known, so only order counts.
    next: u64,
    /// The largest number each topic's reader has seen.
    seen: BTreeMap<TopicId, u64>,
    /// Places that readers were at in this lifetime: what they are moved over there was counted.
    passed: BTreeSet<(TopicId, Offset)>,
    /// Topics of which a fetch came to nothing in this lifetime: it may have moved its reader all the same.
    unsure: BTreeSet<usize>,
    /// Produces on their way.
    waiting: BTreeSet<RequestId>,
}

impl Readers {
    pub(super) fn life_ended(&mut self) {
        self.waiting.clear();
        self.passed.clear();
        self.unsure.clear();
    }
}

fn name(topic: usize) -> Option<Bytes> {
    Some(Bytes::from_static(TOPICS[topic].as_bytes()))
}

impl World {
    /// One thing somebody does.
    pub(super) fn work(&mut self) -> Result<(), Violation> {
        let topic = self.rng.random_range(0..TOPICS.len());
        match self.rng.random_range(0..20) {
            0 | 1 => {
                self.send(Request::CreateTopic { topic: name(topic), keyspace_bits: 4 })?;
            }
            2 if self.rng.random_bool(0.5) => {
                self.send(Request::Admin(Admin::DeleteTopic { topic: name(topic) }))?;
            }
            3 => self.define()?,
            4 => self.bind()?,
            5..=8 => self.read(topic)?,
            9 => self.commit(topic)?,
            _ => self.produce(topic)?,
        }
        Ok(())
    }

    fn produce(&mut self, topic: usize) -> Result<(), Violation> {
        let count = self.rng.random_range(1..4_u32);
        let mut records = BytesMut::new();
        for _ in 0..count {
            let value = Bytes::from(format!("{:08}", self.readers.next));
            self.readers.next += 1;
            Record { key: None, value, timestamp: 0, headers: Vec::new() }.encode(&mut records);
        }
        let records = records.freeze();
        let crc = crc32fast::hash(&records);
        let id =
            self.send(Request::Produce(Produce { topic: name(topic), records, count, crc, stamp: None }))?;
        self.readers.waiting.insert(id);
        let answered: Vec<RequestId> = self.readers.waiting.iter().copied().collect();
        for id in answered {
            if self.take_reply(id).is_some() {
                self.readers.waiting.remove(&id);
            }
        }
        Ok(())
    }

    fn define(&mut self) -> Result<(), Violation> {
        let name = Bytes::from_static(POLICIES[self.rng.random_range(0..POLICIES.len())].as_bytes());
        let mut setting = |values: [u64; 3]| match self.rng.random_range(0..5) {
            0 => Setting::Inherit,
            1 => Setting::Off,
            n => Setting::Value(values[n - 2]),
        };
        let policy = Policy {
            age_ms_max: setting([0, 2000, 20_000]),
            bytes_max: setting([0, 400, 3000]),
            read_age_ms_max: setting([0, 500, 5000]),
            unread_age_ms_max: setting([0, 5000, 40_000]),
            spread_by: Setting::Inherit,
        };
        let read_is_set = matches!(policy.read_age_ms_max, Setting::Value(_));
        let policy = match policy.unread_age_ms_max {
            // Refused without it.
            Setting::Inherit | Setting::Off if read_is_set => {
                Policy { unread_age_ms_max: Setting::Value(20_000), ..policy }
            }
            Setting::Inherit | Setting::Off | Setting::Value(_) => policy,
        };
        let command = if self.rng.random_bool(0.3) {
            Command::DeletePolicy { name }
        } else {
            Command::DefinePolicy { name, policy }
        };
        self.change(|node, actions| node.propose(&command, actions))
    }

    fn bind(&mut self) -> Result<(), Violation> {
        let topics = self.tables(|vnode| vnode.topics().map(|(id, _)| id).collect::<Vec<_>>());
        let topics = topics.unwrap_or_default();
        if topics.is_empty() {
            return Ok(());
        }
        let topic = topics[self.rng.random_range(0..topics.len())];
        let policy = POLICIES.get(self.rng.random_range(0..=POLICIES.len())).map(|name| name.as_bytes());
        self.change(|node, actions| node.bind_policy(topic, policy, actions))
    }

    /// A group is as far as the readers; nobody waits for the answer.
    fn commit(&mut self, topic: usize) -> Result<(), Violation> {
        let Some(cursor) = self.readers.cursors.get(&topic).cloned() else { return Ok(()) };
        let group = GROUPS[self.rng.random_range(0..GROUPS.len())];
        let group = Some(Bytes::from_static(group.as_bytes()));
        let commit = Commit { topic: name(topic), group, cursor: Some(cursor) };
        self.send(Request::Commit(commit))?;
        Ok(())
    }

    fn read(&mut self, topic: usize) -> Result<(), Violation> {
        let cursor = self.readers.cursors.get(&topic).cloned();
        self.counted = 0;
        let fetch = Fetch {
            topic: name(topic),
            cursor: cursor.clone(),
            group: None,
            member: None,
            max: 20,
            wait_ms: 0,
            form: Form::Records,
        };
        let id = self.send(Request::Fetch(fetch))?;
        let mut tries = 0;
        let reply = loop {
            if let Some(reply) = self.take_reply(id) {
                break reply;
            }
            tries += 1;
            if tries > 2000 {
                self.readers.unsure.insert(topic);
                return Ok(());
            }
            self.run(1)?;
            if tries % 50 == 0 {
                self.pass(Duration::from_millis(10))?;
            }
        };
        match reply {
            Reply::Fetched(page) => self.page(topic, cursor, &page),
            // Its topic is another one by now, or a fault was met.
            Reply::Failed(_) => {
                self.readers.cursors.remove(&topic);
                self.readers.unsure.insert(topic);
                Ok(())
            }
            other => Err(Violation::new("ANSWER", format!("a fetch is answered {other:?}"))),
        }
    }

    /// Records come in order, once, and the offsets that did not come are gone and were counted.
    fn page(&mut self, topic: usize, from: Option<Bytes>, page: &Fetched) -> Result<(), Violation> {
        let after = Cursor::decode(&page.cursor).map_err(|_| Violation::new("ANSWER", "not a cursor"))?;
        if after.is_unborn() {
            self.readers.cursors.remove(&topic);
            return Ok(());
        }
        let before =
            from.and_then(|from| Cursor::decode(&from).ok()).filter(|from| from.topic == after.topic);
        let next = |cursor: &Cursor| cursor.tiles.first().map_or(Offset::ZERO, |tile| tile.next);
        let (start, end) = (before.as_ref().map_or(Offset::ZERO, next), next(&after));
        let joined: Vec<u8> = page.runs.iter().flat_map(|run| run.records.to_vec()).collect();
        let mut reader = types::codec::Reader::new(joined.clone().into());
        for _ in Walk::new(&joined) {
            let record = Record::decode(&mut reader).map_err(|_| Violation::new("INV-24", "not a record"))?;
            let number = std::str::from_utf8(&record.value).ok().and_then(|text| text.parse::<u64>().ok());
            let number = number.ok_or_else(|| Violation::new("INV-3", "a record nobody produced"))?;
            // A reader that lost its cursor begins again.
            let seen = if before.is_some() { self.readers.seen.get(&after.topic).copied() } else { None };
            ensure(seen.is_none_or(|seen| number > seen), "INV-10", || {
                format!("record {number} of {} comes after {seen:?}", TOPICS[topic])
            })?;
            self.readers.seen.insert(after.topic, number);
        }
        let moved = end.0.saturating_sub(start.0);
        let skipped = moved.saturating_sub(u64::from(page.count));
        ensure(moved >= u64::from(page.count), "INV-43", || {
            format!("{} records in {moved} offsets", page.count)
        })?;
        let range = RangeId { topic: after.topic, seq: RangeSeq(0) };
        let stored = self.tables(|vnode| {
            let first = vnode.segments_of(range).next().map(|(_, segment)| segment.start);
            first.or_else(|| vnode.range(range).map(|range| range.sealed_end))
        });
        // Of a topic that is gone nothing is stored.
        let gone = stored.flatten().map_or(skipped, |first| first.since(start.min(first)));
        let first = self.readers.passed.insert((after.topic, start)) && !self.readers.unsure.contains(&topic);
        inv_43::moved(TOPICS[topic], skipped, gone, self.counted, first)?;
        self.summary.skipped += skipped;
        self.summary.read += u64::from(page.count);
        self.readers.cursors.insert(topic, page.cursor.clone());
        Ok(())
    }

    /// Every reader gets to its end.
    pub(super) fn read_everything(&mut self) -> Result<(), Violation> {
        for topic in 0..TOPICS.len() {
            for _ in 0..200 {
                let before = self.readers.cursors.get(&topic).cloned();
                self.read(topic)?;
                if self.readers.cursors.get(&topic) == before.as_ref() {
                    break;
                }
            }
        }
        Ok(())
    }
}
