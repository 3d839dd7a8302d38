//! What the records found mean: where the log ends, what each group holds, and whom lost records concern.
//!
//! Lost records are counted by the serials around them. A group's own serials say which of its records are
//! among them; as long as these account for every lost record, no other group is concerned. When they do not,
//! every group whose last record lies before the loss may have had a later one in it, and so may a group
//! nobody knows of. A loss does not matter to a group whose latest record and live entries all come after it.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use types::{Term, VnodeId};

use super::super::group::Stored;
use super::super::request::{HardState, Notice, SnapshotMark};
use super::scan::{Item, Scan};
use crate::format::raft_log::{Header, Kind, MARK_GROUP, Spot, Update};

/// What the log says.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Where the next record goes; `None` for a log without any bytes.
    pub(super) end: Option<Spot>,
    /// Everything below was durable before the log was read.
    pub(super) durable: Spot,
    /// Whether anything but zeros was dropped at the end.
    pub(super) torn: bool,
    /// Serial of the last record, lost ones included.
    pub(super) serial: u64,
    /// Serial of the last mark among the marks.
    pub(super) mark_serial: u64,
    pub(super) groups: BTreeMap<VnodeId, Replayed>,
    pub(super) damage: Vec<Notice>,
    /// Serial of the last lost record; 0 when none was lost.
    pub(super) lost_upto: u64,
    pub(super) unlisted_possible: bool,
}

/// One group as its records tell it.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    hard: HardState,
    snapshot: SnapshotMark,
    last: u64,
    entries: BTreeMap<u64, Carried>,
    /// Its last record: number among its own, number in the log, file.
    pub(super) group_serial: u64,
    pub(super) serial: u64,
    pub(super) file: u64,
    /// Number among its own of the last of its records known to be lost; 0 when there is none.
    missing_upto: u64,
    /// Its last record is a forget.
    pub(super) forgotten: bool,
    /// Why it cannot be vouched for.
    pub(super) damage: Option<String>,
}

#[derive(Debug)]
struct Carried {
    term: Term,
    data: Bytes,
    group_serial: u64,
    file: u64,
}

/// A group that can be vouched for.
pub(super) struct Whole {
    pub(super) hard: HardState,
    pub(super) snapshot: SnapshotMark,
    pub(super) entries: VecDeque<Stored>,
}

/// Reads the items. `trust_first_bad` is a planted bug: the first bad record ends the log.
pub(super) fn replay(scan: Scan, trust_first_bad: bool) -> Verdict {
    let cut = find_cut(&scan, trust_first_bad);
    let mut verdict = Verdict { durable: scan.durable, ..Verdict::default() };
    let (kept, dropped) = scan.items.split_at(cut);
    verdict.end = dropped.first().map(Item::spot).or_else(|| kept.last().map(end_of));
    verdict.torn = dropped.iter().any(|item| match item {
        Item::Gap { zero, .. } => !zero,
        Item::Record { .. } | Item::Broken { .. } => true,
    });
    let mut losses = Losses::default();
    for (at, item) in kept.iter().enumerate() {
        match item {
            Item::Gap { spot, .. } => {
                let next = scan.items[at..].iter().find_map(Item::header);
                losses.gap(*spot, next.map(|header| header.serial));
            }
            Item::Broken { spot, header } => {
                losses.header(header, *spot);
                let (file, position) = (spot.file, spot.at);
                verdict.damage.push(Notice::Damage { file, position, records: Some(1) });
                losses.attributed += verdict.touch(header, spot.file);
                verdict.group(header).missing_upto = header.group_serial;
            }
            Item::Record { spot, header, update } => {
                losses.header(header, *spot);
                losses.attributed += verdict.touch(header, spot.file);
                verdict.take(header, update.as_ref(), spot.file);
            }
        }
    }
    verdict.finish(losses);
    verdict
}

fn end_of(item: &Item) -> Spot {
    let spot = item.spot();
    let len = item.header().map_or(0, |header| header.record_len() as u64);
    Spot { at: spot.at + len, ..spot }
}

/// Index of the first item that belongs to a flush that did not complete, or to the unused rest of the log.
fn find_cut(scan: &Scan, trust_first_bad: bool) -> usize {
    let ends = |(at, item): (usize, &Item)| {
        let durable = item.spot() < scan.durable && !trust_first_bad;
        !item.is_good() && !durable && !is_unused_rest(&scan.items, at)
    };
    scan.items.iter().enumerate().position(ends).unwrap_or(scan.items.len())
}

/// Whether a gap is what a flush that did not fit left of its file: the next file goes on without a loss. Such
/// a gap begins exactly where the log was durable when the next file's first record was written.
fn is_unused_rest(items: &[Item], at: usize) -> bool {
    let is_gap = items[at].header().is_none();
    let before = items[..at].iter().rev().find_map(Item::header).map(|header| header.serial);
    let next = items[at + 1..].iter().find(|item| item.header().is_some());
    let goes_on = next.is_some_and(|next| {
        let later_file = next.spot().file > items[at].spot().file;
        later_file
            && next.header().map(|header| header.serial) == before.map(|serial| serial.saturating_add(1))
    });
    is_gap && goes_on
}

/// Counts what is missing between records.
#[derive(Default)]
struct Losses {
    last_serial: Option<u64>,
    /// Where the gap before the next record begins.
    gap: Option<Spot>,
    /// Serial of the first record after a gap at the end of what is kept.
    next: Option<u64>,
    count: u64,
    unknown: bool,
    upto: u64,
    attributed: u64,
    notices: Vec<Notice>,
}

