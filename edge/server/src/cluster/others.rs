//! The core's side of the connections: its actions become commands, what happens becomes its events.
//!
//! Owns which call of the core's is which call of a connection. Lives on the core thread and never waits.

use std::collections::BTreeMap;

use broker::{AskId, CallId, Event, PeerEvent as ToCore};
use peer::Message;
use tokio::sync::watch;
use types::NodeId;

use super::End;
use crate::driver::FromPeers;
use crate::peer::{Caller, Command, PeerEvent, Peers, Target};

/// The other nodes.
#[derive(Debug)]
pub(crate) struct Others {
    way: Way,
    /// Places to look, beside the nodes the cluster lists.
    seeds: Vec<String>,
    listed: watch::Sender<Vec<(NodeId, String)>>,
    calls: Calls,
    /// What goes out at the end of the burst.
    outgoing: BTreeMap<NodeId, Vec<Command>>,
    /// What was asked and never went out.
    unsent: Vec<(NodeId, AskId)>,
}

/// How others are reached.
#[derive(Debug)]
enum Way {
    /// By connections.
    Peers(Peers),
    /// Not at all; a cluster of others ends this node so.
    Alone(End),
}

impl Way {
    /// Gives back what was not taken.
    fn send(&self, to: NodeId, commands: Vec<Command>) -> Result<(), Vec<Command>> {
        match self {
            Self::Peers(peers) => peers.send(to, commands).map_err(|(_, commands)| commands),
            Self::Alone(_) => Err(commands),
        }
    }
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
        peers: Peers,
        seeds: Vec<String>,
        listed: watch::Sender<Vec<(NodeId, String)>>,
    ) -> Self {
        Self::by(Way::Peers(peers), seeds, listed)
    }

    /// Of a node that meets nobody, and must not go on once it turns out that its cluster has others.
    pub(crate) fn none(end: End) -> Self {
        Self::by(Way::Alone(end), Vec::new(), watch::Sender::new(Vec::new()))
    }

    fn by(way: Way, seeds: Vec<String>, listed: watch::Sender<Vec<(NodeId, String)>>) -> Self {
        let (outgoing, unsent) = (BTreeMap::new(), Vec::new());
        Self { way, seeds, listed, calls: Calls::default(), outgoing, unsent }
    }

    /// Dropped when there is no connection.
    pub(crate) fn say(&mut self, to: NodeId, message: Message) {
        self.put(to, Command::Say(message));
    }

    pub(crate) fn ask(&mut self, to: NodeId, ask: AskId, message: Message, within: std::time::Duration) {
        self.put(to, Command::Call { token: ask.0, message, within });
    }

    /// Dropped when the one who asked has gone or wants no answer any more.
    pub(crate) fn answer(&mut self, to: NodeId, call: CallId, message: Message) {
        if let Some(caller) = self.calls.take(call) {
            self.put(to, Command::Answer { caller, message });
        }
    }

    fn put(&mut self, to: NodeId, command: Command) {
        self.outgoing.entry(to).or_default().push(command);
    }

    /// The burst is over: what it has for each node goes to that one's connection in one piece.
    pub(crate) fn send_all(&mut self) {
        while let Some((to, commands)) = self.outgoing.pop_first() {
            let Err(commands) = self.way.send(to, commands) else { continue };
            self.unsent.extend(commands.into_iter().filter_map(|command| match command {
                Command::Call { token, .. } => Some((to, AskId(token))),
                Command::Say(_) | Command::Cancel { .. } | Command::Answer { .. } => None,
            }));
        }
    }

    /// These are the other nodes of the cluster.
    pub(crate) fn listed(&mut self, nodes: Vec<(NodeId, String)>) {
        match &self.way {
            Way::Peers(peers) => peers.dial(targets(&self.seeds, &nodes)),
            Way::Alone(_) if nodes.is_empty() => {}
            Way::Alone(end) => end.now(super::unmet(&format!("has {} other node(s)", nodes.len()))),
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

    /// What the core is told of it.
    pub(crate) fn events(&mut self, from: FromPeers, out: &mut Vec<Event>) {
        match from {
            FromPeers::Events(events) => out.extend(events.into_iter().filter_map(|event| self.event(event))),
            FromPeers::Seen { node, incarnation, status } => {
                out.push(Event::Peer(node, ToCore::Seen { incarnation, status }));
            }
        }
    }

    /// The same of what a connection brought; `None` when that is nothing.
    fn event(&mut self, event: PeerEvent) -> Option<Event> {
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
    use crate::boot::Refusal;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn asked(others: &mut Others, node: NodeId, number: u64) -> CallId {
        let caller = Caller::of(number, 1);
        let message = Message::ReadIndex { vnode: types::VnodeId(0) };
        match others.event(PeerEvent::Asked { node, caller, message }) {
            Some(Event::Peer(of, ToCore::Asked { call, .. })) if of == node => call,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_cannot_be_asked_is_not_answered() {
        let mut others = Others::none(super::super::end().0);
        let message = Message::ReadIndex { vnode: types::VnodeId(0) };
        others.ask(A, AskId(7), message, std::time::Duration::from_secs(1));
        others.send_all();
        assert!(others.has_unsent());
        match &others.take_unsent()[..] {
            [Event::Peer(node, ToCore::Unanswered { ask })] => assert_eq!((*node, *ask), (A, AskId(7))),
            other => panic!("{other:?}"),
        }
        assert!(!others.has_unsent());
    }

    #[test]
    fn a_node_that_meets_nobody_does_not_go_on_among_others() {
        let (end, mut ends) = super::super::end();
        let mut others = Others::none(end);
        others.listed(Vec::new());
        assert!(ends.try_recv().is_err());
        others.listed(vec![(A, "a:1".to_owned())]);
        let Ok(Refusal::Data(line)) = ends.try_recv() else { panic!("it is to end") };
        assert!(line.contains("1 other node(s)") && line.contains("MALACHI_CLUSTER_SECRET"), "{line}");
    }

    #[test]
    fn calls_are_answered_once_and_forgotten_with_who_made_them() {
        let mut others = Others::none(super::super::end().0);
        let (first, second) = (asked(&mut others, A, 1), asked(&mut others, B, 2));
        let third = asked(&mut others, B, 3);
        assert_eq!(others.calls.take(first), Some(Caller::of(1, 1)));
        assert_eq!(others.calls.take(first), None);
        assert!(others.event(PeerEvent::Cancelled { caller: Caller::of(2, 1) }).is_none());
        assert_eq!(others.calls.take(second), None);
        let down = PeerEvent::Down { node: B, why: String::new() };
        assert!(matches!(others.event(down), Some(Event::Peer(B, ToCore::Down))));
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
