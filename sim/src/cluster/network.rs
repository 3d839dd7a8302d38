//! Connections between nodes: made anew again and again, in order on each stream, and broken by silence.
//!
//! What a cut link holds arrives in order when it heals in time; when it does not, both ends find that the connection
//! broke, each at its own time, and what was on its way is lost.

use std::collections::BTreeMap;

use broker::{AskId, CallId, Event, PeerEvent};
use bytes::Buf;
use peer::message::Shape;
use peer::{Message, Rope, StreamId};
use rand::Rng;
use types::NodeId;

use super::world::{Happening, World};
use crate::invariants::{Violation, ensure};
use crate::raft::links::Links;

/// Something on its way.
#[derive(Clone, Debug)]
pub(super) enum Parcel {
    Said(Message),
    Asked(AskId, Message),
    Answered(AskId, Message),
}

/// A connection, as the network has it. Its ends may not know of it yet, or know of one before it still.
#[derive(Debug)]
struct Connection {
    number: u64,
    /// When each end hears of it; nothing reaches it before.
    up_at: BTreeMap<NodeId, u64>,
    /// What comes next on each stream of each direction comes after this.
    last: BTreeMap<(NodeId, Lane), u64>,
    held: Vec<(NodeId, NodeId, Parcel)>,
}

/// What keeps its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Stream(StreamId),
    Answer(AskId),
}

/// How nodes are connected.
pub(super) struct Network {
    pub(super) links: Links<()>,
    connections: BTreeMap<(NodeId, NodeId), Connection>,
}

impl Network {
    pub(super) fn new() -> Self {
        Self { links: Links::new(3000, true), connections: BTreeMap::new() }
    }
}

fn pair(a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    (a.min(b), a.max(b))
}

impl World {
    /// Whoever wants a connection and has none tries to get one.
    pub(super) fn dial(&mut self) -> Result<(), Violation> {
        let next = self.chaos.random_range(50_000..250_000);
        self.later(next, Happening::Dial);
        let ids = self.ids();
        for id in ids {
            self.dial_from(id);
        }
        Ok(())
    }

    /// The same for one node and the others.
    pub(super) fn dial_from(&mut self, id: NodeId) {
        for other in self.ids() {
            let (a, b) = pair(id, other);
            let is_free = a != b && !self.network.connections.contains_key(&(a, b));
            let is_cut = self.is_cut(a, b) || self.is_cut(b, a);
            if is_free && !is_cut && self.can_talk(a) && self.can_talk(b) && self.want(a, b) {
                self.connect(a, b);
            }
        }
    }

    fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.network.links.cut.contains(&(from, to))
    }

    /// Whether two processes hear each other, over the connection they have or one that can be made.
    pub(super) fn is_reachable(&self, a: NodeId, b: NodeId) -> bool {
        self.can_talk(a) && self.can_talk(b) && !self.is_cut(a, b) && !self.is_cut(b, a)
    }

    fn can_talk(&self, id: NodeId) -> bool {
        let node = &self.nodes[&id];
        node.process.is_some() && node.paused_until <= self.now
    }

    fn want(&self, a: NodeId, b: NodeId) -> bool {
        let wants = |a: NodeId, b: NodeId| {
            let node = &self.nodes[&a];
            let told = node.process.as_ref().is_some_and(|process| process.peers.contains(&b));
            told || node.seeds.contains(&b)
        };
        wants(a, b) || wants(b, a)
    }

    fn connect(&mut self, a: NodeId, b: NodeId) {
        let number = self.number();
        let mut up_at = BTreeMap::new();
        for (id, other) in [(a, b), (b, a)] {
            let at = self.now + self.chaos.random_range(200..self.network.links.delay.max(400) * 3);
            up_at.insert(id, at);
            let life = (id, self.nodes[&id].life);
            self.at(at, Happening::Up(life, other, number));
        }
        let connection = Connection { number, up_at, last: BTreeMap::new(), held: Vec::new() };
        self.network.connections.insert(pair(a, b), connection);
    }

    /// A connection ends; each end finds out after at most so long.
    fn break_off(&mut self, a: NodeId, b: NodeId, within: u64) {
        let Some(connection) = self.network.connections.remove(&pair(a, b)) else { return };
        for (id, other) in [(a, b), (b, a)] {
            let Some(life) = self.nodes.get(&id).map(|node| node.life) else { continue };
            let soon = self.now + self.chaos.random_range(100..within.max(200));
            let at = soon.max(connection.up_at.get(&id).copied().unwrap_or(0) + 1);
            self.at(at, Happening::Down((id, life), other, connection.number));
        }
    }

    /// A process is gone, and with it its connections.
    pub(super) fn break_all(&mut self, id: NodeId, within: u64) {
        let keys: Vec<_> = self.network.connections.keys().copied().collect();
        for (a, b) in keys.into_iter().filter(|(a, b)| *a == id || *b == id) {
            self.break_off(a, b, within);
        }
    }

    /// Links were cut: whoever hears nothing for a while gives its connection up.
    pub(super) fn notice_cuts(&mut self) {
        let cut: Vec<_> = self.network.links.cut.iter().copied().collect();
        for (from, to) in cut {
            let Some(connection) = self.network.connections.get(&pair(from, to)) else { continue };
            let number = connection.number;
            let patience = self.chaos.random_range(800_000..5_000_000);
            self.later(patience, Happening::Silence(from, to, number));
        }
        self.summary.partitions += 1;
    }

    pub(super) fn silence(&mut self, a: NodeId, b: NodeId, number: u64) {
        let is_same = self.network.connections.get(&pair(a, b)).is_some_and(|known| known.number == number);
        if is_same && (self.is_cut(a, b) || self.is_cut(b, a)) {
            self.break_off(a, b, 2_000_000);
        }
    }

    /// Links carry again, and bring what they held.
    pub(super) fn calm_network(&mut self) {
        self.network.links.calm(&mut self.chaos, self.now);
        self.release_held();
    }

    /// What is held on links that are not cut any more goes on.
    pub(super) fn release_held(&mut self) {
        let mut free = Vec::new();
        for connection in self.network.connections.values_mut() {
            for (from, to, parcel) in std::mem::take(&mut connection.held) {
                if self.network.links.cut.contains(&(from, to)) {
                    connection.held.push((from, to, parcel));
                } else {
                    free.push((from, to, connection.number, parcel));
                }
            }
        }
        for (from, to, number, parcel) in free {
            self.send(from, to, number, parcel);
        }
    }

    /// Sends over the connection of that number, if it is still there.
    pub(super) fn send(&mut self, from: NodeId, to: NodeId, number: u64, parcel: Parcel) {
        let is_cut = self.is_cut(from, to);
        let delay = self.network.links.delay;
        let stray = self.network.links.stray;
        let Some(life) = self.nodes.get(&to).map(|node| node.life) else { return };
        let Some(connection) = self.network.connections.get_mut(&pair(from, to)) else { return };
        if connection.number != number {
            return;
        }
        if is_cut {
            return connection.held.push((from, to, parcel));
        }
        let mut at = self.now + self.chaos.random_range(100..=delay.max(200));
        // A segment that is sent again holds up its stream.
        if self.chaos.random_bool(0.003) {
            at += self.chaos.random_range(0..200_000);
        }
        if stray > 0 && self.chaos.random_bool(0.01) {
            at += self.chaos.random_range(0..stray);
        }
        at = at.max(connection.up_at.get(&to).copied().unwrap_or(0) + 1);
        let last = connection.last.entry((from, lane(&parcel))).or_default();
        at = at.max(*last + 1);
        *last = at;
        self.at(at, Happening::Deliver((to, life), from, number, parcel));
    }

    pub(super) fn up(&mut self, id: NodeId, other: NodeId, number: u64) -> Result<(), Violation> {
        let before = self.process(id).up.get(&other).copied();
        if before.is_some_and(|before| before >= number) {
            return Ok(());
        }
        if let Some(before) = before {
            self.down(id, other, before)?;
        }
        if let Some(process) = self.nodes.get_mut(&id).and_then(|node| node.process.as_mut()) {
            process.up.insert(other, number);
            self.say(|| format!("node {id} has a connection to {other}"));
            self.step(id, Event::Peer(other, PeerEvent::Up))?;
        }
        Ok(())
    }

    pub(super) fn down(&mut self, id: NodeId, other: NodeId, number: u64) -> Result<(), Violation> {
        let process = self.process(id);
        if process.up.get(&other) != Some(&number) {
            return Ok(());
        }
        process.up.remove(&other);
        process.asks.retain(|_, (to, _)| *to != other);
        process.calls.retain(|_, (from, ..)| *from != other);
        self.say(|| format!("node {id} has no connection to {other} any more"));
        self.step(id, Event::Peer(other, PeerEvent::Down))
    }

    pub(super) fn deliver(
        &mut self,
        id: NodeId,
        from: NodeId,
        number: u64,
        parcel: Parcel,
    ) -> Result<(), Violation> {
        let process = self.process(id);
        if process.up.get(&from) != Some(&number) {
            return Ok(());
        }
        let event = match parcel {
            Parcel::Said(message) => PeerEvent::Said(message),
            Parcel::Asked(ask, message) => {
                process.calls_made += 1;
                let call = CallId(process.calls_made);
                process.calls.insert(call, (from, number, ask));
                PeerEvent::Asked { call, message }
            }
            Parcel::Answered(ask, message) => {
                if process.asks.remove(&ask).is_none() {
                    return Ok(());
                }
                PeerEvent::Answered { ask, message }
            }
        };
        self.summary.messages += 1;
        self.say(|| format!("node {id} from {from}: {}", shown(&event)));
        self.step(id, Event::Peer(from, event))
    }

    /// An answer takes too long.
    pub(super) fn late(&mut self, id: NodeId, ask: AskId) -> Result<(), Violation> {
        match self.process(id).asks.remove(&ask) {
            Some((to, _)) => self.step(id, Event::Peer(to, PeerEvent::Unanswered { ask })),
            None => Ok(()),
        }
    }

    /// A node asks another.
    pub(super) fn ask_peer(&mut self, id: NodeId, to: NodeId, ask: AskId, message: Message, within: u64) {
        let life = (id, self.nodes[&id].life);
        self.say(|| format!("node {id} asks {to} {ask:?}: {message:?}"));
        let process = self.process(id);
        let Some(number) = process.up.get(&to).copied() else {
            process.asks.insert(ask, (to, 0));
            return self.later(1, Happening::Late(life, ask));
        };
        process.asks.insert(ask, (to, number));
        self.later(within, Happening::Late(life, ask));
        self.send(id, to, number, Parcel::Asked(ask, message));
    }

    pub(super) fn say_peer(&mut self, id: NodeId, to: NodeId, message: Message) {
        if let Some(number) = self.process(id).up.get(&to).copied() {
            self.send(id, to, number, Parcel::Said(message));
        }
    }

    pub(super) fn answer_peer(
        &mut self,
        id: NodeId,
        to: NodeId,
        call: CallId,
        message: Message,
    ) -> Result<(), Violation> {
        let process = self.process(id);
        let is_first = process.answered.insert(call);
        ensure(is_first, "ANSWER", || format!("node {id} answers {call:?} of {to} twice: {message:?}"))?;
        match process.calls.remove(&call) {
            Some((_, number, ask)) => self.send(id, to, number, Parcel::Answered(ask, message)),
            None => self.overheard.push((to, message)),
        }
        Ok(())
    }
}

