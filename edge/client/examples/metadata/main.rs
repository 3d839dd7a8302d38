//! What a cluster of three decides in a second: `make metadata`, or
//! `cargo run --release -p malachi-client --example metadata -- target/release/malachi`.
//!
//! Starts that program three times on one machine, as one cluster with one vnode, so that every command goes through
//! the same group. Then topics are made, by more and more clients at a time, at the node that leads and at one that
//! passes everything on. Each command is one entry in the group's log, synced by two of the three before it is
//! answered. In the end every node is asked for what it has, before and after all three were killed. Prints commands
//! per second and how long they took. `SECONDS_EACH` is how long each step lasts, 5 if it is not set; `VNODES` another
//! number of groups.

extern crate malachi_client as client;

mod cluster;

use std::io::Write as _;
use std::time::{Duration, Instant};

use client::{Client, Error};

use cluster::Cluster;

/// Commands under way at a time, each on a connection of its own: a broker does what one connection asks in order.
const STEPS: [usize; 4] = [1, 16, 64, 256];
/// For all nodes to have what was acknowledged.
const CATCH_UP_MAX: Duration = Duration::from_secs(60);

/// How long commands took, each, and all of them together.
struct Step {
    took: Vec<Duration>,
    all: Duration,
}

impl Step {
    fn percentile(&self, percent: usize) -> f64 {
        let at = (self.took.len() * percent / 100).min(self.took.len().saturating_sub(1));
        self.took.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    }
}

/// Has topics made, each client one after the other, until the time is over.
async fn step(clients: Vec<Client>, prefix: &str, within: Duration) -> Result<Step, Error> {
    let began = Instant::now();
    let mut tasks = Vec::new();
    for (task, client) in clients.into_iter().enumerate() {
        let prefix = format!("{prefix}-{task}");
        tasks.push(tokio::spawn(async move {
            let mut took = Vec::new();
            while began.elapsed() < within {
                let asked = Instant::now();
                client.create_topic(&format!("{prefix}-{}", took.len()), 0).await?;
                took.push(asked.elapsed());
            }
            Ok::<_, Error>(took)
        }));
    }
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await.expect("no panic")?);
    }
    took.sort_unstable();
    Ok(Step { took, all: began.elapsed() })
}

/// Has a topic made at each node, as often as that takes: the groups of a new cluster change hands. Gives how many
/// there are then.
async fn warm_up(cluster: &Cluster) -> usize {
    let began = Instant::now();
    for node in 0..cluster::NODES {
        let name = format!("first-{node}");
        loop {
            let made = match cluster.client(node).await {
                // An attempt without an answer may have been one with success.
                Ok(client) => {
                    client.create_topic(&name, 0).await.is_ok()
                        || client.topics(&name).await.is_ok_and(|topics| !topics.is_empty())
                }
                Err(_) => false,
            };
            if made {
                break;
            }
            assert!(began.elapsed() < CATCH_UP_MAX, "node {node} takes no changes");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    cluster::NODES
}

/// Waits until every node has so many topics, which is all that were acknowledged.
async fn all_have(cluster: &Cluster, made: usize) {
    let began = Instant::now();
    for node in 0..cluster::NODES {
        loop {
            let topics = match cluster.client(node).await {
                Ok(client) => client.topics("").await.map(|topics| topics.len()),
                Err(error) => Err(error),
            };
            match topics {
                Ok(topics) if topics == made => break,
                topics => assert!(
                    began.elapsed() < CATCH_UP_MAX,
                    "node {node} has {topics:?} of {made} topics that were acknowledged"
                ),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let program = std::env::args().nth(1).expect("the program to be measured is the first argument");
    let seconds = std::env::var("SECONDS_EACH").ok().and_then(|text| text.parse().ok()).unwrap_or(5.0);
    let vnodes = std::env::var("VNODES").unwrap_or_else(|_| "1".to_owned());
    let within = Duration::from_secs_f64(seconds);
    let mut cluster = Cluster::new(&program, &vnodes);
    cluster.start().await;
    let mut made = warm_up(&cluster).await;
    let leader = cluster.leader().await;
    say(format_args!(
        "| asked | at a time | commands/s | p50 ms | p99 ms | max ms | processor of the three, cores |"
    ));
    say(format_args!("|---|---:|---:|---:|---:|---:|---|"));
    for (who, node) in [("the leader", leader), ("another", (leader + 1) % cluster::NODES)] {
        for at_once in STEPS {
            let mut clients = Vec::new();
            for _ in 0..at_once {
                clients.push(cluster.client(node).await?);
            }
            let before = cluster.processor_seconds();
            let step = step(clients, &format!("n{node}-{at_once}"), within).await?;
            let after = cluster.processor_seconds();
            let cores = before.iter().zip(&after).map(|(before, after)| after - before);
            let cores: Vec<String> =
                cores.map(|spent| format!("{:.2}", spent / step.all.as_secs_f64())).collect();
            made += step.took.len();
            say(format_args!(
                "| {who} | {at_once} | {:.0} | {:.2} | {:.2} | {:.1} | {} |",
                step.took.len() as f64 / step.all.as_secs_f64(),
                step.percentile(50),
                step.percentile(99),
                step.percentile(100),
                cores.join(" "),
            ));
        }
    }
    all_have(&cluster, made).await;
    cluster.kill();
    cluster.start().await;
    all_have(&cluster, made).await;
    say(format_args!("\n{made} topics were acknowledged; all three have them, also after they were killed"));
    Ok(())
}

fn say(line: std::fmt::Arguments<'_>) {
    drop(writeln!(std::io::stdout(), "{line}"));
}
