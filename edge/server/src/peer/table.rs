//! Which connection to which node counts.
//!
//! Two nodes keep one connection. Of one dialled each way the one dialled by the smaller node id stays, so that both
//! sides choose the same without asking; of two dialled by the same side the newer, since nobody dials who knows of
//! one. What is left of an earlier start is refused.
//!
//! A node that was started again has to wait until the connection of its former self is gone, which takes no longer
//! than a dead peer is believed in. If that one is heard of meanwhile, its process lives: two processes run on copies
//! of one data directory, and it is the later one that is refused, because its copy may lack what was done since.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peer::Refusal;
use tokio::sync::{mpsc, watch};
use types::{Incarnation, Instant, NodeId};

use super::{Command, Ending, Trouble};

/// A process that is heard of so long after a later one has come is alive: what it sent before it died, if it did,
/// has arrived by then.
const ALIVE_AFTER: Duration = Duration::from_secs(1);

/// A connection that is up, as others reach it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its number in this process.
    pub(super) connection: u64,
    pub(super) incarnation: Incarnation,
    /// Where it says it is.
    pub(super) address: String,
    pub(super) dialled_by: NodeId,
    pub(super) commands: Commands,
    pub(super) end: mpsc::Sender<Ending>,
    /// Its sender is dropped when the connection has told of its end.
    pub(super) told: watch::Receiver<()>,
    pub(super) heard: Heard,
}

/// The way to a connection for what is to be done on it.
#[derive(Clone, Debug)]
pub(super) struct Commands {
    sender: mpsc::Sender<Vec<Command>>,
    /// How many wait.
    waiting: Arc<AtomicUsize>,
    most: usize,
}

/// The connection's end of it.
#[derive(Debug)]
pub(super) struct Orders {
    receiver: mpsc::Receiver<Vec<Command>>,
    waiting: Arc<AtomicUsize>,
}

impl Commands {
    /// A way on which so many may wait, at least 1.
    pub(super) fn new(most: usize) -> (Self, Orders) {
        // None of them is empty, so that there is always room for one more within the bound.
        let (sender, receiver) = mpsc::channel(most);
        let waiting = Arc::<AtomicUsize>::default();
        (Self { sender, waiting: Arc::clone(&waiting), most }, Orders { receiver, waiting })
    }

    fn send(&self, commands: Vec<Command>) -> Result<(), (Trouble, Vec<Command>)> {
        let count = commands.len();
        if count == 0 {
            return Ok(());
        }
        if self.waiting.fetch_add(count, Ordering::Relaxed) + count > self.most {
            self.waiting.fetch_sub(count, Ordering::Relaxed);
            return Err((Trouble::Full, commands));
        }
        self.sender.try_send(commands).map_err(|unsent| {
            self.waiting.fetch_sub(count, Ordering::Relaxed);
            match unsent {
                mpsc::error::TrySendError::Closed(commands) => (Trouble::NotConnected, commands),
                mpsc::error::TrySendError::Full(commands) => (Trouble::Full, commands),
            }
        })
    }
}

impl Orders {
    /// The next ones, in order; `None` when there will be none. Given up, it has taken none.
    pub(super) async fn next(&mut self) -> Option<Vec<Command>> {
        let commands = self.receiver.recv().await?;
        self.waiting.fetch_sub(commands.len(), Ordering::Relaxed);
        Some(commands)
    }

    /// The next ones that wait already.
    pub(super) fn waiting(&mut self) -> Option<Vec<Command>> {
        let commands = self.receiver.try_recv().ok()?;
        self.waiting.fetch_sub(commands.len(), Ordering::Relaxed);
        Some(commands)
    }

    /// Nothing more is taken; what was taken is still here.
    pub(super) fn close(&mut self) {
        self.receiver.close();
    }
}

/// When something was heard last on a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard(Arc<AtomicU64>);

impl Heard {
    pub(super) fn set(&self, now: Instant) {
        self.0.store(now.0, Ordering::Relaxed);
    }

    fn at(&self) -> Instant {
        Instant(self.0.load(Ordering::Relaxed))
    }
}

/// A later start of a node that is connected already.
#[derive(Clone, Copy, Debug)]
struct Newcomer {
    incarnation: Incarnation,
    /// The connection it found.
    found: u64,
    came: Instant,
}

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Stays,
    /// The one that was there ends, for that reason.
    Replaces(Refusal),
    Refused(Refusal),
}

