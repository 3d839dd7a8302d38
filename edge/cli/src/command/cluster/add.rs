//! `malachi cluster add`: what a new node has to be set to. It does the rest itself: it finds one of the nodes, proves
//! that it belongs, is listed, and gets its share.

use super::Add;
use crate::connect;
use crate::print;

pub(super) async fn run(args: Add) -> anyhow::Result<()> {
    let client = args.connect.open(connect::ADMIN).await?;
    let status = client.cluster().await.map_err(|error| args.connect.explain(error))?;
    let peers: Vec<String> =
        status.nodes.iter().map(|node| print::printable(&print::name(&node.peer))).collect();
    let notes: [&dyn std::fmt::Display; 4] = [
        &"On the new node, with data directories of its own, set:",
        &"",
        &format_args!("  MALACHI_LOG_NODES={}", peers.join(",")),
        &"  MALACHI_NODE_NAME=...       a name that no other node has; without it the host's",
    ];
    for note in notes {
        print::line(note)?;
    }
    for line in [
        "  MALACHI_PEER_ADDRESS=...    where the other nodes reach it: host, or host:port",
        "  MALACHI_CLUSTER_SECRET=...  as on the other nodes, or certificates as they have them (MALACHI_DIST_TLS)",
        "",
        "and start it with `malachi server`. It finds one of these nodes, joins, and gets its share of the vnodes:",
        "`malachi cluster status` shows it as joining, then active.",
    ] {
        print::line(&line)?;
    }
    if status.nodes.len() == 1 {
        print::line(&"")?;
        print::line(&"This node is the only one so far. It listens to others once it is set to: it needs")?;
        print::line(
            &"MALACHI_CLUSTER_SECRET (or MALACHI_DIST_TLS) and a MALACHI_PEER_ADDRESS that others reach, and a restart.",
        )?;
    }
    Ok(())
}
