//! A producer sends again what was not answered, and nothing is stored twice.

#![cfg(feature = "tcp")]
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

extern crate malachi_client as client;

mod fake;

use std::time::Duration;

use client::{Batch, Client, Effect, Error, Options, Record};
use client::{Reason, Request, features};
use fake::{Fake, Verdict};
use wire::ApiKey;

const FEATURES: u64 = features::BATCHES | features::ONCE;

fn record(value: &str) -> Record {
    Record { key: None, value: value.to_owned().into(), timestamp: 1, headers: Vec::new() }
}

fn batch(values: &[&str]) -> Batch {
    values.iter().map(|value| record(value)).collect::<Vec<_>>().iter().collect()
}

async fn connect(fake: &Fake) -> Client {
    Client::connect_with(Options::new(&fake.address, "app", "app123")).await.unwrap()
}

/// What becomes of the n-th request with a stamp; the others are served.
fn on_nth(n: usize, verdict: impl Fn() -> Verdict + Send + 'static) -> Fake {
    let mut seen = 0;
    let script = move |request: &Request| {
        let Request::ProduceOnce(_) = request else { return Verdict::Serve };
        seen += 1;
        if seen == n { verdict() } else { Verdict::Serve }
    };
    Fake::scripted(script).topic("t").features(FEATURES)
}

#[tokio::test]
async fn what_is_lost_with_its_connection_is_sent_again_and_stored_once() {
    for verdict in [|| Verdict::ServeAndClose, || Verdict::Close] {
        let fake = on_nth(2, verdict);
        let mut producer = connect(&fake).await.producer("t", 1);
        for value in ["a", "b", "c"] {
            producer.send(batch(&[value])).await.unwrap();
        }
        producer.flush().await.unwrap();
        assert_eq!(fake.values("t"), ["a", "b", "c"]);
        assert_eq!(producer.progress().stored_in_front, 3);
        let firsts: Vec<u32> = fake.with(|state| state.stamps.iter().map(|stamp| stamp.first).collect());
        assert_eq!(firsts, [0, 1, 1, 2], "the same number");
        let stamps = fake.with(|state| (state.stamps[1], state.stamps[2]));
        assert_eq!(stamps.0, stamps.1, "and the same time of birth");
        assert_eq!(fake.with(|state| state.producers), 1);
    }
}

#[tokio::test]
async fn everything_under_way_is_sent_again_in_order() {
    let fake = on_nth(3, || Verdict::ServeAndClose);
    let mut producer = connect(&fake).await.producer("t", 8);
    let values: Vec<String> = (0..20).map(|n| format!("v{n:02}")).collect();
    for value in &values {
        producer.send(batch(&[value])).await.unwrap();
    }
    producer.flush().await.unwrap();
    assert_eq!(fake.values("t"), values);
    assert_eq!((producer.progress().stored, producer.progress().stored_in_front), (20, 20));
}

#[tokio::test]
async fn an_outcome_that_is_not_known_is_made_known() {
    for reason in [Reason::Timeout, Reason::NoQuorum, Reason::Storage, Reason::Unavailable, Reason::Sealed] {
        let fake = on_nth(1, move || Verdict::Refuse(reason));
        let mut producer = connect(&fake).await.producer("t", 1);
        producer.send(batch(&["a", "b"])).await.unwrap();
        producer.flush().await.unwrap();
        assert_eq!(fake.values("t"), ["a", "b"], "{reason}");
    }
}

#[tokio::test]
async fn another_broker_is_asked_when_one_is_gone() {
    let gone = Fake::scripted(|request| match request {
        Request::ProduceOnce(_) => Verdict::Close,
        _ => Verdict::Serve,
    });
    let gone = gone.topic("t").features(FEATURES);
    let other = Fake::start().topic("t").features(FEATURES);
    let options =
        Options { others: vec![other.address.clone()], ..Options::new(&gone.address, "app", "app123") };
    let client = Client::connect_with(options).await.unwrap();
    let mut producer = client.producer("t", 1);
    producer.send(batch(&["a"])).await.unwrap();
    producer.flush().await.unwrap();
    assert_eq!(other.values("t"), ["a"]);
    let sent = gone.with(|state| state.stamps[0]);
    assert_eq!(other.with(|state| state.stamps[0]), sent);
}

#[tokio::test]
async fn what_was_never_stored_is_sent_under_another_name_when_the_first_is_forgotten() {
    let fake = on_nth(1, || Verdict::Refuse(Reason::ProducerForgotten));
    let mut producer = connect(&fake).await.producer("t", 1);
    producer.send(batch(&["a"])).await.unwrap();
    producer.flush().await.unwrap();
    assert_eq!(fake.values("t"), ["a"]);
    assert_eq!(fake.with(|state| state.producers), 2);
}

#[tokio::test]
async fn what_may_be_stored_and_is_forgotten_is_told_as_one_error_and_not_sent_again() {
    let mut tries = 0;
    let fake = Fake::scripted(move |request| {
        let Request::ProduceOnce(_) = request else { return Verdict::Serve };
        tries += 1;
        match tries {
            1 => Verdict::ServeAndClose,
            _ => Verdict::Refuse(Reason::ProducerForgotten),
        }
    });
    let fake = fake.topic("t").features(FEATURES);
    let mut producer = connect(&fake).await.producer("t", 1);
    producer.send(batch(&["a"])).await.unwrap();
    let error = producer.flush().await.unwrap_err();
    assert_eq!((error.reason(), error.effect()), (Some(Reason::ProducerForgotten), Effect::Unknown));
    assert!(matches!(error, Error::InDoubt(_)), "{error:?}");
    assert_eq!((producer.progress().unknown, producer.progress().refused), (1, 0));
    assert_eq!(fake.with(|state| state.stamps.len()), 2);
    assert_eq!(fake.values("t"), ["a"]);
}

#[tokio::test]
async fn it_ends_when_it_was_tried_for_long_enough() {
    let fake = Fake::scripted(|request| match request {
        Request::ProduceOnce(_) => Verdict::Refuse(Reason::NoQuorum),
        _ => Verdict::Serve,
    });
    let fake = fake.topic("t").features(FEATURES);
    let options =
        Options { retry_for: Duration::from_millis(1), ..Options::new(&fake.address, "app", "app123") };
    let mut producer = Client::connect_with(options).await.unwrap().producer("t", 1);
    producer.send(batch(&["a"])).await.unwrap();
    let error = producer.flush().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::NoQuorum));
    assert_eq!(producer.progress().unknown, 1);
}

#[tokio::test]
async fn an_older_broker_and_whoever_does_not_want_it_see_no_stamps() {
    let old = Fake::start().topic("t").features(features::BATCHES);
    let new = Fake::start().topic("t").features(FEATURES);
    for (fake, idempotent) in [(&old, true), (&new, false)] {
        let options = Options { idempotent, ..Options::new(&fake.address, "app", "app123") };
        let mut producer = Client::connect_with(options).await.unwrap().producer("t", 2);
        producer.send(batch(&["a"])).await.unwrap();
        producer.flush().await.unwrap();
        assert_eq!(fake.with(|state| state.seen.clone()), [ApiKey::ProduceBatch]);
    }
    let outbox = connect(&new).await.outbox("t");
    outbox.send(record("b")).await.unwrap().stored().await.unwrap();
    assert!(new.with(|state| state.seen.contains(&ApiKey::ProduceOnce)), "an outbox does the same");
}
