//! The copies of one ended segment made whole, where they are or elsewhere.
//!
//! Owns the order: every copy is asked where it stands; those that can be made whole where they are, are; then others
//! take the place of those that cannot, that were given up, or whose node is to be emptied; then the tables are told,
//! and only after that a copy goes that is not needed any more.
//!
//! Invariants:
//! - a node comes into the set of a segment only with a copy that is whole;
//! - a copy that is whole, or may be, leaves only when all that stay are whole, and as many as shall be;
//! - a copy that is not whole leaves only when a whole one stays.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use metadata::vnode::{SegmentState, SetSegmentReplicas};
use placement::rank::Item;
use placement::repair as placing;
use replication::repair::{Answer, Ask, Failure, Judgement, Recorded, Repair};
use replication::sealing::Filled;
use storage::store::{self, Error, Reply};
use types::{NodeId, SegmentId};

use super::fill::{Fill, Purpose};
use super::seal::standing;
use super::{FAILING_MAX, MENDS_MAX, MENDS_WAITING_MAX, Notice, What};
use crate::copies::CopyAnswer;
use crate::meta;
use crate::node::Node;
use crate::planted::Bug;
use crate::segments::EPOCH_FIRST;

/// Nodes outside the set of a segment that are asked for a copy at one time.
const OTHERS_MAX: usize = 8;

/// One segment whose copies are looked at.
#[derive(Debug)]
pub(super) struct Job {
    number: u64,
    recorded: Recorded,
    /// As the tables had them when this began.
    replicas: Vec<NodeId>,
    /// Not answered yet.
    left: BTreeSet<NodeId>,
    found: BTreeMap<NodeId, Found>,
    /// Nodes that hold a copy and are not in the set: one that was moved while they were away, or was never taken in.
    strangers: BTreeSet<NodeId>,
    /// Copies that were read through and are as recorded.
    read: BTreeSet<NodeId>,
    /// Copies to be made whole, one after another.
    targets: VecDeque<NodeId>,
    /// The one being made whole.
    mending: Option<(NodeId, Repair)>,
    /// Records were carried to it.
    carried: bool,
    /// Broken copies that are to be made anew where they are, or were.
    anew: BTreeSet<NodeId>,
    /// Nodes that were to take a copy, whatever came of it.
    tried: BTreeSet<NodeId>,
    /// The set on its way to the tables.
    placing: Option<Vec<NodeId>>,
}

/// What is known of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Whole,
    /// It can be made whole where it is.
    Mendable,
    /// The same, by making it anew.
    Damaged,
    /// It has to be replaced.
    Broken,
    /// Its node does not answer.
    Silent,
    /// It could not be made whole this time.
    Failed,
}

impl Job {
    fn is(&self, node: NodeId, found: Found) -> bool {
        self.found.get(&node) == Some(&found)
    }

    fn whole(&self) -> usize {
        self.found.values().filter(|found| **found == Found::Whole).count()
    }

    /// Those that can give records, the whole ones first.
    fn sources(&self, target: NodeId) -> Vec<NodeId> {
        let may = |node: &NodeId| {
            *node != target && (self.is(*node, Found::Mendable) || self.is(*node, Found::Failed))
        };
        let whole = self.found.keys().copied().filter(|node| self.is(*node, Found::Whole) && *node != target);
        whole.chain(self.found.keys().copied().filter(may)).collect()
    }
}

impl Node {
    /// The copies of a segment are to be looked at, if it is this node's to do so.
    pub(super) fn mend_soon(&mut self, segment: SegmentId) {
        self.healing.settled.remove(&segment);
        if self.leads_segment(segment) && self.has_others() && self.healing.to_mend.len() < MENDS_WAITING_MAX
        {
            self.healing.to_mend.push_back(segment);
            self.mend_more();
        }
    }

    /// Begins with those that wait, as many at a time as may be.
    pub(super) fn mend_more(&mut self) {
        while self.healing.mends.len() < MENDS_MAX
            && let Some(segment) = self.healing.to_mend.pop_front()
        {
            self.mend(segment);
        }
    }

