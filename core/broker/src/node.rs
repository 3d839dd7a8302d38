//! The step function: routes each event to the file that owns its subject.
//!
//! Owns the order of work inside a step, the requests that were made to the store, and the clock. Decides
//! nothing about topics, records or positions.
//!
//! Invariants:
//! - a step runs to completion: when the flush behind it returns, everything that can be answered now is in the
//!   actions;
//! - no client request is looked at before both directories were recovered and the users that have to be there
//!   are, or could not be made;
//! - the metadata begins anew only over a log directory without a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use storage::disk::Completion;
use storage::store::{self, Store};
use types::{Instant, NodeId, RangeId, SegmentId, TopicId, WallTime};
use wire::Reason;

use crate::action::{Action, Actions, Notice, Reply, Stop};
use crate::auth::Session;
use crate::config::Config;
use crate::control::Control;
use crate::copies::{Copies, CopyAnswer};
use crate::event::{Admin, ConnectionId, Event, PeerEvent, Request, RequestId, Volume};
use crate::explain::Explains;
use crate::fetch::Parked;
use crate::followers::Looks;
use crate::gather::Gathered;
use crate::groups::{Attending, Groups};
use crate::healing::Healing;
use crate::late::Late;
use crate::liveness::Liveness;
use crate::meta::{Decided, Meta, Purpose};
use crate::orphans::Orphans;
use crate::outlet::Outlets;
pub(crate) use crate::owner::Owner;
use crate::produce::Load;
use crate::random::Random;
use crate::reading::Reads;
use crate::resize::Resizes;
use crate::retention::Retention;
use crate::scrub::Scrub;
use crate::seek::Seeks;
use crate::segments::{Range, State};
use crate::skips::Skips;
use crate::spread::Avoided;
use crate::streams::Streams;
use crate::upkeep;
use crate::users::Seeding;
use crate::waiters::Waiters;
use crate::watch::{Told, Watches};

/// How often the store gets to look at the time.
const STORE_TICK: Duration = Duration::from_millis(250);
/// The least time until a timer that is asked for.
const SOON: Duration = Duration::from_millis(1);
/// Foreign names told at a start.
const FOREIGN_NAMES_MAX: usize = 10;

/// One node.
#[derive(Debug)]
pub struct Node {
    pub(crate) core: Core,
    /// Names seen, see `route`.
    pub(crate) topics: BTreeMap<Bytes, TopicId>,
    pub(crate) ranges: BTreeMap<RangeId, Range>,
    pub(crate) load: Load,
    /// Records for ranges of other nodes.
    pub(crate) outlets: Outlets,
    pub(crate) reads: Reads,
    /// How far readers may go in segments of other nodes.
    pub(crate) watches: Watches,
    /// Other nodes that wait to be told how far they may go in segments of this one.
    pub(crate) told: Told,
    pub(crate) waiters: Waiters<Parked>,
    pub(crate) streams: Streams,
    pub(crate) groups: Groups,
    /// Members of groups that other nodes coordinate.
    pub(crate) attending: Attending,
    pub(crate) seeks: Seeks,
    /// Requests that know more than the tables here.
    pub(crate) late: Late,
    /// Where the keyless records of a topic's next request look for a range.
    pub(crate) keyless_turns: BTreeMap<TopicId, u64>,
    /// Which of its ranges the next reader begins with.
    pub(crate) reading_turn: usize,
    /// Ranges that wait until an ancestor's segment has ended.
    pub(crate) blocked: BTreeSet<RangeId>,
    /// Ranges whose leftover segment was not taken up yet.
    pub(crate) stale: BTreeSet<RangeId>,
    /// Ranges with a segment of which this node is primary and others hold copies.
    pub(crate) replicated: BTreeSet<RangeId>,
    pub(crate) looks: Looks,
    /// Leftovers being ended.
    pub(crate) restarts: usize,
    /// When old segments are looked for next.
    pub(crate) age_tick_at: Instant,
    /// When producers that fell silent are looked for next.
    pub(crate) producers_tick_at: Instant,
    /// Copies nobody lists.
    pub(crate) orphans: Orphans,
    pub(crate) retention: Retention,
    pub(crate) skips: Skips,
    pub(crate) scrub: Scrub,
    pub(crate) healing: Healing,
    /// Ranges that are split and merged by what they take.
    pub(crate) resizes: Resizes,
    /// What people have asked about copies and about what does not move.
    pub(crate) explains: Explains,
    /// Endings to try again.
    pub(crate) retries: BTreeSet<(Instant, RangeId)>,
    /// There once the cluster's tables are.
    pub(crate) seeding: Option<Seeding>,
    pub(crate) control: Control,
    /// When lockouts are looked through next.
    pub(crate) forget_at: Instant,
    phase: Phase,
}

