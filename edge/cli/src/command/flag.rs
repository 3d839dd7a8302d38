//! `malachi flag`: switches of the whole cluster. They go on, and never off.

use std::process::ExitCode;

use client::{Client, Reason};
use serde_json::{Value, json};

use crate::connect::{self, Connect};
use crate::print::{self, Table};

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Those that the node asked can honour, and those that are on
    List(List),
    /// Put one on, for good; every node has to be alive and able to honour it
    Enable(Enable),
}

/// How to show them.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Which.
#[derive(Debug, clap::Args)]
pub(crate) struct Enable {
    /// The flag's name
    flag: String,
    /// Change nothing; exit status 1 when it would be refused
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(args) => list(args).await,
        Command::Enable(args) => enable(args).await,
    }
}

async fn list(args: List) -> anyhow::Result<ExitCode> {
    let client = args.connect.open(connect::ADMIN).await?;
    let flags = client.list_flags().await.map_err(|error| args.connect.explain(error))?;
    if args.json {
        let flags: Vec<Value> = flags
            .flags
            .iter()
            .map(|flag| {
                json!({
                    "name": print::name(&flag.name),
                    "known": flag.known,
                    "enabled": flag.enabled,
                    "lacking": names(&flag.lacking),
                })
            })
            .collect();
        print::line(&json!({ "flags": flags }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["FLAG", "ON", "KNOWN HERE", "NOT AT"]);
    let yes_or_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    for flag in &flags.flags {
        let lacking = names(&flag.lacking).join(",");
        table.row(vec![print::name(&flag.name), yes_or_no(flag.enabled), yes_or_no(flag.known), lacking]);
    }
    table.print("(this build has no flags, and none is on)")?;
    Ok(ExitCode::SUCCESS)
}

async fn enable(args: Enable) -> anyhow::Result<ExitCode> {
    let explain = |error| args.connect.explain(error);
    let client = args.connect.open(connect::ADMIN).await?;
    let found = client.enable_flag(&args.flag, true).await.map_err(explain)?;
    if args.json {
        print::line(&json!({
            "flag": args.flag,
            "dry_run": args.dry_run,
            "refusal": found.refusal.as_ref().map(|reason| print::name(reason)),
            "lacking": names(&found.lacking),
        }))?;
    }
    if found.refusal.as_deref() == Some(Reason::FlagUnsupported.as_str().as_bytes()) {
        anyhow::bail!(
            "these nodes are not alive or do not support that flag: {}. Upgrade them, or take them out of the \
             cluster (malachi cluster remove), then run this again",
            names(&found.lacking).join(", ")
        );
    }
    if let Some(token) = found.refusal {
        anyhow::bail!("refused: {}", print::name(&token));
    }
    if args.dry_run {
        if !args.json {
            print::line(&format_args!("{} would be put on, for good", args.flag))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    put_on(&client, &args).await.map_err(explain)?;
    if !args.json {
        print::line(&format_args!("{} is on, for good", args.flag))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn put_on(client: &Client, args: &Enable) -> Result<(), client::Error> {
    client.enable_flag(&args.flag, false).await.map(drop)
}

fn names(names: &[bytes::Bytes]) -> Vec<String> {
    names.iter().map(|name| print::name(name)).collect()
}
