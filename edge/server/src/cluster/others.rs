//! The core's side of the connections: its actions become commands, what happens becomes its events.
//!
//! Owns which call of the core's is which call of a connection. Lives on the core thread and never waits.

use std::collections::BTreeMap;

use broker::{AskId, CallId, Event, PeerEvent as ToCore};
use peer::Message;
use tokio::sync::watch;
use types::NodeId;

use crate::driver::FromPeers;
use crate::peer::{Caller, Command, PeerEvent, Peers, Target};

/// The other nodes.
#[derive(Debug)]
pub(crate) struct Others {
    /// `None` for a node that meets nobody.
    peers: Option<Peers>,
    /// Places to look, beside the nodes the cluster lists.
    seeds: Vec<String>,
    listed: watch::Sender<Vec<(NodeId, String)>>,
    calls: Calls,
    /// What was asked and never went out.
    unsent: Vec<(NodeId, AskId)>,
}

/// Calls of others without an answer yet.
#[derive(Debug, Default)]
struct Calls {
    last: u64,
    by_id: BTreeMap<CallId, (NodeId, Caller)>,
    by_caller: BTreeMap<Caller, CallId>,
}

impl Calls {
    fn add(&mut self, node: NodeId, caller: Caller) -> CallId {
        self.last += 1;
        let call = CallId(self.last);
        self.by_id.insert(call, (node, caller));
        self.by_caller.insert(caller, call);
        call
    }

    fn take(&mut self, call: CallId) -> Option<Caller> {
        let (_, caller) = self.by_id.remove(&call)?;
        self.by_caller.remove(&caller);
        Some(caller)
    }

    /// The one who asked does not want the answer any more.
    fn cancel(&mut self, caller: Caller) {
        if let Some(call) = self.by_caller.remove(&caller) {
            self.by_id.remove(&call);
        }
    }

    fn forget(&mut self, node: NodeId) {
        self.by_id.retain(|_, (asked, _)| *asked != node);
        self.by_caller.retain(|_, call| self.by_id.contains_key(call));
    }
}

impl Others {
    pub(crate) fn new(
        peers: Option<Peers>,
        seeds: Vec<String>,
        listed: watch::Sender<Vec<(NodeId, String)>>,
    ) -> Self {
        Self { peers, seeds, listed, calls: Calls::default(), unsent: Vec::new() }
    }

    /// Of a node that meets nobody.
    pub(crate) fn none() -> Self {
        Self::new(None, Vec::new(), watch::Sender::new(Vec::new()))
    }

    /// Dropped when there is no connection.
    pub(crate) fn say(&self, to: NodeId, message: Message) {
        if let Some(peers) = &self.peers {
            let _ = peers.send(to, Command::Say(message));
        }
    }

    pub(crate) fn ask(&mut self, to: NodeId, ask: AskId, message: Message, within: std::time::Duration) {
        let command = Command::Call { token: ask.0, message, within };
        let sent = self.peers.as_ref().is_some_and(|peers| peers.send(to, command).is_ok());
        if !sent {
            self.unsent.push((to, ask));
        }
    }

    /// Dropped when the one who asked has gone or wants no answer any more.
    pub(crate) fn answer(&mut self, to: NodeId, call: CallId, message: Message) {
        if let (Some(peers), Some(caller)) = (&self.peers, self.calls.take(call)) {
            let _ = peers.send(to, Command::Answer { caller, message });
        }
    }

    /// These are the other nodes of the cluster.
    pub(crate) fn listed(&mut self, nodes: Vec<(NodeId, String)>) {
        match &self.peers {
            Some(peers) => peers.dial(targets(&self.seeds, &nodes)),
            None if nodes.is_empty() => {}
            None => tracing::error!(
                nodes = nodes.len(),
                "the cluster has other nodes and nothing says how to meet them: set MALACHI_CLUSTER_SECRET"
            ),
        }
        self.listed.send_replace(nodes);
    }

    /// Whether something has to be told to the core although nothing happened.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// What was asked and never went out, as events.
    pub(crate) fn take_unsent(&mut self) -> Vec<Event> {
        let unanswered = |(node, ask)| Event::Peer(node, ToCore::Unanswered { ask });
        self.unsent.drain(..).map(unanswered).collect()
    }

