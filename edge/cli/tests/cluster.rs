//! The cluster from a shell: how it is told of, and what becomes of its only node, which is a cluster of one.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use std::process::Output;

use process::{Place, wait_for};
use serde_json::Value;

fn run(place: &Place, args: &[&str]) -> Output {
    let mut command = place.command_of(args);
    command.env("MALACHI_HOST", "127.0.0.1").env("MALACHI_PORT", place.port.to_string());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn said(place: &Place, args: &[&str]) -> String {
    let output = run(place, args);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    text(&output.stdout)
}

/// What is said on both outputs by a command that fails.
#[track_caller]
fn refused(place: &Place, args: &[&str]) -> (String, String) {
    let output = run(place, args);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    (text(&output.stdout), text(&output.stderr))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn place() -> Place {
    Place::new()
        .with("MALACHI_NODE_NAME", "n1")
        .with("MALACHI_LOG_VNODES", "4")
        .with("MALACHI_LOG_ATTRIBUTES", "rack=r1")
}

#[test]
fn a_cluster_of_one_is_told_of() {
    let place = place();
    let _broker = place.start();
    // The node is ready before each of its groups has elected.
    let mut lines = String::new();
    wait_for("every group to have a leader", || {
        lines = said(&place, &["cluster", "status"]);
        lines.lines().any(|line| line == "leaderless\t0")
    });
    for line in ["asked\tn1", "leader\tn1", "voters\tn1", "vnodes\t4", "lease\tnone"] {
        assert!(lines.lines().any(|said| said == line), "{line}: {lines}");
    }
    let node: Vec<&str> = lines.lines().last().unwrap().split('\t').collect();
    let begin = ["n1", "active", "alive", "yes", "4"];
    assert_eq!((node.len(), &node[..5], node[7]), (9, &begin[..], "rack=r1"));

    let status = json(&said(&place, &["cluster", "status", "--json"]));
    let id = status["nodes"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!((&status["leader"], id.len()), (&Value::from(id.clone()), 32));
    assert_eq!(status["nodes"][0]["attributes"]["rack"], "r1");
    assert_eq!((&status["pending"], &status["members"][0]["votes"]), (&Value::Null, &Value::from(true)));

    said(&place, &["topic", "create", "orders"]);
    let ring = said(&place, &["ring"]);
    assert_eq!(ring.lines().count(), 4, "{ring}");
    assert!(ring.starts_with("0\t0\t25.000\tn1\tn1\t"), "{ring}");
    let ring = json(&said(&place, &["ring", "--json"]));
    let topics: u64 =
        ring["vnodes"].as_array().unwrap().iter().map(|vnode| vnode["topics"].as_u64().unwrap()).sum();
    assert_eq!((topics, &ring["vnodes"][1]["places"]), (1, &Value::from(1_u64 << 30)));
    assert_eq!(ring["vnodes"][3]["members"], Value::from(vec![id]));

    let add = said(&place, &["cluster", "add"]);
    let peers = status["nodes"][0]["peer"].as_str().unwrap();
    assert!(add.contains(&format!("MALACHI_LOG_NODES={peers}\n")), "{add}");
    assert!(add.contains("the only one so far"), "{add}");
}

#[test]
fn the_last_node_stays_and_the_way_out_is_told() {
    let place = place();
    let _broker = place.start();
    let id =
        json(&said(&place, &["cluster", "status", "--json"]))["nodes"][0]["id"].as_str().unwrap().to_owned();
    for args in [["cluster", "drain", "n1"], ["cluster", "drain", &id], ["cluster", "remove", "n1"]] {
        let (out, error) = refused(&place, &args);
        assert!(out.is_empty() && error.starts_with("Error: last_node\nNo other node is active"), "{error}");
    }
    let (tried, error) = refused(&place, &["cluster", "drain", "n1", "--dry-run"]);
    let holds =
        "which is a member of 4 vnode(s) (0, 1, 2, 3), and of the cluster group, and has no segment\n";
    assert_eq!(tried, format!("would drain \"n1\", {holds}"));
    assert!(error.starts_with("Error: last_node\n"), "{error}");
    let (tried, _) = refused(&place, &["cluster", "remove", "n1", "--force", "--dry-run", "--json"]);
    let tried = json(&tried);
    assert_eq!(
        (&tried["refusal"], &tried["vnodes"], &tried["name"]),
        (&"last_node".into(), &4.into(), &"n1".into())
    );
    // Nothing to take back is fine, like all that is there already.
    assert!(said(&place, &["cluster", "undrain", "n1"]).starts_with("active again: \"n1\""));

    let (_, error) = refused(&place, &["cluster", "drain", "n9"]);
    assert_eq!(error, "Error: the cluster has no node \"n9\"; it has n1\n");
    let (_, error) = refused(&place, &["cluster", "drain", "n1", "--wait", "--dry-run"]);
    assert!(error.contains("cannot be used with"), "{error}");
}

#[test]
fn the_ring_gets_another_number_of_vnodes() {
    let place = place();
    let _broker = place.start();
    let plan = said(&place, &["reshard", "--to", "5", "--dry-run"]);
    assert_eq!(plan, "4 to 5 vnodes in 1 step(s)\nsplit 3 into 4 at 2684354560\n");
    let plan = json(&said(&place, &["reshard", "--to", "2", "--dry-run", "--json"]));
    assert_eq!((&plan["from"], &plan["step_count"], &plan["refusal"]), (&4.into(), &2.into(), &Value::Null));
    assert_eq!(plan["steps"][0]["step"], "merge");
    assert_eq!(said(&place, &["reshard", "--to", "4", "--dry-run"]), "4 to 4 vnodes in 0 step(s)\n");
    assert_eq!(said(&place, &["ring"]).lines().count(), 4, "a trial changes nothing");
    let (_, error) = refused(&place, &["reshard", "--to", "4097", "--dry-run"]);
    assert!(error.starts_with("Error: invalid_vnode_count\nA ring has 1 to 4096 vnodes."), "{error}");
    refused(&place, &["reshard", "--to", "0"]);
    refused(&place, &["reshard"]);

    let names: Vec<String> = (0..12).map(|number| format!("orders-{number}")).collect();
    for name in &names {
        said(&place, &["topic", "create", name]);
    }
    for to in ["4", "7", "2", "1"] {
        let told = said(&place, &["reshard", "--to", to]);
        assert!(told.ends_with(&format!("resharded: the ring now has {to} vnodes\n")), "{told}");
        let ring = json(&said(&place, &["ring", "--json"]));
        let vnodes = ring["vnodes"].as_array().unwrap();
        let topics: Vec<u64> = vnodes.iter().map(|vnode| vnode["topics"].as_u64().unwrap()).collect();
        assert_eq!((vnodes.len().to_string(), topics.iter().sum::<u64>()), (to.to_owned(), 12));
        assert!(to == "1" || topics.iter().filter(|topics| **topics > 0).count() > 1, "{topics:?}");
        assert_eq!(ring["pending"], Value::Null);
        for name in &names {
            said(&place, &["topic", "describe", name]);
        }
    }
    let lines = said(&place, &["cluster", "status"]);
    for line in ["vnodes\t1", "lease\tnone"] {
        assert!(lines.lines().any(|said| said == line), "{line}: {lines}");
    }
}

#[test]
fn only_administrators_are_told() {
    let place = place();
    let _broker = place.start();
    for args in
        [&["cluster", "status"][..], &["ring"], &["reshard", "--to", "8"], &["cluster", "drain", "n1"]]
    {
        let mut command = place.command_of(args);
        command.env("MALACHI_HOST", "127.0.0.1").env("MALACHI_PORT", place.port.to_string());
        command.env("MALACHI_USER", "producer").env("MALACHI_PASS", "producer123");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).starts_with("Error: permission_denied\n"), "{output:?}");
    }
}