impl Losses {
    fn gap(&mut self, spot: Spot, next_serial: Option<u64>) {
        self.gap.get_or_insert(spot);
        self.next = next_serial;
    }

    fn header(&mut self, header: &Header, spot: Spot) {
        let gap = self.gap.take();
        self.next = None;
        self.lost_before(header.serial, gap, spot);
        self.last_serial = Some(header.serial);
    }

    fn lost_before(&mut self, serial: u64, gap: Option<Spot>, spot: Spot) {
        let at = gap.unwrap_or(spot);
        let records = match self.last_serial {
            Some(last) if serial == last.saturating_add(1) => return,
            Some(last) => Some(serial.saturating_sub(last).saturating_sub(1)),
            // The oldest file may begin with any serial, but not with a gap.
            None if gap.is_none() => return,
            None => None,
        };
        self.count += records.unwrap_or_default();
        self.unknown |= records.is_none();
        self.upto = serial.saturating_sub(1);
        self.notices.push(Notice::Damage { file: at.file, position: at.at, records });
    }

    /// A gap below what was durable ends what is kept: the record after it belongs to a torn flush.
    fn finish(&mut self) {
        if let (Some(gap), Some(next)) = (self.gap, self.next) {
            self.lost_before(next, Some(gap), gap);
            self.last_serial = Some(next.saturating_sub(1));
        }
    }
}

impl Verdict {
    fn group(&mut self, header: &Header) -> &mut Replayed {
        self.groups.entry(header.group).or_default()
    }

    /// Notes one more record of a group; returns how many of its records are missing just before it.
    fn touch(&mut self, header: &Header, file: u64) -> u64 {
        let known = self.groups.contains_key(&header.group);
        let group = self.group(header);
        let missing = header.group_serial.saturating_sub(group.group_serial.saturating_add(1));
        group.group_serial = header.group_serial;
        group.serial = header.serial;
        group.file = file;
        // Records before the first one found may just have left the log with their file.
        if !known || missing == 0 {
            return 0;
        }
        group.missing_upto = header.group_serial - 1;
        missing
    }

    fn take(&mut self, header: &Header, update: Option<&Update>, file: u64) {
        let serial = header.group_serial;
        let group = self.group(header);
        match (header.kind, update) {
            (Kind::Update, Some(update)) => group.update(update, serial, file),
            (Kind::Forget, _) => {
                let Replayed { group_serial, serial, file, .. } = *group;
                *group = Replayed { group_serial, serial, file, forgotten: true, ..Replayed::default() };
            }
            (Kind::Update, None) | (Kind::Mark, _) => {}
        }
    }

    fn finish(&mut self, mut losses: Losses) {
        losses.finish();
        self.serial = losses.last_serial.unwrap_or_default();
        self.lost_upto = losses.upto;
        self.damage.append(&mut losses.notices);
        self.mark_serial = self.groups.remove(&MARK_GROUP).map_or(0, |marks| marks.group_serial);
        self.unlisted_possible = losses.unknown || losses.count > losses.attributed;
        for group in self.groups.values_mut() {
            let may_miss_later = self.unlisted_possible && group.serial < losses.upto;
            group.damage = group.find_damage(may_miss_later);
        }
    }
}

impl Replayed {
    fn update(&mut self, update: &Update, group_serial: u64, file: u64) {
        self.forgotten = false;
        let Update { term, voted_for, commit, .. } = *update;
        self.hard = HardState { term, voted_for, commit };
        self.snapshot = SnapshotMark { index: update.snapshot_index, term: update.snapshot_term };
        self.last = update.last.0;
        if !update.entries.is_empty() {
            self.entries.split_off(&update.first.0);
            for (index, (term, data)) in (update.first.0..).zip(&update.entries) {
                let (term, data) = (*term, data.clone());
                self.entries.insert(index, Carried { term, data, group_serial, file });
            }
        }
        if let Some(past) = self.last.checked_add(1) {
            self.entries.split_off(&past);
        }
        self.entries = self.entries.split_off(&(self.snapshot.index.0.saturating_add(1)));
    }

    fn find_damage(&self, may_miss_later: bool) -> Option<String> {
        if may_miss_later {
            return Some("a lost record may have been its last".to_owned());
        }
        if self.missing_upto == self.group_serial {
            return Some("its last record is damaged".to_owned());
        }
        if let Some((index, _)) = self.entries.iter().find(|(_, e)| e.group_serial <= self.missing_upto) {
            return Some(format!("a record after the one of entry {index} is lost"));
        }
        let expected = self.snapshot.index.0 + 1..=self.last;
        if !self.entries.keys().copied().eq(expected) {
            return Some(format!("entries between {} and {} are lost", self.snapshot.index, self.last));
        }
        None
    }

    /// The state of a group without damage. Entries are copied, so that they do not keep whole files in memory.
    pub(super) fn whole(&self) -> Whole {
        let stored =
            |e: &Carried| Stored { term: e.term, data: Bytes::copy_from_slice(&e.data), file: e.file };
        Whole {
            hard: self.hard,
            snapshot: self.snapshot,
            entries: self.entries.values().map(stored).collect(),
        }
    }

    pub(super) fn snapshot(&self) -> SnapshotMark {
        self.snapshot
    }
}
