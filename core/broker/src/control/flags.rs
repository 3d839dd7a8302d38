//! Switches of the whole cluster: which there are, and putting one on.
//!
//! Owns what an administrator is told of them, and that this node ends when one is on that its build cannot honour. What
//! a switch does is the business of whoever asks the tables for it.
//!
//! A switch goes on only while every node is there and says that it can honour it; the tables look once more when they
//! take it. There is no way back.

use bytes::Bytes;
use metadata::cluster::{self as tables, Command, EnableFlag, FlagName, Seen};
use types::NodeId;
use wire::response::{Flag, FlagEnabled, Flags};
use wire::{Reason, Str};

use super::operator::fitting;
use crate::action::{Reply, Stop};
use crate::cluster;
use crate::event::RequestId;
use crate::liveness::Health;
use crate::node::Node;

/// Switches that this build can honour. None has been needed yet.
pub const FLAGS: &[&str] = &[];

/// Bytes of an answer beside its list, with the longest reason.
const ANSWER_BYTES: usize = 128;

impl Node {
    /// Those that this build can honour and those that are on.
    pub(super) fn list_flags(&self) -> Result<Reply, Reason> {
        let tables = self.core.meta.cluster();
        let own = &self.core.config.own.flags;
        let mut names: Vec<&str> = own.iter().map(|flag| &**flag).collect();
        names.extend(tables.flags().map(FlagName::as_str));
        names.sort_unstable();
        names.dedup();
        let flags = names.into_iter().map(|name| Flag {
            name: Bytes::copy_from_slice(name.as_bytes()),
            known: own.iter().any(|flag| &**flag == name),
            enabled: tables.is_enabled(name),
            lacking: self.lacking(name),
        });
        let room = self.core.config.frame_bytes_max.saturating_sub(ANSWER_BYTES);
        let (flags, _) = fitting(flags, 0, room, Flag::encoded_len)?;
        Ok(Reply::Flags(Flags { flags }))
    }

    /// Names of nodes that are not alive, as far as is known here, or cannot honour a switch.
    fn lacking(&self, flag: &str) -> Vec<Bytes> {
        let is_there = |id: NodeId| self.core.liveness.health(id) == Health::Alive;
        let nodes = self.core.meta.cluster().nodes();
        let lacks = nodes.filter(|(id, node)| !is_there(*id) || !node.flags.contains(flag));
        lacks.map(|(_, node)| Bytes::copy_from_slice(node.name.as_str().as_bytes())).collect()
    }

    /// `None` when the answer comes with the decision.
    pub(super) fn enable_flag(
        &mut self,
        id: RequestId,
        flag: &Str,
        dry_run: bool,
    ) -> Result<Option<Reply>, Reason> {
        let flag = flag.clone().unwrap_or_default();
        let name = FlagName::new(&flag).map_err(|_| Reason::InvalidFlag)?;
        let is_on = self.core.meta.cluster().is_enabled(name.as_str());
        let lacking = if is_on { Vec::new() } else { self.lacking(name.as_str()) };
        let refusal = (!lacking.is_empty()).then_some(Reason::FlagUnsupported);
        if dry_run {
            let refusal = refusal.map(|reason| Bytes::from_static(reason.as_str().as_bytes()));
            return Ok(Some(Reply::FlagEnabled(FlagEnabled { refusal, lacking })));
        }
        if let Some(reason) = refusal {
            return Err(reason);
        }
        let seen = |(node, listed): (NodeId, &tables::Node)| Seen {
            node,
            incarnation: listed.incarnation,
            flags: listed.flags.iter().map(|flag| Bytes::copy_from_slice(flag.as_str().as_bytes())).collect(),
        };
        let seen = self.core.meta.cluster().nodes().map(seen).collect();
        self.core.propose_cluster(&Command::EnableFlag(EnableFlag { flag, seen }), cluster::Then::Flag(id));
        Ok(None)
    }

    /// The tables have taken a switch, or not.
    pub(crate) fn flag_enabled(&mut self, id: RequestId, result: Result<tables::Reply, cluster::Error>) {
        let reply = match result {
            Ok(_) => Reply::FlagEnabled(FlagEnabled { refusal: None, lacking: Vec::new() }),
            Err(error) => Reply::Failed(crate::users::right_reason(error)),
        };
        self.core.reply(id, reply);
    }

    /// Ends the process when a switch is on that this build cannot honour; whether it is is known from the tables.
    pub(super) fn honours_flags(&mut self) -> bool {
        let own = &self.core.config.own.flags;
        let is_unknown = |flag: &&str| !own.iter().any(|known| &**known == *flag);
        let unknown = self.core.meta.cluster().flags().map(FlagName::as_str).find(is_unknown);
        let Some(flag) = unknown.map(str::to_owned) else { return true };
        let known = own.iter().map(|flag| flag.to_string()).collect();
        self.stop(Stop::UnknownFlag { flag, known });
        false
    }
}
