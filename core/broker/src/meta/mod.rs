//! The metadata this node replicates: proposals go in, decisions come out in log order.
//!
//! Owns the tables of every group as this node has them, the node's replicas (`consensus`), and who waits for which
//! proposal. Which vnode has a topic is in `home`, what becomes of a command that met another in `detour`, what a
//! vnode's replies mean to the rest of the node in `decided`, how proposals are put in `proposals`, what the cluster
//! group says in `crate::cluster`. Does not decide what to propose.
//!
//! Invariants:
//! - a decision is told only after its entry is durable on a quorum and applied here;
//! - what cannot be decided here is told as such, never dropped; a proposal has exactly one outcome;
//! - a vnode that has never decided anything writes nothing before it was allowed to begin, and the cluster group
//!   begins after the vnode: the node then asks for nothing that a crash between the two could have lost;
//! - positions that arrive while an entry with positions is on its way travel together in the next one.

mod apart;
mod applied;
mod asked;
mod confirm;
mod decided;
mod detour;
mod error;
mod follow;
mod fresh;
mod gauges;
mod home;
mod led;
mod origin;
mod outside;
mod passed;
mod proposals;
mod remote;
mod replies;
mod serve;
mod tables;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use consensus::{Action as Said, Host};
use metadata::cluster::Cluster;
use metadata::vnode::{Command, Vnode};
use raft::{Group, ProposalId, Role};
use storage::disk::Completion;
use storage::raft_log;
use types::{FenceToken, Instant, NodeId, RaftIndex, RangeId, SegmentId, Term, TopicId, TopicName, VnodeId};

use crate::action::{Action, Actions, Notice, Stop};
use crate::cluster;
use crate::config::Config;
use crate::event::{RequestId, Volume};
use crate::planted::Planted;

use asked::Asked;
use origin::Origin;
use peer::message::{ProposeReply, ReadIndexReply};
use tables::Tables;

pub(crate) use asked::Fate;
pub(crate) use confirm::Purpose;
pub(crate) use decided::{Decided, Registered};
pub use error::Error;
#[cfg(feature = "planted")]
pub use led::Effect;

/// The group of what holds for the whole cluster; no vnode of the ring has this number.
pub(crate) const CLUSTER: VnodeId = VnodeId(u64::MAX - 2);
/// The vnode a ring begins with.
pub(crate) const VNODE: VnodeId = VnodeId(0);
/// How often groups of several members are told that time goes on.
const TICK: Duration = Duration::from_millis(100);
/// Numbers of proposals to the cluster group begin here.
const CLUSTER_NUMBERS: u64 = 1 << 62;

/// Positions in one entry.
const COMMITS_PER_ENTRY_MAX: usize = 1024;
/// Topics whose vnode is remembered although they are gone, beside as many as there are.
const GONE_TOPICS_MAX: usize = 1024;

/// Who waits for a proposal to a vnode.
#[derive(Debug)]
enum Then {
    CreateTopic {
        id: RequestId,
        name: TopicName,
    },
    SealTopic {
        id: RequestId,
        topic: TopicId,
    },
    DeleteTopic {
        id: RequestId,
        topic: TopicId,
        name: TopicName,
    },
    BindPolicy {
        id: RequestId,
    },
    SplitRange {
        id: RequestId,
        range: RangeId,
    },
    MergeRanges {
        id: RequestId,
        ranges: [RangeId; 2],
    },
    /// A range takes or holds too much.
    SplitByLoad {
        range: RangeId,
    },
    /// Two take and hold little.
    MergeByLoad {
        ranges: [RangeId; 2],
    },
    Register {
        range: RangeId,
        registered: Registered,
    },
    Seal {
        range: RangeId,
    },
    Delete {
        segment: SegmentId,
    },
    /// The seal of a segment that its primary could not end.
    End {
        segment: SegmentId,
    },
    /// Who holds a segment.
    Replicas {
        segment: SegmentId,
    },
    Expire {
        segment: SegmentId,
    },
    /// With the time when each is given up, if it was refused before because its topic moves.
    Commit {
        group: VnodeId,
        ids: Vec<(RequestId, Option<Instant>)>,
    },
    /// A group is to be forgotten.
    DeleteGroup {
        id: RequestId,
    },
    /// A step of a change of the ring.
    Ring {
        fence: FenceToken,
    },
}

