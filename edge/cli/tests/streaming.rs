//! An open stream, frame by frame: what it takes, what it sends, how it ends.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use std::time::{Duration, Instant};

use bytes::BytesMut;
use process::Place;
use process::raw::{Raw, auth, create, fetch, frame, page, produce, stream_ack, subscribe, text, values};
use wire::{Reason, Request};

/// Correlation ids of the subscription and of what goes wrong.
const STREAM: u32 = 20;

fn with_topic(place: &Place) -> Raw {
    let mut admin = Raw::logged_in(place, "admin");
    admin.request(2, &create("t"));
    assert!(admin.reply().ok);
    admin
}

fn store(admin: &mut Raw, values: &[&str]) {
    admin.request(3, &produce("t", values));
    assert!(admin.reply().ok);
}

#[test]
fn records_are_pushed_under_the_subscription_as_far_as_the_credit_goes() {
    let place = Place::new();
    let _broker = place.start();
    let mut admin = with_topic(&place);
    store(&mut admin, &["a", "b", "c"]);
    let mut stream = Raw::logged_in(&place, "consumer");
    stream.request(STREAM, &subscribe("t", "g", 2));
    // Accepted without a word: the first that comes is a push of what the window allows.
    let push = stream.reply();
    assert_eq!((push.correlation_id, push.ok), (STREAM, true));
    let push = page(push);
    assert_eq!(values(&push), ["a", "b"]);
    stream.request(21, &stream_ack("t", "g", Some(push.next_cursor), 2));
    let push = page(stream.reply());
    assert_eq!(values(&push), ["c"]);
    stream.request(22, &stream_ack("t", "g", Some(push.next_cursor), 1));
    store(&mut admin, &["d"]);
    assert_eq!(values(&page(stream.reply())), ["d"], "pushed when it comes");
    drop(stream);
    // What was acknowledged was committed.
    process::wait_for("the positions of the group", || {
        let of_group = Request::Fetch(wire::request::Fetch {
            topic: text("t"),
            group: text("g"),
            ..wire::request::Fetch::default()
        });
        admin.request(4, &of_group);
        values(&page(admin.reply())) == ["d"]
    });
}

#[test]
fn a_stream_takes_acknowledgements_and_survives_everything_else() {
    let place = Place::new();
    let _broker = place.start();
    let mut admin = with_topic(&place);
    let mut stream = Raw::logged_in(&place, "consumer");
    // What comes in the same write after the subscription is under the rules of the stream.
    let mut all = BytesMut::new();
    subscribe("t", "g", 0).encode(STREAM, &mut all);
    fetch("t", 0).encode(21, &mut all);
    subscribe("t", "g", 0).encode(22, &mut all);
    let leave = Request::LeaveGroup { topic: text("t"), group: text("g"), member: text("m") };
    leave.encode(23, &mut all);
    all.extend_from_slice(&[0, 0, 0, 6, 0x7f, 0xff, 0, 0, 0, 24]);
    stream.send(&all);
    for unexpected in [21, 22, 23, 24] {
        stream.refused(unexpected, Reason::UnexpectedFrame);
    }
    // An acknowledgement cut short, and a body without an envelope: nobody to attribute it to.
    stream.send(&[0, 0, 0, 7, 0, 6, 0, 0, 0, 25, 1]);
    stream.refused(0, Reason::MalformedRequest);
    stream.send(&[0, 0, 0, 2, 0, 6]);
    stream.refused(0, Reason::MalformedRequest);
    stream.request(26, &stream_ack("t", "g", text("no cursor"), 1));
    stream.refused(26, Reason::InvalidCursor);
    stream.request(27, &stream_ack("t", "other", None, 1));
    stream.refused(27, Reason::UnexpectedFrame);
    // A heartbeat is answered by nothing; the stream goes on.
    stream.request(28, &stream_ack("t", "g", None, 0));
    store(&mut admin, &["a"]);
    let push = stream.reply();
    assert_eq!(push.correlation_id, STREAM);
    assert_eq!(values(&page(push)), ["a"]);
    stream.send(&[0x7f, 0xff, 0xff, 0xff]);
    stream.refused(0, Reason::FrameTooLarge);
    stream.closed();
}

#[test]
fn a_refused_subscription_leaves_the_connection_as_it_was() {
    let place = Place::new();
    let _broker = place.start();
    let mut admin = with_topic(&place);
    let mut producer = Raw::logged_in(&place, "producer");
    producer.request(STREAM, &subscribe("t", "g", 0));
    producer.refused(STREAM, Reason::PermissionDenied);
    producer.request(21, &stream_ack("t", "g", None, 0));
    producer.refused(21, Reason::UnknownApiKey);
    producer.request(22, &produce("t", &["a"]));
    assert!(producer.reply().ok);
    let no_group =
        wire::request::Subscribe { topic: text("t"), group: None, member: None, window: 0, max: 0 };
    admin.request(STREAM, &Request::Subscribe(no_group));
    admin.refused(STREAM, Reason::InvalidGroup);
    admin.request(23, &fetch("t", 0));
    assert_eq!(values(&page(admin.reply())), ["a"]);
}

#[test]
fn a_quiet_stream_stays_open_and_a_shutdown_ends_it() {
    let place = Place::new().with("MALACHI_TCP_RECV_TIMEOUT", "200");
    let mut broker = place.start();
    let mut admin = with_topic(&place);
    let mut stream = Raw::logged_in(&place, "consumer");
    stream.request(STREAM, &subscribe("t", "g", 0));
    let started = Instant::now();
    // A connection without a stream is closed by the same timer.
    Raw::logged_in(&place, "consumer").closed();
    admin.closed();
    assert!(started.elapsed() >= Duration::from_millis(150));
    let mut admin = Raw::logged_in(&place, "admin");
    store(&mut admin, &["a"]);
    assert_eq!(values(&page(stream.reply())), ["a"]);
    broker.terminate();
    stream.refused(0, Reason::ServerShutdown);
    stream.closed();
    assert!(broker.wait().success());
}

#[test]
fn a_stream_of_a_user_that_is_gone_is_told_so_and_closed() {
    let place = Place::new();
    let mut broker = place.start();
    broker.expect("account locked");
    let mut admin = with_topic(&place);
    let create = |password: &str| Request::CreateUser {
        username: text("guest"),
        password: text(password),
        permissions: vec![text("consume")],
    };
    admin.request(4, &create("guest123"));
    assert!(admin.reply().ok);
    let mut stream = Raw::logged_in(&place, "guest");
    stream.request(STREAM, &subscribe("t", "g", 0));
    let mut idle = Raw::logged_in(&place, "guest");
    store(&mut admin, &["a"]);
    assert_eq!(values(&page(stream.reply())), ["a"]);
    admin.request(5, &Request::DeleteUser { username: text("guest") });
    assert!(admin.reply().ok);
    stream.refused(STREAM, Reason::PermissionDenied);
    stream.closed();
    idle.closed();
    let mut again = Raw::open(&place);
    again.send(&frame(1, &auth("guest", "guest123")));
    again.refused(1, Reason::InvalidCredentials);
}
