//! The commands that manage, as a shell sees them, against a scripted broker.

#![allow(clippy::unwrap_used)]

mod shell;

use shell::fake::Fake;
use shell::{assert_ok, refused, run, said, text};

#[test]
fn topics_are_listed_described_sealed_and_deleted() {
    let fake = Fake::start().topic("orders").topic("orders.old").topic("users");
    assert_ok(&run(&fake, &["produce", "orders"], Some(b"a\nb\n")));
    let listed = said(&fake, &["topic", "list"]);
    assert_eq!(
        listed,
        "orders\tactive\t1\t1\t36\t0\norders.old\tactive\t1\t1\t0\t0\nusers\tactive\t1\t1\t0\t0\n"
    );
    assert_eq!(said(&fake, &["topic", "list", "orders."]), "orders.old\tactive\t1\t1\t0\t0\n");
    assert_eq!(said(&fake, &["topic", "list", "nothing"]), "");
    let json: serde_json::Value = serde_json::from_str(&said(&fake, &["topic", "list", "--json"])).unwrap();
    assert_eq!((json[0]["topic"].as_str(), json[2]["topic"].as_str()), (Some("orders"), Some("users")));
    assert_eq!(said(&fake, &["topic", "list", "nothing", "--json"]), "[]\n");

    let described = said(&fake, &["topic", "describe", "orders"]);
    assert!(described.starts_with("topic\torders\nstate\tactive\nkeyspace_bits\t16\n"), "{described}");
    let json = said(&fake, &["topic", "describe", "orders", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["active_ranges"], &json["range_list"][0]["key_end"]), (&1.into(), &65536.into()));

    assert_eq!(said(&fake, &["topic", "seal", "orders"]), "Topic \"orders\" sealed\n");
    let produced = run(&fake, &["produce", "orders"], Some(b"c\n"));
    assert!(text(&produced.stderr).starts_with("Error: unroutable\n"), "{produced:?}");
    assert_eq!(said(&fake, &["consume", "orders"]), "a\nb\n");

    let unsure = refused(&fake, &["topic", "delete", "orders"]);
    assert!(unsure.contains("--yes"), "{unsure}");
    assert_eq!(said(&fake, &["topic", "delete", "orders", "--yes"]), "Topic \"orders\" deleted\n");
    let gone = refused(&fake, &["topic", "describe", "orders"]);
    assert!(gone.starts_with("Error: no_such_topic\nSee `malachi topic list`"), "{gone}");
    let json = said(&fake, &["topic", "delete", "users", "--yes", "--json"]);
    assert_eq!(json, "{\"deleted\":true,\"topic\":\"users\"}\n");
}

