//! `malachi explain`: why something does or does not move, in the words of whoever would move it.

use std::process::ExitCode;

use client::{ClusterStatus, Explanation};
use serde_json::{Value, json};

use super::cluster::{Names, find};
use super::segment;
use crate::connect::{self, Connect};
use crate::print::{self, Table};

/// What to explain.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Why a range does or does not take records
    Range(Range),
    /// How a node is
    Node(Node),
    /// Why a group does or does not get on
    Group(Group),
}

/// A range.
#[derive(Debug, clap::Args)]
pub(crate) struct Range {
    /// Topic
    topic: String,
    /// Number of the range
    range: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// A node.
#[derive(Debug, clap::Args)]
pub(crate) struct Node {
    /// Name or id of the node, as `malachi cluster status` shows them
    node: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// A group.
#[derive(Debug, clap::Args)]
pub(crate) struct Group {
    /// Topic
    topic: String,
    /// Group
    group: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Range(Range { topic, range, json, connect }) => {
            let client = connect.open(connect::ADMIN).await?;
            let status = client.cluster().await.map_err(|error| connect.explain(error))?;
            let told = client.explain_range(&topic, range).await.map_err(|error| connect.explain(error))?;
            show(&told, &status, json)
        }
        Command::Node(Node { node, json, connect }) => {
            let client = connect.open(connect::ADMIN).await?;
            let status = client.cluster().await.map_err(|error| connect.explain(error))?;
            let id = find(&status, &node)?.node;
            let told = client.explain_node(id).await.map_err(|error| connect.explain(error))?;
            show(&told, &status, json)
        }
        Command::Group(Group { topic, group, json, connect }) => {
            let client = connect.open(connect::ADMIN).await?;
            let status = client.cluster().await.map_err(|error| connect.explain(error))?;
            let told = client.explain_group(&topic, group.as_bytes()).await;
            show(&told.map_err(|error| connect.explain(error))?, &status, json)
        }
    }?;
    Ok(ExitCode::SUCCESS)
}

fn show(told: &Explanation, status: &ClusterStatus, as_json: bool) -> anyhow::Result<()> {
    let names = Names::of(status);
    if as_json {
        return Ok(print::line(&value(told, &names))?);
    }
    let field = |name: &str, text: &str| {
        print::line(&format_args!("{name}{}{}", print::separator(), print::printable(text)))
    };
    field("verdict", told.verdict.name())?;
    field("cause", &print::name(&told.cause))?;
    field("because", &print::name(&told.text))?;
    if let Some(since) = told.since_ms {
        field("for_ms", &since.to_string())?;
    }
    field("next", &print::name(&told.next))?;
    field("told_by", &names.of_node(told.told_by))?;
    for (name, text) in &told.facts {
        field(&print::printable(&print::name(name)), &print::name(text))?;
    }
    let Some(segment) = &told.segment else { return Ok(()) };
    let mut table = Table::new(&["NODE", "COPY", "END", "DETAIL"]);
    for copy in &segment.copies {
        table.row(vec![
            names.of_node(copy.node),
            copy.health.name().to_owned(),
            copy.end.map(|end| end.to_string()).unwrap_or_default(),
            print::name(&copy.detail),
        ]);
    }
    Ok(table.print("(no copies)")?)
}

fn value(told: &Explanation, names: &Names) -> Value {
    let facts: Vec<Value> =
        told.facts.iter().map(|(name, text)| json!([print::name(name), print::name(text)])).collect();
    json!({
        "verdict": told.verdict.name(),
        "cause": print::name(&told.cause),
        "because": print::name(&told.text),
        "for_ms": told.since_ms,
        "next": print::name(&told.next),
        "told_by": names.of_node(told.told_by),
        "facts": facts,
        "segment": told.segment.as_ref().map(|info| segment::value(info, names)),
    })
}
