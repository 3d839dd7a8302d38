//! Where a group stands on a topic, and who of it reads what.
//!
//! Positions are taken in the order they reach the node, so an acknowledged one replaces all before it in the
//! slices it speaks of. One whose answer never came may turn up, but only at the next start: within a lifetime
//! the log that failed takes nothing more.
//!
//! Which slices are whose is learnt from the cursors members are given. Whoever was given a slice under a later
//! assignment than a cursor's has taken it over, and the cursor moves nothing there any more.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;

use super::keyspace::{Span, contains};
use super::place::{Move, Place};
use super::{CallId, Life};
use crate::invariants::{Violation, ensure};

/// A member that is silent for so long may be taken for gone, microseconds.
const SILENT: u64 = 29_000_000;

/// Whose cursor it is: a member's, under an assignment of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Holder {
    pub(in super::super) group: Bytes,
    pub(in super::super) member: Bytes,
    pub(in super::super) generation: u64,
    /// The lifetime it was given in.
    pub(in super::super) life: Life,
}

/// Positions on their way.
#[derive(Clone, Debug)]
pub(in super::super) struct Change {
    pub(in super::super) place: Rc<Place>,
    /// What moves, by slice; everything without.
    pub(in super::super) moves: Option<Vec<(Span, Move)>>,
}

impl Change {
    fn moves(&self, position: u64) -> Move {
        let Some(moves) = &self.moves else { return Move::Surely };
        let slice = moves.iter().find(|(span, _)| contains(*span, position));
        slice.map_or(Move::Not, |(_, moves)| *moves)
    }
}

/// A group.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Group {
    /// What was acknowledged last, or seen last.
    pub(in super::super) at: Place,
    /// On their way, in order.
    pending: Vec<(CallId, Change)>,
    /// May have been taken, in order.
    unknown: Vec<(Life, Change)>,
    /// Counts changes, so that a page asked for before one is not held against what came after.
    pub(in super::super) version: u64,
    /// It has positions: for sure, or perhaps.
    pub(in super::super) committed: bool,
    pub(in super::super) maybe_committed: bool,
    pub(in super::super) members: Members,
}

impl Group {
    pub(in super::super) fn asked(&mut self, call: CallId, change: Change) {
        self.pending.push((call, change));
    }

    fn take(&mut self, call: CallId) -> Option<Change> {
        let at = self.pending.iter().position(|(id, _)| *id == call)?;
        Some(self.pending.remove(at).1)
    }

    /// Where it may stand, in the middle of whatever the node is just telling.
    pub(in super::super) fn possible(&self, positions: &[u64]) -> Place {
        let mut at = self.at.clone();
        for (_, change) in &self.pending {
            at.overlay(&change.place, positions, |position| perhaps(change.moves(position)));
        }
        at
    }

    /// Whether nothing is uncertain but what its place says.
    pub(in super::super) fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.unknown.is_empty()
    }

    /// The positions of a call are stored.
    pub(in super::super) fn acknowledged(&mut self, call: CallId, positions: &[u64]) {
        if let Some(change) = self.take(call) {
            self.at.overlay(&change.place, positions, |position| change.moves(position));
            self.version += 1;
            self.maybe_committed = true;
            self.committed |= change.moves.is_none_or(|moves| moves.iter().all(|(_, m)| *m == Move::Surely));
        }
    }

    pub(in super::super) fn failed(&mut self, call: CallId, life: Life, unknown: bool) {
        if let Some(change) = self.take(call)
            && unknown
        {
            self.unknown.push((life, change));
        }
    }

    pub(in super::super) fn life_ended(&mut self, life: Life) {
        self.unknown.extend(self.pending.drain(..).map(|(_, change)| (life, change)));
        self.members = Members::default();
    }

    /// A process serves: what earlier ones left was taken or not.
    pub(in super::super) fn life_began(&mut self, life: Life, positions: &[u64]) {
        let (before, now) = self.unknown.drain(..).partition(|(then, _)| *then < life);
        self.unknown = now;
        let before: Vec<(Life, Change)> = before;
        for (_, change) in before {
            self.at.overlay(&change.place, positions, |position| perhaps(change.moves(position)));
            self.version += 1;
            self.maybe_committed = true;
        }
    }

    /// A page that was asked for at `version` began at `start`.
    pub(in super::super) fn seen(&mut self, start: Place, version: u64) {
        if self.version == version {
            self.at = start;
        }
    }
}

