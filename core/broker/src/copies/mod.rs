//! Copies wherever they are: what this node asks of its own and of those that others hold, and what others ask of its.
//!
//! Owns the questions on their way to other nodes and how much each of those has on its way here. Does not know what
//! a question is good for: the answer goes to its owner, exactly once. What travels is said in `translate`.
//!
//! - What concerns one segment and is urgent arrives in the order in which it was asked; so does what is not.
//! - An answer of another node is checked before anybody sees it; a batch has both its checksums looked at.
//! - Nothing is served before this node knows what it holds: until then it would say of a copy that there is none.

mod translate;

use std::collections::BTreeMap;
use std::time::Duration;

use peer::Message;
use peer::message::copy::{self, OfCopy};
use storage::store;
use types::{NodeId, SegmentId, limits};

use crate::action::Action;
use crate::event::{AskId, CallId};
use crate::node::{Core, Node, Owner};

pub(crate) use translate::unreadable;

/// How long an answer may take that needs one write.
const WRITE_WITHIN: Duration = Duration::from_secs(5);
/// The same for a read.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// The same when everything of a copy is read.
const VERIFY_WITHIN: Duration = Duration::from_secs(120);

/// What came of a question about a copy that may be another node's.
#[derive(Clone, Debug)]
pub(crate) enum CopyAnswer {
    /// The store that holds it has answered.
    Store(store::Reply),
    /// Nothing was done: it was never sent, or the node does not serve copies at the moment.
    Unreachable,
    /// It was sent, and there will be no answer: whether something was done is not known.
    Unanswered,
}

impl CopyAnswer {
    /// For whoever goes elsewhere when it fails, whatever the reason.
    pub(crate) fn or_failed(self) -> store::Reply {
        match self {
            Self::Store(reply) => reply,
            Self::Unreachable => store::Reply::Failed(unreadable("the node cannot be reached".to_owned())),
            Self::Unanswered => store::Reply::Failed(unreadable("the node did not answer".to_owned())),
        }
    }
}

/// Questions on their way.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    asked: BTreeMap<AskId, Asked>,
    /// For owners, in the order in which they became known.
    answers: Vec<(NodeId, Owner, CopyAnswer)>,
    served: BTreeMap<NodeId, Served>,
}

#[derive(Debug)]
struct Asked {
    holder: NodeId,
    segment: SegmentId,
    owner: Owner,
    /// To be asked as urgent when the answer is too large otherwise.
    again: Option<store::Request>,
}

/// What one node has on its way here.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    calls: usize,
    bytes: usize,
}

impl Copies {
    /// The answers that nobody was given yet.
    pub(crate) fn take_answers(&mut self) -> Vec<(NodeId, Owner, CopyAnswer)> {
        std::mem::take(&mut self.answers)
    }

    /// Whether another node was asked this about a copy.
    pub(crate) fn has_asked(&self, ask: AskId) -> bool {
        self.asked.contains_key(&ask)
    }

    fn admit(&mut self, node: NodeId, bytes: usize) -> bool {
        let served = self.served.entry(node).or_default();
        let fits = served.calls < limits::COPY_CALLS_PER_NODE_MAX
            && served.bytes.saturating_add(bytes) <= limits::COPY_CALL_BYTES_PER_NODE_MAX;
        // One request larger than the whole allowance must still be possible.
        let admitted = fits || served.calls == 0;
        if admitted {
            served.calls += 1;
            served.bytes += bytes;
        }
        admitted
    }

    fn settle(&mut self, node: NodeId, bytes: usize) {
        let Some(served) = self.served.get_mut(&node) else { return };
        assert!(served.calls > 0 && served.bytes >= bytes, "a call is answered once, as it was admitted");
        served.calls -= 1;
        served.bytes -= bytes;
        if served.calls == 0 {
            self.served.remove(&node);
        }
    }
}

impl Core {
    /// Asks for something of a copy, here or on another node. The answer comes to `owner`, exactly once, and never
    /// before this returns.
    pub(crate) fn ask_copy(&mut self, holder: NodeId, owner: Owner, request: store::Request) {
        if holder == self.config.node {
            return self.ask(owner, request);
        }
        if !self.gathered.is_empty() && request.changes_copy() {
            self.send_gathered_to(holder, request.segment());
        }
        let bulk = self.goes_behind(owner, &request);
        self.ask_other(holder, owner, request, bulk);
    }

    /// Whether what is urgent goes first.
    fn goes_behind(&self, owner: Owner, request: &store::Request) -> bool {
        match request {
            store::Request::Append { batches, .. } => {
                let bytes: u64 = batches.iter().map(|batch| batch.header.frame_len()).sum();
                owner.is_bulk() && bytes <= limits::COPY_BULK_READ_BYTES_MAX as u64
            }
            // What is read of an ended segment is not what just came.
            store::Request::Read { segment, .. } => {
                let listed = self.meta.of(segment.range.topic).segment(*segment);
                owner.is_bulk() || listed.is_none_or(|listed| !listed.is_active())
            }
            store::Request::Create { .. }
            | store::Request::SeekTime { .. }
            | store::Request::Fence { .. }
            | store::Request::Seal { .. }
            | store::Request::Latch { .. }
            | store::Request::Verify { .. }
            | store::Request::Delete { .. }
            | store::Request::Inspect { .. }
            | store::Request::Rebuilt { .. } => false,
        }
    }

