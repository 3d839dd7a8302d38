//! What a vnode's answers mean to whoever proposed.

use metadata::vnode::Reply;

use super::{Decided, Error, Meta, Then};

impl Meta {
    /// A proposal was applied.
    pub(super) fn decide(&mut self, then: Then, reply: Reply) {
        let refused = match &reply {
            Reply::Refused(refusal) => Some(Error::from(*refusal)),
            Reply::TopicCreated { .. }
            | Reply::TopicSealed
            | Reply::TopicDeleted { .. }
            | Reply::RangeSplit { .. }
            | Reply::RangesMerged { .. }
            | Reply::SegmentRegistered
            | Reply::SegmentSealed
            | Reply::SegmentDeleted(_)
            | Reply::ReplicasSet
            | Reply::PolicyBound
            | Reply::PositionsCommitted(_)
            | Reply::GroupExpired
            | Reply::MigrationBegun
            | Reply::MigrationEnded
            | Reply::TopicExtracted(_)
            | Reply::TopicInserted
            | Reply::ArcSet
            | Reply::Upgraded(_) => None,
        };
        if let (Then::Ring { fence }, Reply::Refused(refusal)) = (&then, &reply) {
            let result = Err(Some(*refusal));
            return self.decided.push(Decided::RingStepped { fence: *fence, result });
        }
        if let Some(error) = refused {
            return self.fail(then, error);
        }
        match (then, reply) {
            (Then::CreateTopic { id, name }, Reply::TopicCreated { root }) => {
                self.decided.push(Decided::TopicCreated { id, name, result: Ok(root) });
            }
            (Then::SealTopic { id, topic }, Reply::TopicSealed) => {
                self.decided.push(Decided::TopicSealed { id, topic, result: Ok(()) });
            }
            (Then::DeleteTopic { id, topic, name }, Reply::TopicDeleted { segments }) => {
                self.decided.push(Decided::TopicDeleted { id, topic, name, result: Ok(segments) });
            }
            (Then::BindPolicy { id }, Reply::PolicyBound) => {
                self.decided.push(Decided::PolicyBound { id, result: Ok(()) });
            }
            (Then::SplitRange { id, range }, Reply::RangeSplit { left, right }) => {
                self.decided.push(Decided::RangeSplit { id, range, result: Ok((left, right)) });
            }
            (Then::MergeRanges { id, ranges }, Reply::RangesMerged { child }) => {
                self.decided.push(Decided::RangesMerged { id, ranges, result: Ok(child) });
            }
            (Then::SplitByLoad { range }, Reply::RangeSplit { left, right }) => {
                self.decided.push(Decided::SplitByLoad { range, result: Ok((left, right)) });
            }
            (Then::MergeByLoad { ranges }, Reply::RangesMerged { child }) => {
                self.decided.push(Decided::MergedByLoad { ranges, result: Ok(child) });
            }
            (Then::Register { range, registered }, Reply::SegmentRegistered) => {
                self.decided.push(Decided::Registered { range, result: Ok(registered) });
            }
            (Then::Seal { range }, Reply::SegmentSealed) => {
                self.decided.push(Decided::SegmentSealed { range, result: Ok(()) });
            }
            (Then::End { segment }, Reply::SegmentSealed) => {
                self.decided.push(Decided::SegmentEnded { segment, result: Ok(()) });
            }
            (Then::Replicas { segment }, Reply::ReplicasSet) => {
                self.decided.push(Decided::ReplicasSet { segment, result: Ok(()) });
            }
            (Then::Delete { segment }, Reply::SegmentDeleted(_)) => {
                self.decided.push(Decided::SegmentDeleted { segment });
            }
            (Then::Expire { segment }, Reply::SegmentDeleted(removed)) => {
                self.decided.push(Decided::Expired { segment, result: Ok(removed.replicas) });
            }
            (Then::DeleteGroup { id }, Reply::GroupExpired) => {
                self.decided.push(Decided::GroupDeleted { id, result: Ok(()) });
            }
            (Then::Ring { fence }, _done) => {
                self.decided.push(Decided::RingStepped { fence, result: Ok(()) });
            }
            (then, reply) => unreachable!("{then:?} was answered {reply:?}"),
        }
    }

    /// Nothing came of a proposal, or nobody will know.
    pub(super) fn fail(&mut self, then: Then, error: Error) {
        let decided = &mut self.decided;
        match then {
            Then::CreateTopic { id, name } => {
                decided.push(Decided::TopicCreated { id, name, result: Err(error) })
            }
            Then::SealTopic { id, topic } => {
                decided.push(Decided::TopicSealed { id, topic, result: Err(error) });
            }
            Then::DeleteTopic { id, topic, name } => {
                decided.push(Decided::TopicDeleted { id, topic, name, result: Err(error) });
            }
            Then::BindPolicy { id } => decided.push(Decided::PolicyBound { id, result: Err(error) }),
            Then::SplitRange { id, range } => {
                decided.push(Decided::RangeSplit { id, range, result: Err(error) });
            }
            Then::MergeRanges { id, ranges } => {
                decided.push(Decided::RangesMerged { id, ranges, result: Err(error) });
            }
            Then::SplitByLoad { range } => decided.push(Decided::SplitByLoad { range, result: Err(error) }),
            Then::MergeByLoad { ranges } => {
                decided.push(Decided::MergedByLoad { ranges, result: Err(error) });
            }
            Then::Register { range, .. } => decided.push(Decided::Registered { range, result: Err(error) }),
            Then::End { segment } => decided.push(Decided::SegmentEnded { segment, result: Err(error) }),
            Then::Replicas { segment } => {
                decided.push(Decided::ReplicasSet { segment, result: Err(error) });
            }
            Then::Seal { range } => decided.push(Decided::SegmentSealed { range, result: Err(error) }),
            // An empty segment stays listed: it is in nobody's way.
            Then::Delete { .. } => {}
            Then::DeleteGroup { id } => decided.push(Decided::GroupDeleted { id, result: Err(error) }),
            Then::Ring { fence } => decided.push(Decided::RingStepped { fence, result: Err(None) }),
            Then::Expire { segment } => decided.push(Decided::Expired { segment, result: Err(error) }),
            Then::Commit { group, ids } => {
                let lost = |(id, _)| Decided::Committed { id, result: Err(error) };
                decided.extend(ids.into_iter().map(lost));
                let shard = self.commits_of(group);
                shard.commit_on_its_way = false;
                // The log is not going to take the next ones either.
                let waiting = std::mem::take(&mut shard.commits);
                let error = Error::Unavailable;
                self.decided.extend(
                    waiting.into_iter().map(|(id, ..)| Decided::Committed { id, result: Err(error) }),
                );
            }
        }
    }
}