/// All connections that are up, one for each node.
#[derive(Debug)]
pub(super) struct Table {
    entries: Mutex<BTreeMap<NodeId, Entry>>,
    newcomers: Mutex<BTreeMap<NodeId, Newcomer>>,
    /// Changes whenever the table does.
    changes: watch::Sender<()>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { entries: Mutex::default(), newcomers: Mutex::default(), changes: watch::Sender::new(()) }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<NodeId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection to `node`; gives the one it replaces, which is told to end.
    pub(super) fn enter(&self, node: NodeId, new: Entry, now: Instant) -> Result<Option<Entry>, Refusal> {
        let mut entries = self.entries();
        if let Some(old) = entries.get(&node).filter(|old| is_another(old, &new)) {
            return Err(self.wait(node, old, new.incarnation, now));
        }
        let replaced = match judge(entries.get(&node), &new) {
            Verdict::Refused(refusal) => return Err(refusal),
            Verdict::Stays => None,
            Verdict::Replaces(refusal) => entries.remove(&node).inspect(|old| {
                let detail = "another connection to it took this one's place".to_owned();
                // One that is ending already needs no telling.
                drop(old.end.try_send(Ending { refusal, detail }));
            }),
        };
        entries.insert(node, new);
        drop(entries);
        self.changes.send_replace(());
        Ok(replaced)
    }

    /// What a later start is told while an earlier one is connected.
    fn wait(&self, node: NodeId, old: &Entry, incarnation: Incarnation, now: Instant) -> Refusal {
        let mut newcomers = self.newcomers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = newcomers.get(&node).copied();
        let known = known.filter(|known| (known.incarnation, known.found) == (incarnation, old.connection));
        match known {
            None => {
                newcomers.insert(node, Newcomer { incarnation, found: old.connection, came: now });
                Refusal::Connected
            }
            Some(known) if old.heard.at() >= known.came.plus(ALIVE_AFTER) => Refusal::Duplicate,
            Some(_) => Refusal::Connected,
        }
    }

    /// Tells every connection to end.
    pub(super) fn end_all(&self, refusal: Refusal, detail: &str) {
        for entry in self.entries().values() {
            // One that is ending already needs no telling.
            drop(entry.end.try_send(Ending { refusal, detail: detail.to_owned() }));
        }
    }

    /// A connection is over, whether or not it still counts.
    pub(super) fn leave(&self, node: NodeId, connection: u64) {
        let mut entries = self.entries();
        if entries.get(&node).is_some_and(|entry| entry.connection == connection) {
            entries.remove(&node);
            drop(entries);
            self.newcomers.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
            self.changes.send_replace(());
        }
    }

    /// Hands commands to the connection of `node`, all or none. One whose queue is full is ended.
    pub(super) fn send(&self, node: NodeId, commands: Vec<Command>) -> Result<(), (Trouble, Vec<Command>)> {
        let entries = self.entries();
        let Some(entry) = entries.get(&node) else { return Err((Trouble::NotConnected, commands)) };
        let sent = entry.commands.send(commands);
        if let Err((Trouble::Full, _)) = &sent {
            let detail = "its queue is full".to_owned();
            drop(entry.end.try_send(Ending { refusal: Refusal::Busy, detail }));
        }
        sent
    }

    /// Waits until there is no connection to `node`.
    pub(super) async fn gone(&self, node: NodeId) {
        let mut changes = self.changes.subscribe();
        while self.entries().contains_key(&node) {
            // The sender is this table's, which is there.
            drop(changes.changed().await);
        }
    }
}

/// Whether the new connection is another process's, and not of an earlier start. A directory that was copied while
/// nobody used it gives two of them the same incarnation.
fn is_another(old: &Entry, new: &Entry) -> bool {
    new.incarnation > old.incarnation || (new.incarnation == old.incarnation && new.address != old.address)
}

