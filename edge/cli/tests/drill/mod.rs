//! What drills share: how they are asked for, chance that can be repeated, and the story they tell.
//!
//! A drill starts three brokers ([`rig`]), puts clients on them that remember what was acknowledged ([`load`]), does
//! things to them one after the other, waits after each until all is well again, and at the end looks at every record
//! and at every copy on every disk ([`copies`]). Whatever does not hold ends it with a panic.

pub(crate) mod chaos;
pub(crate) mod copies;
pub(crate) mod load;
pub(crate) mod reading;
pub(crate) mod record;
pub(crate) mod rig;
pub(crate) mod storage;

use std::io::Write as _;
use std::time::{Duration, Instant};

/// What somebody wants of a drill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Decides what happens in which order; what processes do in between is their own.
    pub(crate) seed: u64,
    /// How long things are done to the cluster at least.
    pub(crate) lasting: Duration,
    /// Whether the outcome goes into the documents.
    pub(crate) is_recorded: bool,
}

impl Asked {
    /// `None`, with a line that says so, when nobody asked for this one.
    pub(crate) fn of(name: &str) -> Option<Self> {
        if std::env::var("DRILL").is_ok_and(|asked| asked == name) {
            let seed = number("DRILL_SEED").unwrap_or_else(|| u64::from(std::process::id()));
            let lasting = Duration::from_secs(number("DRILL_SECONDS").unwrap_or(90));
            let is_recorded = std::env::var("RECORD").is_ok_and(|value| value == "1");
            return Some(Self { seed, lasting, is_recorded });
        }
        say(&format!("skipped: the drill is not asked for, see `make drill-{name}`"));
        None
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// To whoever watches.
pub(crate) fn say(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// The same seed gives the same numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// A while between the two, milliseconds.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.next() % (most - least + 1))
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// Looks until `problem` finds none, or gives back what it found last.
pub(crate) fn settled_within(
    longest: Duration,
    mut problem: impl FnMut() -> Option<String>,
) -> Result<Duration, String> {
    let began = Instant::now();
    while let Some(found) = problem() {
        if began.elapsed() > longest {
            return Err(found);
        }
        // Looking at a cluster costs it something.
        std::thread::park_timeout(Duration::from_millis(50));
    }
    Ok(began.elapsed())
}

/// Lets the cluster be for a while.
pub(crate) fn let_be(lasting: Duration) {
    let until = Instant::now() + lasting;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}
