//! The replicated tables of one group as this node has them.
//!
//! Owns the machine and whether this build can follow it. Where its entries come from is not known here.

use std::fmt::Debug;

use bytes::Bytes;
use metadata::cluster::{self, Cluster};
use metadata::machine::Version;
use metadata::vnode::{self, Vnode};
use types::RaftIndex;

use crate::action::Stop;
use crate::event::Volume;

/// Tables that a log of commands makes.
pub(crate) trait Machine: Clone + Debug + Default {
    /// The answer to one command.
    type Reply: Debug;

    /// Index of the last entry applied; 0 before the first.
    fn applied(&self) -> RaftIndex;

    /// Applies the entry at `index`; `None` is one whose proposer led in an earlier term than the entry's, and did not
    /// any more.
    fn apply(&mut self, index: RaftIndex, entry: Option<&Bytes>) -> Self::Reply;

    /// The version the group runs at when this build does not have it, so that entries are not applied.
    fn beyond_build(&self) -> Option<Version>;

    /// The canonical encoding of the state.
    fn encode_snapshot(&self) -> Bytes;

    /// The state a snapshot holds; what is wrong with it otherwise.
    fn decode_snapshot(bytes: Bytes) -> Result<Self, Unusable>;
}

impl Machine for Vnode {
    type Reply = vnode::Reply;

    fn applied(&self) -> RaftIndex {
        Vnode::applied(self)
    }

    fn apply(&mut self, index: RaftIndex, entry: Option<&Bytes>) -> vnode::Reply {
        match entry {
            Some(entry) => Vnode::apply(self, index, entry),
            None => self.refuse_late(index),
        }
    }

    fn beyond_build(&self) -> Option<Version> {
        Vnode::beyond_build(self)
    }

    fn encode_snapshot(&self) -> Bytes {
        Vnode::encode_snapshot(self)
    }

    fn decode_snapshot(bytes: Bytes) -> Result<Self, Unusable> {
        use vnode::SnapshotError as E;
        Vnode::decode_snapshot(bytes).map_err(|error| match error {
            E::LaterFormat(_) | E::LaterVersion(_) => Unusable::Later(error.to_string()),
            E::Codec(_) | E::Inconsistent(_) => Unusable::Damaged(error.to_string()),
        })
    }
}

impl Machine for Cluster {
    type Reply = cluster::Reply;

    fn applied(&self) -> RaftIndex {
        Cluster::applied(self)
    }

    fn apply(&mut self, index: RaftIndex, entry: Option<&Bytes>) -> cluster::Reply {
        // Nothing is proposed to it as its leader: empty bytes are no command.
        Cluster::apply(self, index, entry.unwrap_or(&Bytes::new()))
    }

    fn beyond_build(&self) -> Option<Version> {
        Cluster::beyond_build(self)
    }

    fn encode_snapshot(&self) -> Bytes {
        Cluster::encode_snapshot(self)
    }

    fn decode_snapshot(bytes: Bytes) -> Result<Self, Unusable> {
        use cluster::SnapshotError as E;
        Cluster::decode_snapshot(bytes).map_err(|error| match error {
            E::LaterFormat(_) | E::LaterSection { .. } | E::LaterVersion(_) => {
                Unusable::Later(error.to_string())
            }
            E::Codec(_) | E::Inconsistent(_) => Unusable::Damaged(error.to_string()),
        })
    }
}

/// Why a state cannot be made.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// It does not decode, or contradicts itself.
    Damaged(String),
    /// A later build wrote it.
    Later(String),
}

impl From<Unusable> for Stop {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Damaged(detail) => Self::Damaged { detail },
            Unusable::Later(detail) => Self::LaterFormat { volume: Volume::Raft, detail },
        }
    }
}

/// One group's tables.
#[derive(Debug, Default)]
pub(crate) struct Tables<M> {
    machine: M,
    /// The tables of this node's new replica, until they are as far as those that were followed before.
    catching_up: Option<M>,
}

/// What applying an entry came to.
pub(crate) struct Applied<Reply> {
    pub(crate) reply: Reply,
    /// The group goes on with this entry to a version this build does not have.
    pub(crate) left_behind: Option<Version>,
}

impl<M: Machine> Tables<M> {
    /// The tables as far as they are known to be decided; they never go back.
    pub(crate) fn machine(&self) -> &M {
        &self.machine
    }

    /// The replica of this node begins, or goes on, with this state.
    pub(crate) fn restore(&mut self, state: Option<Bytes>) -> Result<(), Unusable> {
        let machine = state.map_or_else(|| Ok(M::default()), M::decode_snapshot)?;
        self.catching_up = Some(machine);
        self.catch_up();
        Ok(())
    }

    /// Another node's replica has this state. An older one than is here changes nothing.
    pub(crate) fn restore_followed(&mut self, state: Bytes) -> Result<(), Unusable> {
        let machine = M::decode_snapshot(state)?;
        if machine.applied() > self.machine.applied() {
            self.machine = machine;
        }
        Ok(())
    }

    /// The replica of this node applies an entry.
    pub(crate) fn apply(&mut self, index: RaftIndex, command: Option<&Bytes>) -> Applied<M::Reply> {
        let applied = apply(self.catching_up.as_mut().unwrap_or(&mut self.machine), index, command);
        self.catch_up();
        applied
    }

    /// Another node's replica has applied an entry; `None` when these tables have, too.
    pub(crate) fn apply_followed(
        &mut self,
        index: RaftIndex,
        command: Option<&Bytes>,
    ) -> Option<Applied<M::Reply>> {
        (index > self.machine.applied()).then(|| apply(&mut self.machine, index, command))
    }

    fn catch_up(&mut self) {
        let here = self.machine.applied();
        if let Some(machine) = self.catching_up.take_if(|machine| machine.applied() >= here) {
            self.machine = machine;
        }
    }

    /// Whether the replica is behind what was followed.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.catching_up.is_some()
    }

    /// The replica does not hear what is decided: the tables go on without it, and it catches up later.
    pub(crate) fn part(&mut self) {
        if self.catching_up.is_none() {
            self.catching_up = Some(self.machine.clone());
        }
    }

    /// The replica hears again. Without anything it missed it makes the tables at once.
    pub(crate) fn rejoin(&mut self) {
        self.catch_up();
    }

    /// The replica is none any more.
    pub(crate) fn leave(&mut self) {
        self.catching_up = None;
    }

    /// What is saved of the replica, and its last entry; `None` while the group is at a version this build does not
    /// have, because the mark would claim entries that the tables do not hold.
    pub(crate) fn save(&self) -> Option<(RaftIndex, Bytes)> {
        let machine = self.catching_up.as_ref().unwrap_or(&self.machine);
        machine.beyond_build().is_none().then(|| (machine.applied(), machine.encode_snapshot()))
    }
}

fn apply<M: Machine>(machine: &mut M, index: RaftIndex, command: Option<&Bytes>) -> Applied<M::Reply> {
    let followed = machine.beyond_build().is_none();
    let reply = machine.apply(index, command);
    Applied { reply, left_behind: machine.beyond_build().filter(|_| followed) }
}