/// How far the start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// `copies` is there once the store has started.
    Recovering {
        copies: Option<usize>,
        metadata: bool,
    },
    Serving,
    /// The metadata went on without this build, see `behind`.
    Suspended,
    Stopped,
}

/// What every subject needs: time, randomness, the store, the metadata, a place for actions.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) now: Instant,
    pub(crate) wall: WallTime,
    pub(crate) random: Random,
    pub(crate) meta: Meta,
    /// Which other nodes can be reached.
    pub(crate) liveness: Liveness,
    /// Questions about copies of other nodes, and of other nodes about copies of this one.
    pub(crate) copies: Copies,
    /// Appends that go out at the end of the burst.
    pub(crate) gathered: Gathered,
    pub(crate) avoided: Avoided,
    store: Store,
    store_actions: Vec<store::Action>,
    owners: BTreeMap<store::RequestId, Owner>,
    request_next: u64,
    store_tick_at: Instant,
    wake_at: Option<Instant>,
    pub(crate) out: Actions,
}

impl Node {
    /// A node that has not looked at its directories yet; [`Event::Start`] makes it.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let waiters = Waiters::new(config.waiters_max);
        let control = Control::new(&config);
        Self {
            core: Core::new(config),
            topics: BTreeMap::new(),
            ranges: BTreeMap::new(),
            load: Load::default(),
            outlets: Outlets::default(),
            reads: Reads::default(),
            watches: Watches::default(),
            told: Told::default(),
            waiters,
            streams: Streams::default(),
            groups: Groups::default(),
            attending: Attending::default(),
            seeks: Seeks::new(),
            late: Late::default(),
            keyless_turns: BTreeMap::new(),
            reading_turn: 0,
            blocked: BTreeSet::new(),
            stale: BTreeSet::new(),
            replicated: BTreeSet::new(),
            looks: Looks::default(),
            restarts: 0,
            age_tick_at: Instant(0),
            producers_tick_at: Instant(0),
            orphans: Orphans::default(),
            retention: Retention::default(),
            skips: Skips::default(),
            scrub: Scrub::default(),
            healing: Healing::default(),
            resizes: Resizes::default(),
            explains: Explains::default(),
            retries: BTreeSet::new(),
            seeding: None,
            control,
            forget_at: Instant(0),
            phase: Phase::Recovering { copies: None, metadata: false },
        }
    }

    /// Feeds one event to the node and appends what must be done about it to `actions`; what is due by now, and what
    /// goes out together, waits for [`flush`](Self::flush).
    pub fn step(&mut self, now: Instant, event: Event, actions: &mut Actions) {
        std::mem::swap(&mut self.core.out, actions);
        self.core.now = now;
        self.core.meta.set_now(now);
        if self.phase != Phase::Stopped {
            self.take(event);
            self.settle();
        }
        std::mem::swap(&mut self.core.out, actions);
    }

    /// Sends what the steps since the last call have gathered to the disk and to other nodes, hands on what that makes
    /// known, and does what is due.
    ///
    /// Whoever drives the node calls this after each burst of events: the appends of a burst share their sync.
    pub fn flush(&mut self, actions: &mut Actions) {
        std::mem::swap(&mut self.core.out, actions);
        loop {
            self.send_gathered();
            self.core.store.flush(&mut self.core.store_actions);
            let is_silent = self.core.store_actions.is_empty();
            self.settle();
            if !is_silent || self.has_gathered() {
                continue;
            }
            // What is due may be an append.
            self.keep_time();
            if !self.has_gathered() {
                break;
            }
        }
        std::mem::swap(&mut self.core.out, actions);
    }

    /// Whether something waits for the end of the burst.
    fn has_gathered(&self) -> bool {
        !self.core.gathered.is_empty() || self.outlets.has_gathered()
    }

    fn send_gathered(&mut self) {
        self.send_parts();
        self.core.send_gathered();
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Start => self.core.start(),
            Event::Wall(wall) => self.core.wall = wall,
            Event::Request { id, session, request } => self.request(id, &session, request),
            Event::Login { id, login } => self.login(id, login),
            Event::Pushed { stream } => self.pushed(stream),
            Event::Gone(connection) => self.gone(connection),
            Event::Disk(volume, completion) => self.core.disk_done(volume, completion),
            Event::Peer(node, event) => self.heard_of(node, event),
            Event::Leave => self.leave_cluster(),
            Event::Timer => {}
        }
    }

    fn request(&mut self, id: RequestId, session: &Session, request: Request) {
        if self.phase != Phase::Serving {
            return self.core.reply(id, Reply::Failed(Reason::Unavailable));
        }
        match request {
            Request::CreateTopic { topic, keyspace_bits } => {
                self.create_topic(id, session, topic.as_ref(), keyspace_bits);
            }
            Request::Produce(request) => self.produce(id, session, request),
            Request::NewProducer { topic } => self.new_producer(id, session, topic.as_ref()),
            Request::Fetch(request) => self.fetch(id, session, request),
            Request::Commit(request) => self.commit(id, session, &request),
            Request::LeaveGroup(who) => self.leave_group(id, session, &who),
            Request::Subscribe(request) => self.subscribe(id, session, request),
            Request::StreamAck(request) => self.stream_ack(id, &request),
            Request::Admin(request) => self.admin(id, session, &request),
            Request::Users(request) => self.users(id, session, request),
            Request::Cluster(request) => self.of_cluster(id, session, &request),
            Request::Policies(request) => self.policies(id, session, request),
        }
    }

    fn admin(&mut self, id: RequestId, session: &Session, request: &Admin) {
        match request {
            Admin::ListTopics { prefix, after, max } => {
                self.list_topics(id, session, prefix.as_ref(), after.as_ref(), *max);
            }
            Admin::DescribeTopic { topic, from_range, max } => {
                self.describe_topic(id, session, topic.as_ref(), *from_range, *max);
            }
            Admin::SealTopic { topic } => self.seal_topic(id, session, topic.as_ref()),
            Admin::DeleteTopic { topic } => self.delete_topic(id, session, topic.as_ref()),
            Admin::SplitRange { topic, range } => self.split_range(id, session, topic.as_ref(), *range),
            Admin::MergeRanges { topic, a, b } => self.merge_ranges(id, session, topic.as_ref(), [*a, *b]),
            Admin::SeekTime { topic, at_ms } => self.seek_time(id, session, topic.as_ref(), *at_ms),
            Admin::ListGroups { topic, after, max } => {
                self.list_groups(id, session, topic.as_ref(), after.as_ref(), *max);
            }
            Admin::MoveGroup(request) => self.move_group(id, session, request),
            Admin::DeleteGroup { topic, group, force } => {
                self.delete_group(id, session, (topic.as_ref(), group.as_ref()), *force);
            }
            Admin::DescribeGroup { topic, group } => {
                self.describe_group(id, session, topic.as_ref(), group.as_ref());
            }
        }
    }

    fn gone(&mut self, connection: ConnectionId) {
        for (_, parked) in self.waiters.take_connection(connection) {
            self.unparked(&parked);
        }
        self.reads.forget(connection);
        self.late.forget(connection);
        self.attending.forget(connection);
        self.explains.forget(connection);
        self.drop_stream_of(connection);
    }

    /// Hands on what the machines below have said, until they are silent.
    fn settle(&mut self) {
        loop {
            let actions = std::mem::take(&mut self.core.store_actions);
            let decided = self.core.meta.take_decided();
            let answers = self.core.copies.take_answers();
            if actions.is_empty() && decided.is_empty() && answers.is_empty() {
                return;
            }
            for action in actions {
                self.store_action(action);
            }
            if !decided.is_empty() {
                self.outlets.look_soon(self.core.now);
            }
            for decided in decided {
                self.decided(decided);
            }
            for (holder, owner, answer) in answers {
                self.copy_answered(holder, owner, answer);
            }
        }
    }

    fn store_action(&mut self, action: store::Action) {
        match action {
            store::Action::Disk(job) => self.core.out.push(Action::Disk(Volume::Log, job)),
            store::Action::Reply(id, reply) => {
                if let Some(owner) = self.core.owners.remove(&id) {
                    self.store_reply(owner, reply);
                }
            }
            store::Action::Started { copies, foreign } => self.store_started(copies, &foreign),
            store::Action::StartFailed(error) => {
                self.stop(Stop::Unreadable { volume: Volume::Log, detail: error.to_string() });
            }
            store::Action::Notice(notice) => self.core.notice(Notice::Store(notice)),
        }
    }

    /// One arm for each owner; a reply of another kind than asked for is the store's own mistake.
    fn store_reply(&mut self, owner: Owner, reply: store::Reply) {
        use store::Reply as R;
        match (owner, reply) {
            (Owner::Append { segment, from, end }, R::Appended { .. }) => {
                self.appended(segment, from..end, Ok(()));
            }
            (Owner::Append { segment, from, end }, R::Failed(error)) => {
                self.appended(segment, from..end, Err(error));
            }
            (Owner::Create(segment), R::Created) => self.created(segment, Ok(())),
            (Owner::Create(segment), R::Failed(error)) => self.created(segment, Err(error)),
            (Owner::Fence(segment), R::Fenced(extent)) => self.fenced(segment, Ok(extent)),
            (Owner::Fence(segment), R::Failed(error)) => self.fenced(segment, Err(error)),
            (Owner::Inspect(segment), R::Inspected(extent)) => self.inspected(segment, extent),
            (Owner::Inspect(segment), R::Failed(error)) => self.fenced(segment, Err(error)),
            (Owner::Seal(segment), R::Sealed(extent)) => self.sealed(segment, Ok(extent)),
            (Owner::Seal(segment), R::Failed(error)) => self.sealed(segment, Err(error)),
            (Owner::Producers { range, turn }, reply) => {
                self.read_back_answered(self.core.config.node, range, turn, CopyAnswer::Store(reply));
            }
            (Owner::Loss(segment), R::Verified(report)) => self.loss_seen(segment, Ok(report)),
            (Owner::Loss(segment), R::Failed(error)) => self.loss_seen(segment, Err(error)),
            (Owner::Seek { .. } | Owner::Read { .. } | Owner::Heal { .. } | Owner::Look { .. }, reply) => {
                self.copy_answered(self.core.config.node, owner, CopyAnswer::Store(reply));
            }
            (Owner::Follow { segment, follower, round, .. }, reply) => {
                self.followed(segment, follower, round, CopyAnswer::Store(reply));
            }
            (Owner::FollowRead { segment, follower, round }, reply) => {
                self.read_for_follower(segment, follower, round, reply);
            }
            (Owner::Served { .. }, reply) => self.served_copy(owner, reply),
            (Owner::Delete(segment), R::Deleted) => self.copy_removed(segment, Ok(())),
            (Owner::Delete(segment), R::Failed(error)) => self.copy_removed(segment, Err(error)),
            (Owner::Scrub(segment), R::Verified(report)) => self.scrubbed(segment, Ok(report)),
            (Owner::Scrub(segment), R::Failed(error)) => self.scrubbed(segment, Err(error)),
            (owner, reply) => unreachable!("{owner:?} was answered {reply:?}"),
        }
    }

    /// The metadata decided on something this node proposed, or has been recovered.
    fn decided(&mut self, decided: Decided) {
        match decided {
            Decided::Unformed => self.form_when_known(),
            Decided::Recovered => self.metadata_recovered(),
            Decided::ClusterRecovered => {
                self.seed_users();
                self.serve_when_recovered();
            }
            Decided::Cluster(decided) => {
                self.cluster_decided(decided);
                self.serve_when_recovered();
            }
            Decided::LeftBehind { group, version } => self.left_behind(group, version),
            Decided::ReplicaLost { group } => self.core.notice(Notice::ReplicaLost { group }),
            Decided::Failed { detail } => self.core.notice(Notice::MetadataStopped { detail }),
            Decided::Stop(stop) => self.stop(stop),
            Decided::Elsewhere { command, removed } => self.decided_elsewhere(&command, removed),
            Decided::Jumped(vnode) => self.tables_jumped(vnode),
            Decided::Moved(topic) => self.topic_moved(topic),
            Decided::Vanished(topic) => self.topic_vanished(topic),
            Decided::RingStepped { fence, result } => self.ring_stepped(fence, result),
            Decided::MemberLost { group, node } => {
                self.core.change_members(group, raft::Change::Remove(node))
            }
            Decided::TopicCreated { id, name, result } => self.topic_created(id, &name, result),
            Decided::TopicSealed { id, topic, result } => self.topic_sealed(id, topic, result),
            Decided::TopicDeleted { id, topic, name, result } => {
                self.topic_deleted(id, topic, &name, result);
            }
            Decided::RangeSplit { id, range, result } => self.range_split(id, range, result),
            Decided::RangesMerged { id, ranges, result } => self.ranges_merged(id, ranges, result),
            Decided::SplitByLoad { range, result } => self.split_by_load(range, result),
            Decided::MergedByLoad { ranges, result } => self.merged_by_load(ranges, result),
            Decided::Registered { range, result } => self.registered(range, result),
            Decided::SegmentSealed { range, result } => self.recorded(range, result),
            Decided::SegmentDeleted { segment } => self.remove_copy(segment),
            Decided::Expired { segment, result } => self.segment_expired(segment, result),
            Decided::Confirmed { purpose: Purpose::Retention, confirmed } => {
                self.retention_confirmed(confirmed)
            }
            Decided::Confirmed { purpose: Purpose::Orphans, confirmed } => self.orphans_confirmed(confirmed),
            Decided::Confirmed { purpose: Purpose::Cursors, confirmed } => self.tables_confirmed(confirmed),
            Decided::SegmentEnded { segment, result } => self.end_recorded(segment, result),
            Decided::ReplicasSet { segment, result } => self.replicas_set(segment, result),
            Decided::Committed { id, result } => self.committed(id, result),
            Decided::PolicyBound { id, result } => self.policy_bound(id, result),
            Decided::GroupDeleted { id, result } => self.group_deleted(id, result),
        }
    }

    fn store_started(&mut self, count: usize, foreign: &[String]) {
        if !foreign.is_empty() {
            let names = foreign.iter().take(FOREIGN_NAMES_MAX).cloned().collect();
            self.core.notice(Notice::Foreign { count: foreign.len(), names });
        }
        if let Phase::Recovering { copies, .. } = &mut self.phase {
            *copies = Some(count);
            self.form_when_known();
            self.serve_when_recovered();
        }
    }

    /// Metadata that begins anew lists nothing, so a copy found beside it is of metadata that was lost. Decided
    /// before the group votes: a vote would make the directory look like one that was always here.
    fn form_when_known(&mut self) {
        let Phase::Recovering { copies: Some(copies), .. } = self.phase else { return };
        if !self.core.meta.is_unformed() {
            return;
        }
        if copies > 0 {
            return self.stop(Stop::Orphans { copies });
        }
        self.core.form_metadata();
    }

    fn metadata_recovered(&mut self) {
        if let Phase::Recovering { metadata, .. } = &mut self.phase {
            *metadata = true;
            self.serve_when_recovered();
        }
    }

    pub(crate) fn serves(&self) -> bool {
        self.phase == Phase::Serving
    }

    fn serve_when_recovered(&mut self) {
        let Phase::Recovering { copies: Some(_), metadata: true } = self.phase else { return };
        if !self.is_seeded() {
            return;
        }
        if let Some(stop) = self.outdated() {
            return self.stop(stop);
        }
        // A primary never resumes appending to a segment of an earlier process lifetime.
        for (segment, listed, topic) in self.core.meta.active_segments() {
            // What other nodes are to end becomes known when it is asked for.
            if listed.replicas.first() != Some(&self.core.config.node) {
                continue;
            }
            self.stale.insert(segment.range);
            let state = State::Stale { segment, base: listed.start };
            let topic = Bytes::copy_from_slice(topic.as_str().as_bytes());
            let appended_at = self.last_time(segment.range).max(self.time_before(segment.range));
            self.ranges.insert(segment.range, Range::new(topic, state, appended_at));
        }
        self.phase = Phase::Serving;
        self.core.out.push(Action::Ready);
        self.end_more_stale();
    }

    pub(crate) fn suspend(&mut self) {
        self.phase = Phase::Suspended;
    }

    pub(crate) fn stop(&mut self, stop: Stop) {
        if self.phase != Phase::Stopped {
            self.phase = Phase::Stopped;
            self.core.out.push(Action::Stop(stop));
        }
    }

    /// Does what is due about segments and their copies.
    fn keep_segments(&mut self) {
        self.roll_old();
        self.keep_producers();
        self.keep_followers();
        self.retry_endings();
        self.remove_more();
        self.keep_retention();
        self.keep_scrub();
        self.keep_orphans();
        self.keep_healing();
        self.keep_resizing();
    }

    /// When something is due about them next.
    fn next_segment_work(&self) -> Option<Instant> {
        let age = self.core.config.segment_age.map(|_| self.age_tick_at);
        let retry = self.retries.first().map(|(at, _)| *at);
        [
            age,
            retry,
            self.next_look_at_followers(),
            self.orphans.retry_at,
            self.next_retention(),
            self.next_scrub(),
            self.next_orphans(),
            self.next_healing(),
            self.next_resizing(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due and tells the driver when to come back.
    fn keep_time(&mut self) {
        let now = self.core.now;
        if self.core.store_tick_at <= now {
            self.core.tick_store();
        }
        self.expire_waiters();
        self.keep_outlets();
        self.keep_watches();
        self.evict_members();
        self.keep_attending();
        if self.phase != Phase::Suspended {
            self.keep_segments();
        }
        self.forget_lockouts();
        let metadata = self.core.meta.keep_time(&mut self.core.out);
        self.core.stand_back_apart();
        self.keep_control();
        self.serve_when_recovered();
        self.settle();
        let waiting = self.waiters.next_deadline().filter(|at| *at < Instant(u64::MAX));
        let watches = [self.watches.next_retry(), self.told.next_due()];
        let outlets = self.outlets.next_look();
        let members = self.groups.next_tick().into_iter().chain(self.next_members_work()).min();
        let segments = self.next_segment_work().filter(|_| self.phase != Phase::Suspended);
        let due =
            [Some(self.core.store_tick_at), waiting, members, segments, metadata, self.control.next_look()];
        let next = due.into_iter().chain([outlets]).chain(watches).flatten().min();
        // What came due while this was worked out gets a timer of its own: the last one may have come already, and
        // nobody gives it again.
        let next = next.map(|at| at.max(now.plus(SOON)));
        if next != self.core.wake_at {
            self.core.wake_at = next;
            self.core.out.extend(next.map(Action::WakeAt));
        }
    }
}

impl Core {
    fn new(config: Config) -> Self {
        Self {
            now: Instant(0),
            wall: WallTime(0),
            random: Random::new(config.seed),
            meta: Meta::new(&config),
            liveness: Liveness::new(config.node),
            copies: Copies::default(),
            gathered: Gathered::default(),
            avoided: Avoided::default(),
            store: Store::new(config.store.clone()),
            store_actions: Vec::new(),
            owners: BTreeMap::new(),
            request_next: 0,
            store_tick_at: Instant(0),
            wake_at: None,
            out: Vec::new(),
            config,
        }
    }

    fn start(&mut self) {
        self.store.start(&mut self.store_actions);
        self.meta.start(&mut self.out);
    }

    fn disk_done(&mut self, volume: Volume, completion: Completion) {
        match volume {
            Volume::Log => self.store.complete(self.now, completion, &mut self.store_actions),
            Volume::Raft => self.meta.complete(completion, &mut self.out),
        }
    }

    /// What the metadata has to do with.
    pub(crate) fn peer(&mut self, node: NodeId, event: PeerEvent) {
        self.liveness.heard(node, &event, self.now);
        self.meta.peer(node, event, &mut self.out);
    }

    fn tick_store(&mut self) {
        self.store_tick_at = self.now.plus(STORE_TICK);
        self.store.tick(self.now, &mut self.store_actions);
        self.meta.mark(&mut self.out);
    }

    /// Asks the store for something; the reply goes to `owner`.
    pub(crate) fn ask(&mut self, owner: Owner, request: store::Request) {
        if !self.gathered.is_empty() && request.changes_copy() {
            self.send_gathered_to(self.config.node, request.segment());
        }
        let id = store::RequestId(self.request_next);
        self.request_next += 1;
        self.owners.insert(id, owner);
        self.store.request(self.now, id, request, &mut self.store_actions);
    }

    pub(crate) fn store_gauges(&self) -> store::Gauges {
        self.store.gauges()
    }

    /// What there is of one copy here.
    pub(crate) fn copy_status(&self, segment: SegmentId) -> Option<store::Status> {
        self.store.status(segment)
    }

    /// The copies that are here, in the order of their ids.
    pub(crate) fn copies(&self) -> impl Iterator<Item = (SegmentId, store::Status)> {
        self.store.copies()
    }

    /// What there is of one copy here.
    pub(crate) fn copy(&self, segment: SegmentId) -> Option<store::Status> {
        self.store.status(segment)
    }

    pub(crate) fn reply(&mut self, id: RequestId, reply: Reply) {
        self.out.push(Action::Reply { id, reply });
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        self.out.push(Action::Notice(notice));
    }

    pub(crate) fn upkeep(&mut self, notice: upkeep::Notice) {
        self.notice(Notice::Upkeep(notice));
    }
}
