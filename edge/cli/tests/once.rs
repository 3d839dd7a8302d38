//! Real processes that are killed under a producer that repeats itself: every record is there once.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use std::collections::BTreeMap;
use std::time::Duration;

use client::{Batch, Client, Options};

use process::node::{create, runtime, sees, settled, started, three};
use process::wait_for;

const BATCHES: usize = 240;
const RECORDS: usize = 3;

#[test]
fn nodes_are_killed_under_a_producer_and_every_record_is_there_once() {
    let nodes = three();
    let mut brokers = started(&nodes);
    let [a, b, c] = &nodes;
    let runtime = runtime();
    create(a, "t", &runtime);
    [a, b, c].into_iter().for_each(|node| sees(node, "t", &runtime));

    let others = vec![b.place.address(), c.place.address()];
    let options = Options { others, ..Options::new(a.place.address(), "admin", "admin123") };
    let client = runtime.block_on(Client::connect_with(options)).unwrap();
    let mut producer = client.producer("t", 4);
    for n in 0..BATCHES {
        // With requests on their way, each in turn: whoever is primary, and whoever the client is connected to.
        let (part, at) = (n % (BATCHES / 4), n / (BATCHES / 4));
        if part == 20 && at < 3 {
            brokers[at].take().unwrap().kill();
        }
        if part == 50 && at < 3 {
            brokers[at] = Some(nodes[at].start());
            settled(&[a, b, c]);
        }
        if n == BATCHES / 3 {
            runtime.block_on(async { nodes[2].admin().await.split_range("t", 0).await }).unwrap();
        }
        let mut batch = Batch::default();
        for record in 0..RECORDS {
            let value = format!("{n}/{record}");
            let key = format!("k{}", (n + record) % 17);
            batch.push_parts((record > 0).then_some(key.as_bytes()), value.as_bytes(), 1);
        }
        runtime.block_on(producer.send(batch)).unwrap();
    }
    runtime.block_on(producer.flush()).unwrap();
    assert_eq!(producer.progress().stored, (BATCHES * RECORDS) as u64);

    for node in [a, b, c] {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let client = runtime.block_on(node.admin());
        let consumer = client.consumer("t").wait(Duration::from_secs(1));
        let mut consumer = runtime.block_on(consumer.open()).unwrap();
        wait_for(&format!("everything to be read on {}", node.name), || {
            let Ok(page) = runtime.block_on(consumer.poll()) else { return false };
            let records = page.decode_records().unwrap();
            let is_empty = records.is_empty();
            for record in records {
                *seen.entry(String::from_utf8(record.value.to_vec()).unwrap()).or_default() += 1;
            }
            is_empty && seen.len() >= BATCHES * RECORDS
        });
        assert_eq!(seen.len(), BATCHES * RECORDS, "on {}", node.name);
        let twice: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{twice:?} on {}", node.name);
    }
}
