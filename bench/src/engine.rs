//! A store and its disk, driven by one thread: the server's core thread without the broker.
//!
//! As there, completions that wait are taken together before anything new is submitted.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use server::disk::{Options, RealDisk, Snapshot};
use storage::disk::{Completion, Job};
use storage::store::{Action, Config, Gauges, Notice, Reply, Request, RequestId, Store};

/// How often copies that are idle are looked for, as the server does.
const TICK: Duration = Duration::from_millis(250);
/// How long the store is waited for to do something by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// A started store.
#[derive(Debug)]
pub(crate) struct Engine {
    store: Store,
    disk: RealDisk,
    completions: Receiver<Completion>,
    actions: Vec<Action>,
    jobs: Vec<Job>,
    replies: VecDeque<(RequestId, Reply)>,
    outstanding: usize,
    copies: Option<usize>,
    next_request: u64,
    opened: Instant,
    ticked: Instant,
}

impl Engine {
    /// Opens a data directory, making it if it is missing, and starts a store on it.
    pub(crate) fn open(dir: &Path, config: Config) -> anyhow::Result<Self> {
        let (sender, completions) = channel();
        let complete = move |completion| {
            // The receiver is gone only while the engine is being dropped.
            let _ = sender.send(completion);
        };
        let disk = RealDisk::open(dir, &Options::default(), complete)?;
        let now = Instant::now();
        let mut engine = Self {
            store: Store::new(config),
            disk,
            completions,
            actions: Vec::new(),
            jobs: Vec::new(),
            replies: VecDeque::new(),
            outstanding: 0,
            copies: None,
            next_request: 0,
            opened: now,
            ticked: now,
        };
        engine.store.start(&mut engine.actions);
        engine.perform()?;
        while engine.copies.is_none() {
            engine.take_completions()?;
        }
        Ok(engine)
    }

    /// Copies found by the start.
    pub(crate) fn copies(&self) -> usize {
        self.copies.unwrap_or(0)
    }

    /// What the disk did so far.
    pub(crate) fn counters(&self) -> Snapshot {
        self.disk.counters()
    }

    /// Makes a request; what it needs of the disk is submitted by the next wait.
    pub(crate) fn request(&mut self, request: Request) -> anyhow::Result<RequestId> {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.store.request(self.now(), id, request, &mut self.actions);
        self.perform()?;
        Ok(id)
    }

    /// The next reply; requests are answered in no order.
    pub(crate) fn reply(&mut self) -> anyhow::Result<(RequestId, Reply)> {
        loop {
            if let Some(reply) = self.replies.pop_front() {
                return Ok(reply);
            }
            self.take_completions()?;
        }
    }

    /// Makes a request and waits for its reply, which must be the only one outstanding.
    pub(crate) fn call(&mut self, request: Request) -> anyhow::Result<Reply> {
        let id = self.request(request)?;
        let (answered, reply) = self.reply()?;
        if answered != id {
            bail!("a reply to {answered:?} while {id:?} was outstanding");
        }
        Ok(reply)
    }

    /// Waits until the disk has nothing left to do.
    pub(crate) fn settle(&mut self) -> anyhow::Result<()> {
        self.submit()?;
        while self.outstanding > 0 {
            self.take_completions()?;
            self.submit()?;
        }
        Ok(())
    }

    /// Lets every copy record its durable end, as it does when it has been idle for a while; what that needs of
    /// the disk is submitted with whatever comes next.
    pub(crate) fn tick_idle(&mut self) -> anyhow::Result<()> {
        let later = self.now().plus(Duration::from_millis(2 * types::limits::IDLE_RECORD_MS));
        self.store.tick(later, &mut self.actions);
        self.perform()
    }

    /// Ticks while nothing else happens, until the store's numbers are as wanted.
    pub(crate) fn tick_until(&mut self, wanted: impl Fn(&Gauges) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !wanted(&self.store.gauges()) {
            if Instant::now() > deadline {
                bail!("the store does not come to what was waited for: {:?}", self.store.gauges());
            }
            self.store.tick(self.now(), &mut self.actions);
            self.perform()?;
            self.settle()?;
        }
        Ok(())
    }

    /// What the store holds.
    pub(crate) fn gauges(&self) -> Gauges {
        self.store.gauges()
    }

    fn now(&self) -> types::Instant {
        types::Instant::default().plus(self.opened.elapsed())
    }

    /// Sends what was gathered to the disk.
    fn submit(&mut self) -> anyhow::Result<()> {
        self.store.flush(&mut self.actions);
        self.perform()?;
        self.outstanding += self.jobs.len();
        self.disk.submit_all(self.jobs.drain(..));
        Ok(())
    }

    /// Waits for one completion and takes all that have come with it.
    fn take_completions(&mut self) -> anyhow::Result<()> {
        self.submit()?;
        if self.outstanding == 0 {
            bail!("the store waits for a reply and the disk has nothing to do");
        }
        let mut next = Some(self.completions.recv().context("the disk is gone")?);
        while let Some(completion) = next {
            self.outstanding -= 1;
            self.store.complete(self.now(), completion, &mut self.actions);
            next = self.completions.try_recv().ok();
        }
        if self.ticked.elapsed() >= TICK {
            self.ticked = Instant::now();
            self.store.tick(self.now(), &mut self.actions);
        }
        self.perform()
    }

    fn perform(&mut self) -> anyhow::Result<()> {
        for action in self.actions.drain(..) {
            match action {
                Action::Disk(job) => self.jobs.push(job),
                Action::Reply(id, reply) => self.replies.push_back((id, reply)),
                Action::Started { copies, .. } => self.copies = Some(copies),
                Action::StartFailed(error) => bail!("the store did not start: {error}"),
                Action::Notice(Notice::IndexRebuilt { .. }) => {}
                // Nothing here is killed or damaged, so each of these would be a loss.
                Action::Notice(notice) => bail!("unexpected notice: {notice:?}"),
            }
        }
        Ok(())
    }
}
