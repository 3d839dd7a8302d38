//! A group's position on a topic.
//!
//! Positions are taken in the order they reach the node, so an acknowledged one replaces all before it. One
//! whose answer never came may turn up, but only at the next start: within a lifetime the log that failed takes
//! nothing more.

use super::{CallId, Life};

/// Where a group may stand.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Group {
    /// What was acknowledged last, or seen last.
    position: u64,
    /// On their way, in order.
    pending: Vec<(CallId, u64)>,
    /// May have been taken, in order.
    unknown: Vec<(Life, u64)>,
    /// Counts changes, so that a page asked for before one is not held against what came after.
    version: u64,
}

impl Group {
    pub(in super::super) fn asked(&mut self, call: CallId, position: u64) {
        self.pending.push((call, position));
    }

    fn take(&mut self, call: CallId) -> Option<u64> {
        let at = self.pending.iter().position(|(id, _)| *id == call)?;
        Some(self.pending.remove(at).1)
    }

    pub(in super::super) fn acknowledged(&mut self, call: CallId) {
        if let Some(position) = self.take(call) {
            self.position = position;
            self.unknown.clear();
            self.version += 1;
        }
    }

    pub(in super::super) fn failed(&mut self, call: CallId, life: Life, unknown: bool) {
        if let Some(position) = self.take(call)
            && unknown
        {
            self.unknown.push((life, position));
            self.version += 1;
        }
    }

    pub(in super::super) fn life_ended(&mut self, life: Life) {
        self.unknown.extend(self.pending.drain(..).map(|(_, position)| (life, position)));
        self.version += 1;
    }

    /// Positions a page asked for now may begin at, and the version to hand back with what it showed.
    pub(in super::super) fn allowed(&self, life: Life) -> (Vec<u64>, u64) {
        let decided = self.unknown.iter().filter(|(then, _)| *then < life).map(|(_, position)| *position);
        (std::iter::once(self.position).chain(decided).collect(), self.version)
    }

    /// A page that was asked for at `version` began at an allowed position: what was unknown is decided.
    pub(in super::super) fn seen(&mut self, position: u64, life: Life, version: u64) {
        if self.version == version {
            self.position = position;
            self.unknown.retain(|(then, _)| *then >= life);
            self.version += 1;
        }
    }
}
