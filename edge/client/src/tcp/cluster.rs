//! The cluster for administrators: its nodes, its ring, and changes of both.

use bytes::Bytes;
use types::NodeId;
use wire::request::NodeChange;
use wire::response::{ClusterStatus, FlagEnabled, Flags, NodeChanged, Rebalancing, Resharding, RingPage};
use wire::{Payload, Request};

use super::Client;
use super::admin::{PAGE, stuck};
use super::client::mismatch;
use crate::Error;

impl Client {
    /// How the cluster is, and some of its nodes, in order of their ids, after one when it is given; `max` 0 takes the
    /// broker's default.
    pub async fn cluster_status(&self, after: Option<NodeId>, max: u32) -> Result<ClusterStatus, Error> {
        let payload = self.call(Request::ClusterStatus { after, max }).await?;
        let Payload::ClusterStatus(status) = payload else { return Err(mismatch()) };
        Ok(status)
    }

    /// How the cluster is, with all its nodes, in order of their ids.
    pub async fn cluster(&self) -> Result<ClusterStatus, Error> {
        let mut whole = self.cluster_status(None, PAGE).await?;
        while whole.more {
            let after = whole.nodes.last().map(|node| node.node);
            let page = self.cluster_status(after, PAGE).await?;
            if page.more && page.nodes.last().map(|node| node.node) <= after {
                return Err(stuck());
            }
            whole.nodes.extend(page.nodes);
            whole.more = page.more;
        }
        Ok(whole)
    }

    /// Drains a node, takes that back, or removes it; with `dry_run` only says what would come of it.
    pub async fn change_node(
        &self,
        node: NodeId,
        change: NodeChange,
        dry_run: bool,
    ) -> Result<NodeChanged, Error> {
        let payload = self.call(Request::ChangeNode { node, change, dry_run }).await?;
        let Payload::NodeChanged(changed) = payload else { return Err(mismatch()) };
        Ok(changed)
    }

    /// Some vnodes of the ring in order of their tokens, from a token on, inclusive; `max` 0 takes the broker's
    /// default.
    pub async fn describe_ring(&self, from_token: u32, max: u32) -> Result<RingPage, Error> {
        let Payload::Ring(page) = self.call(Request::DescribeRing { from_token, max }).await? else {
            return Err(mismatch());
        };
        Ok(page)
    }

    /// All vnodes of the ring in order of their tokens. A ring that changes meanwhile is read anew.
    pub async fn ring(&self) -> Result<RingPage, Error> {
        let mut whole = self.describe_ring(0, PAGE).await?;
        while whole.more {
            let next = whole.vnodes.last().and_then(|last| last.token.checked_add(1)).ok_or_else(stuck)?;
            let page = self.describe_ring(next, PAGE).await?;
            if page.version != whole.version {
                whole = self.describe_ring(0, PAGE).await?;
                continue;
            }
            if page.vnodes.first().is_none_or(|first| first.token < next) {
                return Err(stuck());
            }
            whole.vnodes.extend(page.vnodes);
            whole.more = page.more;
        }
        Ok(whole)
    }

    /// Gives the ring another number of vnodes, which goes on after this returns; with `dry_run` only says what it
    /// takes. Refused by a node that does not lead the cluster group.
    pub async fn reshard(&self, to: u32, dry_run: bool) -> Result<Resharding, Error> {
        let Payload::Resharding(resharding) = self.call(Request::Reshard { to, dry_run }).await? else {
            return Err(mismatch());
        };
        Ok(resharding)
    }

    /// Brings the members of vnodes to where they would be placed now, which goes on after this returns; with `dry_run`
    /// only says what it takes. Refused by a node that does not lead the cluster group.
    pub async fn rebalance(&self, dry_run: bool) -> Result<Rebalancing, Error> {
        let Payload::Rebalancing(rebalancing) = self.call(Request::Rebalance { dry_run }).await? else {
            return Err(mismatch());
        };
        Ok(rebalancing)
    }

    /// The switches of the cluster that the node can honour or that are on.
    pub async fn list_flags(&self) -> Result<Flags, Error> {
        let Payload::Flags(flags) = self.call(Request::ListFlags).await? else { return Err(mismatch()) };
        Ok(flags)
    }

    /// Puts a switch of the cluster on, for good; with `dry_run` only says whether it would be.
    pub async fn enable_flag(&self, flag: &str, dry_run: bool) -> Result<FlagEnabled, Error> {
        let flag = Some(Bytes::copy_from_slice(flag.as_bytes()));
        let Payload::FlagEnabled(enabled) = self.call(Request::EnableFlag { flag, dry_run }).await? else {
            return Err(mismatch());
        };
        Ok(enabled)
    }
}