/// What came of a group's log, in its order.
#[derive(Debug)]
pub(crate) enum Outcome<Reply, Then> {
    /// An entry was applied; with whoever waits for it, when it was proposed here in this lifetime.
    Applied { reply: Reply, then: Option<Then> },
    /// A proposal will not be heard of again.
    Lost { then: Then, fate: Fate },
}

/// One vnode as this node has it.
#[derive(Debug, Default)]
struct Shard {
    tables: Tables<Vnode>,
    /// Positions that wait for the entry on its way.
    commits: VecDeque<detour::Waiting>,
    commit_on_its_way: bool,
}

/// The metadata of this node.
#[derive(Debug)]
pub(crate) struct Meta {
    host: Host,
    cluster: Tables<Cluster>,
    shards: BTreeMap<VnodeId, Shard>,
    /// Which vnode has which topic. Checked on use: a topic may be gone.
    topics: BTreeMap<TopicId, VnodeId>,
    /// Topics that their vnode gave away and that were not seen at another yet.
    underway: BTreeMap<TopicId, home::Underway>,
    detours: detour::Detours,
    /// Stands for the vnode of a topic that no vnode has.
    nowhere: Vnode,
    asked: Asked<detour::Proposed>,
    asked_cluster: Asked<cluster::Then>,
    /// Whether this node forms a cluster when it has no group.
    forms: bool,
    formation: Formation,
    /// Groups it began that have decided nothing, until they may.
    held: BTreeSet<VnodeId>,
    remote: remote::Remote,
    follows: follow::Follows,
    served: serve::Served,
    /// Answers that wait to be sent.
    answers: Vec<(serve::Caller, peer::Message)>,
    /// Groups something was applied in of which followers were not told. They are once the tables are as far as the
    /// group: until then a state would be handed out as one that has entries it lacks.
    news: BTreeSet<VnodeId>,
    /// Nodes there is a connection to.
    up: BTreeSet<NodeId>,
    /// The tables of the cluster said something about nodes or the ring that was not looked at yet.
    cluster_changed: bool,
    next_ask: u64,
    now: Instant,
    tick_at: Instant,
    ask_around_at: Instant,
    apart: apart::Apart,
    fresh: fresh::Fresh,
    confirms: confirm::Confirms,
    planted: Planted,
    led: led::Effects,
    /// Whether the tables of the cluster, and of all vnodes, were told to be complete.
    ready: (bool, bool),
    decided: Vec<Decided>,
}

/// How far the groups this node begins with are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Formation {
    /// The log was not read yet.
    Unread,
    /// There was no group, or none that had decided anything: whether they may begin is for the node to say.
    Unformed,
    /// They begin, or have begun.
    Formed,
}

impl Meta {
    pub(crate) fn new(config: &Config) -> Self {
        // Different in every process, like all that is drawn from it.
        let life = (config.seed >> 64) as u64 ^ config.seed as u64;
        let host = consensus::Config {
            snapshot_bytes: config.snapshot_bytes,
            snapshot_entries: config.snapshot_entries,
            log: config.raft_log.clone(),
            #[cfg(feature = "planted")]
            bug: config
                .has_bug(crate::planted::Bug::PersistEarly)
                .then_some(consensus::planted::Bug::PersistEarly),
            ..consensus::Config::new(config.node, life)
        };
        Self {
            host: Host::new(host),
            cluster: Tables::default(),
            shards: BTreeMap::new(),
            topics: BTreeMap::new(),
            underway: BTreeMap::new(),
            detours: detour::Detours::default(),
            nowhere: Vnode::default(),
            asked: Asked::new(config.node, life, 0),
            asked_cluster: Asked::new(config.node, life, CLUSTER_NUMBERS),
            forms: matches!(config.formation, crate::config::Formation::Forms { .. }),
            formation: Formation::Unread,
            held: BTreeSet::new(),
            remote: remote::Remote::default(),
            follows: follow::Follows::default(),
            served: serve::Served::default(),
            answers: Vec::new(),
            news: BTreeSet::new(),
            up: BTreeSet::new(),
            cluster_changed: false,
            next_ask: 0,
            now: Instant(0),
            tick_at: Instant(0),
            ask_around_at: Instant(0),
            apart: apart::Apart::default(),
            fresh: fresh::Fresh::default(),
            confirms: confirm::Confirms::default(),
            planted: Planted::of(config),
            led: led::Effects::default(),
            ready: (false, false),
            decided: Vec::new(),
        }
    }

