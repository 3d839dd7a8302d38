//! `malachi range`: how a topic's keyspace is divided.

use std::process::ExitCode;

use client::{RangeInfo, RangeState};
use serde_json::{Value, json};

use crate::connect::{self, Connect};
use crate::print::{self, Table};

/// What to do with ranges.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List a topic's ranges
    List(List),
    /// Replace a range by its two halves; records stay where they are
    Split(Split),
    /// Replace two neighbouring halves of one block by that block
    Merge(Merge),
}

/// Whose ranges.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Topic
    topic: String,
    /// Those too whose place others took
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// A range to split.
#[derive(Debug, clap::Args)]
pub(crate) struct Split {
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

/// Two ranges to merge.
#[derive(Debug, clap::Args)]
pub(crate) struct Merge {
    /// Topic
    topic: String,
    /// Number of one range
    a: u64,
    /// Number of the other
    b: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(args) => list(args).await,
        Command::Split(args) => split(args).await,
        Command::Merge(args) => merge(args).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn list(args: List) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let described = client.topic(&args.topic).await;
    let (_, mut ranges) = described.map_err(|error| args.connect.explain(error))?;
    ranges.retain(|range| args.all || range.state != RangeState::Replaced);
    // Where the keys are is what one looks for; the numbers only say which came first.
    ranges.sort_by_key(|range| (range.key_start, range.range));
    if args.json {
        let ranges: Vec<Value> = ranges.iter().map(value).collect();
        return Ok(print::line(&Value::from(ranges))?);
    }
    let headings =
        ["RANGE", "STATE", "KEYS FROM", "KEYS TO", "PARENTS", "SEGMENTS", "RECORDS", "SEALED BYTES"];
    let mut table = Table::new(&headings);
    for range in &ranges {
        let parents: Vec<String> = range.parents.iter().map(u64::to_string).collect();
        table.row(vec![
            range.range.to_string(),
            range.state.name().to_owned(),
            range.key_start.to_string(),
            range.key_end.to_string(),
            parents.join(","),
            range.segments.to_string(),
            range.records.to_string(),
            range.bytes.to_string(),
        ]);
    }
    Ok(table.print("(no ranges)")?)
}

/// A range as JSON.
pub(super) fn value(range: &RangeInfo) -> Value {
    json!({
        "range": range.range,
        "state": range.state.name(),
        "key_start": range.key_start,
        "key_end": range.key_end,
        "parents": range.parents,
        "segments": range.segments,
        "records": range.records,
        "sealed_bytes": range.bytes,
    })
}

async fn split(args: Split) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let split = client.split_range(&args.topic, args.range).await;
    let (left, right) = split.map_err(|error| args.connect.explain(error))?;
    if args.json {
        let Split { topic, range, .. } = args;
        return Ok(print::line(&json!({ "topic": topic, "range": range, "left": left, "right": right }))?);
    }
    Ok(print::line(&format_args!(
        "Range {} of \"{}\" split into {left} and {right}",
        args.range, args.topic
    ))?)
}

async fn merge(args: Merge) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let merged = client.merge_ranges(&args.topic, args.a, args.b).await;
    let child = merged.map_err(|error| args.connect.explain(error))?;
    let Merge { topic, a, b, .. } = &args;
    if args.json {
        return Ok(print::line(&json!({ "topic": topic, "a": a, "b": b, "child": child }))?);
    }
    Ok(print::line(&format_args!("Ranges {a} and {b} of \"{topic}\" merged into {child}"))?)
}
