//! How long a node of three takes to serve after it was killed: `make restart`, or
//! `cargo run --release -p malachi-client --example restart -- target/release/malachi`.
//!
//! Starts that program three times on one machine, as one cluster, and gives it a topic of so many ranges with a record
//! in each, so that every node holds a copy of as many segments. Then one node is killed and started again, while the
//! others end the segments it was primary of; then all three. Prints the time from the start of the process until the
//! node lets a client in, until it stores a record, and until it gives back one of a range that it had. `SEGMENTS` is
//! how many, 10,000 if it is not set.

extern crate malachi_client as client;

#[path = "../metadata/cluster.rs"]
mod cluster;

use std::io::Write as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Client, Error, Fetch, RangeState, Record};

use cluster::{Cluster, NODES};

/// Splits under way at a time, each on a connection of its own.
const SPLITTERS: usize = 16;
/// Longest time for all ranges.
const SPLIT_MAX: Duration = Duration::from_secs(1200);
/// Longest wait for a node to serve.
const SERVE_MAX: Duration = Duration::from_secs(300);

fn record(key: usize) -> Record {
    let key = Some(Bytes::from(key.to_string()));
    Record { key, value: Bytes::from_static(b"of a segment"), timestamp: 0, headers: Vec::new() }
}

fn line(text: &str) {
    let mut out = std::io::stdout();
    // Whoever reads it may have enough.
    drop(writeln!(out, "{text}").and_then(|()| out.flush()));
}

fn say(what: &str, took: Duration) {
    line(&format!("{what:<60} {:>9.0} ms", took.as_secs_f64() * 1e3));
}

/// Splits until the topic has so many ranges. What is refused is tried again in the next round, as the topic is by then.
async fn wide(cluster: &Cluster, wanted: usize) -> Result<(), Error> {
    let leader = cluster.leader().await;
    let mut clients = Vec::new();
    for _ in 0..SPLITTERS {
        clients.push(cluster.client(leader).await?);
    }
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < SPLIT_MAX, "the topic does not get its ranges");
        drop(clients[0].create_topic("wide", 20).await);
        let Ok((_, ranges)) = clients[0].topic("wide").await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let active: Vec<u64> = ranges
            .iter()
            .filter(|range| range.state == RangeState::Active)
            .map(|range| range.range)
            .collect();
        if active.len() >= wanted {
            return Ok(());
        }
        let due = active.len().min(wanted - active.len());
        let mut tasks = Vec::new();
        for (index, client) in clients.iter().enumerate() {
            let (client, own) = (client.clone(), active[..due].to_vec());
            tasks.push(tokio::spawn(async move {
                for range in own.into_iter().skip(index).step_by(SPLITTERS) {
                    drop(client.split_range("wide", range).await);
                }
            }));
        }
        for task in tasks {
            task.await.expect("no panic");
        }
    }
}

/// Records for so many keys, again until they are stored.
async fn everywhere(client: &Client, keys: usize) {
    let records: Vec<Record> = (0..keys).map(record).collect();
    for part in records.chunks(500) {
        let began = Instant::now();
        while let Err(error) = client.produce("wide", part).await {
            assert!(began.elapsed() < SERVE_MAX, "not stored: {error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// What a node that was just started takes until each of these.
async fn served(cluster: &Cluster, node: usize, began: Instant) {
    let client = loop {
        match cluster.client(node).await {
            Ok(client) => break client,
            Err(error) => assert!(began.elapsed() < SERVE_MAX, "nobody is let in: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    say(&format!("  node {node}: lets a client in"), began.elapsed());
    while let Err(error) = client.produce("wide", &[record(1)]).await {
        assert!(began.elapsed() < SERVE_MAX, "not stored: {error}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    say(&format!("  node {node}: stores a record"), began.elapsed());
    let fetch = || Fetch { topic: Some(Bytes::from_static(b"wide")), max: 10, ..Fetch::default() };
    loop {
        match client.fetch(fetch()).await {
            Ok(page) if page.count > 0 => break,
            Ok(_) => assert!(began.elapsed() < SERVE_MAX, "no records"),
            Err(error) => assert!(began.elapsed() < SERVE_MAX, "not given: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    say(&format!("  node {node}: gives records"), began.elapsed());
    let spent = cluster.processor_seconds().get(node).copied().unwrap_or_default();
    line(&format!("  node {node}: {spent:.1} s of processor time by then"));
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let program = std::env::args().nth(1).expect("the program to start");
    let segments: usize =
        std::env::var("SEGMENTS").ok().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let mut cluster = Cluster::new(&program, "1");
    cluster.start().await;
    let began = Instant::now();
    wide(&cluster, segments).await?;
    say(&format!("a topic of {segments} ranges"), began.elapsed());
    let (began, leader) = (Instant::now(), cluster.leader().await);
    // Three times as many keys as ranges leave few of them without a record.
    everywhere(&cluster.client(leader).await?, segments * 3).await;
    say("records over all of them, three copies of each segment", began.elapsed());

    let node = (leader + 1) % NODES;
    cluster.kill_one(node);
    let began = Instant::now();
    cluster.start_one(node);
    line("one node killed and started again");
    served(&cluster, node, began).await;

    cluster.kill();
    let began = Instant::now();
    cluster.start_all();
    line("all of them killed and started again");
    for node in 0..NODES {
        served(&cluster, node, began).await;
    }
    Ok(())
}
