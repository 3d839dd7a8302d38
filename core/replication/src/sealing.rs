//! How a segment ends when its primary cannot end it: fence, find the end, fill, record.
//!
//! Owns whom to ask what, and which end is recorded. Does not know of records, tables or time: whoever drives it asks
//! the copies, proposes the seal, and begins again later when it gave up.
//!
//! With `N` copies a record is acknowledged when `Q = N/2+1` have it, so any `R = N-Q+1` fenced copies leave too few to
//! acknowledge anything more, and one of them at least holds each record that ever was.
//!
//! ```text
//! begin ─▶ Fencing ── R count ──▶ Filling ── R hold the end ──▶ Committing
//!             ▲ │                    │
//!             │ └▶ gave up           │ its source failed: without it
//!             └──────────────────────┘
//! ```
//!
//! Invariants:
//! - an end is chosen only from `R` copies that are fenced, intact and were never made anew, with one exception;
//! - the exception is copies that hold nothing because they were only now made, or were made anew: they count when a
//!   majority answered and nobody of it holds a record, or when every copy answered. A directory that somebody removed
//!   must not hide what it acknowledged. (It still does where the others of that majority never had a record either.)
//! - the end is recorded only once `R` copies hold everything below it;
//! - the fence never goes back; doing all of it twice, by two at once, changes no outcome but the first one recorded.

use std::collections::BTreeMap;

use types::{Epoch, NodeId, Offset, quorum};

use crate::standing::{Health, Standing};

/// Fences that were refused for the sake of a higher epoch before it is left to another time.
const RAISES_MAX: u32 = 16;

/// One segment being ended.
#[derive(Clone, Debug)]
pub struct Sealing {
    base: Offset,
    /// All different, in the order of the tables.
    replicas: Vec<NodeId>,
    epoch: Epoch,
    /// Answers to what was asked in an earlier round say nothing.
    round: u32,
    /// The same of carrying records, which may begin anew within a round.
    fill_round: u32,
    raises: u32,
    copies: BTreeMap<NodeId, Copy>,
    /// Whether all that may still answer are waited for.
    is_patient: bool,
    stage: Stage,
}

/// What is known of a copy in this round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    /// It was asked for its fence, or is being made.
    Asked,
    /// Fenced, and counts.
    Sound { end: Offset, bytes: u64, health: Health },
    /// Fenced; what it once acknowledged may be gone.
    Blank { end: Offset, bytes: u64 },
    /// It answered nothing that counts, or does not answer.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Fencing,
    Filling { end: Offset, bytes: u64, source: NodeId, whole: Vec<NodeId>, left: Vec<NodeId> },
    Committing,
    GaveUp,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Ask for the fence; the answer goes to [`Sealing::answered`].
    Fence {
        /// Whom.
        node: NodeId,
        /// Under which epoch.
        epoch: Epoch,
    },
    /// Make the copy, rebuilding and fenced; the answer goes to [`Sealing::answered`].
    Make {
        /// Where.
        node: NodeId,
        /// Under which epoch.
        epoch: Epoch,
    },
    /// Carry records from one copy to another; what came of it goes to [`Sealing::filled`].
    Fill {
        /// Who holds them.
        from: NodeId,
        /// Who lacks them.
        to: NodeId,
        /// First record it lacks; the copy itself knows better.
        at: Offset,
        /// Where to stop, exclusive.
        end: Offset,
        /// Under which epoch they are appended.
        epoch: Epoch,
        /// What the answer carries.
        round: u32,
    },
    /// Record the end; nothing more is asked.
    Commit(Verdict),
    /// Begin again later; nothing more is asked until then.
    GiveUp(Short),
}

/// Where the segment ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Exclusive.
    pub end: Offset,
    /// Bytes of the frames below it.
    pub bytes: u64,
    /// The replicas, those that hold everything first.
    pub replicas: Vec<NodeId>,
    /// How many do; at least `R`.
    pub whole: usize,
}

/// Why no end could be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// Copies that counted.
    pub counted: usize,
    /// Copies that have to.
    pub needed: usize,
}

/// What a copy answered to a fence, or to being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The fence is durable, and the copy stands there.
    Fenced(Standing),
    /// A higher epoch was accepted before.
    Refused {
        /// It.
        epoch: Epoch,
    },
    /// There is no copy.
    Missing,
    /// It was made.
    Made,
    /// It was to be made and is there.
    Exists,
    /// Damaged beyond telling.
    Unreadable,
    /// Nothing, or a failure.
    Silent,
}

