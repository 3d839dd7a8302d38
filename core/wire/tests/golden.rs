//! The published vectors, G1 to G30, in both directions: the bytes decode to these messages, and these
//! messages encode to the bytes. `golden.txt` holds one vector a line.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

extern crate malachi_wire as wire;

use bytes::{Buf, Bytes, BytesMut};
use types::record::{Header, Record};
use wire::request::{Acl, Commit, Envelope, Fetch, Produce, StreamAck, Subscribe};
use wire::response::{Grant, Page, Reply, User};
use wire::{ApiKey, Gather, Payload, Reason, Request, Response, Str, frame};

const FRAME_BYTES: usize = 16 * 1024 * 1024;

fn vector(name: &str) -> Vec<u8> {
    let line = include_str!("golden.txt").lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    let hex = line.expect("every vector named here is in the file");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn body(name: &str) -> Bytes {
    let mut buffer = BytesMut::from(&vector(name)[..]);
    let body = frame::take(&mut buffer, FRAME_BYTES).unwrap().unwrap();
    assert!(buffer.is_empty(), "{name} is one frame");
    body
}

fn s(text: &str) -> Str {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn check_request(name: &str, correlation_id: u32, request: Request) {
    let (envelope, payload) = Envelope::split(body(name)).unwrap();
    assert_eq!(envelope, Envelope { api_key: request.api_key().number(), correlation_id }, "{name}");
    assert_eq!(Request::decode(request.api_key(), payload), Ok(request.clone()), "{name}");
    let mut out = BytesMut::new();
    request.encode(correlation_id, &mut out);
    assert_eq!(out[..], vector(name)[..], "{name}");
}

fn check_response(name: &str, correlation_id: u32, api_key: ApiKey, response: Response) {
    let reply = Reply::split(body(name)).unwrap();
    assert_eq!(reply.correlation_id, correlation_id, "{name}");
    assert_eq!(reply.decode(api_key), Ok(response.clone()), "{name}");
    let mut out = Gather::new();
    response.encode(correlation_id, &mut out);
    assert_eq!(out.copy_to_bytes(out.remaining())[..], vector(name)[..], "{name}");
}

fn user_42() -> Record {
    Record {
        key: s("user-42"),
        value: Bytes::from_static(b"created"),
        timestamp: 1_700_000_000_000,
        headers: vec![Header { name: Bytes::from_static(b"source"), value: Bytes::from_static(b"api") }],
    }
}

fn keyless() -> Record {
    let value = Bytes::from_static(&[0x00, 0xff]);
    Record { key: None, value, timestamp: 1_700_000_000_001, headers: Vec::new() }
}

fn empty_key() -> Record {
    Record { key: s(""), value: Bytes::new(), timestamp: 0, headers: Vec::new() }
}

fn page(records: &[Record], next_cursor: &'static str) -> Response {
    let Produce { records: bytes, count, .. } = Produce::of(b"", records);
    Response::Ok(Payload::Page(Page { count, records: vec![bytes], next_cursor: next_cursor.into() }))
}

#[test]
fn requests() {
    let topic = || s("orders");
    let group = || s("live");
    let member = || s("m1");
    let acl = || Acl { username: s("alice"), operation: s("produce"), pattern: s("orders.*") };
    check_request("G1", 1, Request::Auth { username: s("admin"), password: s("admin123") });
    check_request("G4", 2, Request::CreateTopic { topic: topic(), keyspace_bits: 16 });
    check_request("G6", 3, Request::Produce(Produce::of(b"orders", &[user_42(), keyless()])));
    let fetch = Fetch { topic: topic(), group: s("workers"), max: 100, wait_ms: 5000, ..Fetch::default() };
    check_request("G8", 4, Request::Fetch(fetch));
    let subscribe = Subscribe { topic: topic(), group: group(), member: member(), window: 500, max: 100 };
    check_request("G10", 6, Request::Subscribe(subscribe));
    let heartbeat = StreamAck { topic: topic(), group: group(), member: member(), cursor: None, count: 0 };
    check_request("G12", 8, Request::StreamAck(heartbeat.clone()));
    check_request("G13", 5, Request::Commit(Commit { topic: topic(), group: s("workers"), cursor: s("c1") }));
    check_request("G14", 7, Request::StreamAck(StreamAck { cursor: s("c2"), count: 2, ..heartbeat }));
    check_request("G15", 9, Request::LeaveGroup { topic: topic(), group: group(), member: member() });
    check_request(
        "G16",
        10,
        Request::CreateUser {
            username: s("alice"),
            password: s("s3cret-pass-12"),
            permissions: vec![s("produce"), s("consume")],
        },
    );
    check_request("G17", 14, Request::DeleteUser { username: s("alice") });
    let new_password = s("n3w-pass-123456");
    check_request("G18", 15, Request::ChangePassword { username: s("alice"), new_password });
    check_request("G19", 11, Request::ListUsers);
    check_request("G21", 1, Request::MtlsAuth);
    check_request("G22", 1, Request::TokenAuth { jwt: s("a.b.c") });
    check_request("G23", 12, Request::GrantAcl(acl()));
    check_request("G24", 13, Request::ListAcls { username: s("alice") });
}

#[test]
fn responses() {
    let token = Bytes::from_static(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFG");
    check_response("G2", 1, ApiKey::Auth, Response::Ok(Payload::Token(token)));
    check_response("G3", 7, ApiKey::Produce, Response::Error(Reason::AuthRequired));
    for api_key in [ApiKey::CreateTopic, ApiKey::Commit, ApiKey::LeaveGroup, ApiKey::GrantAcl] {
        check_response("G5", 2, api_key, Response::Ok(Payload::Empty));
    }
    check_response("G7", 3, ApiKey::Produce, Response::Ok(Payload::Stored(2)));
    check_response("G9", 4, ApiKey::Fetch, page(&[user_42()], "c1"));
    check_response("G11", 6, ApiKey::Subscribe, page(&[keyless(), empty_key()], "c2"));
    let user = |name, permissions: &[&str]| User {
        username: s(name),
        permissions: permissions.iter().map(|permission| s(permission)).collect(),
    };
    let users = vec![user("admin", &["admin"]), user("alice", &["produce", "consume"])];
    check_response("G20", 11, ApiKey::ListUsers, Response::Ok(Payload::Users(users)));
    let grants = vec![Grant { operation: s("produce"), pattern: s("orders.*") }];
    check_response("G25", 13, ApiKey::ListAcls, Response::Ok(Payload::Grants(grants)));
    check_response("G26", 4, ApiKey::Fetch, Response::Error(Reason::NotOwner));
    check_response("G28", 0, ApiKey::Fetch, Response::Error(Reason::FrameTooLarge));
    check_response("G30", 0, ApiKey::Fetch, Response::Error(Reason::MalformedRequest));
}

#[test]
fn records_of_a_page_decode_to_what_was_sent() {
    let Ok(Response::Ok(Payload::Page(page))) = Reply::split(body("G11")).unwrap().decode(ApiKey::Subscribe)
    else {
        panic!("G11 is a page");
    };
    assert_eq!(page.decode_records().unwrap(), [keyless(), empty_key()]);
}

#[test]
fn a_prefix_over_the_limit_is_refused_without_a_body() {
    let mut buffer = BytesMut::from(&vector("G27")[..]);
    assert_eq!(
        frame::take(&mut buffer, FRAME_BYTES),
        Err(frame::TooLarge { length: FRAME_BYTES + 1, limit: FRAME_BYTES })
    );
}

#[test]
fn a_body_too_short_for_an_envelope_has_none() {
    assert_eq!(Envelope::split(body("G29")), None);
}

#[test]
fn every_vector_is_checked_above() {
    let checked = include_str!("golden.rs");
    let names: Vec<&str> =
        include_str!("golden.txt").lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names.len(), 30);
    for name in names {
        assert!(checked.contains(&format!("\"{name}\"")), "{name}");
    }
}
