//! The client port of a real broker, byte by byte: states, limits, timers, and what bad input is answered.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use process::Place;
use process::raw::{Raw, auth, create, fetch, frame, page, produce, text, values};
use wire::response::Reply;
use wire::{Reason, Request};

#[test]
fn the_first_frame_authenticates_or_the_connection_ends() {
    let place = Place::new();
    let _broker = place.start();
    let first = |bytes: &[u8], correlation_id, reason| {
        let mut raw = Raw::open(&place);
        raw.send(bytes);
        raw.refused(correlation_id, reason);
        raw.closed();
    };
    first(&frame(7, &fetch("t", 0)), 7, Reason::AuthRequired);
    first(&[0, 0, 0, 6, 0x7f, 0xff, 0, 0, 0, 9], 9, Reason::AuthRequired);
    first(&[0, 0, 0, 2, 0, 1], 0, Reason::AuthRequired);
    first(&[0, 0, 0, 7, 0, 0, 0, 0, 0, 1, 5], 0, Reason::AuthRequired);
    first(&frame(3, &auth("admin", "wrong")), 3, Reason::InvalidCredentials);
    first(&frame(3, &auth("nobody", "admin123")), 3, Reason::InvalidCredentials);
    first(&frame(3, &Request::Auth { username: None, password: None }), 3, Reason::InvalidCredentials);
    first(&frame(3, &Request::MtlsAuth), 3, Reason::MtlsAuthDisabled);
    first(&frame(3, &Request::TokenAuth { jwt: text("a.b.c") }), 3, Reason::OidcAuthDisabled);
    // 64 KiB and one: before anybody is known the limit is lower.
    first(&[0, 1, 0, 1], 0, Reason::FrameTooLarge);
}

#[test]
fn silence_ends_connections_on_the_timer_of_their_state() {
    let place = Place::new().with("MALACHI_AUTH_TIMEOUT_MS", "300").with("MALACHI_TCP_RECV_TIMEOUT", "600");
    let _broker = place.start();
    let started = Instant::now();
    let mut silent = Raw::open(&place);
    let mut partial = Raw::open(&place);
    partial.send(&[0, 0]);
    silent.closed();
    partial.closed();
    assert!(started.elapsed() >= Duration::from_millis(250), "{:?}", started.elapsed());
    let mut idle = Raw::logged_in(&place, "admin");
    // A long poll is not idleness, however long it takes.
    let asked = Instant::now();
    idle.request(2, &fetch("t", 1500));
    assert!(idle.reply().ok);
    assert!(asked.elapsed() >= Duration::from_millis(1400));
    idle.closed();
}

#[test]
fn bad_input_harms_nobody() {
    let place = Place::new();
    let _broker = place.start();
    let mut raw = Raw::logged_in(&place, "producer");
    raw.send(&[0, 0, 0, 2, 0, 1]);
    raw.refused(0, Reason::MalformedRequest);
    raw.send(&[0, 0, 0, 7, 0, 1, 0, 0, 0, 5, 9]);
    raw.refused(5, Reason::MalformedRequest);
    for api_key in [0_u8, 6, 12, 13, 17, 99] {
        raw.send(&[0, 0, 0, 6, 0, api_key, 0, 0, 0, 6]);
        raw.refused(6, Reason::UnknownApiKey);
    }
    raw.send(&[0, 0, 0, 6, 0, 8, 0, 0, 0, 6]);
    raw.refused(6, Reason::PermissionDenied);
    raw.request(7, &create("t"));
    assert!(raw.reply().ok, "it goes on");
    // One over the limit: refused by its prefix, and over.
    raw.send(&[1, 0, 0, 1]);
    raw.refused(0, Reason::FrameTooLarge);
    raw.closed();
    let mut other = Raw::logged_in(&place, "producer");
    other.request(8, &produce("t", &["a"]));
    assert!(other.reply().ok);
}

#[test]
fn requests_of_one_connection_take_effect_in_order() {
    let place = Place::new();
    let _broker = place.start();
    let mut raw = Raw::logged_in(&place, "admin");
    // All in one write, each needing the ones before it.
    let mut all = BytesMut::new();
    create("t").encode(1, &mut all);
    for id in 2..102 {
        produce("t", &[&id.to_string()]).encode(id, &mut all);
    }
    fetch("t", 0).encode(102, &mut all);
    produce("unknown", &["x"]).encode(103, &mut all);
    raw.send(&all);
    for id in 1..102 {
        let reply = raw.reply();
        assert_eq!((reply.correlation_id, reply.ok), (id, true));
    }
    assert_eq!(values(&page(raw.reply())), (2..102).map(|id| id.to_string()).collect::<Vec<_>>());
    raw.refused(103, Reason::NoSuchTopic);
}

