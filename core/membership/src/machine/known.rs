//! What is known of one member, beside what the engine knows.

use types::Instant;

use crate::engine::Identity;
use crate::event::Status;

/// A member.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) identity: Identity,
    /// How often it said within this incarnation that it lives although it was suspected.
    pub(super) refutations: u16,
    pub(super) status: Status,
    /// Since when its identity is this.
    pub(super) since: Instant,
    /// A suspect's death; a dead member's end.
    pub(super) deadline: Option<Instant>,
    /// When a suspect is asked next.
    pub(super) ask_at: Option<Instant>,
    /// It is not in the list of members any more.
    pub(super) is_unlisted: bool,
    pub(super) window: Window,
}

impl Known {
    pub(super) fn new(identity: Identity, now: Instant) -> Self {
        Self {
            identity,
            refutations: 0,
            status: Status::Alive,
            since: now,
            deadline: None,
            ask_at: None,
            is_unlisted: false,
            window: Window::default(),
        }
    }
}

/// Numbers of the packets received from one process, so that each counts once.
///
/// A packet that is older than the last thousand counts as received: on any network that is worth the name it was lost
/// long ago.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// Of the sender, when it sent the newest.
    incarnation: u64,
    /// One above the highest; 0 for none yet.
    next: u64,
    seen: [u64; 16],
}

impl Window {
    const BITS: u64 = 64 * 16;

    /// Whether this packet is received for the first time.
    pub(super) fn take(&mut self, incarnation: u64, sequence: u64) -> bool {
        if incarnation < self.incarnation {
            return false;
        }
        // Numbers go on through the incarnations of one process, and begin again with the next process, whose
        // incarnation is higher. A lower number of a higher incarnation is that.
        if incarnation > self.incarnation && sequence < self.next {
            *self = Self::default();
        }
        self.incarnation = incarnation;
        if sequence >= self.next {
            let from = self.next.max(sequence.saturating_sub(Self::BITS - 1));
            for number in from..=sequence {
                self.set(number, false);
            }
            self.next = sequence.saturating_add(1);
        } else if self.next - sequence > Self::BITS || self.is_set(sequence) {
            return false;
        }
        self.set(sequence, true);
        true
    }

    fn set(&mut self, number: u64, to: bool) {
        let (word, bit) = Self::place(number);
        if to {
            self.seen[word] |= bit;
        } else {
            self.seen[word] &= !bit;
        }
    }

    fn is_set(&self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        self.seen[word] & bit != 0
    }

    fn place(number: u64) -> (usize, u64) {
        let at = number % Self::BITS;
        (usize::try_from(at / 64).expect("below sixteen"), 1 << (at % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_counts_once_in_any_order() {
        let mut window = Window::default();
        for sequence in [5, 3, 900, 4, 899, 2000] {
            assert!(window.take(1, sequence), "{sequence}");
            assert!(!window.take(1, sequence), "{sequence}");
        }
        assert!(!window.take(1, 3), "too old to tell");
        assert!(window.take(1, 1500) && !window.take(1, 1500));
        assert!(window.take(1, 1 << 40) && !window.take(1, 2000));
    }

    #[test]
    fn a_new_process_counts_from_the_beginning_and_an_old_one_does_not_come_back() {
        let mut window = Window::default();
        assert!(window.take(1, 100) && window.take(2, 101), "renewed");
        assert!(window.take(9, 0) && window.take(9, 101), "restarted");
        assert!(!window.take(2, 102) && !window.take(9, 0));
    }
}