    /// What the core is told of it; `None` when that is nothing.
    pub(crate) fn event(&mut self, from: FromPeers) -> Option<Event> {
        let event = match from {
            FromPeers::Event(event) => event,
            FromPeers::Seen { node, incarnation, status } => {
                return Some(Event::Peer(node, ToCore::Seen { incarnation, status }));
            }
        };
        Some(match event {
            PeerEvent::Up { node, .. } => Event::Peer(node, ToCore::Up),
            PeerEvent::Down { node, .. } => {
                self.calls.forget(node);
                Event::Peer(node, ToCore::Down)
            }
            PeerEvent::Message { node, message } => Event::Peer(node, ToCore::Said(message)),
            PeerEvent::Asked { node, caller, message } => {
                let call = self.calls.add(node, caller);
                Event::Peer(node, ToCore::Asked { call, message })
            }
            PeerEvent::Answered { node, token, message } => {
                Event::Peer(node, ToCore::Answered { ask: AskId(token), message })
            }
            PeerEvent::Failed { node, token, .. } => {
                Event::Peer(node, ToCore::Unanswered { ask: AskId(token) })
            }
            PeerEvent::Cancelled { caller } => {
                self.calls.cancel(caller);
                return None;
            }
            PeerEvent::Refused { .. } => return None,
        })
    }
}

/// Whom to dial: every node that is listed, and the places of the list where none of those is.
fn targets(seeds: &[String], nodes: &[(NodeId, String)]) -> Vec<Target> {
    let is_listed = |seed: &&String| nodes.iter().any(|(_, address)| address == *seed);
    let seeds = seeds.iter().filter(|seed| !is_listed(seed));
    let seeds = seeds.map(|address| Target { address: address.clone(), node: None });
    let nodes = nodes.iter().map(|(node, address)| Target { address: address.clone(), node: Some(*node) });
    seeds.chain(nodes).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn asked(others: &mut Others, node: NodeId, number: u64) -> CallId {
        let caller = Caller::of(number, 1);
        let message = Message::ReadIndex { vnode: types::VnodeId(0) };
        match others.event(FromPeers::Event(PeerEvent::Asked { node, caller, message })) {
            Some(Event::Peer(of, ToCore::Asked { call, .. })) if of == node => call,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_cannot_be_asked_is_not_answered() {
        let mut others = Others::none();
        let message = Message::ReadIndex { vnode: types::VnodeId(0) };
        others.ask(A, AskId(7), message, std::time::Duration::from_secs(1));
        assert!(others.has_unsent());
        match &others.take_unsent()[..] {
            [Event::Peer(node, ToCore::Unanswered { ask })] => assert_eq!((*node, *ask), (A, AskId(7))),
            other => panic!("{other:?}"),
        }
        assert!(!others.has_unsent());
    }

    #[test]
    fn calls_are_answered_once_and_forgotten_with_who_made_them() {
        let mut others = Others::none();
        let (first, second) = (asked(&mut others, A, 1), asked(&mut others, B, 2));
        let third = asked(&mut others, B, 3);
        assert_eq!(others.calls.take(first), Some(Caller::of(1, 1)));
        assert_eq!(others.calls.take(first), None);
        assert!(others.event(FromPeers::Event(PeerEvent::Cancelled { caller: Caller::of(2, 1) })).is_none());
        assert_eq!(others.calls.take(second), None);
        let down = PeerEvent::Down { node: B, why: String::new() };
        assert!(matches!(others.event(FromPeers::Event(down)), Some(Event::Peer(B, ToCore::Down))));
        assert_eq!(others.calls.take(third), None);
        assert!(others.calls.by_id.is_empty() && others.calls.by_caller.is_empty());
    }

    #[test]
    fn listed_nodes_are_dialled_and_seeds_that_are_none_of_them() {
        let seeds = ["a:1".to_owned(), "b:1".to_owned()];
        let all = targets(&seeds, &[(A, "a:1".to_owned()), (B, "c:1".to_owned())]);
        let target = |address: &str, node| Target { address: address.to_owned(), node };
        assert_eq!(all, [target("b:1", None), target("a:1", Some(A)), target("c:1", Some(B))]);
    }
}