#[test]
fn ranges_are_split_and_merged() {
    let fake = Fake::start().topic("t");
    assert_eq!(said(&fake, &["range", "list", "t"]), "0\tactive\t0\t65536\t\t1\t0\t0\n");
    assert_eq!(said(&fake, &["range", "split", "t", "0"]), "Range 0 of \"t\" split into 1 and 2\n");
    let json = said(&fake, &["range", "split", "t", "2", "--json"]);
    assert_eq!(json, "{\"left\":3,\"range\":2,\"right\":4,\"topic\":\"t\"}\n");
    let listed = said(&fake, &["range", "list", "t"]);
    let numbers: Vec<&str> = listed.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(numbers, ["1", "3", "4"], "by the keys they hold");
    assert_eq!(said(&fake, &["range", "list", "t", "--all"]).lines().count(), 5);
    assert_eq!(said(&fake, &["range", "merge", "t", "3", "4"]), "Ranges 3 and 4 of \"t\" merged into 5\n");
    let json = said(&fake, &["range", "list", "t", "--all", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json.as_array().unwrap().iter().any(|range| range["parents"] == serde_json::json!([3, 4])));
    let twice = refused(&fake, &["range", "split", "t", "0"]);
    assert!(twice.starts_with("Error: no_such_range\nSee `malachi range list`"), "{twice}");
    assert!(refused(&fake, &["range", "merge", "t", "5", "1"]).starts_with("Error: not_buddies\n"));
}

#[test]
fn groups_are_listed_and_described() {
    let fake = Fake::start().topic("t");
    assert_ok(&run(&fake, &["produce", "t"], Some(b"a\nb\nc\n")));
    said(&fake, &["consume", "t", "--group", "workers", "--limit", "2"]);
    said(&fake, &["consume", "t", "--group", "audit"]);
    assert_eq!(said(&fake, &["group", "list", "t"]), "audit\nworkers\n");
    assert_eq!(said(&fake, &["group", "list", "t", "--json"]), "[\"audit\",\"workers\"]\n");
    let described = said(&fake, &["group", "describe", "t", "workers"]);
    assert_eq!(described, "lag\t1\ngeneration\t1\nm1\t1\t5\n");
    let json = said(&fake, &["group", "describe", "t", "workers", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["lag"], &json["lag_exact"]), (&1.into(), &true.into()));
    assert!(refused(&fake, &["group", "describe", "u", "g"]).starts_with("Error: no_such_topic\n"));
}

#[test]
fn users_are_managed_and_passwords_stay_off_the_arguments() {
    let fake = Fake::start();
    let made =
        run(&fake, &["user", "create", "bob", "-", "--perms", "produce, consume"], Some(b"s3cret-pass-12\n"));
    assert_ok(&made);
    assert_eq!(text(&made.stdout), "created user \"bob\" [produce, consume]\n");
    assert_eq!(text(&made.stderr), "");
    assert_eq!(fake.with(|state| state.admin.users[&b"bob"[..]].password.clone()), "s3cret-pass-12");

    let visible = run(&fake, &["user", "create", "alice", "visible-pass", "--perms", "admin"], None);
    assert_ok(&visible);
    assert!(text(&visible.stderr).starts_with("warning: "), "{visible:?}");
    assert_eq!(said(&fake, &["user", "list"]), "alice\t[admin]\nbob\t[produce, consume]\n");
    let json = said(&fake, &["user", "list", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[1]["permissions"], serde_json::json!(["produce", "consume"]));

    let wrong = refused(&fake, &["user", "create", "eve", "x", "--perms", "root"]);
    assert!(wrong.contains("invalid permissions (allowed: admin, produce, consume)"), "{wrong}");
    assert!(refused(&fake, &["user", "create", "bob", "x"]).contains("Error: user_exists"));
    let changed = run(&fake, &["user", "passwd", "bob", "-"], Some(b"another-pass-1\n"));
    assert_eq!(text(&changed.stdout), "changed password for \"bob\"\n");
    assert!(refused(&fake, &["user", "passwd", "nobody", "x"]).contains("Error: user_not_found"));
    assert_eq!(said(&fake, &["user", "delete", "bob"]), "deleted user \"bob\"\n");
    assert_eq!(said(&fake, &["user", "delete", "bob"]), "deleted user \"bob\"\n");
}

#[test]
fn roles_are_shown_by_brokers_that_have_them() {
    let fake = Fake::start().features(wire::features::ROLES);
    let args = ["user", "create", "alice", "-", "--role", "viewer"];
    let made = run(&fake, &args, Some(b"s3cret-pass-12\n"));
    assert_eq!(
        text(&made.stdout),
        "created user \"alice\" [produce, consume]\nset role of \"alice\" to viewer\n"
    );
    assert_eq!(said(&fake, &["user", "list"]), "alice\t[produce, consume]\trole=viewer\n");
    assert_eq!(said(&fake, &["user", "role", "alice", "none"]), "set role of \"alice\" to none\n");
    assert_eq!(said(&fake, &["user", "list"]), "alice\t[produce, consume]\n");
}

#[test]
fn rights_are_granted_listed_in_order_and_revoked() {
    let fake = Fake::start();
    let granted = said(&fake, &["acl", "grant", "bob", "produce", "orders.*"]);
    assert_eq!(granted, "granted produce on \"orders.*\" to \"bob\"\n");
    said(&fake, &["acl", "grant", "bob", "consume", "users"]);
    said(&fake, &["acl", "grant", "bob", "consume", "orders"]);
    assert_eq!(said(&fake, &["acl", "list", "bob"]), "consume\torders\nconsume\tusers\nproduce\torders.*\n");
    let revoked = said(&fake, &["acl", "revoke", "bob", "consume", "users"]);
    assert_eq!(revoked, "revoked consume on \"users\" from \"bob\"\n");
    let json = said(&fake, &["acl", "list", "bob", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json.as_array().unwrap().len(), &json[0]["pattern"]), (2, &"orders".into()));
    let wrong = refused(&fake, &["acl", "grant", "bob", "read", "orders"]);
    assert!(wrong.contains("invalid operation (allowed: produce, consume)"), "{wrong}");
    assert_eq!(said(&fake, &["acl", "list", "nobody"]), "");
}

#[test]
fn every_shell_gets_its_completions() {
    let fake = Fake::start();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = said(&fake, &["completions", shell]);
        assert!(script.contains("loadtest") && script.contains("produce"), "{shell}");
    }
    assert!(refused(&fake, &["completions", "tcsh"]).contains("possible values"));
}
