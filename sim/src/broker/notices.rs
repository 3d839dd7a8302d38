//! What the node tells its operator, and what may be the reason.

use broker::{Notice, upkeep};
use storage::disk::ErrorKind;
use storage::store;
use types::{RangeId, SegmentId};

use super::audit::Due;
use super::workload::Op;
use super::workload::create_topic;
use super::workload::end_topic::{self, End};
use super::world::World;
use crate::invariants::{Violation, ensure};

impl World {
    pub(super) fn noticed(&mut self, notice: &Notice) -> Result<(), Violation> {
        self.say(|| format!("   {notice:?}"));
        match notice {
            Notice::TopicCreated { topic, range } => {
                create_topic::noticed(self, topic, range.topic)?;
                self.begun.topics.insert(range.topic);
                self.changed();
            }
            Notice::TopicSealed { topic } => {
                end_topic::noticed(self, topic, End::Seal)?;
                self.changed();
            }
            Notice::TopicDeleted { topic, .. } => {
                end_topic::noticed(self, topic, End::Delete)?;
                self.changed();
            }
            Notice::RangeReplaced { range } => {
                self.begun.replaced.insert(*range);
                self.changed();
            }
            Notice::Assigned { topic, group, generation, members } => {
                let Some(name) = self.model.index_of(topic.as_bytes()) else { return Ok(()) };
                if let Some(index) = self.model.names[name].current {
                    self.model.assigned(index, group, *generation, *members);
                    self.fetches_assigned(index, group);
                } else {
                    // Whoever waited for the topic is there before it is told of.
                    self.model.names[name].early.push((group.clone(), *generation, *members));
                }
            }
            Notice::SegmentOpened { segment, base, .. } => {
                let ancestors = self.ancestors(segment.range);
                self.model.segments.opened(*segment, *base, &ancestors)?;
            }
            Notice::SegmentSealed { segment, end, .. } => self.model.segments.sealed(*segment, *end)?,
            Notice::MetadataStopped { detail } => {
                ensure(self.weather.bad[1], "INV-27", || {
                    format!("no fault was ordered, and the log stops: {detail}")
                })?;
                if let Some(process) = &mut self.process {
                    process.metadata_stopped = true;
                }
            }
            Notice::Unlisted(how) => {
                return Err(Violation::new(
                    "INV-50",
                    format!("a node alone is at odds with its list: {how:?}"),
                ));
            }
            Notice::ReplicaLost { group } => {
                return Err(Violation::new("INV-27", format!("nobody could replace the replica of {group}")));
            }
            // Nothing rots in this world; a `copy.meta` that could not be read at the start counts as damaged until
            // the next one.
            Notice::RangeStopped { range, detail } => {
                ensure(self.weather.bad[0], "INV-22", || {
                    format!("{range} stops, and nothing is damaged: {detail}")
                })?;
                self.out_of_service();
            }
            Notice::RecordsLost { segment, end, goes_on } => {
                ensure(false, "INV-22", || {
                    format!("{segment} lost {end} to {goes_on}, and nothing rots in this world")
                })?;
            }
            Notice::SegmentStuck { segment, detail } => self.stuck(*segment, detail)?,
            Notice::Store(store::Notice::MetaUnreadable { segment, detail }) => {
                ensure(self.weather.bad[0], "INV-27", || {
                    format!("no fault was ordered, and {segment}: {detail}")
                })?;
                self.out_of_service();
            }
            Notice::ReadFailed { segment, offset, detail } => {
                // Whoever reads a topic while it is removed finds nothing.
                let topic = self.model.by_id(segment.range.topic);
                let gone = topic.is_none_or(|topic| {
                    self.model.topics[topic].deleted || self.is_ending(topic, End::Delete)
                });
                ensure(gone || self.weather.bad[0], "INV-27", || {
                    format!("no fault was ordered, and reading {segment} at {offset} fails: {detail}")
                })?;
            }
            Notice::SeedFailed { detail } => {
                ensure(self.weather.bad[1], "INV-27", || {
                    format!("no fault was ordered, and users cannot be made: {detail}")
                })?;
                self.logins.seed_failed = true;
            }
            // Nobody upgrades it.
            Notice::LeftBehind { .. } => {
                return Err(Violation::new("P-37", format!("nothing of that sort happened: {notice:?}")));
            }
            Notice::CopyLeft { segment, detail } => {
                let excused = self.weather.is_bad() || self.config.store.queue_max < 100;
                ensure(excused, "P-37", || format!("no fault was ordered, and {segment} stays: {detail}"))?;
                // A directory whose names could not be synced is left to the next process.
                if detail.contains(&ErrorKind::Poisoned.to_string()) {
                    self.out_of_service();
                }
            }
            Notice::OrphansFound { copies, .. } => self.summary.orphans += *copies as u64,
            Notice::Upkeep(upkeep::Notice::CopyDamaged { segment, detail, .. }) => {
                ensure(self.weather.bad[0], "INV-27", || {
                    format!("no fault was ordered, and {segment} is called damaged: {detail}")
                })?;
            }
            Notice::AccountLocked { .. }
            | Notice::SegmentMissing { .. }
            | Notice::Store(_)
            | Notice::RaftLog(_)
            | Notice::Upkeep(_)
            | Notice::Healing(_)
            | Notice::Foreign { .. } => {}
        }
        Ok(())
    }

    fn changed(&mut self) {
        self.audit.due = self.audit.due.or(Some(Due::Change));
    }

    fn stuck(&mut self, segment: SegmentId, detail: &str) -> Result<(), Violation> {
        let held = self.weather.held == Some(segment.range);
        let excused = held || self.weather.is_bad() || self.config.store.queue_max < 100;
        ensure(excused, "INV-27", || format!("no fault was ordered, and {segment} is stuck: {detail}"))?;
        if detail.contains(&ErrorKind::Poisoned.to_string()) {
            self.out_of_service();
        }
        Ok(())
    }

    fn out_of_service(&mut self) {
        if let Some(process) = &mut self.process {
            process.out_of_service = true;
        }
    }

    /// The ranges that held a range's keys before it.
    fn ancestors(&self, id: RangeId) -> Vec<RangeId> {
        let Some(topic) = self.model.by_id(id.topic) else { return Vec::new() };
        let topic = &self.model.topics[topic];
        topic.ranges.ancestors(id.seq.0).into_iter().map(|number| topic.range_id(number)).collect()
    }

    /// Fetches of members that wait may begin again at what their group has committed.
    fn fetches_assigned(&mut self, index: usize, group: &bytes::Bytes) {
        let committed = self.model.topics[index].possible(group);
        for call in self.waiting.values() {
            let call = &mut self.calls[*call];
            if call.name == Some(self.model.topics[index].name)
                && let Op::Fetch(fetch) = &mut call.op
                && fetch.member.is_some()
                && fetch.group.as_ref() == Some(group)
            {
                fetch.may_begin_at(call.topic, index, &committed);
            }
        }
    }
}
