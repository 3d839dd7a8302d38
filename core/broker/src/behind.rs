//! When the metadata goes on to a version this build does not have.
//!
//! Owns what the node does about it: it stops serving, tells once, and answers everybody who waits. What the group
//! decides from there on is not known here, so nothing is guessed: no request is looked at, no segment is ended, no
//! copy is removed, and the tables are not saved. Does not stop the process: what was acknowledged stays, and a later
//! build over the same directories takes over. A start that finds such metadata has nothing to serve and refuses.

use metadata::machine::Version;
use types::{Instant, VnodeId};
use wire::Reason;

use crate::action::{Action, Notice, Reply, Stop};
use crate::event::Volume;
use crate::meta;
use crate::node::Node;

impl Node {
    /// A group went on to a version this build does not have.
    pub(crate) fn left_behind(&mut self, group: VnodeId, version: Version) {
        let group = meta::name_of(group);
        let (version, build) = (version.0, Version::BUILD.0);
        if !self.serves() {
            let detail = format!("{group} runs at version {version}, this build has {build}");
            return self.stop(Stop::LaterFormat { volume: Volume::Raft, detail });
        }
        self.suspend();
        self.core.notice(Notice::LeftBehind { group, version, build });
        self.core.out.push(Action::Suspended);
        self.end_all_streams(Reason::Unavailable);
        for (id, parked) in self.waiters.take_due(Instant(u64::MAX)) {
            self.unparked(&parked);
            self.core.reply(id, Reply::Failed(Reason::Unavailable));
        }
        for id in self.ranges.keys().copied().collect::<Vec<_>>() {
            self.refuse_waiting(id, crate::produce::Error::Unavailable);
        }
    }
}
