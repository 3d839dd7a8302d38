//! What metadata tells the node: decisions, in log order.

use metadata::machine::Version;
use metadata::vnode::{Command, Refusal, Removed};
use types::{FenceToken, NodeId, Offset, RangeId, SegmentId, TopicId, TopicName, VnodeId};

use super::Error;
use crate::action::Stop;
use crate::cluster;
use crate::event::RequestId;

/// A segment that metadata lists as active now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) segment: SegmentId,
    pub(crate) base: Offset,
}

/// What metadata has decided, in log order.
#[derive(Debug)]
pub(crate) enum Decided {
    /// Nothing was ever decided: whether the group may begin is for the node to say.
    Unformed,
    /// The tables hold everything that was ever acknowledged; proposals are taken.
    Recovered,
    /// The same of the cluster's tables.
    ClusterRecovered,
    /// Something of the cluster group.
    Cluster(cluster::Decided),
    /// A group went on to a version this build does not have.
    LeftBehind {
        group: VnodeId,
        version: Version,
    },
    /// What this node's replica of a group had stored is damaged or gone; the group goes on and replaces it.
    ReplicaLost {
        group: String,
    },
    /// The log takes no more writes in this process lifetime.
    Failed {
        detail: String,
    },
    /// The log cannot be used.
    Stop(Stop),
    /// Nobody here waits for a command that changed a vnode's tables; with the segments that it removed.
    Elsewhere {
        command: Box<Command>,
        removed: Vec<Removed>,
    },
    /// The tables of a vnode went on over entries that were not looked at one by one.
    Jumped(VnodeId),
    /// A topic is seen at another vnode than before: what it went through on its way was not looked at.
    Moved(TopicId),
    /// A topic was on its way to another vnode, and was deleted meanwhile.
    Vanished(TopicId),
    /// A step of a change of the ring was taken, or refused; `None` when nobody knows.
    RingStepped {
        fence: FenceToken,
        result: Result<(), Option<Refusal>>,
    },
    /// A member of a group that is led here is lost.
    MemberLost {
        group: VnodeId,
        node: NodeId,
    },
    TopicCreated {
        id: RequestId,
        name: TopicName,
        result: Result<RangeId, Error>,
    },
    TopicSealed {
        id: RequestId,
        topic: TopicId,
        result: Result<(), Error>,
    },
    TopicDeleted {
        id: RequestId,
        topic: TopicId,
        name: TopicName,
        result: Result<Vec<Removed>, Error>,
    },
    RangeSplit {
        id: RequestId,
        range: RangeId,
        result: Result<(RangeId, RangeId), Error>,
    },
    RangesMerged {
        id: RequestId,
        ranges: [RangeId; 2],
        result: Result<RangeId, Error>,
    },
    /// A range was split that nobody had asked to be, or not.
    SplitByLoad {
        range: RangeId,
        result: Result<(RangeId, RangeId), Error>,
    },
    /// The same of a merge.
    MergedByLoad {
        ranges: [RangeId; 2],
        result: Result<RangeId, Error>,
    },
    Registered {
        range: RangeId,
        result: Result<Registered, Error>,
    },
    SegmentSealed {
        range: RangeId,
        result: Result<(), Error>,
    },
    SegmentDeleted {
        segment: SegmentId,
    },
    /// The end of a segment that its primary could not end was recorded, or not.
    SegmentEnded {
        segment: SegmentId,
        result: Result<(), Error>,
    },
    /// Others hold a segment, or not.
    ReplicasSet {
        segment: SegmentId,
        result: Result<(), Error>,
    },
    /// A segment that was to expire is listed no more, or still is.
    Expired {
        segment: SegmentId,
        result: Result<Vec<NodeId>, Error>,
    },
    /// The tables that were asked about are up to date, or that could not be learnt in time.
    Confirmed {
        purpose: super::Purpose,
        confirmed: bool,
    },
    Committed {
        id: RequestId,
        result: Result<(), Error>,
    },
    PolicyBound {
        id: RequestId,
        result: Result<(), Error>,
    },
    /// A group is forgotten, or not.
    GroupDeleted {
        id: RequestId,
        result: Result<(), Error>,
    },
}