/// The stream a parcel goes on: what is large is in nobody's way, and answers come in any order.
fn lane(parcel: &Parcel) -> Lane {
    match parcel {
        Parcel::Said(message) | Parcel::Asked(_, message) => Lane::Stream(message.stream()),
        Parcel::Answered(ask, _) => Lane::Answer(*ask),
    }
}

/// A message as it arrives: through the codec.
pub(super) fn carried(message: &Message) -> Result<Message, Violation> {
    // Answers go on the stream of the question, which is not known here.
    if message.kind().shape() != Shape::Answers && !message.fits() {
        return Err(Violation::new("CODEC", format!("{:?} is too large to be sent", message.kind())));
    }
    let mut rope = Rope::new();
    message.encode(&mut rope);
    let bytes = rope.copy_to_bytes(rope.remaining());
    let arrived = Message::decode(message.kind(), bytes);
    match arrived {
        Ok(arrived) if arrived == *message => Ok(arrived),
        other => Err(Violation::new("CODEC", format!("{message:?} arrives as {other:?}"))),
    }
}

fn shown(event: &PeerEvent) -> String {
    let PeerEvent::Said(Message::Raft(letters)) = event else { return format!("{event:?}") };
    let letter = |of: &peer::message::OfGroup| {
        format!("{}: {:?}", of.vnode, consensus::Letter::decode(of.message.clone()))
    };
    letters.iter().map(letter).collect::<Vec<_>>().join("; ")
}
