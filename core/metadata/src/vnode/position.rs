//! Positions of groups: exact tiles, merged by overlay.
//!
//! A group's position on a topic is a list of tiles, sorted by the start of their span and disjoint; a part
//! of the keyspace that no tile covers is read from its beginning. A commit replaces what its tiles cover
//! and nothing else, so members of a group that own different slices never overwrite each other. Neighbours
//! that together form one aligned block and stand at the same place are one tile: a position has exactly one
//! form, and splits that healed by merges leave no fragments behind.

use std::collections::BTreeMap;

use types::{GroupName, KeySpan, RangeId, TopicId, limits};

use super::{Commit, Refusal, Reply, Tile, Vnode};

/// Most tiles of one group's position on one topic: what a cursor can carry.
pub const TILES_PER_GROUP_MAX: usize = limits::CURSOR_TILES_MAX;

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Positions {
    by_topic: BTreeMap<TopicId, BTreeMap<GroupName, Vec<Tile>>>,
}

impl Positions {
    pub(super) fn get(&self, topic: TopicId, group: &GroupName) -> &[Tile] {
        self.by_topic.get(&topic).and_then(|groups| groups.get(group)).map_or(&[], Vec::as_slice)
    }

    /// In the order of topic ids and group names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TopicId, &GroupName, &[Tile])> {
        self.by_topic
            .iter()
            .flat_map(|(topic, groups)| groups.iter().map(|(name, tiles)| (*topic, name, tiles.as_slice())))
    }

    /// Groups with a position on the topic, in byte order.
    pub(super) fn groups(&self, topic: TopicId) -> impl Iterator<Item = &GroupName> {
        self.by_topic.get(&topic).into_iter().flat_map(BTreeMap::keys)
    }

    fn group_count(&self, topic: TopicId) -> usize {
        self.by_topic.get(&topic).map_or(0, BTreeMap::len)
    }

    pub(super) fn set(&mut self, topic: TopicId, group: GroupName, tiles: Vec<Tile>) {
        self.by_topic.entry(topic).or_default().insert(group, tiles);
    }

    pub(super) fn remove_topic(&mut self, topic: TopicId) {
        self.by_topic.remove(&topic);
    }
}

impl Vnode {
    pub(super) fn commit_positions(&mut self, commits: Vec<Commit>) -> Reply {
        Reply::PositionsCommitted(commits.into_iter().map(|commit| self.commit(commit)).collect())
    }

    fn commit(&mut self, commit: Commit) -> Result<(), Refusal> {
        let topic = commit.topic;
        if self.topics.get(topic).is_none() {
            return Err(Refusal::NoSuchTopic);
        }
        let group = GroupName::new(&commit.group).map_err(|_| Refusal::InvalidGroup)?;
        if !self.is_position(topic, &commit.tiles) {
            return Err(Refusal::InvalidPosition);
        }
        if commit.tiles.is_empty() {
            return Ok(());
        }
        let present = self.positions.get(topic, &group);
        if present.is_empty() && self.positions.group_count(topic) >= limits::GROUPS_PER_TOPIC_MAX {
            return Err(Refusal::TooManyGroups);
        }
        let merged = overlay(present, &commit.tiles);
        if merged.len() > TILES_PER_GROUP_MAX {
            return Err(Refusal::TooManyTiles);
        }
        self.positions.set(topic, group, merged);
        Ok(())
    }

    /// Whether tiles are sorted and disjoint, and each lies inside the range it names.
    pub(super) fn is_position(&self, topic: TopicId, tiles: &[Tile]) -> bool {
        let ordered = tiles.windows(2).all(|pair| pair[0].span.end() <= pair[1].span.start());
        let inside = |tile: &Tile| {
            let range = self.ranges.get(RangeId { topic, seq: tile.range });
            range.is_some_and(|range| range.span.covers(tile.span))
        };
        ordered && tiles.iter().all(inside)
    }
}

/// `over` laid on `under`: what `over` covers comes from it, the rest stays. Both are sorted and disjoint,
/// and so is the result, which is also coalesced.
fn overlay(under: &[Tile], over: &[Tile]) -> Vec<Tile> {
    let mut all = over.to_vec();
    for tile in under {
        // Both lists are sorted, so the tiles of `over` that touch this one are neighbours.
        let first = over.partition_point(|o| o.span.end() <= tile.span.start());
        let last = over.partition_point(|o| o.span.start() < tile.span.end());
        keep_uncovered(*tile, &over[first..last.max(first)], &mut all);
    }
    all.sort_unstable_by_key(|tile| tile.span.start());
    coalesce(all)
}

/// Adds the aligned blocks of `tile` that no tile of `over` touches. Depth is at most the keyspace's width.
fn keep_uncovered(tile: Tile, over: &[Tile], out: &mut Vec<Tile>) {
    let touches = |span: KeySpan, o: &Tile| o.span.start() < span.end() && span.start() < o.span.end();
    if !over.iter().any(|o| touches(tile.span, o)) {
        out.push(tile);
    } else if !over.iter().any(|o| o.span.covers(tile.span)) {
        // Aligned blocks nest: one that touches without covering lies inside, so there are two halves.
        let (low, high) = tile.span.split().expect("a single position is touched only by what covers it");
        let middle = over.partition_point(|o| o.span.end() <= low.end());
        keep_uncovered(Tile { span: low, ..tile }, &over[..middle], out);
        keep_uncovered(Tile { span: high, ..tile }, &over[middle..], out);
    }
}

/// Joins buddies that stand at the same place, smallest first, so that each joined block can join again.
pub(super) fn coalesce(tiles: Vec<Tile>) -> Vec<Tile> {
    let mut joined: Vec<Tile> = Vec::with_capacity(tiles.len());
    for tile in tiles {
        joined.push(tile);
        while let [.., low, high] = joined[..] {
            let same_place = low.range == high.range && low.next == high.next;
            let Some(span) = low.span.merge(high.span).filter(|_| same_place) else { break };
            joined.truncate(joined.len() - 2);
            joined.push(Tile { span, ..low });
        }
    }
    joined
}
