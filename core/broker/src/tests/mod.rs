//! One node over two disks in memory: what each operation answers, and what survives a restart.

mod ahead;
mod cluster;
mod commit;
mod disk;
mod fetch;
mod found;
mod groups;
mod history;
mod left_behind;
mod life;
mod members;
mod once;
mod orphans;
mod outcomes;
mod policies;
mod produce;
mod ranges;
mod resize;
mod retention;
mod scrub;
mod sequence;
mod streams;
mod users;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use metadata::vnode::Command;
use storage::disk::ErrorKind;
use types::record::{Record, Walk};
use types::{Instant, NodeId, WallTime};
use wire::Reason;

use crate::event::{
    Admin, Commit, ConnectionId, Event, Fetch, Form, Membership, Produce, Request, RequestId, Volume,
};
use crate::{Action, Actions, Config, Fetched, Node, Notice, Permissions, Reply, SeedUser, Session, Stop};
use disk::Disk;

/// A node, its disks, and what it has said.
struct Bench {
    node: Node,
    config: Config,
    log: Disk,
    raft: Disk,
    now: Instant,
    wall: WallTime,
    next: u64,
    replies: Vec<(RequestId, Reply)>,
    notices: Vec<Notice>,
    pushes: Vec<(RequestId, Fetched)>,
    ended: Vec<(RequestId, Reason)>,
    seeded: Vec<String>,
    revoked: Vec<(String, u64)>,
    renewed: Vec<(ConnectionId, Session)>,
    ready: bool,
    stop: Option<Stop>,
    suspended: bool,
    wake_at: Option<Instant>,
    /// For other nodes.
    outgoing: Vec<Action>,
}

