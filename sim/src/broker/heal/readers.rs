//! Everybody reads to the end: from the beginning, from wherever somebody stood, for every group, alone and shared.

use bytes::Bytes;
use rand::Rng;
use wire::{Payload, Response};

use super::super::workload::{TOPICS, commit, fetch, groups};
use super::super::world::World;
use crate::invariants::{Violation, ensure};

/// Cursors that are read on from.
const HELD_MAX: usize = 4;
/// Pages of one reader: more than any seed has records.
const PAGES_MAX: usize = 20_000;

impl World {
    /// Reads a topic from a cursor until there is no more: the model compares.
    pub(super) fn read_all(
        &mut self,
        client: usize,
        name: usize,
        mut cursor: Option<Bytes>,
    ) -> Result<(), Violation> {
        for _ in 0..PAGES_MAX {
            let conn = self.connected(client)?;
            let max = self.some_max();
            let call = fetch::send_from(self, client, conn, name, cursor, max);
            let (count, next) = self.page(conn, call)?;
            if count == 0 {
                return Ok(());
            }
            cursor = Some(next);
        }
        Err(Violation::new("LIVENESS", format!("{} has no end", TOPICS[name])))
    }

    /// Goes on from cursors that clients hold, or once held.
    pub(super) fn read_held(&mut self, client: usize, name: usize) -> Result<(), Violation> {
        let here = self.model.names[name].current;
        let held = self.clients.iter().filter_map(|client| client.cursors[name].clone());
        let mut tokens: Vec<Bytes> = held.collect();
        for _ in 0..HELD_MAX {
            let at = self.rng.random_range(0..self.model.given.len().max(1));
            tokens.extend(self.model.given.get(at).cloned());
        }
        tokens.retain(|token| self.model.tokens.get(token).is_some_and(|token| Some(token.topic) == here));
        for _ in 0..HELD_MAX.min(tokens.len()) {
            let at = self.rng.random_range(0..tokens.len());
            self.read_all(client, name, Some(tokens.swap_remove(at)))?;
        }
        Ok(())
    }

    /// Every group can reach the end: one by itself, one through members that share it.
    pub(super) fn read_groups(&mut self, client: usize, name: usize) -> Result<(), Violation> {
        let Some(topic) = self.model.current(name) else { return Ok(()) };
        let mut groups: Vec<Bytes> = topic.groups.keys().filter(|group| group.len() < 200).cloned().collect();
        let crew = Bytes::from_static(b"crew");
        groups.retain(|group| *group != crew);
        if !groups.is_empty() {
            let at = self.rng.random_range(0..groups.len());
            self.read_for(client, name, &groups[at], &[None])?;
        }
        let members = [Some(Bytes::from_static(b"one")), Some(Bytes::from_static(b"two"))];
        self.read_for(client, name, &crew, &members)?;
        // What the members have committed between them is everything.
        self.read_for(client, name, &crew, &[None])
    }

    /// Whoever of a group reads and commits, in turns, until nobody is given anything.
    fn read_for(
        &mut self,
        client: usize,
        name: usize,
        group: &Bytes,
        members: &[Option<Bytes>],
    ) -> Result<(), Violation> {
        let mut idle = 0;
        // Each once for nothing: then all of them are there.
        for turn in 0..PAGES_MAX {
            let member = members[turn % members.len()].clone();
            let conn = self.connected(client)?;
            let call = fetch::send_for(self, client, conn, name, (group.clone(), member));
            let (count, cursor) = self.page(conn, call)?;
            idle = if count == 0 { idle + 1 } else { 0 };
            if idle > members.len() {
                let call = groups::send_describe_of(self, client, conn, Some(name), Some(group.clone()));
                let described = self.outcome(conn, call)?;
                let Response::Ok(Payload::Group(info)) = described else {
                    return Err(Violation::new("LIVENESS", format!("a group is described as {described:?}")));
                };
                return ensure(info.lag == 0, "LAG", || {
                    format!(
                        "group {} of {} has read everything, and is {} behind",
                        group.escape_ascii(),
                        TOPICS[name],
                        info.lag
                    )
                });
            }
            let call = self.calls.len();
            commit::send_of(self, client, conn, Some(name), Some(group.clone()), Some(cursor));
            match self.outcome(conn, call)? {
                Response::Ok(_) => {}
                other => {
                    return Err(Violation::new("LIVENESS", format!("a commit is answered {other:?}")));
                }
            }
        }
        Err(Violation::new("LIVENESS", format!("{} has no end for a group", TOPICS[name])))
    }
}
