//! The machine once more, too simple to be wrong: lists that are searched from the front, ancestors as full
//! sets, a position as one entry for each place of a tiny keyspace. No bounds: histories stay below them.

use types::keyspace::KeyHash;

use super::view::{Answer, BITS, Naive, NaiveGroup, NaiveRange, NaiveTopic, PLACES};
use super::*;

fn are_replicas(nodes: &[NodeId]) -> bool {
    let repeated = (1..nodes.len()).any(|at| nodes[..at].contains(&nodes[at]));
    !nodes.is_empty() && nodes.len() <= 255 && !repeated
}

impl Naive {
    pub(super) fn topic(&self, id: TopicId) -> Option<&NaiveTopic> {
        self.topics.iter().find(|topic| topic.id == id)
    }

    fn topic_mut(&mut self, id: TopicId) -> Option<&mut NaiveTopic> {
        self.topics.iter_mut().find(|topic| topic.id == id)
    }

    fn range_mut(&mut self, id: RangeId) -> Option<&mut NaiveRange> {
        self.topic_mut(id.topic)?.range_mut(id.seq)
    }

    fn segment_mut(&mut self, id: SegmentId) -> Option<&mut Segment> {
        let segments = &mut self.range_mut(id.range)?.segments;
        segments.iter_mut().find(|(seq, _)| *seq == id.seq.0).map(|(_, segment)| segment)
    }

    pub(super) fn owns(&self, name: &[u8]) -> bool {
        let hash = KeyHash::Xxh32.of(name);
        match self.arc {
            Share::Whole => true,
            Share::Nothing => false,
            Share::Arc(arc) if arc.after < arc.upto => arc.after < hash && hash <= arc.upto,
            Share::Arc(arc) => arc.after == arc.upto || hash > arc.after || hash <= arc.upto,
        }
    }

    fn admit(&self, id: TopicId) -> Result<(), Refusal> {
        match self.topic(id) {
            Some(topic) if !self.owns(&topic.name) => Err(Refusal::NotOwner),
            Some(_) if self.fences.contains_key(&id) => Err(Refusal::Migrating),
            Some(_) | None => Ok(()),
        }
    }

    /// What a command does, and whether it is refused. `exported` is what an `InsertTopic` carries.
    pub(super) fn apply(&mut self, command: &Command, exported: Option<&NaiveTopic>) -> Answer {
        let before = self.clone();
        let answer = self.run(command, exported);
        answer.unwrap_or_else(|refusal| {
            *self = before;
            Answer::Reply(Reply::Refused(refusal))
        })
    }

