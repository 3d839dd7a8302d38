//! What is done when its time comes: the engine's timers, suspects and their deadlines, looking for others.

use rand_engine::RngExt;
use types::{Instant, NodeId, limits};

use super::Membership;
use super::known::Known;
use crate::address::Address;
use crate::engine::Identity;
use crate::event::{Action, Status};
use crate::packet::ANYBODY;
#[cfg(feature = "planted")]
use crate::planted::Bug;

/// How many of the dead are asked at a time.
const REACHED: usize = 2;
/// How many who said nothing about themselves yet.
const SILENT_ASKED: usize = 4;

impl Membership {
    pub(super) fn do_due(&mut self, now: Instant, out: &mut Vec<Action>) {
        // A timer that is set anew is due later than now, so this ends.
        while let Some(timer) = self.timers.take_due(now) {
            self.engage(now, |engine, asked| engine.handle_timer(timer, asked), out);
        }
        self.see_to_deadlines(now, out);
        self.ask_suspects(now, out);
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_for_others(now, out);
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let members = self.known.values().flat_map(|known| [known.deadline, known.ask_at]).flatten();
        members.chain(self.timers.next()).chain(self.look_at).min()
    }

    fn due(&self, now: Instant, status: Status) -> Vec<NodeId> {
        let is_due = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        let due = self.known.iter().filter(|(_, known)| known.status == status && is_due(known.deadline));
        due.map(|(node, _)| *node).collect()
    }

    fn see_to_deadlines(&mut self, now: Instant, out: &mut Vec<Action>) {
        for node in self.due(now, Status::Suspect) {
            self.declare_dead(now, node, out);
        }
        for node in self.due(now, Status::Down) {
            self.forget(now, node, out);
        }
    }

    /// Suspects are asked for all they know, and told that they are suspected; the answer carries their refutation.
    fn ask_suspects(&mut self, now: Instant, out: &mut Vec<Action>) {
        let again = now.plus(self.config.tuning.ask_every);
        let mut asked: Vec<Identity> = Vec::new();
        for known in self.known.values_mut().filter(|known| known.ask_at.is_some_and(|at| at <= now)) {
            known.ask_at = Some(again);
            if asked.len() < limits::MEMBER_ASKED_MAX {
                asked.push(known.identity.clone());
            }
        }
        for suspect in asked {
            self.engage(now, |engine, to| engine.announce(suspect, to), out);
        }
    }

    fn look_for_others(&mut self, now: Instant, out: &mut Vec<Action>) {
        let tuning = self.config.tuning;
        let is_alone = self.active_count() == 0;
        let is_young = now.since(self.young_since) < tuning.exchange_every;
        let silent = self.silent_members();
        let is_calm = !is_alone && !is_young && silent.is_empty();
        self.look_at = Some(now.plus(if is_calm { tuning.reach_every } else { tuning.join_every }));
        #[cfg(feature = "planted")]
        if self.config.has_bug(Bug::AskOnce) && is_alone {
            self.look_at = None;
        }
        for seed in self.seeds_to_ask() {
            let anybody = Identity { node: ANYBODY, incarnation: types::Incarnation::ZERO, address: seed };
            self.engage(now, |engine, asked| engine.announce(anybody, asked), out);
        }
        for member in silent.into_iter().chain(self.member_to_ask().filter(|_| is_young)) {
            self.engage(now, |engine, asked| engine.announce(member, asked), out);
        }
        for dead in self.dead_to_ask() {
            self.engage(now, |engine, asked| engine.announce(dead, asked), out);
        }
    }

    /// Some that live and from whose present life nothing was heard yet. What they answer says it.
    fn silent_members(&mut self) -> Vec<Identity> {
        let is_silent = |known: &&Known| {
            let identity = &known.identity;
            let heard = self.abouts.of(identity.node).map(|about| about.incarnation);
            known.status == Status::Alive && heard.is_none_or(|heard| heard < identity.incarnation)
        };
        let mut silent: Vec<Identity> =
            self.known.values().filter(is_silent).map(|known| known.identity.clone()).collect();
        let mut chosen = Vec::new();
        while chosen.len() < SILENT_ASKED && !silent.is_empty() {
            chosen.push(silent.swap_remove(self.rng.random_range(0..silent.len())));
        }
        chosen
    }

    /// Some member, to be asked for all it knows.
    fn member_to_ask(&mut self) -> Option<Identity> {
        let living: Vec<&Identity> = self.engine.iter_members().map(foca::Member::id).collect();
        let at = self.rng.random_range(0..living.len().max(1));
        living.get(at).map(|identity| (*identity).clone())
    }

    /// Seeds at which nobody is known to live.
    fn seeds_to_ask(&self) -> Vec<Address> {
        let lives_there = |seed: &Address| {
            *seed == self.own.address
                || self
                    .known
                    .values()
                    .any(|known| known.status != Status::Down && known.identity.address == *seed)
        };
        self.seeds.iter().filter(|seed| !lives_there(seed)).cloned().collect()
    }

    /// The dead take turns.
    fn dead_to_ask(&mut self) -> Vec<Identity> {
        #[cfg(feature = "planted")]
        if self.config.has_bug(Bug::LeaveDead) {
            return Vec::new();
        }
        let dead = |from: Option<NodeId>, until: Option<NodeId>| {
            self.known
                .iter()
                .filter(move |(node, known)| {
                    let is_in =
                        from.is_none_or(|from| **node > from) && until.is_none_or(|until| **node <= until);
                    is_in && known.status == Status::Down && !known.is_unlisted
                })
                .map(|(_, known)| known.identity.clone())
        };
        let turn = self.reach_after;
        let first = dead(turn, None);
        let chosen: Vec<Identity> = match turn {
            None => first.take(REACHED).collect(),
            Some(turn) => first.chain(dead(None, Some(turn))).take(REACHED).collect(),
        };
        self.reach_after = chosen.last().map(|identity| identity.node);
        chosen
    }
}
