//! Everything heals: all that live must come to agree on who lives, as what, where, and what it says.

use membership::{MemberView, Status};
use types::NodeId;

use super::node::Node;
use super::world::World;
use crate::invariants::{Violation, ensure};

/// How long that may take, microseconds.
const PATIENCE: u64 = 60_000_000;
const STEP: u64 = 250_000;

impl World {
    pub(super) fn heal(&mut self) -> Result<(), Violation> {
        self.healing = true;
        self.say(|| "everything heals".to_owned());
        self.calm_network();
        let seeds = self.seed_addresses();
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.nodes.get_mut(&id).expect("nodes are never removed").paused_until = 0;
            self.boot(id)?;
            // Who looks for a seed that moved is told where it is now.
            if self.nodes[&id].seeds != seeds {
                self.step(id, membership::Event::Seeds(seeds.clone()))?;
            }
        }
        let began = self.now;
        while let Some(complaint) = self.complaint() {
            ensure(self.now < began + PATIENCE, "CONVERGENCE", || complaint)?;
            let until = self.now + STEP;
            self.run_until(until)?;
        }
        self.summary.healing = self.now - began;
        Ok(())
    }

    /// What is not agreed on yet.
    fn complaint(&self) -> Option<String> {
        let pairs = self.nodes.values().flat_map(|observer| {
            let others = self.nodes.values().filter(move |other| other.id != observer.id);
            others.map(move |other| (observer, other))
        });
        pairs.filter_map(|(observer, other)| disagreement(observer, other)).next()
    }
}

fn disagreement(observer: &Node, other: &Node) -> Option<String> {
    let view = observer.process.as_ref()?.member(other.id);
    let agrees = match (&other.process, &view) {
        (None, None) => true,
        (None, Some(view)) => view.status == Status::Down,
        (Some(_), None) => false,
        (Some(process), Some(view)) => {
            let MemberView { name, address, incarnation, status, digest, .. } = view;
            *status == Status::Alive
                && *incarnation == process.incarnation()
                && *address == other.address
                && *digest == Some(other.digest)
                && **name == *name_of(other.id)
        }
    };
    let lives = other.process.as_ref().map(membership::Membership::incarnation);
    (!agrees).then(|| format!("node {} lives as {lives:?}, and {} knows {view:?}", other.id, observer.id))
}

fn name_of(id: NodeId) -> String {
    format!("node {id}")
}
