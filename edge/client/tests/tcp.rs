//! The client over real sockets, against a scripted broker.

#![cfg(feature = "tcp")]
#![allow(clippy::unwrap_used)]

extern crate malachi_client as client;

mod fake;

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use client::{Batch, Client, Effect, Error, Fetch, Options, Progress, Reason, Record};
use fake::{Fake, Verdict};
use wire::Request;

fn record(value: &str) -> Record {
    Record { key: None, value: Bytes::copy_from_slice(value.as_bytes()), timestamp: 1, headers: Vec::new() }
}

fn batch(value: &str) -> Batch {
    [&record(value)].into_iter().collect()
}

async fn connect(fake: &Fake) -> Client {
    Client::connect(&fake.address, "user", "password").await.unwrap()
}

fn value_of(request: &Request) -> Option<String> {
    let Request::Produce(produce) = request else { return None };
    let record = Record::decode(&mut types::codec::Reader::new(produce.records.clone())).unwrap();
    Some(String::from_utf8(record.value.to_vec()).unwrap())
}

#[tokio::test]
async fn records_go_in_and_come_out() {
    let fake = Fake::start();
    let client = connect(&fake).await;
    client.create_topic("t", 0).await.unwrap();
    assert!(matches!(client.create_topic("t", 0).await, Err(Error::Refused(Reason::AlreadyExists))));
    assert_eq!(client.produce("t", &[record("a"), record("b"), record("c")]).await.unwrap(), 3);

    let fetch = Fetch { topic: Some("t".into()), group: Some("g".into()), max: 2, ..Fetch::default() };
    let page = client.fetch(fetch.clone()).await.unwrap();
    assert_eq!(page.decode_records().unwrap(), [record("a"), record("b")]);
    client.commit("t", b"g", page.next_cursor).await.unwrap();
    let page = client.fetch(fetch).await.unwrap();
    assert_eq!(page.decode_records().unwrap(), [record("c")]);
}

#[tokio::test]
async fn a_wrong_password_and_a_closed_port_are_told_apart() {
    let fake = Fake::start();
    let refused = Client::connect(&fake.address, "user", "wrong").await;
    assert!(matches!(refused, Err(Error::Refused(Reason::InvalidCredentials))));

    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Client::connect(&port.to_string(), "user", "password").await.unwrap_err();
    assert!(error.is_network() && error.effect() == Effect::None);
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_broker_that_never_answers_is_given_up() {
    let fake = Fake::scripted(|_| Verdict::Ignore).topic("t");
    let mut options = Options::new(&fake.address, "user", "password");
    options.request_timeout = Duration::from_millis(50);
    let client = Client::connect_with(options).await.unwrap();
    let error = client.produce("t", &[record("a")]).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut) && error.effect() == Effect::Unknown);
}

#[tokio::test]
async fn a_pipelined_producer_keeps_the_order_and_counts() {
    let fake = Fake::start().topic("t");
    let mut producer = connect(&fake).await.producer("t", 8);
    let values: Vec<String> = (0..500).map(|n| n.to_string()).collect();
    for value in &values {
        producer.send(batch(value)).await.unwrap();
    }
    producer.flush().await.unwrap();
    let expected = Progress { stored: 500, stored_in_front: 500, ..Progress::default() };
    assert_eq!(producer.progress(), expected);
    assert_eq!(fake.values("t"), values);
}

#[tokio::test]
async fn what_the_broker_had_no_room_for_is_sent_again() {
    let mut refusals = 2;
    let fake = Fake::scripted(move |request| {
        if value_of(request).as_deref() == Some("1") && refusals > 0 {
            refusals -= 1;
            return Verdict::Refuse(Reason::Overloaded);
        }
        Verdict::Serve
    })
    .topic("t");
    let mut producer = connect(&fake).await.producer("t", 1);
    let retries = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&retries);
    producer.on_retry(move |reason| {
        assert_eq!(reason, Reason::Overloaded);
        counter.fetch_add(1, Ordering::Relaxed);
    });
    for value in ["0", "1", "2", "3"] {
        producer.send(batch(value)).await.unwrap();
    }
    producer.flush().await.unwrap();
    assert_eq!(retries.load(Ordering::Relaxed), 2);
    assert_eq!(fake.values("t"), ["0", "1", "2", "3"]);
    let expected = Progress { stored: 4, stored_in_front: 4, ..Progress::default() };
    assert_eq!(producer.progress(), expected);
}

#[tokio::test]
async fn overtaking_by_pipelining_is_counted() {
    let mut refused = false;
    let fake = Fake::scripted(move |request| {
        if value_of(request).as_deref() == Some("1") && !refused {
            refused = true;
            return Verdict::Refuse(Reason::Overloaded);
        }
        Verdict::Serve
    })
    .topic("t");
    let mut producer = connect(&fake).await.producer("t", 4);
    for value in ["0", "1", "2", "3"] {
        producer.send(batch(value)).await.unwrap();
    }
    producer.flush().await.unwrap();
    assert_eq!(fake.values("t"), ["0", "2", "3", "1"]);
    let expected = Progress { stored: 4, stored_in_front: 4, overtaken: 2, ..Progress::default() };
    assert_eq!(producer.progress(), expected);
}

