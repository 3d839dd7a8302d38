//! `malachi group`: who reads a topic, how far behind, and from where it goes on.

use std::process::ExitCode;

use client::{GroupMove, GroupTarget};
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
    /// Put a group at the start, the end, a time, or where another group is
    Reset(Reset),
    /// Forget a group and where it stands
    Delete(Delete),
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

/// Where a group is put.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("to").required(true).multiple(false))]
pub(crate) struct Reset {
    /// Topic
    topic: String,
    /// Group
    group: String,
    /// Before the first record that is stored
    #[arg(long, group = "to")]
    to_start: bool,
    /// Behind the last record
    #[arg(long, group = "to")]
    to_end: bool,
    /// Before the first record appended at this time or later, milliseconds since 1970
    #[arg(long, group = "to", value_name = "MS")]
    to_time: Option<u64>,
    /// Where this other group of the topic is
    #[arg(long, group = "to", value_name = "GROUP")]
    like: Option<String>,
    /// Also while the group has members
    #[arg(long)]
    force: bool,
    /// Change nothing, and tell what would be
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Which group is forgotten.
#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    /// Topic
    topic: String,
    /// Group
    group: String,
    /// Also while it has members
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(args) => list(args).await,
        Command::Describe(args) => describe(args).await,
        Command::Reset(args) => reset(args).await,
        Command::Delete(args) => delete(args).await,
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

async fn reset(args: Reset) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let at_ms = args.to_time.unwrap_or(if args.to_end { u64::MAX } else { 0 });
    let cursor = match &args.like {
        Some(_) => None,
        None => {
            Some(client.seek_time(&args.topic, at_ms).await.map_err(|error| args.connect.explain(error))?)
        }
    };
    let to = match (&cursor, &args.like) {
        (_, Some(like)) => GroupTarget::Like(like.as_bytes()),
        (Some(cursor), None) => GroupTarget::Cursor(cursor),
        (None, None) => anyhow::bail!("nowhere to put it"),
    };
    let moves = GroupMove { to, force: args.force, dry_run: args.dry_run };
    let moved = client.move_group(&args.topic, args.group.as_bytes(), moves).await;
    let (lag_before, lag_after) = moved.map_err(|error| args.connect.explain(error))?;
    if args.json {
        return Ok(print::line(&json!({
            "topic": args.topic,
            "group": args.group,
            "lag_before": lag_before,
            "lag_after": lag_after,
            "dry_run": args.dry_run,
        }))?);
    }
    let verb = if args.dry_run { "would be reset" } else { "reset" };
    Ok(print::line(&format_args!(
        "{verb}: group \"{}\" of \"{}\", lag {lag_before} before, {lag_after} after",
        args.group, args.topic
    ))?)
}

async fn delete(args: Delete) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let deleted = client.delete_group(&args.topic, args.group.as_bytes(), args.force).await;
    deleted.map_err(|error| args.connect.explain(error))?;
    Ok(print::line(&format_args!("deleted group \"{}\" of \"{}\"", args.group, args.topic))?)
}
