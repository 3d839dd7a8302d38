//! What groups ask of the log: one function for each kind of request.

use bytes::Bytes;
use rand::Rng;
use rand::rngs::SmallRng;
use storage::raft_log::{Append, Entry, HardState, SnapshotMark};
use types::{NodeId, RaftIndex, Term, VnodeId};

use super::model::{Change, State};
use super::world::World;

/// Groups of a run.
pub(super) const GROUPS: u64 = 7;

/// Makes one random request of one random group.
pub(super) fn ask(world: &mut World, rng: &mut SmallRng) {
    // Some groups are busy and some idle.
    let group = VnodeId(1 + rng.random_range(0..GROUPS).min(rng.random_range(0..GROUPS)));
    let known = world.groups.entry(group).or_default();
    if known.damaged {
        if rng.random_bool(0.3) {
            world.change(group, Change::Forget);
        }
        return;
    }
    let state = known.accepted();
    // A snapshot that replaces the log is on its way: a member waits for it.
    let replacing = known.saving.is_some_and(|(_, mark)| mark.index.0 > state.last());
    let (saving, quiet) = (known.saving.is_some(), known.waiting.is_empty());
    if replacing {
        return;
    }
    match rng.random_range(0..100) {
        0..50 => {
            let append = entries(world, rng, &state, state.last() + 1);
            world.change(group, Change::Append(append));
        }
        50..62 => world.change(group, Change::Append(vote(rng, &state))),
        62..70 if state.last() > state.commit => {
            let from = rng.random_range(state.commit + 1..=state.last());
            let append = conflict(world, rng, &state, from);
            world.change(group, Change::Append(append));
        }
        70..84 if !saving && state.commit > state.snapshot.0 => {
            let index = rng.random_range(state.snapshot.0 + 1..=state.commit);
            let term = state.term_at(index).expect("what is committed after the snapshot is an entry");
            world.save(group, SnapshotMark { index: RaftIndex(index), term: Term(term) });
        }
        84..88 if !saving && quiet => {
            let index = state.last() + rng.random_range(1..20);
            let term = state.term.max(1) + rng.random_range(0..2);
            world.save(group, SnapshotMark { index: RaftIndex(index), term: Term(term) });
        }
        88..94 => world.load(group),
        94..96 => world.mark(),
        96..97 => world.change(group, Change::Forget),
        _ => {}
    }
}

fn entries(world: &mut World, rng: &mut SmallRng, state: &State, first: u64) -> Append {
    let before = if first == 0 { 0 } else { state.term_at(first - 1).unwrap_or_default() };
    let term = state.term.max(1).max(before);
    let count = rng.random_range(1..5);
    let entry = |index| Entry { index: RaftIndex(index), term: Term(term), data: data(world, rng) };
    let entries: Vec<Entry> = (first..first + count).map(entry).collect();
    let commit = RaftIndex(rng.random_range(state.commit..first + count));
    let hard = HardState { commit, ..state.hard_state() };
    let changes = term != state.term || rng.random_bool(0.6);
    let hard_state = changes.then_some(if term == state.term { hard } else { raised(rng, term, commit) });
    Append { entries, hard_state, ..Append::default() }
}

fn raised(rng: &mut SmallRng, term: u64, commit: RaftIndex) -> HardState {
    let voted_for = rng.random_bool(0.8).then(|| NodeId(rng.random_range(1..4)));
    HardState { term: Term(term), voted_for, commit }
}

fn vote(rng: &mut SmallRng, state: &State) -> Append {
    let term = state.term + rng.random_range(1..3);
    let hard_state = Some(raised(rng, term, RaftIndex(state.commit)));
    Append { hard_state, ..Append::default() }
}

/// A new leader's entries replace some that were not committed; or they are only cut off.
fn conflict(world: &mut World, rng: &mut SmallRng, state: &State, from: u64) -> Append {
    let truncate_from = rng.random_bool(0.5).then_some(RaftIndex(from));
    if truncate_from.is_some() && rng.random_bool(0.5) {
        return Append { truncate_from, ..Append::default() };
    }
    let mut kept = state.clone();
    kept.term = state.term + 1;
    let mut append = entries(world, rng, &kept, from);
    append.truncate_from = truncate_from;
    append.hard_state = Some(raised(rng, kept.term, RaftIndex(state.commit)));
    append
}

/// Unlike all other data of the run; sometimes long, sometimes made of the log's own bytes, as a client might
/// send that wants its entry taken for a record.
fn data(world: &mut World, rng: &mut SmallRng) -> Bytes {
    let mut data = world.next_tag().to_be_bytes().to_vec();
    if rng.random_bool(0.1) {
        data.extend(world.stolen_bytes(rng));
    }
    let len = if rng.random_bool(0.05) { rng.random_range(200..1500) } else { rng.random_range(0..40) };
    data.extend(std::iter::repeat_n(0x5a, len));
    data.into()
}
