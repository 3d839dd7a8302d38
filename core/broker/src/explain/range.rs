//! Why a range does or does not take records.
//!
//! Owns one sentence for each state that `segments`, `ending` and `followers` can leave a range in. The states are
//! matched on without exception, so a new one does not compile before it has its sentence.

use std::time::Duration;

use metadata::vnode::RangeState;
use replication::primary::Doing;
use storage::store::{State as CopyState, Status};
use types::{NodeId, Offset, RangeId, SegmentId, quorum};
use wire::response::Explanation;

use super::cause::Cause;
use super::copies::why;
use crate::ending::{Ending, Step};
use crate::followers::Crew;
use crate::healing::Progress;
use crate::node::Node;
use crate::resize::Standing;
use crate::route::Primary;
use crate::segments::{InFlight, Open, State};
use crate::upkeep::Limit;

/// An append that has waited for less is on its way like any other.
const LATE_AFTER: Duration = Duration::from_secs(1);
/// Ranges that are named of many.
const NAMED_MAX: usize = 16;
/// Losses of a range that are told.
const LOSSES_MAX: usize = 16;

type Facts = Vec<(&'static str, String)>;

/// Copies of a segment, how many must say where it ends, and those that cannot be asked from here.
struct Quorum {
    copies: usize,
    needed: usize,
    away: Vec<NodeId>,
}

impl Node {
    /// Why a range does or does not take records, as far as this node knows.
    pub(super) fn explain_range(&self, id: RangeId) -> Explanation {
        let facts = self.facts_of_range(id);
        self.cause_of_range(id).told(self.core.config.node, facts)
    }

    fn cause_of_range(&self, id: RangeId) -> Cause {
        let vnode = self.core.meta.of(id.topic);
        let listed = vnode.range(id).map(|range| range.state);
        let active = vnode.active_segment(id);
        if active.is_none() {
            match listed {
                Some(RangeState::Active) => {}
                Some(RangeState::Replaced) => {
                    let others = vnode.children_of(id).iter().map(|seq| seq.0.to_string());
                    let others = others.take(NAMED_MAX).collect::<Vec<_>>().join(", ");
                    let text = format!("it was split or merged: its keys are in range {others} now");
                    return Cause::moves("replaced", text, "ask about those; what it holds stays readable");
                }
                Some(RangeState::Sealed) | None => {
                    return Cause::moves("topic_sealed", "its topic takes no more records", "nothing");
                }
            }
        }
        let known = self.ranges.get(&id);
        match known.map(|range| &range.state) {
            None | Some(State::Idle) => match active {
                Some((segment, listed)) => self.cause_elsewhere(segment, listed.replicas.first().copied()),
                None => self.cause_of_idle(id),
            },
            Some(State::Blocked) => {
                let since = known.and_then(|range| range.paused_at);
                self.cause_of_blocked(id).since(since.map(|since| self.core.now.since(since)))
            }
            Some(State::Registering) => {
                self.cause_in_metadata(id, "registering", "the registration of its next segment")
            }
            Some(State::Unmade { segment, retry_at, .. }) => {
                self.cause_of_unmade(*segment, *retry_at <= self.core.now)
            }
            Some(State::Creating { segment, .. }) => {
                self.cause_of_creating(*segment, known.and_then(|range| range.crew.as_deref()))
            }
            Some(State::Open(open)) => {
                self.cause_of_open(id, open, known.and_then(|range| range.crew.as_deref()))
            }
            Some(State::Stale { .. }) => {
                let text = format!(
                    "its last segment was begun before {} started, and waits for others like it to end",
                    self.called(self.core.config.node)
                );
                Cause::waits("leftover", text, "it is ended in its turn, and at once when a record comes")
            }
            Some(State::Ending(ending)) => {
                let crew = known.and_then(|range| range.crew.as_deref());
                let since = crew.map(|crew| self.core.now.since(crew.since));
                self.cause_of_ending(id, ending, crew).since(since)
            }
            Some(State::Stopped) => self.cause_of_stopped(id),
        }
    }

    fn cause_of_idle(&self, id: RangeId) -> Cause {
        match self.primary_of(id) {
            Primary::Nobody => self.cause_of_blocked(id),
            Primary::Here | Primary::At(_) if self.core.able_nodes().is_empty() => {
                let text = "no node takes new segments: each is away, draining, or failed a moment ago";
                Cause::stands("no_able_node", text, "bring a node back, or undrain one; see `explain node`")
            }
            Primary::Here | Primary::At(_) if self.core.lacks_domains(id.topic) => {
                let text = "copies shall lie in more failure domains than the nodes that take some are in";
                Cause::stands(
                    "insufficient_domains",
                    text,
                    "add a node in another domain, or lower MALACHI_LOG_MIN_DOMAINS",
                )
            }
            Primary::Here => self.idle_at(self.core.config.node),
            Primary::At(node) => self.idle_at(node),
        }
    }

    fn idle_at(&self, node: NodeId) -> Cause {
        let next = format!("the next record opens a segment at {}", self.called(node));
        Cause::moves("idle", "nothing waits: it has no open segment because no record came", next)
    }

    /// Its active segment is another node's.
    fn cause_elsewhere(&self, segment: SegmentId, primary: Option<NodeId>) -> Cause {
        let Some(primary) = primary else { return self.idle_at(self.core.config.node) };
        let name = self.called(primary);
        if self.core.liveness.is_up(primary) {
            let text = format!("{name} is its primary, and did not say how it stands");
            return Cause::waits("primary_silent", text, "ask again");
        }
        let since = self.core.liveness.dead_since(primary).map(|since| self.core.now.since(since));
        let reason = format!("its primary {name} cannot be reached from here");
        let cause = if self.healing.ending_of(segment).is_some() {
            self.cause_of_sealing(segment, &reason)
        } else {
            self.cause_of_others_sealing(segment, reason)
        };
        cause.since(since)
    }

    /// The node that leads its metadata ends it.
    fn cause_of_others_sealing(&self, segment: SegmentId, reason: String) -> Cause {
        let next = match self.leader_of(segment.range) {
            Some(leader) => {
                format!("{} ends the segment from its other copies, then another begins", self.called(leader))
            }
            None => {
                "nobody is known to lead its metadata: once somebody does, the segment is ended".to_owned()
            }
        };
        let Quorum { copies, needed, away } = self.quorum_of(segment);
        if copies - away.len() >= needed {
            return Cause::waits("primary_unreachable", reason, next);
        }
        let away = self.all_called(away);
        let text = format!("{reason}: {needed} of {copies} copies must say where it ends; away: {away}");
        Cause::stands("too_few_copies", text, format!("bring back a node that has an intact copy; {next}"))
    }

    fn quorum_of(&self, segment: SegmentId) -> Quorum {
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        let replicas = listed.map(|listed| listed.replicas.clone()).unwrap_or_default();
        let (copies, needed) = (replicas.len(), quorum::seal_count(replicas.len().max(1)));
        let away = replicas.into_iter().filter(|node| !self.core.liveness.is_up(*node)).collect();
        Quorum { copies, needed, away }
    }

    /// Parents with segments that did not end.
    fn cause_of_blocked(&self, id: RangeId) -> Cause {
        let vnode = self.core.meta.of(id.topic);
        let parents = vnode.open_ancestors_of(id);
        let called = |parent: &RangeId| {
            let active =
                vnode.active_segment(*parent).and_then(|(_, listed)| listed.replicas.first().copied());
            let primary = active.map_or_else(|| "nobody".to_owned(), |node| self.called(node));
            format!("range {} (primary {primary})", parent.seq.0)
        };
        let named: Vec<String> = parents.iter().take(NAMED_MAX).map(called).collect();
        let text = format!("records wait until what it replaced has ended: {}", named.join(", "));
        let next = match parents.first() {
            Some(parent) => format!("it opens a segment then; ask about range {}", parent.seq.0),
            None => "it opens a segment now".to_owned(),
        };
        Cause::waits("waits_for_parents", text, next)
    }

    fn leader_of(&self, id: RangeId) -> Option<NodeId> {
        self.core.meta.home(id.topic).and_then(|vnode| self.core.meta.leader(vnode))
    }

    fn cause_in_metadata(&self, id: RangeId, word: &'static str, what: &str) -> Cause {
        match self.leader_of(id) {
            Some(leader) => {
                let text =
                    format!("{what} is on its way through the metadata, which {} leads", self.called(leader));
                Cause::waits(word, text, "it goes on once a majority of the metadata's members have it")
            }
            None => {
                let text =
                    format!("{what} waits for the metadata, which nobody leads as far as is known here");
                Cause::stands(
                    "no_metadata_leader",
                    text,
                    "a majority of the members of its vnode must be up; see `ring`",
                )
            }
        }
    }

    fn cause_of_unmade(&self, segment: SegmentId, due: bool) -> Cause {
        let text = format!(
            "the copy of segment {} could not be made at {}: its disk failed or is full",
            segment.seq.0,
            self.called(self.core.config.node)
        );
        let next = if due {
            "the next record tries again"
        } else {
            "records are refused for a moment, then tried again"
        };
        Cause::stands("copy_not_made", text, next)
    }

    fn cause_of_creating(&self, segment: SegmentId, crew: Option<&Crew>) -> Cause {
        let Some(crew) = crew else {
            let text = format!("the copy of segment {} is being made on the disk here", segment.seq.0);
            return Cause::waits("making_copies", text, "it takes records then");
        };
        let replicas = crew.replicas();
        let lacking: Vec<NodeId> = lacking(crew, None);
        let text = format!(
            "copies of segment {} are being made: {} of {} must be there, and {} lack theirs",
            segment.seq.0,
            quorum::ack_count(replicas.len()),
            replicas.len(),
            self.all_called(lacking)
        );
        let since = self.core.now.since(crew.since);
        Cause::waits("making_copies", text, "it takes records then; after 5 s other nodes are chosen")
            .since(Some(since))
    }

    fn cause_of_open(&self, id: RangeId, open: &Open, crew: Option<&Crew>) -> Cause {
        let now = self.core.now;
        let oldest = open.in_flight.front().filter(|append| now.since(append.at) >= LATE_AFTER);
        let Some(crew) = crew else {
            return match oldest {
                Some(append) => self.cause_of_slow_disk(append),
                None => self
                    .cause_of_limited(id)
                    .unwrap_or_else(|| Cause::moves("open", "it takes records", "nothing")),
            };
        };
        if let Some(append) = oldest {
            return self.cause_of_no_quorum(append, crew);
        }
        let absent: Vec<NodeId> = absent(crew);
        if absent.is_empty() {
            return self.cause_of_limited(id).unwrap_or_else(|| {
                Cause::moves("open", "it takes records, and all copies follow", "nothing")
            });
        }
        let text =
            format!("it takes records with a quorum; these do not follow: {}", self.all_called(absent));
        let next = "they catch up when they can; when other nodes are better the next segment goes there";
        Cause::moves("degraded", text, next).since(Some(crew.primary.standing(now).behind))
    }

    /// It takes more than one range is to take, and stays one.
    fn cause_of_limited(&self, id: RangeId) -> Option<Cause> {
        let (_, standing) = self.resize_standing(id)?;
        let Standing::Limited(_, limit) = standing else { return None };
        let text =
            format!("it takes records, more than one range is to take, and is not split: {}", of(limit));
        let next = match limit {
            Limit::OneKey => "only other keys help: what has one key has one order, and one range",
            Limit::Narrow => "no range is smaller: a topic with a wider keyspace could be split further",
            Limit::Topic => "raise MALACHI_AUTO_SPLIT_TOPIC_RANGES_MAX, or split it by hand",
            Limit::Cluster => "raise MALACHI_AUTO_SPLIT_CLUSTER_RANGES_MAX, or split it by hand",
            Limit::History => {
                "split it by hand: a topic has 65,536 ranges in its life, and half of them are left"
            }
        };
        Some(Cause::moves("at_limit", text, next))
    }

    fn cause_of_slow_disk(&self, append: &InFlight) -> Cause {
        let text =
            format!("the disk of {} has not synced the oldest append", self.called(self.core.config.node));
        let since = self.core.now.since(append.at);
        Cause::waits("disk_slow", text, "it is answered with the sync; look at the disk").since(Some(since))
    }

    fn cause_of_no_quorum(&self, append: &InFlight, crew: &Crew) -> Cause {
        let copies = crew.replicas().len();
        let lacking = lacking(crew, Some(append.end));
        let (have, needed) = (copies - lacking.len(), quorum::ack_count(copies));
        let text = format!(
            "{have} of {copies} copies have the oldest append, and {needed} must: {} lack it",
            self.all_called(lacking)
        );
        let can_end = crew.primary.standing(self.core.now).there >= quorum::seal_count(copies);
        let since = Some(self.core.now.since(append.at));
        if can_end {
            let next =
                "before long the segment is ended from the copies that are there, and goes on elsewhere";
            Cause::waits("no_quorum", text, next).since(since)
        } else {
            let next = format!(
                "{} copies must be reachable before anybody can tell where it ends",
                quorum::seal_count(copies)
            );
            Cause::stands("no_quorum", text, next).since(since)
        }
    }

    fn cause_of_ending(&self, id: RangeId, ending: &Ending, crew: Option<&Crew>) -> Cause {
        let here = self.called(self.core.config.node);
        match ending.step {
            Step::Draining { .. } => match (ending.in_flight.front(), crew) {
                (Some(append), Some(crew)) => {
                    let lacking = self.all_called(lacking(crew, Some(append.end)));
                    let text = format!(
                        "its segment ends; {} appends are on their way, and {lacking} lack them",
                        ending.in_flight.len()
                    );
                    Cause::waits("draining", text, "the next segment begins when they are stored")
                }
                (Some(_), None) => {
                    let text = format!(
                        "its segment ends; {} appends wait for the disk of {here}",
                        ending.in_flight.len()
                    );
                    Cause::waits("draining", text, "the next segment begins when they are stored")
                }
                (None, _) => Cause::waits("draining", "its segment ends", "the next segment begins then"),
            },
            Step::Fencing | Step::Sealing => {
                let text = format!("its segment ends; the copy at {here} is being sealed");
                Cause::waits("sealing", text, "the next segment begins when that is recorded")
            }
            Step::Verifying => {
                let text = format!("the only copy of its segment, at {here}, is damaged and is read through");
                Cause::waits("looking_for_loss", text, "the range goes on behind everything it may have held")
            }
            Step::Recording(_) => self.cause_in_metadata(id, "recording", "the end of its segment"),
            Step::Stuck => {
                let text = format!("its segment could not be ended at {here}, {} times", ending.tries());
                Cause::stands(
                    "ending_stuck",
                    text,
                    format!("it is tried again, within seconds; look at the disk of {here}"),
                )
            }
            Step::Handed { .. } => {
                self.cause_of_sealing(ending.segment, &format!("{here} cannot end its segment alone"))
            }
        }
    }

    /// Whoever asks all copies where a segment ends is at it here, or somewhere.
    fn cause_of_sealing(&self, segment: SegmentId, reason: &str) -> Cause {
        let Quorum { copies, needed, away } = self.quorum_of(segment);
        let gone = if away.is_empty() { String::new() } else { format!("; away: {}", self.all_called(away)) };
        let next = "then the end is recorded, and the next segment begins";
        match self.healing.ending_of(segment) {
            Some(Progress::Asking(asked)) if !asked.is_empty() => {
                let text = format!(
                    "{reason}: {needed} of {copies} copies must say where it ends; asked: {}{gone}",
                    self.all_called(asked)
                );
                Cause::waits("sealing_from_copies", text, next)
            }
            Some(Progress::Asking(_)) => Cause::waits(
                "sealing_from_copies",
                format!("{reason}: copies are made equal up to its end{gone}"),
                next,
            ),
            Some(Progress::Recording) => {
                self.cause_in_metadata(segment.range, "recording", "the end of its segment")
            }
            Some(Progress::Queued) => Cause::waits(
                "sealing_queued",
                format!("{reason}: other segments are ended first{gone}"),
                next,
            ),
            Some(Progress::Resting { tries, at }) => {
                let text = format!(
                    "{reason}: {needed} of {copies} copies must say where it ends, and fewer did, {tries} times{gone}"
                );
                let ms = at.since(self.core.now).as_millis();
                let next = format!("tried again in {ms} ms; bring back a node that has an intact copy");
                Cause::stands("too_few_copies", text, next)
            }
            None => {
                Cause::waits("sealing_from_copies", format!("{reason}: it is about to be ended{gone}"), next)
            }
        }
    }

    fn cause_of_stopped(&self, id: RangeId) -> Cause {
        let active = self.core.meta.of(id.topic).active_segment(id).map(|(segment, _)| segment);
        let reason = match active.and_then(|segment| self.core.copy_status(segment)) {
            Some(Status::Here(extent)) => match extent.state {
                CopyState::Latched(reason) | CopyState::Stopped(reason) => why(reason),
                CopyState::Active | CopyState::Sealed => "it could not be ended",
            },
            Some(Status::Unreadable) => "what describes it cannot be read",
            Some(Status::Creating | Status::Unread | Status::Deleting) | None => "it is not there",
        };
        let text =
            format!("its only copy, at {}, is out of service: {reason}", self.called(self.core.config.node));
        let next = "nobody else has a copy: what lies before the damage can be read, nothing is taken; mend the disk";
        Cause::stands("only_copy_failed", text, next)
    }

    fn facts_of_range(&self, id: RangeId) -> Facts {
        let vnode = self.core.meta.of(id.topic);
        let mut facts: Facts = Vec::new();
        let active = vnode.active_segment(id);
        if let Some((segment, listed)) = active {
            facts.push(("segment", segment.seq.0.to_string()));
            facts.push(("replicas", self.all_called(listed.replicas.iter().copied())));
        }
        if let Some(home) = self.core.meta.home(id.topic) {
            let leader = self.leader_of(id).map_or_else(|| "unknown".to_owned(), |node| self.called(node));
            facts.push(("vnode", format!("{home}, led by {leader}")));
        }
        let lossy = vnode.segments_of(id).filter(|(_, listed)| listed.lost() > 0);
        for (segment, listed) in lossy.take(LOSSES_MAX) {
            let (from, to) = (listed.end().unwrap_or_default(), listed.goes_on().unwrap_or_default());
            let seq = segment.seq.0;
            let what = format!("offsets {from} to {to}, behind segment {seq}: its only copy was damaged");
            facts.push(("lost", what));
        }
        let Some(range) = self.ranges.get(&id) else { return facts };
        facts.push(("state", state_of(&range.state).to_owned()));
        match &range.state {
            State::Open(open) => {
                facts.push(("committed_end", open.committed_end.0.to_string()));
                facts.push(("appended_end", open.appended_end.0.to_string()));
                facts.push(("in_flight", open.in_flight.len().to_string()));
            }
            State::Ending(ending) => {
                facts.push(("cause_of_end", format!("{:?}", ending.cause).to_lowercase()));
                facts.push(("in_flight", ending.in_flight.len().to_string()));
            }
            State::Idle
            | State::Blocked
            | State::Registering
            | State::Unmade { .. }
            | State::Creating { .. }
            | State::Stale { .. }
            | State::Stopped => {}
        }
        facts.push(("waiting", range.waiting.len().to_string()));
        if let Some((rate, standing)) = self.resize_standing(id) {
            facts.push(("takes", format!("{} records/s, {} bytes/s", rate.records, rate.bytes)));
            facts.push(("split", split_of(standing, self.core.config.resize.split_after)));
        }
        if let Some(crew) = range.crew.as_deref() {
            for (follower, node) in crew.replicas().iter().enumerate().skip(1) {
                let doing = crew.primary.doing(follower).map_or("unknown", doing);
                let held = crew
                    .primary
                    .matched(follower)
                    .map_or_else(|| "nothing".to_owned(), |end| end.0.to_string());
                facts.push((
                    "follower",
                    format!("{}: {doing}, has everything before {held}", self.called(*node)),
                ));
            }
        }
        facts
    }
}

/// Why a range stays one.
fn of(limit: Limit) -> &'static str {
    match limit {
        Limit::OneKey => "most of it has one key, or keys that lie in one place",
        Limit::Narrow => "its slice is a single place of the keyspace",
        Limit::Topic => "its topic has as many ranges as may come by themselves",
        Limit::Cluster => "the cluster has as many ranges as may come by themselves",
        Limit::History => "its topic has had half of the ranges it may have in its life",
    }
}

