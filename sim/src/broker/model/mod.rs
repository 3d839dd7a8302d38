//! What clients asked and what the node answered: all the truth there is.
//!
//! The model knows topics, records in the order their requests reached the node, and positions. It knows no
//! segments' bytes, no log and no recovery. An outcome nobody was told stays unknown until somebody reads; what
//! was read once, or passed over once, stays so for ever.

mod group;
mod segments;
mod topic;

use std::collections::BTreeMap;

use bytes::Bytes;

pub(super) use group::Group;
pub(super) use segments::Segments;
pub(super) use topic::{Existence, Topic};

/// Number of a call.
pub(super) type CallId = usize;

/// Number of a process lifetime; a power loss is known by the lifetimes it lies between.
pub(super) type Life = u32;

/// A place in a topic that a token stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// Index of the topic.
    pub(super) topic: usize,
    /// Records before it.
    pub(super) at: u64,
}

/// Everything known.
#[derive(Debug)]
pub(super) struct Model {
    /// By index of its name.
    pub(super) topics: Vec<Topic>,
    pub(super) segments: Segments,
    /// What each token stands for that a fetch gave out.
    pub(super) tokens: BTreeMap<Bytes, Position>,
    /// The same tokens in the order they were given out.
    pub(super) given: Vec<Bytes>,
    pub(super) life: Life,
    /// The last lifetime that ended in a power loss.
    pub(super) power_lost: Option<Life>,
}

impl Model {
    pub(super) fn new(names: &[&'static str]) -> Self {
        Self {
            topics: names.iter().map(|name| Topic::new(name)).collect(),
            segments: Segments::default(),
            tokens: BTreeMap::new(),
            given: Vec::new(),
            life: 0,
            power_lost: None,
        }
    }

    /// The process has ended: nobody will ever be told what became of what was asked.
    pub(super) fn life_ended(&mut self, power: bool) {
        for topic in &mut self.topics {
            topic.life_ended(self.life);
        }
        self.segments.life_ended();
        if power {
            self.power_lost = Some(self.life);
        }
        self.life += 1;
    }
}