    /// The tables of every vnode. While a topic moves, two may list it, or none.
    pub(crate) fn vnodes(&self) -> impl Iterator<Item = &Vnode> {
        self.shards.values().map(|shard| shard.tables.machine())
    }

    /// The tables of one vnode.
    #[cfg(feature = "planted")]
    pub(crate) fn vnode(&self, vnode: VnodeId) -> Option<&Vnode> {
        self.shards.get(&vnode).map(|shard| shard.tables.machine())
    }

    /// What only leaders of vnodes decide, as it was applied since the last call.
    #[cfg(feature = "planted")]
    pub(crate) fn take_led(&mut self) -> Vec<Effect> {
        self.led.take()
    }

    /// Whether a topic lists a segment.
    pub(crate) fn lists(&self, segment: SegmentId) -> bool {
        self.of(segment.range.topic).segment(segment).is_some()
    }

    /// The cluster's tables as far as they are decided.
    pub(crate) fn cluster(&self) -> &Cluster {
        self.cluster.machine()
    }

    pub(crate) fn log_gauges(&self) -> raft_log::Gauges {
        self.host.gauges()
    }

    /// Whether the groups this node begins with wait to be allowed to begin.
    pub(crate) fn is_unformed(&self) -> bool {
        self.formation == Formation::Unformed
    }

    pub(crate) fn start(&mut self, out: &mut Actions) {
        self.host.start();
        self.settle(out);
    }

    pub(crate) fn complete(&mut self, completion: Completion, out: &mut Actions) {
        self.host.complete(completion);
        self.settle(out);
    }

    /// A few times a second.
    pub(crate) fn mark(&mut self, out: &mut Actions) {
        self.host.mark();
        self.settle(out);
    }

    /// What time it is.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Does what is due, and says when it has to be called next.
    pub(crate) fn keep_time(&mut self, out: &mut Actions) -> Option<Instant> {
        let ticks = self.host.needs_ticks();
        let waits = !self.remote.is_empty() || !self.up.is_empty() || !self.detours.is_empty();
        if (ticks || waits) && self.tick_at <= self.now {
            self.tick_at = self.now.plus(TICK);
            let (own, up) = (self.node(), &self.up);
            self.host.miss(|node| node != own && !up.contains(&node));
            self.host.tick();
            self.look_apart();
            self.expire();
            self.ask_around();
            self.follow_others();
            self.go_on();
            self.ask_how_far(out);
            self.ask_confirms(out);
            self.settle(out);
        }
        self.tell_confirmed();
        (ticks || waits).then_some(self.tick_at).into_iter().chain(self.next_due()).min()
    }

    pub(crate) fn take_decided(&mut self) -> Vec<Decided> {
        std::mem::take(&mut self.decided)
    }

    /// Whether the list of nodes or the ring may be another one than at the last call.
    pub(crate) fn take_cluster_change(&mut self) -> bool {
        std::mem::take(&mut self.cluster_changed)
    }

