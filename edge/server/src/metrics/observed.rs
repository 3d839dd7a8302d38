//! What is kept elsewhere and shown as it is at the moment somebody looks: the core's gauges, the disks' counters,
//! the process.
//!
//! The core answers for itself through its queue; when it does not in time, the last answer is shown, with its age.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use broker::{Gauges, Volume};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Gauge, IntCounterVec, IntGauge};

use super::process::Process;
use super::series::{OfCore, core_series};
use super::{Maker, volume};
use crate::disk::{SYNC_BUCKETS, Snapshot};

/// The core and its disks at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    pub(crate) gauges: Gauges,
    /// Batches of requests that wait for the core.
    pub(crate) requests_waiting: usize,
    /// Completions that wait for it.
    pub(crate) completions_waiting: usize,
    pub(crate) log: Snapshot,
    pub(crate) raft: Snapshot,
}

/// How a series is read off a disk.
type OfDisk = fn(&Snapshot) -> u64;

/// The series, and what was seen last.
#[derive(Debug)]
pub(crate) struct Seen {
    started: Instant,
    last: Mutex<Option<(Instant, Observed)>>,
    uptime: Gauge,
    age: Gauge,
    memory: IntGauge,
    descriptors: IntGauge,
    descriptors_max: IntGauge,
    sessions: IntGauge,
    core: Vec<(IntGauge, OfCore)>,
    disks: Vec<(IntCounterVec, OfDisk)>,
}

impl Seen {
    pub(super) fn new(make: &Maker<'_>) -> Self {
        let memory = make.gauges("malachi_memory_bytes", "Memory of the process", &["kind"]);
        Self {
            started: Instant::now(),
            last: Mutex::default(),
            uptime: make.fraction("malachi_uptime_seconds", "Since the process started"),
            age: make.fraction("malachi_core_seen_seconds", "Age of what is shown of the core and the disks"),
            memory: memory.with_label_values(&["total"]),
            descriptors: make.gauge("malachi_open_descriptors", "Files and sockets that are open"),
            descriptors_max: make.gauge("malachi_open_descriptors_max", "Most that may be"),
            sessions: make.gauge("malachi_active_sessions", "Session tokens that are good"),
            core: core_series(make),
            disks: disk_series(make),
        }
    }

    /// Sets the series; gives those that are built anew each time.
    pub(super) fn update(&self, observed: Option<Observed>, sessions: usize) -> Vec<MetricFamily> {
        let now = Instant::now();
        let process = Process::look();
        self.uptime.set(now.duration_since(self.started).as_secs_f64());
        set(&self.memory, process.memory_bytes);
        set(&self.descriptors, process.descriptors);
        set(&self.descriptors_max, process.descriptors_max);
        set(&self.sessions, sessions as u64);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(observed) = observed {
            *last = Some((now, observed));
        }
        let Some((at, observed)) = *last else { return Vec::new() };
        self.age.set(now.duration_since(at).as_secs_f64());
        for (gauge, value) in &self.core {
            set(gauge, value(&observed));
        }
        let disks = [(Volume::Log, observed.log), (Volume::Raft, observed.raft)];
        for (counters, value) in &self.disks {
            for (disk, snapshot) in &disks {
                let counter = counters.with_label_values(&[volume(*disk)]);
                // Both only grow, and nobody else adds while the lock is held.
                counter.inc_by(value(snapshot).saturating_sub(counter.get()));
            }
        }
        vec![sync_seconds(&disks)]
    }
}

fn set(gauge: &IntGauge, value: u64) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}

fn disk_series(make: &Maker<'_>) -> Vec<(IntCounterVec, OfDisk)> {
    let series: [(&str, &str, OfDisk); 7] = [
        ("malachi_disk_flushes_total", "Times waiting jobs were written and synced together", |s| s.flushes),
        ("malachi_disk_flushed_jobs_total", "Jobs among them", |s| s.flushed_jobs),
        ("malachi_disk_written_bytes_total", "Bytes written, zeroing included", |s| s.written_bytes),
        ("malachi_disk_write_calls_total", "System calls that wrote them", |s| s.write_calls),
        ("malachi_disk_reads_total", "Reads", |s| s.reads),
        ("malachi_disk_read_bytes_total", "Bytes they gave", |s| s.read_bytes),
        ("malachi_disk_failures_total", "Jobs that failed", |s| s.failures),
    ];
    series.into_iter().map(|(name, help, value)| (make.counters(name, help, &["volume"]), value)).collect()
}