    fn mend(&mut self, segment: SegmentId) {
        let listed = self.core.meta.of(segment.range.topic).segment(segment);
        let Some(listed) = listed.filter(|_| !self.healing.mends.contains_key(&segment)) else { return };
        let SegmentState::Sealed(sealed) = listed.state else { return };
        let (base, replicas) = (listed.start, listed.replicas.clone());
        let recorded = Recorded { base, end: base.plus(sealed.length), bytes: sealed.byte_size };
        let number = self.healing.number();
        let others = self.others_to_ask(&replicas, number);
        let job = Job {
            number,
            recorded,
            left: replicas.iter().chain(&others).copied().collect(),
            replicas: replicas.clone(),
            found: BTreeMap::new(),
            strangers: BTreeSet::new(),
            read: BTreeSet::new(),
            targets: VecDeque::new(),
            mending: None,
            carried: false,
            anew: BTreeSet::new(),
            tried: BTreeSet::new(),
            placing: None,
        };
        self.healing.mends.insert(segment, job);
        for node in replicas.into_iter().chain(others) {
            let what = What::Probe { segment, job: number, node };
            self.heal_ask(node, what, true, store::Request::Inspect { segment });
        }
    }

    /// Some of the nodes outside a set: one after another all of them are asked for copies that nobody needs.
    fn others_to_ask(&self, replicas: &[NodeId], number: u64) -> Vec<NodeId> {
        let nodes = self.core.meta.cluster().nodes().map(|(node, _)| node);
        let others: Vec<NodeId> =
            nodes.filter(|node| !replicas.contains(node) && self.core.liveness.is_up(*node)).collect();
        let count = others.len() as u64;
        let turn = number.checked_rem(count).unwrap_or_default();
        let skip = usize::try_from(turn).unwrap_or_default();
        others.iter().cycle().skip(skip).take(others.len().min(OTHERS_MAX)).copied().collect()
    }

    fn mend_job(&mut self, (segment, number): (SegmentId, u64)) -> Option<&mut Job> {
        self.healing.mends.get_mut(&segment).filter(|job| job.number == number)
    }

    /// A copy said where it stands.
    pub(super) fn probe_answered(&mut self, key: (SegmentId, u64), node: NodeId, answer: CopyAnswer) {
        let Some(job) = self.mend_job(key) else { return };
        let is_here = matches!(answer, CopyAnswer::Store(Reply::Inspected(_)));
        let found = match answer {
            CopyAnswer::Store(Reply::Inspected(extent)) => match job.recorded.judge(&standing(&extent)) {
                Judgement::Whole => Found::Whole,
                Judgement::End | Judgement::Verify | Judgement::Fill => Found::Mendable,
                Judgement::Rebuild => Found::Damaged,
                Judgement::Replace | Judgement::Suspect => Found::Broken,
            },
            CopyAnswer::Store(Reply::Failed(Error::NoSuchSegment)) => Found::Mendable,
            CopyAnswer::Store(Reply::Failed(Error::Damaged(_))) => Found::Damaged,
            CopyAnswer::Store(Reply::Failed(Error::Latched(_))) => Found::Broken,
            CopyAnswer::Store(_) => Found::Failed,
            CopyAnswer::Unreachable | CopyAnswer::Unanswered => Found::Silent,
        };
        job.left.remove(&node);
        if job.replicas.contains(&node) {
            job.found.insert(node, found);
        } else if is_here {
            job.strangers.insert(node);
        }
        if job.replicas.contains(&node) && matches!(found, Found::Mendable | Found::Damaged) {
            job.targets.push_back(node);
        }
        if job.left.is_empty() {
            self.mend_next(key);
        }
    }

    /// Makes the next copy whole, or goes on to who shall hold the segment.
    fn mend_next(&mut self, key: (SegmentId, u64)) {
        let segment = key.0;
        let listed =
            self.core.meta.of(segment.range.topic).segment(segment).map(|listed| listed.replicas.clone());
        let Some(job) = self.mend_job(key) else { return };
        // Others had other plans for it, or it is gone.
        if listed.as_ref() != Some(&job.replicas) {
            return self.mend_over(segment, false);
        }
        let Some(target) = job.targets.pop_front() else { return self.place_copies(key) };
        // Before it is removed nobody should look for records there first.
        if job.is(target, Found::Damaged) && job.replicas.first() == Some(&target) && job.whole() > 0 {
            let mut set = job.replicas.clone();
            set.sort_by_key(|node| !job.is(*node, Found::Whole));
            return self.propose_set(key, set);
        }
        let sources = job.sources(target);
        let repair = Repair::new(job.recorded, target, sources, EPOCH_FIRST.next());
        let mut repair = if job.anew.contains(&target) { repair.anew() } else { repair };
        let ask = repair.begin();
        job.mending = Some((target, repair));
        job.carried = false;
        self.do_for_mend(key, ask);
    }

