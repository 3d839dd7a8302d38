//! When the faults are over: everything that was acknowledged is there, everything works, nobody is left waiting.

use rand::Rng;
use types::limits;
use wire::{Payload, Reason, Response};

use super::client::Client;
use super::model::CallId;
use super::network::ConnId;
use super::process::Process;
use super::workload::{TOPICS, create_topic, fetch, produce};
use super::world::{Happening, World};
use crate::invariants::{Violation, ensure, inv_05, inv_18};

/// How long a node may take, without faults, for whatever it owes.
const PATIENCE: u64 = 60_000_000;
/// How often, and after what pauses, a range whose segment failed is asked for a produce: long enough for the
/// longest pause between two tries of its own, too rarely to fill the segment by asking.
const ATTEMPTS_MAX: u32 = 5;
const ATTEMPT_PAUSE: u64 = 2_500_000;

impl World {
    /// The part without faults.
    pub(super) fn heal(&mut self) -> Result<(), Violation> {
        self.say(|| "== HEAL".to_owned());
        self.healing = true;
        self.clear_weather();
        // A node that merely met failing disks must come round by itself.
        let hopeless = self.process.as_ref().is_some_and(|process| process.is_hopeless());
        if self.process.is_some() && hopeless {
            self.end_process();
        }
        self.until("the node serves", |world| world.process.as_ref().is_some_and(|process| process.ready))?;
        // Long polls of one connection follow one another.
        let most = self.conns.values().map(|conn| conn.undelivered).max().unwrap_or(0) as u64;
        let patience = PATIENCE + most * 1000 * u64::from(limits::FETCH_WAIT_MS_MAX);
        self.until_within(patience, "everybody is answered", |world| {
            world.waiting.is_empty() && world.conns.values().all(|conn| conn.undelivered == 0)
        })?;
        let client = self.clients.len();
        let mut last = Client::new(&mut self.rng);
        last.permissions.admin = true;
        self.clients.push(last);
        for (topic, name) in TOPICS.iter().enumerate() {
            if !self.heal_topic(client, topic)? {
                // What this lifetime has met it cannot get over, and says so; the next one can.
                self.end_process();
                self.until("the node serves", |world| {
                    world.process.as_ref().is_some_and(|process| process.ready)
                })?;
                let healed = self.heal_topic(client, topic)?;
                ensure(healed, "LIVENESS", || format!("{name} takes no records after a start"))?;
            }
        }
        self.check_seals()?;
        let left = self.waiting.values().next();
        inv_05::all_answered(left.map(|call| &self.calls[*call]))
    }

    /// Reads a topic, appends to it and reads it again; false when only another start helps.
    fn heal_topic(&mut self, client: usize, topic: usize) -> Result<bool, Violation> {
        if !self.model.topics[topic].may_exist() {
            return Ok(true);
        }
        if self.clients[client].conn.is_none() {
            self.connect(client)?;
        }
        let conn =
            self.clients[client].conn.ok_or_else(|| Violation::new("LIVENESS", "nobody can connect"))?;
        if !self.model.topics[topic].is_known() {
            // It exists or not; afterwards it does.
            let call = self.calls.len();
            create_topic::send(self, client, conn, Some(topic));
            self.outcome(conn, call)?;
        }
        self.read_all(client, conn, topic)?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let call = produce::send_of(self, client, conn, Some(topic), 1);
            match self.outcome(conn, call)? {
                Response::Ok(_) => break,
                Response::Error(_) if self.process.as_ref().is_some_and(Process::is_hopeless) => {
                    return Ok(false);
                }
                // What failed is tried again by itself, a little later.
                Response::Error(Reason::Storage | Reason::Overloaded) if attempts < ATTEMPTS_MAX => {
                    let until = self.now + ATTEMPT_PAUSE;
                    self.after(ATTEMPT_PAUSE, Happening::Think(client));
                    self.until("time passes", |world| world.now >= until)?;
                }
                other => {
                    return Err(Violation::new(
                        "LIVENESS",
                        format!("{} takes no records: {other:?}", TOPICS[topic]),
                    ));
                }
            }
        }
        self.read_all(client, conn, topic)?;
        Ok(true)
    }

    /// Reads a topic from its beginning until there is no more: the model compares.
    fn read_all(&mut self, client: usize, conn: ConnId, topic: usize) -> Result<(), Violation> {
        let mut cursor = None;
        loop {
            let max = [1, 7, 0, 1000][self.rng.random_range(0..4)];
            let call = fetch::send_of(self, client, conn, Some(topic), (cursor, None, false), max, 0);
            match self.outcome(conn, call)? {
                Response::Ok(Payload::Page(page)) if page.count == 0 => return Ok(()),
                Response::Ok(Payload::Page(page)) => cursor = Some(page.next_cursor),
                other => {
                    return Err(Violation::new(
                        "LIVENESS",
                        format!("{} cannot be read: {other:?}", TOPICS[topic]),
                    ));
                }
            }
        }
    }

    /// Every seal that was told of lies between two batches.
    fn check_seals(&self) -> Result<(), Violation> {
        for (segment, end) in self.model.segments.seals() {
            let topic = self.model.topics.iter().find(|topic| topic.id == Some(segment.range.topic));
            let boundary = topic.is_some_and(|topic| topic.is_boundary(end.0));
            inv_18::at_a_boundary(segment, end, boundary)?;
        }
        Ok(())
    }

    /// Waits for the answer to a call.
    fn outcome(&mut self, conn: ConnId, call: CallId) -> Result<Response, Violation> {
        self.send_up(conn);
        let mut said = None;
        self.until("a call is answered", |world| {
            if said.is_none() {
                said.clone_from(&world.calls[call].answer);
            }
            world.calls[call].delivered
        })?;
        said.ok_or_else(|| Violation::new("INV-5", format!("{} was lost", self.calls[call])))
    }

    /// Lets things happen until something holds.
    fn until(&mut self, what: &str, holds: impl FnMut(&Self) -> bool) -> Result<(), Violation> {
        self.until_within(PATIENCE, what, holds)
    }

    fn until_within(
        &mut self,
        patience: u64,
        what: &str,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> Result<(), Violation> {
        let deadline = self.now + patience;
        while !holds(self) {
            let more = self.happen()?;
            ensure(more && self.now < deadline, "LIVENESS", || format!("waited in vain: {what}"))?;
        }
        Ok(())
    }
}
