//! Which replicas this node is and was.
//!
//! Owns the list, its bytes, and what may follow what. The list is kept in the log as a group of its own that nobody
//! votes on: an entry for each change, a snapshot of the whole now and then. Does not write it (`host::roster`).
//!
//! ```text
//!            ┌──────────▶ Is ──────────┐
//!  nothing ──┤            ▲            ├──▶ Was ──▶ (a higher number) Becomes
//!            └▶ Becomes ──┘            │
//!                 ▲ what was stored    │
//!                 │ is removed first   │
//!                 └────────────────────┘
//! ```

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use raft::ReplicaId;
use types::codec::{Error, Reader};
use types::{NodeId, VnodeId, limits};

/// The node's part in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) replica: ReplicaId,
    pub(crate) standing: Standing,
}

/// How it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is the replica; with all founders when it is one of them.
    Is { founders: Vec<NodeId> },
    /// It will be, once what an earlier replica had stored is removed.
    Becomes,
    /// It was, and what it had stored goes.
    Was,
}

/// The list.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    parts: BTreeMap<VnodeId, Part>,
}

const IS: u8 = 1;
const BECOMES: u8 = 2;
const WAS: u8 = 3;

impl Registry {
    pub(crate) fn part(&self, group: VnodeId) -> Option<&Part> {
        self.parts.get(&group)
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = (VnodeId, &Part)> {
        self.parts.iter().map(|(group, part)| (*group, part))
    }

    pub(crate) fn set(&mut self, group: VnodeId, part: Part) {
        self.parts.insert(group, part);
    }

    /// Takes an entry of the log.
    pub(crate) fn apply(&mut self, entry: Bytes) -> Result<(), Error> {
        let mut reader = Reader::new(entry);
        let (group, part) = decode(&mut reader)?;
        reader.finish()?;
        self.set(group, part);
        Ok(())
    }

    /// What stands in the log for one change.
    pub(crate) fn entry(group: VnodeId, part: &Part) -> Bytes {
        let mut bytes = BytesMut::new();
        encode(group, part, &mut bytes);
        bytes.freeze()
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u64(self.parts.len() as u64);
        for (group, part) in &self.parts {
            encode(*group, part, &mut bytes);
        }
        bytes.freeze()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let count = reader.u64()?;
        let mut parts = BTreeMap::new();
        for _ in 0..count {
            let (group, part) = decode(&mut reader)?;
            if parts.insert(group, part).is_some() {
                return Err(Error::Invalid("a list of replicas"));
            }
        }
        reader.finish()?;
        Ok(Self { parts })
    }
}

fn encode(group: VnodeId, part: &Part, bytes: &mut BytesMut) {
    bytes.put_u64(group.0);
    bytes.put_u64(part.replica.0);
    match &part.standing {
        Standing::Is { founders } => {
            bytes.put_u8(IS);
            bytes.put_u8(u8::try_from(founders.len()).expect("a group has few members"));
            founders.iter().for_each(|node| bytes.put_u128(node.0));
        }
        Standing::Becomes => bytes.put_u8(BECOMES),
        Standing::Was => bytes.put_u8(WAS),
    }
}

fn decode(reader: &mut Reader) -> Result<(VnodeId, Part), Error> {
    let (group, replica) = (VnodeId(reader.u64()?), ReplicaId(reader.u64()?));
    let standing = match reader.u8()? {
        IS => {
            let count = usize::from(reader.u8()?);
            if count > limits::RAFT_MEMBERS_MAX {
                return Err(Error::Invalid("founders"));
            }
            let founders = (0..count).map(|_| reader.u128().map(NodeId)).collect::<Result<_, _>>()?;
            Standing::Is { founders }
        }
        BECOMES => Standing::Becomes,
        WAS => Standing::Was,
        _ => return Err(Error::Invalid("a standing")),
    };
    Ok((group, Part { replica, standing }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_snapshots_say_the_same() {
        let founders = vec![NodeId(1), NodeId(2)];
        let changes = [
            (VnodeId(1), Part { replica: ReplicaId(1), standing: Standing::Is { founders } }),
            (VnodeId(2), Part { replica: ReplicaId(4), standing: Standing::Becomes }),
            (VnodeId(1), Part { replica: ReplicaId(1), standing: Standing::Was }),
        ];
        let mut registry = Registry::default();
        for (group, part) in &changes {
            registry.apply(Registry::entry(*group, part)).unwrap();
            assert_eq!(registry.part(*group), Some(part));
        }
        let again = Registry::decode(registry.encode()).unwrap();
        assert!(again.parts().eq(registry.parts()));
        let cut = registry.encode();
        for end in 0..cut.len() {
            assert!(Registry::decode(cut.slice(..end)).is_err());
        }
    }
}
