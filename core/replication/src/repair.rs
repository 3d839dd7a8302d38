//! How one copy of a sealed segment is made whole: made where there is none, filled where it is short, ended at the
//! recorded length, replaced where its bytes are damaged.
//!
//! Owns the order of steps for one copy. Does not choose which copies a segment should have, and changes no table:
//! whoever drives it puts a copy into a set only once it is whole.
//!
//! ```text
//! Fencing ─▶ (Making ─▶) Filling ─▶ Verifying ─▶ Ending ─▶ whole
//!    └ damaged ─▶ Proving (another copy) ─▶ Removing ─▶ Making
//! ```
//!
//! Invariants:
//! - nothing is removed before another copy was read through and found to hold exactly what was recorded;
//! - a copy that was made here or was filled is called whole only after it was read through itself;
//! - a copy that holds every record in other bytes than recorded is left as it is, and told.

use std::collections::VecDeque;

use types::{Epoch, NodeId, Offset};

use crate::standing::{Health, Standing};

/// What the tables say of a sealed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Offset of its first record.
    pub base: Offset,
    /// Exclusive.
    pub end: Offset,
    /// Bytes of its frames.
    pub bytes: u64,
}

impl Recorded {
    /// What there is to do about a copy that stands there.
    #[must_use]
    pub fn judge(&self, standing: &Standing) -> Judgement {
        let exact = (standing.end, standing.bytes) == (self.end, self.bytes);
        match standing.health {
            Health::OutOfService => Judgement::Replace,
            Health::Damaged => Judgement::Rebuild,
            Health::Sealed if exact => Judgement::Whole,
            Health::Sealed => Judgement::Suspect,
            Health::Open | Health::Stopped if standing.end > self.end || exact => Judgement::End,
            Health::Rebuilding if standing.end > self.end || exact => Judgement::Verify,
            Health::Open | Health::Stopped | Health::Rebuilding if standing.end == self.end => {
                Judgement::Suspect
            }
            Health::Open | Health::Rebuilding => Judgement::Fill,
            // It takes nothing until its process begins anew.
            Health::Stopped => Judgement::Replace,
        }
    }
}

/// What there is to do about a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing.
    Whole,
    /// It holds everything, and perhaps more, and is to be ended at the recorded length.
    End,
    /// The same, after it was read through.
    Verify,
    /// It lacks records.
    Fill,
    /// Its bytes are damaged.
    Rebuild,
    /// It can be neither filled nor trusted: another node should have one instead.
    Replace,
    /// It contradicts what was recorded.
    Suspect,
}

/// One copy being made whole.
#[derive(Clone, Debug)]
pub struct Repair {
    recorded: Recorded,
    target: NodeId,
    /// Those not tried yet, in order.
    sources: VecDeque<NodeId>,
    epoch: Epoch,
    stage: Stage,
    /// Its bytes were removed once; that is not done again.
    removed: bool,
    /// One that can be neither filled nor trusted is made anew where it is.
    anew: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Fencing,
    Proving(NodeId),
    Removing,
    Making,
    Filling(NodeId),
    Verifying,
    Ending,
    Over,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Fence the copy.
    Fence {
        /// Where.
        node: NodeId,
        /// Under which epoch.
        epoch: Epoch,
    },
    /// Make the copy, rebuilding.
    Make {
        /// Where.
        node: NodeId,
        /// Under which epoch.
        epoch: Epoch,
    },
    /// Remove the copy.
    Remove {
        /// Where.
        node: NodeId,
    },
    /// Carry records from one copy to another.
    Fill {
        /// Who holds them.
        from: NodeId,
        /// Who lacks them.
        to: NodeId,
        /// First record it lacks; the copy itself knows better.
        at: Offset,
        /// Under which epoch they are appended.
        epoch: Epoch,
    },
    /// Read a copy through.
    Verify {
        /// Whose.
        node: NodeId,
    },
    /// End the copy at the recorded length.
    Seal {
        /// Where.
        node: NodeId,
    },
    /// The copy is whole; nothing more is asked.
    Whole,
    /// It is not; nothing more is asked.
    Failed(Failure),
}

/// Why a copy was not made whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No other copy could give what it lacks.
    NoSource,
    /// It did not do what it was asked to.
    Target,
    /// Its device takes no writes, or it was declared out of service.
    OutOfService,
    /// It contradicts what was recorded.
    Suspect,
}

/// What came of what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was fenced, filled or ended, and stands there.
    Stands(Standing),
    /// A higher epoch was accepted before.
    Refused {
        /// It.
        epoch: Epoch,
    },
    /// There is no copy, or none any more.
    Missing,
    /// It was made.
    Made,
    /// It was to be made and is there.
    Exists,
    /// It was read through: records and bytes before the first damage.
    Verified {
        /// Records.
        records: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Whoever was to give records did not.
    SourceFailed,
    /// Damaged beyond telling.
    Unreadable,
    /// Nothing, or a failure.
    Silent,
}

impl Repair {
    /// A copy to be made whole. `sources` are other nodes whose copies may be whole, the best first; `epoch` is higher
    /// than any the segment's primary appended under.
    #[must_use]
    pub fn new(
        recorded: Recorded,
        target: NodeId,
        sources: impl IntoIterator<Item = NodeId>,
        epoch: Epoch,
    ) -> Self {
        let sources = sources.into_iter().filter(|node| *node != target).collect();
        Self { recorded, target, sources, epoch, stage: Stage::Fencing, removed: false, anew: false }
    }

    /// A copy that should be replaced, and that no other node can take the place of: it is made anew where it is, like
    /// one whose bytes are damaged.
    #[must_use]
    pub fn anew(self) -> Self {
        Self { anew: true, ..self }
    }

