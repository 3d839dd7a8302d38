//! Packets: what they may say before the engine hears it.
//!
//! The engine believes whoever talks to it. So a packet is decoded whole, and what claims an id that is somebody
//! else's, or tells of a life that is over, is taken out of it.

use std::iter;

use bytes::Bytes;
use foca::{Member, Message, State};
use types::{Instant, NodeId, limits};

use super::{Membership, Phase};
use crate::address::Address;
use crate::digest::About;
use crate::engine::Identity;
use crate::event::{Action, Status};
use crate::packet::{Envelope, News, Notice, Packet, Refused};
#[cfg(feature = "planted")]
use crate::planted::Bug;

/// For so long after a member came back elsewhere, packets of its earlier life may still be on their way.
const STRAYS: std::time::Duration = std::time::Duration::from_secs(30);

/// How somebody who claims an id compares with whom we know by it.
enum Claim {
    /// Nobody is known by it, it is the one we know, or a later life of it.
    Fine,
    /// An earlier life.
    Earlier,
    /// The same or an earlier one, at another address.
    Elsewhere,
}

impl Membership {
    pub(super) fn receive(&mut self, now: Instant, bytes: Bytes, out: &mut Vec<Action>) {
        if self.phase != Phase::Running {
            return;
        }
        #[cfg(feature = "planted")]
        let any_key = self.config.has_bug(Bug::TakeAnyKey);
        #[cfg(not(feature = "planted"))]
        let any_key = false;
        match self.sealer.open(bytes, any_key) {
            Ok(Packet::News(envelope)) => self.receive_news(now, envelope, out),
            Ok(Packet::Notice(notice)) => self.receive_notice(now, &notice, out),
            Err(Refused::Foreign) => self.tally.foreign += 1,
            Err(Refused::ControlPlane) => self.tally.other_control_plane += 1,
            Err(Refused::Mac) => self.tally.wrong_key += 1,
            Err(Refused::Malformed(_)) => self.tally.malformed += 1,
        }
    }

    fn receive_news(&mut self, now: Instant, envelope: Envelope, out: &mut Vec<Action>) {
        let Ok(mut news) = News::decode(envelope.engine, &self.own) else {
            self.tally.malformed += 1;
            return;
        };
        let source = news.header.src.clone();
        if source.node == self.own.node {
            self.meet_own_id(&source, out);
            return;
        }
        // What was meant for an earlier life is old, but for a question, which may come from one who knows no other.
        let dst = &news.header.dst;
        let is_meant = dst.node == self.own.node
            && (dst.incarnation == self.own.incarnation || news.header.message == Message::Announce);
        if !is_meant || !self.admit(now, &source, out) || !self.is_first(&source, envelope.sequence) {
            self.tally.repeated += 1;
            return;
        }
        self.tally.received += 1;
        if !self.make_room(now, &source, out) {
            return;
        }
        // The sender may need a place itself.
        let is_stranger = !self.known.contains_key(&source.node);
        let mut room = limits::MEMBERS_MAX.saturating_sub(self.known.len() + usize::from(is_stranger));
        let mut members = std::mem::take(&mut news.members);
        members.retain(|member| self.screen(now, member, &mut room, out));
        if self.phase != Phase::Running {
            return;
        }
        news.members = members;
        if news.header.dst.incarnation == self.own.incarnation {
            self.answer_accusation(now, envelope.accused, out);
        }
        let bytes = news.encode();
        self.engage(now, |engine, asked| engine.handle_data(&bytes, asked), out);
        // Whoever was unknown is known now, and its packet counts once.
        self.is_first(&source, envelope.sequence);
        for about in envelope.abouts {
            self.hear(about, out);
        }
    }

    /// Whether the sender is a member or can become one; the oldest of the dead makes room for somebody who speaks.
    fn make_room(&mut self, now: Instant, source: &Identity, out: &mut Vec<Action>) -> bool {
        if self.known.contains_key(&source.node) || self.known.len() < limits::MEMBERS_MAX {
            return true;
        }
        let dead = self.known.iter().filter(|(_, known)| known.status == Status::Down);
        let oldest = dead.min_by_key(|(_, known)| known.deadline).map(|(node, _)| *node);
        if let Some(oldest) = oldest {
            self.forget(now, oldest, out);
        }
        oldest.is_some()
    }

    /// Whether this packet of a member counts. One of a stranger always does.
    fn is_first(&mut self, source: &Identity, sequence: u64) -> bool {
        let Some(known) = self.known.get_mut(&source.node) else { return true };
        let is_first = known.window.take(source.incarnation.0, sequence);
        #[cfg(feature = "planted")]
        let is_first = is_first || self.config.has_bug(Bug::TakeReplays);
        is_first
    }

    /// Whether the sender is who it claims to be, as far as is known. One who is not is told.
    fn admit(&mut self, now: Instant, source: &Identity, out: &mut Vec<Action>) -> bool {
        let claim = self.compare(source);
        let Some(known) = self.known.get(&source.node) else { return true };
        let (kept, since) = (known.identity.clone(), known.since);
        match claim {
            Claim::Fine => return true,
            Claim::Earlier => {}
            Claim::Elsewhere => {
                let may_be_stray = source.incarnation < kept.incarnation && now.since(since) < STRAYS;
                if !may_be_stray {
                    self.report(source.node, &kept.address, &source.address, out);
                }
            }
        }
        self.notify(source, &kept, out);
        false
    }

