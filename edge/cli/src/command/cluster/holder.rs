//! Requests that only the node takes which holds the cluster's lease: any node may be asked, and says so.

use client::{Client, Error, Options, Reason, Rebalancing, Resharding};

use crate::connect::Connect;
use crate::print;

/// What would be done, and why it would not be.
pub(in crate::command) trait Plan {
    /// The token of the refusal; `None` when it would be done.
    fn refusal(&self) -> Option<&[u8]>;
}

impl Plan for Resharding {
    fn refusal(&self) -> Option<&[u8]> {
        self.refusal.as_deref()
    }
}

impl Plan for Rebalancing {
    fn refusal(&self) -> Option<&[u8]> {
        self.refusal.as_deref()
    }
}

/// The answer of the node that holds the lease, and a connection to it; the answer of the one asked when that cannot be
/// found.
pub(in crate::command) async fn asked<P: Plan>(
    client: &Client,
    options: &Options,
    ask: impl AsyncFn(&Client) -> Result<P, Error>,
) -> Result<(Client, P), Error> {
    let told = ask(client).await;
    let is_elsewhere = match &told {
        Ok(plan) => plan.refusal() == Some(Reason::NotLeaseHolder.as_str().as_bytes()),
        Err(error) => error.reason() == Some(Reason::NotLeaseHolder),
    };
    if !is_elsewhere {
        return told.map(|plan| (client.clone(), plan));
    }
    let status = client.cluster().await?;
    let leader = status.nodes.iter().find(|node| Some(node.node) == status.leader);
    let Some(address) = leader.and_then(|node| node.client.as_ref()) else {
        return told.map(|plan| (client.clone(), plan));
    };
    let leader = Client::connect_with(Options { address: print::name(address), ..options.clone() }).await?;
    let plan = ask(&leader).await?;
    Ok((leader, plan))
}

/// A dry run's end: an error when it would be refused.
pub(in crate::command) fn allowed(plan: &impl Plan, connect: &Connect) -> anyhow::Result<()> {
    let Some(token) = plan.refusal() else { return Ok(()) };
    let error =
        Reason::from_token(token).map_or_else(|| Error::RefusedUnknown(print::name(token)), Error::Refused);
    Err(connect.explain(error))
}
