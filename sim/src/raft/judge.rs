//! What was agreed, and what clients were told.
//!
//! The judge hears of every entry a member applies. The first to apply one settles what stands at its index; all
//! others must find the same there. The place of a command among all commands numbers the states of the machine, so
//! that "a read sees every write that ended before it began" is one comparison.

use std::collections::{BTreeMap, BTreeSet};

use raft::{EntryId, Members};
use types::{NodeId, RaftIndex, Term};

use super::machine::Machine;
use crate::invariants::{Violation, ensure, inv_45};

/// A command; all differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CommandId(pub(crate) u64);

/// What stands at an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Agreed {
    Command(CommandId),
    Members(Members),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// Entries that open a term are not among them: nobody applies those.
    log: BTreeMap<RaftIndex, (Term, Agreed)>,
    /// The term of the first member that applied an entry: it was committed in that term or before.
    committed_by: BTreeMap<RaftIndex, Term>,
    /// The machine after each index at which it changed.
    states: BTreeMap<RaftIndex, Machine>,
    /// Where each command stands.
    placed: BTreeMap<CommandId, RaftIndex>,
    refused: BTreeSet<CommandId>,
    acknowledged: BTreeSet<CommandId>,
    leaders: BTreeMap<Term, (NodeId, u64)>,
    /// Commands that every read that begins now must see.
    seen: u64,
}

impl Judge {
    /// The group begins: every founder has this entry from the start, and whoever joins applies it.
    pub(crate) fn founded(&mut self, members: &Members) -> Result<(), Violation> {
        let told = (Term(1), Agreed::Members(members.clone()));
        let known = self.log.entry(RaftIndex(1)).or_insert_with(|| told.clone());
        ensure(*known == told, "AGREEMENT", || format!("founders begin with {known:?} and with {told:?}"))
    }

    /// A member, in term `now`, applied a command.
    pub(crate) fn applied(
        &mut self,
        node: NodeId,
        now: Term,
        entry: EntryId,
        command: CommandId,
    ) -> Result<(), Violation> {
        let index = entry.index;
        ensure(!self.refused.contains(&command), "OUTCOME", || {
            format!("{command:?} was refused and is applied at {index}")
        })?;
        if self.agree(node, now, entry, Agreed::Command(command))? {
            let before = self.placed.insert(command, index);
            ensure(before.is_none(), "ONCE", || format!("{command:?} stands at {before:?} and at {index}"))?;
            let mut state = self.state_at(index);
            state.apply(command);
            self.states.insert(index, state);
        }
        Ok(())
    }

    /// A member, in term `now`, applied a change of members.
    pub(crate) fn members_changed(
        &mut self,
        node: NodeId,
        now: Term,
        entry: EntryId,
        members: &Members,
    ) -> Result<bool, Violation> {
        self.agree(node, now, entry, Agreed::Members(members.clone()))
    }

    /// Whether this is the first that is heard of the index.
    fn agree(&mut self, node: NodeId, now: Term, entry: EntryId, what: Agreed) -> Result<bool, Violation> {
        let (index, told) = (entry.index, (entry.term, what));
        if let Some(known) = self.log.get(&index) {
            ensure(*known == told, "AGREEMENT", || {
                format!("at {index} node {node} applies {told:?}, somebody applied {known:?}")
            })?;
            return Ok(false);
        }
        let last = self.log.keys().next_back().copied().unwrap_or_default();
        ensure(index > last, "AGREEMENT", || {
            format!("node {node} applies {told:?} at {index}, where others applied nothing before {last}")
        })?;
        self.log.insert(index, told);
        self.committed_by.insert(index, now);
        Ok(true)
    }

    /// The machine of a member that has applied everything up to `index`.
    pub(crate) fn state_at(&self, index: RaftIndex) -> Machine {
        self.states.range(..=index).next_back().map(|(_, state)| *state).unwrap_or_default()
    }

    /// A member's machine is what the entries it has applied make it.
    pub(crate) fn check_state(
        &self,
        node: NodeId,
        applied: RaftIndex,
        machine: Machine,
    ) -> Result<(), Violation> {
        inv_45::equal(node, applied, machine, self.state_at(applied))
    }

    /// A member leads, with a snapshot up to an index and entries of these terms after it.
    pub(crate) fn leads(
        &mut self,
        node: NodeId,
        life: u64,
        term: Term,
        snapshot: RaftIndex,
        term_at: impl Fn(RaftIndex) -> Option<Term>,
    ) -> Result<(), Violation> {
        let other = self.leaders.insert(term, (node, life));
        ensure(other.is_none(), "ELECTION", || {
            format!("node {node} leads in term {term}, and so did {other:?}")
        })?;
        for (index, (entry_term, what)) in self.log.range(snapshot.next()..) {
            let held = term_at(*index);
            // What later terms committed meanwhile is theirs: this leader comes late, and commits nothing.
            let is_later = self.committed_by.get(index).is_some_and(|committed| *committed >= term);
            ensure(is_later || held == Some(*entry_term), "COMPLETENESS", || {
                format!(
                    "node {node} leads in term {term} with {held:?} at {index}, where {what:?} of term {entry_term} is committed"
                )
            })?;
        }
        Ok(())
    }

    pub(crate) fn acknowledged(&mut self, command: CommandId) -> Result<(), Violation> {
        let place = self.placed.get(&command).copied();
        ensure(place.is_some(), "OUTCOME", || format!("{command:?} is acknowledged and stands nowhere"))?;
        self.acknowledged.insert(command);
        self.seen = self.seen.max(self.state_at(place.unwrap_or_default()).count);
        Ok(())
    }

    pub(crate) fn refused(&mut self, command: CommandId) -> Result<(), Violation> {
        self.refused.insert(command);
        ensure(!self.placed.contains_key(&command), "OUTCOME", || {
            format!("{command:?} is refused and stands in the log")
        })
    }

    /// What a read that begins now must see at least.
    pub(crate) fn read_begins(&self) -> u64 {
        self.seen
    }

    pub(crate) fn read_ends(&mut self, node: NodeId, floor: u64, seen: u64) -> Result<(), Violation> {
        ensure(seen >= floor, "READS", || {
            format!("a read at node {node} sees {seen} commands, {floor} were there before it began")
        })?;
        self.seen = self.seen.max(seen);
        Ok(())
    }

    /// The latest members anybody has applied.
    pub(crate) fn members(&self) -> Option<&Members> {
        self.log.values().rev().find_map(|(_, what)| match what {
            Agreed::Members(members) => Some(members),
            Agreed::Command(_) => None,
        })
    }

    /// After everything has healed: the end of the log, and nothing acknowledged is missing from it.
    pub(crate) fn end(&self) -> (RaftIndex, Machine) {
        let last = self.log.keys().next_back().copied().unwrap_or_default();
        (last, self.state_at(last))
    }

    pub(crate) fn acknowledged_count(&self) -> u64 {
        self.acknowledged.len() as u64
    }
}