/// How it stands to what one range is to take and hold.
fn split_of(standing: Standing, after: Duration) -> String {
    let percent = |thousandths: u64| format!("{}.{} %", thousandths / 10, thousandths % 10);
    match standing {
        Standing::Off => "not by itself: MALACHI_AUTO_SPLIT is off".to_owned(),
        Standing::Below(worst) => {
            format!("not needed: {} of what one range is to take and hold", percent(worst))
        }
        Standing::Above(worst) => {
            format!(
                "{} of what one range is to take and hold: split after {} s of it",
                percent(worst),
                after.as_secs()
            )
        }
        Standing::Limited(worst, limit) => {
            format!("{} of what one range is to take and hold, and not split: {}", percent(worst), of(limit))
        }
    }
}

/// Copies that do not have everything before `end`; those that are not there, when there is none.
fn lacking(crew: &Crew, end: Option<Offset>) -> Vec<NodeId> {
    let lacks = |replica: &usize| match (crew.primary.matched(*replica), end) {
        (Some(matched), Some(end)) => matched < end,
        (Some(_), None) => false,
        (None, _) => true,
    };
    let replicas = crew.replicas();
    (0..replicas.len()).filter(lacks).map(|replica| replicas[replica]).collect()
}

/// Followers that do not follow.
fn absent(crew: &Crew) -> Vec<NodeId> {
    let follows = |follower: usize| crew.primary.doing(follower) == Some(Doing::Following);
    let replicas = crew.replicas().iter().enumerate().skip(1);
    replicas.filter(|(follower, _)| !follows(*follower)).map(|(_, node)| *node).collect()
}

fn doing(doing: Doing) -> &'static str {
    match doing {
        Doing::Making => "its copy is being made",
        Doing::Asking => "asked where it stands",
        Doing::Following => "following",
        Doing::Rebuilding => "catching up, does not count yet",
        Doing::Away => "away",
        Doing::Failed => "its copy failed",
        Doing::Superseded => "takes no more: the segment is being ended",
    }
}

fn state_of(state: &State) -> &'static str {
    match state {
        State::Idle => "idle",
        State::Blocked => "blocked",
        State::Registering => "registering",
        State::Unmade { .. } => "unmade",
        State::Creating { .. } => "creating",
        State::Open(_) => "open",
        State::Stale { .. } => "stale",
        State::Ending(ending) => match ending.step {
            Step::Draining { .. } => "draining",
            Step::Fencing => "fencing",
            Step::Sealing => "sealing",
            Step::Verifying => "verifying",
            Step::Recording(_) => "recording",
            Step::Stuck => "stuck",
            Step::Handed { .. } => "handed",
        },
        State::Stopped => "stopped",
    }
}
