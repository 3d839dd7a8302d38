//! When the faults are over: everything that was acknowledged is there, everything works, nobody is left waiting.

mod orphans;
mod ranges;
mod readers;

use bytes::Bytes;
use rand::Rng;
use types::limits;
use wire::{Payload, Reason, Response};

use super::client::{Client, Role};
use super::model::CallId;
use super::network::ConnId;
use super::process::Process;
use super::workload::{TOPICS, produce};
use super::world::{Happening, World};
use crate::invariants::{Violation, ensure, inv_05, inv_51};

/// How long a node may take, without faults, for whatever it owes.
const PATIENCE: u64 = 60_000_000;
/// How often, and after what pauses, a range whose segment failed is asked for a produce: long enough for the
/// longest pause between two tries of its own, too rarely to fill the segment by asking.
const ATTEMPTS_MAX: u32 = 5;
const ATTEMPT_PAUSE: u64 = 2_500_000;
/// After it a silent member has been taken out of its group.
const SILENCE: u64 = 45_000_000;

impl World {
    /// The part without faults.
    pub(super) fn heal(&mut self) -> Result<(), Violation> {
        self.say(|| "== HEAL".to_owned());
        self.healing = true;
        self.clear_weather();
        // A node that merely met failing disks must come round by itself; one without users serves nobody.
        let hopeless = self
            .process
            .as_ref()
            .is_some_and(|process| process.is_hopeless() || (process.ready && !self.audit.has_session()));
        if hopeless {
            self.end_process();
        }
        self.until("the node serves", |world| world.process.as_ref().is_some_and(|process| process.ready))?;
        // Long polls of one connection follow one another.
        let most = self.conns.values().map(|conn| conn.undelivered).max().unwrap_or(0) as u64;
        let patience = PATIENCE + most * 1000 * u64::from(limits::FETCH_WAIT_MS_MAX);
        self.until_within(patience, "everybody is answered", |world| {
            world.waiting.is_empty() && world.conns.values().all(|conn| conn.owed() == 0)
        })?;
        self.leave_nothing()?;
        let client = self.clients.len();
        let mut last = Client::new(client, &mut self.rng);
        last.permissions.admin = true;
        last.role = Role::Anybody;
        self.clients.push(last);
        for (name, topic) in TOPICS.iter().enumerate() {
            let healed = self.heal_topic(client, name);
            let hopeless = self.process.as_ref().is_some_and(Process::is_hopeless);
            let failed = matches!(&healed, Err(violation) if violation.invariant == "LIVENESS");
            if matches!(&healed, Ok(false)) || (failed && hopeless) {
                // What this lifetime has met it cannot get over, and says so; the next one can.
                self.end_process();
                self.until("the node serves", |world| {
                    world.process.as_ref().is_some_and(|process| process.ready)
                })?;
                let healed = self.heal_topic(client, name)?;
                ensure(healed, "LIVENESS", || format!("{topic} takes no records after a start"))?;
            } else {
                healed?;
            }
        }
        let left = self.waiting.values().next();
        inv_05::all_answered(left.map(|call| &self.calls[*call]))?;
        self.leave_nothing()?;
        self.leave_no_orphans()
    }

    /// Everybody goes, and after a while nothing of them may be left.
    fn leave_nothing(&mut self) -> Result<(), Violation> {
        for id in self.conns.keys().copied().collect::<Vec<_>>() {
            self.hang_up(id)?;
        }
        self.pass(SILENCE)?;
        let Some(process) = &self.process else { return Ok(()) };
        let gauges = process.node.gauges();
        inv_51::nothing_left("produce requests", gauges.produces != (0, 0))?;
        inv_51::nothing_left("long polls", gauges.parked != 0)?;
        inv_51::nothing_left("streams", gauges.streams != 0)?;
        inv_51::nothing_left("members", gauges.groups != (0, 0))?;
        inv_51::nothing_left("ranges that wait", gauges.blocked_ranges != 0)?;
        let topics = self.model.names.iter().filter(|name| name.current.is_some()).count();
        inv_51::nothing_left("topics that are gone", gauges.topics != topics)
    }

    /// The connection of a client that is there to look.
    fn connected(&mut self, client: usize) -> Result<ConnId, Violation> {
        if self.clients[client].conn.is_none() {
            self.connect(client)?;
        }
        self.clients[client].conn.ok_or_else(|| Violation::new("LIVENESS", "nobody can connect"))
    }

    /// Reads a topic, appends to every range of it and reads it again, in every way there is; false when only
    /// another start helps.
    fn heal_topic(&mut self, client: usize, name: usize) -> Result<bool, Violation> {
        let Some(topic) = self.model.current(name) else { return Ok(true) };
        let (sealed, leaves) = (topic.sealed, topic.ranges.leaves().count());
        self.read_all(client, name, None)?;
        if !sealed {
            for nth in 0..leaves {
                let Some(topic) = self.model.current(name) else { return Ok(true) };
                let span = topic.ranges.leaves().nth(nth).map(|(_, range)| range.span);
                let key =
                    (0..64).map(produce::key).find(|key| span.is_some_and(|span| topic.places(key, span)));
                // Without a key: the ranges take turns.
                for key in [key, None] {
                    if !self.append(client, name, key)? {
                        return Ok(false);
                    }
                }
            }
            self.read_all(client, name, None)?;
        } else if self.process.as_ref().is_some_and(Process::is_hopeless) {
            // What cannot be sealed in this lifetime has no end yet.
            return Ok(false);
        }
        self.read_held(client, name)?;
        self.read_groups(client, name)?;
        self.check_ranges(client, name)?;
        Ok(true)
    }

    /// Appends a record; false when only another start helps.
    fn append(&mut self, client: usize, name: usize, key: Option<Bytes>) -> Result<bool, Violation> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let conn = self.connected(client)?;
            let call = produce::send_of(self, client, conn, Some(name), std::slice::from_ref(&key));
            match self.outcome(conn, call)? {
                Response::Ok(_) => return Ok(true),
                Response::Error(_) if self.process.as_ref().is_some_and(Process::is_hopeless) => {
                    return Ok(false);
                }
                // What failed is tried again by itself, a little later.
                Response::Error(Reason::Storage | Reason::Overloaded) if attempts < ATTEMPTS_MAX => {
                    self.pass(ATTEMPT_PAUSE)?;
                }
                other => {
                    return Err(Violation::new(
                        "LIVENESS",
                        format!("{} takes no records: {other:?}", TOPICS[name]),
                    ));
                }
            }
        }
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

    /// A page: how many records, and the cursor.
    fn page(&mut self, conn: ConnId, call: CallId) -> Result<(usize, Bytes), Violation> {
        match self.outcome(conn, call)? {
            Response::Ok(Payload::Page(page)) => Ok((page.count as usize, page.next_cursor)),
            Response::Ok(Payload::Batches(page)) => {
                Ok((usize::try_from(page.count()).unwrap_or(usize::MAX), page.next_cursor))
            }
            other => Err(Violation::new("LIVENESS", format!("{} is answered {other:?}", self.calls[call]))),
        }
    }

    fn pass(&mut self, micros: u64) -> Result<(), Violation> {
        let until = self.now + micros;
        self.after(micros, Happening::Nothing);
        self.until_within(2 * micros + PATIENCE, "time passes", |world| world.now >= until)
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

    fn some_max(&mut self) -> u32 {
        [1, 7, 0, 1000][self.rng.random_range(0..4)]
    }
}
