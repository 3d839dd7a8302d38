//! What the subjects propose to the vnode, and how each proposal is put.
//!
//! Owns the translation of a wish into a command. Does not decide whether it may be wished for, nor what comes of it.

use bytes::Bytes;
use metadata::vnode::{
    Command, Commit, CreateTopic, ExpireGroup, RegisterSegment, SealSegment, SetSegmentReplicas, Tile,
};
use types::keyspace::KeyHash;
use types::{
    FenceToken, GroupName, Keyspace, NodeId, RangeId, SegmentId, TopicId, TopicName, VnodeId, WallTime,
};

use super::detour::Proposed;
use super::{Decided, Error, Registered, Then, VNODE};
use crate::cluster;
use crate::event::RequestId;
use crate::node::Core;
use crate::planted::Bug;

/// A change of members is looked for in the group, by whoever wants it.
const NOBODY_WAITS: raft::ProposalId = raft::ProposalId((1 << 63) - 1);

/// What the subjects propose.
impl Core {
    /// Lets groups that have never decided anything begin.
    pub(crate) fn form_metadata(&mut self) {
        self.meta.form();
        self.meta.settle(&mut self.out);
    }

    /// Makes this node one of those that begin a vnode's group.
    pub(crate) fn found(&mut self, vnode: VnodeId, founders: &[NodeId]) {
        self.meta.host.found_group(vnode, founders);
        self.meta.settle(&mut self.out);
    }

    /// Leaves the groups of vnodes that left the ring, and forgets their tables.
    pub(crate) fn dissolve_gone(&mut self) {
        let groups = self.meta.host.groups().map(|(group, _)| group);
        let gone: Vec<VnodeId> = groups.filter(|group| self.meta.is_gone(*group)).collect();
        for group in gone {
            self.meta.host.dissolve(group);
        }
        self.meta.forget_gone();
        self.meta.settle(&mut self.out);
    }

    /// Proposes a step of a change of the ring.
    pub(crate) fn propose_ring(&mut self, vnode: VnodeId, command: &Command, fence: FenceToken) {
        self.propose_to(vnode, command, Then::Ring { fence });
    }

    /// Hands the lead of a group over, if there is somebody to hand it to.
    pub(crate) fn transfer(&mut self, group: VnodeId, to: Option<NodeId>) {
        if let Some(to) = to {
            self.meta.host.transfer(group, to);
            self.meta.settle(&mut self.out);
        }
    }

    /// Takes one step towards other members of a group. What comes of it is seen in the group.
    pub(crate) fn change_members(&mut self, group: VnodeId, change: raft::Change) {
        self.meta.host.reconfigure(group, NOBODY_WAITS, change);
        self.meta.settle(&mut self.out);
    }

    /// Proposes to the cluster group.
    pub(crate) fn propose_cluster(&mut self, command: &metadata::cluster::Command, then: cluster::Then) {
        let planted = self.meta.plant_fence(command);
        self.meta.propose_cluster(planted.as_ref().unwrap_or(command), then);
        self.meta.settle(&mut self.out);
    }

    /// Proposes what may be no command to the cluster's group.
    #[cfg(feature = "planted")]
    pub(crate) fn propose_bytes(&mut self, command: &[u8]) {
        let origin = self.meta.asked_cluster.ask(cluster::Then::Forget);
        self.meta.submit(super::CLUSTER, origin.number, origin.entry(command));
        self.meta.settle(&mut self.out);
    }

    /// Proposes to a vnode as its leader in a term that may be over.
    #[cfg(any(test, feature = "planted"))]
    pub(crate) fn propose_as(&mut self, vnode: VnodeId, led: types::Term, command: &[u8]) {
        // Of the other group's number, so that whatever is said of it here is said to nobody.
        let asked = self.meta.asked_cluster.ask(cluster::Then::Forget);
        let origin = super::Origin { led: Some(led), ..asked };
        self.meta.submit(vnode, origin.number, origin.entry(command));
        self.meta.settle(&mut self.out);
    }

    fn propose_to(&mut self, vnode: VnodeId, command: &Command, then: Then) {
        self.meta.propose(vnode, command, then);
        self.meta.settle(&mut self.out);
    }

    /// Proposes to the vnode that has the topic. One that no vnode has is unknown to whichever is asked.
    fn propose(&mut self, topic: TopicId, command: &Command, then: Then) {
        if self.meta.is_underway(topic) {
            self.meta.detour(Proposed { then, until: None }, command.clone());
        } else {
            let vnode = self.meta.home(topic).unwrap_or(VNODE);
            self.propose_to(vnode, command, then);
        }
    }

    /// Proposes what only the leader of the topic's vnode decides; nobody does when this node is not that any more.
    fn propose_led(&mut self, topic: TopicId, command: &Command, then: Then) {
        let led = self.meta.home(topic).and_then(|vnode| Some((vnode, self.meta.led_term(vnode)?)));
        match led {
            Some((vnode, term)) => self.meta.propose_led(vnode, term, command, then),
            None if self.config.has_bug(Bug::ActUnled) => self.propose(topic, command, then),
            None => self.meta.fail(then, Error::Unavailable),
        }
        self.meta.settle(&mut self.out);
    }

    /// Proposes what no request leads to yet.
    #[cfg(any(test, feature = "planted"))]
    pub(crate) fn propose_unheard(&mut self, command: &Command) {
        let origin = self.meta.asked.ask_unheard();
        let entry = origin.entry(&command.encode());
        self.meta.host.propose(VNODE, raft::ProposalId(origin.number), entry);
        self.meta.settle(&mut self.out);
    }

