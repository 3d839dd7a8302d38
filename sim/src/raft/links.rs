//! Links between nodes: late, lost, twice, in another order, or cut until they heal.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;
use rand::rngs::SmallRng;
use types::NodeId;

/// Something that arrives.
pub(crate) struct Arrival<P> {
    pub(crate) at: u64,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) what: P,
}

/// How the network behaves now.
#[derive(Debug)]
pub(crate) struct Links<P> {
    /// Links that carry nothing, each for one direction.
    pub(crate) cut: BTreeSet<(NodeId, NodeId)>,
    /// What cut links hold; the others lose it.
    held: Vec<(NodeId, NodeId, P)>,
    pub(crate) holds: bool,
    pub(crate) loss: f64,
    pub(crate) twice: f64,
    /// Longest delay, microseconds.
    pub(crate) delay: u64,
    /// A stray message takes this long.
    pub(crate) stray: u64,
    /// Messages of a link arrive in order.
    pub(crate) in_order: bool,
    last: BTreeMap<(NodeId, NodeId), u64>,
}

impl<P> Links<P> {
    pub(crate) fn new(delay: u64, in_order: bool) -> Self {
        Self {
            cut: BTreeSet::new(),
            held: Vec::new(),
            holds: false,
            loss: 0.0,
            twice: 0.0,
            delay,
            stray: 0,
            in_order,
            last: BTreeMap::new(),
        }
    }
}

impl<P: Clone> Links<P> {
    /// When and how often something that is sent now arrives.
    pub(crate) fn send(
        &mut self,
        chaos: &mut SmallRng,
        now: u64,
        (from, to): (NodeId, NodeId),
        what: P,
    ) -> Vec<Arrival<P>> {
        if self.cut.contains(&(from, to)) {
            if self.holds && self.held.len() < 2000 {
                self.held.push((from, to, what));
            }
            return Vec::new();
        }
        if chaos.random_bool(self.loss) {
            return Vec::new();
        }
        let copies = if chaos.random_bool(self.twice) { 2 } else { 1 };
        (0..copies).map(|_| self.on_its_way(chaos, now, (from, to), what.clone())).collect()
    }

    fn on_its_way(
        &mut self,
        chaos: &mut SmallRng,
        now: u64,
        (from, to): (NodeId, NodeId),
        what: P,
    ) -> Arrival<P> {
        let mut delay = chaos.random_range(100..=self.delay.max(200));
        if self.stray > 0 && chaos.random_bool(0.01) {
            delay += chaos.random_range(0..self.stray);
        }
        let mut at = now + delay;
        if self.in_order {
            let last = self.last.entry((from, to)).or_default();
            at = at.max(*last + 1);
            *last = at;
        }
        Arrival { at, from, to, what }
    }

    /// Links carry again, without fault, and bring what they held.
    pub(crate) fn calm(&mut self, chaos: &mut SmallRng, now: u64) -> Vec<Arrival<P>> {
        self.cut.clear();
        let held = std::mem::take(&mut self.held);
        let arrivals =
            held.into_iter().map(|(from, to, what)| self.on_its_way(chaos, now, (from, to), what)).collect();
        (self.loss, self.twice, self.delay, self.stray) = (0.0, 0.0, 3000, 0);
        arrivals
    }

    fn cut(&mut self, a: NodeId, b: NodeId, both_ways: bool) {
        self.cut.insert((a, b));
        if both_ways {
            self.cut.insert((b, a));
        }
    }

    /// One node is cut off, maybe in one direction only.
    pub(crate) fn isolate(&mut self, chaos: &mut SmallRng, ids: &[NodeId], id: NodeId) {
        self.holds = chaos.random_bool(0.5);
        let (in_and_out, only_in) = (chaos.random_bool(0.6), chaos.random_bool(0.5));
        for other in ids.iter().copied().filter(|other| *other != id) {
            let (from, to) = if only_in { (other, id) } else { (id, other) };
            self.cut(from, to, in_and_out);
        }
    }

    /// Two sides that do not hear each other.
    pub(crate) fn split(&mut self, chaos: &mut SmallRng, ids: &[NodeId]) {
        self.holds = chaos.random_bool(0.5);
        let side: Vec<NodeId> = ids.iter().copied().filter(|_| chaos.random_bool(0.5)).collect();
        for a in &side {
            for b in ids.iter().filter(|b| !side.contains(b)) {
                self.cut(*a, *b, true);
            }
        }
    }

    /// Some links only: two that do not hear each other both hear a third.
    pub(crate) fn cut_some(&mut self, chaos: &mut SmallRng, ids: &[NodeId]) {
        self.holds = chaos.random_bool(0.5);
        for a in ids {
            for b in ids {
                if a != b && chaos.random_bool(0.2) {
                    let both_ways = chaos.random_bool(0.5);
                    self.cut(*a, *b, both_ways);
                }
            }
        }
    }

    /// Loss, repetition, delay.
    pub(crate) fn worsen(&mut self, chaos: &mut SmallRng) {
        self.loss = chaos.random_range(0.0..0.3);
        self.twice = chaos.random_range(0.0..0.3);
        self.delay = [1000, 30_000, 300_000][chaos.random_range(0..3)];
        self.stray = [0, 500_000, 6_000_000][chaos.random_range(0..3)];
    }
}
