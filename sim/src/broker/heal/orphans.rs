//! What is left on the disk when the faults are over: the copies that topics list, and nothing else.

use storage::segment::layout;

use super::super::process::Process;
use super::super::world::World;
use crate::disk::Found;
use crate::disk::Side;
use crate::invariants::{Violation, p_37};

/// The longest pause between two tries of a removal, and some.
const RETRY: u64 = 70_000_000;
/// How long a start may take to remove what it found.
const SWEEP: u64 = 5_000_000;

impl World {
    /// A process that works removes what it was asked to, and a start removes what crashes have left.
    pub(super) fn leave_no_orphans(&mut self) -> Result<(), Violation> {
        // One that met what it cannot get over leaves its removals to the next.
        if !self.process.as_ref().is_some_and(Process::is_hopeless) {
            if self.unlisted() > 0 {
                self.pass(RETRY)?;
            }
            p_37::gone(self.unlisted())?;
        }
        self.end_process();
        self.until("the node serves", |world| world.process.as_ref().is_some_and(|process| process.ready))?;
        self.pass(SWEEP)?;
        p_37::gone(self.unlisted())?;
        let copies = self.process.as_ref().map_or(0, |process| process.node.gauges().store.copies);
        let is_copy = |name: &str, found: Found| found == Found::Dir && layout::parse_dir(name).is_some();
        let names = self.disks[0].list(Side::View);
        p_37::explained(names.iter().filter(|(name, found)| is_copy(name, **found)).count(), copies)
    }

    fn unlisted(&self) -> usize {
        self.process.as_ref().map_or(0, |process| process.node.gauges().unlisted_copies)
    }
}
