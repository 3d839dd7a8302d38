//! A member's disk, reduced to what storage promises.
//!
//! Changes become durable whole and in the order they were asked for; a power loss keeps any prefix of those on
//! their way. A snapshot of the member's own machine is written aside and is durable, or not, by itself. What could
//! not follow from what is stored is refused, as the real log refuses it.

use std::collections::VecDeque;

use bytes::Bytes;
use raft::{Entry, HardState, Image, Members, Persist, Recovered, Snapshot, SnapshotMark};
use rand::Rng;
use rand::rngs::SmallRng;
use types::{RaftIndex, Term};

use crate::invariants::{Violation, ensure};

/// What a disk holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) hard: HardState,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) entries: Vec<Entry>,
}

impl Content {
    pub(super) fn mark(&self) -> SnapshotMark {
        self.snapshot.as_ref().map_or_else(SnapshotMark::default, |snapshot| snapshot.mark)
    }

    pub(super) fn last(&self) -> RaftIndex {
        self.entries.last().map_or(self.mark().index, |entry| entry.index)
    }

    /// The term of an entry, or of the snapshot's last.
    pub(super) fn term_at(&self, index: RaftIndex) -> Option<Term> {
        if index == self.mark().index && index > RaftIndex::ZERO {
            return Some(self.mark().term);
        }
        let place = usize::try_from(index.0.checked_sub(self.mark().index.0 + 1)?).ok()?;
        self.entries.get(place).map(|entry| entry.term)
    }

    fn apply(&mut self, persist: &Persist) -> Result<(), Violation> {
        let Persist { hard_state: hard, snapshot, entries, .. } = persist;
        let possible = |holds, what: &str| ensure(holds, "STORAGE", || format!("{what}: {persist:?}"));
        if let Some(snapshot) = snapshot {
            possible(entries.is_empty(), "entries beside a snapshot")?;
            possible(snapshot.mark.index > self.hard.commit, "a snapshot of what is committed here")?;
            possible(snapshot.mark.index > self.mark().index, "a snapshot older than the stored one")?;
            self.entries.clear();
            self.snapshot = Some(snapshot.clone());
        }
        possible(hard.term >= self.hard.term, "the term goes backwards")?;
        let vote_changes = self.hard.voted_for.is_some() && hard.voted_for != self.hard.voted_for;
        possible(hard.term > self.hard.term || !vote_changes, "the vote changes within a term")?;
        if let Some(first) = entries.first() {
            possible(first.index.0 <= self.last().0 + 1, "a gap before the entries")?;
            possible(first.index > self.hard.commit, "a committed entry would go")?;
            self.entries.retain(|entry| entry.index < first.index);
            self.entries.extend(entries.iter().cloned());
        }
        possible(hard.commit <= self.last(), "the commit index is past the log")?;
        let terms = self
            .entries
            .windows(2)
            .all(|pair| pair[0].index.0 + 1 == pair[1].index.0 && pair[0].term <= pair[1].term);
        possible(terms, "the entries are not in order")?;
        self.hard = HardState { commit: hard.commit.max(self.hard.commit), ..*hard };
        Ok(())
    }

    /// Whether the snapshot was taken: not when a later one is there.
    fn save(&mut self, snapshot: &Snapshot) -> bool {
        let mark = snapshot.mark;
        if mark.index <= self.mark().index || self.term_at(mark.index) != Some(mark.term) {
            return false;
        }
        self.entries.retain(|entry| entry.index > mark.index);
        self.hard.commit = self.hard.commit.max(mark.index);
        self.snapshot = Some(snapshot.clone());
        true
    }
}

/// Something on its way to the platter.
#[derive(Clone, Debug)]
enum Write {
    Persist(Persist),
    Save(Snapshot),
}

/// What became of one.
pub(super) enum Done {
    Persisted(raft::PersistId),
    Saved(RaftIndex, bool),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) durable: Content,
    /// With everything on its way.
    pub(super) view: Content,
    writes: VecDeque<Write>,
    saves: VecDeque<Write>,
    /// The disk fails everything.
    pub(super) is_broken: bool,
}

impl Store {
    pub(super) fn persist(&mut self, persist: Persist) -> Result<(), Violation> {
        self.view.apply(&persist)?;
        self.writes.push_back(Write::Persist(persist));
        Ok(())
    }

    pub(super) fn save(&mut self, snapshot: Snapshot) {
        self.saves.push_back(Write::Save(snapshot));
    }

    /// Finishes the oldest change, or the oldest snapshot.
    pub(super) fn finish(&mut self, is_save: bool) -> Result<Option<Done>, Violation> {
        let queue = if is_save { &mut self.saves } else { &mut self.writes };
        let Some(write) = queue.pop_front() else { return Ok(None) };
        self.land(&write).map(Some)
    }

    fn land(&mut self, write: &Write) -> Result<Done, Violation> {
        match write {
            Write::Persist(persist) => {
                self.durable.apply(persist)?;
                Ok(Done::Persisted(persist.id))
            }
            Write::Save(snapshot) => {
                self.view.save(snapshot);
                Ok(Done::Saved(snapshot.mark.index, self.durable.save(snapshot)))
            }
        }
    }

    /// The id of the oldest change on its way, which fails.
    pub(super) fn fail(&mut self) -> Option<raft::PersistId> {
        self.is_broken = true;
        match self.writes.front() {
            Some(Write::Persist(persist)) => Some(persist.id),
            Some(Write::Save(_)) | None => None,
        }
    }

    /// The process is gone. With the power: any prefix of what was on its way is there; without: all of it.
    pub(super) fn crash(&mut self, with_power: bool, rng: &mut SmallRng) -> Result<(), Violation> {
        let count = self.writes.len();
        let kept = if with_power { rng.random_range(0..=count) } else { count };
        for write in std::mem::take(&mut self.writes).iter().take(kept) {
            self.land(write)?;
        }
        for write in std::mem::take(&mut self.saves) {
            if rng.random_bool(0.5) {
                self.land(&write)?;
            }
        }
        self.view = self.durable.clone();
        self.is_broken = false;
        Ok(())
    }

    /// What a process finds, and the image of its snapshot.
    pub(super) fn recovered(&self) -> Result<(Recovered, Bytes), Violation> {
        let Content { hard, snapshot, entries } = &self.durable;
        let (mut members, mut state) = (Members::none(), Bytes::new());
        if let Some(snapshot) = snapshot {
            let image = Image::decode(snapshot.image.clone())
                .map_err(|error| Violation::new("STORAGE", format!("a stored image: {error}")))?;
            (members, state) = (image.members, image.state);
        }
        let recovered =
            Recovered { hard_state: *hard, snapshot: self.durable.mark(), members, entries: entries.clone() };
        Ok((recovered, state))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.writes.is_empty() && self.saves.is_empty()
    }
}
