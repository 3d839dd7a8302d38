//! `malachi rebalance`: the shards of the metadata brought to the nodes that should have them now.
//!
//! Any node may be asked; the one that moves shards is found and asked instead. It goes on by itself; asking again goes
//! on from where things are, so it is asked until nothing is left to move.

use std::process::ExitCode;
use std::time::Duration;

use client::{ClusterStatus, Rebalancing};
use serde_json::{Value, json};
use types::NodeId;

use super::cluster::{Names, holder};
use crate::connect::{self, Connect};
use crate::print;

/// How often it is looked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// How to do it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Change nothing, print who would come and go; exit status 1 when it would be refused
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
    let (_, plan) = holder::asked(&client, &options, async |at| at.rebalance(args.dry_run).await)
        .await
        .map_err(explain)?;
    let status = client.cluster().await.map_err(explain)?;
    if args.dry_run {
        tell(&args, &plan, &status)?;
        holder::allowed(&plan, &args.connect)?;
        return Ok(ExitCode::SUCCESS);
    }
    let total = plan.move_count;
    let mut told = None;
    loop {
        let (_, plan) =
            holder::asked(&client, &options, async |at| at.rebalance(false).await).await.map_err(explain)?;
        if plan.move_count == 0 {
            break;
        }
        if told.replace(plan.move_count) != Some(plan.move_count) && !args.json {
            print::line(&format_args!("{} vnode(s) to move", plan.move_count))?;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    if args.json {
        print::line(&json!({ "moved": total }))?;
    } else {
        print::line(&format_args!(
            "rebalanced: {total} vnode(s) have other members now, which join as they catch up; see `malachi ring`"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(args: &Args, plan: &Rebalancing, status: &ClusterStatus) -> anyhow::Result<()> {
    let names = Names::of(status);
    let named = |nodes: &[NodeId]| nodes.iter().map(|node| names.of_node(*node)).collect::<Vec<_>>();
    if args.json {
        let moves: Vec<Value> = plan
            .moves
            .iter()
            .map(|moved| {
                json!({
                    "vnode": moved.vnode.0,
                    "add": named(&moved.add),
                    "remove": named(&moved.remove),
                })
            })
            .collect();
        return Ok(print::line(&json!({
            "move_count": plan.move_count,
            "moves": moves,
            "refusal": plan.refusal.as_ref().map(|reason| print::name(reason)),
        }))?);
    }
    print::line(&format_args!("{} vnode(s) would have other members", plan.move_count))?;
    for moved in &plan.moves {
        let or_nobody =
            |names: Vec<String>| if names.is_empty() { "nobody".to_owned() } else { names.join(",") };
        print::line(&format_args!(
            "vnode {}: {} comes, then {} goes",
            moved.vnode,
            or_nobody(named(&moved.add)),
            or_nobody(named(&moved.remove))
        ))?;
    }
    let untold = (plan.move_count as usize).saturating_sub(plan.moves.len());
    if untold > 0 {
        print::line(&format_args!("and {untold} more"))?;
    }
    Ok(())
}
