//! How copies are, and why something does or does not move, for people.
//!
//! Owns the questions under way and who is asked: what stands still is explained by the node that would move it, from
//! what that node acts upon, so that the explanation cannot differ from what happens. Reads only; changes nothing.
//!
//! - A question goes to one other node at most, which answers from its own memory.
//! - Whoever cannot be asked is named, and what is known here is told instead.
//! - So many questions at one time, and no more.

mod cause;
mod copies;
mod group;
mod node;
mod range;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use peer::Message;
use peer::message::{Forward, ForwardReply};
use types::{GroupName, NodeId, RangeId, RangeSeq, VnodeId};
use wire::Reason;
use wire::request::Subject;
use wire::response::Explanation;

use crate::action::{Action, Reply};
use crate::event::{AskId, CallId, ConnectionId, RequestId};
use crate::groups;
use crate::node::Node;
use crate::route::Primary;

pub(crate) use copies::Spot;

/// Questions passed on to other nodes at one time.
const ASKS_MAX: usize = 64;
/// How long another node may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// What people have asked and were not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Explains {
    looks: BTreeMap<u64, copies::Look>,
    asks: BTreeMap<AskId, Passed>,
    next: u64,
}

/// A question that another node answers.
#[derive(Clone, Debug)]
struct Passed {
    id: RequestId,
    to: NodeId,
    subject: Subject,
}

impl Explains {
    /// Whether another node was asked this.
    pub(crate) fn has_asked(&self, ask: AskId) -> bool {
        self.asks.contains_key(&ask)
    }

    /// Nobody waits there any more.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        self.asks.retain(|_, passed| passed.id.connection != connection);
        self.looks.retain(|_, look| !look.is_of(connection));
    }
}

/// Who can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Teller {
    Here,
    At(NodeId),
}

impl Node {
    /// Answers why something does or does not move; `None` when the answer comes later.
    pub(crate) fn explain(&mut self, id: RequestId, subject: &Subject) -> Result<Option<Reply>, Reason> {
        match self.teller_of(subject)? {
            Teller::Here => {
                let explanation = self.explained(subject)?;
                self.tell_explanation(id, subject, explanation)
            }
            Teller::At(to) if self.explains.asks.len() < ASKS_MAX => {
                let ask = self.core.meta.ask_id();
                self.explains.asks.insert(ask, Passed { id, to, subject: subject.clone() });
                let forward =
                    Forward { session: 0, user: Bytes::new(), revision: 0, body: subject.to_bytes() };
                let message = Message::Forward(forward);
                self.core.out.push(Action::Ask { to, ask, message, within: ANSWER_WITHIN });
                Ok(None)
            }
            Teller::At(_) => Err(Reason::Overloaded),
        }
    }

    /// Another node asks, for somebody who may.
    pub(crate) fn explain_for(&mut self, node: NodeId, call: CallId, forward: Forward) {
        let subject = Subject::from_bytes(forward.body).ok().filter(|_| self.serves());
        let explanation = subject.and_then(|subject| self.explained(&subject).ok());
        let reply = match explanation {
            Some(explanation) => ForwardReply::Answer(explanation.to_bytes()),
            None => ForwardReply::NotServed { hint: None },
        };
        self.core.out.push(Action::Answer { to: node, call, message: Message::ForwardReply(reply) });
    }

    /// Another node has explained it, or will not.
    pub(crate) fn explain_answered(&mut self, ask: AskId, reply: Option<ForwardReply>) {
        let Some(Passed { id, to, subject }) = self.explains.asks.remove(&ask) else { return };
        let told = match reply {
            Some(ForwardReply::Answer(body)) => Explanation::from_bytes(body).ok(),
            Some(ForwardReply::NotServed { .. } | ForwardReply::Overloaded) | None => None,
        };
        let told = told.filter(|told| told.told_by == to);
        let told = told.map_or_else(
            || {
                let silent = format!("{} was asked and did not answer", self.called(to));
                self.explained(&subject).map(|explanation| cause::with_fact(explanation, "note", silent))
            },
            Ok,
        );
        let reply = told.and_then(|explanation| self.tell_explanation(id, &subject, explanation));
        if let Some(reply) = reply.unwrap_or_else(|reason| Some(Reply::Failed(reason))) {
            self.core.reply(id, reply);
        }
    }

    /// The connection to a node is another one, or none.
    pub(crate) fn explains_parted(&mut self, node: NodeId) {
        let lost = self.explains.asks.iter().filter(|(_, passed)| passed.to == node);
        for ask in lost.map(|(ask, _)| *ask).collect::<Vec<_>>() {
            self.explain_answered(ask, None);
        }
    }