    fn run(&mut self, command: &Command, exported: Option<&NaiveTopic>) -> Result<Answer, Refusal> {
        let reply = match command {
            Command::CreateTopic(create) => self.create(create)?,
            Command::SealTopic { topic } => {
                self.admit(*topic)?;
                let topic = self.topic_mut(*topic).ok_or(Refusal::NoSuchTopic)?;
                topic.sealed = true;
                for range in topic.ranges.iter_mut().filter(|range| range.state == RangeState::Active) {
                    range.state = RangeState::Sealed;
                }
                Reply::TopicSealed
            }
            Command::DeleteTopic { topic } => self.delete(*topic)?,
            Command::BindTopicPolicy { topic, policy } => {
                self.admit(*topic)?;
                let topic = self.topic_mut(*topic).ok_or(Refusal::NoSuchTopic)?;
                if policy.as_ref().is_some_and(|name| name.is_empty()) {
                    return Err(Refusal::InvalidPolicy);
                }
                topic.policy = policy.as_ref().map(|name| name.to_vec());
                Reply::PolicyBound
            }
            Command::SplitRange { range } => self.split(*range, false)?,
            Command::MergeRanges { a, b } => self.merge(*a, *b, false)?,
            Command::SplitByLoad { range } => self.split(*range, true)?,
            Command::MergeByLoad { a, b } => self.merge(*a, *b, true)?,
            Command::RegisterSegment(register) => self.register(register)?,
            Command::SealSegment(seal) => self.seal(seal)?,
            Command::SetSegmentReplicas(set) => {
                self.admit(set.segment.range.topic)?;
                let segment = self.segment_mut(set.segment).ok_or(Refusal::NoSuchSegment)?;
                if !are_replicas(&set.replicas) {
                    return Err(Refusal::InvalidReplicaSet);
                } else if segment.state == SegmentState::Active {
                    return Err(Refusal::SegmentActive);
                } else if segment.replicas != set.expected {
                    return Err(Refusal::StaleReplicaSet);
                }
                segment.replicas.clone_from(&set.replicas);
                Reply::ReplicasSet
            }
            Command::DeleteSegment { segment } => self.delete_segment(*segment)?,
            Command::CommitPositions { commits } => {
                Reply::PositionsCommitted(commits.iter().map(|commit| self.commit(commit)).collect())
            }
            Command::ExpireGroup(expire) => {
                self.admit(expire.topic)?;
                let groups = &mut self.topic_mut(expire.topic).ok_or(Refusal::NoSuchTopic)?.groups;
                let at = groups.iter().position(|group| group.name == expire.group[..]);
                let at = at.ok_or(Refusal::NoSuchGroup)?;
                if groups[at].at >= expire.idle_since.0 {
                    return Err(Refusal::GroupNotIdle);
                }
                groups.remove(at);
                Reply::GroupExpired
            }
            Command::BeginMigration(migration) => {
                self.take_lease(migration.lease)?;
                self.topic(migration.topic).ok_or(Refusal::NoSuchTopic)?;
                if *self.fences.entry(migration.topic).or_insert(migration.id) != migration.id {
                    return Err(Refusal::Migrating);
                }
                Reply::MigrationBegun
            }
            Command::EndMigration(migration) => {
                self.take_lease(migration.lease)?;
                if self.fences.remove(&migration.topic).is_some_and(|id| id != migration.id) {
                    return Err(Refusal::Migrating);
                }
                Reply::MigrationEnded
            }
            Command::ExtractTopic(migration) => {
                self.take_lease(migration.lease)?;
                let export = self.export(migration.topic);
                if export.is_some() && self.fences.remove(&migration.topic) != Some(migration.id) {
                    return Err(Refusal::NotFenced);
                }
                self.topics.retain(|topic| topic.id != migration.topic);
                return Ok(Answer::Extracted(export));
            }
            Command::InsertTopic { lease, .. } => {
                self.take_lease(*lease)?;
                self.insert(exported.expect("the history carries what was exported"))?;
                Reply::TopicInserted
            }
            Command::SetArc(set) => {
                self.take_lease(set.lease)?;
                if set.ring_version < self.ring_version {
                    return Err(Refusal::StaleRing);
                }
                if self.arc != set.expected && self.arc != set.arc {
                    return Err(Refusal::StaleRing);
                }
                (self.ring_version, self.arc) = (set.ring_version, set.arc);
                Reply::ArcSet
            }
            Command::Upgrade { .. } => Reply::Upgraded(Version(1)),
        };
        Ok(Answer::Reply(reply))
    }

    fn take_lease(&mut self, lease: FenceToken) -> Result<(), Refusal> {
        if lease < self.lease {
            return Err(Refusal::StaleFence);
        }
        self.lease = lease;
        Ok(())
    }

    pub(super) fn export(&self, id: TopicId) -> Option<NaiveTopic> {
        let topic = self.topic(id)?.clone();
        let arrived_by = self.fences.get(&id).copied().or(topic.arrived_by);
        Some(NaiveTopic { arrived_by, ..topic })
    }

    fn insert(&mut self, export: &NaiveTopic) -> Result<(), Refusal> {
        if export.arrived_by.is_none() {
            return Err(Refusal::NotFenced);
        }
        if let Some(present) = self.topic(export.id) {
            return if present == export { Ok(()) } else { Err(Refusal::StaleExport) };
        }
        if matches!(self.arc, Share::Arc(_)) && self.owns(&export.name) {
            return Err(Refusal::StaleExport);
        }
        if self.topics.iter().any(|topic| topic.name == export.name) {
            return Err(Refusal::AlreadyExists);
        }
        self.topics.push(export.clone());
        self.topics.sort_by_key(|topic| topic.id);
        Ok(())
    }

