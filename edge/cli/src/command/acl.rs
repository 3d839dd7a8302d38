//! `malachi acl`: what a user may do with which topics.

use std::process::ExitCode;

use client::Grant;
use serde_json::{Value, json};

use crate::connect::{self, Connect};
use crate::print;

/// What to do with rights.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List a user's rights
    List(List),
    /// Give a user a right on topics
    Grant(Right),
    /// Take it away
    Revoke(Right),
}

/// Whose rights.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// User
    #[arg(value_name = "USER")]
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// A right.
#[derive(Debug, clap::Args)]
pub(crate) struct Right {
    /// User; it need not exist yet
    #[arg(value_name = "USER")]
    name: String,
    /// produce or consume
    operation: String,
    /// Topics: a name, or a pattern such as 'orders.*'; put it in quotes, or the shell expands it
    pattern: String,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(args) => list(args).await,
        Command::Grant(args) => grant(args).await,
        Command::Revoke(args) => revoke(args).await,
    }?;
    Ok(ExitCode::SUCCESS)
}

async fn list(args: List) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let grants = client.list_acls(&args.name).await.map_err(|error| args.connect.explain(error))?;
    let text = |string: client::Str| print::name(&string.unwrap_or_default());
    let pair = |Grant { operation, pattern }| (text(operation), text(pattern));
    let mut rights: Vec<(String, String)> = grants.into_iter().map(pair).collect();
    rights.sort();
    if args.json {
        let right = |(operation, pattern)| json!({ "operation": operation, "pattern": pattern });
        return Ok(print::line(&rights.into_iter().map(right).collect::<Value>())?);
    }
    if rights.is_empty() {
        return print::nothing("(no acls)");
    }
    let separator = print::separator();
    for (operation, pattern) in &rights {
        let (operation, pattern) = (print::printable(operation), print::printable(pattern));
        print::line(&format_args!("{operation}{separator}{pattern}"))?;
    }
    Ok(())
}

async fn grant(args: Right) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let granted = client.grant_acl(&args.name, &args.operation, &args.pattern).await;
    granted.map_err(|error| args.connect.explain(error))?;
    let Right { name, operation, pattern, .. } = &args;
    Ok(print::line(&format_args!("granted {operation} on \"{pattern}\" to \"{name}\""))?)
}

async fn revoke(args: Right) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let revoked = client.revoke_acl(&args.name, &args.operation, &args.pattern).await;
    revoked.map_err(|error| args.connect.explain(error))?;
    let Right { name, operation, pattern, .. } = &args;
    Ok(print::line(&format_args!("revoked {operation} on \"{pattern}\" from \"{name}\""))?)
}