#[test]
fn a_peer_that_stops_sending_still_gets_its_answers() {
    let place = Place::new();
    let _broker = place.start();
    let mut raw = Raw::logged_in(&place, "admin");
    let mut all = BytesMut::new();
    create("t").encode(1, &mut all);
    produce("t", &["a"]).encode(2, &mut all);
    fetch("unknown", 20_000).encode(3, &mut all);
    raw.send(&all);
    raw.0.shutdown(std::net::Shutdown::Write).unwrap();
    let mut ids = Vec::new();
    let started = Instant::now();
    let mut rest = Vec::new();
    raw.0.read_to_end(&mut rest).unwrap();
    let mut rest = Bytes::from(rest);
    while !rest.is_empty() {
        let body = wire::frame::take(&mut BytesMut::from(&rest[..]), 1 << 20).unwrap().unwrap();
        rest = rest.slice(4 + body.len()..);
        ids.push(Reply::split(body).unwrap().correlation_id);
    }
    assert!(started.elapsed() < Duration::from_secs(10), "nobody is left to wait for");
    // The long poll may be answered or dropped, by when the end of input is seen.
    assert!(ids.starts_with(&[1, 2]), "{ids:?}");
}

#[test]
fn a_long_poll_holds_back_its_own_connection_only() {
    let place = Place::new();
    let _broker = place.start();
    let mut waiting = Raw::logged_in(&place, "admin");
    waiting.request(1, &create("t"));
    assert!(waiting.reply().ok);
    waiting.request(2, &fetch("t", 20_000));
    waiting.request(3, &create("u"));
    let mut other = Raw::logged_in(&place, "admin");
    other.request(4, &produce("u", &["x"]));
    other.refused(4, Reason::NoSuchTopic);
    other.request(5, &produce("t", &["a"]));
    assert!(other.reply().ok);
    let polled = waiting.reply();
    assert_eq!(polled.correlation_id, 2);
    assert_eq!(page(polled).count, 1);
    assert_eq!(waiting.reply().correlation_id, 3);
}

#[test]
fn connections_are_limited_by_address_first() {
    let place = Place::new().with("MALACHI_MAX_CONN_PER_IP", "2").with("MALACHI_MAX_TOTAL_CONN", "2");
    let _broker = place.start();
    let (first, _second) = (Raw::logged_in(&place, "admin"), Raw::logged_in(&place, "admin"));
    let mut third = Raw::open(&place);
    third.refused(0, Reason::ConnectionLimitExceeded);
    third.closed();
    drop(first);
    process::wait_for("room for another connection", || {
        let mut raw = Raw::open(&place);
        raw.request(1, &auth("admin", "admin123"));
        raw.reply().ok
    });
    let place = Place::new().with("MALACHI_MAX_TOTAL_CONN", "1");
    let _broker = place.start();
    let _first = Raw::logged_in(&place, "admin");
    Raw::open(&place).refused(0, Reason::GlobalLimitExceeded);
}

#[test]
fn a_shutdown_is_announced() {
    let place = Place::new();
    let mut broker = place.start();
    let mut idle = Raw::logged_in(&place, "admin");
    let mut polling = Raw::logged_in(&place, "admin");
    polling.request(2, &fetch("t", 20_000));
    // Answered only once the poll before it was seen.
    let mut other = Raw::logged_in(&place, "admin");
    other.request(3, &create("u"));
    assert!(other.reply().ok);
    broker.terminate();
    idle.refused(0, Reason::ServerShutdown);
    idle.closed();
    polling.refused(0, Reason::ServerShutdown);
    polling.closed();
    drop(other);
    assert!(broker.wait().success());
    assert!(TcpStream::connect(("127.0.0.1", place.port)).is_err());
}

#[test]
fn health_and_readiness_answer_and_nothing_else_does() {
    let place = Place::new();
    let _broker = place.start();
    let health = place.http("/health").unwrap();
    assert!(health.starts_with("HTTP/1.1 200") && health.ends_with(r#"{"status":"ok"}"#), "{health}");
    let ready = place.http("/ready").unwrap();
    assert!(ready.contains("no-store") && ready.ends_with(r#"{"status":"ready"}"#), "{ready}");
    let other = place.http("/nothing").unwrap();
    assert!(
        other.starts_with("HTTP/1.1 404") && other.ends_with(r#"{"s":"err","reason":"not_found"}"#),
        "{other}"
    );
}

/// Whoever holds the dashboard's port with requests it never ends keeps nobody else from asking how the node is.
#[test]
fn one_address_has_a_bounded_share_of_the_dashboards_port() {
    let place = Place::new();
    let _broker = place.start();
    let half = || {
        let mut stream = TcpStream::connect(("127.0.0.1", place.dashboard)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"GET /ready HT").unwrap();
        stream
    };
    let is_closed = |stream: &mut TcpStream| match stream.read(&mut [0; 1]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    let mut held: Vec<TcpStream> = (0..128).map(|_| half()).collect();
    let began = Instant::now();
    assert!(is_closed(&mut half()), "one more is closed");
    // In the end a late head closes the others as well: on a machine that slow nothing can be told from it.
    held[127].set_nonblocking(true).unwrap();
    assert!(began.elapsed() > Duration::from_secs(4) || !is_closed(&mut held[127]), "a share is 128");
    drop(held);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !place.http("/ready").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")) {
        assert!(Instant::now() < deadline, "its share was not given back");
    }
}
