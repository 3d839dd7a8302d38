//! A push stream: where it stands, and how much may be on its way.

use bytes::Bytes;

use super::CallId;
use super::place::Place;

/// An open stream.
#[derive(Clone, Debug)]
pub(in super::super) struct Stream {
    /// The call that opened it.
    pub(in super::super) call: CallId,
    /// Index of the topic's name.
    pub(in super::super) name: Option<usize>,
    /// The life of it that is read; none while there is none.
    pub(in super::super) topic: Option<usize>,
    pub(in super::super) group: Bytes,
    pub(in super::super) member: Option<Bytes>,
    pub(in super::super) window: u32,
    pub(in super::super) max: u32,
    pub(in super::super) place: Place,
    /// Records pushed and not credited.
    pub(in super::super) in_flight: u32,
    /// The last push is not written.
    pub(in super::super) pushing: bool,
}

impl Stream {
    /// Whether the next push may come.
    pub(in super::super) fn may_push(&self) -> bool {
        !self.pushing && self.in_flight < self.window
    }

    /// Whether it reads as a member of that group.
    pub(in super::super) fn is_member(&self, topic: usize, group: &Bytes) -> bool {
        self.topic == Some(topic) && self.group == *group && self.member.is_some()
    }
}
