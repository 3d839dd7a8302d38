//! What a shell is told of segments, of their copies, and of what does not move.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use std::path::{Path, PathBuf};
use std::process::Output;

use client::Record;
use process::node::{Node, create, runtime, sees, started, three};
use process::wait_for;
use serde_json::Value;

/// What is in the record that a bit rots in.
const MARK: &[u8] = b"rots before long";

fn run(node: &Node, args: &[&str]) -> Output {
    let mut command = node.place.command_of(args);
    command.env("MALACHI_HOST", "127.0.0.1").env("MALACHI_PORT", node.place.port.to_string());
    command.output().unwrap()
}

#[track_caller]
fn said(node: &Node, args: &[&str]) -> String {
    let output = run(node, args);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(node: &Node, args: &[&str]) -> Value {
    serde_json::from_str(&said(node, args)).unwrap()
}

/// The health of each copy of each segment, as `segment ls` or `verify` print it.
fn healths(text: &str) -> Vec<&str> {
    text.lines().map(|line| line.split('\t').nth(6).unwrap()).collect()
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Turns a bit of the record over in a node's copy, behind the back of the process.
fn rot(node: &Node) {
    let holds = |bytes: &[u8]| bytes.windows(MARK.len()).position(|window| window == MARK);
    let mut rotten = 0;
    for path in files_below(&node.place.log_dir()) {
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = holds(&bytes).filter(|_| path.extension().is_some_and(|name| name == "log")) {
            bytes[at] ^= 1;
            use std::io::{Seek, SeekFrom, Write};
            let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.seek(SeekFrom::Start(at as u64)).unwrap();
            file.write_all(&bytes[at..=at]).unwrap();
            rotten += 1;
        }
    }
    assert!(rotten > 0, "the copy is there");
}

#[test]
fn a_shell_is_told_how_copies_are_and_why_things_stand() {
    let nodes = three();
    let mut brokers = started(&nodes);
    let [a, b, c] = &nodes;
    let runtime = runtime();
    create(a, "t", &runtime);
    for node in [a, b, c] {
        sees(node, "t", &runtime);
    }
    let told = json(b, &["explain", "range", "t", "0", "--json"]);
    assert_eq!((&told["cause"], &told["verdict"]), (&"idle".into(), &"moves".into()), "{told}");
    runtime.block_on(async {
        let record = Record { key: None, value: MARK.into(), timestamp: 0, headers: Vec::new() };
        a.admin().await.produce("t", &[record]).await.unwrap();
    });

    for node in [a, b, c] {
        wait_for("all copies to follow", || {
            let told = json(node, &["explain", "range", "t", "0", "--json"]);
            let copies = told["segment"]["copies"].as_array().cloned().unwrap_or_default();
            told["cause"] == "open" && copies.iter().filter(|copy| copy["health"] == "intact").count() == 3
        });
        let told = said(node, &["explain", "range", "t", "0"]);
        assert!(told.starts_with("verdict\tmoves\ncause\topen\nbecause\tit takes records"), "{told}");
    }

    said(a, &["range", "split", "t", "0"]);
    wait_for("the copies to be settled", || healths(&said(c, &["segment", "ls", "t"])) == ["settled"; 3]);
    let told = said(c, &["explain", "range", "t", "0"]);
    assert!(told.contains("cause\treplaced\n") && told.contains("range 1, 2"), "{told}");
    let sound = said(b, &["segment", "verify", "t"]);
    assert_eq!(healths(&sound), ["settled"; 3], "{sound}");
    assert!(
        sound.lines().all(|line| line.starts_with("0/0\tsealed\t0\t1\t") && line.contains("1 records, ")),
        "{sound}"
    );
    assert_eq!(healths(&said(b, &["segment", "ls", "t", "--tables"])), ["unasked"; 3]);
    for (args, error) in [(["0/7"], "has no segment 0/7"), (["x"], "it is RANGE/NUMBER")] {
        let output = run(b, &[&["segment", "verify", "t"][..], &args].concat());
        assert!(!output.status.success());
        assert!(String::from_utf8(output.stderr).unwrap().contains(error));
    }

    rot(c);
    let output = run(a, &["segment", "verify", "t", "0/0", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |name: &str| {
        let copies = told[0]["copies"].as_array().unwrap();
        copies.iter().find(|copy| copy["name"] == name).unwrap()["health"].clone()
    };
    assert_eq!((of("a"), of("b")), ("settled".into(), "settled".into()), "{told}");
    assert!(["damaged", "latched", "rebuilding"].contains(&of("c").as_str().unwrap()), "{told}");

    let told = json(a, &["explain", "node", "b", "--json"]);
    assert_eq!((&told["told_by"], &told["verdict"]), (&"b".into(), &"moves".into()), "{told}");
    brokers[1].take().unwrap().kill();
    wait_for("the dead to be given up", || {
        let told = json(a, &["explain", "node", "b", "--json"]);
        told["cause"] == "dead" && told["verdict"] == "stands" && told["told_by"] == "a"
    });
    let told = said(a, &["explain", "group", "t", "nobody"]);
    assert!(told.starts_with("verdict\tstands\ncause\tunknown\n"), "{told}");
    assert_eq!(
        healths(&said(a, &["segment", "ls", "t"])).iter().filter(|health| **health == "unreachable").count(),
        1
    );
}
