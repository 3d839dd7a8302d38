//! Switches of the whole cluster: behaviour that begins everywhere at once, and for good.
//!
//! Owns which are on. What a build can honour is what its node says about itself; what a switch does is the
//! business of whoever asks for it. There is no way to turn one off: what it changed may be on disk already.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::{Incarnation, NodeId, limits};

use super::text::text;
use super::{Cluster, Refusal, Reply};

text! {
    /// A switch's name: 1 to 128 of `a-z 0-9 . _ -`.
    FlagName,
    /// Not the name of a switch.
    InvalidFlagName("a flag's name has 1 to 128 of a-z 0-9 . _ -"),
    |name| {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
        (1..=limits::FLAG_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed)
    }
}

/// Arguments of [`Command::EnableFlag`](super::Command::EnableFlag).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnableFlag {
    /// As it was given.
    pub flag: Bytes,
    /// What every node of the cluster was seen to honour when it was decided.
    pub seen: Vec<Seen>,
}

/// What one node said it honours, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which node.
    pub node: NodeId,
    /// The life of it that said so.
    pub incarnation: Incarnation,
    /// What it said.
    pub flags: Vec<Bytes>,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) enabled: BTreeSet<FlagName>,
}

impl Cluster {
    pub(super) fn enable_flag(&mut self, enable: &EnableFlag) -> Result<Reply, Refusal> {
        let flag = FlagName::new(&enable.flag).map_err(|_| Refusal::InvalidFlag)?;
        if self.flags.enabled.contains(&flag) {
            return Ok(Reply::FlagEnabled);
        }
        let seen: BTreeMap<NodeId, &Seen> = enable.seen.iter().map(|seen| (seen.node, seen)).collect();
        for (id, node) in &self.nodes.by_id {
            let seen = seen.get(id).ok_or(Refusal::CapabilitiesChanged)?;
            if !seen.flags.contains(&enable.flag) {
                return Err(Refusal::FlagUnsupported);
            }
            // One life of a node is one build: what it says here outweighs what was heard of it.
            let has_spoken = node.incarnation > Incarnation::ZERO && node.incarnation >= seen.incarnation;
            if has_spoken && !node.flags.contains(&flag) {
                return Err(Refusal::CapabilitiesChanged);
            }
        }
        if self.flags.enabled.len() >= limits::FLAGS_MAX {
            return Err(Refusal::TooManyFlags);
        }
        self.flags.enabled.insert(flag);
        Ok(Reply::FlagEnabled)
    }
}

/// `None` for too many, or one that cannot be the name of a switch.
pub(super) fn names(names: &[Bytes]) -> Option<BTreeSet<FlagName>> {
    if names.len() > limits::FLAGS_MAX {
        return None;
    }
    names.iter().map(|name| FlagName::new(name).ok()).collect()
}