    fn do_for_mend(&mut self, key: (SegmentId, u64), ask: Ask) {
        let (segment, number) = key;
        let what = What::Mend { segment, job: number };
        let Some(job) = self.mend_job(key) else { return };
        match ask {
            Ask::Fence { node, epoch } => {
                self.heal_ask(node, what, true, store::Request::Fence { segment, epoch });
            }
            Ask::Make { node, epoch } => {
                job.carried = true;
                let request = self.making(segment, epoch);
                self.heal_ask(node, what, true, request);
            }
            Ask::Remove { node } => self.heal_ask(node, what, true, store::Request::Delete { segment }),
            Ask::Verify { node } => self.heal_ask(node, what, true, store::Request::Verify { segment }),
            Ask::Seal { node } => {
                let recorded = job.recorded;
                let short = self.core.config.has_bug(Bug::TrimBelowSeal);
                let (end, at) = (if short { recorded.base } else { recorded.end }, self.core.wall);
                self.heal_ask(node, what, true, store::Request::Seal { segment, end, at });
            }
            Ask::Fill { from, to, at, epoch } => {
                job.carried = true;
                let end = job.recorded.end;
                let purpose = Purpose::Mend { job: number };
                self.begin_fill(Fill::new(segment, purpose, (from, to), (at, end), epoch));
            }
            Ask::Whole => self.mended(key, None),
            Ask::Failed(failure) => self.mended(key, Some(failure)),
        }
    }

    /// A step of making a copy whole was answered.
    pub(super) fn mend_answered(&mut self, key: (SegmentId, u64), answer: CopyAnswer) {
        self.mend_on(key, answer_of(answer));
    }

    /// Records were carried to a copy that is being made whole, or not.
    pub(super) fn mend_filled(&mut self, segment: SegmentId, number: u64, filled: Filled) {
        let answer = match filled {
            Filled::Whole(standing) => Answer::Stands(standing),
            Filled::SourceFailed => Answer::SourceFailed,
            Filled::TargetFailed => Answer::Silent,
            Filled::Refused { epoch } => Answer::Refused { epoch },
        };
        self.mend_on((segment, number), answer);
    }

    fn mend_on(&mut self, key: (SegmentId, u64), answer: Answer) {
        let Some((_, repair)) = self.mend_job(key).and_then(|job| job.mending.as_mut()) else { return };
        let ask = repair.answered(answer);
        self.do_for_mend(key, ask);
    }

    fn mended(&mut self, key: (SegmentId, u64), failure: Option<Failure>) {
        let segment = key.0;
        let Some(job) = self.mend_job(key) else { return };
        let Some((node, _)) = job.mending.take() else { return };
        let found = match failure {
            None => Found::Whole,
            Some(Failure::OutOfService | Failure::Suspect) => Found::Broken,
            // Still no source for another.
            Some(Failure::NoSource | Failure::Target) if job.is(node, Found::Damaged) => Found::Damaged,
            Some(Failure::NoSource | Failure::Target) => Found::Failed,
        };
        job.found.insert(node, found);
        let carried = job.carried;
        if failure.is_none() {
            self.healing.failing.remove(&(segment, node));
        }
        match failure {
            None if carried => self.tell(Notice::Mended { segment, node }),
            None => {}
            Some(failure) => self.tell_failing(Notice::NotMended { segment, node, failure }, (segment, node)),
        }
        self.mend_next(key);
    }

    /// What stays as it is is told ever more rarely.
    fn tell_failing(&mut self, notice: Notice, copy: (SegmentId, NodeId)) {
        let failing = &mut self.healing.failing;
        if failing.len() >= FAILING_MAX && !failing.contains_key(&copy) {
            return;
        }
        let tries = failing.entry(copy).or_default();
        *tries = tries.saturating_add(1);
        if tries.is_power_of_two() {
            self.tell(notice);
        }
    }

