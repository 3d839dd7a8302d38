//! The oracle: what each group may look like after a restart, worked out from what was asked and answered.
//!
//! The changes of one group take effect in the order they were asked for, each whole or not at all; the
//! record of a snapshot falls somewhere among them, whenever its file was finished. So after a restart a
//! group shows what was acknowledged, continued by any prefix of what was still on its way.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use storage::raft_log::{Append, GroupView, HardState, RaftLog, SnapshotMark};
use types::{NodeId, RaftIndex, Term, VnodeId};

/// What one group holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) exists: bool,
    pub(super) term: u64,
    pub(super) vote: Option<u128>,
    pub(super) commit: u64,
    pub(super) snapshot: (u64, u64),
    /// Term and data of the entries after the snapshot.
    pub(super) entries: Vec<(u64, Bytes)>,
}

/// A change asked for.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Append(Append),
    Snapshot(SnapshotMark),
    Forget,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { exists, term, vote, commit, snapshot, .. } = self;
        write!(f, "{exists} term {term} vote {vote:?} commit {commit} snapshot {snapshot:?} entries")?;
        // The first eight bytes of each entry are its tag.
        let tag = |data: &Bytes| data.iter().take(8).fold(0_u64, |tag, byte| tag << 8 | u64::from(*byte));
        self.entries.iter().try_for_each(|(term, data)| write!(f, " {term}:{}+{}", tag(data), data.len()))
    }
}

impl State {
    pub(super) fn last(&self) -> u64 {
        self.snapshot.0 + self.entries.len() as u64
    }

    pub(super) fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.snapshot.0 {
            return Some(self.snapshot.1);
        }
        let place = usize::try_from(index.checked_sub(self.snapshot.0 + 1)?).ok()?;
        self.entries.get(place).map(|(term, _)| *term)
    }

    fn cut_from(&mut self, index: u64) {
        let keep = usize::try_from(index.saturating_sub(self.snapshot.0 + 1)).unwrap_or(usize::MAX);
        self.entries.truncate(keep);
    }

    pub(super) fn change(&mut self, change: &Change) {
        match change {
            Change::Append(append) => self.append(append),
            Change::Snapshot(mark) => self.take_snapshot(*mark),
            Change::Forget => *self = Self::default(),
        }
    }

    fn append(&mut self, append: &Append) {
        self.exists = true;
        if let Some(from) = append.truncate_from {
            self.cut_from(from.0);
        }
        if let Some(first) = append.entries.first() {
            self.cut_from(first.index.0);
        }
        self.entries.extend(append.entries.iter().map(|entry| (entry.term.0, entry.data.clone())));
        if let Some(HardState { term, voted_for, commit }) = append.hard_state {
            (self.term, self.vote) = (term.0, voted_for.map(|node| node.0));
            self.commit = self.commit.max(commit.0);
        }
    }

    fn take_snapshot(&mut self, mark: SnapshotMark) {
        if mark.index.0 <= self.snapshot.0 {
            return;
        }
        self.exists = true;
        if self.term_at(mark.index.0) == Some(mark.term.0) {
            let covered = usize::try_from(mark.index.0 - self.snapshot.0).expect("entries fit in memory");
            self.entries.drain(..covered);
        } else {
            self.entries.clear();
        }
        self.snapshot = (mark.index.0, mark.term.0);
        self.commit = self.commit.max(mark.index.0);
        if mark.term.0 > self.term {
            (self.term, self.vote) = (mark.term.0, None);
        }
    }

    pub(super) fn hard_state(&self) -> HardState {
        let voted_for = self.vote.map(NodeId);
        HardState { term: Term(self.term), voted_for, commit: RaftIndex(self.commit) }
    }

    /// What the log shows of a group.
    pub(super) fn shown(log: &RaftLog, group: VnodeId, view: &GroupView) -> Self {
        let from = RaftIndex(view.snapshot.index.0 + 1);
        let entries = log.entries(group, from, RaftIndex(u64::MAX)).unwrap_or_default();
        Self {
            exists: true,
            term: view.hard_state.term.0,
            vote: view.hard_state.voted_for.map(|node| node.0),
            commit: view.hard_state.commit.0,
            snapshot: (view.snapshot.index.0, view.snapshot.term.0),
            entries: entries.into_iter().map(|entry| (entry.term.0, entry.data)).collect(),
        }
    }
}

/// What is known of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// What a later flush testifies to: not even a flipped bit may take it away silently.
    testified: State,
    /// Acknowledged in the last flush, in order.
    recent: Vec<Change>,
    /// `testified` continued by `recent`: what a power loss may not take away.
    acknowledged: State,
    /// Asked for and not answered, in order; snapshots are in `saving`.
    pub(super) waiting: Vec<(u64, Change)>,
    pub(super) saving: Option<(u64, SnapshotMark)>,
    /// The forget asked for while a snapshot was being saved: the snapshot falls before it or is not saved.
    pub(super) save_before: Option<u64>,
    /// The log said it cannot vouch for the group.
    pub(super) damaged: bool,
}

