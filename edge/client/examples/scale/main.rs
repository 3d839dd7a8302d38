//! What a broker bears: `make scale`, or
//! `cargo run --release -p malachi-client --example scale -- target/release/malachi`.
//!
//! Starts that program on ports and a directory of its own. Splits and merges a topic 1,000 times under load, makes a
//! topic of 10,000 ranges, 10,000 topics of one range, 1,000 long polls and 1,000 idle streams, each of which must
//! still be served; then kills the broker, starts it on what it left, and reads all of it. Prints what each step took
//! and what the broker held after it. `SCALE` divides all the numbers.
//!
//! Whoever runs it must be allowed 5,000 open files (`ulimit -n`): the connections are its own too.

extern crate malachi_client as client;

mod broker;
mod churn;
mod probe;

use std::time::Duration;

use bytes::Bytes;
use client::{Client, Error, Fetch, Record};

use broker::Broker;
use probe::{Probe, say};

/// Connections that write to many topics.
const WRITERS: usize = 8;
/// How long the broker is watched doing nothing.
const IDLE: Duration = Duration::from_secs(10);

fn record(key: u64, value: u64) -> Record {
    let key = Some(Bytes::from(key.to_string()));
    Record { key, value: Bytes::from(value.to_string()), timestamp: 0, headers: Vec::new() }
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

/// One record for each of so many keys.
async fn everywhere(client: &Client, keys: u64, value: u64) -> Result<(), Error> {
    let records: Vec<Record> = (0..keys).map(|key| record(key, value)).collect();
    for part in records.chunks(1000) {
        client.produce("wide", part).await?;
    }
    Ok(())
}

/// Records and pages from the beginning to the end of a topic.
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

async fn one_in_each(broker: &Broker, topics: usize) -> Result<(), Error> {
    let mut tasks = Vec::new();
    for index in 0..WRITERS {
        let client = broker.client().await?;
        tasks.push(tokio::spawn(async move {
            for topic in (index..topics).step_by(WRITERS) {
                client.produce(&format!("topic-{topic}"), &[record(1, 1)]).await?;
            }
            Ok::<_, Error>(())
        }));
    }
    for task in tasks {
        task.await.expect("no panic")?;
    }
    Ok(())
}

async fn wait_and_be_served(broker: &Broker, probe: &mut Probe, waiting: usize) -> Result<(), Error> {
    let client = broker.client().await?;
    client.create_topic("quiet", 0).await?;
    let mut tasks = Vec::new();
    for _ in 0..waiting {
        let client = broker.client().await?;
        tasks.push(tokio::spawn(async move {
            let fetch = Fetch { topic: Some("quiet".into()), wait_ms: 20_000, ..Fetch::default() };
            while client.fetch(fetch.clone()).await?.count == 0 {}
            Ok::<_, Error>(())
        }));
    }
    probe.look(&format!("{waiting} long polls"));
    for n in 0..waiting {
        let client = broker.client().await?;
        tasks.push(tokio::spawn(async move {
            let mut stream = client.subscription("quiet", format!("group-{n}").as_bytes()).open();
            stream.next().await.map(|_| ())
        }));
    }
    probe.look(&format!("{waiting} idle streams"));
    tokio::time::sleep(IDLE).await;
    probe.look("nothing happens");
    client.produce("quiet", &[record(1, 1)]).await?;
    for task in tasks {
        task.await.expect("no panic")?;
    }
    probe.look("one record, and all of them have it");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let divisor: usize = std::env::var("SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1);
    let program = std::env::args().nth(1).unwrap_or_else(|| "target/release/malachi".to_owned());
    let mut broker = Broker::new(&program);
    let client = broker.start().await;
    let mut probe = Probe::of(broker.pid());
    probe.look("started");

    let told = churn::run(&broker, 1000 / divisor).await?;
    probe.look(&format!("{} splits and merges under load", 1000 / divisor));
    told.iter().for_each(|line| say(&format!("    {line}")));

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
    one_in_each(&broker, topics).await?;
    probe.look("a record in each");
    tokio::time::sleep(IDLE).await;
    probe.look("nothing happens");

    wait_and_be_served(&broker, &mut probe, 1000 / divisor).await?;

    broker.kill();
    let mut probe = Probe::of("");
    let client = broker.start().await;
    probe.is_now(broker.pid());
    probe.look("killed and started again");
    let (count, pages) = read_all(&client, "wide").await?;
    assert_eq!(count, 2 * keys);
    probe.look(&format!("{count} records read in {pages} pages"));
    everywhere(&client, keys, 3).await?;
    probe.look(&format!("{keys} records all over it"));
    tokio::time::sleep(IDLE).await;
    probe.look("nothing happens");
    Ok(())
}
