//! The process is about to end: what this node leads is handed to members that have everything.
//!
//! Others would notice that it is gone and elect anew; handing over spares them the time until they do. Nothing depends
//! on it, so whoever drives the node need not wait for longer than it likes.

use std::time::Duration;

use types::{NodeId, VnodeId};

use crate::action::Action;
use crate::node::Node;

/// How often it is looked whether the new leaders lead.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How far leaving is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// It is not asked for.
    No,
    Asked,
    /// It was told that there is nothing left to hand over.
    Done,
}

impl Node {
    /// Nothing new is begun from now on.
    pub(crate) fn leave_cluster(&mut self) {
        if self.control.leave == Leave::No {
            self.control.leave = Leave::Asked;
            self.hand_over_lead();
        }
    }

    /// Hands on what is led here still, and tells once that nothing is.
    pub(super) fn hand_over_lead(&mut self) {
        if self.control.leave != Leave::Asked {
            return;
        }
        let led: Vec<VnodeId> = self.core.meta.led_groups().collect();
        let heirs: Vec<(VnodeId, NodeId)> =
            led.into_iter().filter_map(|id| Some((id, self.heir(id)?))).collect();
        if heirs.is_empty() {
            self.control.leave = Leave::Done;
            self.core.out.push(Action::Left);
        } else {
            self.control.look_at = Some(self.core.now.plus(LOOK_EVERY));
        }
        for (id, heir) in heirs {
            self.core.transfer(id, Some(heir));
        }
        self.keep_lease();
    }

    /// The first of the other members that could lead a group at once.
    fn heir(&self, id: VnodeId) -> Option<NodeId> {
        let group = self.core.meta.group(id)?;
        group.peers().map(|peer| peer.member.node).find(|node| self.may_lead(group, *node))
    }
}