    pub(crate) fn create_topic(
        &mut self,
        id: RequestId,
        name: TopicName,
        topic: TopicId,
        keyspace: Keyspace,
        hash: KeyHash,
    ) {
        let command = Command::CreateTopic(CreateTopic {
            name: Bytes::copy_from_slice(name.as_str().as_bytes()),
            id: topic,
            keyspace_bits: keyspace.bits(),
            key_hash: hash.id(),
        });
        self.propose_to(self.meta.home_of(&name), &command, Then::CreateTopic { id, name });
    }

    pub(crate) fn seal_topic(&mut self, id: RequestId, topic: TopicId) {
        self.propose(topic, &Command::SealTopic { topic }, Then::SealTopic { id, topic });
    }

    pub(crate) fn delete_topic(&mut self, id: RequestId, topic: TopicId, name: TopicName) {
        self.propose(topic, &Command::DeleteTopic { topic }, Then::DeleteTopic { id, topic, name });
    }

    pub(crate) fn bind_policy(&mut self, id: RequestId, topic: TopicId, policy: Option<Bytes>) {
        self.propose(topic, &Command::BindTopicPolicy { topic, policy }, Then::BindPolicy { id });
    }

    pub(crate) fn split_range(&mut self, id: RequestId, range: RangeId) {
        self.propose(range.topic, &Command::SplitRange { range }, Then::SplitRange { id, range });
    }

    pub(crate) fn merge_ranges(&mut self, id: RequestId, ranges: [RangeId; 2]) {
        let [a, b] = ranges;
        self.propose(a.topic, &Command::MergeRanges { a, b }, Then::MergeRanges { id, ranges });
    }

    /// Splits a range because of what it takes.
    pub(crate) fn split_by_load(&mut self, range: RangeId) {
        self.propose_led(range.topic, &Command::SplitByLoad { range }, Then::SplitByLoad { range });
    }

    /// Merges two because of what they take.
    pub(crate) fn merge_by_load(&mut self, ranges: [RangeId; 2]) {
        let [a, b] = ranges;
        self.propose_led(a.topic, &Command::MergeByLoad { a, b }, Then::MergeByLoad { ranges });
    }

    /// The next segment of a range, on this node.
    pub(crate) fn register_segment(&mut self, id: RangeId) {
        let Some(range) = self.meta.of(id.topic).range(id) else {
            return self
                .meta
                .decided
                .push(Decided::Registered { range: id, result: Err(Error::NoSuchTopic) });
        };
        let registered = Registered {
            segment: SegmentId { range: id, seq: range.next_segment_seq },
            base: range.sealed_end,
        };
        let Ok(replicas) = self.replicas_for(registered.segment) else {
            let result = Err(Error::InsufficientDomains);
            return self.meta.decided.push(Decided::Registered { range: id, result });
        };
        let command = Command::RegisterSegment(RegisterSegment {
            segment: registered.segment,
            start: registered.base,
            replicas,
            opened_at: self.wall,
        });
        self.propose(id.topic, &command, Then::Register { range: id, registered });
    }

    pub(crate) fn seal_segment(&mut self, range: RangeId, seal: SealSegment) {
        self.propose(range.topic, &Command::SealSegment(seal), Then::Seal { range });
    }

    /// Records the end of a segment that its primary could not end.
    pub(crate) fn end_segment(&mut self, seal: SealSegment) {
        let segment = seal.segment;
        let (topic, command, then) = (segment.range.topic, Command::SealSegment(seal), Then::End { segment });
        // Its primary is who it belongs to, whoever leads; of another's the leader decides.
        let listed = self.meta.of(topic).segment(segment);
        match listed.and_then(|listed| listed.replicas.first()) {
            Some(primary) if *primary == self.config.node => self.propose(topic, &command, then),
            Some(_) | None => self.propose_led(topic, &command, then),
        }
    }

    /// Records who holds an ended segment.
    pub(crate) fn set_replicas(&mut self, set: SetSegmentReplicas) {
        let segment = set.segment;
        self.propose_led(segment.range.topic, &Command::SetSegmentReplicas(set), Then::Replicas { segment });
    }

    /// Forgets a segment that holds nothing.
    pub(crate) fn delete_segment(&mut self, segment: SegmentId) {
        self.propose(segment.range.topic, &Command::DeleteSegment { segment }, Then::Delete { segment });
    }

    /// Forgets a sealed segment, the oldest of its range.
    pub(crate) fn expire_segment(&mut self, segment: SegmentId) {
        self.propose_led(segment.range.topic, &Command::DeleteSegment { segment }, Then::Expire { segment });
    }

    pub(crate) fn commit_positions(
        &mut self,
        id: RequestId,
        group: &GroupName,
        topic: TopicId,
        tiles: Vec<Tile>,
    ) {
        let group = Bytes::copy_from_slice(group.as_bytes());
        let commit = Commit { topic, group, tiles, at: self.wall };
        self.meta.commit(id, commit);
        self.meta.settle(&mut self.out);
    }

    /// Forgets a group, whenever it committed last.
    pub(crate) fn delete_group(&mut self, id: RequestId, topic: TopicId, group: &GroupName) {
        let group = Bytes::copy_from_slice(group.as_bytes());
        let expire = ExpireGroup { topic, group, idle_since: WallTime(u64::MAX) };
        self.propose(topic, &Command::ExpireGroup(expire), Then::DeleteGroup { id });
    }

    /// A group's position on a topic; empty when it has none.
    pub(crate) fn positions(&self, group: &GroupName, topic: TopicId) -> Vec<Tile> {
        self.meta.of(topic).positions(topic, group).to_vec()
    }
}