    fn compare(&self, claimant: &Identity) -> Claim {
        #[cfg(feature = "planted")]
        if self.config.has_bug(Bug::TakeEarlier) {
            return Claim::Fine;
        }
        let Some(known) = self.known.get(&claimant.node) else { return Claim::Fine };
        let is_same_place = known.identity.address == claimant.address;
        if claimant.incarnation > known.identity.incarnation {
            Claim::Fine
        } else if !is_same_place {
            Claim::Elsewhere
        } else if claimant.incarnation < known.identity.incarnation {
            Claim::Earlier
        } else {
            Claim::Fine
        }
    }

    fn notify(&mut self, refused: &Identity, kept: &Identity, out: &mut Vec<Action>) {
        let notice = Notice {
            node: refused.node,
            incarnation: refused.incarnation,
            kept_incarnation: kept.incarnation,
            kept: kept.address.clone(),
        };
        self.send(&refused.address, &Packet::Notice(notice), out);
    }

    /// Two claim one id: told once.
    fn report(&mut self, node: NodeId, kept: &Address, refused: &Address, out: &mut Vec<Action>) {
        let pair = (node, kept.clone(), refused.clone());
        if self.duplicates.contains(&pair) {
            return;
        }
        if self.duplicates.len() == limits::MEMBER_DUPLICATES_MAX {
            self.duplicates.pop_front();
        }
        self.duplicates.push_back(pair);
        out.push(Action::Duplicate { node, kept: kept.clone(), refused: refused.clone() });
    }

    /// A packet came from somebody with this node's id. That it talks to us says that it lives.
    fn meet_own_id(&mut self, other: &Identity, out: &mut Vec<Action>) {
        let own = self.own.clone();
        if other.address == own.address {
            // Its own packet, because it is its own seed; or one of an earlier life.
            self.tally.repeated += 1;
        } else if other.incarnation > own.incarnation {
            self.end(other.address.clone(), other.incarnation, out);
        } else {
            self.report(own.node, &own.address, &other.address, out);
            self.notify(other, &own, out);
        }
    }

    fn receive_notice(&mut self, now: Instant, notice: &Notice, out: &mut Vec<Action>) {
        let is_meant = notice.node == self.own.node && notice.incarnation == self.own.incarnation;
        if !is_meant || notice.kept_incarnation < self.own.incarnation {
            self.tally.repeated += 1;
            return;
        }
        self.tally.received += 1;
        if notice.kept == self.own.address {
            // Its own earlier life: it lost count.
            self.want(now, notice.kept_incarnation.next(), out);
        } else {
            self.end(notice.kept.clone(), notice.kept_incarnation, out);
        }
    }

    /// Whether the engine may hear this.
    fn screen(
        &mut self,
        now: Instant,
        member: &Member<Identity>,
        room: &mut usize,
        out: &mut Vec<Action>,
    ) -> bool {
        let claimant = member.id();
        if claimant.node == self.own.node {
            return self.screen_own(now, claimant, out);
        }
        if !self.known.contains_key(&claimant.node) {
            let fits = *room > 0;
            *room = room.saturating_sub(1);
            return fits;
        }
        match self.compare(claimant) {
            Claim::Fine => true,
            // Old news; nobody is to blame.
            Claim::Earlier => false,
            Claim::Elsewhere => {
                let known = &self.known[&claimant.node].identity;
                if known.incarnation == claimant.incarnation && member.state() != State::Down {
                    let kept = known.address.clone();
                    self.report(claimant.node, &kept, &claimant.address, out);
                }
                false
            }
        }
    }

    /// What others say about this node. The engine answers what concerns its present life.
    fn screen_own(&mut self, now: Instant, claimant: &Identity, out: &mut Vec<Action>) -> bool {
        let own = self.own.clone();
        if *claimant == own {
            return true;
        }
        if claimant.incarnation > own.incarnation {
            if claimant.address == own.address {
                self.want(now, claimant.incarnation.next(), out);
            } else {
                self.end(claimant.address.clone(), claimant.incarnation, out);
            }
        } else if claimant.incarnation == own.incarnation {
            self.report(own.node, &own.address, &claimant.address, out);
        }
        false
    }

    fn answer_accusation(&mut self, now: Instant, accused: Option<u16>, out: &mut Vec<Action>) {
        let Some(refutations) = accused else { return };
        let suspicion = Member::new(self.own.clone(), refutations, State::Suspect);
        self.tally.refuted += 1;
        self.engage(now, |engine, asked| engine.apply_many(iter::once(suspicion), true, asked), out);
    }

    /// Takes what a member said about itself, whoever brought it.
    fn hear(&mut self, about: About, out: &mut Vec<Action>) {
        let node = about.node;
        let is_known = self.known.get(&node).is_some_and(|known| known.status != Status::Down);
        // Of a stranger it would have to be kept for ever: it comes round again once it is a member.
        if !is_known || node == self.own.node {
            return;
        }
        let before = self.member(node);
        if self.abouts.learn(about) {
            let after = self.member(node);
            if before != after {
                out.extend(after.map(Action::Changed));
            }
        }
    }
}