#[tokio::test]
async fn a_failure_says_what_is_certainly_stored() {
    let fake = Fake::scripted(|request| match value_of(request).as_deref() {
        Some("1") => Verdict::Refuse(Reason::NoQuorum),
        Some("3") => Verdict::Refuse(Reason::PermissionDenied),
        Some(_) | None => Verdict::Serve,
    })
    .topic("t");
    let mut producer = connect(&fake).await.producer("t", 4);
    for value in ["0", "1", "2", "3"] {
        producer.send(batch(value)).await.unwrap();
    }
    assert!(matches!(producer.flush().await, Err(Error::Refused(Reason::NoQuorum))));
    let expected = Progress { stored: 2, stored_in_front: 1, unknown: 1, refused: 1, overtaken: 1 };
    assert_eq!(producer.progress(), expected);
    assert!(producer.send(batch("4")).await.is_err(), "nothing is sent after a failure");
    assert_eq!(fake.values("t"), ["0", "2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_overtakes_a_lost_request_on_a_new_connection() {
    let fake = Fake::scripted(|request| match value_of(request).as_deref() {
        Some("1") => Verdict::Close,
        Some(_) | None => Verdict::Serve,
    })
    .topic("t");
    let mut producer = connect(&fake).await.producer("t", 64);
    let mut failed = false;
    for n in 0..200 {
        failed |= producer.send(batch(&n.to_string())).await.is_err();
        // Lets the loss become known between two requests.
        tokio::task::yield_now().await;
    }
    failed |= producer.flush().await.is_err();
    assert!(failed);
    assert_eq!(fake.values("t"), ["0"]);
    let progress = producer.progress();
    // Whether the answer to the first one was read before the connection broke is a matter of luck.
    assert!(progress.stored <= 1 && progress.stored_in_front == progress.stored, "{progress:?}");
}

#[tokio::test]
async fn the_brokers_last_word_is_the_reason_of_everything_in_flight() {
    let fake = Fake::scripted(|_| Verdict::LastWord(Reason::ServerShutdown)).topic("t");
    let client = connect(&fake).await;
    let (a, b) = ([record("a")], [record("b")]);
    let (first, second) = tokio::join!(client.produce("t", &a), client.produce("t", &b));
    for result in [first, second] {
        assert!(matches!(result, Err(Error::Refused(Reason::ServerShutdown))), "{result:?}");
    }
}

#[tokio::test]
async fn a_lost_connection_is_replaced_for_the_next_request() {
    let mut first = true;
    let fake =
        Fake::scripted(
            move |_| {
                if std::mem::take(&mut first) { Verdict::ServeAndClose } else { Verdict::Serve }
            },
        )
        .topic("t");
    let client = connect(&fake).await;
    let lost = client.produce("t", &[record("a")]).await.unwrap_err();
    assert!(lost.is_network() && lost.effect() == Effect::Unknown, "{lost}");
    assert_eq!(client.produce("t", &[record("b")]).await.unwrap(), 1);
    assert_eq!(fake.values("t"), ["a", "b"]);
    assert_eq!(fake.state.lock().unwrap().logins, 2);
}

#[tokio::test]
async fn nonsense_ends_the_connection_and_not_the_client() {
    let mut first = true;
    let fake = Fake::scripted(move |_| {
        if std::mem::take(&mut first) { Verdict::Raw(vec![0, 0, 0, 1, 9]) } else { Verdict::Serve }
    })
    .topic("t");
    let client = connect(&fake).await;
    assert!(matches!(client.produce("t", &[record("a")]).await, Err(Error::Protocol(_))));
    assert_eq!(client.produce("t", &[record("b")]).await.unwrap(), 1);
}

#[tokio::test]
async fn requests_in_flight_are_bounded() {
    let (arrived, arrivals) = mpsc::channel();
    let fake = Fake::scripted(move |_| {
        arrived.send(()).unwrap();
        Verdict::Ignore
    })
    .topic("t");
    let mut options = Options::new(&fake.address, "user", "password");
    options.in_flight_max = 3;
    let client = Client::connect_with(options).await.unwrap();
    for n in 0..20 {
        let client = client.clone();
        tokio::spawn(async move { client.produce("t", &[record(&n.to_string())]).await });
    }
    let count = tokio::task::spawn_blocking(move || {
        let mut count = 0;
        // Three arrive; that no fourth does can only be seen by waiting a little.
        while arrivals.recv_timeout(Duration::from_millis(if count < 3 { 5000 } else { 100 })).is_ok() {
            count += 1;
        }
        count
    });
    assert_eq!(count.await.unwrap(), 3);
}