fn judge(old: Option<&Entry>, new: &Entry) -> Verdict {
    let Some(old) = old else { return Verdict::Stays };
    if new.incarnation < old.incarnation {
        return Verdict::Refused(Refusal::Superseded);
    }
    if new.dialled_by <= old.dialled_by {
        Verdict::Replaces(Refusal::Connected)
    } else {
        Verdict::Refused(Refusal::Connected)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn entry(connection: u64, incarnation: u64, dialled_by: u128) -> (Entry, mpsc::Receiver<Ending>) {
        let (commands, _) = Commands::new(1);
        let (end, ends) = mpsc::channel(1);
        let (_, told) = watch::channel(());
        let (incarnation, dialled_by) = (Incarnation(incarnation), NodeId(dialled_by));
        let heard = Heard::default();
        let address = String::new();
        (Entry { connection, incarnation, address, dialled_by, commands, end, told, heard }, ends)
    }

    fn kept(table: &Table) -> Option<u64> {
        table.entries().values().next().map(|entry| entry.connection)
    }

    fn replaced(entered: Result<Option<Entry>, Refusal>) -> Option<u64> {
        entered.unwrap().map(|entry| entry.connection)
    }

    #[test]
    fn both_sides_keep_the_same_of_two() {
        // The smaller id dialled one, the larger the other; each side hears of them in its own order.
        for order in [[1, 2], [2, 1]] {
            let table = Table::new();
            let node = NodeId(9);
            for id in order {
                let entered = table.enter(node, entry(id as u64, 5, id).0, Instant(0));
                assert_eq!(entered.is_ok(), id == 1 || order[0] == 2);
            }
            assert_eq!(kept(&table), Some(1));
        }
    }

    #[test]
    fn a_later_start_takes_the_place_of_an_earlier_one_that_is_gone() {
        let (table, now) = (Table::new(), Instant(0));
        let node = NodeId(9);
        assert_eq!(replaced(table.enter(node, entry(1, 5, 1).0, now)), None);
        assert_eq!(table.enter(node, entry(2, 4, 1).0, now).unwrap_err(), Refusal::Superseded);
        let later = |at| table.enter(node, entry(3, 6, 9).0, at).unwrap_err();
        assert_eq!(later(now), Refusal::Connected);
        // Nothing is heard of the earlier one: sooner or later its connection ends.
        assert_eq!(later(now.plus(3 * ALIVE_AFTER)), Refusal::Connected);
        table.leave(node, 1);
        assert_eq!(replaced(table.enter(node, entry(3, 6, 9).0, now)), None);
        let again = replaced(table.enter(node, entry(4, 6, 9).0, now));
        assert_eq!(again, Some(3), "the one who dials again has lost the first");
        table.leave(node, 1);
        assert_eq!(kept(&table), Some(4));
        table.leave(node, 4);
        assert_eq!(kept(&table), None);
    }

    #[test]
    fn of_two_processes_of_one_node_the_later_is_refused() {
        let (table, node) = (Table::new(), NodeId(9));
        let came = Instant(0).plus(Duration::from_secs(100));
        let (old, mut ends) = entry(1, 5, 1);
        let heard = old.heard.clone();
        table.enter(node, old, Instant(0)).unwrap();
        let later = |incarnation| table.enter(node, entry(2, incarnation, 9).0, came).unwrap_err();
        assert_eq!(later(6), Refusal::Connected);
        // What was on its way when the later one came proves nothing.
        heard.set(came.plus(ALIVE_AFTER / 2));
        assert_eq!(later(6), Refusal::Connected);
        heard.set(came.plus(ALIVE_AFTER));
        assert_eq!(later(6), Refusal::Duplicate);
        assert_eq!(later(7), Refusal::Connected, "each is judged by what is heard after it came");
        // The same incarnation at another address is another process too.
        let elsewhere = || Entry { address: "elsewhere:1".to_owned(), ..entry(2, 5, 9).0 };
        assert_eq!(table.enter(node, elsewhere(), came).unwrap_err(), Refusal::Connected);
        assert_eq!(table.enter(node, elsewhere(), came).unwrap_err(), Refusal::Duplicate);
        assert!(ends.try_recv().is_err() && kept(&table) == Some(1));
    }

    #[tokio::test]
    async fn whoever_waits_for_a_node_to_go_hears_of_it() {
        let table = Table::new();
        let node = NodeId(9);
        table.enter(node, entry(1, 5, 1).0, Instant(0)).unwrap();
        let gone = table.gone(node);
        tokio::pin!(gone);
        assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut gone).await.is_err());
        table.leave(node, 1);
        gone.await;
    }
}
