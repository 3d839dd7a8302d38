//! What can be said of a copy without asking the disk.

use types::WallTime;

use super::unread::Identity;
use super::{Copy, Task};
use crate::format::meta::Meta;
use crate::store::{Extent, Gauges, State, Status};

impl Copy {
    /// What there is of the copy.
    pub(in crate::store) fn status(&self) -> Status {
        let creating = matches!(self.task.as_deref(), Some(Task::Create(_)));
        match self.identity {
            Identity::Unread(_) => Status::Unread,
            Identity::Unreadable => Status::Unreadable,
            Identity::Known if creating => Status::Creating,
            Identity::Known if self.meta.deleting => Status::Deleting,
            Identity::Known => Status::Here(self.extent()),
        }
    }

    /// Where the copy stands. For an unsealed copy that has not been opened, only what `copy.meta` says.
    pub(in crate::store) fn extent(&self) -> Extent {
        let (end, bytes) = match &self.log {
            Some(log) if self.meta.sealed_at.is_none() => (log.synced.end, log.synced.position),
            Some(_) | None => (self.meta.durable_end, self.meta.durable_position),
        };
        let last_append =
            self.log.as_ref().map(|log| log.last_time).filter(|time| *time > WallTime::default());
        let last_append = last_append.max(self.meta.sealed_at);
        let Meta { base, epoch, rebuilding, .. } = self.meta;
        Extent { base, end, bytes, epoch, last_append, rebuilding, state: self.state() }
    }

    fn state(&self) -> State {
        let stopped = self.log.as_ref().and_then(|log| log.stopped);
        match (self.meta.latched, self.meta.sealed_at, stopped) {
            (Some(reason), _, _) => State::Latched(reason),
            (None, Some(_), _) => State::Sealed,
            (None, None, Some(reason)) => State::Stopped(reason),
            (None, None, None) => State::Active,
        }
    }

    /// Adds what the copy holds to the store's numbers.
    pub(in crate::store) fn count(&self, gauges: &mut Gauges) {
        gauges.queued += self.queue.len();
        gauges.reads += self.reads as usize;
        if let Some(log) = &self.log {
            gauges.unanswered += log.unanswered.len();
            gauges.held_bytes += log.appended.position.saturating_sub(log.written.position);
        }
    }
}
