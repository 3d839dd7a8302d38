//! Commands one by one, the encodings, and (in `model`) random histories.

#![allow(clippy::unwrap_used)]

mod control;
mod control_model;
mod golden;
mod lockouts;
mod model;

use std::num::NonZeroU32;

use bytes::Bytes;
use types::{RaftIndex, TopicName, WallTime, limits};

use super::*;

const PRODUCER: Permissions = Permissions { admin: false, produce: true, consume: false };

fn run(cluster: &mut Cluster, command: &Command) -> Reply {
    cluster.apply(cluster.applied().next(), &command.encode())
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn hash(text: &str) -> PasswordHash {
    PasswordHash::new(format!("$fake${text}").as_bytes()).unwrap()
}

fn create(user: &str, at: u64) -> Command {
    let (user, hash, at) = (bytes(user), hash("first"), WallTime(at));
    Command::CreateUser(CreateUser { user, hash, permissions: PRODUCER, role: None, at })
}

fn delete(user: &str) -> Command {
    Command::DeleteUser { user: bytes(user) }
}

fn password(user: &str, to: &str, at: u64) -> Command {
    Command::ChangePassword { user: bytes(user), hash: hash(to), at: WallTime(at) }
}

fn right(user: &str, operation: Operation, pattern: &str) -> Grant {
    Grant { user: bytes(user), operation, pattern: bytes(pattern) }
}

fn grant(user: &str, operation: Operation, pattern: &str) -> Command {
    Command::Grant(right(user, operation, pattern))
}

fn revoke(user: &str, operation: Operation, pattern: &str) -> Command {
    Command::Revoke(right(user, operation, pattern))
}

const RULES: LockoutRules = LockoutRules {
    attempts_max: NonZeroU32::new(5).unwrap(),
    duration_ms: 300_000,
    progressive: true,
    forget_ms: 3_600_000,
};

fn failure(user: &str, address: &str, at: u64) -> Command {
    let attempt = Attempt { user: bytes(user), address: bytes(address), at: WallTime(at) };
    Command::RecordFailure { attempt, rules: RULES }
}

fn may(cluster: &Cluster, user: &str, operation: Operation, topic: &str) -> bool {
    cluster.is_granted(user, operation, &TopicName::new(topic.as_bytes()).unwrap())
}

fn rights(cluster: &Cluster, user: &str) -> Vec<(Operation, String)> {
    cluster.grants_of(user).map(|(operation, pattern)| (operation, pattern.to_string())).collect()
}

#[track_caller]
fn refused(cluster: &mut Cluster, command: &Command, refusal: Refusal) {
    let mut before = cluster.clone();
    assert_eq!(run(cluster, command), Reply::Refused(refusal));
    before.applied = cluster.applied;
    assert_eq!(*cluster, before, "a refusal leaves the tables identical");
}

#[test]
fn a_user_is_as_the_command_says() {
    let mut cluster = Cluster::default();
    assert_eq!(run(&mut cluster, &create("ann", 7)), Reply::UserCreated { revision: UserRevision(0) });
    let user = cluster.user("ann").unwrap();
    assert_eq!((user.permissions, user.role), (PRODUCER, None));
    assert_eq!((user.created_at, user.updated_at), (WallTime(7), WallTime(7)));
    assert_eq!(user.hash.as_str(), "$fake$first");
    refused(&mut cluster, &create("ann", 8), Refusal::UserExists);
    assert!(cluster.user("Ann").is_none(), "names are compared byte for byte");
}

#[test]
fn names_follow_the_allow_list() {
    let mut cluster = Cluster::default();
    for good in ["a", "ann@example.com", "spiffe://example/app+1-2_3", &"x".repeat(128)] {
        assert!(matches!(run(&mut cluster, &create(good, 1)), Reply::UserCreated { .. }), "{good}");
    }
    for bad in ["", "a b", "a\n", "\u{e9}", "a;b", &"x".repeat(129)] {
        refused(&mut cluster, &create(bad, 1), Refusal::InvalidUserName);
        refused(&mut cluster, &grant(bad, Operation::Produce, "t"), Refusal::InvalidUserName);
        refused(&mut cluster, &failure(bad, "::1", 1), Refusal::InvalidUserName);
        refused(&mut cluster, &password(bad, "x", 1), Refusal::NoSuchUser);
    }
}

#[test]
fn a_revision_names_one_password_of_one_life() {
    let mut cluster = Cluster::default();
    run(&mut cluster, &create("ann", 1));
    run(&mut cluster, &create("bob", 1));
    let changed = run(&mut cluster, &password("ann", "second", 2));
    let user = cluster.user("ann").unwrap();
    assert_eq!(
        (user.revision, user.updated_at, user.created_at),
        (UserRevision(2), WallTime(2), WallTime(1))
    );
    let Reply::PasswordChanged { user: name, revision } = changed else { panic!("{changed:?}") };
    assert_eq!((name.as_str(), revision), ("ann", UserRevision(2)));
    let gone = run(&mut cluster, &delete("ann"));
    let Reply::UserDeleted { revision, .. } = gone else { panic!("{gone:?}") };
    assert_eq!(revision, UserRevision(3));
    // Of the new life none is lower, so ending what is lower ends the old one only.
    assert_eq!(run(&mut cluster, &create("ann", 3)), Reply::UserCreated { revision });
    assert_eq!(cluster.user("bob").unwrap().revision, UserRevision(1));
}

#[test]
fn permissions_and_roles_change_without_another_revision() {
    let mut cluster = Cluster::default();
    run(&mut cluster, &create("ann", 1));
    let permissions = Permissions { admin: true, ..Permissions::default() };
    let (user, at) = (bytes("ann"), WallTime(4));
    let set = Command::SetPermissions { user: user.clone(), permissions, at };
    assert_eq!(run(&mut cluster, &set), Reply::UserChanged);
    let set = Command::SetRole { user, role: Some(Role::Operator), at: WallTime(5) };
    assert_eq!(run(&mut cluster, &set), Reply::UserChanged);
    let user = cluster.user("ann").unwrap();
    assert_eq!((user.permissions, user.role), (permissions, Some(Role::Operator)));
    assert_eq!((user.revision, user.updated_at), (UserRevision(0), WallTime(5)));
    let set = Command::SetPermissions { user: bytes("bob"), permissions, at };
    refused(&mut cluster, &set, Refusal::NoSuchUser);
    refused(&mut cluster, &Command::SetRole { user: bytes("bob"), role: None, at }, Refusal::NoSuchUser);
    refused(&mut cluster, &password("bob", "x", 1), Refusal::NoSuchUser);
}

#[test]
fn a_deleted_user_leaves_nothing_behind() {
    let mut cluster = Cluster::default();
    run(&mut cluster, &create("ann", 1));
    run(&mut cluster, &grant("ann", Operation::Produce, "t*"));
    run(&mut cluster, &failure("ann", "10.0.0.1", 1));
    run(&mut cluster, &failure("ann", "10.0.0.2", 1));
    run(&mut cluster, &failure("bob", "10.0.0.2", 1));
    for _ in 0..2 {
        assert!(matches!(run(&mut cluster, &delete("ann")), Reply::UserDeleted { user: Some(_), .. }));
        assert!(cluster.user("ann").is_none());
        assert_eq!((cluster.grant_count(), cluster.lockout_count()), (0, 1));
    }
    // Rights and lockouts do not need a user, and go as well.
    run(&mut cluster, &grant("ann", Operation::Produce, "t*"));
    run(&mut cluster, &delete("ann"));
    assert_eq!(cluster.grant_count(), 0);
    assert!(matches!(run(&mut cluster, &delete("a b")), Reply::UserDeleted { user: None, .. }));
}

#[test]
fn a_hash_is_not_printed() {
    let shown = format!("{:?} {:?}", create("ann", 1), hash("secret"));
    assert!(!shown.contains("$fake$"), "{shown}");
    for bad in [&b""[..], b"plain", b"$a b", b"$\xff", &[b'$'; limits::PASSWORD_HASH_BYTES_MAX + 1]] {
        assert_eq!(PasswordHash::new(bad), Err(InvalidPasswordHash));
    }
}

#[test]
fn a_right_is_for_one_operation_on_what_its_pattern_names() {
    let mut cluster = Cluster::default();
    for _ in 0..2 {
        assert_eq!(run(&mut cluster, &grant("ann", Operation::Produce, "orders")), Reply::Granted);
        assert_eq!(run(&mut cluster, &grant("ann", Operation::Consume, "logs.*")), Reply::Granted);
    }
    assert_eq!(cluster.grant_count(), 2);
    assert!(may(&cluster, "ann", Operation::Produce, "orders"));
    assert!(!may(&cluster, "ann", Operation::Consume, "orders"));
    assert!(!may(&cluster, "ann", Operation::Produce, "orders2"));
    assert!(!may(&cluster, "ann", Operation::Produce, "order"));
    assert!(!may(&cluster, "bob", Operation::Produce, "orders"));
    assert!(may(&cluster, "ann", Operation::Consume, "logs.a"));
    assert!(may(&cluster, "ann", Operation::Consume, "logs."));
    assert!(!may(&cluster, "ann", Operation::Consume, "logs"));
    assert_eq!(
        rights(&cluster, "ann"),
        [(Operation::Produce, "orders".into()), (Operation::Consume, "logs.*".into())]
    );
    for _ in 0..2 {
        assert_eq!(run(&mut cluster, &revoke("ann", Operation::Consume, "logs.*")), Reply::Revoked);
    }
    assert!(!may(&cluster, "ann", Operation::Consume, "logs.a"));
    run(&mut cluster, &revoke("ann", Operation::Produce, "orders"));
    assert_eq!(cluster, Cluster { applied: cluster.applied, ..Cluster::default() });
}

#[test]
fn a_star_is_every_topic_and_neighbours_hide_no_prefix() {
    let mut cluster = Cluster::default();
    run(&mut cluster, &grant("ann", Operation::Produce, "*"));
    assert!(may(&cluster, "ann", Operation::Produce, "x"));
    run(&mut cluster, &revoke("ann", Operation::Produce, "*"));
    for pattern in ["a*", "ab.c*", "ab.cx*", "abba*"] {
        run(&mut cluster, &grant("bob", Operation::Consume, pattern));
    }
    // "ab.cx" and "abba" sort between the name and the prefix that matches it.
    assert!(may(&cluster, "bob", Operation::Consume, "ab.cz"));
    assert!(may(&cluster, "bob", Operation::Consume, "abc"));
    assert!(!may(&cluster, "bob", Operation::Consume, "b"));
    assert!(!may(&cluster, "bob", Operation::Consume, "A"));
}

#[test]
fn a_pattern_that_matches_nothing_is_refused() {
    let mut cluster = Cluster::default();
    for bad in ["", "a*b", "**", "a b", "a/*", ".", "..", "\u{e9}*", &"x".repeat(201)] {
        refused(&mut cluster, &grant("ann", Operation::Produce, bad), Refusal::InvalidPattern);
        refused(&mut cluster, &revoke("ann", Operation::Produce, bad), Refusal::InvalidPattern);
    }
    let long = "x".repeat(200);
    for good in [".*", "..*", "...", &long, &format!("{long}*")] {
        assert_eq!(run(&mut cluster, &grant("ann", Operation::Produce, good)), Reply::Granted, "{good}");
    }
    assert!(may(&cluster, "ann", Operation::Produce, &long));
    refused(&mut cluster, &grant("ann", Operation::Produce, &format!("x{long}*")), Refusal::InvalidPattern);
}

#[test]
fn rights_of_a_user_are_bounded() {
    let mut cluster = Cluster::default();
    for i in 0..limits::GRANTS_PER_USER_MAX {
        run(&mut cluster, &grant("ann", Operation::Produce, &format!("t{i}")));
    }
    refused(&mut cluster, &grant("ann", Operation::Consume, "more"), Refusal::TooManyGrants);
    assert_eq!(run(&mut cluster, &grant("ann", Operation::Produce, "t0")), Reply::Granted);
    assert_eq!(run(&mut cluster, &grant("bob", Operation::Produce, "t0")), Reply::Granted);
    run(&mut cluster, &revoke("ann", Operation::Produce, "t0"));
    assert_eq!(run(&mut cluster, &grant("ann", Operation::Consume, "more")), Reply::Granted);
}

#[test]
fn users_are_bounded() {
    let mut cluster = Cluster::default();
    for i in 0..limits::USERS_MAX {
        run(&mut cluster, &create(&format!("u{i}"), 1));
    }
    refused(&mut cluster, &create("one-more", 1), Refusal::TooManyUsers);
    run(&mut cluster, &delete("u7"));
    assert!(matches!(run(&mut cluster, &create("one-more", 1)), Reply::UserCreated { .. }));
    let snapshot = cluster.encode_snapshot();
    assert_eq!(Cluster::decode_snapshot(snapshot), Ok(cluster));
}

#[test]
fn a_policy_is_what_was_said_last() {
    let mut cluster = Cluster::default();
    let name = bytes("short lived");
    let define =
        |policy: &Policy| Command::DefinePolicy { name: bytes("short lived"), policy: policy.clone() };
    let first = Policy { age_ms_max: Setting::Value(0), ..Policy::default() };
    let key = |key: &str| Setting::Value(bytes(key));
    let second = Policy { bytes_max: Setting::Off, spread_by: key("rack"), ..Policy::default() };
    for policy in [first, second] {
        assert_eq!(run(&mut cluster, &define(&policy)), Reply::PolicyDefined);
        assert_eq!(cluster.policy("short lived"), Some(&policy));
    }
    for bad in ["", "a\tb", &"x".repeat(129)] {
        let policy = Policy::default();
        let unnamed = Command::DefinePolicy { name: bytes(bad), policy: policy.clone() };
        refused(&mut cluster, &unnamed, Refusal::InvalidPolicy);
        refused(&mut cluster, &define(&Policy { spread_by: key(bad), ..policy }), Refusal::InvalidPolicy);
    }
    // What goes once it is read has a bound for what nobody reads.
    for (unread_age_ms_max, is_valid) in
        [(Setting::Inherit, false), (Setting::Off, false), (Setting::Value(0), true)]
    {
        let policy = Policy { read_age_ms_max: Setting::Value(0), unread_age_ms_max, ..Policy::default() };
        assert_eq!(run(&mut cluster, &define(&policy)) == Reply::PolicyDefined, is_valid);
    }
    assert_eq!(run(&mut cluster, &Command::DeletePolicy { name: name.clone() }), Reply::PolicyDeleted);
    refused(&mut cluster, &Command::DeletePolicy { name }, Refusal::NoSuchPolicy);
}

#[test]
fn policies_are_bounded() {
    let mut cluster = Cluster::default();
    let define = |name: String| Command::DefinePolicy { name: bytes(&name), policy: Policy::default() };
    for i in 0..limits::POLICIES_MAX {
        run(&mut cluster, &define(format!("p{i}")));
    }
    refused(&mut cluster, &define("more".into()), Refusal::TooManyPolicies);
    assert_eq!(run(&mut cluster, &define("p0".into())), Reply::PolicyDefined);
}

#[test]
fn what_is_no_command_is_refused() {
    let mut cluster = Cluster::default();
    let good = create("ann", 1).encode();
    let later = [&[0, 2], &good[2..]].concat();
    let kind = [&good[..2], &[0, 99], &good[4..]].concat();
    let longer = [&good[..], &[0]].concat();
    for (bytes, refusal) in [
        (Vec::new(), Refusal::UnknownCommand),
        (good[..3].to_vec(), Refusal::UnknownCommand),
        (later, Refusal::UnknownCommand),
        (kind, Refusal::UnknownCommand),
        (longer, Refusal::InvalidCommand),
        (good[..good.len() - 1].to_vec(), Refusal::InvalidCommand),
    ] {
        assert_eq!(cluster.apply(cluster.applied().next(), &bytes.into()), Reply::Refused(refusal));
    }
    assert_eq!(cluster, Cluster { applied: cluster.applied, ..Cluster::default() });
}

#[test]
fn an_entry_is_applied_once() {
    let mut cluster = Cluster::default();
    run(&mut cluster, &create("ann", 1));
    let before = cluster.clone();
    for index in [RaftIndex(0), cluster.applied()] {
        let reply = cluster.apply(index, &create("bob", 1).encode());
        assert_eq!(reply, Reply::Refused(Refusal::AlreadyApplied));
    }
    assert_eq!(cluster, before);
    assert!(matches!(cluster.apply(RaftIndex(50), &create("bob", 1).encode()), Reply::UserCreated { .. }));
}

#[test]
fn a_command_above_the_effective_version_is_gated() {
    let mut cluster = Cluster::new(crate::machine::Version(0));
    refused(&mut cluster, &create("ann", 1), Refusal::UnknownCommand);
}

#[test]
fn the_effective_version_only_grows() {
    let mut cluster = Cluster::default();
    let to = |version| Command::Upgrade { to: crate::machine::Version(version) };
    assert_eq!(run(&mut cluster, &to(0)), Reply::Upgraded(crate::machine::Version(1)));
    let before = cluster.clone();
    for command in [to(3), create("ann", 1)] {
        assert_eq!(run(&mut cluster, &command), Reply::Refused(Refusal::LaterVersion));
    }
    assert_eq!(cluster.beyond_build(), Some(crate::machine::Version(3)));
    assert_eq!(cluster.encode_snapshot(), before.encode_snapshot(), "not even the applied index");
}
