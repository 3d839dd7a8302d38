//! The way of a snapshot from one member to another, in parts.
//!
//! One part is on its way at a time; the receiver says how far it has come, and the next begins there. A part that
//! is not answered is sent again, and a transfer nobody answers is given up: the engine begins another when the
//! member is heard of. What has arrived is believed only as a whole.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use types::{NodeId, Term, limits};

use super::Group;
use super::snapshots::Arrived;
use crate::engine::StateRole;
use crate::event::{Action, SnapshotMark};
use crate::image::Image;
use crate::members::{Member, Members, ReplicaId};
use crate::message::{Body, Message};

/// Election timeouts after which a silent receiver is given up.
const PATIENCE: u32 = 4;

/// Both ends of transfers.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    outgoing: BTreeMap<ReplicaId, Outgoing>,
    incoming: Option<Incoming>,
}

#[derive(Debug)]
struct Outgoing {
    mark: SnapshotMark,
    /// Until it was read from storage.
    image: Option<Bytes>,
    /// Bytes the receiver has.
    received: u64,
    /// Ticks since it had more.
    silent_ticks: u32,
}

#[derive(Debug)]
struct Incoming {
    from: ReplicaId,
    term: Term,
    mark: SnapshotMark,
    total: u64,
    bytes: BytesMut,
}

/// A part as it arrived.
pub(super) struct Part {
    pub(super) mark: SnapshotMark,
    pub(super) total: u64,
    pub(super) offset: u64,
    pub(super) bytes: Bytes,
}

impl Transfers {
    pub(super) fn stop_sending(&mut self) {
        self.outgoing.clear();
    }

    /// The oldest snapshot on its way to somebody.
    pub(super) fn oldest_sent(&self) -> Option<SnapshotMark> {
        self.outgoing.values().map(|outgoing| outgoing.mark).min()
    }
}

/// A leader's end.
impl Group {
    /// The engine has no entries for a member that lags behind the snapshot.
    pub(super) fn send_snapshot(&mut self, to: ReplicaId, out: &mut Vec<Action>) {
        let mark = self.snapshots.latest();
        let outgoing = &mut self.snapshots.transfers.outgoing;
        let same = outgoing.values().find(|other| other.mark == mark);
        let is_asked_for = same.is_some();
        let image = same.and_then(|other| other.image.clone());
        let is_loaded = image.is_some();
        outgoing.insert(to, Outgoing { mark, image, received: 0, silent_ticks: 0 });
        if is_loaded {
            self.send_part(to, out);
        } else if !is_asked_for {
            out.push(Action::LoadSnapshot { mark });
        }
    }

    fn send_part(&self, to: ReplicaId, out: &mut Vec<Action>) {
        let Some(Outgoing { mark, image: Some(image), received, .. }) =
            self.snapshots.transfers.outgoing.get(&to)
        else {
            return;
        };
        let Some(node) = self.node_of(to) else { return };
        let offset = usize::try_from(*received).expect("it is within the image").min(image.len());
        let part_bytes = self.config.part_bytes.clamp(1, limits::RAFT_SNAPSHOT_CHUNK_BYTES);
        let end = image.len().min(offset + part_bytes);
        let body = Body::Part {
            mark: *mark,
            total: image.len() as u64,
            offset: offset as u64,
            bytes: image.slice(offset..end),
        };
        self.send_own(node, to, self.term(), body, out);
    }

    /// Sends what is no message of the engine's. Nothing in it has to be durable: a leader's term is.
    fn send_own(&self, node: NodeId, to: ReplicaId, term: Term, body: Body, out: &mut Vec<Action>) {
        out.push(Action::Send { to: node, message: Message { from: self.me, to, term, body } });
    }

    pub(super) fn snapshot_loaded(&mut self, mark: SnapshotMark, image: &Bytes, out: &mut Vec<Action>) {
        if !self.is_running() {
            return;
        }
        let fits = !image.is_empty() && image.len() <= limits::RAFT_SNAPSHOT_BYTES_MAX;
        let mut ready = Vec::new();
        let mut failed = Vec::new();
        for (to, outgoing) in &mut self.snapshots.transfers.outgoing {
            if outgoing.image.is_none() && outgoing.mark == mark && fits {
                outgoing.image = Some(image.clone());
                outgoing.silent_ticks = 0;
                ready.push(*to);
            } else if outgoing.image.is_none() && outgoing.mark <= mark {
                // A later one replaced it: the engine asks again, for that.
                failed.push(*to);
            }
        }
        ready.into_iter().for_each(|to| self.send_part(to, out));
        failed.into_iter().for_each(|to| self.end_transfer(to, false));
        self.drive(out);
    }

