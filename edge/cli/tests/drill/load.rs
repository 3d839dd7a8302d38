//! Clients that are at work while things are done to a cluster: writers that remember durably what was acknowledged,
//! readers that begin anew again and again, and a group that reads along.
//!
//! A writer does what a program would that has three addresses: it goes to the next when one does not answer, and
//! sends what is not known to be stored again. What it counts as acknowledged was acknowledged, synced into a file of
//! its own before it is counted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{Batch, Client, Error, Options};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use super::let_be;
use super::reading::{Seen, is_serial, value};

/// Of a batch.
const RECORDS: u64 = 10;
/// Between two of them.
const PACE: Duration = Duration::from_millis(25);
/// After this without an answer a client goes to another node.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long clients may take to come to their end once all is well.
const CLOSING: Duration = Duration::from_secs(60);
/// Requests under way of a writer that does not wait.
const IN_FLIGHT: usize = 8;

/// Where a drill's clients find its cluster.
pub(crate) type Addresses = [String; 3];

/// One writer, as others see it.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) name: String,
    pub(crate) topic: String,
    /// All of its numbers below this were acknowledged.
    confirmed: AtomicU64,
}

impl Writer {
    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed.load(Ordering::SeqCst)
    }
}

/// How long nothing was acknowledged in a topic.
#[derive(Debug)]
struct Pause {
    last: Instant,
    longest: Duration,
}

struct Shared {
    addresses: Addresses,
    is_over: AtomicBool,
    /// Whether readers are held to having been given all that was acknowledged before they came.
    is_strict: AtomicBool,
    writers: Vec<Arc<Writer>>,
    pauses: Mutex<BTreeMap<String, Pause>>,
    /// What must not have happened.
    wrong: Mutex<Vec<String>>,
    /// What readers and writers were told, and how often.
    told: Mutex<BTreeMap<String, u64>>,
    /// Times a reader came to the end of a topic.
    ends_read: AtomicU64,
    sent_again: AtomicU64,
}

/// All clients of a drill.
pub(crate) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Where the acknowledgements are.
    _logs: tempfile::TempDir,
}

/// What became of a load.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) writers: Vec<Arc<Writer>>,
    pub(crate) told: BTreeMap<String, u64>,
    pub(crate) ends_read: u64,
    pub(crate) sent_again: u64,
}

impl Load {
    /// Of each topic two writers that wait for every batch, one that does not, and a group that reads along.
    pub(crate) fn start(addresses: Addresses, topics: &[String]) -> Self {
        let writer = |topic: &String, name: String| {
            Arc::new(Writer { name, topic: topic.clone(), confirmed: AtomicU64::new(0) })
        };
        let writers = topics.iter().enumerate().flat_map(|(at, topic)| {
            let serial = |n: usize| writer(topic, format!("serial-{at}-{n}"));
            [serial(0), serial(1), writer(topic, format!("many-{at}"))]
        });
        let pause = |topic: &String| (topic.clone(), Pause { last: Instant::now(), longest: Duration::ZERO });
        let shared = Arc::new(Shared {
            addresses,
            is_over: AtomicBool::new(false),
            is_strict: AtomicBool::new(true),
            writers: writers.collect(),
            pauses: Mutex::new(topics.iter().map(pause).collect()),
            wrong: Mutex::default(),
            told: Mutex::default(),
            ends_read: AtomicU64::new(0),
            sent_again: AtomicU64::new(0),
        });
        let logs = tempfile::tempdir().unwrap();
        let mut threads = Vec::new();
        for (at, writer) in shared.writers.iter().enumerate() {
            let (shared, writer) = (Arc::clone(&shared), Arc::clone(writer));
            let log = File::create(logs.path().join(&writer.name)).unwrap();
            threads.push(std::thread::spawn(move || write(&shared, &writer, at % 3, log)));
        }
        for (at, topic) in topics.iter().enumerate() {
            let (group, again) = (Arc::clone(&shared), Arc::clone(&shared));
            let (topic, same) = (topic.clone(), topic.clone());
            threads.push(std::thread::spawn(move || read_along(&group, &topic, at % 3)));
            threads.push(std::thread::spawn(move || read_again(&again, &same, (at + 1) % 3)));
        }
        Self { shared, threads, _logs: logs }
    }

    /// From now on, or no longer, an end that a reader is shown has to lie behind everything acknowledged before.
    pub(crate) fn be_strict(&self, is_strict: bool) {
        self.shared.is_strict.store(is_strict, Ordering::SeqCst);
    }

    /// What each writer may count as stored.
    pub(crate) fn confirmed(&self) -> Vec<u64> {
        self.shared.writers.iter().map(|writer| writer.confirmed()).collect()
    }

