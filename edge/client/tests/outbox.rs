//! Single records gathered by themselves, against a scripted broker.

#![cfg(feature = "tcp")]
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

extern crate malachi_client as client;

mod fake;

use std::sync::{Arc, Mutex, mpsc};

use client::{Client, Effect, Error, OutboxOptions, Reason, Record};
use fake::{Fake, Verdict};
use wire::Request;

fn record(value: impl ToString) -> Record {
    Record { key: None, value: value.to_string().into(), timestamp: 1, headers: Vec::new() }
}

async fn connect(fake: &Fake) -> Client {
    Client::connect(&fake.address, "user", "password").await.unwrap()
}

/// Records in each request that came.
fn counting(verdict: impl Fn(usize) -> Verdict + Send + 'static) -> (Fake, Arc<Mutex<Vec<u32>>>) {
    let counts = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&counts);
    let fake = Fake::scripted(move |request| {
        let Request::Produce(produce) = request else { return Verdict::Serve };
        let nth = {
            let mut counts = shared.lock().unwrap();
            counts.push(produce.count);
            counts.len()
        };
        verdict(nth)
    });
    (fake.topic("t"), counts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_record_leaves_at_once_and_a_crowd_shares_requests() {
    let (held, gate) = mpsc::channel();
    let gate = Mutex::new(gate);
    let (fake, counts) = counting(move |nth| {
        if nth == 2 {
            // The second request is under way until everything else has been handed over.
            gate.lock().unwrap().recv().unwrap();
        }
        Verdict::Serve
    });
    let outbox = connect(&fake).await.outbox("t");
    outbox.send(record(0)).await.unwrap().stored().await.unwrap();
    assert_eq!(*counts.lock().unwrap(), [1]);
    let mut receipts = vec![outbox.send(record(1)).await.unwrap()];
    fake.wait_until(|_| counts.lock().is_ok_and(|counts| counts.len() == 2));
    for n in 2..500 {
        receipts.push(outbox.send(record(n)).await.unwrap());
    }
    held.send(()).unwrap();
    for receipt in receipts {
        receipt.stored().await.unwrap();
    }
    assert_eq!(fake.values("t"), (0..500).map(|n| n.to_string()).collect::<Vec<_>>());
    let counts = counts.lock().unwrap();
    assert_eq!(counts.iter().sum::<u32>(), 500);
    assert!(counts.len() < 10, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_batch_leaves_while_another_is_under_way() {
    let (fake, counts) = counting(|_| Verdict::Ignore);
    let options = OutboxOptions { batch_bytes: 100, in_flight_max: 3 };
    let outbox = connect(&fake).await.outbox_with("t", options);
    for n in 0..50 {
        outbox.send(record(n)).await.unwrap();
    }
    fake.wait_until(|_| counts.lock().is_ok_and(|counts| counts.len() == 3));
    let counts = counts.lock().unwrap();
    assert!(counts[1] > 1 && counts[1] == counts[2], "full ones: {counts:?}");
}

#[tokio::test]
async fn flushing_waits_for_what_was_handed_over() {
    let (fake, _) = counting(|_| Verdict::Serve);
    let outbox = connect(&fake).await.outbox("t");
    for n in 0..100 {
        outbox.send(record(n)).await.unwrap();
    }
    outbox.flush().await.unwrap();
    assert_eq!(fake.values("t").len(), 100);
    outbox.flush().await.unwrap();
}

#[tokio::test]
async fn what_was_handed_over_is_sent_though_the_outbox_is_dropped() {
    let (fake, _) = counting(|_| Verdict::Serve);
    let outbox = connect(&fake).await.outbox("t");
    let last = (0..20).map(|n| outbox.send(record(n)));
    let mut receipt = None;
    for sent in last {
        receipt = Some(sent.await.unwrap());
    }
    drop(outbox);
    receipt.unwrap().stored().await.unwrap();
    assert_eq!(fake.values("t").len(), 20);
}

#[tokio::test]
async fn a_refusal_in_passing_is_invisible_and_keeps_the_order() {
    let (fake, _) = counting(|nth| match nth {
        2 => Verdict::Refuse(Reason::Overloaded),
        3 => Verdict::Refuse(Reason::Migrating),
        _ => Verdict::Serve,
    });
    let options = OutboxOptions { in_flight_max: 1, ..OutboxOptions::default() };
    let outbox = connect(&fake).await.outbox_with("t", options);
    let mut receipts = Vec::new();
    for n in 0..10 {
        receipts.push(outbox.send(record(n)).await.unwrap());
        tokio::task::yield_now().await;
    }
    for receipt in receipts {
        receipt.stored().await.unwrap();
    }
    assert_eq!(fake.values("t"), (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn after_a_failure_nothing_overtakes_and_every_receipt_says_so() {
    let (fake, _) = counting(|nth| if nth == 2 { Verdict::Refuse(Reason::NoQuorum) } else { Verdict::Serve });
    let outbox = connect(&fake).await.outbox("t");
    outbox.send(record(0)).await.unwrap().stored().await.unwrap();
    let failed = outbox.send(record(1)).await.unwrap().stored().await.unwrap_err();
    assert!(matches!(failed, Error::Refused(Reason::NoQuorum)) && failed.effect() == Effect::Unknown);
    let later = outbox.send(record(2)).await.unwrap().stored().await;
    assert!(matches!(later, Err(Error::Refused(Reason::NoQuorum))));
    assert!(outbox.flush().await.is_err());
    assert_eq!(fake.values("t"), ["0"]);
}

#[tokio::test]
async fn a_record_no_frame_holds_harms_no_other() {
    let (fake, _) = counting(|_| Verdict::Serve);
    let fake = fake.features(0);
    let outbox = connect(&fake).await.outbox("t");
    // The fake takes frames of a mebibyte.
    let refused = outbox.send(record("x".repeat(1 << 20))).await;
    assert!(matches!(refused, Err(Error::TooLarge { .. })));
    outbox.send(record("x".repeat((1 << 20) - 100))).await.unwrap().stored().await.unwrap();
    assert_eq!(fake.values("t").len(), 1);
}
