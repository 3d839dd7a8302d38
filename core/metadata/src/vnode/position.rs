//! Positions of groups: exact tiles, merged by overlay.
//!
//! A group's position on a topic is a list of tiles, sorted by the start of their span and disjoint; a part
//! of the keyspace that no tile covers is read from its beginning. A tile says: for the keys of its slice,
//! everything before its range in their history is drained, and the range is read up to its offset. So a split
//! or merge changes no tile. A commit replaces what its tiles cover and nothing else, so members of a group
//! that own different slices never overwrite each other, and the last one to write wins.
//!
//! Tiles are kept in their one canonical form (`overlay`): histories that healed leave no fragments behind.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{GroupName, RangeId, TopicId, WallTime, limits};

use super::overlay::overlay;
use super::tables::Tables;
use super::{Refusal, Reply, Tile};

/// One group's new position on one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Which topic.
    pub topic: TopicId,
    /// The group's name as the client gave it.
    pub group: Bytes,
    /// Sorted and disjoint. The slices they cover move; others stay.
    pub tiles: Vec<Tile>,
    /// The proposer's clock, for the expiry of groups nobody uses any more.
    pub at: WallTime,
}

/// Arguments of [`Command::ExpireGroup`](super::Command::ExpireGroup).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpireGroup {
    /// Which topic.
    pub topic: TopicId,
    /// The group's name as the proposer read it.
    pub group: Bytes,
    /// A group that committed at this time or later is kept, so that a commit on its way wins.
    pub idle_since: WallTime,
}

/// Where a group stands on a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// At least one, in canonical form.
    pub(super) tiles: Vec<Tile>,
    /// Latest of the times its commits carried.
    pub(super) committed_at: WallTime,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Positions {
    by_topic: BTreeMap<TopicId, BTreeMap<GroupName, Standing>>,
}

impl Positions {
    pub(super) fn get(&self, topic: TopicId, group: &GroupName) -> Option<&Standing> {
        self.by_topic.get(&topic)?.get(group)
    }

    /// In the order of topic ids and group names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TopicId, &GroupName, &Standing)> {
        self.by_topic
            .iter()
            .flat_map(|(topic, groups)| groups.iter().map(|(name, standing)| (*topic, name, standing)))
    }

    /// Groups with a position on the topic, in byte order.
    pub(super) fn groups(&self, topic: TopicId) -> impl Iterator<Item = &GroupName> {
        self.by_topic.get(&topic).into_iter().flat_map(BTreeMap::keys)
    }

    pub(super) fn set(&mut self, topic: TopicId, group: GroupName, standing: Standing) {
        self.by_topic.entry(topic).or_default().insert(group, standing);
    }

    pub(super) fn copy_topic(&mut self, from: &Self, topic: TopicId) {
        if let Some(groups) = from.by_topic.get(&topic) {
            self.by_topic.insert(topic, groups.clone());
        }
    }

    pub(super) fn remove_topic(&mut self, topic: TopicId) {
        self.by_topic.remove(&topic);
    }

    fn remove(&mut self, topic: TopicId, group: &GroupName) {
        if let Some(groups) = self.by_topic.get_mut(&topic) {
            groups.remove(group);
            if groups.is_empty() {
                self.by_topic.remove(&topic);
            }
        }
    }
}

impl Tables {
    pub(super) fn commit(&mut self, commit: Commit) -> Result<(), Refusal> {
        let Commit { topic, group, tiles, at } = commit;
        if self.topics.get(topic).is_none() {
            return Err(Refusal::NoSuchTopic);
        }
        let group = GroupName::new(&group).map_err(|_| Refusal::InvalidGroup)?;
        if !self.is_position(topic, &tiles) {
            return Err(Refusal::InvalidPosition);
        }
        if tiles.is_empty() {
            return Ok(());
        }
        let laid = |standing: &mut Standing| {
            if !overlay(&mut standing.tiles, &tiles, limits::CURSOR_TILES_MAX) {
                return Err(Refusal::TooManyTiles);
            }
            standing.committed_at = standing.committed_at.max(at);
            Ok(())
        };
        let groups = self.positions.by_topic.get_mut(&topic);
        let group_count = groups.as_ref().map_or(0, |groups| groups.len());
        if let Some(present) = groups.and_then(|groups| groups.get_mut(&group)) {
            return laid(present);
        }
        if group_count >= limits::GROUPS_PER_TOPIC_MAX {
            return Err(Refusal::TooManyGroups);
        }
        let mut standing = Standing::default();
        laid(&mut standing)?;
        self.positions.set(topic, group, standing);
        Ok(())
    }

    pub(super) fn expire_group(&mut self, expire: ExpireGroup) -> Result<Reply, Refusal> {
        if self.topics.get(expire.topic).is_none() {
            return Err(Refusal::NoSuchTopic);
        }
        let group = GroupName::new(&expire.group).map_err(|_| Refusal::InvalidGroup)?;
        let standing = self.positions.get(expire.topic, &group).ok_or(Refusal::NoSuchGroup)?;
        if standing.committed_at >= expire.idle_since {
            return Err(Refusal::GroupNotIdle);
        }
        self.positions.remove(expire.topic, &group);
        Ok(Reply::GroupExpired)
    }

    /// Whether tiles are sorted and disjoint, and each lies inside the range it names.
    pub(super) fn is_position(&self, topic: TopicId, tiles: &[Tile]) -> bool {
        let ordered = tiles.is_sorted_by(|a, b| a.span.end() <= b.span.start());
        let inside = |tile: &Tile| {
            let range = self.ranges.get(RangeId { topic, seq: tile.range });
            range.is_some_and(|range| range.span.covers(tile.span))
        };
        ordered && tiles.iter().all(inside)
    }
}
