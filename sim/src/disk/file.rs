//! One file: what the page cache shows against what the platter holds.
//!
//! Owns the bytes and the changes since the last sync. Knows neither names nor open ids.
//!
//! Invariants
//! - `platter` with `pending` applied in order is `view`, unless a sync failed (`suspect`).
//! - Below `agree_end`, `view` and `platter` are equal, unless `suspect`.

use bytes::Bytes;
use rand::Rng;

/// What a device writes as one.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Largest simulated file; more is what a real disk calls `EFBIG`.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 30;

/// A change that no sync has covered yet.
#[derive(Clone, Debug)]
enum Pending {
    Write { at: u64, data: Bytes },
    Zero { at: u64, len: u64 },
    Truncate { len: u64 },
}

/// What becomes of one file's unsynced changes when the power goes.
///
/// Drawn per file: with many changes an independent draw for each would almost never lose all of one
/// file and nothing of another, and that is where recovery goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    LoseAll,
    KeepAll,
    Mixed,
}

impl Mood {
    fn draw(rng: &mut impl Rng) -> Self {
        match rng.random_range(0..8) {
            0 => Self::LoseAll,
            1 => Self::KeepAll,
            2..8 => Self::Mixed,
            other => unreachable!("{other} is outside the range drawn from"),
        }
    }
}

/// One file's bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    view: Vec<u8>,
    platter: Vec<u8>,
    pending: Vec<Pending>,
    agree_end: u64,
    suspect: bool,
    /// Syncs that failed; an id opened before the latest of them cannot sync.
    pub(crate) failed_syncs: u64,
}

impl File {
    /// What a reader sees.
    pub(crate) fn view(&self) -> &[u8] {
        &self.view
    }

    /// What a power loss now would leave if it lost every unsynced change.
    pub(crate) fn platter(&self) -> &[u8] {
        &self.platter
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.pending.is_empty() || self.suspect
    }

    pub(crate) fn write(&mut self, at: u64, data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.touch(at);
        put(&mut self.view, at, Source::Bytes(&data));
        self.pending.push(Pending::Write { at, data });
    }

    pub(crate) fn zero(&mut self, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        self.touch(at);
        put(&mut self.view, at, Source::Zeros(len));
        self.pending.push(Pending::Zero { at, len });
    }

    pub(crate) fn truncate(&mut self, len: u64) {
        self.touch(len);
        self.view.resize(index(len), 0);
        self.pending.push(Pending::Truncate { len });
    }

