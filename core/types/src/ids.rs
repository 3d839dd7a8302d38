//! Names are for people; ids decide.
//!
//! An id is never reused for another thing: a topic deleted and created again has a new [`TopicId`], and
//! with it new range ids, segment ids and directories.

use std::fmt;
use std::sync::Arc;

use crate::limits;

/// One life of one topic: 128 random bits, drawn by whoever proposes its creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub u128);

/// One life of one data directory: 128 random bits, drawn when it is first used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u128);

/// One life of one cluster: 128 random bits, drawn when it is formed. The cluster's name is a label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControlPlaneId(pub u128);

/// Number of a range inside its topic; the root range is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeSeq(pub u64);

/// Number of a segment inside its range, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentSeq(pub u64);

/// One metadata shard, which is one Raft group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VnodeId(pub u64);

/// A contiguous slice of a topic's keyspace with its own order of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeId {
    /// The topic it belongs to.
    pub topic: TopicId,
    /// Its number in that topic.
    pub seq: RangeSeq,
}

/// A run of records of one range: the unit of replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// The range it belongs to.
    pub range: RangeId,
    /// Its number in that range.
    pub seq: SegmentSeq,
}

impl SegmentId {
    /// The bytes that name this segment inside checksums and files: topic, range, segment, big-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.range.topic.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.range.seq.0.to_be_bytes());
        bytes[24..].copy_from_slice(&self.seq.0.to_be_bytes());
        bytes
    }
}

macro_rules! hex_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

hex_id!(TopicId);
hex_id!(NodeId);
hex_id!(ControlPlaneId);

impl fmt::Display for RangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-r{}", self.topic, self.seq.0)
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-s{}", self.range, self.seq.0)
    }
}

impl fmt::Display for VnodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A name that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name is empty, too long or has a byte that is not allowed")]
pub struct InvalidName;

/// A topic's name: 1 to 200 bytes of `A-Z a-z 0-9 . _ -`, neither `.` nor `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

impl TopicName {
    /// Checks and takes a name that came from outside.
    pub fn new(name: &[u8]) -> Result<Self, InvalidName> {
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let fits = !name.is_empty() && name.len() <= limits::TOPIC_NAME_BYTES_MAX;
        if !fits || name == b"." || name == b".." || !name.iter().all(allowed) {
            return Err(InvalidName);
        }
        let name = std::str::from_utf8(name).map_err(|_| InvalidName)?;
        Ok(Self(name.into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! bytes_name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<[u8]>);

        impl $name {
            /// Checks and takes a name that came from outside.
            pub fn new(name: &[u8]) -> Result<Self, InvalidName> {
                if name.len() > limits::GROUP_NAME_BYTES_MAX { Err(InvalidName) } else { Ok(Self(name.into())) }
            }

            /// The name's bytes.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "\"{}\"", self.0.escape_ascii())
            }
        }
    };
}

bytes_name! {
    /// A consumer group's name: at most 255 bytes, any bytes, may be empty.
    GroupName
}
bytes_name! {
    /// A group member's name: at most 255 bytes, any bytes, may be empty.
    MemberName
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_names_follow_the_allow_list() {
        for good in ["a", "orders", "a.b_c-D9", "...", "-", &"x".repeat(200)] {
            assert!(TopicName::new(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "a\tb", "\u{e9}", "a\0", &"x".repeat(201)] {
            assert_eq!(TopicName::new(bad.as_bytes()), Err(InvalidName), "{bad}");
        }
    }

    #[test]
    fn a_segment_prints_as_its_directory_is_named() {
        let range = RangeId { topic: TopicId(0xab), seq: RangeSeq(3) };
        let id = SegmentId { range, seq: SegmentSeq(12) };
        assert_eq!(id.to_string(), "000000000000000000000000000000ab-r3-s12");
    }
}