impl Known {
    /// What the log would show now, as far as it was told (a snapshot on its way is not counted).
    pub(super) fn accepted(&self) -> State {
        let mut state = self.acknowledged.clone();
        self.waiting.iter().for_each(|(_, change)| state.change(change));
        state
    }

    /// The change asked for by request `id` is durable; it must be the next one.
    pub(super) fn acknowledge(&mut self, id: u64) -> Result<(), String> {
        let change = match self.saving {
            Some((save, mark)) if save == id => {
                let forget = self.save_before.take();
                if forget.is_some_and(|forget| !self.waiting.iter().any(|(id, _)| *id == forget)) {
                    return Err(format!("request {id} saved a snapshot of a group that was forgotten"));
                }
                self.saving = None;
                Change::Snapshot(mark)
            }
            Some(_) | None => {
                if self.waiting.first().map(|(first, _)| *first) != Some(id) {
                    return Err(format!("request {id} was answered before an earlier one"));
                }
                self.waiting.remove(0).1
            }
        };
        self.acknowledged.change(&change);
        self.recent.push(change);
        Ok(())
    }

    /// Request `id` was refused: it changed nothing.
    pub(super) fn refuse(&mut self, id: u64) {
        self.waiting.retain(|(waiting, _)| *waiting != id);
        if self.saving.is_some_and(|(save, _)| save == id) {
            (self.saving, self.save_before) = (None, None);
        }
    }

    /// The log cannot vouch for the group; what was asked for will not be answered.
    pub(super) fn give_up(&mut self) {
        self.damaged = true;
        self.waiting.clear();
        (self.saving, self.save_before) = (None, None);
    }

    /// A later flush was acknowledged.
    pub(super) fn testify(&mut self) {
        self.recent.clear();
        self.testified.clone_from(&self.acknowledged);
    }

    /// What the group may look like after a restart.
    fn possible(&self, flipped: bool) -> Vec<State> {
        let save = self.saving.map(|(_, mark)| Change::Snapshot(mark));
        // Place of the forget that a snapshot being saved must not pass, among what waits.
        let before = self.save_before.map(|id| self.waiting.iter().position(|(waiting, _)| *waiting == id));
        let save = save.filter(|_| before != Some(None));
        let waiting = self.waiting.iter().map(|(_, change)| change);
        let places = before.flatten().unwrap_or(self.waiting.len());
        if flipped {
            let changes: Vec<&Change> = self.recent.iter().chain(waiting).collect();
            return continued(&self.testified, &changes, save.as_ref(), self.recent.len() + places);
        }
        continued(&self.acknowledged, &waiting.collect::<Vec<_>>(), save.as_ref(), places)
    }

    /// Judges what the log shows after a restart, and goes on from there.
    pub(super) fn settle(&mut self, shown: State, flipped: bool) -> Result<(), String> {
        let possible = self.possible(flipped);
        if !possible.contains(&shown) {
            let possible: Vec<String> = possible.iter().map(|state| format!("  {state}")).collect();
            return Err(format!("shows\n  {shown}\npossible are\n{}", possible.join("\n")));
        }
        *self = Self { testified: shown.clone(), acknowledged: shown, ..Self::default() };
        Ok(())
    }
}

/// `base`, continued by each prefix of `changes`, with the snapshot at each of the first places among them or
/// not at all.
fn continued(base: &State, changes: &[&Change], save: Option<&Change>, places: usize) -> Vec<State> {
    let mut possible = Vec::new();
    let places: Vec<Option<usize>> = match save {
        None => vec![None],
        Some(_) => (0..=places).map(Some).chain([None]).collect(),
    };
    for place in places {
        let mut state = base.clone();
        for at in 0..=changes.len() {
            possible.push(state.clone());
            if place == Some(at) {
                save.into_iter().for_each(|change| state.change(change));
                possible.push(state.clone());
            }
            if let Some(change) = changes.get(at) {
                state.change(change);
            }
        }
    }
    possible
}

/// Every group ever used.
pub(super) type Groups = BTreeMap<VnodeId, Known>;

/// The content of a snapshot, so that another one never passes for it.
pub(super) fn snapshot_data(group: VnodeId, mark: SnapshotMark) -> Bytes {
    let text = format!("state of group {group} at {} of term {}; ", mark.index, mark.term);
    let repeats = usize::try_from(mark.index.0 % 40).expect("below 40") + 1;
    Bytes::from(text.repeat(repeats))
}
