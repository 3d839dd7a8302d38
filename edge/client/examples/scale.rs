//! How a broker bears many ranges, many topics and many who wait:
//! `cargo run --release -p malachi-client --example scale -- PID`, where PID is the broker's process.
//!
//! Makes a topic of 10,000 ranges, 10,000 topics of one range, 1,000 long polls and 1,000 idle streams, each of
//! which must still be served, and splits and merges a topic 1,000 times under load. Prints the broker's memory and
//! descriptors after each step. Talks to `MALACHI_ADDRESS`, else `localhost:4040`, as the development user `admin`;
//! the broker must allow 2,100 connections from one address. `SCALE` divides all the numbers.

extern crate malachi_client as client;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Client, Error, Fetch, Record};

const CONNECTIONS_EACH: usize = 8;

fn record(key: u64, value: u64) -> Record {
    let key = Some(Bytes::from(key.to_string()));
    Record { key, value: Bytes::from(value.to_string()), timestamp: 0, headers: Vec::new() }
}

fn say(line: &str) {
    // Nobody is left to tell when standard output is gone.
    drop(writeln!(std::io::stdout(), "{line}"));
}

struct Probe {
    pid: String,
    since: Instant,
}

impl Probe {
    /// Memory in MiB, descriptors, and the seconds since the last look.
    fn look(&mut self, what: &str) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = kib.and_then(|kib| kib.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.pid)).map_or(0, Iterator::count);
        let seconds = self.since.elapsed().as_secs_f64();
        say(&format!("{what:<44} {seconds:>7.1} s {:>6} MiB {open:>6} descriptors", kib / 1024));
        self.since = Instant::now();
    }
}

async fn wide(client: &Client, ranges: usize) -> Result<(), Error> {
    client.create_topic("wide", 16).await?;
    let mut active = std::collections::VecDeque::from([0]);
    while active.len() < ranges {
        let Some(range) = active.pop_front() else { break };
        let (left, right) = client.split_range("wide", range).await?;
        active.extend([left, right]);
    }
    Ok(())
}

/// One record for each of so many keys, and all of them read back.
async fn everywhere(client: &Client, keys: u64, value: u64) -> Result<(), Error> {
    let records: Vec<Record> = (0..keys).map(|key| record(key, value)).collect();
    for part in records.chunks(1000) {
        client.produce("wide", part).await?;
    }
    Ok(())
}

async fn read_all(client: &Client, topic: &str) -> Result<(u64, u64), Error> {
    let topic = Some(Bytes::copy_from_slice(topic.as_bytes()));
    let (mut cursor, mut count, mut pages) = (None, 0, 0);
    loop {
        let page =
            client.fetch(Fetch { topic: topic.clone(), cursor, max: 1000, ..Fetch::default() }).await?;
        pages += 1;
        if page.count == 0 {
            return Ok((count, pages));
        }
        count += u64::from(page.count);
        cursor = Some(page.next_cursor);
    }
}

