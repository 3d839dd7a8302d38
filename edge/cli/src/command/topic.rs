//! `malachi topic`: topics as a whole.

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

use client::{Error, Reason, TopicSummary};
use serde_json::{Value, json};

use crate::connect::{self, Connect};
use crate::print::{self, Table};

/// What to do with topics.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List topics
    List(List),
    /// Show a topic and its ranges in numbers
    Describe(One),
    /// Make a topic
    Create(Create),
    /// End a topic for writers, for good; what it holds stays readable
    Seal(One),
    /// Remove a topic, its records and the positions of its groups, for good
    Delete(Delete),
}

/// Which topics.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Only names that begin with this
    #[arg(default_value = "")]
    prefix: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// One topic.
#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// Topic
    topic: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// A topic to make.
#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// 1 to 200 of A-Z a-z 0-9 . _ -
    topic: String,
    /// Width of the keyspace, 1 to 32; 0 takes the broker's default
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=32))]
    keyspace_bits: u8,
    /// Succeed too when it exists
    #[arg(long)]
    if_not_exists: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// A topic to remove.
#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    /// Do not ask; needed where nobody can be asked
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    one: One,
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(args) => list(args).await,
        Command::Describe(args) => describe(args).await,
        Command::Create(args) => create(args).await,
        Command::Seal(args) => seal(args).await,
        Command::Delete(args) => delete(args).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn list(args: List) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let topics = client.topics(&args.prefix).await.map_err(|error| args.connect.explain(error))?;
    if args.json {
        let topics: Vec<Value> = topics.iter().map(summary).collect();
        return Ok(print::line(&Value::from(topics))?);
    }
    let mut table = Table::new(&["TOPIC", "STATE", "ACTIVE RANGES", "SEGMENTS", "SEALED BYTES", "GROUPS"]);
    for topic in &topics {
        let numbers =
            [u64::from(topic.active_ranges), topic.segments.into(), topic.bytes, topic.groups.into()];
        let mut row = vec![print::name(&topic.name), topic.state.name().to_owned()];
        row.extend(numbers.map(|number| number.to_string()));
        table.row(row);
    }
    Ok(table.print("(no topics)")?)
}

fn summary(topic: &TopicSummary) -> Value {
    json!({
        "topic": print::name(&topic.name),
        "state": topic.state.name(),
        "keyspace_bits": topic.keyspace_bits,
        "ranges": topic.ranges,
        "active_ranges": topic.active_ranges,
        "segments": topic.segments,
        "sealed_bytes": topic.bytes,
        "groups": topic.groups,
    })
}

async fn describe(args: One) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let described = client.topic(&args.topic).await;
    let (topic, ranges) = described.map_err(|error| args.connect.explain(error))?;
    if args.json {
        let mut value = summary(&topic);
        value["range_list"] = ranges.iter().map(super::range::value).collect();
        return Ok(print::line(&value)?);
    }
    let mut table = Table::new(&["FIELD", "VALUE"]);
    let mut field = |name: &str, value: String| table.row(vec![name.to_owned(), value]);
    field("topic", print::name(&topic.name));
    field("state", topic.state.name().to_owned());
    field("keyspace_bits", topic.keyspace_bits.to_string());
    field("ranges", topic.ranges.to_string());
    field("active_ranges", topic.active_ranges.to_string());
    field("segments", topic.segments.to_string());
    field("records", ranges.iter().map(|range| range.records).sum::<u64>().to_string());
    field("sealed_bytes", topic.bytes.to_string());
    field("groups", topic.groups.to_string());
    Ok(table.print("")?)
}

async fn create(args: Create) -> anyhow::Result<()> {
    let client = args.connect.open(connect::PRODUCER).await?;
    let created = match client.create_topic(&args.topic, args.keyspace_bits).await {
        Ok(()) => true,
        Err(Error::Refused(Reason::AlreadyExists)) if args.if_not_exists => false,
        Err(error) => return Err(args.connect.explain(error)),
    };
    if args.json {
        print::line(&json!({ "topic": args.topic, "created": created }))?;
    } else if created {
        print::line(&format_args!("Topic \"{}\" created", args.topic))?;
    } else {
        print::line(&format_args!("Topic \"{}\" exists", args.topic))?;
    }
    Ok(())
}

async fn seal(args: One) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    client.seal_topic(&args.topic).await.map_err(|error| args.connect.explain(error))?;
    done(&args, "sealed")
}

async fn delete(args: Delete) -> anyhow::Result<()> {
    let Delete { one, yes } = args;
    if !yes && !confirmed(&one.topic)? {
        anyhow::bail!("nothing was deleted");
    }
    let client = one.connect.open(connect::ADMIN).await?;
    client.delete_topic(&one.topic).await.map_err(|error| one.connect.explain(error))?;
    done(&one, "deleted")
}

fn done(args: &One, what: &str) -> anyhow::Result<()> {
    if args.json {
        return Ok(print::line(&json!({ "topic": args.topic, what: true }))?);
    }
    Ok(print::line(&format_args!("Topic \"{}\" {what}", args.topic))?)
}

fn confirmed(topic: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        anyhow::bail!("deleting a topic needs --yes where nobody can be asked");
    }
    print::note(&format_args!("This removes all records of \"{topic}\". Type its name to go on:"));
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']) == topic)
}