    fn teller_of(&mut self, subject: &Subject) -> Result<Teller, Reason> {
        let own = self.core.config.node;
        let teller = match subject {
            Subject::Range { topic, range } => {
                let id = self.range_named(topic.as_ref(), *range)?;
                self.who_knows(id)
            }
            Subject::Node { node } if self.core.meta.cluster().node(*node).is_none() => {
                return Err(Reason::NoSuchNode);
            }
            Subject::Node { node } => Some(*node),
            // Whoever leads the metadata of its topic coordinates it.
            Subject::Group { topic, .. } => {
                let topic = topic.as_ref().and_then(|topic| self.topic(topic)).ok_or(Reason::NoSuchTopic)?;
                self.core.meta.home(topic).and_then(|vnode| self.core.meta.leader(vnode))
            }
        };
        let other = teller.filter(|node| *node != own && self.core.liveness.is_up(*node));
        Ok(other.map_or(Teller::Here, Teller::At))
    }

    /// Who would move a range: its primary, and who ends its segment when that cannot be reached. `None` is this node.
    fn who_knows(&self, id: RangeId) -> Option<NodeId> {
        if self.ranges.get(&id).is_some_and(|range| range.segment().is_some()) {
            return None;
        }
        let leader = self.core.meta.home(id.topic).and_then(|vnode| {
            let leader = self.core.meta.leader(vnode);
            leader.or_else(|| self.member_of(vnode))
        });
        let active = self.core.meta.of(id.topic).active_segment(id);
        match (active.and_then(|(_, listed)| listed.replicas.first().copied()), self.primary_of(id)) {
            (Some(primary), _) if self.core.liveness.is_up(primary) => Some(primary),
            (Some(_), _) => leader,
            (None, Primary::At(node)) if self.core.liveness.is_up(node) => Some(node),
            (None, Primary::Here | Primary::At(_) | Primary::Nobody) => None,
        }
    }

    /// A member of a vnode's group that can be reached, when this node is none and knows of no leader.
    fn member_of(&self, vnode: VnodeId) -> Option<NodeId> {
        let topology =
            self.core.meta.cluster().topology().filter(|_| self.core.meta.group(vnode).is_none())?;
        let members = topology.placements.get(&vnode)?;
        members.iter().copied().find(|node| self.core.liveness.is_up(*node))
    }

    fn explained(&mut self, subject: &Subject) -> Result<Explanation, Reason> {
        match subject {
            Subject::Range { topic, range } => {
                let id = self.range_named(topic.as_ref(), *range)?;
                Ok(self.explain_range(id))
            }
            Subject::Node { node } => self.explain_node(*node).ok_or(Reason::NoSuchNode),
            Subject::Group { topic, group } => {
                let topic = topic.as_ref().and_then(|topic| self.topic(topic)).ok_or(Reason::NoSuchTopic)?;
                let group = group.as_ref().and_then(|group| GroupName::new(group).ok());
                let group = group.ok_or(Reason::InvalidGroup)?;
                Ok(self.explain_group(&groups::Key { topic, group }))
            }
        }
    }

    /// Adds what the node that was asked knows, and how the copies of the segment are; `None` when those are asked.
    fn tell_explanation(
        &mut self,
        id: RequestId,
        subject: &Subject,
        mut explanation: Explanation,
    ) -> Result<Option<Reply>, Reason> {
        // That of another node is no more to be believed than the tables here.
        explanation.segment = None;
        let Subject::Range { topic, range } = subject else {
            return Ok(Some(Reply::Explained(Box::new(explanation))));
        };
        let range = self.range_named(topic.as_ref(), *range)?;
        if let Some((waiting, sent)) = self.outlets.waiting_for(range) {
            let here = self.called(self.core.config.node);
            let text = format!("{waiting} requests wait at {here} for a primary, {sent} were sent to it");
            explanation = cause::with_fact(explanation, "front", text);
        }
        self.look_and_tell(id, range, explanation)
    }

    fn range_named(&mut self, topic: Option<&Bytes>, range: u64) -> Result<RangeId, Reason> {
        let topic = topic.and_then(|topic| self.topic(topic)).ok_or(Reason::NoSuchTopic)?;
        let id = RangeId { topic, seq: RangeSeq(range) };
        self.core.meta.of(topic).range(id).map(|_| id).ok_or(Reason::NoSuchRange)
    }

    /// A node as people call it.
    fn called(&self, node: NodeId) -> String {
        let listed = self.core.meta.cluster().node(node).map(|node| node.name.as_str());
        listed.filter(|name| !name.is_empty()).map_or_else(|| node.to_string(), str::to_owned)
    }

    /// Several of them.
    fn all_called(&self, nodes: impl IntoIterator<Item = NodeId>) -> String {
        let names: Vec<String> = nodes.into_iter().map(|node| self.called(node)).collect();
        names.join(", ")
    }
}
