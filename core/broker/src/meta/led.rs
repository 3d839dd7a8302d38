//! What was done in the vnodes by those that lead them, for the simulator to judge.
//!
//! Who decides what is known here by what is done, not only by what the entry says of itself: who holds a sealed
//! segment is for the leader alone. A build without the feature `planted` keeps nothing.

#[cfg(feature = "planted")]
use bytes::Bytes;
#[cfg(feature = "planted")]
use metadata::vnode::Command;
use metadata::vnode::Reply;
use raft::Entry;
use types::VnodeId;
#[cfg(feature = "planted")]
use types::{NodeId, RaftIndex, Term};

use super::origin::Origin;

/// Something only the leader of a vnode decides, as it was applied.
#[cfg(feature = "planted")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// In which group.
    pub group: VnodeId,
    /// Of the entry.
    pub index: RaftIndex,
    /// Of the leader that recorded it.
    pub term: Term,
    /// Who decided it.
    pub node: NodeId,
}

/// Effects that nobody looked at yet.
#[derive(Debug, Default)]
pub(super) struct Effects {
    #[cfg(feature = "planted")]
    seen: Vec<Effect>,
}

impl Effects {
    /// An entry was applied by this node's replica.
    #[cfg_attr(
        not(feature = "planted"),
        expect(
            unused_variables,
            clippy::unused_self,
            clippy::needless_pass_by_ref_mut,
            reason = "the same call in both builds"
        )
    )]
    pub(super) fn note(&mut self, (group, entry): (VnodeId, &Entry), origin: Option<Origin>, reply: &Reply) {
        #[cfg(feature = "planted")]
        if let (Some(origin), false) = (origin, matches!(reply, Reply::Refused(_)))
            && (origin.led.is_some() || is_leaders(&entry.data))
        {
            self.seen.push(Effect { group, index: entry.index, term: entry.term, node: origin.node });
        }
    }

    /// Takes them.
    #[cfg(feature = "planted")]
    pub(super) fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.seen)
    }
}

#[cfg(feature = "planted")]
fn is_leaders(entry: &Bytes) -> bool {
    let command = Origin::split(entry).ok().and_then(|(_, command)| Command::read(&command));
    matches!(command, Some(Command::SetSegmentReplicas(_)))
}
