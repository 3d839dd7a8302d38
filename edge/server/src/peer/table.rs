//! Which connection to which node counts.
//!
//! Two nodes keep one connection. Of one dialled each way the one dialled by the smaller node id stays, so that both
//! sides choose the same without asking; of two dialled by the same side the newer, since nobody dials who knows of
//! one. A node that was started again replaces its former self, and what is left of an earlier start is refused.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use peer::Refusal;
use tokio::sync::{mpsc, watch};
use types::{Incarnation, NodeId};

use super::{Command, Ending, Trouble};

/// A connection that is up, as others reach it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its number in this process.
    pub(super) connection: u64,
    pub(super) incarnation: Incarnation,
    pub(super) dialled_by: NodeId,
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) end: mpsc::Sender<Ending>,
    /// Its sender is dropped when the connection has told of its end.
    pub(super) told: watch::Receiver<()>,
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
    /// Changes whenever the table does.
    changes: watch::Sender<()>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { entries: Mutex::default(), changes: watch::Sender::new(()) }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<NodeId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection to `node`; gives the one it replaces, which is told to end.
    pub(super) fn enter(&self, node: NodeId, new: Entry) -> Result<Option<Entry>, Refusal> {
        let mut entries = self.entries();
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

    /// A connection is over, whether or not it still counts.
    pub(super) fn leave(&self, node: NodeId, connection: u64) {
        let mut entries = self.entries();
        if entries.get(&node).is_some_and(|entry| entry.connection == connection) {
            entries.remove(&node);
            drop(entries);
            self.changes.send_replace(());
        }
    }

    /// Hands a command to the connection of `node`. One whose queue is full is ended.
    pub(super) fn send(&self, node: NodeId, command: Command) -> Result<(), Trouble> {
        let entry = self.entries().get(&node).cloned().ok_or(Trouble::NotConnected)?;
        match entry.commands.try_send(command) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Trouble::NotConnected),
            Err(mpsc::error::TrySendError::Full(_)) => {
                let detail = "its queue is full".to_owned();
                drop(entry.end.try_send(Ending { refusal: Refusal::Busy, detail }));
                Err(Trouble::Full)
            }
        }
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

fn judge(old: Option<&Entry>, new: &Entry) -> Verdict {
    let Some(old) = old else { return Verdict::Stays };
    if new.incarnation != old.incarnation {
        let later = new.incarnation > old.incarnation;
        return if later {
            Verdict::Replaces(Refusal::Superseded)
        } else {
            Verdict::Refused(Refusal::Superseded)
        };
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
        let (commands, _) = mpsc::channel(1);
        let (end, ends) = mpsc::channel(1);
        let (_, told) = watch::channel(());
        let (incarnation, dialled_by) = (Incarnation(incarnation), NodeId(dialled_by));
        (Entry { connection, incarnation, dialled_by, commands, end, told }, ends)
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
                let entered = table.enter(node, entry(id as u64, 5, id).0);
                assert_eq!(entered.is_ok(), id == 1 || order[0] == 2);
            }
            assert_eq!(kept(&table), Some(1));
        }
    }

    #[test]
    fn a_later_start_takes_the_place_of_an_earlier_one() {
        let table = Table::new();
        let node = NodeId(9);
        let (old, mut ends) = entry(1, 5, 1);
        assert_eq!(replaced(table.enter(node, old)), None);
        assert_eq!(table.enter(node, entry(2, 4, 1).0).unwrap_err(), Refusal::Superseded);
        assert_eq!(replaced(table.enter(node, entry(3, 6, 9).0)), Some(1));
        assert_eq!(ends.try_recv().unwrap().refusal, Refusal::Superseded);
        let again = replaced(table.enter(node, entry(4, 6, 9).0));
        assert_eq!(again, Some(3), "the one who dials again has lost the first");
        table.leave(node, 1);
        assert_eq!(kept(&table), Some(4));
        table.leave(node, 4);
        assert_eq!(kept(&table), None);
    }

    #[tokio::test]
    async fn whoever_waits_for_a_node_to_go_hears_of_it() {
        let table = Table::new();
        let node = NodeId(9);
        table.enter(node, entry(1, 5, 1).0).unwrap();
        let gone = table.gone(node);
        tokio::pin!(gone);
        assert!(tokio::time::timeout(std::time::Duration::ZERO, &mut gone).await.is_err());
        table.leave(node, 1);
        gone.await;
    }
}
