//! Reading page by page, against a scripted broker.

#![cfg(feature = "tcp")]
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

extern crate malachi_client as client;

mod fake;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use client::{Client, Consumer, Error, Options, Page, Reason, Record};
use fake::{Fake, Verdict};
use wire::{ApiKey, Request, features};

const NO_WAIT: Duration = Duration::ZERO;

fn record(value: impl ToString) -> Record {
    Record { key: None, value: value.to_string().into(), timestamp: 1, headers: Vec::new() }
}

async fn connect(fake: &Fake) -> Client {
    Client::connect(&fake.address, "user", "password").await.unwrap()
}

async fn fill(fake: &Fake, count: usize) -> Client {
    let client = connect(fake).await;
    let records: Vec<Record> = (0..count).map(record).collect();
    client.produce("t", &records).await.unwrap();
    client
}

fn values(page: &Page) -> Vec<Bytes> {
    page.decode_records().unwrap().into_iter().map(|record| record.value).collect()
}

/// Reads until a page has nothing.
async fn drain(consumer: &mut Consumer) -> Vec<Bytes> {
    let mut all = Vec::new();
    loop {
        let page = consumer.poll().await.unwrap();
        if page.count == 0 {
            return all;
        }
        all.extend(values(&page));
    }
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

#[tokio::test]
async fn a_reader_without_a_group_goes_by_cursor() {
    let fake = Fake::start().topic("t");
    let client = fill(&fake, 10).await;
    let mut consumer = client.consumer("t").max(3).wait(NO_WAIT).open().await.unwrap();
    assert_eq!(values(&consumer.poll().await.unwrap()), numbers(0..3));
    let place = consumer.position().unwrap().clone();
    assert_eq!(drain(&mut consumer).await, numbers(3..10));
    let mut again = client.consumer("t").cursor(place).wait(NO_WAIT).open().await.unwrap();
    assert_eq!(drain(&mut again).await, numbers(3..10));
    assert!(matches!(again.commit_cursor("c1".into()).await, Err(Error::Misuse(_))));
}

#[tokio::test]
async fn a_group_goes_on_where_it_committed() {
    let fake = Fake::start().topic("t");
    let client = fill(&fake, 6).await;
    let open = || client.consumer("t").group("g").max(2).wait(NO_WAIT).open();
    let mut consumer = open().await.unwrap();
    assert_eq!(values(&consumer.poll().await.unwrap()), numbers(0..2));
    consumer.commit().await.unwrap();
    assert_eq!(values(&consumer.poll().await.unwrap()), numbers(2..4), "the next page without a commit");
    let mut successor = open().await.unwrap();
    assert_eq!(drain(&mut successor).await, numbers(2..6), "what was not committed comes again");
    successor.commit().await.unwrap();
    successor.commit().await.unwrap();
    let commits = fake.with(|state| state.seen.iter().filter(|key| **key == ApiKey::Commit).count());
    assert_eq!(commits, 2, "nothing new, nothing sent");
}

#[tokio::test]
async fn a_member_reads_from_what_was_committed_and_leaves() {
    let fake = Fake::start().topic("t");
    let client = fill(&fake, 4).await;
    let builder = || client.consumer("t").group("g").member("m1").max(2).wait(NO_WAIT);
    let mut consumer = builder().open().await.unwrap();
    assert_eq!(values(&consumer.poll().await.unwrap()), numbers(0..2));
    assert_eq!(values(&consumer.poll().await.unwrap()), numbers(0..2));
    consumer.commit().await.unwrap();
    assert_eq!(values(&consumer.poll().await.unwrap()), numbers(2..4));
    assert!(matches!(consumer.seek("c0"), Err(Error::Misuse(_))));
    assert!(matches!(consumer.seek_end().await, Err(Error::Misuse(_))));
    consumer.leave().await.unwrap();
    assert_eq!(fake.with(|state| state.left.clone()), ["m1"]);
    assert!(matches!(builder().cursor("c0").open().await, Err(Error::Misuse(_))));
    assert!(matches!(client.consumer("t").member("m1").open().await, Err(Error::Misuse(_))));
}

#[tokio::test]
async fn seeking_moves_the_place_both_ways() {
    let fake = Fake::start().topic("t");
    let client = fill(&fake, 5).await;
    let mut consumer = client.consumer("t").group("g").wait(NO_WAIT).open().await.unwrap();
    consumer.seek_end().await.unwrap();
    assert_eq!(drain(&mut consumer).await, numbers(0..0));
    consumer.seek_time(3).await.unwrap();
    assert_eq!(drain(&mut consumer).await, numbers(3..5));
    consumer.seek_beginning().await.unwrap();
    assert_eq!(drain(&mut consumer).await, numbers(0..5));
    consumer.seek("c4").unwrap();
    consumer.commit().await.unwrap();
    let mut successor = client.consumer("t").group("g").wait(NO_WAIT).open().await.unwrap();
    assert_eq!(drain(&mut successor).await, numbers(4..5), "a place sought can be committed");
}

#[tokio::test]
async fn refusals_that_pass_are_repeated_and_told() {
    let mut refusals = vec![Reason::NotOwner, Reason::Migrating, Reason::Overloaded, Reason::NotOwner];
    let fake = Fake::scripted(move |request| match request {
        Request::Fetch(_) => refusals.pop().map_or(Verdict::Serve, Verdict::Refuse),
        _ => Verdict::Serve,
    })
    .topic("t");
    let client = fill(&fake, 1).await;
    let mut consumer = client.consumer("t").group("g").member("m").wait(NO_WAIT).open().await.unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&told);
    consumer.on_retry(move |error| hook.lock().unwrap().push(error.to_string()));
    assert_eq!(values(&consumer.poll().await.unwrap()), numbers(0..1));
    assert_eq!(*told.lock().unwrap(), ["not_owner", "overloaded", "migrating", "not_owner"]);
}

