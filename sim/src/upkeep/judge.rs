//! What the node does to the disk and to the tables, held against what it may.

use std::collections::{BTreeMap, BTreeSet};

use metadata::vnode::{Segment, Vnode};
use storage::disk::{Job, Step};
use storage::segment::layout;
use types::{RangeId, SegmentId, TopicId};

use super::rules::{Bounds, bounds, read_by_all};
use crate::invariants::{Violation, inv_36, inv_37, inv_38, inv_39, inv_40};

/// How long a decision may take from the question to the entry, microseconds: the bounds of any moment of it may have
/// been the ones that counted.
const WINDOW: u64 = 20_000_000;

/// What the judge remembers.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// Segments as the tables listed them last.
    pub(super) listed: BTreeMap<SegmentId, Segment>,
    topics: BTreeSet<TopicId>,
    /// What holds for each topic, since the tables changed last.
    current: BTreeMap<TopicId, Bounds>,
    /// Bounds of each topic that held before, with the last moment they did.
    lately: BTreeMap<TopicId, BTreeMap<Bounds, u64>>,
    /// How far every group of a topic was at some moment. Nobody takes a position back, but a group that comes later
    /// begins before what the others are past.
    read: BTreeMap<TopicId, u64>,
    /// Copies that were made: whatever is under the name of another was never anything.
    pub(super) made: BTreeSet<SegmentId>,
    /// Since when the running process knows of a copy nobody lists, microseconds.
    pub(super) unlisted: BTreeMap<SegmentId, u64>,
    /// Copies a bit of which was flipped.
    pub(super) rotten: BTreeSet<SegmentId>,
    /// Copies the node has told of.
    pub(super) told: BTreeSet<SegmentId>,
    /// The latest time the wall clock has shown, milliseconds.
    pub(super) wall_max: u64,
}

impl Judge {
    /// The process is another one.
    pub(super) fn life_ended(&mut self) {
        self.unlisted.clear();
    }

    /// A job for the segment copies is about to be given to the disk.
    pub(super) fn job(&self, job: &Job, expiring: impl Fn(SegmentId) -> bool) -> Result<(), Violation> {
        for step in &job.steps {
            match step {
                Step::CreateDir(name) => {
                    if let Some(segment) = layout::parse_dir(name.as_str()) {
                        // One step may have applied both its registration and the end of its topic.
                        let gone = !self.topics.contains(&segment.range.topic);
                        inv_40::registered(segment, gone || self.listed.contains_key(&segment))?;
                    }
                }
                Step::Remove(path) | Step::Rename { from: path, .. } => {
                    let segment = path.dir.as_ref().and_then(|dir| layout::parse_dir(dir.as_str()));
                    let is_log = path.name.as_str().ends_with(".log");
                    if let Some(segment) = segment.filter(|_| is_log) {
                        let listed = self.listed.contains_key(&segment) && self.made.contains(&segment);
                        inv_37::undecided(segment, listed && expiring(segment))?;
                        inv_36::kept(segment, listed)?;
                    }
                }
                Step::RemoveDir(_)
                | Step::SyncDir(_)
                | Step::Open { .. }
                | Step::Create { .. }
                | Step::Close(_)
                | Step::Write { .. }
                | Step::Zero { .. }
                | Step::Sync(_)
                | Step::Truncate { .. }
                | Step::Read { .. }
                | Step::List(_) => {}
            }
        }
        Ok(())
    }

    /// The tables are others now.
    pub(super) fn tables(
        &mut self,
        vnode: &Vnode,
        now: u64,
        bounds_of: impl Fn(TopicId) -> Option<Bounds>,
    ) -> Result<(), Violation> {
        let topics: BTreeSet<TopicId> = vnode.topics().map(|(id, _)| id).collect();
        let held = std::mem::take(&mut self.current);
        for (topic, bounds) in held {
            self.lately.entry(topic).or_default().insert(bounds, now);
        }
        self.lately.retain(|topic, _| topics.contains(topic));
        self.lately.values_mut().for_each(|all| all.retain(|_, at| *at + WINDOW >= now));
        self.current = topics.iter().filter_map(|topic| Some((*topic, bounds_of(*topic)?))).collect();
        for topic in &topics {
            let read = self.read.entry(*topic).or_default();
            *read = read_by_all(vnode, *topic).max(*read);
        }
        self.read.retain(|topic, _| topics.contains(topic));
        let listed: BTreeMap<SegmentId, Segment> =
            vnode.segments().map(|(id, segment)| (id, segment.clone())).collect();
        let gone: Vec<SegmentId> =
            self.listed.keys().filter(|id| !listed.contains_key(id)).copied().collect();
        for segment in gone {
            if topics.contains(&segment.range.topic) {
                self.expired(segment)?;
            }
            self.listed.remove(&segment);
            self.rotten.remove(&segment);
            self.unlisted.insert(segment, now);
        }
        self.topics = topics;
        self.listed = listed;
        Ok(())
    }

    /// A segment of a topic that is still there is not listed any more.
    fn expired(&self, segment: SegmentId) -> Result<(), Violation> {
        let here = &self.listed[&segment];
        if here.end() == Some(here.start) {
            return Ok(());
        }
        let range = self.of_range(segment.range);
        let is_oldest = range.first().is_some_and(|(first, _)| *first == segment);
        inv_38::oldest(segment, here.is_active(), is_oldest)?;
        let segments: Vec<Segment> = range.into_iter().map(|(_, segment)| segment.clone()).collect();
        let topic = segment.range.topic;
        let lately = self.lately.get(&topic).into_iter().flat_map(BTreeMap::keys);
        let mut held = lately.chain(self.current.get(&topic));
        let read = self.read.get(&topic).copied().unwrap_or_default();
        let allowed = held.any(|bounds| bounds.allow(&segments, read, self.wall_max));
        inv_38::bounded(segment, allowed)
    }

    fn of_range(&self, range: RangeId) -> Vec<(SegmentId, &Segment)> {
        self.listed.iter().filter(|(id, _)| id.range == range).map(|(id, segment)| (*id, segment)).collect()
    }

    /// The directories a process finds.
    pub(super) fn directories(&mut self, here: &BTreeSet<SegmentId>, now: u64) {
        let unlisted = here.iter().filter(|segment| !self.listed.contains_key(segment));
        self.unlisted.extend(unlisted.map(|segment| (*segment, now)));
    }

    /// A sweep has removed a copy.
    pub(super) fn swept(
        &self,
        segment: SegmentId,
        now: u64,
        rules: &broker::upkeep::OrphanSweep,
    ) -> Result<(), Violation> {
        let known_for = self.unlisted.get(&segment).map_or(0, |since| now.saturating_sub(*since));
        let passes = rules.every * (rules.sightings.max(1) - 1);
        let due = u64::try_from(rules.min_age.max(passes).as_micros()).unwrap_or(u64::MAX);
        inv_39::patient(segment, self.listed.contains_key(&segment), known_for, due)
    }
}

/// The bounds of each topic, as the node's own tables give them.
pub(super) fn bounds_of(
    config: &broker::Config,
    cluster: &metadata::cluster::Cluster,
    vnode: &Vnode,
    topic: TopicId,
) -> Option<Bounds> {
    vnode.topic(topic).map(|topic| bounds(config, cluster, topic))
}
