//! One store on one disk, each request driven to its answer: for scenarios that tell a single story.

use std::collections::BTreeMap;

use bytes::Bytes;
use storage::disk::Disk;
use storage::format::batch::{Batch, Flags, Header, Producer, Seed};
use storage::store::{
    Action, Config, Error, Extent, Gauges, Notice, Reply, Request, RequestId, Status, Store,
};
use types::{Epoch, Instant, Offset, SegmentId, WallTime};

use crate::disk::SimDisk;

/// Jobs that anything asked for may take: far more than ten thousand copies need.
const COMPLETIONS_MAX: u64 = 1_000_000;

/// A process with a store, and the disk that outlives it.
#[derive(Debug)]
pub struct Single {
    /// The disk.
    pub disk: SimDisk,
    /// What the store thought worth telling, since the last start.
    pub notices: Vec<Notice>,
    /// Directories the start could not explain.
    pub foreign: Vec<String>,
    /// Most files open at one time, since the last start.
    pub most_open: usize,
    store: Store,
    config: Config,
    now: Instant,
    next: u64,
    started: bool,
}

impl Single {
    /// Starts a store on a disk and waits until it takes requests. Panics when it cannot start.
    #[must_use]
    pub fn start(disk: SimDisk, config: &Config) -> Self {
        let store = Store::new(config.clone());
        let mut single = Self {
            disk,
            notices: Vec::new(),
            foreign: Vec::new(),
            most_open: 0,
            store,
            config: config.clone(),
            now: Instant(0),
            next: 0,
            started: false,
        };
        let mut actions = Vec::new();
        single.store.start(&mut actions);
        let left = single.act(actions);
        assert!(left.is_empty() && single.started, "the store starts");
        single
    }

    /// The power goes and comes back; a new process starts.
    #[must_use]
    pub fn after_power_loss(mut self) -> Self {
        self.disk.crash();
        self.restarted()
    }

    /// The process is killed; a new one starts on what the page cache holds.
    #[must_use]
    pub fn after_kill(mut self) -> Self {
        self.disk.kill();
        self.restarted()
    }

    fn restarted(self) -> Self {
        let config = Config { seed: self.config.seed.wrapping_add(77), ..self.config };
        Self::start(self.disk, &config)
    }

    /// Makes a request and waits for the answer.
    pub fn call(&mut self, request: Request) -> Reply {
        self.burst([request]).remove(0)
    }

    /// Makes requests all at one time and waits for the answers, which come in the order of the requests.
    pub fn burst(&mut self, requests: impl IntoIterator<Item = Request>) -> Vec<Reply> {
        let (first, mut actions) = (self.next, Vec::new());
        for request in requests {
            let id = RequestId(self.next);
            self.next += 1;
            self.store.request(self.now, id, request, &mut actions);
        }
        self.store.flush(&mut actions);
        let mut replies = self.act(actions);
        let reply = |id| replies.remove(&RequestId(id)).expect("every request is answered");
        (first..self.next).map(reply).collect()
    }

    /// Makes a request and does not wait: what it asked of the disk is submitted.
    pub fn send(&mut self, request: Request) {
        let id = RequestId(self.next);
        self.next += 1;
        let mut actions = Vec::new();
        self.store.request(self.now, id, request, &mut actions);
        self.store.flush(&mut actions);
        for action in actions {
            if let Action::Disk(job) = action {
                self.disk.submit(job);
            }
        }
    }

    /// Creates a copy.
    pub fn create(&mut self, segment: SegmentId) -> Reply {
        self.call(Request::Create {
            segment,
            base: Offset::ZERO,
            epoch: Epoch(1),
            expect_full: false,
            rebuilding: false,
        })
    }

    /// Appends one batch at the copy's end under epoch 1; gives the new end.
    pub fn append(&mut self, segment: SegmentId, payload: &[u8]) -> Result<Offset, Error> {
        match self.call(self.append_request(segment, payload)) {
            Reply::Appended { end } => Ok(end),
            Reply::Failed(error) => Err(error),
            other => panic!("an append was answered {other:?}"),
        }
    }

    /// The request [`append`](Self::append) makes.
    #[must_use]
    pub fn append_request(&self, segment: SegmentId, payload: &[u8]) -> Request {
        let end = match self.status(segment) {
            Some(Status::Here(extent)) => extent.end,
            Some(Status::Creating | Status::Unread | Status::Unreadable | Status::Deleting) | None => {
                Offset::ZERO
            }
        };
        let header = Header {
            flags: Flags::default(),
            payload_len: u32::try_from(payload.len()).expect("small payloads"),
            record_count: 1,
            base_offset: end,
            append_time: WallTime(1000 + end.0),
            epoch: Epoch(1),
            producer: Producer::default(),
            payload_crc: Seed::of(segment).crc(payload),
        };
        let batch = Batch { header, payload: Bytes::copy_from_slice(payload) };
        Request::Append { segment, epoch: Epoch(1), batches: vec![batch] }
    }

    /// What the store's list says of a copy.
    #[must_use]
    pub fn status(&self, segment: SegmentId) -> Option<Status> {
        self.store.copies().find(|(id, _)| *id == segment).map(|(_, status)| status)
    }

    /// Where a copy stands, or why that cannot be said.
    pub fn inspect(&mut self, segment: SegmentId) -> Result<Extent, Error> {
        match self.call(Request::Inspect { segment }) {
            Reply::Inspected(extent) => Ok(extent),
            Reply::Failed(error) => Err(error),
            other => panic!("an inspection was answered {other:?}"),
        }
    }

    /// All payloads that can be read from the base on, and the error that ended the reading.
    pub fn read_all(&mut self, segment: SegmentId) -> (Vec<Bytes>, Error) {
        let (mut payloads, mut from) = (Vec::new(), Offset::ZERO);
        loop {
            match self.call(Request::Read { segment, from, bytes_max: 1 << 20 }) {
                Reply::Read(batches) => {
                    from = batches.last().map_or(from, |batch| batch.header.end_offset());
                    payloads.extend(batches.into_iter().map(|batch| batch.payload));
                }
                Reply::Failed(error) => return (payloads, error),
                other => panic!("a read was answered {other:?}"),
            }
        }
    }

    /// Lets a copy be idle for long enough that its end is recorded.
    pub fn idle(&mut self) {
        self.tick(std::time::Duration::from_secs(2));
    }

    /// What the store holds.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        self.store.gauges()
    }

    /// Lets time pass.
    pub fn tick(&mut self, time: std::time::Duration) {
        self.now = self.now.plus(time);
        let mut actions = Vec::new();
        self.store.tick(self.now, &mut actions);
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<Action>) -> BTreeMap<RequestId, Reply> {
        let mut answers = BTreeMap::new();
        let mut queue = actions;
        for _ in 0..COMPLETIONS_MAX {
            for action in queue.drain(..) {
                match action {
                    Action::Disk(job) => self.disk.submit(job),
                    Action::Reply(id, reply) => {
                        assert!(answers.insert(id, reply).is_none(), "one answer each")
                    }
                    Action::Started { foreign, .. } => {
                        self.started = true;
                        self.foreign = foreign;
                    }
                    Action::StartFailed(error) => panic!("the store does not start: {error}"),
                    Action::Notice(notice) => self.notices.push(notice),
                }
            }
            // Everything that was set in motion comes to its end, the answer's aftermath included.
            let Some(completion) = self.disk.wait() else { return answers };
            self.most_open = self.most_open.max(self.disk.open_files());
            self.store.complete(self.now, completion, &mut queue);
            self.store.flush(&mut queue);
        }
        panic!("the store never comes to rest");
    }
}
