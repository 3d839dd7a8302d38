//! `malachi cluster`: how the cluster is, and nodes that come and go.

mod add;
mod change;
pub(super) mod holder;
mod status;

use std::collections::BTreeMap;
use std::process::ExitCode;

use client::{ClusterNode, ClusterStatus, NodeId};

use crate::connect::Connect;
use crate::print;

pub(super) use status::{described, step};

/// What to do with the cluster.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the nodes and how they are
    Status(Status),
    /// Say what a new node has to be set to, so that it joins this cluster
    Add(Add),
    /// Give a node nothing new, and move what it has elsewhere
    Drain(Drain),
    /// Take a drain back
    Undrain(One),
    /// Take a drained node out of the cluster, for good
    Remove(Remove),
}

/// How to show it.
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Which cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct Add {
    #[command(flatten)]
    connect: Connect,
}

/// A node and how to go about it.
#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// Name or id of the node, as `malachi cluster status` shows them
    node: String,
    /// Change nothing, say what would happen; exit status 1 when it would be refused
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// A node to drain.
#[derive(Debug, clap::Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    one: One,
    /// Wait until it is a member of no group any more, and print every step
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
}

/// A node to remove.
#[derive(Debug, clap::Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    one: One,
    /// Whatever is on it: it is gone and does not come back. What only it holds is lost
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Status(args) => status::run(args).await,
        Command::Add(args) => add::run(args).await,
        Command::Drain(args) => change::drain(args).await,
        Command::Undrain(args) => change::undrain(args).await,
        Command::Remove(args) => change::remove(args).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Names of nodes, for people.
pub(super) struct Names(BTreeMap<NodeId, String>);

impl Names {
    pub(super) fn of(status: &ClusterStatus) -> Self {
        Self(status.nodes.iter().map(|node| (node.node, print::name(&node.name))).collect())
    }

    /// The name of a node; the id of one that is not listed.
    pub(super) fn of_node(&self, node: NodeId) -> String {
        self.0.get(&node).cloned().unwrap_or_else(|| node.to_string())
    }
}

/// The node of that name, else of that id, else the only one whose name has that before or behind its `@`.
pub(super) fn find<'a>(status: &'a ClusterStatus, wanted: &str) -> anyhow::Result<&'a ClusterNode> {
    let by_name = status.nodes.iter().find(|node| node.name == wanted.as_bytes());
    let found = by_name.or_else(|| status.nodes.iter().find(|node| node.node.to_string() == wanted));
    let is_half = |node: &&ClusterNode| {
        print::name(&node.name).split_once('@').is_some_and(|(name, host)| name == wanted || host == wanted)
    };
    let halves: Vec<&ClusterNode> = status.nodes.iter().filter(is_half).collect();
    let found = found.or_else(|| halves.first().copied().filter(|_| halves.len() == 1));
    found.ok_or_else(|| {
        let names: Vec<String> = status.nodes.iter().map(|node| print::name(&node.name)).collect();
        anyhow::anyhow!("the cluster has no node {wanted:?}; it has {}", names.join(", "))
    })
}