    fn create(&mut self, create: &CreateTopic) -> Result<Reply, Refusal> {
        let letters = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
        if !self.owns(&create.name) {
            return Err(Refusal::NotOwner);
        } else if create.name.is_empty() || create.name.len() > 200 || !create.name.iter().all(letters) {
            return Err(Refusal::InvalidTopicName);
        } else if self.topics.iter().any(|t| t.name == create.name[..] || t.id == create.id) {
            return Err(Refusal::AlreadyExists);
        } else if create.keyspace_bits != BITS {
            return Err(Refusal::InvalidKeyspaceBits);
        } else if create.key_hash != 1 {
            return Err(Refusal::InvalidKeyHash);
        }
        let (id, name) = (create.id, create.name.to_vec());
        let (policy, arrived_by, ranges, groups) = (None, None, Vec::new(), Vec::new());
        let mut topic = NaiveTopic { id, name, sealed: false, policy, arrived_by, ranges, groups };
        let root = topic.add((0, PLACES as u64), vec![], 0);
        self.topics.push(topic);
        self.topics.sort_by_key(|topic| topic.id);
        Ok(Reply::TopicCreated { root })
    }

    fn delete(&mut self, id: TopicId) -> Result<Reply, Refusal> {
        self.admit(id)?;
        let topic = self.topic(id).ok_or(Refusal::NoSuchTopic)?;
        let mut segments = Vec::new();
        for (range, seq) in topic.ranges.iter().zip(0..) {
            for (number, segment) in &range.segments {
                let range = RangeId { topic: id, seq: RangeSeq(seq) };
                let segment_id = SegmentId { range, seq: SegmentSeq(*number) };
                segments.push(Removed { segment: segment_id, replicas: segment.replicas.clone() });
            }
        }
        self.topics.retain(|topic| topic.id != id);
        Ok(Reply::TopicDeleted { segments })
    }

    /// The slice of a range that takes records.
    fn open(&mut self, id: RangeId) -> Result<(u64, u64), Refusal> {
        let range = self.range_mut(id).ok_or(Refusal::NoSuchRange)?;
        if range.state == RangeState::Active { Ok((range.start, range.end)) } else { Err(Refusal::Sealed) }
    }

    fn split(&mut self, id: RangeId, by_load: bool) -> Result<Reply, Refusal> {
        self.admit(id.topic)?;
        let (start, end) = self.open(id)?;
        if end - start < 2 {
            return Err(Refusal::CannotSplit);
        }
        let middle = start + (end - start) / 2;
        let load_splits = if by_load { self.range_mut(id).unwrap().load_splits + 1 } else { 0 };
        self.range_mut(id).unwrap().state = RangeState::Replaced;
        let topic = self.topic_mut(id.topic).unwrap();
        let left = topic.add((start, middle), vec![id.seq.0], load_splits);
        let right = topic.add((middle, end), vec![id.seq.0], load_splits);
        Ok(Reply::RangeSplit { left, right })
    }

    fn merge(&mut self, a: RangeId, b: RangeId, by_load: bool) -> Result<Reply, Refusal> {
        self.admit(a.topic)?;
        let (a_span, b_span) = (self.open(a)?, self.open(b)?);
        if a.topic != b.topic {
            return Err(Refusal::DifferentTopic);
        }
        let mut halves = [(a_span, a.seq.0), (b_span, b.seq.0)];
        halves.sort_unstable();
        let [((start, middle), low), ((next, end), high)] = halves;
        let size = end - start;
        if middle != next || middle - start != end - next || !start.is_multiple_of(size) {
            return Err(Refusal::NotBuddies);
        }
        let of = [a, b].map(|id| self.range_mut(id).unwrap().load_splits);
        let load_splits = match (by_load, of) {
            (false, _) => 0,
            (true, [0, _] | [_, 0]) => return Err(Refusal::NotBuddies),
            (true, [a, b]) => a.min(b) - 1,
        };
        let topic = self.topic_mut(a.topic).unwrap();
        for seq in [low, high] {
            topic.range_mut(RangeSeq(seq)).unwrap().state = RangeState::Replaced;
        }
        Ok(Reply::RangesMerged { child: topic.add((start, end), vec![low, high], load_splits) })
    }

