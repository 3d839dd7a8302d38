//! `malachi group`: who reads a topic, and how far behind.

use std::process::ExitCode;

use serde_json::json;

use crate::connect::{self, Connect};
use crate::print::{self, Table};

/// What to look at.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the groups of a topic
    List(List),
    /// Show a group's members and how far it is behind
    Describe(Describe),
}

/// Whose groups.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Topic
    topic: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// One group.
#[derive(Debug, clap::Args)]
pub(crate) struct Describe {
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
        Command::List(args) => list(args).await,
        Command::Describe(args) => describe(args).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn list(args: List) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let names = client.groups(&args.topic).await.map_err(|error| args.connect.explain(error))?;
    let names = names.iter().map(|name| print::name(name));
    if args.json {
        return Ok(print::line(&serde_json::Value::from(names.collect::<Vec<_>>()))?);
    }
    let mut table = Table::new(&["GROUP"]);
    names.for_each(|name| table.row(vec![name]));
    Ok(table.print("(no groups)")?)
}

async fn describe(args: Describe) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let described = client.describe_group(&args.topic, args.group.as_bytes()).await;
    let group = described.map_err(|error| args.connect.explain(error))?;
    if args.json {
        let member = |member: &client::MemberInfo| json!({ "member": print::name(&member.name), "ranges": member.ranges, "idle_ms": member.idle_ms });
        return Ok(print::line(&json!({
            "topic": args.topic,
            "group": args.group,
            "generation": group.generation,
            "lag": group.lag,
            "lag_exact": group.lag_exact,
            "members": group.members.iter().map(member).collect::<Vec<_>>(),
        }))?);
    }
    let bound = if group.lag_exact { "" } else { "at most " };
    print::line(&format_args!("lag\t{bound}{}", group.lag))?;
    print::line(&format_args!("generation\t{}", group.generation))?;
    let mut table = Table::new(&["MEMBER", "RANGES", "IDLE MS"]);
    for member in &group.members {
        let numbers = [u64::from(member.ranges), member.idle_ms].map(|number| number.to_string());
        table.row([vec![print::name(&member.name)], numbers.to_vec()].concat());
    }
    Ok(table.print("(no members)")?)
}