    /// Makes every change so far durable.
    pub(crate) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            apply(&mut self.platter, &change);
        }
        debug_assert!(self.suspect || self.view.len() > 4096 || self.view == self.platter);
    }

    /// A sync that reports failure: some changes reach the platter, the dirty pages are forgotten, and the
    /// cache shows the old or the new bytes.
    pub(crate) fn sync_failing(&mut self, rng: &mut impl Rng) {
        let changes = std::mem::take(&mut self.pending);
        let mood = Mood::draw(rng);
        for change in &changes {
            settle(&mut self.platter, change, mood, rng);
        }
        for change in &changes {
            if rng.random_bool(0.5) {
                let (at, len) = extent(change);
                let from = index(at).min(self.view.len()).min(self.platter.len());
                let to = index(at + len).min(self.view.len()).min(self.platter.len());
                self.view[from..to].copy_from_slice(&self.platter[from..to]);
            }
        }
        self.suspect = true;
        self.failed_syncs += 1;
    }

    /// Drops what the cache only pretends to hold after a failed sync.
    pub(crate) fn reopen(&mut self) {
        if !self.suspect {
            return;
        }
        self.view.clone_from(&self.platter);
        self.agree_end = u64::try_from(self.view.len()).expect("a length fits");
        self.suspect = false;
        for change in std::mem::take(&mut self.pending) {
            match change {
                Pending::Write { at, data } => self.write(at, data),
                Pending::Zero { at, len } => self.zero(at, len),
                Pending::Truncate { len } => self.truncate(len),
            }
        }
    }

    /// The power goes: each unsynced change is kept, torn or lost, and the cache is empty.
    pub(crate) fn lose_power(&mut self, rng: &mut impl Rng) {
        if !self.is_dirty() {
            return;
        }
        let mood = Mood::draw(rng);
        for change in std::mem::take(&mut self.pending) {
            settle(&mut self.platter, &change, mood, rng);
        }
        let agree = if self.suspect { 0 } else { index(self.agree_end) };
        let agree = agree.min(self.platter.len()).min(self.view.len());
        self.view.truncate(agree);
        self.view.extend_from_slice(&self.platter[agree..]);
        self.suspect = false;
        debug_assert!(self.view.len() > 4096 || self.view == self.platter);
    }

    /// Changes bytes at rest; false when the platter holds none there.
    ///
    /// The cache shows the change too unless it holds something newer for that place.
    pub(crate) fn corrupt(&mut self, at: u64, mask: &[u8]) -> bool {
        let mut done = false;
        for (place, bits) in (at..).zip(mask) {
            let Some(byte) = self.platter.get_mut(index(place)) else { break };
            *byte ^= bits;
            done = true;
            let newer = self.pending.iter().any(|change| {
                let (from, len) = extent(change);
                (from..from.saturating_add(len)).contains(&place)
            });
            if !newer && let Some(byte) = self.view.get_mut(index(place)) {
                *byte ^= bits;
            }
        }
        done
    }

    /// Replaces the file at rest, cache included.
    pub(crate) fn replace(&mut self, content: Vec<u8>) {
        self.pending.clear();
        self.suspect = false;
        self.view.clone_from(&content);
        self.platter = content;
    }

    /// Notes that bytes from `at` on may differ from the platter's.
    fn touch(&mut self, at: u64) {
        let end = u64::try_from(self.view.len()).expect("a length fits");
        if self.pending.is_empty() {
            self.agree_end = end;
        }
        self.agree_end = self.agree_end.min(at).min(end);
    }
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Bytes(&'a [u8]),
    Zeros(u64),
}

impl Source<'_> {
    fn len(self) -> u64 {
        match self {
            Self::Bytes(bytes) => u64::try_from(bytes.len()).expect("a length fits"),
            Self::Zeros(len) => len,
        }
    }

    /// The part `[from, to)`.
    fn part(self, from: u64, to: u64) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(&bytes[index(from)..index(to)]),
            Self::Zeros(_) => Self::Zeros(to - from),
        }
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("places in a file are checked against its largest length")
}

/// Puts bytes into a file, growing it with zeros as far as needed.
fn put(content: &mut Vec<u8>, at: u64, source: Source<'_>) {
    let (from, to) = (index(at), index(at + source.len()));
    if content.len() < to {
        content.resize(to, 0);
    }
    match source {
        Source::Bytes(bytes) => content[from..to].copy_from_slice(bytes),
        Source::Zeros(_) => content[from..to].fill(0),
    }
}

fn source(change: &Pending) -> Option<(u64, Source<'_>)> {
    match change {
        Pending::Write { at, data } => Some((*at, Source::Bytes(data))),
        Pending::Zero { at, len } => Some((*at, Source::Zeros(*len))),
        Pending::Truncate { .. } => None,
    }
}

/// The place a change touches: first byte and length.
fn extent(change: &Pending) -> (u64, u64) {
    match change {
        Pending::Write { at, data } => (*at, Source::Bytes(data).len()),
        Pending::Zero { at, len } => (*at, *len),
        Pending::Truncate { len } => (*len, FILE_BYTES_MAX - len),
    }
}

fn apply(platter: &mut Vec<u8>, change: &Pending) {
    match change {
        Pending::Write { at, data } => put(platter, *at, Source::Bytes(data)),
        Pending::Zero { at, len } => put(platter, *at, Source::Zeros(*len)),
        Pending::Truncate { len } => platter.resize(index(*len), 0),
    }
}

