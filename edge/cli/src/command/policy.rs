//! `malachi policy`: how long topics keep their records, and where their copies lie.

use std::process::ExitCode;

use serde_json::{Map, Value, json};

use crate::connect::{self, Connect};
use crate::print::{self, Table};

/// What to do with storage policies.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show what holds for a topic, and where each setting comes from
    Get(Get),
    /// List the policies
    List(List),
    /// Define a policy, or put another in its place; what is not given is as the cluster has it
    Define(Box<Define>),
    /// Remove a policy; refused while a topic points at it
    Delete(Delete),
    /// Point a topic at a policy
    Bind(Bind),
    /// Let a topic do as the cluster does
    Unbind(Unbind),
}

/// Whose settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// Topic
    topic: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Which form.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// What it says.
#[derive(Debug, clap::Args)]
pub(crate) struct Define {
    /// Name of the policy
    name: String,
    /// Ended segments older than this go, milliseconds; "off" keeps them
    #[arg(long, value_name = "MS", value_parser = number)]
    max_age_ms: Option<Value>,
    /// The oldest ended segments of a range go while it holds more than this; "off" keeps them
    #[arg(long, value_name = "BYTES", value_parser = number)]
    max_bytes: Option<Value>,
    /// Ended segments older than this go once every group has read them, milliseconds; needs --unread-max-age-ms
    #[arg(long, value_name = "MS", value_parser = number)]
    read_max_age_ms: Option<Value>,
    /// Ended segments that some group has not read are kept up to this age instead of --max-age-ms, milliseconds
    #[arg(long, value_name = "MS", value_parser = number)]
    unread_max_age_ms: Option<Value>,
    /// Attribute of nodes in which the copies of a segment should differ; "off" does not look at any
    #[arg(long, value_name = "KEY", value_parser = key)]
    spread_by: Option<Value>,
    #[command(flatten)]
    connect: Connect,
}

/// Which policy.
#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    /// Name of the policy
    name: String,
    /// Although topics point at it: they keep everything then
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: Connect,
}

/// What points at which.
#[derive(Debug, clap::Args)]
pub(crate) struct Bind {
    /// Topic
    topic: String,
    /// Name of the policy
    name: String,
    #[command(flatten)]
    connect: Connect,
}

/// What points at none.
#[derive(Debug, clap::Args)]
pub(crate) struct Unbind {
    /// Topic
    topic: String,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Get(args) => get(args).await,
        Command::List(args) => list(args).await,
        Command::Define(args) => define(*args).await,
        Command::Delete(args) => delete(args).await,
        Command::Bind(args) => bind(args).await,
        Command::Unbind(args) => unbind(args).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

fn number(text: &str) -> Result<Value, String> {
    if text == "off" {
        return Ok(Value::Null);
    }
    text.parse::<u64>().map(Value::from).map_err(|_| "a whole number, or off".to_owned())
}

fn key(text: &str) -> Result<Value, String> {
    Ok(if text == "off" { Value::Null } else { Value::from(text) })
}

async fn get(args: Get) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let told = client.topic_policy(&args.topic).await.map_err(|error| args.connect.explain(error))?;
    let told: Value = serde_json::from_slice(&told)?;
    if args.json {
        return Ok(print::line(&told)?);
    }
    let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
    for (name, setting) in told["settings"].as_object().into_iter().flatten() {
        let from = match (setting["from"].as_str(), told["policy"].as_str()) {
            (Some("policy"), Some(policy)) => format!("policy \"{}\"", print::printable(policy)),
            (Some("undefined"), Some(policy)) => {
                format!("policy \"{}\", which is not defined", print::printable(policy))
            }
            (from, _) => print::printable(from.unwrap_or_default()),
        };
        table.row(vec![print::printable(name), shown(&setting["value"]), from]);
    }
    Ok(table.print("(no settings)")?)
}

async fn list(args: List) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let told = client.list_policies().await.map_err(|error| args.connect.explain(error))?;
    let told: Value = serde_json::from_slice(&told)?;
    if args.json {
        return Ok(print::line(&told["policies"])?);
    }
    let mut table = Table::new(&["POLICY", "SETTINGS"]);
    for policy in told["policies"].as_array().into_iter().flatten() {
        let settings = policy["settings"].as_object().into_iter().flatten();
        let settings: Vec<String> =
            settings.map(|(name, value)| format!("{}={}", print::printable(name), shown(value))).collect();
        let name = policy["name"].as_str().unwrap_or_default();
        table.row(vec![print::printable(name), settings.join(" ")]);
    }
    Ok(table.print("(no policies)")?)
}

/// A value for people.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "off".to_owned(),
        Value::String(text) => print::printable(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

async fn define(args: Define) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let given = [
        ("retention.max_age_ms", args.max_age_ms),
        ("retention.max_bytes", args.max_bytes),
        ("retention.read_max_age_ms", args.read_max_age_ms),
        ("retention.unread_max_age_ms", args.unread_max_age_ms),
        ("spread_by", args.spread_by),
    ];
    let settings: Map<String, Value> =
        given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let defined = client.define_policy(&args.name, &json!(settings).to_string()).await;
    defined.map_err(|error| args.connect.explain(error))?;
    Ok(print::line(&format_args!("Policy \"{}\" defined", args.name))?)
}

async fn delete(args: Delete) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let deleted = client.delete_policy(&args.name, args.force).await;
    deleted.map_err(|error| args.connect.explain(error))?;
    Ok(print::line(&format_args!("Policy \"{}\" deleted", args.name))?)
}

async fn bind(args: Bind) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let bound = client.bind_policy(&args.topic, Some(&args.name)).await;
    bound.map_err(|error| args.connect.explain(error))?;
    Ok(print::line(&format_args!("Topic \"{}\" follows policy \"{}\"", args.topic, args.name))?)
}

async fn unbind(args: Unbind) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let unbound = client.bind_policy(&args.topic, None).await;
    unbound.map_err(|error| args.connect.explain(error))?;
    Ok(print::line(&format_args!("Topic \"{}\" follows no policy", args.topic))?)
}