#[tokio::test]
async fn what_does_not_pass_comes_back_at_once() {
    let fake = Fake::scripted(|request| match request {
        Request::Fetch(_) => Verdict::Refuse(Reason::PermissionDenied),
        Request::Commit(_) => Verdict::Refuse(Reason::TooManyGroups),
        _ => Verdict::Serve,
    });
    let mut consumer = connect(&fake).await.consumer("t").group("g").wait(NO_WAIT).open().await.unwrap();
    assert!(matches!(consumer.poll().await, Err(Error::Refused(Reason::PermissionDenied))));
    let refused = consumer.commit_cursor("c0".into()).await;
    assert!(matches!(refused, Err(Error::Refused(Reason::TooManyGroups))));
}

#[tokio::test]
async fn a_lost_connection_is_replaced_without_a_gap_or_a_repeat() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let fake = Fake::scripted(move |request| match request {
        Request::Fetch(_) | Request::Commit(_) => {
            if counter.fetch_add(1, Ordering::Relaxed) % 3 == 1 {
                Verdict::Close
            } else {
                Verdict::Serve
            }
        }
        _ => Verdict::Serve,
    })
    .topic("t");
    let client = fill(&fake, 12).await;
    let mut consumer = client.consumer("t").group("g").max(2).wait(NO_WAIT).open().await.unwrap();
    let mut all = Vec::new();
    while all.len() < 12 {
        all.extend(values(&consumer.poll().await.unwrap()));
        consumer.commit().await.unwrap();
    }
    assert_eq!(all, numbers(0..12));
    assert!(fake.with(|state| state.logins) > 3, "connections were lost");
}

#[tokio::test]
async fn a_broker_that_stays_away_is_reported_after_the_time_given() {
    let fake = Fake::scripted(|request| match request {
        Request::Fetch(_) => Verdict::Close,
        _ => Verdict::Serve,
    })
    .topic("t");
    for reconnect_for in [Duration::ZERO, Duration::from_millis(300)] {
        let mut options = Options::new(&fake.address, "user", "password");
        options.reconnect_for = reconnect_for;
        let client = Client::connect_with(options).await.unwrap();
        let mut consumer = client.consumer("t").wait(NO_WAIT).open().await.unwrap();
        let tries = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&tries);
        consumer.on_retry(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let error = consumer.poll().await.unwrap_err();
        assert!(error.is_network(), "{error}");
        assert_eq!(tries.load(Ordering::Relaxed) > 0, !reconnect_for.is_zero());
    }
}

#[tokio::test]
async fn checksums_are_used_and_compared_when_the_broker_has_them() {
    let fake = Fake::start().topic("t").features(features::BATCHES);
    let client = fill(&fake, 3).await;
    assert_eq!(client.server().unwrap().server, "fake/1");
    let mut consumer = client.consumer("t").wait(NO_WAIT).open().await.unwrap();
    assert_eq!(drain(&mut consumer).await, numbers(0..3));
    let seen = fake.with(|state| std::mem::take(&mut state.seen));
    assert_eq!(seen, [ApiKey::ProduceBatch, ApiKey::FetchBatches, ApiKey::FetchBatches]);
    let fetch = client::Fetch { topic: Some("t".into()), ..client::Fetch::default() };
    assert!(client.fetch_batches(fetch).await.unwrap().batches.iter().all(|batch| batch.append_time == 7));

    fake.with(|state| state.damages = true);
    consumer.seek_beginning().await.unwrap();
    assert!(matches!(consumer.poll().await, Err(Error::Protocol(_))));

    let mut options = Options::new(&fake.address, "user", "password");
    options.checksums = false;
    let client = Client::connect_with(options).await.unwrap();
    client.produce("t", &[record("plain")]).await.unwrap();
    let mut consumer = client.consumer("t").wait(NO_WAIT).open().await.unwrap();
    assert_eq!(drain(&mut consumer).await.len(), 4);
}
