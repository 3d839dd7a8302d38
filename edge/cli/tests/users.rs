//! Users over the wire: made, changed, locked out, limited; what each may see of the others.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use process::Place;
use process::raw::{Raw, auth, create, fetch, frame, produce, text};
use wire::request::Acl;
use wire::{ApiKey, Payload, Reason, Request, Response};

fn create_user(name: &str, password: Option<&str>, permissions: &[&str]) -> Request {
    let permissions = permissions.iter().map(|permission| text(permission)).collect();
    Request::CreateUser { username: text(name), password: password.and_then(text), permissions }
}

fn change_password(name: &str, password: &str) -> Request {
    Request::ChangePassword { username: text(name), new_password: text(password) }
}

fn logs_in(place: &Place, user: &str, password: &str) -> Result<Raw, Reason> {
    let mut raw = Raw::open(place);
    raw.request(1, &auth(user, password));
    let reply = raw.reply();
    match reply.decode(ApiKey::Auth).unwrap() {
        Response::Ok(_) => Ok(raw),
        Response::Error(reason) => {
            raw.closed();
            Err(reason)
        }
        Response::UnknownError(token) => panic!("{token:?}"),
    }
}

#[test]
fn users_are_made_changed_and_deleted_by_administrators_only() {
    let place = Place::new();
    let broker = place.start();
    let mut admin = Raw::logged_in(&place, "admin");
    let mut producer = Raw::logged_in(&place, "producer");
    // Permission comes before the payload, even one that does not decode.
    producer.send(&[0, 0, 0, 7, 0, 8, 0, 0, 0, 5, 9]);
    producer.refused(5, Reason::PermissionDenied);
    producer.request(6, &create_user("alice", Some("secret"), &["root"]));
    producer.refused(6, Reason::PermissionDenied);
    producer.request(7, &create_user("alice", Some("secret"), &[]));
    producer.refused(7, Reason::PermissionDenied);
    admin.send(&[0, 0, 0, 7, 0, 8, 0, 0, 0, 5, 9]);
    admin.refused(5, Reason::MalformedRequest);
    for (request, reason) in [
        (create_user("alice", Some("secret"), &["root"]), Reason::InvalidPermissions),
        (create_user("alice", Some(""), &["produce"]), Reason::InvalidPassword),
        (create_user("alice", None, &["produce"]), Reason::InvalidPassword),
        (create_user("a b", Some("secret"), &["produce"]), Reason::InvalidUsername),
        (create_user("admin", Some("secret"), &["produce"]), Reason::UserExists),
        (change_password("nobody", "secret"), Reason::UserNotFound),
    ] {
        admin.request(6, &request);
        admin.refused(6, reason);
    }
    admin.request(7, &create_user("alice", Some("secret"), &["produce"]));
    assert!(admin.reply().ok);
    let mut alice = logs_in(&place, "alice", "secret").unwrap();
    admin.request(8, &change_password("alice", "other"));
    assert!(admin.reply().ok);
    // Whoever knew the old password is out.
    alice.closed();
    assert_eq!(logs_in(&place, "alice", "secret").err(), Some(Reason::InvalidCredentials));
    assert!(broker.stop().success());

    let _broker = place.start();
    let mut alice = logs_in(&place, "alice", "other").unwrap();
    let mut admin = Raw::logged_in(&place, "admin");
    admin.request(2, &Request::ListUsers);
    let Ok(Response::Ok(Payload::Users(users))) = admin.reply().decode(ApiKey::ListUsers) else {
        panic!("users")
    };
    assert_eq!(users.len(), 5);
    admin.request(3, &Request::DeleteUser { username: text("alice") });
    assert!(admin.reply().ok);
    alice.closed();
    admin.request(4, &Request::DeleteUser { username: text("alice") });
    assert!(admin.reply().ok, "deleting is idempotent");
}

