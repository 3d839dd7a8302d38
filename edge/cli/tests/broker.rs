//! Every command against a real broker process, as a new user would try them.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use process::{Place, wait_for};
use serde_json::Value;

fn malachi(place: &Place, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_malachi"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MALACHI_")) {
        command.env_remove(name);
    }
    command.env("MALACHI_HOST", "127.0.0.1").env("MALACHI_PORT", place.port.to_string());
    command
}

fn run(place: &Place, args: &[&str], input: &str) -> Output {
    let mut child = malachi(place, args).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[track_caller]
fn said(place: &Place, args: &[&str]) -> String {
    said_to(place, args, "")
}

#[track_caller]
fn said_to(place: &Place, args: &[&str], input: &str) -> String {
    let output = run(place, args, input);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn json(place: &Place, args: &[&str]) -> Value {
    serde_json::from_str(&said(place, &[args, &["--json"]].concat())).unwrap()
}

#[track_caller]
fn refused(place: &Place, args: &[&str]) -> String {
    let output = run(place, args, "");
    assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Lines `from..to` with a key for each tenth.
fn keyed(range: std::ops::Range<u32>) -> String {
    range.map(|n| format!("k{}\t{n}\n", n % 10)).collect()
}

/// Values in order, by key, of what `consume --json` prints.
fn by_key(lines: &str) -> BTreeMap<String, Vec<u32>> {
    let mut values: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for line in lines.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let key = record["key"].as_str().unwrap().to_owned();
        values.entry(key).or_default().push(record["value"].as_str().unwrap().parse().unwrap());
    }
    values
}

/// What [`by_key`] gives when everything came once and in order.
fn in_order(range: std::ops::Range<u32>) -> BTreeMap<String, Vec<u32>> {
    let mut values: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    range.for_each(|n| values.entry(format!("k{}", n % 10)).or_default().push(n));
    values
}

#[track_caller]
fn interrupt(child: Child) -> Output {
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn topics_and_ranges() {
    let place = Place::new();
    let _broker = place.start();
    assert_eq!(said(&place, &["topic", "create", "orders"]), "Topic \"orders\" created\n");
    assert!(refused(&place, &["topic", "create", "no/slash"]).starts_with("Error: invalid_topic_name\n"));
    said_to(&place, &["produce", "orders", "--format", "kv"], &keyed(0..100));
    let listed = json(&place, &["topic", "list"]);
    assert_eq!((&listed[0]["topic"], &listed[0]["active_ranges"]), (&"orders".into(), &1.into()));
    assert_eq!(json(&place, &["topic", "list", "x"]), serde_json::json!([]));

    said(&place, &["range", "split", "orders", "0"]);
    said_to(&place, &["produce", "orders", "--format", "kv"], &keyed(100..200));
    let split = json(&place, &["range", "split", "orders", "1"]);
    let (left, right) = (split["left"].to_string(), split["right"].to_string());
    said_to(&place, &["produce", "orders", "--format", "kv"], &keyed(200..300));
    let merged = json(&place, &["range", "merge", "orders", &left, &right]);
    said_to(&place, &["produce", "orders", "--format", "kv"], &keyed(300..400));
    assert_eq!(by_key(&said(&place, &["consume", "orders", "--json"])), in_order(0..400));

    let ranges = json(&place, &["range", "list", "orders", "--all"]);
    let ranges = ranges.as_array().unwrap();
    assert_eq!(ranges.len(), 6);
    let child = ranges.iter().find(|range| range["range"] == merged["child"]).unwrap();
    assert_eq!((&child["state"], child["parents"].as_array().unwrap().len()), (&"active".into(), 2));
    assert_eq!(ranges.iter().map(|range| range["records"].as_u64().unwrap()).sum::<u64>(), 400);
    assert!(
        refused(&place, &["range", "split", "orders", "0"])
            .starts_with("Error: sealed\nSee `malachi range list`")
    );
    assert!(refused(&place, &["range", "split", "orders", "99"]).starts_with("Error: no_such_range\n"));
    assert!(refused(&place, &["range", "merge", "orders", "2", "2"]).starts_with("Error: not_buddies\n"));

    said(&place, &["topic", "seal", "orders"]);
    assert_eq!(json(&place, &["topic", "describe", "orders"])["state"], "sealed");
    assert!(refused(&place, &["produce", "orders", "1"]).starts_with("Error: unroutable\n"));
    assert_eq!(by_key(&said(&place, &["consume", "orders", "--json"])), in_order(0..400));
    said(&place, &["topic", "delete", "orders", "--yes"]);
    assert!(refused(&place, &["topic", "describe", "orders"]).starts_with("Error: no_such_topic\n"));
    said(&place, &["topic", "create", "orders"]);
    assert_eq!(said(&place, &["consume", "orders"]), "", "nothing of the old one");
}

#[test]
fn following_while_ranges_split() {
    let place = Place::new();
    let _broker = place.start();
    said(&place, &["topic", "create", "t"]);
    let args = ["consume", "t", "--follow", "--group", "g", "--json"];
    let mut child = malachi(&place, &args).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut seen = String::new();
    for round in 0..6_u32 {
        let next = round * 50..(round + 1) * 50;
        said_to(&place, &["produce", "t", "--format", "kv"], &keyed(next));
        for _ in 0..50 {
            seen.push_str(&lines.next().unwrap().unwrap());
            seen.push('\n');
        }
        let ranges = json(&place, &["range", "list", "t"]);
        said(&place, &["range", "split", "t", &ranges[0]["range"].to_string()]);
    }
    assert_eq!(by_key(&seen), in_order(0..300));
    // The position is committed with every idle poll.
    wait_for("everything to be committed", || json(&place, &["group", "describe", "t", "g"])["lag"] == 0);
    interrupt(child);
    assert_eq!(said(&place, &["consume", "t", "--group", "g"]), "");
}

#[test]
fn groups_members_and_streams() {
    let place = Place::new();
    let _broker = place.start();
    said(&place, &["topic", "create", "t"]);
    said(&place, &["range", "split", "t", "0"]);
    said_to(&place, &["produce", "t", "--format", "kv"], &keyed(0..200));

    let mut children: Vec<Child> = ["m1", "m2"]
        .iter()
        .map(|member| {
            let args = ["subscribe", "t", "--group", "g", "--member", member, "--json", "--window", "20"];
            malachi(&place, &args).spawn().unwrap()
        })
        .collect();
    wait_for("both members", || {
        let group = json(&place, &["group", "describe", "t", "g"]);
        group["members"].as_array().unwrap().len() == 2 && group["lag"] == 0
    });
    said_to(&place, &["produce", "t", "--format", "kv"], &keyed(200..400));
    wait_for("the rest", || json(&place, &["group", "describe", "t", "g"])["lag"] == 0);
    let outputs: Vec<Output> = children.drain(..).map(interrupt).collect();
    let all: String = outputs.iter().map(|o| String::from_utf8(o.stdout.clone()).unwrap()).collect();
    // While the second member joined, records of a range it took over may have come to both.
    let mut values = by_key(&all);
    for (key, expected) in in_order(0..400) {
        let found = values.get_mut(&key).unwrap();
        found.sort_unstable();
        found.dedup();
        assert_eq!(*found, expected, "{key}");
    }
    assert_eq!(json(&place, &["group", "list", "t"]), serde_json::json!(["g"]));
    wait_for("the members to leave", || {
        json(&place, &["group", "describe", "t", "g"])["members"] == serde_json::json!([])
    });

    let share = said(&place, &["consume", "t", "--group", "h", "--member", "m", "--json"]);
    assert_eq!(by_key(&share), in_order(0..400), "a member alone has all of it");
    let limited = said(&place, &["subscribe", "t", "--group", "i", "--limit", "10", "--max", "10"]);
    assert_eq!(limited.lines().count(), 10);
    assert_eq!(json(&place, &["group", "describe", "t", "i"])["lag"], 390);
}

#[test]
fn reading_from_a_time() {
    let place = Place::new();
    let _broker = place.start();
    said(&place, &["topic", "create", "t"]);
    said_to(&place, &["produce", "t"], "early\n");
    let between = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() + 1;
    // The clock has to reach the next millisecond.
    wait_for("the clock", || {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() > between
    });
    said_to(&place, &["produce", "t"], "late\n");
    assert_eq!(said(&place, &["consume", "t", "--from-time", &between.to_string()]), "late\n");
    assert_eq!(said(&place, &["consume", "t", "--from-time", "0"]), "early\nlate\n");
    assert_eq!(said(&place, &["consume", "t", "--from-end"]), "");
}

#[test]
fn users_and_rights() {
    let place = Place::new();
    let _broker = place.start();
    said(&place, &["topic", "create", "orders"]);
    said(&place, &["topic", "create", "secrets"]);
    let made = said_to(&place, &["user", "create", "bob", "-", "--perms", ""], "s3cret-pass-12\n");
    assert_eq!(made, "created user \"bob\" []\n");
    said(&place, &["acl", "grant", "bob", "produce", "orders"]);
    assert_eq!(said(&place, &["acl", "list", "bob"]), "produce\torders\n");
    let users = json(&place, &["user", "list"]);
    assert!(users.as_array().unwrap().iter().any(|user| user["user"] == "bob"), "{users}");

    let as_bob = |args: &[&str], password: &str| {
        malachi(&place, args).env("MALACHI_USER", "bob").env("MALACHI_PASS", password).output().unwrap()
    };
    assert!(as_bob(&["produce", "orders", "1"], "s3cret-pass-12").status.success());
    let elsewhere = as_bob(&["produce", "secrets", "1"], "s3cret-pass-12");
    assert!(elsewhere.stderr.starts_with(b"Error: permission_denied\n"), "{elsewhere:?}");
    assert!(!as_bob(&["user", "list"], "s3cret-pass-12").status.success());

    said_to(&place, &["user", "passwd", "bob", "-"], "another-pass-1\n");
    let old = as_bob(&["produce", "orders", "1"], "s3cret-pass-12");
    assert!(old.stderr.starts_with(b"Error: invalid_credentials\n"), "{old:?}");
    assert!(as_bob(&["produce", "orders", "1"], "another-pass-1").status.success());
    said(&place, &["acl", "revoke", "bob", "produce", "orders"]);
    assert!(!as_bob(&["produce", "orders", "1"], "another-pass-1").status.success());
    said(&place, &["user", "delete", "bob"]);
    assert!(!as_bob(&["produce", "orders", "1"], "another-pass-1").status.success());
    assert!(refused(&place, &["user", "create", "admin", "some-pass-12345"]).contains("Error: user_exists"));
}

#[test]
fn load_is_measured_and_read_back() {
    let place = Place::new();
    let _broker = place.start();
    let dir = place.dir.path().to_str().unwrap().to_owned();
    for more in [
        &["--scenario", "produce", "--baseline-dir", &dir][..],
        &["--scenario", "produce", "--batch", "10", "--checksums"],
        &["--scenario", "mixed", "--prepopulate", "1000"],
        &["--scenario", "fetch", "--prepopulate", "1000"],
        &["--scenario", "stream", "--prepopulate", "1000"],
        &["--scenario", "tail", "--rate", "100"],
    ] {
        let args = ["loadtest", "--duration", "1", "--connections", "4", "--max-errors", "0"];
        let report = json(&place, &[&args[..], more].concat());
        assert!(report["operations"].as_u64().unwrap() > 0, "{report:#}");
        assert_eq!(report["errors"], 0, "{report:#}");
        let verified = &report["verified"];
        assert!(verified.is_null() || verified["ok"] == true, "{report:#}");
    }
}

#[test]
fn settings_are_checked_and_shown() {
    let place = Place::new();
    assert_eq!(said(&place, &["config", "check"]), "the configuration is valid\n");
    let shown = json(&place, &["config", "show"]);
    assert!(shown.to_string().contains("MALACHI_TCP_PORT"), "{shown}");
    let wrong = malachi(&place, &["config", "check"]).env("MALACHI_TCP_PORT", "many").output().unwrap();
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    let file = place.dir.path().join("malachi.toml");
    process::write(&file, "no_such_key = 1\n");
    let wrong = malachi(&place, &["config", "check", "--config", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
}

#[test]
fn a_record_as_large_as_a_frame_goes_in_and_comes_out_every_way() {
    let place = Place::new();
    let _broker = place.start();
    said(&place, &["topic", "create", "t"]);
    // Envelope, the producer's stamp, topic, flags, checksum and count; then a record without key and headers.
    let value = "x".repeat(16 * 1024 * 1024 - (6 + 28 + 6 + 1 + 4 + 4) - 17);
    said_to(&place, &["produce", "t"], &format!("{value}\n"));
    let line = format!("{value}\n");
    assert!(said(&place, &["consume", "t"]) == line, "read");
    assert!(said(&place, &["consume", "t", "--group", "g", "--member", "m"]) == line, "as a member");
    assert!(said(&place, &["subscribe", "t", "--limit", "1"]) == line, "pushed");
    let longer = run(&place, &["produce", "t"], &format!("{value}x\n"));
    assert_eq!(longer.status.code(), Some(1));
    let stderr = String::from_utf8(longer.stderr).unwrap();
    assert!(
        stderr.starts_with("Error: line 1: the record does not fit a frame of 16777216 bytes"),
        "{stderr}"
    );
    assert_eq!(json(&place, &["range", "list", "t"])[0]["records"], 1);
}
