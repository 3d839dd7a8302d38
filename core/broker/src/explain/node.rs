//! How a node is, and what waits for it.

use metadata::cluster::NodeState;
use metadata::vnode::Vnode;
use storage::store::{State as CopyState, Status};
use types::NodeId;
use wire::response::Explanation;

use super::cause::Cause;
use crate::liveness::Health;
use crate::node::Node;
use crate::segments::State;

type Facts = Vec<(&'static str, String)>;

/// What is wrong on this node.
#[derive(Clone, Copy, Debug, Default)]
struct Troubles {
    latched: usize,
    unreadable: usize,
    stopped: usize,
}

impl Node {
    /// How a node is, as far as this one can tell; `None` when the cluster has no such node. Takes time in proportion
    /// to the segments of all topics.
    pub(super) fn explain_node(&self, node: NodeId) -> Option<Explanation> {
        let listed = self.core.meta.cluster().node(node)?;
        let own = self.core.config.node;
        let health = self.core.liveness.health(node);
        let mut facts: Facts = vec![("name", self.called(node))];
        let state = match listed.state {
            NodeState::Joining => "joining",
            NodeState::Active => "active",
            NodeState::Draining => "draining",
        };
        facts.push(("state", state.to_owned()));
        facts.push(("health", format!("{health:?}").to_lowercase()));
        let segments = self.core.meta.vnodes().flat_map(Vnode::segments);
        let (mut copies, mut primary) = (0_u64, 0_u64);
        for (_, segment) in segments.filter(|(_, segment)| segment.replicas.contains(&node)) {
            copies += 1;
            primary += u64::from(segment.is_active() && segment.replicas.first() == Some(&node));
        }
        facts.push(("copies", copies.to_string()));
        facts.push(("primary_of", primary.to_string()));
        let found = self.found_on(node);
        facts.push(("vnodes", found.vnode_count.to_string()));
        let takes = self.core.able_nodes().contains(&node);
        facts.push(("takes_new_segments", if takes { "yes" } else { "no" }.to_owned()));
        let troubles = (node == own).then(|| self.own_troubles(&mut facts));
        let left = (u64::from(found.vnode_count), copies);
        let cause = self.cause_of_node(node, listed.state, health, left, takes, troubles);
        Some(cause.told(own, facts))
    }

    fn cause_of_node(
        &self,
        node: NodeId,
        state: NodeState,
        health: Health,
        (vnodes, copies): (u64, u64),
        takes: bool,
        troubles: Option<Troubles>,
    ) -> Cause {
        let dead = self.core.liveness.dead_since(node).map(|since| self.core.now.since(since));
        match health {
            Health::Dead => {
                let text = format!("it was given up, and {copies} copies are there");
                let after = self.core.config.replace_after.as_secs();
                let next = format!(
                    "its segments are ended from other copies; after {after} s copies are made elsewhere"
                );
                return Cause::stands("dead", text, next).since(dead);
            }
            Health::Suspect => {
                let text = "it does not answer, and was not given up yet";
                return Cause::waits("suspect", text, "it answers, or is given up within seconds");
            }
            Health::Unknown => {
                let text =
                    format!("nothing was heard of it since {} started", self.called(self.core.config.node));
                return Cause::stands(
                    "never_heard_of",
                    text,
                    "start it, or look at the network between them",
                );
            }
            Health::Alive => {}
        }
        if state == NodeState::Draining {
            if vnodes == 0 && copies == 0 {
                return Cause::moves(
                    "drained",
                    "nothing is left on it",
                    "it can be removed from the cluster",
                );
            }
            let text = format!("it is on its way out: {vnodes} vnodes and {copies} copies are left on it");
            return Cause::waits(
                "draining",
                text,
                "they move to others by themselves, where others can take them",
            );
        }
        let Troubles { latched, unreadable, stopped } = troubles.unwrap_or_default();
        if stopped > 0 {
            let text = format!(
                "{stopped} ranges stand still, because the only copy of their last segment failed here"
            );
            return Cause::stands("ranges_stopped", text, "`explain range` says which disk and why");
        }
        if latched + unreadable > 0 {
            let text = format!("{latched} copies are out of service here, {unreadable} cannot be read");
            return Cause::waits(
                "copies_failed",
                text,
                "they are made anew from others that are intact; look at the disk",
            );
        }
        if state == NodeState::Joining {
            return Cause::waits(
                "joining",
                "it is listed and has not said a word yet",
                "start it with its invitation",
            );
        }
        if !takes {
            let text = "copies failed there, or came too late: others are preferred for a minute";
            return Cause::waits("avoided", text, "then it is given new segments again; look at its disk");
        }
        Cause::moves("alive", "it takes part", "nothing")
    }

    /// What only the node itself knows.
    fn own_troubles(&self, facts: &mut Facts) -> Troubles {
        let mut troubles = Troubles::default();
        for (_, status) in self.core.copies() {
            match status {
                Status::Here(extent) => match extent.state {
                    CopyState::Latched(_) => troubles.latched += 1,
                    CopyState::Active | CopyState::Sealed | CopyState::Stopped(_) => {}
                },
                Status::Unreadable => troubles.unreadable += 1,
                Status::Creating | Status::Unread | Status::Deleting => {}
            }
        }
        let stopped = |range: &&crate::segments::Range| matches!(range.state, State::Stopped);
        troubles.stopped = self.ranges.values().filter(stopped).count();
        let open = |range: &&crate::segments::Range| matches!(range.state, State::Open(_));
        facts.push(("open_segments", self.ranges.values().filter(open).count().to_string()));
        let waiting: usize = self.ranges.values().map(|range| range.waiting.len()).sum();
        facts.push(("waiting", waiting.to_string()));
        facts.push(("copies_out_of_service", troubles.latched.to_string()));
        facts.push(("copies_unreadable", troubles.unreadable.to_string()));
        facts.push(("ranges_stopped", troubles.stopped.to_string()));
        facts.push(("segments_not_ended", self.healing.unavailable().to_string()));
        facts.push(("copies_being_looked_at", self.healing.mending().to_string()));
        facts.push(("vnodes_led", self.core.meta.led_groups().count().to_string()));
        troubles
    }
}
