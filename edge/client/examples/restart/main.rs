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

use std::collections::VecDeque;
use std::io::Write as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::{Client, Error, Fetch, Record};

use cluster::{Cluster, NODES};

/// Splits under way at a time, each on a connection of its own.
const SPLITTERS: usize = 16;
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

/// Splits until the topic has so many ranges.
async fn wide(cluster: &Cluster, ranges: usize) -> Result<(), Error> {
    let leader = cluster.leader().await;
    let mut clients = Vec::new();
    for _ in 0..SPLITTERS {
        clients.push(cluster.client(leader).await?);
    }
    clients[0].create_topic("wide", 20).await?;
    let (mut active, mut count) = (VecDeque::from([0]), 1);
    while count < ranges {
        let round: Vec<u64> = active.drain(..active.len().min(SPLITTERS).min(ranges - count)).collect();
        count += round.len();
        let mut tasks = Vec::new();
        for (range, client) in round.into_iter().zip(&clients) {
            let client = client.clone();
            tasks.push(tokio::spawn(async move { client.split_range("wide", range).await }));
        }
        for task in tasks {
            let (left, right) = task.await.expect("no panic")?;
            active.extend([left, right]);
        }
    }
    Ok(())
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
