//! Whatever a connection is sent, the broker answers in whole frames or closes, and goes on serving the others.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use std::io::{Read, Write};

use bytes::{Bytes, BytesMut};
use process::Place;
use process::raw::{Raw, auth, create, fetch, frame, page, produce, stream_ack, subscribe, text, values};
use wire::Request;
use wire::response::Reply;

/// A generator of our own, so that a run can be repeated from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

/// Frames of every kind that a connection may be in the middle of.
fn frames() -> Vec<BytesMut> {
    let batch = wire::request::ProduceBatch::of(wire::request::Produce::of(b"t", &[]));
    let requests = [
        create("t"),
        produce("t", &["a", "b"]),
        produce("unknown", &[]),
        fetch("t", 1),
        subscribe("t", "g", 1),
        stream_ack("t", "g", None, 1),
        stream_ack("t", "g", text("x"), 1),
        Request::LeaveGroup { topic: text("t"), group: text("g"), member: None },
        Request::CreateUser { username: text("u"), password: text("p"), permissions: vec![text("admin")] },
        Request::ChangePassword { username: text("u"), new_password: None },
        Request::ListUsers,
        Request::ListAcls { username: None },
        Request::Hello { client: None, features: u64::MAX },
        Request::ListTopics { prefix: None, after: text("t"), max: u32::MAX },
        Request::DescribeTopic { topic: text("t"), from_range: u64::MAX, max: 0 },
        Request::SplitRange { topic: text("t"), range: u64::MAX },
        Request::MergeRanges { topic: text("t"), a: 0, b: 0 },
        Request::SeekTime { topic: text("t"), at_ms: u64::MAX },
        Request::ProduceBatch(batch),
        auth("admin", "admin123"),
        Request::TokenAuth { jwt: None },
    ];
    requests.iter().zip(1..).map(|(request, id)| frame(id, request)).collect()
}

/// Some frames, most of them harmed.
fn garbage(random: &mut Random, frames: &[BytesMut]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(12) {
        let mut frame = frames[random.below(frames.len())].to_vec();
        match random.below(8) {
            0 => {}
            1 => frame.truncate(random.below(frame.len())),
            2 => frame.extend_from_slice(&random.next().to_be_bytes()),
            // The body says how long it is, truly.
            3 => {
                frame.truncate(4 + random.below(frame.len() - 3));
                let length = u32::try_from(frame.len() - 4).unwrap();
                frame[..4].copy_from_slice(&length.to_be_bytes());
            }
            _ => {
                for _ in 0..1 + random.below(3) {
                    let at = random.below(frame.len());
                    frame[at] ^= 1 << random.below(8);
                }
            }
        }
        bytes.extend_from_slice(&frame);
    }
    bytes
}

/// Everything the broker says until it closes; each frame of it whole.
#[track_caller]
fn answers(raw: &mut Raw, seed: u64) -> usize {
    let mut rest = Vec::new();
    // A reset ends it as well.
    let _ = raw.0.read_to_end(&mut rest);
    let mut rest = BytesMut::from(&rest[..]);
    let mut count = 0;
    while let Some(body) = wire::frame::take(&mut rest, 1 << 24).unwrap() {
        let body: Bytes = body;
        Reply::split(body).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        count += 1;
    }
    assert!(rest.is_empty(), "seed {seed}: half a frame: {rest:?}");
    count
}

#[test]
fn garbage_of_every_kind_leaves_the_broker_serving() {
    let place = Place::new();
    let mut broker = place.start();
    broker.expect("account locked");
    let frames = frames();
    let mut answered = 0;
    for seed in 1..=150 {
        let mut random = Random(seed);
        // Every fifth before anybody has logged in.
        let mut raw = if seed % 5 == 0 { Raw::open(&place) } else { Raw::logged_in(&place, "admin") };
        let garbage = garbage(&mut random, &frames);
        // The broker may have closed already.
        let _ = raw.0.write_all(&garbage);
        let _ = raw.0.shutdown(std::net::Shutdown::Write);
        answered += answers(&mut raw, seed);
    }
    assert!(answered > 150, "most of it was answered: {answered}");
    let mut raw = Raw::logged_in(&place, "admin");
    raw.request(2, &create("after"));
    assert!(raw.reply().ok);
    raw.request(3, &produce("after", &["still here"]));
    assert!(raw.reply().ok);
    raw.request(4, &fetch("after", 0));
    assert_eq!(values(&page(raw.reply())), ["still here"]);
    assert!(broker.stop().success());
}