    pub(super) fn snapshot_not_loaded(&mut self, mark: SnapshotMark, out: &mut Vec<Action>) {
        let outgoing = self.snapshots.transfers.outgoing.iter();
        let waiting = outgoing.filter(|(_, outgoing)| outgoing.image.is_none() && outgoing.mark == mark);
        let failed: Vec<_> = waiting.map(|(to, _)| *to).collect();
        failed.into_iter().for_each(|to| self.end_transfer(to, false));
        if self.is_running() {
            self.drive(out);
        }
    }

    fn end_transfer(&mut self, to: ReplicaId, arrived: bool) {
        if self.snapshots.transfers.outgoing.remove(&to).is_some() {
            self.report_snapshot(to, arrived);
        }
    }

    pub(super) fn part_received(
        &mut self,
        from: ReplicaId,
        mark: SnapshotMark,
        received: u64,
        out: &mut Vec<Action>,
    ) {
        let Some(outgoing) = self.snapshots.transfers.outgoing.get_mut(&from) else { return };
        let total = outgoing.image.as_ref().map_or(0, |image| image.len() as u64);
        if outgoing.mark != mark || received > total || received <= outgoing.received {
            return;
        }
        (outgoing.received, outgoing.silent_ticks) = (received, 0);
        if received == total {
            self.end_transfer(from, true);
        } else {
            self.send_part(from, out);
        }
    }

    pub(super) fn tick_transfers(&mut self, out: &mut Vec<Action>) {
        let again = self.config.heartbeat_ticks * 2;
        let patience = self.config.election_ticks * PATIENCE;
        let mut late = Vec::new();
        for (to, outgoing) in &mut self.snapshots.transfers.outgoing {
            if outgoing.image.is_some() {
                outgoing.silent_ticks += 1;
                if outgoing.silent_ticks % again == 0 {
                    late.push((*to, outgoing.silent_ticks > patience));
                }
            }
        }
        for (to, is_given_up) in late {
            if is_given_up {
                self.end_transfer(to, false);
            } else {
                self.send_part(to, out);
            }
        }
    }
}

/// A follower's end.
impl Group {
    pub(super) fn receive_part(&mut self, from: Member, term: Term, part: Part, out: &mut Vec<Action>) {
        if term < self.term() || self.engine.raft.state == StateRole::Leader {
            return;
        }
        let Part { mark, total, .. } = part;
        let is_old = mark.index <= self.commit() || self.snapshots.has(mark);
        let received = if is_old { total } else { self.take_part(from, term, part, out) };
        // As the leader's own term, which it knows to be durable; this member's may not be.
        let body = Body::PartReply { mark, received };
        self.send_own(from.node, from.replica, term, body, out);
    }

    /// Bytes that have arrived from the beginning.
    fn take_part(&mut self, from: Member, term: Term, part: Part, out: &mut Vec<Action>) -> u64 {
        let Part { mark, total, offset, bytes } = part;
        let slot = &mut self.snapshots.transfers.incoming;
        let continues = |incoming: &Incoming| {
            (incoming.from, incoming.term, incoming.mark, incoming.total) == (from.replica, term, mark, total)
        };
        if !slot.as_ref().is_some_and(continues) {
            *slot = Some(Incoming { from: from.replica, term, mark, total, bytes: BytesMut::new() });
        }
        let incoming = slot.as_mut().expect("it was just put there");
        if offset == incoming.bytes.len() as u64 {
            incoming.bytes.extend_from_slice(&bytes);
        }
        let received = incoming.bytes.len() as u64;
        if received == total {
            let image = std::mem::take(&mut incoming.bytes).freeze();
            *slot = None;
            return self.take_image(from.replica, term, mark, image, out);
        }
        received
    }

    /// The whole image, if it is one; else the transfer starts over.
    fn take_image(
        &mut self,
        from: ReplicaId,
        term: Term,
        mark: SnapshotMark,
        image: Bytes,
        out: &mut Vec<Action>,
    ) -> u64 {
        let total = image.len() as u64;
        // A snapshot may be older than this member: the entry that makes it one follows.
        let is_for_me = |members: &Members| match members.of_replica(self.me.replica) {
            Some((node, _)) => node == self.me.node,
            None => !members.was_given(self.me.replica),
        };
        match Image::decode(image.clone()) {
            Ok(decoded) if is_for_me(&decoded.members) => {
                self.snapshot_arrived(Arrived { from, term, mark, image, decoded }, out);
                total
            }
            Ok(_) | Err(_) => 0,
        }
    }
}