impl Bench {
    /// A node that serves.
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let bench = Self::begun(change);
        assert!(bench.ready, "{:?}", bench.stop);
        assert!(bench.outgoing.is_empty(), "a node alone has nobody to talk to: {:?}", bench.outgoing);
        bench
    }

    /// A node that was started.
    fn begun(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(NodeId(1), 7);
        config.seed_users = everybody().collect();
        // Files of a megabyte of zeros each would only cost time here.
        config.store.preallocate_bytes = (0, 0);
        config.raft_log.file_bytes = 1024 * 1024;
        change(&mut config);
        let mut bench = Self {
            node: Node::new(config.clone()),
            config,
            log: Disk::default(),
            raft: Disk::default(),
            now: Instant(1_000_000),
            wall: WallTime(1_700_000_000_000),
            next: 0,
            replies: Vec::new(),
            notices: Vec::new(),
            pushes: Vec::new(),
            ended: Vec::new(),
            seeded: Vec::new(),
            revoked: Vec::new(),
            renewed: Vec::new(),
            ready: false,
            stop: None,
            suspended: false,
            wake_at: None,
            outgoing: Vec::new(),
        };
        bench.step(Event::Start);
        bench.settle();
        bench
    }

    /// The same with a topic `t`.
    fn with_topic() -> Self {
        let mut bench = Self::new();
        assert_eq!(bench.ask(create("t")), Reply::Created);
        bench
    }

    /// The process ends, whatever was on its way is lost, and another starts over the same directories.
    fn restart(&mut self) {
        self.restart_for(0);
        self.settle();
    }

    /// The same, and the disks do so many jobs.
    fn restart_for(&mut self, jobs: usize) {
        self.log.crash();
        self.raft.crash();
        self.config.seed += 1;
        self.node = Node::new(self.config.clone());
        self.replies.clear();
        self.ready = false;
        self.step(Event::Start);
        self.run_jobs(jobs);
    }

    /// Lets the disks do so many jobs, fewer when they have nothing to do; gives how many are left.
    fn run_jobs(&mut self, mut jobs: usize) -> usize {
        while jobs > 0 {
            let raft = self.raft.run_one().map(|done| Event::Disk(Volume::Raft, done));
            let next = raft.or_else(|| self.log.run_one().map(|done| Event::Disk(Volume::Log, done)));
            let Some(event) = next else { break };
            jobs -= 1;
            self.step(event);
        }
        jobs
    }

    fn step(&mut self, event: Event) {
        let mut actions = Actions::new();
        self.node.step(self.now, Event::Wall(self.wall), &mut actions);
        self.node.step(self.now, event, &mut actions);
        self.node.flush(&mut actions);
        self.perform(actions);
    }

    fn perform(&mut self, actions: Actions) {
        for action in actions {
            match action {
                Action::Reply { id, reply } => self.replies.push((id, reply)),
                Action::Disk(Volume::Log, job) => self.log.jobs.push_back(job),
                Action::Disk(Volume::Raft, job) => self.raft.jobs.push_back(job),
                Action::WakeAt(at) => self.wake_at = Some(at),
                Action::Ready => self.ready = true,
                Action::Suspended => self.suspended = true,
                Action::Stop(stop) => self.stop = Some(stop),
                Action::Notice(notice) => self.notices.push(notice),
                Action::Push { stream, fetched } => self.pushes.push((stream, fetched)),
                Action::StreamEnded { stream, reason } => self.ended.push((stream, reason)),
                Action::Seeded { user } => self.seeded.push(user.to_string()),
                Action::Renewed { connection, session } => self.renewed.push((connection, session)),
                Action::Revoked { user, revision } => self.revoked.push((user.to_string(), revision)),
                Action::Left => {}
                Action::Say { .. } | Action::Ask { .. } | Action::Answer { .. } | Action::Peers(_) => {
                    self.outgoing.push(action);
                }
            }
        }
    }

    /// Lets the disks work until they have nothing to do.
    fn settle(&mut self) {
        loop {
            if let Some(completion) = self.raft.run_one() {
                self.step(Event::Disk(Volume::Raft, completion));
            } else if let Some(completion) = self.log.run_one() {
                self.step(Event::Disk(Volume::Log, completion));
            } else {
                return;
            }
        }
    }

    /// Time passes; every timer that is due fires.
    fn pass(&mut self, time: Duration) {
        let until = self.now.plus(time);
        while let Some(at) = self.wake_at
            && at <= until
        {
            self.now = self.now.max(at);
            self.step(Event::Timer);
            self.settle();
        }
        self.now = until;
    }

    /// Sends without waiting.
    fn send_as(&mut self, permissions: Permissions, request: Request) -> RequestId {
        self.next += 1;
        let id = RequestId { connection: ConnectionId(1), number: self.next };
        let session = self.session(&name_of(permissions));
        self.step(Event::Request { id, session, request });
        id
    }

    /// Sends as a part of a burst, which ends with the next step.
    fn gather(&mut self, request: Request) -> RequestId {
        self.next += 1;
        let id = RequestId { connection: ConnectionId(1), number: self.next };
        let session = self.session(&name_of(Permissions { admin: true, ..Permissions::default() }));
        let mut actions = Actions::new();
        self.node.step(self.now, Event::Request { id, session, request }, &mut actions);
        self.perform(actions);
        id
    }

    /// Of the user as it is now; of nobody when the node does not know it yet.
    fn session(&self, user: &str) -> Session {
        self.node.core.session_of(user).unwrap_or(Session { user: user.into(), revision: 0 })
    }

    fn send(&mut self, request: Request) -> RequestId {
        self.send_as(Permissions { admin: true, ..Permissions::default() }, request)
    }

    /// The reply, once there is one.
    fn reply(&mut self, id: RequestId) -> Option<Reply> {
        let at = self.replies.iter().position(|(of, _)| *of == id)?;
        Some(self.replies.remove(at).1)
    }

    /// Sends, lets the disks work, and takes the reply.
    fn ask(&mut self, request: Request) -> Reply {
        let id = self.send(request);
        self.settle();
        self.reply(id).expect("answered once the disks are done")
    }

    /// Sends in a session, lets the disks work, and takes the reply.
    fn ask_in(&mut self, session: &Session, request: Request) -> Reply {
        self.next += 1;
        let id = RequestId { connection: ConnectionId(1), number: self.next };
        self.step(Event::Request { id, session: session.clone(), request });
        self.settle();
        self.reply(id).expect("answered once the disks are done")
    }

    fn ask_as(&mut self, permissions: Permissions, request: Request) -> Reply {
        let id = self.send_as(permissions, request);
        self.settle();
        self.reply(id).expect("answered once the disks are done")
    }

    /// Decides something that no client can ask for yet.
    fn decide(&mut self, command: &Command) {
        self.node.core.propose_unheard(command);
        let actions = std::mem::take(&mut self.node.core.out);
        self.perform(actions);
        self.settle();
    }

    /// Has a copy taken out of service, as its store would do itself.
    fn latch(&mut self, segment: types::SegmentId, reason: storage::store::FailReason) {
        let latch = storage::store::Request::Latch { segment, reason };
        let nobody = crate::node::Owner::Heal { step: u64::MAX, bulk: false };
        self.node.core.ask(nobody, latch);
        self.step(Event::Timer);
        self.settle();
    }

    fn page(&mut self, request: Fetch) -> Page {
        match self.ask(Request::Fetch(request)) {
            Reply::Fetched(fetched) => Page::of(fetched),
            reply => panic!("{reply:?}"),
        }
    }
}

