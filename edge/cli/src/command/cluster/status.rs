//! `malachi cluster status`: what one node knows of all.

use client::{ClusterNode, ClusterStatus, NodeId, RingStep};
use serde_json::{Value, json};

use super::{Names, Status};
use crate::connect;
use crate::print::{self, Table};

pub(super) async fn run(args: Status) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let status = client.cluster().await.map_err(|error| args.connect.explain(error))?;
    if args.json {
        return Ok(print::line(&value(&status))?);
    }
    let names = Names::of(&status);
    for (field, text) in summary(&status, &names) {
        print::line(&format_args!("{field}{}{}", print::separator(), print::printable(&text)))?;
    }
    let mut table = Table::new(&[
        "NODE",
        "STATE",
        "HEALTH",
        "CONNECTED",
        "VNODES",
        "PEERS",
        "CLIENTS",
        "ATTRIBUTES",
        "ID",
    ]);
    for node in &status.nodes {
        table.row(vec![
            print::name(&node.name),
            node.state.name().to_owned(),
            node.health.name().to_owned(),
            if node.connected { "yes" } else { "no" }.to_owned(),
            node.vnodes.to_string(),
            print::name(&node.peer),
            node.client.as_ref().map(|client| print::name(client)).unwrap_or_default(),
            attributes(node).join(","),
            node.node.to_string(),
        ]);
    }
    Ok(table.print("(no nodes)")?)
}

fn summary(status: &ClusterStatus, names: &Names) -> Vec<(&'static str, String)> {
    let known = |node: Option<NodeId>| node.map_or_else(|| "unknown".to_owned(), |node| names.of_node(node));
    let members = |votes: bool| {
        let members = status.members.iter().filter(|member| member.votes == votes);
        members.map(|member| names.of_node(member.node)).collect::<Vec<_>>().join(",")
    };
    let mut fields = vec![
        ("asked", names.of_node(status.asked)),
        ("leader", known(status.leader)),
        ("term", status.term.to_string()),
        ("voters", members(true)),
    ];
    if status.members.iter().any(|member| !member.votes) {
        fields.push(("learners", members(false)));
    }
    fields.push(("vnodes", status.vnodes.to_string()));
    fields.push(("ring_version", status.ring_version.to_string()));
    if let Some(step) = status.pending {
        fields.push(("pending", described(step)));
    }
    fields.push(("lease", status.lease.map_or_else(|| "none".to_owned(), |node| names.of_node(node))));
    fields.push(("leaderless", status.leaderless.to_string()));
    fields
}

fn attributes(node: &ClusterNode) -> Vec<String> {
    let pair =
        |(key, value): &(bytes::Bytes, bytes::Bytes)| format!("{}={}", print::name(key), print::name(value));
    node.attributes.iter().map(pair).collect()
}

/// A step in a few words.
pub(in crate::command) fn described(step: RingStep) -> String {
    match step {
        RingStep::Split { vnode, source, token } => format!("split {source} into {vnode} at {token}"),
        RingStep::Merge { vnode, into } => format!("merge {vnode} into {into}"),
    }
}

/// A step as JSON.
pub(in crate::command) fn step(step: RingStep) -> Value {
    match step {
        RingStep::Split { vnode, source, token } => {
            json!({ "step": "split", "vnode": vnode.0, "source": source.0, "token": token })
        }
        RingStep::Merge { vnode, into } => json!({ "step": "merge", "vnode": vnode.0, "into": into.0 }),
    }
}

fn value(status: &ClusterStatus) -> Value {
    let id = |node: Option<NodeId>| node.map(|node| node.to_string());
    let node = |node: &ClusterNode| {
        let attribute =
            |(key, value): &(bytes::Bytes, bytes::Bytes)| (print::name(key), Value::from(print::name(value)));
        json!({
            "id": node.node.to_string(),
            "name": print::name(&node.name),
            "state": node.state.name(),
            "health": node.health.name(),
            "connected": node.connected,
            "vnodes": node.vnodes,
            "peer": print::name(&node.peer),
            "client": node.client.as_ref().map(|client| print::name(client)),
            "incarnation": node.incarnation,
            "attributes": node.attributes.iter().map(attribute).collect::<serde_json::Map<_, _>>(),
        })
    };
    let members = status.members.iter();
    let members = members.map(|member| json!({ "id": member.node.to_string(), "votes": member.votes }));
    json!({
        "asked": status.asked.to_string(),
        "leader": id(status.leader),
        "term": status.term,
        "members": members.collect::<Vec<_>>(),
        "ring_version": status.ring_version,
        "vnodes": status.vnodes,
        "pending": status.pending.map(step),
        "lease": id(status.lease),
        "leaderless": status.leaderless,
        "nodes": status.nodes.iter().map(node).collect::<Vec<_>>(),
    })
}
