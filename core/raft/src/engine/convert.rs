//! Our words in the engine's, and back.
//!
//! The engine tells apart entries that change the members from all others, and wants to read the change when it is
//! proposed; apart from that an entry's bytes mean nothing to it. What is stored of an entry travels in the engine's
//! entry as its data, or, for a change of members, as its context.

use bytes::Bytes;
use raft_engine::eraftpb::{
    self, ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState, EntryType, MessageType,
};
use types::{RaftIndex, Term};

use crate::entry::is_about_members;
use crate::event::{Entry, EntryId, SnapshotMark};
use crate::members::{Amendment, Member, Members, ReplicaId};
use crate::message::{Body, Message};

/// How the engine marks an election that a leader asked for.
const TRANSFER: &[u8] = b"CampaignTransfer";

/// Both directions of what needs no context.
pub(crate) trait Translation<T> {
    /// In the engine's words.
    fn to_engine(&self) -> T;
}

impl Translation<eraftpb::Entry> for Entry {
    fn to_engine(&self) -> eraftpb::Entry {
        let mut entry =
            eraftpb::Entry { index: self.index.0, term: self.term.0, ..eraftpb::Entry::default() };
        if is_about_members(&self.data) {
            entry.entry_type = EntryType::EntryConfChangeV2;
            entry.context = self.data.clone();
        } else {
            entry.data = self.data.clone();
        }
        entry
    }
}

impl Translation<ConfState> for Members {
    fn to_engine(&self) -> ConfState {
        ConfState {
            voters: self.voters().map(|member| member.replica.0).collect(),
            learners: self.learners().map(|member| member.replica.0).collect(),
            ..ConfState::default()
        }
    }
}

/// What is stored of an engine's entry.
pub(crate) fn entry_from_engine(entry: &eraftpb::Entry) -> Entry {
    let data = match entry.entry_type {
        EntryType::EntryNormal => &entry.data,
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => &entry.context,
    };
    Entry { index: RaftIndex(entry.index), term: Term(entry.term), data: data.clone() }
}

/// One change of the members.
pub(crate) fn amendment_to_engine(amendment: Amendment) -> ConfChangeV2 {
    let (change_type, node_id) = match amendment {
        Amendment::Add(member) => (ConfChangeType::AddLearnerNode, member.replica.0),
        Amendment::Promote(replica) => (ConfChangeType::AddNode, replica.0),
        Amendment::Remove(replica) => (ConfChangeType::RemoveNode, replica.0),
    };
    let single = ConfChangeSingle { change_type, node_id, ..ConfChangeSingle::default() };
    ConfChangeV2 { changes: vec![single].into(), ..ConfChangeV2::default() }
}

/// A message as the engine of a member in `term` takes it; `None` for one that is not the engine's.
pub(crate) fn message_to_engine(message: &Message, to: ReplicaId, term: Term) -> Option<eraftpb::Message> {
    let mut out = eraftpb::Message {
        from: message.from.replica.0,
        to: to.0,
        term: message.term.0,
        ..eraftpb::Message::default()
    };
    match &message.body {
        Body::Vote { pre, transfer, last, commit } => {
            out.msg_type = if *pre { MessageType::MsgRequestPreVote } else { MessageType::MsgRequestVote };
            (out.index, out.log_term) = (last.index.0, last.term.0);
            // The engine takes over what a candidate knows to be committed. With a real request the receiver takes
            // over its term before. With a pre-vote, whose term is the one after the candidate's, it might know what a
            // later term committed and still follow an earlier one's leader, to which it then confirms entries by
            // index alone.
            if !pre || message.term.0 <= term.0.saturating_add(1) {
                (out.commit, out.commit_term) = (commit.index.0, commit.term.0);
            }
            if *transfer {
                out.context = Bytes::from_static(TRANSFER);
            }
        }
        Body::VoteReply { pre, granted, commit } => {
            out.msg_type = if *pre {
                MessageType::MsgRequestPreVoteResponse
            } else {
                MessageType::MsgRequestVoteResponse
            };
            out.reject = !granted;
            (out.commit, out.commit_term) = (commit.index.0, commit.term.0);
        }
        Body::Append { previous, commit, entries } => {
            out.msg_type = MessageType::MsgAppend;
            (out.index, out.log_term, out.commit) = (previous.index.0, previous.term.0, commit.0);
            out.entries = entries.iter().map(Entry::to_engine).collect::<Vec<_>>().into();
        }
        Body::Appended { index, commit } => {
            out.msg_type = MessageType::MsgAppendResponse;
            (out.index, out.commit) = (index.0, commit.0);
        }
        Body::Rejected { index, hint, commit } => {
            out.msg_type = MessageType::MsgAppendResponse;
            (out.reject, out.index, out.commit) = (true, index.0, commit.0);
            (out.reject_hint, out.log_term) = (hint.index.0, hint.term.0);
        }
        Body::Heartbeat { commit, round } => {
            out.msg_type = MessageType::MsgHeartbeat;
            out.commit = commit.0;
            out.context = context(*round);
        }
        Body::HeartbeatReply { commit, round } => {
            out.msg_type = MessageType::MsgHeartbeatResponse;
            out.commit = commit.0;
            out.context = context(*round);
        }
        Body::TakeOver => out.msg_type = MessageType::MsgTimeoutNow,
        Body::Part { .. } | Body::PartReply { .. } => return None,
    }
    Some(out)
}

