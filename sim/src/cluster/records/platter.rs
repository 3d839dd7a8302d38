//! What a disk would hold of every copy if all power went now and nothing unsynced were left.
//!
//! A new disk is made of the platter's bytes alone, and a store is started over it: what it then reads is what the
//! next process would. The disk that is looked at does not notice.

use std::collections::BTreeMap;

use storage::disk::Disk;
use storage::format::batch::Batch;
use storage::store::{Action, Config, Extent, Reply, Request, RequestId, Status, Store};
use types::{Instant, SegmentId};

use super::consume::decoded;
use super::model::{Name, name_in};
use crate::disk::{Faults, Found, Side, SimDisk};
use crate::invariants::{Violation, ensure, inv_30};

/// Bytes asked for in one read.
const READ_BYTES: usize = 1 << 20;

/// What is left of a copy.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) extent: Extent,
    /// In order from its base, as far as they can be read.
    pub(super) batches: Vec<Batch>,
    /// Not all of it could be read.
    pub(super) is_damaged: bool,
}

impl Held {
    /// Whether it may answer for what it holds.
    pub(super) fn is_intact(&self) -> bool {
        !self.is_damaged && inv_30::answers(&self.extent)
    }

    /// The records in it, by name.
    pub(super) fn names(&self) -> Result<Vec<Name>, Violation> {
        let mut names = Vec::new();
        for batch in &self.batches {
            names.extend(decoded(&batch.payload)?.iter().filter_map(|record| name_in(&record.value)));
        }
        Ok(names)
    }
}

struct Look {
    disk: SimDisk,
    store: Store,
    replies: BTreeMap<RequestId, Reply>,
    has_started: bool,
    next: u64,
}

/// What a disk would hold, copies whose `copy.meta` explains nothing left out.
pub(super) fn held(disk: &SimDisk) -> Result<BTreeMap<SegmentId, Held>, Violation> {
    let mut left = SimDisk::new(0, Faults::none());
    for (path, found) in disk.list(Side::Platter) {
        match found {
            Found::Dir => left.plant_dir(&path),
            Found::File(_) => {
                let content = disk.bytes(&path, Side::Platter).unwrap_or_default().to_vec();
                left.plant_file(&path, content);
            }
        }
    }
    let config = Config { preallocate_bytes: (0, 0), spare_files_max: 0, ..Config::default() };
    let mut look =
        Look { disk: left, store: Store::new(config), replies: BTreeMap::new(), has_started: false, next: 0 };
    look.start()?;
    let is_here = |status: &Status| matches!(status, Status::Here(_));
    let segments: Vec<SegmentId> =
        look.store.copies().filter(|(_, status)| is_here(status)).map(|(segment, _)| segment).collect();
    let mut all = BTreeMap::new();
    for segment in segments {
        if let Some(held) = look.read(segment)? {
            all.insert(segment, held);
        }
    }
    Ok(all)
}

impl Look {
    fn start(&mut self) -> Result<(), Violation> {
        let mut out = Vec::new();
        self.store.start(&mut out);
        self.act(out)?;
        while !self.has_started {
            ensure(self.turn()?, "START", || {
                "a store over what the platter holds does not start".to_owned()
            })?;
        }
        Ok(())
    }

    fn read(&mut self, segment: SegmentId) -> Result<Option<Held>, Violation> {
        let Reply::Inspected(extent) = self.call(Request::Inspect { segment })? else { return Ok(None) };
        let mut held = Held { extent, batches: Vec::new(), is_damaged: false };
        let mut from = extent.base;
        while from < extent.end {
            match self.call(Request::Read { segment, from, bytes_max: READ_BYTES })? {
                Reply::Read(batches) => {
                    let end = batches.last().map_or(extent.end, |batch| batch.header.end_offset());
                    held.batches.extend(batches);
                    from = end;
                }
                _ => {
                    held.is_damaged = true;
                    break;
                }
            }
        }
        Ok(Some(held))
    }

    fn call(&mut self, request: Request) -> Result<Reply, Violation> {
        let id = RequestId(self.next);
        self.next += 1;
        let mut out = Vec::new();
        self.store.request(Instant(1), id, request, &mut out);
        self.act(out)?;
        loop {
            if let Some(reply) = self.replies.remove(&id) {
                return Ok(reply);
            }
            let is_alive = self.turn()?;
            ensure(is_alive, "INV-5", || "a store over what the platter holds does not answer".to_owned())?;
        }
    }

    /// Goes on; false when there is nothing to go on with.
    fn turn(&mut self) -> Result<bool, Violation> {
        let mut out = Vec::new();
        self.store.flush(&mut out);
        self.act(out)?;
        let mut any = self.disk.step().is_some();
        while let Some(completion) = self.disk.ready() {
            any = true;
            let mut out = Vec::new();
            self.store.complete(Instant(1), completion, &mut out);
            self.act(out)?;
        }
        Ok(any)
    }

    fn act(&mut self, actions: Vec<Action>) -> Result<(), Violation> {
        for action in actions {
            match action {
                Action::Disk(job) => self.disk.submit(job),
                Action::Started { .. } => self.has_started = true,
                Action::StartFailed(error) => {
                    return Err(Violation::new("START", format!("over what the platter holds: {error}")));
                }
                Action::Reply(id, reply) => {
                    self.replies.insert(id, reply);
                }
                Action::Notice(_) => {}
            }
        }
        Ok(())
    }
}