/// Splits and merges the one range of a topic while it is written and read; every key's records must come once and
/// in order. Gives how long each produce took, in order of size.
async fn churn(client: &Client, address: &str, times: usize) -> Result<Vec<Duration>, Error> {
    client.create_topic("churn", 16).await?;
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let written_all = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let ended = |done: &std::sync::atomic::AtomicBool| done.load(std::sync::atomic::Ordering::Relaxed);
    let writer = {
        let (client, done) = (Client::connect(address, "admin", "admin123").await?, done.clone());
        tokio::spawn(async move {
            let (mut took, mut next) = (Vec::new(), 0);
            while !ended(&done) {
                let records: Vec<Record> = (0..20).map(|key| record(key, next)).collect();
                let start = Instant::now();
                client.produce("churn", &records).await?;
                took.push(start.elapsed());
                next += 1;
            }
            Ok::<_, Error>((took, next))
        })
    };
    let reader = {
        let (client, done) = (Client::connect(address, "admin", "admin123").await?, written_all.clone());
        tokio::spawn(async move {
            let mut consumer =
                client.consumer("churn").group("g").max(1000).wait(Duration::from_millis(200)).open().await?;
            let mut next: BTreeMap<Bytes, u64> = BTreeMap::new();
            loop {
                let page = consumer.poll().await?;
                for record in page.decode_records().map_err(|error| Error::Protocol(error.to_string()))? {
                    let value: u64 = String::from_utf8_lossy(&record.value).parse().unwrap_or(u64::MAX);
                    let expected = next.entry(record.key.unwrap_or_default()).or_default();
                    assert_eq!(value, *expected, "skipped, repeated or out of order");
                    *expected += 1;
                }
                consumer.commit().await?;
                if page.count == 0 && ended(&done) {
                    return Ok::<_, Error>(next.into_values().collect::<Vec<u64>>());
                }
            }
        })
    };
    let mut whole = 0;
    for _ in 0..times / 2 {
        let (left, right) = client.split_range("churn", whole).await?;
        whole = client.merge_ranges("churn", left, right).await?;
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    let (mut took, written) = writer.await.expect("the writer does not panic")?;
    written_all.store(true, std::sync::atomic::Ordering::Relaxed);
    let read = reader.await.expect("the reader saw an order that must not be")?;
    assert_eq!(read, vec![written; 20], "every record of every key came");
    took.sort_unstable();
    Ok(took)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("MALACHI_ADDRESS").unwrap_or_else(|_| "localhost:4040".to_owned());
    let divisor: usize = std::env::var("SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1);
    let pid = std::env::args().nth(1).unwrap_or_default();
    let mut probe = Probe { pid, since: Instant::now() };
    let client = Client::connect(&address, "admin", "admin123").await?;
    probe.look("before");

    let took = churn(&client, &address, 1000 / divisor).await?;
    probe.look(&format!("{} splits and merges under load", 1000 / divisor));
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    say(&format!(
        "    produce: p50 {:?} p99 {:?} p99.9 {:?} max {:?} of {}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        took.len()
    ));

    let ranges = 10_000 / divisor;
    wide(&client, ranges).await?;
    probe.look(&format!("a topic of {ranges} ranges"));
    let keys = 20_000 / divisor as u64;
    everywhere(&client, keys, 1).await?;
    probe.look(&format!("{keys} records all over it"));
    everywhere(&client, keys, 2).await?;
    probe.look("the same again");
    let (count, pages) = read_all(&client, "wide").await?;
    assert_eq!(count, 2 * keys);
    probe.look(&format!("{count} records read in {pages} pages"));

    let topics = 10_000 / divisor;
    for topic in 0..topics {
        client.create_topic(&format!("topic-{topic}"), 0).await?;
    }
    probe.look(&format!("{topics} topics"));
    let clients: Vec<Client> = {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS_EACH {
            clients.push(Client::connect(&address, "admin", "admin123").await?);
        }
        clients
    };
    let mut tasks = Vec::new();
    for (index, client) in clients.iter().enumerate() {
        let client = client.clone();
        tasks.push(tokio::spawn(async move {
            for topic in (index..topics).step_by(CONNECTIONS_EACH) {
                client.produce(&format!("topic-{topic}"), &[record(1, 1)]).await?;
            }
            Ok::<_, Error>(())
        }));
    }
    for task in tasks {
        task.await.expect("no panic")?;
    }
    probe.look("a record in each");

    let waiting = 1000 / divisor;
    client.create_topic("quiet", 0).await?;
    let mut polls = Vec::new();
    for _ in 0..waiting {
        let client = Client::connect(&address, "admin", "admin123").await?;
        polls.push(tokio::spawn(async move {
            let topic = Some(Bytes::from_static(b"quiet"));
            loop {
                let fetch = Fetch { topic: topic.clone(), wait_ms: 20_000, ..Fetch::default() };
                let page = client.fetch(fetch).await?;
                if page.count > 0 {
                    return Ok::<_, Error>(());
                }
            }
        }));
    }
    let mut streams = Vec::new();
    for n in 0..waiting {
        let client = Client::connect(&address, "admin", "admin123").await?;
        streams.push(tokio::spawn(async move {
            let mut stream = client.subscription("quiet", format!("group-{n}").as_bytes()).open();
            stream.next().await.map(|_| ())
        }));
    }
    probe.look(&format!("{waiting} long polls and {waiting} streams asked for"));
    client.produce("quiet", &[record(1, 1)]).await?;
    for task in polls.into_iter().chain(streams) {
        task.await.expect("no panic")?;
    }
    probe.look("one record, and all of them have it");
    Ok(())
}