/// Built anew from what the disks count: its name and help.
pub(super) const SYNC_SECONDS: (&str, &str) =
    ("malachi_disk_sync_duration_seconds", "Duration of syncs of files and directories");

/// How long the syncs of each disk took.
fn sync_seconds(disks: &[(Volume, Snapshot)]) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(SYNC_SECONDS.0.to_owned());
    family.set_help(SYNC_SECONDS.1.to_owned());
    family.set_field_type(MetricType::HISTOGRAM);
    let metrics = disks.iter().map(|(disk, snapshot)| {
        let mut label = LabelPair::default();
        label.set_name("volume".to_owned());
        label.set_value(volume(*disk).to_owned());
        let mut metric = Metric::from_label(vec![label]);
        metric.set_histogram(histogram(snapshot));
        metric
    });
    family.set_metric(metrics.collect());
    family
}

fn histogram(snapshot: &Snapshot) -> Histogram {
    let mut cumulative = 0;
    // The last one counts the rest: it is what the count says.
    let buckets = snapshot.sync_buckets[..SYNC_BUCKETS - 1].iter().zip(0..).map(|(count, power)| {
        cumulative += count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(1e-6 * 2_f64.powi(power));
        bucket.set_cumulative_count(cumulative);
        bucket
    });
    let buckets = buckets.collect();
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets);
    histogram.set_sample_count(snapshot.syncs);
    histogram.set_sample_sum(snapshot.sync_time.as_secs_f64());
    histogram
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Metrics;
    use super::*;

    #[test]
    fn the_core_is_shown_as_it_was_seen_last() {
        let metrics = Metrics::new();
        assert!(!metrics.text(None, 0).contains("malachi_disk_sync_duration_seconds"), "nothing was seen");
        let mut sync_buckets = [0; SYNC_BUCKETS];
        (sync_buckets[3], sync_buckets[SYNC_BUCKETS - 1]) = (2, 1);
        let log = Snapshot {
            flushes: 7,
            syncs: 3,
            sync_time: Duration::from_millis(5),
            sync_buckets,
            ..Snapshot::default()
        };
        let store = storage::store::Gauges { held_bytes: 12, journal_usable: true, ..Default::default() };
        let raft_log = storage::raft_log::Gauges { entry_bytes: 13, ..Default::default() };
        let gauges = Gauges {
            streams: 4,
            produces: (1, 100),
            unlisted_copies: 2,
            store,
            raft_log,
            ..Gauges::default()
        };
        let observed =
            Observed { gauges, requests_waiting: 9, completions_waiting: 0, log, raft: Snapshot::default() };
        for text in [metrics.text(Some(observed), 0), metrics.text(None, 0)] {
            for line in [
                "malachi_streams 4",
                "malachi_produce_bytes_waiting 100",
                "malachi_core_requests_waiting 9",
                "malachi_store_held_bytes 12",
                "malachi_store_journal_usable 1",
                "malachi_store_unlisted_copies 2",
                "malachi_raft_log_entry_bytes 13",
                r#"malachi_disk_flushes_total{volume="log"} 7"#,
                r#"malachi_disk_sync_duration_seconds_bucket{volume="log",le="0.000004"} 0"#,
                r#"malachi_disk_sync_duration_seconds_bucket{volume="log",le="0.000008"} 2"#,
                r#"malachi_disk_sync_duration_seconds_bucket{volume="log",le="+Inf"} 3"#,
                r#"malachi_disk_sync_duration_seconds_sum{volume="log"} 0.005"#,
                r#"malachi_disk_sync_duration_seconds_count{volume="raft"} 0"#,
            ] {
                assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
            }
        }
    }
}