/// Decides what reaches the platter of a change that no sync completed for.
fn settle(platter: &mut Vec<u8>, change: &Pending, mood: Mood, rng: &mut impl Rng) {
    match mood {
        Mood::LoseAll => {}
        Mood::KeepAll => apply(platter, change),
        Mood::Mixed => match (rng.random_range(0..3), source(change)) {
            (0, _) => {}
            (1, Some((at, source))) if source.len() > 1 => tear(platter, at, source, rng),
            _ => apply(platter, change),
        },
    }
}

/// Keeps a part of a write: up to some byte, from some byte, or some of its sectors, perhaps one in part.
fn tear(platter: &mut Vec<u8>, at: u64, source: Source<'_>, rng: &mut impl Rng) {
    let len = source.len();
    let cut = rng.random_range(1..len);
    match rng.random_range(0..4) {
        0 => put(platter, at, source.part(0, cut)),
        1 => put(platter, at + cut, source.part(cut, len)),
        _ => tear_sectors(platter, at, source, rng),
    }
    // The length may reach the platter without the bytes, which then read as zeros.
    if rng.random_bool(0.5) && platter.len() < index(at + len) {
        platter.resize(index(at + len), 0);
    }
}

fn tear_sectors(platter: &mut Vec<u8>, at: u64, source: Source<'_>, rng: &mut impl Rng) {
    let len = source.len();
    // No byte is there to be torn at in half the cases: then every sector is whole or missing.
    let ragged = if rng.random_bool(0.5) { len } else { rng.random_range(0..len) };
    let (mut from, mut bits, mut bits_left) = (0, 0u64, 0);
    while from < len {
        let sector_end = ((at + from) / SECTOR_BYTES + 1) * SECTOR_BYTES;
        let to = (sector_end - at).min(len);
        if bits_left == 0 {
            (bits, bits_left) = (rng.random(), 64);
        }
        let keep = bits & 1 == 1;
        (bits, bits_left) = (bits >> 1, bits_left - 1);
        if (from..to).contains(&ragged) {
            let part = if keep { (from, ragged) } else { (ragged, to) };
            if part.0 < part.1 {
                put(platter, at + part.0, source.part(part.0, part.1));
            }
        } else if keep {
            put(platter, at + from, source.part(from, to));
        }
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    /// Random changes, syncs and power losses against the plain rule: what is synced stays.
    #[test]
    fn the_cache_is_the_platter_after_a_power_loss() {
        for seed in 0..2000 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut file = File::default();
            let mut model: Vec<u8> = Vec::new();
            for _ in 0..rng.random_range(1..30) {
                match rng.random_range(0..8) {
                    0 => {
                        file.sync();
                        assert_eq!(file.platter(), model, "seed {seed}");
                    }
                    1 => {
                        file.lose_power(&mut rng);
                        assert_eq!(file.view(), file.platter(), "seed {seed}");
                        model = file.view().to_vec();
                    }
                    2 => {
                        let len = rng.random_range(0..3000);
                        file.truncate(len);
                        model.resize(index(len), 0);
                    }
                    3 => {
                        let (at, len) = (rng.random_range(0..2000), rng.random_range(1..2000));
                        file.zero(at, len);
                        put(&mut model, at, Source::Zeros(len));
                    }
                    _ => {
                        let (at, len) = (rng.random_range(0..2000u64), rng.random_range(1..2000));
                        let data = vec![rng.random_range(1..=255u8); len];
                        put(&mut model, at, Source::Bytes(&data));
                        file.write(at, data.into());
                    }
                }
                if !file.suspect {
                    assert_eq!(file.view(), model, "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn reopening_after_a_failed_sync_shows_the_platter() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut file = File::default();
            file.write(0, Bytes::from_static(b"aaaa"));
            file.sync();
            file.write(0, Bytes::from_static(b"bbbb"));
            file.sync_failing(&mut rng);
            seen.insert((file.view().to_vec(), file.platter().to_vec()));
            file.reopen();
            assert_eq!(file.view(), file.platter(), "seed {seed}");
        }
        for pair in [(b"aaaa", b"aaaa"), (b"bbbb", b"aaaa"), (b"bbbb", b"bbbb")] {
            assert!(seen.contains(&(pair.0.to_vec(), pair.1.to_vec())), "{pair:?} in {seen:?}");
        }
    }
}
