//! Where a request reaches the node and where the node answers: from there on everything has one order.

use broker::{Fetched, Operation, Reply, RequestId};
use wire::Reason;

use super::model::CallId;
use super::network::ConnId;
use super::workload::end_topic::End;
use super::workload::{
    Op, ack, change, commit, create_topic, describe, end_topic, fetch, groups, list_topics, produce, seek,
    subscribe,
};
use super::world::World;
use crate::invariants::{Violation, ensure, inv_05};

impl World {
    /// A call reaches the node: what it may be answered depends on what is known now.
    pub(super) fn arrived(&mut self, id: CallId, request: RequestId) {
        let call = &mut self.calls[id];
        call.topic = call.name.and_then(|name| self.model.names[name].current);
        match &call.op {
            Op::Create { .. } => create_topic::arrived(self, id),
            Op::Produce(_) => produce::arrived(self, id),
            Op::Fetch(_) => fetch::arrived(self, id),
            Op::Commit(_) => commit::arrived(self, id),
            Op::Leave(_) => groups::leaves(self, id),
            Op::Subscribe(_) => subscribe::arrived(self, id, request),
            Op::Ack(_) => ack::arrived(self, id, request),
            Op::Seek(_) => seek::arrived(self, id),
            Op::End(_)
            | Op::Change(_)
            | Op::List(_)
            | Op::Describe(_)
            | Op::Groups(_)
            | Op::Group(_)
            | Op::Raw
            | Op::Garbage => {}
        }
    }

    /// The node has answered.
    pub(super) fn replied(&mut self, id: RequestId, reply: Reply) -> Result<(), Violation> {
        if self.dropped.remove(&id) {
            return Ok(());
        }
        let call = self.waiting.remove(&id);
        inv_05::once(format_args!("{id:?}"), call.is_some())?;
        let Some(call) = call else { return Ok(()) };
        self.say(|| format!("   {} -> {}", self.calls[call], brief(&reply)));
        self.summary.replies += 1;
        self.note(digest(&reply));
        self.judge(call, id, &reply)?;
        self.edge_answer(ConnId(id.connection.0), id.number, call, reply);
        Ok(())
    }

    /// The process has ended: whatever was asked for may have been decided.
    pub(super) fn leave_unknown(&mut self) {
        for call in self.waiting.values() {
            let call = &self.calls[*call];
            let Some(topic) = call.topic.map(|topic| &mut self.model.topics[topic]) else { continue };
            match call.op {
                Op::Change(change) => topic.ranges.left_unknown(change),
                Op::End(End::Seal) => topic.maybe_sealed = true,
                Op::End(End::Delete) => topic.maybe_deleted = true,
                _ => {}
            }
        }
    }

    fn judge(&mut self, id: CallId, request: RequestId, reply: &Reply) -> Result<(), Violation> {
        let call = &self.calls[id];
        if let Some(may) = self.may(id) {
            let denied = *reply == Reply::Failed(Reason::PermissionDenied);
            ensure(denied != may, "AUTH", || format!("{call} -> {}", brief(reply)))?;
            if denied {
                return Ok(());
            }
        }
        match &call.op {
            Op::Create { .. } => create_topic::answered(self, id, reply),
            Op::End(_) => end_topic::answered(self, id, reply),
            Op::Change(_) => change::answered(self, id, reply),
            Op::Produce(_) => produce::answered(self, id, reply),
            Op::Fetch(_) => fetch::answered(self, id, reply),
            Op::Commit(_) => commit::answered(self, id, reply),
            Op::Leave(_) => self.expect(id, reply, *reply == Reply::Left),
            Op::Subscribe(_) => subscribe::answered(self, id, request, reply),
            Op::Ack(_) => ack::answered(self, id, reply),
            Op::Seek(_) => seek::answered(self, id, reply),
            Op::List(_) => list_topics::answered(self, id, reply),
            Op::Describe(_) => describe::answered(self, id, reply),
            Op::Groups(_) => groups::listed(self, id, reply),
            Op::Group(_) => groups::described(self, id, reply),
            Op::Raw => {
                let read = matches!(reply, Reply::Fetched(_));
                let refused = matches!(reply, Reply::Failed(reason) if self.excused(*reason));
                self.expect(id, reply, read || refused)
            }
            Op::Garbage => self.expect(id, reply, false),
        }
    }

    /// Whether the caller may do what it asks for; `None` when that is not asked.
    pub(super) fn may(&self, id: CallId) -> Option<bool> {
        let call = &self.calls[id];
        let client = &self.clients[call.client];
        match &call.op {
            Op::Create { .. } | Op::Produce(_) => Some(client.may(Operation::Produce)),
            Op::Fetch(_) | Op::Commit(_) | Op::Leave(_) | Op::Subscribe(_) | Op::Seek(_) | Op::Raw => {
                Some(client.may(Operation::Consume))
            }
            Op::End(_) | Op::Change(_) => Some(client.permissions.admin),
            Op::Describe(_) | Op::Groups(_) | Op::Group(_) => {
                Some(client.may(Operation::Consume) || client.may(Operation::Produce))
            }
            Op::Ack(_) | Op::List(_) | Op::Garbage => None,
        }
    }

    /// The answer is one of those the model allows.
    pub(super) fn expect(&self, id: CallId, reply: &Reply, allowed: bool) -> Result<(), Violation> {
        ensure(allowed, "ANSWER", || format!("{} -> {}", self.calls[id], brief(reply)))
    }

    /// Whether there is no such topic, or was none any more when it was decided.
    pub(super) fn is_gone(&self, id: CallId) -> bool {
        self.calls[id].topic.is_none_or(|topic| self.model.topics[topic].deleted)
    }

    /// Whether a failure for a reason that is the node's own is one of a fault that was ordered.
    pub(super) fn excused(&self, reason: Reason) -> bool {
        // A tiny queue is part of some configurations, and a segment that cannot be ended for it is stuck.
        let tiny = self.config.store.queue_max < 100;
        let [storage, overloaded] = [Reason::Storage, Reason::Overloaded].map(|known| known == reason);
        let metadata = reason == Reason::Unavailable || reason == Reason::Timeout;
        (storage && (tiny || self.weather.is_bad()))
            || (overloaded && tiny)
            || (metadata && self.weather.bad[1])
    }
}

impl super::client::Client {
    pub(super) fn may(&self, operation: Operation) -> bool {
        let permissions = self.permissions;
        let granted = match operation {
            Operation::Produce => permissions.produce,
            Operation::Consume => permissions.consume,
        };
        permissions.admin || granted
    }
}

/// An answer without its records.
pub(super) fn brief(reply: &Reply) -> String {
    match reply {
        Reply::Fetched(page) => format!("{} records, cursor {}", page.count, page.cursor.escape_ascii()),
        other => format!("{other:?}"),
    }
}

/// Records and cursor in one word.
pub(super) fn digest_of(page: &Fetched) -> u64 {
    let mut crc = crc32fast::Hasher::new();
    page.runs.iter().for_each(|run| crc.update(&run.records));
    crc.update(&page.cursor);
    u64::from(crc.finalize())
}

fn digest(reply: &Reply) -> u64 {
    match reply {
        Reply::Fetched(page) => digest_of(page),
        other => u64::from(crc32fast::hash(format!("{other:?}").as_bytes())),
    }
}
