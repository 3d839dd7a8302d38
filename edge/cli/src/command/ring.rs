//! `malachi ring`: the shards of the metadata.

use std::process::ExitCode;

use client::VnodeInfo;
use serde_json::{Value, json};

use super::cluster::{Names, described, step};
use crate::connect::{self, Connect};
use crate::print::{self, Table};

/// Places of the whole ring.
const PLACES: f64 = types::ring::PLACES as f64;

/// How to show it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What happens anyway: scripts of earlier releases say so
    #[arg(long, hide = true)]
    show: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.connect.open(connect::ADMIN).await?;
    let ring = client.ring().await.map_err(|error| args.connect.explain(error))?;
    let status = client.cluster().await.map_err(|error| args.connect.explain(error))?;
    if args.json {
        let vnodes: Vec<Value> = ring.vnodes.iter().map(value).collect();
        let pending = status.pending.map(step);
        print::line(&json!({ "version": ring.version, "vnodes": vnodes, "pending": pending }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let names = Names::of(&status);
    let mut table = Table::new(&["VNODE", "TOKEN", "SHARE %", "MEMBERS", "LEADER", "TOPICS"]);
    for vnode in &ring.vnodes {
        let members: Vec<String> = vnode.members.iter().map(|node| names.of_node(*node)).collect();
        table.row(vec![
            vnode.vnode.to_string(),
            vnode.token.to_string(),
            format!("{:.3}", share(vnode) * 100.0),
            members.join(","),
            vnode.leader.map_or_else(|| "unknown".to_owned(), |node| names.of_node(node)),
            vnode.topics.to_string(),
        ]);
    }
    table.print("(no ring)")?;
    if let Some(pending) = status.pending {
        print::line(&format_args!("under way: {}", described(pending)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn share(vnode: &VnodeInfo) -> f64 {
    vnode.places as f64 / PLACES
}

fn value(vnode: &VnodeInfo) -> Value {
    json!({
        "vnode": vnode.vnode.0,
        "token": vnode.token,
        "places": vnode.places,
        "share": share(vnode),
        "members": vnode.members.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "leader": vnode.leader.map(|node| node.to_string()),
        "topics": vnode.topics,
    })
}
