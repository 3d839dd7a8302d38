//! A few nodes on a network that does what it is told, and a clock that moves when it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use types::{Incarnation, Instant, NodeId};

use crate::{Action, Address, Config, Event, Key, MemberView, Membership, Status, Tuning};

pub(super) const CONTROL_PLANE: u128 = 77;

pub(super) fn address(name: &str) -> Address {
    Address::new(name.as_bytes()).unwrap()
}

pub(super) fn key() -> Key {
    Key::of_secret(b"secret", CONTROL_PLANE)
}

/// A node with a name for each of its processes.
pub(super) fn config(node: u128, at: &str, incarnation: u64) -> Config {
    Config {
        node: NodeId(node),
        name: format!("node-{node}").into(),
        address: address(at),
        incarnation: Incarnation(incarnation),
        ceiling: Incarnation(incarnation + 1023),
        control_plane: CONTROL_PLANE,
        key: key(),
        tuning: Tuning::default(),
        #[cfg(feature = "planted")]
        bug: None,
    }
}

#[derive(Debug)]
enum Happening {
    Deliver(Address, Bytes),
    Wake(Address, Instant),
}

/// Processes by address.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) now: u64,
    pub(super) processes: BTreeMap<Address, Membership>,
    /// What each was told, but for packets and wake-ups.
    pub(super) told: BTreeMap<Address, Vec<Action>>,
    /// Addresses nothing reaches and nothing leaves.
    pub(super) cut: BTreeSet<Address>,
    /// Processes that do not run.
    pub(super) stopped: BTreeSet<Address>,
    /// Whether what was asked for is recorded at once.
    pub(super) records: bool,
    wake_at: BTreeMap<Address, Instant>,
    queue: BTreeMap<(u64, u64), Happening>,
    number: u64,
}

impl Cluster {
    pub(super) fn new() -> Self {
        Self { now: 1_000_000, records: true, ..Self::default() }
    }

    /// So many nodes, which all look for the first one, at `a1:1`, `a2:1` and so on, as incarnation 10; they know each
    /// other.
    pub(super) fn of(count: u128) -> Self {
        let mut cluster = Self::new();
        for node in 1..=count {
            cluster.start(config(node, &format!("a{node}:1"), 10), &["a1:1"]);
        }
        cluster.run_until(30, |cluster| {
            let others = usize::try_from(count).unwrap() - 1;
            cluster.processes.values().all(|process| {
                process.members().filter(|m| m.status == Status::Alive && m.digest.is_some()).count()
                    == others
            })
        });
        cluster
    }

    pub(super) fn start(&mut self, config: Config, seeds: &[&str]) {
        let at = config.address.clone();
        self.number += 1;
        self.processes.insert(at.clone(), Membership::new(config, self.number));
        self.feed(&at, Event::Seeds(seeds.iter().map(|seed| address(seed)).collect()));
        self.feed(&at, Event::Start);
    }

    pub(super) fn kill(&mut self, at: &str) {
        self.processes.remove(&address(at)).expect("it runs");
    }

    pub(super) fn feed(&mut self, at: &Address, event: Event) -> Vec<Action> {
        let now = Instant(self.now);
        let Some(process) = self.processes.get_mut(at) else { return vec![] };
        let mut out = Vec::new();
        process.step(now, event, &mut out);
        for action in out.clone() {
            match action {
                Action::Send { to, bytes } => {
                    if !self.cut.contains(at) && !self.cut.contains(&to) {
                        self.later(self.now + 500, Happening::Deliver(to, bytes));
                    }
                }
                Action::WakeAt(due) => {
                    self.wake_at.insert(at.clone(), due);
                    self.later(due.0.max(self.now), Happening::Wake(at.clone(), due));
                }
                Action::Reserve(ceiling) => {
                    self.told.entry(at.clone()).or_default().push(action);
                    if self.records {
                        self.feed(at, Event::Reserved(ceiling));
                    }
                }
                Action::Changed(_)
                | Action::Forgotten(_)
                | Action::Renewed(_)
                | Action::Duplicate { .. }
                | Action::Superseded { .. } => self.told.entry(at.clone()).or_default().push(action),
            }
        }
        out
    }

    fn later(&mut self, at: u64, happening: Happening) {
        self.number += 1;
        self.queue.insert((at, self.number), happening);
    }

    pub(super) fn run(&mut self, duration: Duration) {
        let end = Instant(self.now).plus(duration).0;
        while let Some((&(at, number), _)) = self.queue.first_key_value() {
            if at > end {
                break;
            }
            let happening = self.queue.remove(&(at, number)).unwrap();
            self.now = self.now.max(at);
            let (Happening::Deliver(to, _) | Happening::Wake(to, _)) = &happening;
            if self.stopped.contains(to) {
                // It is told when it goes on.
                self.later(end.max(at) + 1, happening);
                continue;
            }
            match happening {
                Happening::Deliver(to, bytes) => {
                    self.feed(&to, Event::Packet(bytes));
                }
                Happening::Wake(to, due) => {
                    if self.wake_at.get(&to) == Some(&due) {
                        self.feed(&to, Event::Timer);
                    }
                }
            }
        }
        self.now = end;
    }

    /// Runs until `done`, and at most for so many seconds; says how many milliseconds it took.
    #[track_caller]
    pub(super) fn run_until(&mut self, seconds: u64, done: impl Fn(&Self) -> bool) -> u64 {
        let began = self.now;
        while !done(self) {
            assert!(self.now < began + seconds * 1_000_000, "it does not come to that");
            self.run(Duration::from_millis(10));
        }
        (self.now - began) / 1000
    }

    pub(super) fn view(&self, at: &str, of: u128) -> Option<MemberView> {
        self.processes[&address(at)].member(NodeId(of))
    }

    pub(super) fn status(&self, at: &str, of: u128) -> Option<Status> {
        self.view(at, of).map(|view| view.status)
    }

    pub(super) fn told(&self, at: &str) -> &[Action] {
        self.told.get(&address(at)).map_or(&[], Vec::as_slice)
    }

    /// Whether a process was ever told that a member is like this.
    pub(super) fn was_told(&self, at: &str, of: u128, status: Status) -> bool {
        self.told(at).iter().any(
            |action| matches!(action, Action::Changed(view) if view.node == NodeId(of) && view.status == status),
        )
    }
}
