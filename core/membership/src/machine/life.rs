//! The life of this node: it starts, goes on as a later incarnation, leaves; and the end of others.

use std::iter;
use std::time::Duration;

use foca::{Member, State};
use rand_engine::RngExt;
use types::{Incarnation, Instant, NodeId, limits};

use super::{Membership, Phase};
use crate::address::Address;
use crate::engine::engine;
use crate::event::{Action, Status};
use crate::incarnation::{CEILING_MAX, next_ceiling};
#[cfg(feature = "planted")]
use crate::planted::Bug;

/// A dead member that is not in the list of members any more is forgotten after this: by then nobody repeats old news
/// of it, which would bring it back.
pub(super) const UNLISTED_AFTER: Duration = Duration::from_secs(60);
/// How often it is said that this node leaves; each time it goes to a few.
const FAREWELLS: usize = 3;

impl Membership {
    pub(super) fn start(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.phase != Phase::New {
            return;
        }
        self.phase = Phase::Running;
        self.set_own(self.digest);
        (self.young_since, self.look_at) = (now, Some(now));
        self.reserve_ahead(out);
        self.do_due(now, out);
    }

    pub(super) fn set_seeds(&mut self, now: Instant, mut seeds: Vec<Address>) {
        seeds.truncate(limits::MEMBER_SEEDS_MAX);
        self.seeds = seeds;
        if self.phase == Phase::Running {
            self.look_at = Some(now);
        }
    }

    pub(super) fn leave(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.phase == Phase::Running {
            self.phase = Phase::Ended;
            self.engage(now, |engine, asked| engine.leave_cluster(asked), out);
            for _ in 1..FAREWELLS {
                self.engage(now, |engine, asked| engine.gossip(asked), out);
            }
        }
        self.phase = Phase::Ended;
    }

    /// Somebody else is this node.
    pub(super) fn end(&mut self, by: Address, incarnation: Incarnation, out: &mut Vec<Action>) {
        self.phase = Phase::Ended;
        out.push(Action::Superseded { by, incarnation });
    }

    /// This node must go on as `incarnation` or a later one.
    pub(super) fn want(&mut self, now: Instant, incarnation: Incarnation, out: &mut Vec<Action>) {
        #[cfg(feature = "planted")]
        if self.config.has_bug(Bug::StayDead) {
            return;
        }
        if incarnation > CEILING_MAX || self.phase != Phase::Running {
            return;
        }
        self.renewal = Some(self.renewal.map_or(incarnation, |wanted| wanted.max(incarnation)));
        self.renew(now, out);
    }

    fn renew(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Some(wanted) = self.renewal else { return };
        if wanted <= self.own.incarnation {
            self.renewal = None;
        } else if wanted <= self.ceiling {
            self.renewal = None;
            self.own.incarnation = wanted;
            self.begin_again(now, out);
        }
        self.reserve_ahead(out);
    }

    /// Forgets what it believed of others' death while it was taken for dead itself: it was apart, and they were not.
    /// Their incarnations stay known, and so does who lives.
    fn begin_again(&mut self, now: Instant, out: &mut Vec<Action>) {
        let living: Vec<Member<_>> = self
            .engine
            .iter_members()
            .map(|member| Member::new(member.id().clone(), member.incarnation(), State::Alive))
            .collect();
        self.engine = engine(self.own.clone(), &self.config.tuning, self.rng.random());
        self.timers.clear();
        self.speak();
        out.push(Action::Renewed(self.own.incarnation));
        self.engage(now, |engine, asked| engine.apply_many(living.into_iter(), false, asked), out);
        self.engage(now, |engine, asked| engine.gossip(asked), out);
        (self.young_since, self.look_at) = (now, Some(now));
    }

    fn reserve_ahead(&mut self, out: &mut Vec<Action>) {
        let used = self.renewal.map_or(self.own.incarnation, |wanted| wanted.max(self.own.incarnation));
        if !self.reserving
            && let Some(ceiling) = next_ceiling(used, self.ceiling)
        {
            self.reserving = true;
            out.push(Action::Reserve(ceiling));
        }
    }

    pub(super) fn reserved(&mut self, now: Instant, ceiling: Incarnation, out: &mut Vec<Action>) {
        self.reserving = false;
        self.ceiling = self.ceiling.max(ceiling);
        if self.phase == Phase::Running {
            self.renew(now, out);
        }
        self.reserve_ahead(out);
    }

    pub(super) fn unlist(&mut self, now: Instant, node: NodeId) {
        let Some(known) = self.known.get_mut(&node) else { return };
        known.is_unlisted = true;
        if known.status == Status::Down {
            let soon = now.plus(UNLISTED_AFTER);
            known.deadline = Some(known.deadline.map_or(soon, |deadline| deadline.min(soon)));
        }
    }

    /// A suspect had its time.
    pub(super) fn declare_dead(&mut self, now: Instant, node: NodeId, out: &mut Vec<Action>) {
        let Some(known) = self.known.get(&node) else { return };
        let dead = Member::new(known.identity.clone(), known.refutations, State::Down);
        self.tally.declared += 1;
        self.engage(now, |engine, asked| engine.apply_many(iter::once(dead), true, asked), out);
    }

    /// A dead member had its time.
    pub(super) fn forget(&mut self, now: Instant, node: NodeId, out: &mut Vec<Action>) {
        let Some(known) = self.known.remove(&node) else { return };
        self.abouts.forget(node);
        out.push(Action::Forgotten(node));
        let timer = foca::Timer::RemoveDown(known.identity);
        self.engage(now, |engine, asked| engine.handle_timer(timer, asked), out);
    }
}