    /// Whether there is a connection to a node.
    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.up.contains(&node)
    }

    /// Whether this node is a replica of a group, or about to be.
    pub(crate) fn has(&self, group: VnodeId) -> bool {
        self.host.has(group)
    }

    /// This node's replica of a group.
    pub(crate) fn group(&self, group: VnodeId) -> Option<&Group> {
        self.host.group(group)
    }

    /// Groups this node leads and has everything of.
    pub(crate) fn led_groups(&self) -> impl Iterator<Item = VnodeId> {
        self.host.groups().filter(|(_, group)| group.is_ready()).map(|(id, _)| id)
    }

    /// Lets the groups this node begins with begin.
    fn form(&mut self) {
        self.begin_held();
        self.host.found_group(VNODE, &[self.node()]);
    }

    /// Whether there is nobody else who could have what this node lost.
    fn is_alone(&self) -> bool {
        self.forms && self.up.is_empty() && self.cluster().nodes().count() <= 1
    }

    fn node(&self) -> NodeId {
        self.asked.node()
    }

    /// Carries what the groups say to the node and to the disk until all are silent.
    fn settle(&mut self, out: &mut Actions) {
        loop {
            if let Some(said) = self.host.next_action() {
                self.said(said, out);
            } else if !self.propose_commits() {
                break;
            }
        }
        for group in std::mem::take(&mut self.news) {
            self.wake_followers(group);
        }
        self.ask_others(out);
        if let Some(said) = self.host.next_action() {
            // What was held is decided here by now.
            self.said(said, out);
            return self.settle(out);
        }
        self.tell_ready();
        self.tell_confirmed();
    }

    fn said(&mut self, said: Said, out: &mut Actions) {
        match said {
            Said::Disk(job) => out.push(Action::Disk(Volume::Raft, job)),
            Said::Notice(notice) => out.push(Action::Notice(Notice::RaftLog(notice))),
            Said::Listed => self.listed(),
            Said::Found { group, state, is_blank } => self.found(group, state, is_blank),
            Said::Apply { group, entry, proposal } => self.apply(group, entry, proposal),
            Said::Restore { group, state, .. } => self.restore(group, state),
            Said::TakeSnapshot { group, order } => match self.save_at(group) {
                Some((_, state)) => self.host.save(group, &order, &state),
                None => self.host.not_saved(group, &order),
            },
            Said::Refused { group, id, reason } => self.refused(group, id, reason),
            Said::Unknown { group, id } => {
                if !self.tell_proposer(id, ProposeReply::Unknown) {
                    self.lost(group, id, Fate::Unknown);
                }
            }
            Said::Failed { detail } => self.decided.push(Decided::Failed { detail }),
            Said::Lost { group, .. } if self.is_alone() => {
                let detail = format!("the entries or the snapshot of {} do not decode", name_of(group));
                self.decided.push(Decided::Stop(Stop::Damaged { detail }));
            }
            Said::Lost { group, .. } => {
                self.decided.push(Decided::ReplicaLost { group: name_of(group) });
            }
            Said::MemberLost { group, node } => self.decided.push(Decided::MemberLost { group, node }),
            // It is lost, which is told.
            Said::Contradiction { what: raft::Contradiction::Lacking, .. } => {}
            Said::Contradiction { group, what } => {
                let detail = format!("{}: {what}", name_of(group));
                self.decided.push(Decided::Failed { detail });
            }
            Said::Stop(stop) => self.decided.push(Decided::Stop(stopped(stop))),
            Said::ReadReady { group, id } => {
                let applied = self.host.group(group).map_or(RaftIndex::ZERO, Group::applied);
                self.tell_reader(id, ReadIndexReply::Ready(applied));
            }
            Said::ReadRefused { id, reason, .. } => {
                let reply = match reason {
                    raft::Refusal::NotLeader { leader } => ReadIndexReply::NotLeader { hint: leader },
                    raft::Refusal::Stopped
                    | raft::Refusal::Busy
                    | raft::Refusal::TooLarge
                    | raft::Refusal::Unchangeable(_) => ReadIndexReply::Overloaded,
                };
                self.tell_reader(id, reply);
            }
            Said::Left { group } => self.left_group(group),
            Said::MembersChanged { .. } | Said::RoleChanged { .. } => {}
        }
    }

    /// The log was read. A node that is to form a cluster and has decided nothing yet waits to be allowed to: an
    /// earlier start that got no further than beginning is like none.
    fn listed(&mut self) {
        // Other nodes may have told already of a vnode that is on its way: only now can it be founded here.
        self.cluster_changed = true;
        if self.forms && (self.host.is_new() || self.held.contains(&VNODE)) {
            self.formation = Formation::Unformed;
            return self.decided.push(Decided::Unformed);
        }
        self.begin_held();
    }

    fn found(&mut self, group: VnodeId, state: Option<Bytes>, is_blank: bool) {
        if let Err(unusable) = self.make(group, state) {
            return self.decided.push(Decided::Stop(unusable.into()));
        }
        let is_first = is_blank && self.host.founded_alone(group);
        if self.formation != Formation::Formed && is_first {
            self.held.insert(group);
        } else {
            self.begin(group);
        }
    }

    fn begin_held(&mut self) {
        self.formation = Formation::Formed;
        for group in std::mem::take(&mut self.held) {
            self.begin(group);
        }
    }

    fn begin(&mut self, group: VnodeId) {
        self.host.begin(group);
        // It may be one of a vnode that left the ring meanwhile.
        self.cluster_changed = true;
        if group == VNODE && self.host.founded_alone(VNODE) {
            // Nothing, when it is there.
            self.host.found_group(CLUSTER, &[self.node()]);
        }
    }

    /// The tables to begin with, or to go on with.
    fn make(&mut self, group: VnodeId, state: Option<Bytes>) -> Result<(), tables::Unusable> {
        if group == CLUSTER {
            self.cluster_changed = true;
            return self.cluster.restore(state);
        }
        let tables = &mut self.shards.entry(group).or_default().tables;
        let before = tables.machine().clone();
        tables.restore(state)?;
        self.jumped(group, &before);
        Ok(())
    }

    fn restore(&mut self, group: VnodeId, state: Bytes) {
        if let Err(unusable) = self.make(group, Some(state)) {
            self.decided.push(Decided::Stop(unusable.into()));
        }
        self.look_for_passed(group);
        self.news.insert(group);
    }

    fn restore_followed(&mut self, group: VnodeId, index: RaftIndex, state: Bytes) {
        let made = if group == CLUSTER {
            self.cluster_changed = true;
            self.cluster.restore_followed(state)
        } else {
            let tables = &mut self.shards.entry(group).or_default().tables;
            let before = tables.machine().clone();
            let made = tables.restore_followed(state);
            self.jumped(group, &before);
            made
        };
        if let Err(unusable) = made {
            let detail = format!("{} at {index}, from another node: {unusable:?}", name_of(group));
            self.decided.push(Decided::Failed { detail });
        }
        self.look_for_passed(group);
    }

    /// The state of this node's replica, and its last entry.
    fn save_at(&self, group: VnodeId) -> Option<(RaftIndex, Bytes)> {
        match group {
            CLUSTER => self.cluster.save(),
            vnode => self.shards.get(&vnode)?.tables.save(),
        }
    }

    /// How far the tables of a group are, entries without commands included.
    fn applied_of(&self, group: VnodeId) -> RaftIndex {
        let tables = match group {
            CLUSTER => self.cluster().applied(),
            vnode => {
                self.shards.get(&vnode).map_or(RaftIndex::ZERO, |shard| shard.tables.machine().applied())
            }
        };
        let catching_up = self.is_catching_up(group);
        let own = self.host.group(group).filter(|_| !catching_up).map_or(RaftIndex::ZERO, Group::applied);
        let followed = if self.is_followed(group) { self.follows.seen(group) } else { RaftIndex::ZERO };
        tables.max(own).max(followed)
    }

    /// How far the tables are that have a topic.
    pub(crate) fn applied_for(&self, topic: TopicId) -> RaftIndex {
        self.home(topic).map_or(RaftIndex::ZERO, |home| self.applied_of(home))
    }

    fn is_catching_up(&self, group: VnodeId) -> bool {
        match group {
            CLUSTER => self.cluster.is_catching_up(),
            vnode => self.shards.get(&vnode).is_some_and(|shard| shard.tables.is_catching_up()),
        }
    }

    fn left_group(&mut self, group: VnodeId) {
        match group {
            CLUSTER => self.cluster.leave(),
            vnode => {
                if let Some(shard) = self.shards.get_mut(&vnode) {
                    shard.tables.leave();
                }
            }
        }
        self.left(group);
        self.forget_gone();
    }

    /// The vnodes of the ring as it is.
    fn ring_vnodes(&self) -> Vec<VnodeId> {
        self.cluster()
            .topology()
            .map_or_else(Vec::new, |topology| topology.placements.keys().copied().collect())
    }

    /// Nodes that are said to be members of a group.
    fn placed(&self, group: VnodeId) -> Vec<NodeId> {
        let Some(topology) = self.cluster().topology() else { return Vec::new() };
        let coming = topology.coming().filter(|(vnode, _)| *vnode == group).map(|(_, nodes)| nodes.to_vec());
        topology.placements.get(&group).cloned().or(coming).unwrap_or_default()
    }

    fn lost(&mut self, group: VnodeId, id: ProposalId, fate: Fate) {
        if group == CLUSTER {
            let lost = self.asked_cluster.lost(id.0).map(|then| Outcome::Lost { then, fate });
            self.decided.extend(lost.map(cluster::decided).into_iter().flatten());
        } else if let Some(proposed) = self.asked.lost(id.0) {
            self.fail(proposed.then, fate.into());
        }
    }

    fn propose(&mut self, vnode: VnodeId, command: &Command, then: Then) {
        self.propose_until(vnode, command, then, None);
    }

    /// The same of one that was refused before, and when it is given up.
    fn propose_until(&mut self, vnode: VnodeId, command: &Command, then: Then, until: Option<Instant>) {
        let origin = self.asked.ask(detour::Proposed { then, until });
        self.submit(vnode, origin.number, origin.entry(&command.encode()));
    }

    /// Proposes what only the leader of a vnode decides, in the term in which it does.
    fn propose_led(&mut self, vnode: VnodeId, term: Term, command: &Command, then: Then) {
        let asked = self.asked.ask(detour::Proposed { then, until: None });
        let origin = Origin { led: Some(term), ..asked };
        self.submit(vnode, origin.number, origin.entry(&command.encode()));
    }

    /// The term in which this node leads a group and may record a proposal.
    fn led_term(&self, group: VnodeId) -> Option<Term> {
        self.host.group(group).filter(|group| group.role() == Role::Leader).map(Group::term)
    }

    fn propose_cluster(&mut self, command: &metadata::cluster::Command, then: cluster::Then) {
        let origin = self.asked_cluster.ask(then);
        self.submit(CLUSTER, origin.number, origin.entry(&command.encode()));
    }

    fn commits_of(&mut self, vnode: VnodeId) -> &mut Shard {
        self.shards.entry(vnode).or_default()
    }

    /// `false` when nothing waits to be proposed.
    fn propose_commits(&mut self) -> bool {
        let waits =
            |(_, shard): &(&VnodeId, &mut Shard)| !shard.commit_on_its_way && !shard.commits.is_empty();
        let Some((&vnode, shard)) = self.shards.iter_mut().find(waits) else { return false };
        shard.commit_on_its_way = true;
        let count = shard.commits.len().min(COMMITS_PER_ENTRY_MAX);
        let (ids, commits) =
            shard.commits.drain(..count).map(|(id, commit, until)| ((id, until), commit)).unzip();
        self.propose(vnode, &Command::CommitPositions { commits }, Then::Commit { group: vnode, ids });
        true
    }
}

/// A group's name, for people.
pub(crate) fn name_of(group: VnodeId) -> String {
    if group == CLUSTER { "the cluster's tables".to_owned() } else { format!("vnode {group}") }
}

fn stopped(stop: consensus::Stop) -> Stop {
    match stop {
        consensus::Stop::Unreadable(detail) => Stop::Unreadable { volume: Volume::Raft, detail },
        consensus::Stop::LaterFormat(detail) => Stop::LaterFormat { volume: Volume::Raft, detail },
        consensus::Stop::Damaged(detail) => Stop::Damaged { detail },
    }
}
