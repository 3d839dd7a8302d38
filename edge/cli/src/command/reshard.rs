//! `malachi reshard`: another number of shards of the metadata, one step after the other.
//!
//! Any node may be asked; the one that changes the ring is found and asked instead. Asking again changes nothing, so it
//! is asked until it is done: whoever takes over meanwhile goes on from where the ring is.

use std::process::ExitCode;
use std::time::Duration;

use client::{Client, Error, Options, Resharding};
use serde_json::json;

use super::cluster::{described, holder, step};
use crate::connect::{self, Connect};
use crate::print;

/// How often it is looked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// How many.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of vnodes the ring shall have, 1 to 4096
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    to: u32,
    /// Change nothing, print the steps; exit status 1 when it would be refused
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let explain = |error| args.connect.explain(error);
    let options = args.connect.options(connect::ADMIN)?;
    let client = args.connect.open_with(options.clone()).await?;
    if args.dry_run {
        let (_, plan) = ask(&client, &options, &args).await.map_err(explain)?;
        tell(&args, &plan)?;
        holder::allowed(&plan, &args.connect)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut told = None;
    loop {
        let (leader, _) = ask(&client, &options, &args).await.map_err(explain)?;
        let status = leader.cluster_status(None, 1).await.map_err(explain)?;
        if status.pending.is_none() && status.vnodes == args.to {
            break;
        }
        if told.replace(status.ring_version) != Some(status.ring_version) && !args.json {
            let doing = status.pending.map_or_else(String::new, |step| format!(": {}", described(step)));
            print::line(&format_args!("{} vnodes, {} are wanted{doing}", status.vnodes, args.to))?;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    if args.json {
        print::line(&json!({ "vnodes": args.to }))?;
    } else {
        print::line(&format_args!("resharded: the ring now has {} vnodes", args.to))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn ask(client: &Client, options: &Options, args: &Args) -> Result<(Client, Resharding), Error> {
    holder::asked(client, options, async |at| at.reshard(args.to, args.dry_run).await).await
}

fn tell(args: &Args, plan: &Resharding) -> anyhow::Result<()> {
    if args.json {
        return Ok(print::line(&json!({
            "from": plan.from,
            "to": plan.to,
            "step_count": plan.step_count,
            "steps": plan.steps.iter().copied().map(step).collect::<Vec<_>>(),
            "refusal": plan.refusal.as_ref().map(|reason| print::name(reason)),
        }))?);
    }
    print::line(&format_args!("{} to {} vnodes in {} step(s)", plan.from, plan.to, plan.step_count))?;
    for step in &plan.steps {
        print::line(&described(*step))?;
    }
    let untold = (plan.step_count as usize).saturating_sub(plan.steps.len());
    if untold > 0 {
        print::line(&format_args!("and {untold} more"))?;
    }
    Ok(())
}
