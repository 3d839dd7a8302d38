//! Pushed records, against a scripted broker.

#![cfg(feature = "tcp")]
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

extern crate malachi_client as client;

mod fake;

use std::time::Duration;

use bytes::Bytes;
use client::{Client, Error, Options, Reason, Record, Subscription};
use fake::{Fake, Verdict};
use wire::Request;

fn record(value: impl ToString) -> Record {
    Record { key: None, value: value.to_string().into(), timestamp: 1, headers: Vec::new() }
}

async fn connect(fake: &Fake) -> Client {
    Client::connect(&fake.address, "user", "password").await.unwrap()
}

async fn fill(fake: &Fake, range: std::ops::Range<usize>) -> Client {
    let client = connect(fake).await;
    let records: Vec<Record> = range.map(record).collect();
    client.produce("t", &records).await.unwrap();
    client
}

async fn next(subscription: &mut Subscription) -> Vec<Bytes> {
    let page = tokio::time::timeout(Duration::from_secs(10), subscription.next()).await;
    let page = page.expect("records come").unwrap();
    assert!(page.count > 0);
    page.decode_records().unwrap().into_iter().map(|record| record.value).collect()
}

async fn take(subscription: &mut Subscription, count: usize) -> Vec<Bytes> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(next(subscription).await);
    }
    all
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

