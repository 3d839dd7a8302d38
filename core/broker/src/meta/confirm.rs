//! Whether the tables here are as far as everything that was decided before somebody asked.
//!
//! What deletes must not go by tables that lag behind: a bound that was lifted, or a segment that was registered, may
//! be in an entry that has not come here yet. So it asks first, of every group it is going to read, how far the tables
//! have to be, and goes on when they are.
//!
//! Invariants:
//! - a group's tables count as confirmed only after its leader, as a quorum knows it, said how far they must be, and
//!   they are that far;
//! - every question has an end: confirmed, or given up when its time is over.

use std::collections::BTreeMap;
use std::time::Duration;

use peer::Message;
use peer::message::ReadIndexReply;
use raft::ReadId;
use types::{Instant, NodeId, RaftIndex, VnodeId};

use super::{Decided, Meta, remote};
use crate::action::{Action, Actions};
use crate::event::AskId;
use crate::node::Core;

/// How long all groups together may take.
const WITHIN: Duration = Duration::from_secs(15);

/// Who asks; each asks one thing at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// Sealed segments are about to expire.
    Retention,
    /// Copies are about to be compared with the tables.
    Orphans,
    /// Requests know more than the tables here.
    Cursors,
}

/// How far one group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nobody was asked, or in vain.
    Idle,
    /// This node's replica was.
    AskedHere(ReadId),
    /// Another node was.
    Asked(AskId, NodeId),
    /// The tables must be as far as this.
    Wanted(RaftIndex),
}

#[derive(Debug)]
struct Confirming {
    groups: BTreeMap<VnodeId, Stage>,
    until: Instant,
}

/// Questions on their way.
#[derive(Debug, Default)]
pub(super) struct Confirms {
    open: BTreeMap<Purpose, Confirming>,
    next_read: u64,
}

impl Confirms {
    fn stages(&mut self) -> impl Iterator<Item = (VnodeId, &mut Stage)> {
        self.open.values_mut().flat_map(|open| open.groups.iter_mut().map(|(group, stage)| (*group, stage)))
    }

    /// What was asked of a node that is gone is not answered.
    pub(super) fn down(&mut self, node: NodeId) {
        for (_, stage) in self.stages() {
            if matches!(stage, Stage::Asked(_, asked) if *asked == node) {
                *stage = Stage::Idle;
            }
        }
    }

    /// This node's replica answered a read of this node.
    pub(super) fn told_here(&mut self, id: ReadId, reply: &ReadIndexReply) {
        for (_, stage) in self.stages() {
            if *stage == Stage::AskedHere(id) {
                *stage = wanted(reply);
            }
        }
    }

    /// When one is given up.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.open.values().map(|open| open.until).min()
    }
}

fn wanted(reply: &ReadIndexReply) -> Stage {
    match reply {
        ReadIndexReply::Ready(index) => Stage::Wanted(*index),
        ReadIndexReply::NotLeader { .. } | ReadIndexReply::Overloaded => Stage::Idle,
    }
}

impl Core {
    /// Asks whether the tables of these groups are up to date; one [`Decided::Confirmed`] answers. What the same asked
    /// before is given up.
    pub(crate) fn confirm(&mut self, purpose: Purpose, groups: impl IntoIterator<Item = VnodeId>) {
        let groups = groups.into_iter().map(|group| (group, Stage::Idle)).collect();
        let until = self.now.plus(WITHIN);
        self.meta.confirms.open.insert(purpose, Confirming { groups, until });
        self.meta.ask_confirms(&mut self.out);
        self.meta.settle(&mut self.out);
    }
}

impl Meta {
    /// Asks of every group nobody was asked about.
    pub(super) fn ask_confirms(&mut self, out: &mut Actions) {
        let idle: Vec<VnodeId> = self
            .confirms
            .stages()
            .filter(|(_, stage)| **stage == Stage::Idle)
            .map(|(group, _)| group)
            .collect();
        for group in idle {
            let stage = if self.leads(group) {
                let id = ReadId(self.confirms.next_read);
                self.confirms.next_read += 1;
                self.host.read(group, id);
                Stage::AskedHere(id)
            } else {
                // Whoever does not lead says who does.
                let any = || self.candidates(group).first().copied();
                let Some(to) = self.leader(group).filter(|leader| self.is_up(*leader)).or_else(any) else {
                    continue;
                };
                let ask = self.ask_id();
                let message = Message::ReadIndex { vnode: group };
                out.push(Action::Ask { to, ask, message, within: remote::ANSWER_WITHIN });
                Stage::Asked(ask, to)
            };
            for (of, idle) in self.confirms.stages() {
                if of == group && *idle == Stage::Idle {
                    *idle = stage;
                }
            }
        }
    }

    /// Another node's answer, `None` when there is none: then it is asked again.
    pub(super) fn confirm_answered(&mut self, ask: AskId, reply: Option<&ReadIndexReply>) {
        let mut answered = None;
        for (group, stage) in self.confirms.stages() {
            if let Stage::Asked(of, asked) = *stage
                && of == ask
            {
                *stage = reply.map_or(Stage::Idle, wanted);
                answered = Some((group, asked));
            }
        }
        let Some((group, asked)) = answered else { return };
        match reply {
            Some(ReadIndexReply::Ready(_)) => self.remote.set_hint(group, Some(asked)),
            Some(ReadIndexReply::NotLeader { hint }) => {
                self.remote.set_hint(group, hint.filter(|hint| *hint != asked));
            }
            Some(ReadIndexReply::Overloaded) | None => {}
        }
    }

    /// Tells of questions that have their answer, or have waited long enough.
    pub(super) fn tell_confirmed(&mut self) {
        if self.confirms.open.is_empty() {
            return;
        }
        let is_there = |(group, stage): (&VnodeId, &Stage)| match stage {
            Stage::Wanted(index) => self.applied_of(*group) >= *index,
            Stage::Idle | Stage::AskedHere(_) | Stage::Asked(..) => false,
        };
        let outcome = |(purpose, open): (&Purpose, &Confirming)| {
            let confirmed = open.groups.iter().all(is_there);
            (confirmed || open.until <= self.now).then_some((*purpose, confirmed))
        };
        let told: Vec<(Purpose, bool)> = self.confirms.open.iter().filter_map(outcome).collect();
        for (purpose, confirmed) in told {
            self.confirms.open.remove(&purpose);
            self.decided.push(Decided::Confirmed { purpose, confirmed });
        }
    }
}
