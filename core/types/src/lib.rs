//! The words every other crate uses.
//!
//! Owns names and numbers of things, the arithmetic of keyspaces, quorums and offsets, the client's
//! cursor, and bounds-checked reading and writing of bytes. Knows nothing of protocols, files or time
//! sources. Sees no other crate of the product.

pub mod codec;
pub mod counters;
pub mod cursor;
pub mod ids;
pub mod keyspace;
pub mod limits;
pub mod offset;
pub mod producer;
pub mod quorum;
pub mod record;
pub mod ring;
pub mod time;

pub use counters::{Epoch, FenceToken, Generation, Incarnation, RaftIndex, Term};
pub use ids::{
    ControlPlaneId, GroupName, MemberName, NodeId, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId,
    TopicName, VnodeId,
};
pub use keyspace::{KeySpan, Keyspace, Position};
pub use offset::Offset;
pub use producer::{ProducerEpoch, ProducerId, Stamp};
pub use ring::{Ring, RingArc};
pub use time::{Instant, WallTime};