    fn ask_other(&mut self, holder: NodeId, owner: Owner, request: store::Request, bulk: bool) {
        if !self.liveness.is_up(holder) {
            return self.copies.answers.push((holder, owner, CopyAnswer::Unreachable));
        }
        let (segment, of, within) = (request.segment(), translate::to_peer(&request, bulk), within(&request));
        if translate::weight(&of.request) > limits::COPY_FRAME_BYTES_MAX {
            let refused = unreadable("a batch that is too large to be sent".to_owned());
            let answer = CopyAnswer::Store(store::Reply::Failed(refused));
            return self.copies.answers.push((holder, owner, answer));
        }
        let again = matches!(request, store::Request::Read { .. }).then_some(request).filter(|_| bulk);
        let ask = self.meta.ask_id();
        self.copies.asked.insert(ask, Asked { holder, segment, owner, again });
        self.out.push(Action::Ask { to: holder, ask, message: Message::Copy(of), within });
    }

    /// Another node answered, or will not.
    pub(crate) fn copy_replied(&mut self, ask: AskId, reply: Option<copy::Reply>) {
        let Some(Asked { holder, segment, owner, again }) = self.copies.asked.remove(&ask) else { return };
        if let (Some(copy::Reply::TooLarge), Some(request)) = (&reply, again) {
            return self.ask_other(holder, owner, request, false);
        }
        let answer = match reply.map(|reply| translate::reply_from_peer(segment, reply)) {
            Some(Some(reply)) => CopyAnswer::Store(reply),
            Some(None) => CopyAnswer::Unreachable,
            None => CopyAnswer::Unanswered,
        };
        self.copies.answers.push((holder, owner, answer));
    }

    /// The connection to a node is another one, or none: nothing asked over the last one is answered.
    pub(crate) fn copies_parted(&mut self, node: NodeId) {
        let lost = self.copies.asked.iter().filter(|(_, asked)| asked.holder == node);
        let lost: Vec<AskId> = lost.map(|(ask, _)| *ask).collect();
        for ask in lost {
            self.copy_replied(ask, None);
        }
    }

    fn answer_copy(&mut self, to: NodeId, call: CallId, reply: copy::Reply) {
        self.out.push(Action::Answer { to, call, message: Message::CopyReply(reply) });
    }
}

/// How long an answer may take.
fn within(request: &store::Request) -> Duration {
    match request {
        store::Request::Read { .. } | store::Request::SeekTime { .. } => READ_WITHIN,
        store::Request::Verify { .. } => VERIFY_WITHIN,
        store::Request::Create { .. }
        | store::Request::Append { .. }
        | store::Request::Fence { .. }
        | store::Request::Seal { .. }
        | store::Request::Latch { .. }
        | store::Request::Delete { .. }
        | store::Request::Inspect { .. }
        | store::Request::Rebuilt { .. } => WRITE_WITHIN,
    }
}

impl Node {
    /// Asks for something of a copy, here or on another node. The answer comes to `owner`, exactly once, and never
    /// before this returns.
    pub(crate) fn ask_copy(&mut self, holder: NodeId, owner: Owner, request: store::Request) {
        self.core.ask_copy(holder, owner, request);
    }

    /// Another node asks for something of a copy that is here.
    pub(crate) fn serve_copy(&mut self, node: NodeId, call: CallId, of: OfCopy) {
        if !self.serves() {
            return self.core.answer_copy(node, call, copy::Reply::NotServed);
        }
        let (segment, bulk, bytes) = (of.segment, of.bulk, translate::weight(&of.request));
        let request = match translate::from_peer(of) {
            Ok(request) => request,
            Err(untrusted) => {
                let error = copy::Error::Storage { detail: translate::detail(&untrusted.to_string()) };
                return self.core.answer_copy(node, call, copy::Reply::Failed(error));
            }
        };
        if !self.core.copies.admit(node, bytes) {
            return self.core.answer_copy(node, call, copy::Reply::Failed(copy::Error::Overloaded));
        }
        self.core.ask(Owner::Served { node, call, segment, bulk, bytes }, request);
    }

    /// The store answered what another node asked.
    pub(crate) fn served_copy(&mut self, owner: Owner, reply: store::Reply) {
        let Owner::Served { node, call, segment, bulk, bytes } = owner else { return };
        self.core.copies.settle(node, bytes);
        let reply = translate::reply_to_peer(segment, reply);
        let most = if bulk { limits::COPY_BULK_BYTES_MAX } else { limits::COPY_FRAME_BYTES_MAX };
        let reply = match translate::reply_bytes(&reply) {
            bytes if bytes <= most => reply,
            _ if bulk => copy::Reply::TooLarge,
            _ => {
                let detail = translate::detail("a batch that is too large to be sent");
                copy::Reply::Failed(copy::Error::Storage { detail })
            }
        };
        self.core.answer_copy(node, call, reply);
    }

    /// An answer about a copy that may be another node's, for its owner: one arm for each.
    pub(crate) fn copy_answered(&mut self, holder: NodeId, owner: Owner, answer: CopyAnswer) {
        match owner {
            Owner::Read { segment, from } => self.read_answered(holder, segment, from, answer),
            Owner::Seek { id, segment } => self.seek_answered(holder, id, segment, answer),
            Owner::Heal { step, .. } => self.heal_answered(step, answer),
            Owner::Look { number, spot } => self.look_answered(holder, number, spot, answer),
            Owner::Producers { range, turn } => self.read_back_answered(holder, range, turn, answer),
            Owner::Follow { segment, follower, round, .. } => self.followed(segment, follower, round, answer),
            Owner::Append { .. }
            | Owner::FollowRead { .. }
            | Owner::Create(_)
            | Owner::Fence(_)
            | Owner::Inspect(_)
            | Owner::Seal(_)
            | Owner::Loss(_)
            | Owner::Delete(_)
            | Owner::Scrub(_)
            | Owner::Served { .. } => unreachable!("{owner:?} asks only what is here"),
        }
    }
}