    /// A topic in which nothing was acknowledged since, if there is one.
    pub(crate) fn waits_since(&self, before: &[u64]) -> Option<String> {
        let all = self.shared.writers.iter().zip(before);
        let mut moved: BTreeMap<&str, bool> = BTreeMap::new();
        for (writer, before) in all {
            *moved.entry(&writer.topic).or_default() |= writer.confirmed() > *before;
        }
        moved.into_iter().find(|(_, moved)| !moved).map(|(topic, _)| topic.to_owned())
    }

    /// A writer of which nothing was acknowledged since, if there is one.
    pub(crate) fn stands_since(&self, before: &[u64]) -> Option<String> {
        let mut all = self.shared.writers.iter().zip(before);
        all.find(|(writer, before)| writer.confirmed() <= **before).map(|(writer, _)| writer.name.clone())
    }

    /// The longest while in which nothing was acknowledged in some topic, since this was asked last.
    pub(crate) fn longest_pause(&self) -> Duration {
        let mut longest = Duration::ZERO;
        for pause in self.shared.pauses.lock().unwrap().values_mut() {
            longest = longest.max(pause.longest).max(pause.last.elapsed());
            pause.longest = Duration::ZERO;
        }
        longest
    }

    /// Panics when a client was given what it must not be given.
    #[track_caller]
    pub(crate) fn assert_right(&self) {
        let wrong = self.shared.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Ends it: writers are told of everything under way, groups read to the end.
    pub(crate) fn stop(self) -> Outcome {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("a client does not panic");
        }
        let wrong = std::mem::take(&mut *self.shared.wrong.lock().unwrap());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        Outcome {
            writers: self.shared.writers.clone(),
            told: self.shared.told.lock().unwrap().clone(),
            ends_read: self.shared.ends_read.load(Ordering::SeqCst),
            sent_again: self.shared.sent_again.load(Ordering::SeqCst),
        }
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn tell(&self, who: &str, error: &Error) {
        let text = match error.reason() {
            Some(reason) => format!("{who}: {reason}"),
            None if error.lost_connection() => format!("{who}: no answer or no connection"),
            None => format!("{who}: {error}"),
        };
        *self.told.lock().unwrap().entry(text).or_default() += 1;
    }

    fn complain(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }

    fn acknowledged(&self, writer: &Writer, confirmed: u64) {
        writer.confirmed.store(confirmed, Ordering::SeqCst);
        let mut pauses = self.pauses.lock().unwrap();
        let pause = pauses.get_mut(&writer.topic).expect("one for each topic");
        pause.longest = pause.longest.max(pause.last.elapsed());
        pause.last = Instant::now();
    }

    fn options(&self, node: usize) -> Options {
        let mut options = Options::new(&self.addresses[node], "admin", "admin123");
        options.connect_timeout = Duration::from_secs(2);
        options.request_timeout = PATIENCE;
        // Clients here go to another node instead.
        options.reconnect_for = Duration::ZERO;
        options
    }

    /// What was acknowledged of a topic.
    fn confirmed_of(&self, topic: &str) -> Vec<(Arc<Writer>, u64)> {
        let of_topic = self.writers.iter().filter(|writer| writer.topic == topic);
        of_topic.map(|writer| (Arc::clone(writer), writer.confirmed())).collect()
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn write(shared: &Shared, writer: &Writer, home: usize, mut log: File) {
    let runtime = runtime();
    let mut node = home;
    let mut sent_up_to = 0;
    let mut over_since = None;
    // At the end a writer goes on until it knows of all it has sent.
    while !shared.is_over() || writer.confirmed() < sent_up_to {
        if shared.is_over() {
            let since = *over_since.get_or_insert_with(Instant::now);
            if since.elapsed() > CLOSING {
                return shared.complain(format!("{} could not write what it had begun", writer.name));
            }
        }
        let lost = runtime.block_on(async {
            let client = Client::connect_with(shared.options(node)).await?;
            write_to(shared, writer, &client, &mut sent_up_to, &mut log).await
        });
        if let Err(error) = lost {
            shared.tell("writer", &error);
        }
        node = (node + 1) % 3;
        let_be(Duration::from_millis(20));
    }
}

/// Writes until something goes wrong or the load is over, from the first number that is not known to be stored.
async fn write_to(
    shared: &Shared,
    writer: &Writer,
    client: &Client,
    sent_up_to: &mut u64,
    log: &mut File,
) -> Result<(), Error> {
    let base = writer.confirmed();
    let in_flight = if is_serial(&writer.name) { 1 } else { IN_FLIGHT };
    let mut producer = client.producer(&writer.topic, in_flight);
    let mut next = base;
    loop {
        let goes_on = !shared.is_over() || next < *sent_up_to;
        let step = async {
            if !goes_on {
                return producer.flush().await;
            }
            let mut batch = Batch::default();
            for number in next..next + RECORDS {
                let value = value(&writer.name, number);
                batch.push_parts(Some(writer.name.as_bytes()), &value, number);
            }
            producer.send(batch).await?;
            if in_flight == 1 { producer.flush().await } else { Ok(()) }
        };
        // A node that was stopped, or cut off, says nothing for long.
        let done = timeout(PATIENCE, step).await.unwrap_or(Err(Error::TimedOut));
        let confirmed = base + producer.progress().stored_in_front;
        if confirmed > writer.confirmed() {
            writeln!(log, "{confirmed}").and_then(|()| log.sync_data()).unwrap();
            shared.acknowledged(writer, confirmed);
        }
        if goes_on {
            next += RECORDS;
            if next <= *sent_up_to {
                shared.sent_again.fetch_add(RECORDS, Ordering::Relaxed);
            }
            *sent_up_to = next.max(*sent_up_to);
        }
        done?;
        if !goes_on {
            return Ok(());
        }
        sleep(PACE).await;
    }
}

/// Reads a topic from the beginning, on one node after the other, until the load is over.
fn read_again(shared: &Shared, topic: &str, home: usize) {
    let runtime = runtime();
    let mut node = home;
    while !shared.is_over() {
        let was_strict = shared.is_strict.load(Ordering::SeqCst);
        let before = shared.confirmed_of(topic);
        let read = runtime.block_on(read_to_end(shared.options(node), topic, || shared.is_over()));
        match read {
            Ok(Some(seen)) => {
                shared.ends_read.fetch_add(1, Ordering::Relaxed);
                let is_strict = was_strict && shared.is_strict.load(Ordering::SeqCst);
                for (writer, confirmed) in before.into_iter().filter(|_| is_strict) {
                    let lacks = seen.lacks(&writer.name);
                    if lacks < confirmed {
                        let name = &writer.name;
                        shared.complain(format!(
                            "node {node} showed an end of {topic} without number {lacks} of {name}, acknowledged \
                             up to {confirmed} before"
                        ));
                    }
                }
            }
            Ok(None) => {}
            Err(Unread::Refused(error)) => shared.tell("reader", &error),
            Err(Unread::Wrong(what)) => {
                shared.complain(format!("a reader of {topic} on node {node}: {what}"))
            }
        }
        node = (node + 1) % 3;
        let_be(Duration::from_millis(200));
    }
}

/// Why a topic was not read to its end.
#[derive(Debug)]
pub(crate) enum Unread {
    Refused(Error),
    Wrong(String),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// Reads from the beginning to where a node says that there is no more; `None` when it is to stop before.
pub(crate) async fn read_to_end(
    options: Options,
    topic: &str,
    mut stops: impl FnMut() -> bool,
) -> Result<Option<Seen>, Unread> {
    let client = Client::connect_with(options).await?;
    let consumer = client.consumer(topic).max(1000).wait(Duration::from_millis(300));
    let mut consumer = consumer.open().await?;
    let mut seen = Seen::default();
    while !stops() {
        // Refusals that pass are repeated without end inside.
        let page = timeout(4 * PATIENCE, consumer.poll()).await.unwrap_or(Err(Error::TimedOut))?;
        if page.count == 0 {
            return Ok(Some(seen));
        }
        seen.take(&page).map_err(Unread::Wrong)?;
    }
    Ok(None)
}

/// Reads a topic as a group that commits what it was given, until it was given all there is.
fn read_along(shared: &Shared, topic: &str, home: usize) {
    let runtime = runtime();
    let mut seen = Seen::default();
    let mut node = home;
    let mut over_since = None;
    loop {
        let read = runtime.block_on(read_as_group(shared, topic, node, &mut seen));
        match read {
            Ok(true) => return,
            Ok(false) => {}
            Err(Unread::Refused(error)) => shared.tell("group", &error),
            Err(Unread::Wrong(what)) => return shared.complain(format!("the group of {topic}: {what}")),
        }
        if shared.is_over() {
            let since = *over_since.get_or_insert_with(Instant::now);
            if since.elapsed() > CLOSING {
                return shared.complain(format!("the group of {topic} was not given all there is"));
            }
        }
        node = (node + 1) % 3;
        let_be(Duration::from_millis(50));
    }
}

/// Whether the group was given everything that was acknowledged, and nothing is written any more.
async fn read_as_group(shared: &Shared, topic: &str, node: usize, seen: &mut Seen) -> Result<bool, Unread> {
    let client = Client::connect_with(shared.options(node)).await?;
    let consumer = client.consumer(topic).group("drill").max(1000).wait(Duration::from_millis(500));
    let mut consumer = consumer.open().await?;
    loop {
        let is_over = shared.is_over();
        let page = timeout(4 * PATIENCE, consumer.poll()).await.unwrap_or(Err(Error::TimedOut))?;
        seen.take(&page).map_err(Unread::Wrong)?;
        if page.count > 0 {
            timeout(4 * PATIENCE, consumer.commit()).await.unwrap_or(Err(Error::TimedOut))?;
        } else if is_over {
            let all = shared.confirmed_of(topic);
            return Ok(all.iter().all(|(writer, confirmed)| seen.lacks(&writer.name) >= *confirmed));
        }
    }
}
