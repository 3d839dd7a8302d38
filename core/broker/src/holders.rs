//! Which copy is read, and which one when that fails.
//!
//! Owns the order of copies and what was tried for each read. Does not judge what a reader may be given.
//!
//! - A copy that is whole and here is read first; then those of other nodes in the order of the set, those that can be
//!   reached before the others. Of an active segment the primary comes first that is known to hold all.
//! - A read fails when it has failed on every copy, never earlier.

use std::collections::BTreeMap;

use storage::store;
use types::{NodeId, Offset, SegmentId, limits};

use crate::action::Notice;
use crate::copies::{CopyAnswer, unreadable};
use crate::node::{Node, Owner};

/// What became of reads that are on their way.
pub(crate) type Tried = BTreeMap<(SegmentId, Offset), Failures>;

/// Copies that have failed a read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures {
    nodes: Vec<NodeId>,
    /// One of them did not answer: what the others lack it may have.
    missed: bool,
}

/// Why a read failed on every copy.
#[derive(Clone, Debug)]
pub(crate) enum Unread {
    /// A store refused or failed.
    Store(store::Error),
    /// A copy that may hold it cannot be reached.
    Unavailable,
}

impl Node {
    /// The next copy to be asked for what lies at an offset, after those that were.
    pub(crate) fn next_holder(&self, segment: SegmentId, from: Offset, tried: &[NodeId]) -> Option<NodeId> {
        let own = self.core.config.node;
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        // A segment that nobody lists has no other copies: its own says that there is none.
        let Some(listed) = listed else { return Some(own).filter(|_| tried.is_empty()) };
        let is_primary = listed.is_active() && listed.replicas.first() == Some(&own);
        if tried.is_empty()
            && (is_primary || listed.replicas[..] == [own] || self.is_whole(segment, from, listed.end()))
        {
            return Some(own);
        }
        if is_primary {
            // What others hold of it says nothing that this node does not know.
            return None;
        }
        let left = || listed.replicas.iter().copied().filter(|node| !tried.contains(node));
        left().find(|node| *node != own && self.core.liveness.is_up(*node)).or_else(|| left().next())
    }

    /// Whether the copy that is here has what lies at an offset, for all this node knows.
    fn is_whole(&self, segment: SegmentId, from: Offset, end: Option<Offset>) -> bool {
        let Some(store::Status::Here(extent)) = self.core.copy_status(segment) else { return false };
        match extent.state {
            store::State::Latched(_) => false,
            store::State::Sealed => !extent.rebuilding && end.is_none_or(|end| extent.end == end),
            store::State::Active | store::State::Stopped(_) => {
                !extent.rebuilding && end.is_none() && from < extent.end
            }
        }
    }

    /// Whether a copy of a segment lies on a node that cannot be reached.
    fn misses_holders(&self, segment: SegmentId) -> bool {
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        listed.is_some_and(|listed| listed.replicas.iter().any(|node| !self.core.liveness.is_up(*node)))
    }

    /// Asks for records of a segment, wherever they are.
    pub(crate) fn ask_store(&mut self, segment: SegmentId, from: Offset, bytes_max: usize) {
        let own = self.core.config.node;
        let holder = self.next_holder(segment, from, &[]).unwrap_or(own);
        self.ask_copy(
            holder,
            Owner::Read { segment, from },
            store::Request::Read { segment, from, bytes_max },
        );
    }

    /// A copy answered a read, or did not.
    pub(crate) fn read_answered(
        &mut self,
        holder: NodeId,
        segment: SegmentId,
        from: Offset,
        answer: CopyAnswer,
    ) {
        let key = (segment, from);
        let unread = match answer {
            CopyAnswer::Store(store::Reply::Read(batches)) => {
                self.reads.tried.remove(&key);
                return self.read(segment, from, Ok(batches));
            }
            CopyAnswer::Store(store::Reply::Failed(error)) => Unread::Store(error),
            CopyAnswer::Store(reply) => {
                Unread::Store(unreadable(format!("not what was asked for: {reply:?}")))
            }
            CopyAnswer::Unreachable | CopyAnswer::Unanswered => Unread::Unavailable,
        };
        let mut tried = self.reads.tried.remove(&key).unwrap_or_default();
        tried.nodes.push(holder);
        tried.missed |= matches!(unread, Unread::Unavailable);
        // One that is short is no failure while another may have it.
        let is_short = matches!(unread, Unread::Store(store::Error::EndOfData { .. }));
        let next = self.next_holder(segment, from, &tried.nodes).filter(|_| self.reads.is_wanted(key));
        let Some(next) = next else {
            let may_be = is_short && (tried.missed || self.misses_holders(segment));
            return self.read(segment, from, Err(if may_be { Unread::Unavailable } else { unread }));
        };
        if let Unread::Store(error) = &unread
            && holder == self.core.config.node
            && !is_short
        {
            // Readers are given it by another; whoever looks after this node should know all the same.
            self.core.notice(Notice::ReadFailed { segment, offset: from, detail: error.to_string() });
            self.scrub_first(segment);
        }
        self.reads.tried.insert(key, tried);
        let bytes_max = limits::READ_WINDOW_BYTES;
        self.ask_copy(next, Owner::Read { segment, from }, store::Request::Read { segment, from, bytes_max });
    }
}