    /// Everything that could be made whole is: who shall hold the segment from now on?
    fn place_copies(&mut self, key: (SegmentId, u64)) {
        let segment = key.0;
        let (living, rf) = (self.living(), self.core.config.segment_replicas.max(1));
        let domains = self.core.segment_domains(segment.range.topic);
        let Some(job) = self.mend_job(key) else { return };
        let broken: BTreeSet<NodeId> =
            job.found.iter().filter(|(_, found)| **found == Found::Broken).map(|(node, _)| *node).collect();
        let stays = |node: &NodeId| {
            living.belonging.contains(node) && !living.lost.contains(node) && !broken.contains(node)
        };
        let keep: Vec<NodeId> = job.replicas.iter().copied().filter(stays).collect();
        let usable = |node: &NodeId| {
            !broken.contains(node) && (!job.tried.contains(node) || job.is(*node, Found::Whole))
        };
        let able = living.able.iter().copied().filter(usable);
        let alive: BTreeSet<NodeId> = keep.iter().copied().chain(able).collect();
        let item = Item::Segment(segment);
        let healed = placing::healed(item, &keep, &alive, rf, domains.as_ref());
        // Whole ones move only once nothing else is wrong with the set.
        let is_well = job.replicas.iter().all(|node| keep.contains(node) && job.is(*node, Found::Whole));
        let domains = domains.filter(|_| is_well);
        let apart = domains.and_then(|domains| placing::spread_out(item, &healed, &alive, &domains));
        let wanted = apart.unwrap_or(healed);
        let come: Vec<NodeId> = wanted.iter().copied().filter(|node| !keep.contains(node)).collect();
        let missing: Vec<NodeId> = come.iter().copied().filter(|node| !job.is(*node, Found::Whole)).collect();
        if !missing.is_empty() && job.whole() > 0 {
            job.tried.extend(missing.iter().copied());
            job.targets = missing.into();
            return self.mend_next(key);
        }
        let mut set: Vec<NodeId> =
            wanted.into_iter().filter(|node| keep.contains(node) || job.is(*node, Found::Whole)).collect();
        let leave: Vec<NodeId> = job.replicas.iter().copied().filter(|node| !set.contains(node)).collect();
        // Where nobody comes in its place, a copy that may yet be good for something is better than none.
        let short = rf.min(job.replicas.len()).saturating_sub(set.len());
        let kept: Vec<NodeId> =
            leave.iter().copied().filter(|node| living.belonging.contains(node)).take(short).collect();
        set.extend(&kept);
        let whole = set.iter().filter(|node| job.is(**node, Found::Whole)).count();
        // One that does not answer may be whole.
        let may_be = |node: &NodeId| job.is(*node, Found::Whole) || job.is(*node, Found::Silent);
        let loses_whole = leave.iter().any(may_be);
        let enough = if loses_whole { whole == set.len() && whole >= rf.min(alive.len()) } else { whole > 0 };
        if !enough {
            return self.mend_over(segment, false);
        }
        if set.first().is_some_and(|first| !job.is(*first, Found::Whole)) {
            // A stable order: reads begin where everything is.
            let found = &job.found;
            set.sort_by_key(|node| found.get(node) != Some(&Found::Whole));
        }
        // The tables are asked once more: had another set been recorded, whoever is in it would be no stranger.
        let goes = job.strangers.iter().any(|node| !set.contains(node)) && whole == set.len();
        let unread = set.iter().copied().filter(|node| !job.read.contains(node));
        let unread: BTreeSet<NodeId> = unread.filter(|_| loses_whole || goes).collect();
        if !unread.is_empty() {
            // One that was damaged unseen must not be what is left.
            let number = job.number;
            job.left.clone_from(&unread);
            for node in unread {
                let what = What::Check { segment, job: number, node };
                self.heal_ask(node, what, true, store::Request::Verify { segment });
            }
            return;
        }
        if set == job.replicas && !goes {
            // Its disk may have been full, and have room by now.
            let again = kept.iter().copied().filter(|node| broken.contains(node) && job.anew.insert(*node));
            let again: VecDeque<NodeId> = again.collect();
            if !again.is_empty() {
                job.targets = again;
                return self.mend_next(key);
            }
            let settled = job.found.values().all(|found| matches!(found, Found::Whole | Found::Silent));
            for node in kept {
                self.tell_failing(Notice::NoSpare { segment, node }, (segment, node));
            }
            return self.mend_over(segment, settled);
        }
        self.propose_set(key, set);
    }

