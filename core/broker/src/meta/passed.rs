//! Proposals whose entries the tables here went past without seeing them: another node's state took their place.
//!
//! Owns that nobody waits for such an entry until its time is over. What the tables show beyond doubt is answered, of
//! everything else it is told that the outcome is not known.

use bytes::Bytes;
use metadata::vnode::{Command, Reply};
use types::{RaftIndex, RangeId, RangeSeq, VnodeId};

use super::origin::Origin;
use super::remote::Verdict;
use super::{CLUSTER, Meta};

impl Meta {
    /// The tables of a group are another node's state, or a leader told where it recorded what was proposed here.
    pub(super) fn look_for_passed(&mut self, group: VnodeId) {
        let seen = match group {
            CLUSTER => self.cluster().applied(),
            vnode => {
                self.shards.get(&vnode).map_or(RaftIndex::ZERO, |shard| shard.tables.machine().applied())
            }
        };
        for (key, entry) in self.remote.recorded(group, seen) {
            let shown = (group != CLUSTER).then(|| self.shown(group, &entry)).flatten();
            match shown.and_then(|shown| Some((self.asked.lost(key.1)?, shown))) {
                Some((proposed, (command, reply))) => {
                    self.remote.release(key);
                    self.answer(group, proposed, &command, reply);
                }
                None => self.judged(key, Verdict::Unknown),
            }
        }
    }

    /// The command of an entry and what came of it, if the tables show that it was this very one: nobody else gives a
    /// topic the same id.
    fn shown(&self, vnode: VnodeId, entry: &Bytes) -> Option<(Bytes, Reply)> {
        let (_, command) = Origin::split(entry).ok()?;
        let Some(Command::CreateTopic(create)) = Command::read(&command) else { return None };
        self.tables_of(vnode).topic(create.id)?;
        let root = RangeId { topic: create.id, seq: RangeSeq(0) };
        Some((command, Reply::TopicCreated { root }))
    }
}