fn committed(fake: &Fake) -> usize {
    fake.with(|state| state.positions.get(&("t".into(), "g".into())).copied().unwrap_or(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_come_in_order_within_the_window_and_are_committed_as_they_are_dealt_with() {
    let fake = Fake::start().topic("t");
    let client = fill(&fake, 0..25).await;
    let mut subscription = client.subscription("t", b"g").window(10).max(4).open();
    assert_eq!(next(&mut subscription).await, numbers(0..4));
    assert_eq!(committed(&fake), 0, "nothing is committed before it was dealt with");
    assert_eq!(take(&mut subscription, 21).await, numbers(4..25));
    subscription.close().await;
    assert!(committed(&fake) < 25, "the last page was not dealt with");

    let mut subscription = client.subscription("t", b"g").open();
    let rest = next(&mut subscription).await;
    assert_eq!(rest.last().unwrap(), "24");
    subscription.ack().await.unwrap();
    client.produce("t", &[record(25)]).await.unwrap();
    assert_eq!(next(&mut subscription).await, numbers(25..26), "new records come by themselves");
    subscription.ack().await.unwrap();
    subscription.close().await;
    fake.wait_until(|state| state.positions[&("t".into(), "g".into())] == 26);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_says_that_it_is_alive() {
    let fake = Fake::start().topic("t");
    let client = connect(&fake).await;
    let heartbeat = Duration::from_millis(5);
    let silent = client.subscription("t", b"g").heartbeat(heartbeat).open();
    let member = client.subscription("t", b"g").member("m1").heartbeat(heartbeat).open();
    fake.wait_until(|state| state.heartbeats.len() >= 10);
    // Without a member there is nothing to say.
    assert!(fake.with(|state| state.heartbeats.iter().all(|name| name.as_deref() == Some(b"m1"))));
    silent.close().await;
    member.close().await;
}

#[tokio::test]
async fn what_was_not_acknowledged_comes_again_on_a_new_connection() {
    let mut acks = 0;
    let fake = Fake::scripted(move |request| match request {
        Request::StreamAck(_) => {
            acks += 1;
            if acks % 3 == 0 { Verdict::Close } else { Verdict::Serve }
        }
        _ => Verdict::Serve,
    })
    .topic("t");
    let client = fill(&fake, 0..40).await;
    let mut subscription = client.subscription("t", b"g").window(4).max(2).open();
    let mut seen: Vec<usize> = Vec::new();
    while seen.last() != Some(&39) {
        for value in next(&mut subscription).await {
            seen.push(String::from_utf8(value.to_vec()).unwrap().parse().unwrap());
        }
    }
    let mut distinct = seen.clone();
    distinct.dedup();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct, (0..40).collect::<Vec<_>>(), "nothing is skipped");
    assert!(seen.len() > 40, "what was in doubt came again: {seen:?}");
    assert!(seen.windows(2).all(|two| two[1] <= two[0] + 1), "and never ahead of its turn: {seen:?}");
    assert!(fake.with(|state| state.logins) > 3);
}

#[tokio::test]
async fn a_refused_subscription_says_why() {
    for reason in [Reason::PermissionDenied, Reason::InvalidGroup] {
        let fake = Fake::scripted(move |request| match request {
            Request::Subscribe(_) => Verdict::Refuse(reason),
            _ => Verdict::Serve,
        });
        let mut subscription = connect(&fake).await.subscription("t", b"g").open();
        assert!(matches!(subscription.next().await, Err(Error::Refused(said)) if said == reason));
        assert!(matches!(subscription.next().await, Err(Error::Closed)));
        assert_eq!(fake.with(|state| state.seen.len()), 1, "it was not tried again");
    }
}

#[tokio::test]
async fn not_owner_is_tried_again_for_members_alone() {
    let refuse_once = || {
        let mut refusals = 1;
        Fake::scripted(move |request| match request {
            Request::Subscribe(_) if refusals > 0 => {
                refusals -= 1;
                Verdict::Refuse(Reason::NotOwner)
            }
            _ => Verdict::Serve,
        })
        .topic("t")
    };
    let fake = refuse_once();
    let client = fill(&fake, 0..1).await;
    let (told, telling) = std::sync::mpsc::channel();
    let builder = client.subscription("t", b"g").member("m");
    let mut subscription = builder.open_with(move |error| told.send(error.to_string()).unwrap());
    assert_eq!(next(&mut subscription).await, numbers(0..1));
    assert_eq!(telling.try_iter().collect::<Vec<_>>(), ["not_owner"]);
    let fake = refuse_once();
    let mut subscription = connect(&fake).await.subscription("t", b"g").open();
    assert!(matches!(subscription.next().await, Err(Error::Refused(Reason::NotOwner))));
}

#[tokio::test]
async fn credit_that_was_refused_in_passing_is_returned_again() {
    let mut refusals = 2;
    let fake = Fake::scripted(move |request| match request {
        Request::StreamAck(ack) if ack.count > 0 && refusals > 0 => {
            refusals -= 1;
            Verdict::Refuse(Reason::NotOwner)
        }
        _ => Verdict::Serve,
    })
    .topic("t");
    let client = fill(&fake, 0..12).await;
    // A window of two pages: without the refused credit the stream would stop.
    let mut subscription = client.subscription("t", b"g").member("m").window(4).max(2).open();
    assert_eq!(take(&mut subscription, 12).await, numbers(0..12));
    assert_eq!(fake.with(|state| state.logins), 2, "on the same connection");
}

#[tokio::test]
async fn an_acknowledgement_refused_for_good_ends_the_subscription() {
    let fake = Fake::scripted(|request| match request {
        Request::StreamAck(_) => Verdict::Refuse(Reason::InvalidCursor),
        _ => Verdict::Serve,
    })
    .topic("t");
    let client = fill(&fake, 0..2).await;
    let mut subscription = client.subscription("t", b"g").window(2).open();
    next(&mut subscription).await;
    assert!(matches!(subscription.next().await, Err(Error::Refused(Reason::InvalidCursor))));
}

#[tokio::test]
async fn a_stream_the_broker_ends_says_why() {
    let fake = Fake::scripted(|request| match request {
        Request::StreamAck(_) => Verdict::Raw(b"permission_denied".to_vec()),
        _ => Verdict::Serve,
    })
    .topic("t");
    let client = fill(&fake, 0..2).await;
    let mut subscription = client.subscription("t", b"g").open();
    next(&mut subscription).await;
    assert!(matches!(subscription.next().await, Err(Error::Refused(Reason::PermissionDenied))));
}

#[tokio::test]
async fn a_shutdown_is_survived_when_the_broker_comes_back_and_told_when_it_is_not() {
    let script = || {
        let mut ending = true;
        Fake::scripted(move |request| match request {
            Request::StreamAck(_) if std::mem::take(&mut ending) => Verdict::LastWord(Reason::ServerShutdown),
            _ => Verdict::Serve,
        })
        .topic("t")
    };
    let fake = script();
    let client = fill(&fake, 0..2).await;
    let mut subscription = client.subscription("t", b"g").window(1).open();
    assert_eq!(next(&mut subscription).await, numbers(0..1));
    assert_eq!(next(&mut subscription).await, numbers(0..1), "its acknowledgement was lost");
    assert_eq!(next(&mut subscription).await, numbers(1..2));

    let fake = script();
    fill(&fake, 0..2).await;
    let mut options = Options::new(&fake.address, "user", "password");
    options.reconnect_for = Duration::ZERO;
    let client = Client::connect_with(options).await.unwrap();
    let mut subscription = client.subscription("t", b"g").window(1).open();
    next(&mut subscription).await;
    assert!(matches!(subscription.next().await, Err(Error::Refused(Reason::ServerShutdown))));
}
