//! Consumer groups, as listed and described.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};

/// Smallest item of a list of names: present and empty.
const NAME_BYTES_MIN: usize = 1 + 4;
/// Smallest member: an empty name.
const MEMBER_BYTES_MIN: usize = NAME_BYTES_MIN + 4 + 8;

/// Names of groups that committed or have members, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupNames {
    /// In order of their bytes; never null.
    pub names: Vec<Bytes>,
    /// Whether others come after the last one.
    pub more: bool,
}

/// A group of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupInfo {
    /// Of the assignment of ranges to members; 0 while there is none.
    pub generation: u64,
    /// In order of their names.
    pub members: Vec<MemberInfo>,
    /// Records stored and not yet committed by the group.
    pub lag: u64,
    /// Whether `lag` is exact; else it is the most it can be.
    pub lag_exact: bool,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// Its name; never null.
    pub name: Bytes,
    /// Ranges it has to read.
    pub ranges: u32,
    /// Time since its last sign of life, milliseconds.
    pub idle_ms: u64,
}

fn name(reader: &mut Reader) -> Result<Bytes, Error> {
    reader.opt_blob()?.ok_or(Error::Invalid("a null name"))
}

impl GroupNames {
    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let mut names = Vec::new();
        for _ in 0..reader.count(NAME_BYTES_MIN)? {
            names.push(name(reader)?);
        }
        Ok(Self { names, more: reader.bool()? })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_count(self.names.len());
        self.names.iter().for_each(|name| out.put_opt_blob(Some(name)));
        out.put_bool(self.more);
    }
}

impl GroupInfo {
    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        let generation = reader.u64()?;
        let mut members = Vec::new();
        for _ in 0..reader.count(MEMBER_BYTES_MIN)? {
            members.push(MemberInfo { name: name(reader)?, ranges: reader.u32()?, idle_ms: reader.u64()? });
        }
        Ok(Self { generation, members, lag: reader.u64()?, lag_exact: reader.bool()? })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.generation);
        out.put_count(self.members.len());
        for member in &self.members {
            out.put_opt_blob(Some(&member.name));
            out.put_u32(member.ranges);
            out.put_u64(member.idle_ms);
        }
        out.put_u64(self.lag);
        out.put_bool(self.lag_exact);
    }
}
