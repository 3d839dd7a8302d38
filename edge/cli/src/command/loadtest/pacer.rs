//! The clock of an open loop: wakes each connection when its next request is due.
//!
//! A thread of its own, because the runtime's timer counts whole milliseconds and that would be most of what
//! is to be measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Run;
use super::work::Work;

/// Shortest sleep: what is due within it is sent together.
const TICK: Duration = Duration::from_micros(100);

/// When one connection's requests are due.
#[derive(Clone, Debug)]
pub(super) struct Beat {
    pub(super) first: Instant,
    pub(super) every: Duration,
    pub(super) due: Arc<Notify>,
}

pub(super) struct Pacer {
    beats: Vec<Option<Beat>>,
}

impl Pacer {
    /// Spreads the rate evenly over the connections that send requests.
    pub(super) fn start(run: &Run, works: &[Work], begin: Instant, until: Instant) -> Self {
        let senders = works.iter().filter(|work| !work.streams()).count().max(1);
        let gap = Duration::from_secs(1).div_f64(run.args.rate as f64);
        let every = Duration::from_secs(senders as u64).div_f64(run.args.rate as f64);
        let mut first = begin;
        let beat = |work: &Work| {
            if work.streams() {
                return None;
            }
            let beat = Beat { first, every, due: Arc::new(Notify::new()) };
            first += gap;
            Some(beat)
        };
        let beats: Vec<Option<Beat>> = works.iter().map(beat).collect();
        let paced: Vec<Beat> = beats.iter().flatten().cloned().collect();
        std::thread::spawn(move || pace(paced, until));
        Self { beats }
    }

    /// The beat of connection number `n`; `None` when it sends nothing by the clock.
    pub(super) fn beat(&self, n: usize) -> Option<Beat> {
        self.beats.get(n).cloned().flatten()
    }
}

fn pace(beats: Vec<Beat>, until: Instant) {
    let mut dues: Vec<(Instant, Beat)> = beats.into_iter().map(|beat| (beat.first, beat)).collect();
    loop {
        let now = Instant::now();
        if now >= until {
            // Whoever still waits has to see that the time is over.
            dues.iter().for_each(|(_, beat)| beat.due.notify_one());
            return;
        }
        for (due, beat) in dues.iter_mut().filter(|(due, _)| *due <= now) {
            beat.due.notify_one();
            while *due <= now {
                *due += beat.every.max(Duration::from_nanos(1));
            }
        }
        let next = dues.iter().map(|(due, _)| *due).min().unwrap_or(until).min(until);
        std::thread::sleep(next.saturating_duration_since(now).max(TICK));
    }
}