    fn register(&mut self, register: &RegisterSegment) -> Result<Reply, Refusal> {
        let id = register.segment;
        self.admit(id.range.topic)?;
        if self.segment_mut(id).is_some() {
            return Err(Refusal::SegmentExists);
        }
        let range = self.range_mut(id.range).ok_or(Refusal::NoSuchRange)?.clone();
        let topic = self.topic(id.range.topic).unwrap();
        let ancestors = topic.ancestors(id.range.seq.0);
        let is_open = |seq: &u64| topic.ranges[usize::try_from(*seq).unwrap()].has_active_segment();
        if range.state != RangeState::Active {
            return Err(Refusal::Sealed);
        } else if id.seq.0 != range.next_segment {
            return Err(Refusal::InvalidSegmentId);
        } else if !are_replicas(&register.replicas) {
            return Err(Refusal::InvalidReplicaSet);
        } else if range.has_active_segment() || ancestors.iter().any(is_open) {
            return Err(Refusal::RangeHasActiveSegment);
        } else if register.start.0 != range.sealed_end {
            return Err(Refusal::OffsetMismatch);
        }
        let RegisterSegment { start, replicas, opened_at, .. } = register.clone();
        let range = self.range_mut(id.range).unwrap();
        range.segments.push((id.seq.0, Segment { start, replicas, opened_at, state: SegmentState::Active }));
        range.next_segment += 1;
        Ok(Reply::SegmentRegistered)
    }

    fn seal(&mut self, seal: &SealSegment) -> Result<Reply, Refusal> {
        self.admit(seal.segment.range.topic)?;
        let segment = self.segment_mut(seal.segment).ok_or(Refusal::NoSuchSegment)?;
        let SealSegment { length, byte_size, lost, sealed_at: at, .. } = *seal;
        if let SegmentState::Sealed(sealed) = segment.state {
            let same = (sealed.length, sealed.byte_size, sealed.lost) == (length, byte_size, lost);
            return if same { Ok(Reply::SegmentSealed) } else { Err(Refusal::AlreadySealed) };
        }
        segment.state = SegmentState::Sealed(Sealed { length, byte_size, lost, at });
        let end = segment.start.0.checked_add(length + lost).ok_or(Refusal::InvalidLength)?;
        self.range_mut(seal.segment.range).unwrap().sealed_end = end;
        Ok(Reply::SegmentSealed)
    }

    fn delete_segment(&mut self, id: SegmentId) -> Result<Reply, Refusal> {
        self.admit(id.range.topic)?;
        let segment = self.segment_mut(id).ok_or(Refusal::NoSuchSegment)?.clone();
        let SegmentState::Sealed(sealed) = segment.state else { return Err(Refusal::SegmentActive) };
        let segments = &mut self.range_mut(id.range).unwrap().segments;
        if sealed.length + sealed.lost > 0 && segments[0].0 != id.seq.0 {
            return Err(Refusal::SegmentNotOldest);
        }
        segments.retain(|(seq, _)| *seq != id.seq.0);
        Ok(Reply::SegmentDeleted(Removed { segment: id, replicas: segment.replicas }))
    }

    fn commit(&mut self, commit: &Commit) -> Result<(), Refusal> {
        self.admit(commit.topic)?;
        let topic = self.topic_mut(commit.topic).ok_or(Refusal::NoSuchTopic)?;
        if commit.group.len() > 255 {
            return Err(Refusal::InvalidGroup);
        }
        let mut end = 0;
        for tile in &commit.tiles {
            let range = topic.range_mut(tile.range).ok_or(Refusal::InvalidPosition)?;
            if tile.span.start() < end || tile.span.start() < range.start || tile.span.end() > range.end {
                return Err(Refusal::InvalidPosition);
            }
            end = tile.span.end();
        }
        if commit.tiles.is_empty() {
            return Ok(());
        }
        let name = commit.group.to_vec();
        if !topic.groups.iter().any(|group| group.name == name) {
            topic.groups.push(NaiveGroup { name: name.clone(), at: 0, places: [None; PLACES] });
            topic.groups.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let group = topic.groups.iter_mut().find(|group| group.name == name).unwrap();
        group.at = group.at.max(commit.at.0);
        for tile in &commit.tiles {
            for place in tile.span.start()..tile.span.end() {
                group.places[usize::try_from(place).unwrap()] = Some((tile.range.0, tile.next.0));
            }
        }
        Ok(())
    }
}
