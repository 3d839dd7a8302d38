//! Streams: what must not wait for what.
//!
//! A stream is a class and a lane. Messages of one stream keep their order; streams do not wait for each other, and
//! control waits for nothing. A stream needs no opening: each side has every stream that can be named, which is why
//! their number is small.

use types::limits;

/// What a stream carries, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Raft and membership: goes first.
    Control,
    /// Requests and their answers.
    Request,
    /// Catch-up and snapshots.
    Bulk,
}

impl Class {
    fn number(self) -> u16 {
        match self {
            Self::Control => 1,
            Self::Request => 2,
            Self::Bulk => 3,
        }
    }

    /// Largest message of such a stream, bytes.
    pub(crate) fn message_bytes_max(self) -> usize {
        match self {
            Self::Control | Self::Request => limits::PEER_MESSAGE_BYTES_MAX,
            Self::Bulk => limits::PEER_BULK_MESSAGE_BYTES_MAX,
        }
    }

    /// Bytes of whole messages that may be on their way before another may begin.
    pub(crate) fn window(self) -> u64 {
        match self {
            Self::Control | Self::Request => limits::PEER_WINDOW_BYTES,
            Self::Bulk => limits::PEER_BULK_WINDOW_BYTES,
        }
    }
}

/// One stream of a connection; the other direction has its own of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    class: Class,
    lane: u16,
}

impl StreamId {
    /// The stream of a class that a number falls on: equal numbers keep their order.
    #[must_use]
    pub fn of(class: Class, number: u64) -> Self {
        let lane = u16::try_from(number % u64::from(limits::PEER_LANES_MAX)).expect("below the limit");
        Self { class, lane }
    }

    /// What it carries.
    #[must_use]
    pub fn class(self) -> Class {
        self.class
    }

    /// Its number in a frame; 0 is the connection itself.
    pub(crate) fn number(self) -> u32 {
        u32::from(self.class.number()) << 16 | u32::from(self.lane)
    }

    /// The stream of a number that came from outside.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        let class = match number >> 16 {
            1 => Class::Control,
            2 => Class::Request,
            3 => Class::Bulk,
            _ => return None,
        };
        let lane = (number & 0xffff) as u16;
        (lane < limits::PEER_LANES_MAX).then_some(Self { class, lane })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_one_number_and_few_numbers_are_streams() {
        let mut count = 0;
        for number in 0..0x5_0000 {
            if let Some(stream) = StreamId::from_number(number) {
                assert_eq!(stream.number(), number);
                count += 1;
            }
        }
        assert_eq!(count, 3 * u32::from(limits::PEER_LANES_MAX));
        assert_eq!(StreamId::from_number(u32::MAX), None);
        assert_eq!(StreamId::of(Class::Bulk, u64::MAX), StreamId::of(Class::Bulk, 15));
    }
}