fn perhaps(moves: Move) -> Move {
    match moves {
        Move::Surely | Move::Perhaps => Move::Perhaps,
        Move::Not => Move::Not,
    }
}

/// Members of a group, in one process lifetime.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Members {
    /// Of the last assignment that was told, and how many members it had.
    pub(in super::super) assigned: Option<(u64, usize)>,
    /// Which slices were given to whom, by assignment.
    given: BTreeMap<u64, BTreeMap<Bytes, Vec<Span>>>,
    /// When each was last heard of, microseconds.
    heard: BTreeMap<Bytes, u64>,
    /// Those that asked to leave, and have not asked for anything since.
    left: BTreeSet<Bytes>,
}

impl Members {
    /// A member's request was taken.
    pub(in super::super) fn hear(&mut self, member: &Bytes, now: u64) {
        self.heard.insert(member.clone(), now);
        self.left.remove(member);
    }

    /// A member's request was answered.
    pub(in super::super) fn answered(&mut self, member: &Bytes, now: u64) {
        self.heard.insert(member.clone(), now);
    }

    /// It asks to leave, and no stream reads as it.
    pub(in super::super) fn ask_to_leave(&mut self, member: &Bytes) {
        self.left.insert(member.clone());
    }

    /// Whether it asked to leave, and for nothing since.
    pub(in super::super) fn has_left(&self, member: &Bytes) -> bool {
        self.left.contains(member)
    }

    /// It leaves.
    pub(in super::super) fn leave(&mut self, member: &Bytes) {
        self.heard.remove(member);
    }

    /// A member was given a cursor for these slices.
    pub(in super::super) fn given(
        &mut self,
        member: &Bytes,
        generation: u64,
        spans: &[Span],
    ) -> Result<(), Violation> {
        let owners = self.given.entry(generation).or_default();
        for (other, theirs) in owners.iter() {
            let same = other == member;
            let common = theirs.iter().find(|a| spans.iter().any(|b| a.0 < b.1 && b.0 < a.1));
            let right = if same { theirs == spans } else { common.is_none() };
            ensure(right, "MEMBERS", || {
                format!(
                    "under assignment {generation} {} reads {spans:?}, and {} {theirs:?}",
                    member.escape_ascii(),
                    other.escape_ascii()
                )
            })?;
        }
        owners.insert(member.clone(), spans.to_vec());
        Ok(())
    }

    /// What a cursor that speaks of these slices moves now in the group of that name.
    pub(in super::super) fn moves(
        &self,
        group: &Bytes,
        holder: &Holder,
        spans: &[Span],
        life: Life,
        now: u64,
    ) -> Vec<(Span, Move)> {
        if holder.group != *group {
            // One group's assignments say nothing about another's.
            return spans.iter().map(|span| (*span, Move::Perhaps)).collect();
        }
        // Whoever left, or may be taken for gone, is given another share when it comes back.
        let same = self.assigned.is_some_and(|(generation, _)| generation == holder.generation);
        if holder.life == life && same && self.is_alive(&holder.member, now) {
            return spans.iter().map(|span| (*span, Move::Surely)).collect();
        }
        let taken: Vec<Span> = if holder.life == life { self.taken_over(holder, now) } else { Vec::new() };
        let mut moves: Vec<(Span, Move)> = taken.into_iter().map(|span| (span, Move::Not)).collect();
        moves.extend(spans.iter().map(|span| (*span, Move::Perhaps)));
        moves
    }

    /// Slices that somebody else was given later. Who may be gone by now counts for nothing: without members
    /// a group has given nothing to anybody.
    fn taken_over(&self, holder: &Holder, now: u64) -> Vec<Span> {
        let later = self.given.range(holder.generation + 1..).flat_map(|(_, owners)| owners);
        let others = later.filter(|(member, _)| **member != holder.member && self.is_alive(member, now));
        others.flat_map(|(_, spans)| spans.iter().copied()).collect()
    }

    /// Whether a member is alone, as far as was told.
    pub(in super::super) fn is_alone(&self, member: &Bytes, now: u64) -> bool {
        self.assigned.is_some_and(|(_, count)| count == 1) && self.is_alive(member, now)
    }

    /// Whether a member has neither left nor been silent for long.
    fn is_alive(&self, member: &Bytes, now: u64) -> bool {
        self.heard.get(member).is_some_and(|heard| now - heard < SILENT)
    }
}