    /// A copy that is to stay was read through, or could not be.
    pub(super) fn check_answered(&mut self, key: (SegmentId, u64), node: NodeId, answer: &CopyAnswer) {
        let segment = key.0;
        let Some(job) = self.mend_job(key) else { return };
        job.left.remove(&node);
        let last = job.left.is_empty();
        let length = job.recorded.end.since(job.recorded.base);
        match answer {
            CopyAnswer::Store(Reply::Verified(report)) => {
                let exact = (report.records, report.bytes) == (length, job.recorded.bytes);
                if exact && report.damage.is_none() {
                    job.read.insert(node);
                } else {
                    job.found.insert(node, Found::Damaged);
                    let reason = store::FailReason::Other;
                    let request = store::Request::Latch { segment, reason };
                    self.heal_ask(node, What::Latch { segment }, true, request);
                }
            }
            CopyAnswer::Store(_) | CopyAnswer::Unreachable | CopyAnswer::Unanswered => {
                job.found.insert(node, Found::Failed);
            }
        }
        if last {
            self.place_copies(key);
        }
    }

    fn propose_set(&mut self, key: (SegmentId, u64), set: Vec<NodeId>) {
        let Some(job) = self.mend_job(key) else { return };
        job.placing = Some(set.clone());
        let expected = job.replicas.clone();
        if self.core.config.has_bug(Bug::DeleteBeforeCommit) {
            self.let_go(key.0, &expected, &set);
        }
        self.core.set_replicas(SetSegmentReplicas { segment: key.0, expected, replicas: set });
    }

    /// The tables took another set, or did not.
    pub(crate) fn replicas_set(&mut self, segment: SegmentId, result: Result<(), meta::Error>) {
        let Some(job) = self.healing.mends.get(&segment) else { return };
        let (Some(set), Ok(())) = (job.placing.clone(), result) else {
            return self.mend_over(segment, false);
        };
        let before = job.replicas.clone();
        let is_reorder = before.len() == set.len() && before.iter().all(|node| set.contains(node));
        let all_whole = set.iter().all(|node| job.is(*node, Found::Whole));
        let strangers = job.strangers.iter().copied().filter(|_| all_whole);
        let hold: Vec<NodeId> = before.iter().copied().chain(strangers).collect();
        let is_same = before == set;
        self.let_go(segment, &hold, &set);
        if !is_reorder {
            self.tell(Notice::Moved { segment, replicas: set });
        }
        self.mend_over(segment, false);
        // As it is now it has not been looked at.
        if !is_same {
            self.mend_soon(segment);
        }
    }

    fn let_go(&mut self, segment: SegmentId, before: &[NodeId], set: &[NodeId]) {
        for node in before.iter().copied().filter(|node| !set.contains(node)) {
            self.heal_ask(node, What::Leave { segment, node }, true, store::Request::Delete { segment });
        }
    }

    /// A copy that left its set is removed, or stays until its node looks for copies nobody lists.
    pub(super) fn copy_left(&mut self, segment: SegmentId, node: NodeId, answer: &CopyAnswer) {
        if let CopyAnswer::Store(Reply::Failed(error)) = answer {
            let detail = format!("on {node}: {error}");
            self.core.notice(crate::action::Notice::CopyLeft { segment, detail });
        }
    }

    fn mend_over(&mut self, segment: SegmentId, settled: bool) {
        self.healing.mends.remove(&segment);
        if settled {
            self.healing.settled.insert(segment);
        }
        self.mend_more();
    }
}

fn answer_of(answer: CopyAnswer) -> Answer {
    match answer {
        CopyAnswer::Store(Reply::Fenced(extent) | Reply::Sealed(extent)) => Answer::Stands(standing(&extent)),
        CopyAnswer::Store(Reply::Created) => Answer::Made,
        CopyAnswer::Store(Reply::Deleted | Reply::Failed(Error::NoSuchSegment)) => Answer::Missing,
        CopyAnswer::Store(Reply::Failed(Error::Exists)) => Answer::Exists,
        CopyAnswer::Store(Reply::Failed(Error::Fenced { epoch })) => Answer::Refused { epoch },
        CopyAnswer::Store(Reply::Failed(Error::Damaged(_))) => Answer::Unreadable,
        CopyAnswer::Store(Reply::Verified(report)) if report.damage.is_none() => {
            Answer::Verified { records: report.records, bytes: report.bytes }
        }
        CopyAnswer::Store(_) | CopyAnswer::Unreachable | CopyAnswer::Unanswered => Answer::Silent,
    }
}