/// A fetch's answer with its values taken out.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    values: Vec<String>,
    cursor: Bytes,
}

impl Page {
    fn of(fetched: Fetched) -> Self {
        let joined: Vec<u8> = fetched.runs.iter().flat_map(|run| run.records.to_vec()).collect();
        let mut reader = types::codec::Reader::new(joined.clone().into());
        let values: Vec<String> = Walk::new(&joined)
            .map(|_| Record::decode(&mut reader).unwrap())
            .map(|record| String::from_utf8(record.value.to_vec()).unwrap())
            .collect();
        assert_eq!(values.len(), fetched.count as usize);
        Self { values, cursor: fetched.cursor }
    }
}

/// One user for each set of permissions, named by it.
fn everybody() -> impl Iterator<Item = SeedUser> {
    let each = [false, true];
    each.into_iter().flat_map(move |admin| {
        each.into_iter().flat_map(move |produce| {
            each.into_iter().map(move |consume| {
                let permissions = Permissions { admin, produce, consume };
                SeedUser { name: name_of(permissions).into(), hash: "$test$".into(), permissions }
            })
        })
    })
}

fn name_of(Permissions { admin, produce, consume }: Permissions) -> String {
    format!("admin-{admin}-produce-{produce}-consume-{consume}")
}

fn failed(reason: Reason) -> Reply {
    Reply::Failed(reason)
}

fn name(text: &'static str) -> Option<Bytes> {
    Some(Bytes::from_static(text.as_bytes()))
}

fn create(topic: &'static str) -> Request {
    Request::CreateTopic { topic: name(topic), keyspace_bits: 16 }
}

fn produce(topic: &'static str, values: &[&str]) -> Request {
    let mut records = BytesMut::new();
    for value in values {
        let value = Bytes::copy_from_slice(value.as_bytes());
        Record { key: None, value, timestamp: 0, headers: Vec::new() }.encode(&mut records);
    }
    let records = records.freeze();
    let crc = crc32fast::hash(&records);
    Request::Produce(Produce {
        topic: name(topic),
        records,
        count: u32::try_from(values.len()).unwrap(),
        crc,
        stamp: None,
    })
}

/// Records with keys, as (key, value).
fn produce_keyed(topic: &'static str, records: &[(&str, &str)]) -> Request {
    let mut out = BytesMut::new();
    for (key, value) in records {
        let (key, value) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()));
        Record { key: Some(key), value, timestamp: 0, headers: Vec::new() }.encode(&mut out);
    }
    let count = u32::try_from(records.len()).unwrap();
    let records = out.freeze();
    let crc = crc32fast::hash(&records);
    Request::Produce(Produce { topic: name(topic), records, count, crc, stamp: None })
}

fn split(range: u64) -> Request {
    Request::Admin(Admin::SplitRange { topic: name("t"), range })
}

fn merge(a: u64, b: u64) -> Request {
    Request::Admin(Admin::MergeRanges { topic: name("t"), a, b })
}

fn member(group: &'static str, member: &'static str) -> Membership {
    Membership { topic: name("t"), group: name(group), member: name(member) }
}

fn fetch(topic: &'static str) -> Fetch {
    Fetch {
        topic: name(topic),
        cursor: None,
        group: None,
        member: None,
        max: 0,
        wait_ms: 0,
        form: Form::Records,
    }
}

fn commit(topic: &'static str, group: &'static str, cursor: &Bytes) -> Request {
    Request::Commit(Commit { topic: name(topic), group: name(group), cursor: Some(cursor.clone()) })
}

const NOBODY: Permissions = Permissions { admin: false, produce: false, consume: false };