    /// The first thing to do.
    #[must_use]
    pub fn begin(&mut self) -> Ask {
        self.stage = Stage::Fencing;
        Ask::Fence { node: self.target, epoch: self.epoch }
    }

    /// What to do after what was asked last was answered.
    #[must_use]
    pub fn answered(&mut self, answer: Answer) -> Ask {
        match (self.stage, answer) {
            (Stage::Fencing, Answer::Stands(standing)) => self.fenced(standing),
            (Stage::Fencing, Answer::Missing) => self.make(),
            (Stage::Fencing | Stage::Filling(_), Answer::Refused { epoch }) if epoch > self.epoch => {
                self.epoch = epoch;
                self.begin()
            }
            (Stage::Fencing, Answer::Unreadable) => self.prove(),
            (Stage::Proving(_), Answer::Verified { records, bytes }) if self.is_all(records, bytes) => {
                self.stage = Stage::Removing;
                Ask::Remove { node: self.target }
            }
            (Stage::Proving(_), _) => self.prove(),
            // What cannot be read is no copy that could be removed: making one writes over it.
            (Stage::Removing, Answer::Missing | Answer::Unreadable) => {
                self.removed = true;
                self.make()
            }
            (Stage::Making, Answer::Made) => {
                self.removed = true;
                self.fill(self.recorded.base)
            }
            (Stage::Making, Answer::Exists) => self.begin(),
            (Stage::Filling(_), Answer::Stands(standing)) => self.filled(standing),
            (Stage::Filling(_), Answer::SourceFailed) => self.fill(self.recorded.base),
            (Stage::Verifying, Answer::Verified { records, bytes }) if self.is_all(records, bytes) => {
                self.end()
            }
            (Stage::Verifying, Answer::Verified { .. }) => self.fail(Failure::Suspect),
            (Stage::Ending, Answer::Stands(standing))
                if self.recorded.judge(&standing) == Judgement::Whole =>
            {
                self.stage = Stage::Over;
                Ask::Whole
            }
            (
                Stage::Fencing
                | Stage::Removing
                | Stage::Making
                | Stage::Filling(_)
                | Stage::Verifying
                | Stage::Ending
                | Stage::Over,
                _,
            ) => self.fail(Failure::Target),
        }
    }

    fn is_all(&self, records: u64, bytes: u64) -> bool {
        records == self.recorded.end.since(self.recorded.base) && bytes == self.recorded.bytes
    }

    fn fenced(&mut self, standing: Standing) -> Ask {
        self.epoch = self.epoch.max(standing.epoch);
        match self.recorded.judge(&standing) {
            Judgement::Whole => {
                self.stage = Stage::Over;
                Ask::Whole
            }
            Judgement::End => self.end(),
            Judgement::Verify if standing.end == self.recorded.end => self.verify(),
            // What it has too much of cannot be told from what it should have until it is cut off.
            Judgement::Verify => self.end(),
            Judgement::Fill => self.fill(standing.end),
            Judgement::Rebuild => self.prove(),
            Judgement::Replace if self.anew && !self.removed => self.prove(),
            Judgement::Replace => self.fail(Failure::OutOfService),
            Judgement::Suspect => self.fail(Failure::Suspect),
        }
    }

    fn filled(&mut self, standing: Standing) -> Ask {
        match self.recorded.judge(&standing) {
            Judgement::Whole | Judgement::End | Judgement::Verify => self.verify(),
            // Whoever gave records had no more; perhaps another has.
            Judgement::Fill => self.fill(standing.end),
            Judgement::Rebuild | Judgement::Replace => self.fail(Failure::Target),
            Judgement::Suspect => self.fail(Failure::Suspect),
        }
    }

    fn fill(&mut self, at: Offset) -> Ask {
        if self.recorded.base == self.recorded.end {
            return self.verify();
        }
        let Some(from) = self.sources.pop_front() else { return self.fail(Failure::NoSource) };
        self.stage = Stage::Filling(from);
        Ask::Fill { from, to: self.target, at, epoch: self.epoch }
    }

    /// The next that may show that the damaged copy is not needed.
    fn prove(&mut self) -> Ask {
        if self.removed {
            return self.fail(Failure::Target);
        }
        let last = match self.stage {
            Stage::Proving(node) => Some(node),
            Stage::Fencing
            | Stage::Removing
            | Stage::Making
            | Stage::Filling(_)
            | Stage::Verifying
            | Stage::Ending
            | Stage::Over => None,
        };
        // The one that fails here is no source later.
        if let Some(last) = last {
            self.sources.retain(|node| *node != last);
        }
        let Some(node) = self.sources.front().copied() else { return self.fail(Failure::NoSource) };
        self.stage = Stage::Proving(node);
        Ask::Verify { node }
    }

    fn make(&mut self) -> Ask {
        // What would be made and could not be filled only stands in the way.
        if self.sources.is_empty() && self.recorded.base != self.recorded.end {
            return self.fail(Failure::NoSource);
        }
        self.stage = Stage::Making;
        Ask::Make { node: self.target, epoch: self.epoch }
    }

    fn verify(&mut self) -> Ask {
        self.stage = Stage::Verifying;
        Ask::Verify { node: self.target }
    }

    fn end(&mut self) -> Ask {
        self.stage = Stage::Ending;
        Ask::Seal { node: self.target }
    }

    fn fail(&mut self, failure: Failure) -> Ask {
        self.stage = Stage::Over;
        Ask::Failed(failure)
    }
}

#[cfg(test)]
mod tests;