#[test]
fn whoever_changes_their_own_password_hears_the_answer() {
    let place = Place::new();
    let _broker = place.start();
    let mut admin = Raw::logged_in(&place, "admin");
    let mut other = Raw::logged_in(&place, "admin");
    admin.request(2, &change_password("admin", "another-one"));
    let reply = admin.reply();
    assert_eq!((reply.correlation_id, reply.ok), (2, true));
    other.closed();
    assert!(logs_in(&place, "admin", "another-one").is_ok());
    // The connection goes on, in a session of the new password.
    admin.request(3, &Request::ListUsers);
    assert!(admin.reply().ok);
    admin.request(4, &change_password("admin", "a-third-one"));
    assert!(admin.reply().ok);
}

#[test]
fn a_grant_opens_topics_and_strict_mode_leaves_only_grants() {
    let place = Place::new().with("MALACHI_ACL_STRICT", "true");
    let _broker = place.start();
    let mut admin = Raw::logged_in(&place, "admin");
    for topic in ["orders.eu", "other"] {
        admin.request(2, &create(topic));
        assert!(admin.reply().ok);
    }
    let mut producer = Raw::logged_in(&place, "producer");
    producer.request(3, &produce("orders.eu", &["a"]));
    producer.refused(3, Reason::PermissionDenied);
    let acl = Acl { username: text("producer"), operation: text("produce"), pattern: text("orders.*") };
    admin.request(4, &Request::GrantAcl(acl.clone()));
    assert!(admin.reply().ok);
    producer.request(5, &produce("orders.eu", &["a"]));
    assert!(producer.reply().ok);
    producer.request(6, &produce("other", &["a"]));
    producer.refused(6, Reason::PermissionDenied);
    admin.request(7, &Request::ListAcls { username: text("producer") });
    let Ok(Response::Ok(Payload::Grants(grants))) = admin.reply().decode(ApiKey::ListAcls) else {
        panic!("grants")
    };
    assert_eq!((grants.len(), grants[0].pattern.clone()), (1, text("orders.*")));
    admin.request(8, &Request::RevokeAcl(acl));
    assert!(admin.reply().ok);
    producer.request(9, &produce("orders.eu", &["a"]));
    producer.refused(9, Reason::PermissionDenied);
    let bad = Acl { username: text("x"), operation: text("write"), pattern: text("*") };
    admin.request(10, &Request::GrantAcl(bad));
    admin.refused(10, Reason::InvalidOperation);
}

#[test]
fn failed_logins_lock_the_user_out_and_the_lock_survives_a_restart() {
    let place = Place::new().with("MALACHI_MAX_AUTH_ATTEMPTS", "3");
    let mut broker = place.start();
    broker.expect("account locked");
    for _ in 0..3 {
        assert_eq!(logs_in(&place, "app", "wrong").err(), Some(Reason::InvalidCredentials));
    }
    assert_eq!(logs_in(&place, "app", "app123").err(), Some(Reason::AccountLocked));
    assert!(logs_in(&place, "admin", "admin123").is_ok(), "others are not");
    assert!(broker.stop().success());
    let mut broker = place.start();
    broker.expect("account locked");
    assert_eq!(logs_in(&place, "app", "app123").err(), Some(Reason::AccountLocked));
}

#[test]
fn logins_and_produce_requests_are_limited_when_asked_for() {
    let place = Place::new()
        .with("MALACHI_AUTH_RATE_LIMIT", "3")
        .with("MALACHI_PUBLISH_RATE_LIMIT", "2")
        .with("MALACHI_PUBLISH_RATE_WINDOW_MS", "600000");
    let _broker = place.start();
    let mut admin = Raw::logged_in(&place, "admin");
    let mut producer = Raw::logged_in(&place, "producer");
    admin.request(2, &create("t"));
    assert!(admin.reply().ok);
    for id in [2, 3] {
        producer.request(id, &produce("t", &["a"]));
        assert!(producer.reply().ok);
    }
    producer.request(4, &produce("t", &["a"]));
    producer.refused(4, Reason::RateLimited);
    admin.request(5, &produce("t", &["a"]));
    assert!(admin.reply().ok, "each user has its own");
    admin.request(6, &fetch("t", 0));
    assert!(admin.reply().ok);
    assert!(logs_in(&place, "app", "app123").is_ok());
    assert_eq!(logs_in(&place, "app", "app123").err(), Some(Reason::RateLimitExceeded));
    let mut mtls = Raw::open(&place);
    mtls.send(&frame(3, &Request::MtlsAuth));
    mtls.refused(3, Reason::MtlsAuthDisabled);
}

