//! `malachi segment`: the runs of records that ranges are made of, and how their copies are.

use std::process::ExitCode;

use anyhow::Context;
use client::{ClusterStatus, CopyHealth, Depth, SegmentInfo};
use serde_json::{Value, json};

use super::cluster::Names;
use crate::connect::{self, Connect};
use crate::print::{self, Table};

/// What to do with segments.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List a topic's segments and how each copy is
    #[command(visible_alias = "list")]
    Ls(List),
    /// Have every copy read through, and say what is wrong; exit status 1 when one is not whole
    Verify(Verify),
}

/// Whose segments.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Topic
    topic: String,
    /// Only of this range
    #[arg(long)]
    range: Option<u64>,
    /// Only what the tables say: no copy is asked
    #[arg(long)]
    tables: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// What to read through.
#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    /// Topic
    topic: String,
    /// One segment, as `malachi segment ls` shows it: RANGE/NUMBER. All of them without it
    segment: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Ls(args) => list(args).await,
        Command::Verify(args) => verify(args).await,
    }
}

async fn list(args: List) -> anyhow::Result<ExitCode> {
    let client = args.connect.open(connect::ADMIN).await?;
    let depth = if args.tables { Depth::Tables } else { Depth::Copies };
    let listed = client.segments(&args.topic, depth).await;
    let mut segments = listed.map_err(|error| args.connect.explain(error))?;
    segments.retain(|segment| args.range.is_none_or(|range| range == segment.range));
    let status = client.cluster().await.map_err(|error| args.connect.explain(error))?;
    show(&segments, &status, args.json)?;
    Ok(ExitCode::SUCCESS)
}

async fn verify(args: Verify) -> anyhow::Result<ExitCode> {
    let client = args.connect.open(connect::ADMIN).await?;
    let status = client.cluster().await.map_err(|error| args.connect.explain(error))?;
    let one = args.segment.as_deref().map(number).transpose()?;
    let (mut from, mut all) = (one.unwrap_or_default(), Vec::<SegmentInfo>::new());
    loop {
        let page = client.list_segments(&args.topic, from, 1, Depth::Verify).await;
        let page = page.map_err(|error| args.connect.explain(error))?;
        let more = page.more && one.is_none();
        all.extend(page.segments);
        let Some(last) = all.last().filter(|_| more) else { break };
        let next = (last.range, last.segment.saturating_add(1));
        anyhow::ensure!(next > from, "a list that does not go on");
        from = next;
    }
    if let Some((range, segment)) = one {
        all.retain(|info| (info.range, info.segment) == (range, segment));
        anyhow::ensure!(!all.is_empty(), "\"{}\" has no segment {range}/{segment}", args.topic);
    }
    show(&all, &status, args.json)?;
    let broken = all.iter().flat_map(|segment| &segment.copies).filter(|copy| !copy.health.is_whole());
    match broken.count() {
        0 => Ok(ExitCode::SUCCESS),
        count => {
            print::note(&format_args!("{count} copies are not whole"));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// `RANGE/NUMBER`.
fn number(text: &str) -> anyhow::Result<(u64, u64)> {
    let parts = text
        .split_once('/')
        .and_then(|(range, segment)| Some((range.parse::<u64>().ok()?, segment.parse::<u64>().ok()?)));
    parts.with_context(|| format!("{text:?} is no segment: it is RANGE/NUMBER, as in 0/3"))
}

fn show(segments: &[SegmentInfo], status: &ClusterStatus, as_json: bool) -> anyhow::Result<()> {
    let names = Names::of(status);
    if as_json {
        let segments: Vec<Value> = segments.iter().map(|segment| value(segment, &names)).collect();
        return Ok(print::line(&Value::from(segments))?);
    }
    let mut table = Table::new(&["SEGMENT", "STATE", "FROM", "TO", "BYTES", "NODE", "COPY", "END", "DETAIL"]);
    for segment in segments {
        for copy in &segment.copies {
            table.row(vec![
                format!("{}/{}", segment.range, segment.segment),
                state(segment).to_owned(),
                segment.start.to_string(),
                segment.end.map(|end| end.to_string()).unwrap_or_default(),
                segment.bytes.to_string(),
                names.of_node(copy.node),
                copy.health.name().to_owned(),
                copy.end.map(|end| end.to_string()).unwrap_or_default(),
                print::name(&copy.detail),
            ]);
        }
    }
    Ok(table.print("(no segments)")?)
}

fn state(segment: &SegmentInfo) -> &'static str {
    if segment.end.is_some() { "sealed" } else { "active" }
}

/// A segment as JSON.
pub(super) fn value(segment: &SegmentInfo, names: &Names) -> Value {
    let copies: Vec<Value> = segment
        .copies
        .iter()
        .map(|copy| {
            json!({
                "node": copy.node.to_string(),
                "name": names.of_node(copy.node),
                "health": copy.health.name(),
                "whole": copy.health != CopyHealth::Unasked && copy.health.is_whole(),
                "end": copy.end,
                "bytes": copy.bytes,
                "detail": print::name(&copy.detail),
            })
        })
        .collect();
    json!({
        "range": segment.range,
        "segment": segment.segment,
        "state": state(segment),
        "start": segment.start,
        "end": segment.end,
        "bytes": segment.bytes,
        "copies": copies,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_named_by_its_range_and_number() {
        assert_eq!(number("3/14").unwrap(), (3, 14));
        for wrong in ["", "3", "3/", "/3", "a/1", "1/2/3", "-1/2"] {
            assert!(number(wrong).unwrap_err().to_string().contains("RANGE/NUMBER"), "{wrong}");
        }
    }
}
