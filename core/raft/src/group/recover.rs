//! A member as storage has it, or as it begins.

use std::collections::BTreeMap;

use types::{RaftIndex, Term, limits};

use super::election::Election;
use super::flights::Flights;
use super::reads::Reads;
use super::snapshots::Snapshots;
use super::{Config, Error, Group, Phase, Recovered};
use crate::engine::{self, Log, NOBODY, Translation, eraftpb};
use crate::entry::Payload;
use crate::event::{Entry, EntryId, HardState, Role, SnapshotMark};
use crate::members::{Member, Members, ReplicaId};

impl Group {
    /// The member as storage has it: a follower, until [`crate::Event::Start`].
    pub fn new(config: Config, recovered: Recovered) -> Result<Self, Error> {
        if config.voters.len() > limits::RAFT_MEMBERS_MAX {
            return Err(Error::TooManyMembers(config.voters.len()));
        }
        if config.heartbeat_ticks == 0 || config.heartbeat_ticks.saturating_mul(2) >= config.election_ticks {
            return Err(Error::Timing);
        }
        let mut recovered = recovered;
        check(&recovered)?;
        let durable = recovered.hard_state;
        let founding = found(&config, &mut recovered)?;
        let Recovered { hard_state, snapshot, members: snapshot_members, entries } = recovered;
        let (members, applied) = beginning(snapshot, &snapshot_members, &entries);
        let replica = replica(&config, &members, &entries)?;
        let hard = eraftpb::HardState {
            term: hard_state.term.0,
            vote: vote(hard_state)?,
            commit: hard_state.commit.max(applied.index).0,
            ..eraftpb::HardState::default()
        };
        let entries = entries.iter().map(Entry::to_engine).collect();
        let initial = (hard, members.to_engine());
        let settings = engine::Settings {
            replica,
            applied: applied.index.0,
            election_ticks: config.election_ticks as usize,
            heartbeat_ticks: config.heartbeat_ticks as usize,
        };
        let log = Log::new(snapshot, snapshot_members.to_engine(), entries, initial);
        let engine =
            engine::engine(&settings, log).map_err(|_| Error::Inconsistent("the engine refuses it"))?;
        let mut group = Self {
            me: Member { replica, node: config.node },
            phase: Phase::New,
            engine,
            members,
            members_since: applied.index,
            strangers: BTreeMap::new(),
            applied,
            founding,
            flights: Flights::new(durable),
            proposals: BTreeMap::new(),
            reads: Reads::default(),
            election: Election::new(config.seed, config.election_ticks),
            snapshots: Snapshots::new(snapshot),
            opened: EntryId::default(),
            told: (Role::Follower, Term::ZERO),
            config,
        };
        group.told = (group.role(), group.term());
        Ok(group)
    }
}

/// What a new group begins with, if this is one: every founder writes the same first entry, which is committed by
/// being the same everywhere.
fn found(config: &Config, recovered: &mut Recovered) -> Result<Option<Entry>, Error> {
    let is_new = recovered.hard_state == HardState::default()
        && recovered.snapshot.index == RaftIndex::ZERO
        && recovered.entries.is_empty();
    if !is_new || config.voters.is_empty() {
        return Ok(None);
    }
    if !config.voters.contains(&config.node) {
        return Err(Error::NotAMember(config.node));
    }
    let data = Payload::Founding(Members::founding(&config.voters)).encode().freeze();
    let (index, term) = (RaftIndex(1), Term(1));
    let entry = Entry { index, term, data };
    recovered.hard_state = HardState { term, voted_for: None, commit: index };
    recovered.entries.push(entry.clone());
    Ok(Some(entry))
}

/// The members to begin with, and the entry that made them.
fn beginning(snapshot: SnapshotMark, members: &Members, entries: &[Entry]) -> (Members, EntryId) {
    let at_snapshot = EntryId { index: snapshot.index, term: snapshot.term };
    match entries.first().map(|entry| (entry, Payload::decode(entry.data.clone()))) {
        Some((entry, Ok(Payload::Founding(founders)))) => {
            (founders, EntryId { index: entry.index, term: entry.term })
        }
        Some(_) | None => (members.clone(), at_snapshot),
    }
}

/// Which replica this is. A node may hold the entry that made it a member without knowing that it is committed.
fn replica(config: &Config, members: &Members, entries: &[Entry]) -> Result<ReplicaId, Error> {
    if let Some(replica) = config.replica {
        return Ok(replica);
    }
    let mut later = members.clone();
    for entry in entries {
        if let Ok(Payload::Amendment(amendment)) = Payload::decode(entry.data.clone()) {
            later.amend(amendment);
        }
    }
    let found = later.of_node(config.node).or_else(|| members.of_node(config.node));
    found.map(|(replica, _)| replica).ok_or(Error::NotAMember(config.node))
}

fn vote(hard_state: HardState) -> Result<u64, Error> {
    match hard_state.voted_for.map(|replica| u64::try_from(replica.0)) {
        None => Ok(NOBODY),
        Some(Ok(replica)) if replica != NOBODY => Ok(replica),
        Some(_) => Err(Error::Inconsistent("a vote for nobody's number")),
    }
}

/// Whether what was recovered makes sense.
fn check(recovered: &Recovered) -> Result<(), Error> {
    let Recovered { hard_state, snapshot, members, entries } = recovered;
    if (snapshot.index == RaftIndex::ZERO) != members.is_empty() {
        return Err(Error::Inconsistent("a snapshot and its members go together"));
    }
    let mut last = *snapshot;
    for entry in entries {
        if entry.index.0 != last.index.0 + 1 {
            return Err(Error::Inconsistent("a gap in the entries"));
        }
        if entry.term < last.term || entry.term == Term::ZERO {
            return Err(Error::Inconsistent("terms go backwards"));
        }
        let payload = Payload::decode(entry.data.clone());
        let payload = payload.map_err(|_| Error::Inconsistent("an entry that says nothing known"))?;
        if matches!(payload, Payload::Founding(_)) != (entry.index == RaftIndex(1)) {
            return Err(Error::Inconsistent("the first entry, and only it, says who founded the group"));
        }
        last = SnapshotMark { index: entry.index, term: entry.term };
    }
    if last.term > hard_state.term {
        return Err(Error::Inconsistent("an entry of a term not seen yet"));
    }
    if hard_state.commit > last.index {
        return Err(Error::Inconsistent("the commit index is past the log"));
    }
    Ok(())
}
