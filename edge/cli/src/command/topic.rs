//! `malachi topic`: making topics.

use std::process::ExitCode;

use client::{Error, Reason};

use crate::connect::{self, Connect};
use crate::print;

/// What to do with a topic.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make a topic
    Create(Create),
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

pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create(args) => create(args).await,
    }
}

async fn create(args: Create) -> anyhow::Result<ExitCode> {
    let client = args.connect.open(connect::PRODUCER).await?;
    let created = match client.create_topic(&args.topic, args.keyspace_bits).await {
        Ok(()) => true,
        Err(Error::Refused(Reason::AlreadyExists)) if args.if_not_exists => false,
        Err(error) => return Err(args.connect.explain(error)),
    };
    if args.json {
        print::line(&serde_json::json!({ "topic": args.topic, "created": created }))?;
    } else if created {
        print::line(&format_args!("Topic \"{}\" created", args.topic))?;
    } else {
        print::line(&format_args!("Topic \"{}\" exists", args.topic))?;
    }
    Ok(ExitCode::SUCCESS)
}