/// What came of carrying records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Everything asked for is durable there, and it stands there.
    Whole(Standing),
    /// Whoever holds the records could not give them.
    SourceFailed,
    /// Whoever lacks them did not take them.
    TargetFailed,
    /// The same, for the sake of a higher epoch.
    Refused {
        /// It.
        epoch: Epoch,
    },
}

impl Sealing {
    /// A segment to be ended, of which nothing is known yet. `replicas` holds at least one node and each once; `epoch`
    /// is higher than any its primary appends under.
    #[must_use]
    pub fn new(base: Offset, replicas: Vec<NodeId>, epoch: Epoch) -> Self {
        let copies = replicas.iter().map(|node| (*node, Copy::Lost)).collect();
        let stage = Stage::GaveUp;
        Self { base, replicas, epoch, round: 0, fill_round: 0, raises: 0, copies, is_patient: false, stage }
    }

    /// The same, waiting for all that may answer until [`Sealing::go_on`]. `R` copies are enough as long as each holds
    /// what it acknowledged; one that was cut short where nobody can see it, beside one that was behind, is no reason to
    /// lose what the third has.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.is_patient = true;
        self
    }

    /// Whoever has not answered is not waited for any more, as soon as enough have.
    #[must_use]
    pub fn go_on(&mut self) -> Vec<Ask> {
        self.is_patient = false;
        if self.stage == Stage::Fencing { self.decide() } else { Vec::new() }
    }

    /// What the answers to fences and to being made carry, of those that are asked for from now on.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.round
    }

    /// The epoch of its fence; never goes back.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Begins, or begins again, at the fence.
    #[must_use]
    pub fn begin(&mut self) -> Vec<Ask> {
        self.raises = 0;
        self.fence()
    }

    fn fence(&mut self) -> Vec<Ask> {
        self.round += 1;
        self.stage = Stage::Fencing;
        self.copies.values_mut().for_each(|copy| *copy = Copy::Asked);
        let epoch = self.epoch;
        self.replicas.iter().map(|node| Ask::Fence { node: *node, epoch }).collect()
    }

    /// A copy answered, or will not.
    #[must_use]
    pub fn answered(&mut self, round: u32, node: NodeId, answer: Answer) -> Vec<Ask> {
        if round != self.round || self.copies.get(&node) != Some(&Copy::Asked) {
            return Vec::new();
        }
        let epoch = self.epoch;
        let copy = match answer {
            Answer::Fenced(standing) => copy_of(standing),
            Answer::Refused { epoch } => return self.raise(epoch),
            Answer::Missing => return vec![Ask::Make { node, epoch }],
            Answer::Exists => return vec![Ask::Fence { node, epoch }],
            Answer::Made => Copy::Blank { end: self.base, bytes: 0 },
            Answer::Unreadable | Answer::Silent => Copy::Lost,
        };
        self.copies.insert(node, copy);
        if self.stage == Stage::Fencing { self.decide() } else { Vec::new() }
    }

    /// The same epoch as another's serves both: what matters is that it is above the primary's.
    fn raise(&mut self, epoch: Epoch) -> Vec<Ask> {
        match self.stage {
            Stage::Fencing | Stage::Filling { .. } => {}
            Stage::Committing | Stage::GaveUp => return Vec::new(),
        }
        self.epoch = self.epoch.max(epoch);
        self.raises += 1;
        if self.raises > RAISES_MAX { self.give_up(0) } else { self.fence() }
    }

    /// Copies that were asked for their fence and have not answered.
    pub fn unanswered(&self) -> impl Iterator<Item = NodeId> {
        self.copies.iter().filter(|(_, copy)| **copy == Copy::Asked).map(|(node, _)| *node)
    }

    fn needed(&self) -> usize {
        quorum::seal_count(self.replicas.len())
    }

    fn give_up(&mut self, counted: usize) -> Vec<Ask> {
        self.stage = Stage::GaveUp;
        self.round += 1;
        vec![Ask::GiveUp(Short { counted, needed: self.needed() })]
    }

    /// Chooses the end, once that can be done.
    fn decide(&mut self) -> Vec<Ask> {
        let needed = self.needed();
        let sound = self.held(|copy| matches!(copy, Copy::Sound { .. }));
        if sound.len() >= needed && !(self.is_patient && self.is_answering()) {
            return self.choose(&sound);
        }
        if self.is_answering() {
            return Vec::new();
        }
        let held = self.held(|copy| matches!(copy, Copy::Sound { .. } | Copy::Blank { .. }));
        let majority = quorum::ack_count(self.replicas.len());
        let nothing_is_held = held.iter().all(|held| held.end == self.base);
        if (held.len() >= majority && nothing_is_held) || held.len() == self.replicas.len() {
            return self.choose(&held);
        }
        self.give_up(sound.len())
    }

    fn is_answering(&self) -> bool {
        self.copies.values().any(|copy| *copy == Copy::Asked)
    }

    fn held(&self, counts: impl Fn(&Copy) -> bool) -> Vec<Held> {
        let held = |node: &NodeId| match self.copies.get(node).filter(|copy| counts(copy)) {
            Some(Copy::Sound { end, bytes, health }) => {
                let takes = matches!(health, Health::Open);
                Some(Held { node: *node, end: *end, bytes: *bytes, takes })
            }
            Some(Copy::Blank { end, bytes }) => {
                Some(Held { node: *node, end: *end, bytes: *bytes, takes: true })
            }
            Some(Copy::Asked | Copy::Lost) | None => None,
        };
        self.replicas.iter().filter_map(held).collect()
    }

    fn choose(&mut self, counted: &[Held]) -> Vec<Ask> {
        // The first of those that reach furthest: the primary, when it is one of them.
        let Some(source) = counted.iter().rev().max_by_key(|held| held.end).copied() else {
            return self.give_up(0);
        };
        let (end, bytes) = (source.end, source.bytes);
        let is_whole = |held: &&Held| held.end == end;
        let whole: Vec<NodeId> = counted.iter().filter(is_whole).map(|held| held.node).collect();
        let short: Vec<Held> = counted.iter().filter(|held| held.end < end && held.takes).copied().collect();
        let can_hold = whole.len() + short.len();
        if can_hold < self.needed() {
            return if self.is_answering() { Vec::new() } else { self.give_up(can_hold) };
        }
        let left = short.iter().map(|held| held.node).collect();
        let (epoch, from) = (self.epoch, source.node);
        self.stage = Stage::Filling { end, bytes, source: from, whole, left };
        self.fill_round += 1;
        let commit = self.commit_when_held();
        if !commit.is_empty() {
            return commit;
        }
        let round = self.fill_round;
        let fill = |held: &Held| Ask::Fill { from, to: held.node, at: held.end, end, epoch, round };
        short.iter().map(fill).collect()
    }

    /// Records were carried to a copy, or not.
    #[must_use]
    pub fn filled(&mut self, round: u32, to: NodeId, result: Filled) -> Vec<Ask> {
        let Stage::Filling { end, bytes, source, whole, left } = &mut self.stage else { return Vec::new() };
        if round != self.fill_round || !left.contains(&to) {
            return Vec::new();
        }
        left.retain(|node| *node != to);
        match result {
            Filled::Whole(standing) if (standing.end, standing.bytes) == (*end, *bytes) => {
                whole.push(to);
                self.copies.insert(to, copy_of(standing));
                return self.commit_when_held();
            }
            Filled::Refused { epoch } => return self.raise(epoch),
            // What only it held was never acknowledged: those that are left are enough, or they are not.
            Filled::SourceFailed => drop(self.copies.insert(*source, Copy::Lost)),
            // Another length at the same end is damage that no checksum shows.
            Filled::Whole(_) | Filled::TargetFailed => {
                self.copies.insert(to, Copy::Lost);
                let enough = whole.len() + left.len() >= quorum::seal_count(self.replicas.len());
                if enough {
                    return Vec::new();
                }
            }
        }
        self.stage = Stage::Fencing;
        self.decide()
    }

    fn commit_when_held(&mut self) -> Vec<Ask> {
        let Stage::Filling { end, bytes, whole, .. } = &self.stage else { return Vec::new() };
        if whole.len() < self.needed() {
            return Vec::new();
        }
        let (end, bytes, count) = (*end, *bytes, whole.len());
        let mut replicas: Vec<NodeId> = self.replicas.clone();
        // A stable order: among equals the earlier.
        replicas.sort_by_key(|node| !whole.contains(node));
        self.stage = Stage::Committing;
        self.round += 1;
        vec![Ask::Commit(Verdict { end, bytes, replicas, whole: count })]
    }
}

/// A copy that counts.
#[derive(Clone, Copy, Debug)]
struct Held {
    node: NodeId,
    end: Offset,
    bytes: u64,
    /// Whether it takes what it lacks.
    takes: bool,
}

fn copy_of(standing: Standing) -> Copy {
    let Standing { end, bytes, health, .. } = standing;
    match health {
        Health::Open | Health::Stopped | Health::Sealed => Copy::Sound { end, bytes, health },
        Health::Rebuilding => Copy::Blank { end, bytes },
        Health::Damaged | Health::OutOfService => Copy::Lost,
    }
}

#[cfg(test)]
mod tests;
