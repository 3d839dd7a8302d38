//! Where a request reaches the node and where the node answers: from there on everything has one order.

use broker::{Fetched, Operation, Reply, RequestId};
use wire::Reason;

use super::model::CallId;
use super::network::ConnId;
use super::workload::{Op, commit, create_topic, fetch, produce};
use super::world::World;
use crate::invariants::{Violation, ensure, inv_05};

/// What the operations of this world can be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Created,
    Stored(u32),
    Fetched(Fetched),
    Committed,
    Left,
    Failed(Reason),
}

impl Answer {
    /// The answer, or the reply when it is to something that nobody asks here.
    fn of(reply: Reply) -> Result<Self, Reply> {
        match reply {
            Reply::Created => Ok(Self::Created),
            Reply::Stored(count) => Ok(Self::Stored(count)),
            Reply::Fetched(fetched) => Ok(Self::Fetched(fetched)),
            Reply::Committed => Ok(Self::Committed),
            Reply::Left => Ok(Self::Left),
            Reply::Failed(reason) => Ok(Self::Failed(reason)),
            Reply::Subscribed
            | Reply::Acked
            | Reply::Done
            | Reply::Topics(..)
            | Reply::Topic(..)
            | Reply::Split { .. }
            | Reply::Merged { .. }
            | Reply::Sought(_)
            | Reply::Groups(..)
            | Reply::Group(_)
            | Reply::Credentials(_)
            | Reply::Welcome(_)
            | Reply::Users(_)
            | Reply::Rights(_) => Err(reply),
        }
    }
}

impl World {
    /// A call reaches the node: what it may be answered depends on what is known now.
    pub(super) fn arrived(&mut self, id: CallId) {
        let call = &mut self.calls[id];
        call.known = call.op.topic().is_some_and(|topic| self.model.topics[topic].is_known());
        match &call.op {
            Op::Create { .. } => create_topic::arrived(self, id),
            Op::Produce(_) => produce::arrived(self, id),
            Op::Fetch(_) => fetch::arrived(self, id),
            Op::Commit(_) => commit::arrived(self, id),
            Op::Leave | Op::Garbage => {}
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
        let reply = Answer::of(reply)
            .map_err(|reply| Violation::new("ANSWER", format!("{} -> {reply:?}", self.calls[call])))?;
        self.say(|| format!("   {} -> {}", self.calls[call], brief(&reply)));
        self.summary.replies += 1;
        self.note(digest(&reply));
        self.judge(call, &reply)?;
        self.edge_answer(ConnId(id.connection.0), id.number, call, reply);
        Ok(())
    }

    fn judge(&mut self, id: CallId, reply: &Answer) -> Result<(), Violation> {
        let call = &self.calls[id];
        if let Some(operation) = call.op.operation() {
            let may = self.clients[call.client].may(operation);
            let denied = *reply == Answer::Failed(Reason::PermissionDenied);
            ensure(may != denied, "PERMISSION", || format!("{} -> {}", call, brief(reply)))?;
            if denied {
                return Ok(());
            }
        }
        match &call.op {
            Op::Create { .. } => create_topic::answered(self, id, reply),
            Op::Produce(_) => produce::answered(self, id, reply),
            Op::Fetch(_) => fetch::answered(self, id, reply),
            Op::Commit(_) => commit::answered(self, id, reply),
            Op::Leave => self.expect(id, reply, *reply == Answer::Left),
            Op::Garbage => self.expect(id, reply, false),
        }
    }

    /// The answer is one of those the model allows.
    pub(super) fn expect(&self, id: CallId, reply: &Answer, allowed: bool) -> Result<(), Violation> {
        ensure(allowed, "ANSWER", || format!("{} -> {}", self.calls[id], brief(reply)))
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
pub(super) fn brief(reply: &Answer) -> String {
    match reply {
        Answer::Fetched(page) => format!("{} records, cursor {}", page.count, page.cursor.escape_ascii()),
        Answer::Created | Answer::Stored(_) | Answer::Committed | Answer::Left | Answer::Failed(_) => {
            format!("{reply:?}")
        }
    }
}

fn digest(reply: &Answer) -> u64 {
    let mut crc = crc32fast::Hasher::new();
    match reply {
        Answer::Created | Answer::Committed | Answer::Left => crc.update(b"done"),
        Answer::Stored(count) => crc.update(&count.to_be_bytes()),
        Answer::Failed(reason) => crc.update(reason.as_str().as_bytes()),
        Answer::Fetched(page) => {
            page.runs.iter().for_each(|run| crc.update(&run.records));
            crc.update(&page.cursor);
        }
    }
    u64::from(crc.finalize())
}
