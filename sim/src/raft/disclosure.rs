//! A message may tell only of what is durable where it comes from.

use raft::{Body, Message};
use types::NodeId;

use super::store::Content;
use crate::invariants::{Violation, ensure};

/// Judges a message that leaves a member whose disk holds `durable`.
pub(super) fn check(message: &Message, durable: &Content) -> Result<(), Violation> {
    let Message { from, term, body, .. } = message;
    let hard = durable.hard;
    let tells = |holds, what: &str| {
        ensure(holds, "DISCLOSURE", || format!("{what} is not durable: {message:?}, stored {hard:?}"))
    };
    let voted_for = |replica: raft::ReplicaId| hard.voted_for == Some(NodeId(replica.0.into()));
    match body {
        // Whether somebody would be elected binds nobody, and the term is the one that would be.
        Body::Vote { pre: true, .. } | Body::VoteReply { pre: true, .. } => Ok(()),
        // The answer to a leader's part carries the leader's term.
        Body::PartReply { .. } => Ok(()),
        Body::Vote { pre: false, last, .. } => {
            tells(hard.term == *term && voted_for(from.replica), "a candidate's vote for itself")?;
            tells(durable.last() == last.index, "the candidate's log")
        }
        Body::VoteReply { pre: false, granted, .. } => {
            tells(hard.term >= *term, "the term")?;
            let is_vote = hard.term > *term || voted_for(message.to);
            tells(!granted || is_vote, "a vote")
        }
        Body::Appended { index, .. } => {
            tells(hard.term >= *term, "the term")?;
            tells(durable.last() >= *index, "an entry")
        }
        Body::Append { .. }
        | Body::Rejected { .. }
        | Body::Heartbeat { .. }
        | Body::HeartbeatReply { .. }
        | Body::Part { .. }
        | Body::TakeOver => tells(hard.term >= *term, "the term"),
    }
}