/// What the engine wants sent; `None` for messages it never sends in the way it is driven here, and for a
/// snapshot, which is sent in parts.
pub(crate) fn message_from_engine(message: &eraftpb::Message, from: Member) -> Option<Message> {
    let commit = EntryId { index: RaftIndex(message.commit), term: Term(message.commit_term) };
    let body = match message.msg_type {
        MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => Body::Vote {
            pre: message.msg_type == MessageType::MsgRequestPreVote,
            transfer: message.context == TRANSFER,
            last: EntryId { index: RaftIndex(message.index), term: Term(message.log_term) },
            commit,
        },
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => Body::VoteReply {
            pre: message.msg_type == MessageType::MsgRequestPreVoteResponse,
            granted: !message.reject,
            commit,
        },
        MessageType::MsgAppend => Body::Append {
            previous: EntryId { index: RaftIndex(message.index), term: Term(message.log_term) },
            commit: commit.index,
            entries: message.entries.iter().map(entry_from_engine).collect(),
        },
        MessageType::MsgAppendResponse if message.reject => Body::Rejected {
            index: RaftIndex(message.index),
            hint: EntryId { index: RaftIndex(message.reject_hint), term: Term(message.log_term) },
            commit: commit.index,
        },
        MessageType::MsgAppendResponse => {
            Body::Appended { index: RaftIndex(message.index), commit: commit.index }
        }
        MessageType::MsgHeartbeat => {
            Body::Heartbeat { commit: commit.index, round: round_of(&message.context) }
        }
        MessageType::MsgHeartbeatResponse => {
            Body::HeartbeatReply { commit: commit.index, round: round_of(&message.context) }
        }
        MessageType::MsgTimeoutNow => Body::TakeOver,
        MessageType::MsgHup
        | MessageType::MsgBeat
        | MessageType::MsgPropose
        | MessageType::MsgSnapshot
        | MessageType::MsgUnreachable
        | MessageType::MsgSnapStatus
        | MessageType::MsgCheckQuorum
        | MessageType::MsgTransferLeader
        | MessageType::MsgReadIndex
        | MessageType::MsgReadIndexResp => return None,
    };
    Some(Message { from, to: ReplicaId(message.to), term: Term(message.term), body })
}

/// A snapshot that arrived whole.
///
/// The engine installs none that does not list it. One that is older than the member is made to list it as a
/// learner, which counts for nothing; the entry that makes it one for everybody follows, and changes nothing here.
pub(crate) fn snapshot_message(
    from: ReplicaId,
    to: ReplicaId,
    term: Term,
    mark: SnapshotMark,
    members: &Members,
) -> eraftpb::Message {
    let mut out = eraftpb::Message {
        msg_type: MessageType::MsgSnapshot,
        from: from.0,
        to: to.0,
        term: term.0,
        ..eraftpb::Message::default()
    };
    let metadata = out.mut_snapshot().mut_metadata();
    (metadata.index, metadata.term) = (mark.index.0, mark.term.0);
    let mut list = members.to_engine();
    if members.of_replica(to).is_none() {
        list.learners.push(to.0);
    }
    metadata.set_conf_state(list);
    out
}

/// A round of reads, as the engine carries it.
pub(crate) fn context(round: Option<u64>) -> Bytes {
    round.map_or_else(Bytes::new, |round| Bytes::copy_from_slice(&round.to_be_bytes()))
}

/// The round of such a context; `None` for an empty one.
pub(crate) fn round_of(context: &[u8]) -> Option<u64> {
    context.try_into().ok().map(u64::from_be_bytes)
}
