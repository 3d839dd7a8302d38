//! Splits and merges of one range of a topic that is written and read.
//!
//! The topic's left half is split and merged, its right half is left alone; each has a producer that sends the next
//! request when the last is answered. The pause of one replacement is the longest request of the left producer from
//! the moment the replacement was asked for to the first request that began after it was done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Client, Error, Record};
use tokio::sync::mpsc;
use types::Keyspace;
use types::keyspace::KeyHash;

use crate::broker::Broker;
use crate::record;

const TOPIC: &str = "churn";
/// Keys of each half, all of them in each request.
const KEYS: usize = 10;
/// Upper bounds of the histogram's columns, in milliseconds.
const COLUMNS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// From when to when one request was under way.
type Took = (Instant, Instant);

struct Writer {
    client: Client,
    keys: Vec<u64>,
    done: Arc<AtomicBool>,
    took: mpsc::UnboundedSender<Took>,
}

impl Writer {
    /// Gives the number of requests.
    async fn run(self) -> Result<u64, Error> {
        let mut next = 0;
        while !self.done.load(Ordering::Relaxed) {
            let records: Vec<Record> = self.keys.iter().map(|key| record(*key, next)).collect();
            let start = Instant::now();
            self.client.produce(TOPIC, &records).await?;
            next += 1;
            // Nobody listens any more once the last replacement is done.
            let _ = self.took.send((start, Instant::now()));
        }
        Ok(next)
    }
}

/// Reads until told that all is written, and then to the end; gives how many values of each key came.
async fn read(client: Client, written: Arc<AtomicBool>) -> Result<BTreeMap<Bytes, u64>, Error> {
    let mut consumer =
        client.consumer(TOPIC).group("g").max(1000).wait(Duration::from_millis(200)).open().await?;
    let mut next: BTreeMap<Bytes, u64> = BTreeMap::new();
    loop {
        let all = written.load(Ordering::Relaxed);
        let page = consumer.poll().await?;
        for record in page.decode_records().map_err(|error| Error::Protocol(error.to_string()))? {
            let value: u64 = String::from_utf8_lossy(&record.value).parse().unwrap_or(u64::MAX);
            let expected = next.entry(record.key.unwrap_or_default()).or_default();
            assert_eq!(value, *expected, "skipped, repeated or out of order");
            *expected += 1;
        }
        consumer.commit().await?;
        if page.count == 0 && all {
            return Ok(next);
        }
    }
}

/// Asks for a split or a merge and gives its pause.
async fn pause<T>(
    replace: impl Future<Output = Result<T, Error>>,
    took: &mut mpsc::UnboundedReceiver<Took>,
) -> Result<(T, Duration), Error> {
    let asked = Instant::now();
    let replaced = replace.await?;
    let done = Instant::now();
    let mut longest = Duration::ZERO;
    while let Some((start, end)) = took.recv().await {
        if end >= asked {
            longest = longest.max(end - start);
        }
        if start >= done {
            break;
        }
    }
    Ok((replaced, longest))
}

/// Replaces ranges so many times; every key's records must come once and in order. Gives what to say about it.
pub(crate) async fn run(broker: &Broker, times: usize) -> Result<Vec<String>, Error> {
    let client = broker.client().await?;
    client.create_topic(TOPIC, 16).await?;
    let (mut whole, _) = client.split_range(TOPIC, 0).await?;
    let keyspace = Keyspace::from_bits(16).expect("a width there is");
    let is_left = |key: &u64| {
        let position = keyspace.position(KeyHash::Xxh32, key.to_string().as_bytes());
        u64::from(position.0) < keyspace.size() / 2
    };
    let (left_keys, right_keys): (Vec<u64>, Vec<u64>) = (0..1000).partition(is_left);
    let (done, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (left_in, mut left) = mpsc::unbounded_channel();
    let (right_in, mut right) = mpsc::unbounded_channel();
    let mut writers = Vec::new();
    for (keys, took) in [(left_keys, left_in), (right_keys, right_in)] {
        let keys = keys.into_iter().take(KEYS).collect();
        let writer = Writer { client: broker.client().await?, keys, done: done.clone(), took };
        writers.push(tokio::spawn(writer.run()));
    }
    let reader = tokio::spawn(read(broker.client().await?, written.clone()));
    let mut pauses = Vec::with_capacity(times);
    for _ in 0..times / 2 {
        let ((low, high), split) = pause(client.split_range(TOPIC, whole), &mut left).await?;
        let (merged, merge) = pause(client.merge_ranges(TOPIC, low, high), &mut left).await?;
        whole = merged;
        pauses.extend([split, merge]);
    }
    done.store(true, Ordering::Relaxed);
    let mut written_each = Vec::new();
    for writer in writers {
        written_each.push(writer.await.expect("the writer does not panic")?);
    }
    written.store(true, Ordering::Relaxed);
    let read = reader.await.expect("the reader saw an order that must not be")?;
    let expected: u64 = written_each.iter().map(|count| count * KEYS as u64).sum();
    assert_eq!(read.len(), 2 * KEYS, "every key came");
    assert_eq!(read.into_values().sum::<u64>(), expected, "every record of every key came");
    let mut others = Vec::new();
    while let Ok((start, end)) = right.try_recv() {
        others.push(end - start);
    }
    Ok(vec![
        told("pause of the range that is replaced", pauses),
        told("requests to the other range", others),
        format!("{expected} records, every key's in order"),
    ])
}

fn told(what: &str, mut took: Vec<Duration>) -> String {
    took.sort_unstable();
    let last = took.len().saturating_sub(1);
    let at = |share: f64| {
        let took = took.get((last as f64 * share) as usize).copied().unwrap_or_default();
        format!("{:.1}", took.as_secs_f64() * 1000.0)
    };
    let mut line = format!("{what}: p50 {} p99 {} max {} ms, of {};", at(0.5), at(0.99), at(1.0), took.len());
    let mut before = 0;
    for column in COLUMNS {
        let below = took.partition_point(|took| *took <= Duration::from_millis(column));
        line.push_str(&format!(" ≤{column}: {}", below - before));
        before = below;
    }
    line.push_str(&format!(" more: {}", took.len() - before));
    line
}