/// The program as an administrator; standard output, or the last line on standard error.
fn malachi(place: &Place, args: &[&str]) -> Result<String, String> {
    let mut command = place.command_of(args);
    command.env("MALACHI_HOST", "127.0.0.1").env("MALACHI_PORT", place.port.to_string());
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn a_lock_ends_when_an_administrator_says_so() {
    let place = Place::new().with("MALACHI_MAX_AUTH_ATTEMPTS", "2");
    let mut broker = place.start();
    broker.expect("account locked");
    for _ in 0..2 {
        assert_eq!(logs_in(&place, "app", "wrong").err(), Some(Reason::InvalidCredentials));
    }
    assert_eq!(logs_in(&place, "app", "app123").err(), Some(Reason::AccountLocked));
    let unlock = |args: &[&str]| malachi(&place, &[&["user", "unlock", "app"], args].concat()).unwrap();
    assert_eq!(unlock(&["--ip", "192.0.2.7"]), "unlocked \"app\" (0 addresses)\n");
    assert_eq!(logs_in(&place, "app", "app123").err(), Some(Reason::AccountLocked));
    assert_eq!(unlock(&[]), "unlocked \"app\" (1 addresses)\n");
    assert!(logs_in(&place, "app", "app123").is_ok());
}

#[test]
fn a_role_opens_the_metrics_and_is_listed() {
    let place = Place::new();
    let _broker = place.start();
    let create = ["user", "create", "eve", "secret-of-eve", "--perms", "", "--role", "viewer"];
    malachi(&place, &create).unwrap();
    let listed = malachi(&place, &["user", "list"]).unwrap();
    assert!(listed.lines().any(|line| line == "eve\t[]\trole=viewer"), "{listed}");
    // eve:secret-of-eve
    let metrics =
        || place.http_with("/metrics", "Authorization: Basic ZXZlOnNlY3JldC1vZi1ldmU=\r\n").unwrap();
    assert!(metrics().starts_with("HTTP/1.1 200"));
    assert!(metrics().contains("malachi_store_copies 0"));
    let refused = malachi(&place, &["user", "role", "eve", "owner"]).unwrap_err();
    assert!(refused.starts_with("Error: invalid_role\n"), "{refused}");
    malachi(&place, &["user", "role", "eve", "none"]).unwrap();
    assert!(metrics().starts_with("HTTP/1.1 403"));
}

#[test]
fn who_changed_what_is_in_the_audit_log() {
    let place = Place::new().with("MALACHI_LOG_FORMAT", "json");
    let broker = place.start();
    malachi(&place, &["user", "create", "eve", "secret-of-eve", "--perms", "produce"]).unwrap();
    malachi(&place, &["acl", "grant", "eve", "consume", "orders.*"]).unwrap();
    malachi(&place, &["topic", "create", "orders", "--user", "app"]).unwrap_err();
    let mut producer = Raw::logged_in(&place, "producer");
    producer.request(2, &create_user("mallory", Some("x"), &["admin"]));
    producer.refused(2, Reason::PermissionDenied);
    assert_eq!(logs_in(&place, "app", "wrong").err(), Some(Reason::InvalidCredentials));
    let said = || -> Vec<String> {
        let output = broker.output();
        let lines = output.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let audit = lines.filter(|line| line["target"] == "audit");
        let fields = ["event_type", "actor", "client", "result", "reason", "object", "detail"];
        audit.map(|line| fields.map(|field| line[field].as_str().unwrap().to_owned()).join("|")).collect()
    };
    let wanted = [
        "user_created|admin|127.0.0.1|success||eve|permissions=produce",
        "acl_granted|admin|127.0.0.1|success||eve|operation=consume pattern=orders.*",
        "user_created|producer|127.0.0.1|failure|permission_denied|mallory|permissions=admin",
        "auth_failure|app|127.0.0.1|failure|invalid_credentials|app|",
    ];
    process::wait_for("the audit log", || {
        let said = said();
        wanted.iter().all(|line| said.iter().any(|one| one == line))
    });
    assert!(!broker.output().contains("secret-of-eve"));
}
