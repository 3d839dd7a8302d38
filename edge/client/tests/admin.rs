//! Topics, ranges, groups and users, against a scripted broker.

#![cfg(feature = "tcp")]
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

extern crate malachi_client as client;

mod fake;

use bytes::Buf;
use client::{Client, Error, RangeState, Reason, TopicState};
use fake::{Fake, Verdict};
use wire::response::TopicSummaries;
use wire::{Payload, Request};

async fn connect(fake: &Fake) -> Client {
    Client::connect(&fake.address, "user", "password").await.unwrap()
}

#[tokio::test]
async fn whole_lists_are_put_together_from_pages() {
    let fake = Fake::start();
    fake.with(|state| {
        for n in 0..2500 {
            state.topics.insert(format!("t{n:04}").into(), Vec::new());
            state.positions.insert(("t0000".into(), format!("g{n:04}").into()), 0);
        }
        state.topics.insert("other".into(), Vec::new());
    });
    let client = connect(&fake).await;
    let topics = client.topics("t").await.unwrap();
    assert_eq!(topics.len(), 2500);
    assert!(topics.is_sorted_by(|a, b| a.name < b.name));
    assert_eq!(client.topics("").await.unwrap().len(), 2501);
    assert_eq!(client.topics("nothing").await.unwrap(), []);
    assert_eq!(client.groups("t0000").await.unwrap().len(), 2500);
    let some = client.list_topics("t", Some(b"t2490"), 0).await.unwrap();
    assert_eq!((some.topics.len(), some.more), (9, false));
}

#[tokio::test]
async fn a_list_that_does_not_go_on_is_not_asked_for_ever() {
    let mut out = wire::Gather::new();
    let none = TopicSummaries { topics: Vec::new(), more: true };
    // The first request after the password and the greeting has this id.
    wire::Response::Ok(Payload::Topics(none)).encode(3, &mut out);
    let bytes = out.copy_to_bytes(out.remaining());
    let fake = Fake::scripted(move |request| match request {
        Request::ListTopics { .. } => Verdict::Raw(bytes.to_vec()),
        _ => Verdict::Serve,
    });
    assert!(matches!(connect(&fake).await.topics("").await, Err(Error::Protocol(_))));
}

#[tokio::test]
async fn topics_and_ranges_live_and_end() {
    let fake = Fake::start();
    let client = connect(&fake).await;
    client.create_topic("t", 0).await.unwrap();
    assert_eq!(client.split_range("t", 0).await.unwrap(), (1, 2));
    assert_eq!(client.split_range("t", 1).await.unwrap(), (3, 4));
    assert!(matches!(client.split_range("t", 0).await, Err(Error::Refused(Reason::NoSuchRange))));
    assert!(matches!(client.merge_ranges("t", 4, 3).await, Err(Error::Refused(Reason::NotBuddies))));
    assert_eq!(client.merge_ranges("t", 3, 4).await.unwrap(), 5);
    let (summary, ranges) = client.topic("t").await.unwrap();
    assert_eq!((summary.state, summary.ranges, summary.active_ranges), (TopicState::Active, 6, 2));
    assert_eq!(ranges[5].parents, [3, 4]);
    assert_eq!(ranges[0].state, RangeState::Replaced);
    let page = client.describe_topic("t", 4, 1).await.unwrap();
    assert_eq!((page.ranges[0].range, page.more), (4, true));
    client.seal_topic("t").await.unwrap();
    assert_eq!(client.topic("t").await.unwrap().0.state, TopicState::Sealed);
    client.delete_topic("t").await.unwrap();
    assert!(matches!(client.topic("t").await, Err(Error::Refused(Reason::NoSuchTopic))));
}

#[tokio::test]
async fn groups_are_described() {
    let fake = Fake::start().topic("t");
    fake.with(|state| state.positions.insert(("t".into(), "g".into()), 0));
    let client = connect(&fake).await;
    let group = client.describe_group("t", b"g").await.unwrap();
    assert_eq!((group.lag, group.lag_exact, group.members.len()), (0, true, 1));
    client
        .produce("t", &[client::Record { key: None, value: "v".into(), timestamp: 0, headers: Vec::new() }])
        .await
        .unwrap();
    assert_eq!(client.describe_group("t", b"unknown").await.unwrap().lag, 1);
}

#[tokio::test]
async fn users_and_their_rights() {
    let fake = Fake::start();
    let client = connect(&fake).await;
    client.create_user("alice", "s3cret-pass-12", &["produce", "consume"]).await.unwrap();
    let twice = client.create_user("alice", "s3cret-pass-12", &[]).await;
    assert!(matches!(twice, Err(Error::Refused(Reason::UserExists))));
    client.change_password("alice", "another-pass-1").await.unwrap();
    client.set_role("alice", Some("viewer")).await.unwrap();
    assert_eq!(client.list_users().await.unwrap()[0].permissions.len(), 2);
    assert_eq!(client.list_users_v2().await.unwrap()[0].role.as_deref(), Some(&b"viewer"[..]));
    client.grant_acl("alice", "produce", "orders.*").await.unwrap();
    let wrong = client.grant_acl("alice", "read", "orders.*").await;
    assert!(matches!(wrong, Err(Error::Refused(Reason::InvalidOperation))));
    assert_eq!(client.list_acls("alice").await.unwrap()[0].pattern.as_deref(), Some(&b"orders.*"[..]));
    client.revoke_acl("alice", "produce", "orders.*").await.unwrap();
    assert_eq!(client.list_acls("alice").await.unwrap(), []);
    client.delete_user("alice").await.unwrap();
    assert_eq!(client.list_users().await.unwrap(), []);
}

#[tokio::test]
async fn requests_of_streams_are_not_for_calling() {
    let fake = Fake::start();
    let client = connect(&fake).await;
    let ack = wire::request::StreamAck { topic: None, group: None, member: None, cursor: None, count: 0 };
    assert!(matches!(client.call(Request::StreamAck(ack)).await, Err(Error::Misuse(_))));
}
