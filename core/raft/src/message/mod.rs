//! What members of a group say to each other.
//!
//! Owns the words and their bytes, and what can be checked of a message without knowing the receiver's log. What
//! must be checked against the log is `group::receive`'s.
//!
//! A message names the replica it is meant for: one that was meant for an earlier life of a node is not for the
//! later one. It may be lost, repeated or overtaken; nothing here relies on anything else.

mod codec;
#[cfg(test)]
pub(crate) mod tests;

use bytes::Bytes;
use types::{RaftIndex, Term};

use crate::event::{Entry, EntryId, SnapshotMark};
use crate::members::{Member, ReplicaId};

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who sent it.
    pub from: Member,
    /// Whom it is for.
    pub to: ReplicaId,
    /// The sender's term; of a pre-vote and of one that was granted: the term that would be.
    pub term: Term,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Asks for a vote.
    Vote {
        /// Only asks whether a vote would be given; nothing binds anybody.
        pre: bool,
        /// The leader wants the sender to lead: a leader that was heard of lately is no reason to refuse.
        transfer: bool,
        /// Where the sender's log ends.
        last: EntryId,
        /// How much of it the sender knows to be committed.
        commit: EntryId,
    },
    /// Answers that.
    VoteReply {
        /// Which question it answers.
        pre: bool,
        /// Whether the vote is given.
        granted: bool,
        /// How much of its log the sender knows to be committed; all zero when the vote is given.
        commit: EntryId,
    },
    /// A leader's entries; none to ask where the receiver's log stands.
    Append {
        /// The entry before the first.
        previous: EntryId,
        /// The leader's commit index.
        commit: RaftIndex,
        /// Contiguous after `previous`.
        entries: Vec<Entry>,
    },
    /// The receiver holds the leader's log up to an index, durably.
    Appended {
        /// Inclusive. 0 when the receiver only wants its term to be known.
        index: RaftIndex,
        /// How much of it the sender knows to be committed.
        commit: RaftIndex,
    },
    /// The receiver does not hold the entry before the first.
    Rejected {
        /// That entry's index.
        index: RaftIndex,
        /// Where the logs may still agree.
        hint: EntryId,
        /// How much of its log the sender knows to be committed.
        commit: RaftIndex,
    },
    /// The leader leads.
    Heartbeat {
        /// Its commit index as far as the receiver holds the entries.
        commit: RaftIndex,
        /// A round of reads that waits for a quorum to confirm it.
        round: Option<u64>,
    },
    /// So it does.
    HeartbeatReply {
        /// How much of its log the sender knows to be committed.
        commit: RaftIndex,
        /// As asked.
        round: Option<u64>,
    },
    /// A part of a snapshot's image.
    Part {
        /// Which snapshot.
        mark: SnapshotMark,
        /// Bytes of the whole image.
        total: u64,
        /// Where the part begins in it.
        offset: u64,
        /// The part.
        bytes: Bytes,
    },
    /// How much of the image has arrived, without gaps.
    PartReply {
        /// Which snapshot.
        mark: SnapshotMark,
        /// Bytes from the beginning.
        received: u64,
    },
    /// The leader wants the receiver to lead in its place.
    TakeOver,
}
