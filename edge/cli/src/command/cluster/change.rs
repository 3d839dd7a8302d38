//! `malachi cluster drain`, `undrain` and `remove`.
//!
//! A trial is the same request with one bit set, so it says what the broker would say.

use std::time::Duration;

use client::{Client, ClusterNode, Error, NodeChange, NodeChanged, NodeState, Reason};
use serde_json::json;

use super::{Drain, One, Remove, find};
use crate::connect;
use crate::print;

/// How often it is looked how far a drain is.
const LOOK_EVERY: Duration = Duration::from_millis(300);

pub(super) async fn drain(args: Drain) -> anyhow::Result<()> {
    let (client, node) = change(&args.one, NodeChange::Drain, "drain", "draining").await?;
    if args.wait { wait(&client, &args.one, &node).await } else { Ok(()) }
}

pub(super) async fn undrain(args: One) -> anyhow::Result<()> {
    change(&args, NodeChange::Undrain, "undrain", "active again:").await.map(drop)
}

pub(super) async fn remove(args: Remove) -> anyhow::Result<()> {
    let what = if args.force { NodeChange::ForceRemove } else { NodeChange::Remove };
    change(&args.one, what, "remove", "removed").await.map(drop)
}

/// Does it or tries it, and says what came of it.
async fn change(
    args: &One,
    change: NodeChange,
    verb: &str,
    done: &str,
) -> anyhow::Result<(Client, ClusterNode)> {
    let explain = |error| args.connect.explain(error);
    let client = args.connect.open(connect::ADMIN).await?;
    let status = client.cluster().await.map_err(explain)?;
    let node = find(&status, &args.node)?.clone();
    let name = print::printable(&print::name(&node.name));
    let changed = client.change_node(node.node, change, args.dry_run).await.map_err(explain)?;
    if args.json {
        print::line(&json!({
            "node": node.node.to_string(),
            "name": print::name(&node.name),
            "change": verb,
            "dry_run": args.dry_run,
            "refusal": changed.refusal.as_ref().map(|reason| print::name(reason)),
            "vnodes": changed.vnode_count,
            "vnode_list": changed.vnodes.iter().map(|vnode| vnode.0).collect::<Vec<_>>(),
            "in_cluster_group": changed.in_cluster_group,
            "segments": changed.segments,
        }))?;
    } else if args.dry_run {
        print::line(&format_args!("would {verb} \"{name}\", which {}", holds(&changed)))?;
    } else {
        print::line(&format_args!("{done} \"{name}\", which {}", holds(&changed)))?;
    }
    match changed.refusal {
        None => Ok((client, node)),
        Some(token) => Err(explain(
            Reason::from_token(&token)
                .map_or_else(|| Error::RefusedUnknown(print::name(&token)), Error::Refused),
        )),
    }
}

/// What is on a node, in a few words.
fn holds(changed: &NodeChanged) -> String {
    let listed: Vec<String> = changed.vnodes.iter().take(10).map(ToString::to_string).collect();
    let more = if changed.vnode_count as usize > listed.len() { ", ..." } else { "" };
    let vnodes = match changed.vnode_count {
        0 => "is a member of no vnode".to_owned(),
        count => format!("is a member of {count} vnode(s) ({}{more})", listed.join(", ")),
    };
    let cluster = if changed.in_cluster_group { ", and of the cluster group" } else { "" };
    let segments = match changed.segments {
        0 => "no segment".to_owned(),
        count => format!("copies of {count} segment(s)"),
    };
    format!("{vnodes}{cluster}, and has {segments}")
}

/// Prints a line whenever less is left, until nothing is.
async fn wait(client: &Client, args: &One, node: &ClusterNode) -> anyhow::Result<()> {
    let explain = |error| args.connect.explain(error);
    let name = print::printable(&print::name(&node.name));
    let mut told = None;
    loop {
        let status = client.cluster().await.map_err(explain)?;
        let Some(now) = status.nodes.iter().find(|listed| listed.node == node.node) else {
            return say(args, &format!("\"{name}\" was removed"));
        };
        if now.state != NodeState::Draining {
            anyhow::bail!("\"{name}\" is {}: its drain was taken back", now.state.name());
        }
        let in_cluster_group = status.members.iter().any(|member| member.node == node.node);
        if now.vnodes == 0 && !in_cluster_group {
            break;
        }
        if told.replace((now.vnodes, in_cluster_group)) != Some((now.vnodes, in_cluster_group)) {
            let cluster = if in_cluster_group { " and the cluster group" } else { "" };
            say(args, &format!("left: {} vnode(s){cluster}", now.vnodes))?;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let left = client.change_node(node.node, NodeChange::Drain, true).await.map_err(explain)?.segments;
    say(args, &format!("drained \"{name}\": it is a member of no group"))?;
    if left > 0 {
        print::note(&format_args!(
            "{left} segment(s) still have a copy on it, and records do not move in this version: it cannot be removed yet"
        ));
    }
    Ok(())
}

/// Progress is for people: what asked for JSON gets it on standard error.
fn say(args: &One, text: &str) -> anyhow::Result<()> {
    if args.json {
        print::note(&text);
        Ok(())
    } else {
        Ok(print::line(&text)?)
    }
}
