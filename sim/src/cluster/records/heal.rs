//! When everything has healed: every client hears its answer, every reader gets everything, from every node, and
//! every sealed segment is settled.
//!
//! How long it may take is this judge's to say: three minutes for whoever reads on, and the same for the disks.

use std::collections::BTreeSet;

use super::consume::Reader;
use super::model::shown;
use crate::cluster::world::{Happening, World};
use crate::invariants::{Violation, ensure};

/// How long each part may take, microseconds.
const PATIENCE: u64 = 180_000_000;
const STEP: u64 = 500_000;

impl World {
    /// Nothing goes wrong any more.
    pub(in crate::cluster) fn heal_records(&mut self) -> Result<(), Violation> {
        if self.records.mix.is_none() {
            return Ok(());
        }
        self.records.is_over = true;
        if self.is_story {
            self.later(1, Happening::Records);
        }
        self.every_node_takes_records()?;
        self.wait_for(|world| {
            let asked = world.records.waiting.values().next();
            Ok(asked.filter(|_| !world.is_quiet_but_for_readers()).map(|asked| format!("{asked:?} waits")))
        })?;
        // Whoever began at the beginning, and somebody who begins now, on every node.
        for topic in 0..self.records.topics.len() {
            for id in self.ids() {
                self.records.readers.push(Reader::of_node(topic, id));
            }
        }
        self.wait_for(|world| Ok(world.unread()))?;
        self.heal_groups()?;
        let factor = self.records.mix.map_or(1, |mix| mix.factor);
        self.wait_for(|world| world.unsettled(factor))?;
        self.records.is_closed = true;
        self.wait_for(|world| {
            let asked = world.records.waiting.values().next();
            Ok(asked.map(|asked| format!("{asked:?} waits")))
        })?;
        self.summary.records_due += u64::try_from(self.records.model.due_count()).unwrap_or(0);
        Ok(())
    }

    /// Lets time pass until nothing is missing.
    pub(super) fn wait_for(
        &mut self,
        missing: impl Fn(&Self) -> Result<Option<String>, Violation>,
    ) -> Result<(), Violation> {
        let deadline = self.now + PATIENCE;
        while let Some(what) = missing(self)? {
            ensure(self.now < deadline, "LIVENESS", || what.clone())?;
            let until = self.now + STEP;
            self.run_until(until)?;
        }
        Ok(())
    }

    fn is_quiet_but_for_readers(&self) -> bool {
        self.records.producers.iter().all(|producer| producer.is_idle())
    }

    /// Every producer is told, through every node, that something of its was stored.
    fn every_node_takes_records(&mut self) -> Result<(), Violation> {
        for id in self.ids() {
            for at in 0..self.records.producers.len() {
                let began = self.now;
                loop {
                    let before = self.summary.records_acknowledged;
                    if self.records.producers[at].is_idle() {
                        self.produce_on(id, at)?;
                    }
                    let until = self.now + STEP;
                    self.run_until(until)?;
                    if self.records.producers[at].is_idle() && self.summary.records_acknowledged > before {
                        break;
                    }
                    ensure(self.now < began + PATIENCE / 3, "LIVENESS", || {
                        format!(
                            "node {id} takes no records of client {at}, last: {}",
                            self.records.producers[at].last
                        )
                    })?;
                }
            }
        }
        Ok(())
    }

    /// A record that some reader was not given yet.
    fn unread(&self) -> Option<String> {
        let records = &self.records;
        records.readers.iter().enumerate().find_map(|(at, reader)| {
            let due: &BTreeSet<_> = records.model.due(reader.topic);
            let missing = due.difference(&reader.progress.seen).next()?;
            let last = &reader.last;
            let topic = &records.topics[reader.topic];
            Some(format!(
                "reader {at} of {topic} (only {:?}) is not given {}, {} of {} read, last: {last}",
                reader.only,
                shown(*missing),
                reader.progress.seen.len(),
                due.len()
            ))
        })
    }
}
