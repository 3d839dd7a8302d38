//! Where members of vnodes would be placed now, and the switches of the cluster.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};
use types::{NodeId, VnodeId};

use super::cluster::list;
use crate::Str;
use crate::request::node;

/// Smallest move: nobody comes, nobody goes.
const MOVE_BYTES_MIN: usize = 8 + 4 + 4;
/// Smallest flag: an empty name, nobody that lacks it.
const FLAG_BYTES_MIN: usize = 4 + 1 + 1 + 4;

/// What bringing the members of vnodes to where they would be placed now takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebalancing {
    /// Vnodes whose members change.
    pub move_count: u32,
    /// The first of them, in the order of their tokens.
    pub moves: Vec<VnodeMove>,
    /// Why it would be refused; null when it would not. Always null when it was begun.
    pub refusal: Str,
}

/// Members of one vnode that come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VnodeMove {
    /// Whose.
    pub vnode: VnodeId,
    /// Who comes, the best first.
    pub add: Vec<NodeId>,
    /// Who goes, once those that come have a vote.
    pub remove: Vec<NodeId>,
}

/// Switches of the cluster: those that the node that was asked can honour, and those that are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// In the order of their names.
    pub flags: Vec<Flag>,
}

/// One switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Its name; never null.
    pub name: Bytes,
    /// Whether the build of the node that was asked can honour it.
    pub known: bool,
    /// Whether it is on, for good.
    pub enabled: bool,
    /// Names of nodes that are not alive or cannot honour it.
    pub lacking: Vec<Bytes>,
}

/// A switch was put on, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagEnabled {
    /// Why it is refused; null when it is not.
    pub refusal: Str,
    /// Names of nodes that are not alive or cannot honour it.
    pub lacking: Vec<Bytes>,
}

impl Rebalancing {
    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        let move_count = r.u32()?;
        Ok(Self { move_count, moves: list(r, MOVE_BYTES_MIN, VnodeMove::decode)?, refusal: r.opt_blob()? })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_u32(self.move_count);
        out.put_count(self.moves.len());
        self.moves.iter().for_each(|moved| moved.encode(out));
        out.put_opt_blob(self.refusal.as_deref());
    }
}

impl VnodeMove {
    /// Bytes it takes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        MOVE_BYTES_MIN + 16 * (self.add.len() + self.remove.len())
    }

    fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(Self { vnode: VnodeId(r.u64()?), add: list(r, 16, node)?, remove: list(r, 16, node)? })
    }

    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.vnode.0);
        for nodes in [&self.add, &self.remove] {
            out.put_count(nodes.len());
            nodes.iter().for_each(|node| out.put_u128(node.0));
        }
    }
}

impl Flags {
    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(Self { flags: list(r, FLAG_BYTES_MIN, Flag::decode)? })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_count(self.flags.len());
        for Flag { name, known, enabled, lacking } in &self.flags {
            out.put_blob(name);
            out.put_bool(*known);
            out.put_bool(*enabled);
            put_names(out, lacking);
        }
    }
}

impl Flag {
    /// Bytes it takes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        FLAG_BYTES_MIN + self.name.len() + self.lacking.iter().map(|name| 4 + name.len()).sum::<usize>()
    }

    fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(Self { name: r.blob()?, known: r.bool()?, enabled: r.bool()?, lacking: list(r, 4, Reader::blob)? })
    }
}

impl FlagEnabled {
    pub(super) fn decode(r: &mut Reader) -> Result<Self, Error> {
        Ok(Self { refusal: r.opt_blob()?, lacking: list(r, 4, Reader::blob)? })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_opt_blob(self.refusal.as_deref());
        put_names(out, &self.lacking);
    }
}

fn put_names(out: &mut BytesMut, names: &[Bytes]) {
    out.put_count(names.len());
    names.iter().for_each(|name| out.put_blob(name));
}
