//! `malachi subscribe`: has records pushed and writes them out.
//!
//! A push is acknowledged, which commits it for the group, only after its records were written out and
//! flushed: at worst a group gets some again.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use client::{Error, Subscription};

use super::output::{self, Output};
use crate::connect::{self, Connect};
use crate::interrupt::Interrupt;
use crate::print;

/// What to receive.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Topic
    #[arg(env = "MALACHI_TOPIC", default_value = "events")]
    topic: String,
    /// Group to resume and to commit for
    #[arg(long, default_value = "stream")]
    group: String,
    /// Receive this member's share of the group
    #[arg(long)]
    member: Option<String>,
    /// Records that may be on their way, 1 to 10000; 0 is 100
    #[arg(long, default_value_t = 100)]
    window: u32,
    /// Records in one push, 1 to 1000; 0 is 100
    #[arg(long, default_value_t = 100)]
    max: u32,
    /// With a member: say that it is alive after so many milliseconds without an acknowledgement; 0 is 10000
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    heartbeat: u64,
    /// Stop once so many records came
    #[arg(long)]
    limit: Option<u64>,
    #[command(flatten)]
    output: output::Choice,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.connect.open(connect::CONSUMER).await?;
    args.connect.note_missing(&client, &args.topic).await;
    let interrupt = Interrupt::listen();
    let heartbeat = Duration::from_millis(if args.heartbeat == 0 { 10_000 } else { args.heartbeat });
    let builder = client.subscription(&args.topic, args.group.as_bytes());
    let mut builder = builder.window(args.window).max(args.max).heartbeat(heartbeat);
    if let Some(member) = &args.member {
        builder = builder.member(member.clone());
    }
    let mut output = Output::new(args.output.format(), io::stdout().lock());
    let mut subscription = builder.open_with(|_| print::note(&"~"));
    let result = receive(&args, &mut subscription, &mut output, interrupt).await;
    // Leaves the group too, and waits until the broker has the last acknowledgement.
    subscription.close().await;
    match result {
        Ok(End::Done) => output.end(&format_args!("Done. received={}", output.written()))?,
        Ok(End::Interrupted) => output.end(&format_args!("Stopped. received={}", output.written()))?,
        Ok(End::Failed(error)) => {
            print::note(&format_args!("Stream error: {:#}", args.connect.explain(error)));
            return Ok(ExitCode::FAILURE);
        }
        Err(error) if output::is_closed_pipe(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(ExitCode::SUCCESS)
}

/// How receiving ended.
enum End {
    Done,
    Interrupted,
    /// The broker refused the stream or ended it.
    Failed(Error),
}

async fn receive(
    args: &Args,
    subscription: &mut Subscription,
    output: &mut Output<impl Write>,
    mut interrupt: Interrupt,
) -> anyhow::Result<End> {
    let member = args.member.as_ref().map_or_else(String::new, |member| format!("  member={member}"));
    let (address, Args { topic, group, .. }) = (args.connect.address(), args);
    output.heading(&format_args!("subscribe  host={address}  topic={topic}  group={group}{member}"))?;
    loop {
        let push = tokio::select! {
            push = subscription.next() => push,
            () = interrupt.wait() => return Ok(End::Interrupted),
        };
        let push = match push {
            Ok(push) => push,
            Err(error) if error.is_network() => return Err(args.connect.explain(error)),
            Err(error) => return Ok(End::Failed(error)),
        };
        output.page(&push)?;
        output.flush()?;
        if let Err(error) = subscription.ack().await {
            return Ok(End::Failed(error));
        }
        if args.limit.is_some_and(|limit| output.written() >= limit) {
            return Ok(End::Done);
        }
        if interrupt.is_set() {
            return Ok(End::Interrupted);
        }
    }
}
