//! What retention, the search for orphans, the scrub, and splits and merges by load have done.

use broker::upkeep::{Limit, Notice, Origin, Refused, Scrubbed};
use prometheus::{Histogram, IntCounter, IntCounterVec};

use super::Maker;

/// See the module.
#[derive(Debug)]
pub(crate) struct UpkeepSeries {
    sweep_seconds: Histogram,
    sweeps_skipped: IntCounter,
    expired: IntCounter,
    expired_bytes: IntCounter,
    refused: IntCounterVec,
    unresolved: IntCounter,
    skips: IntCounterVec,
    skipped: IntCounterVec,
    lost_skips: IntCounter,
    lost_skipped: IntCounter,
    left: IntCounter,
    orphans: IntCounter,
    scrubbed: IntCounterVec,
    damaged: IntCounter,
    resized: IntCounterVec,
    limited: IntCounterVec,
}

impl UpkeepSeries {
    pub(super) fn new(make: &Maker<'_>) -> Self {
        let skip_labels = ["reader", "origin", "span"];
        let series = Self {
            sweep_seconds: make.seconds(
                "malachi_retention_sweep_duration_seconds",
                "Retention sweeps over the vnodes this node leads; one that does not know which policies hold is not counted",
            ),
            sweeps_skipped: make.counter(
                "malachi_retention_sweeps_skipped_total",
                "Retention sweeps given up because it could not be learnt which policies hold",
            ),
            expired: make.counter("malachi_retention_segments_expired_total", "Segments expired"),
            expired_bytes: make.counter("malachi_retention_bytes_expired_total", "Their bytes"),
            refused: make.counters(
                "malachi_retention_expire_failures_total",
                "Segments the metadata did not forget, by why; tried again with the next sweep",
                &["reply"],
            ),
            unresolved: make.counter(
                "malachi_retention_unresolved_policy_sweeps_total",
                "Topics met by a sweep whose policy nothing defines",
            ),
            skips: make.counters(
                "malachi_retention_skips_total",
                "Readers moved up over expired records; with origin `cursor` they lost some",
                &skip_labels,
            ),
            skipped: make.counters(
                "malachi_retention_offsets_skipped_total",
                "Offsets they were moved over; with span `upper_bound` a reader of a slice would have been given fewer",
                &skip_labels,
            ),
            lost_skips: make.counter(
                "malachi_damaged_skips_total",
                "Readers moved over records whose only copy was damaged",
            ),
            lost_skipped: make.counter(
                "malachi_damaged_offsets_skipped_total",
                "Offsets they were moved over: as many as the copy can have held",
            ),
            left: make.counter(
                "malachi_retention_orphan_directories_left_total",
                "Copies of expired segments on nodes that could not be reached then",
            ),
            orphans: make.counter(
                "malachi_retention_orphan_directories_removed_total",
                "Copies that no topic listed and that were removed",
            ),
            scrubbed: make.counters(
                "malachi_storage_scrub_segments_total",
                "Sealed copies verified, by what came of it",
                &["result"],
            ),
            damaged: make.counter(
                "malachi_storage_integrity_failures_total",
                "Sealed copies found not to be what was recorded of them",
            ),
            resized: make.counters(
                "malachi_ranges_resized_total",
                "Ranges split, and pairs merged, because of what they took or held; by the node that leads their metadata",
                &["change"],
            ),
            limited: make.counters(
                "malachi_range_splits_refused_total",
                "Times a range came to take or hold too much and was not split, by why; `explain range` tells it of each",
                &["cause"],
            ),
        };
        // A series that appears with the first failure cannot be watched for it.
        for result in [Scrubbed::Verified, Scrubbed::Repaired, Scrubbed::Damaged, Scrubbed::Unrepairable] {
            series.scrubbed.with_label_values(&[result_label(result)]).reset();
        }
        for change in ["split", "merge"] {
            series.resized.with_label_values(&[change]).reset();
        }
        for cause in Limit::ALL.map(Limit::word).into_iter().chain(["metadata"]) {
            series.limited.with_label_values(&[cause]).reset();
        }
        series
    }

    /// Counts one notice.
    pub(crate) fn count(&self, notice: &Notice) {
        match notice {
            Notice::SegmentExpired { bytes, copies_left, .. } => {
                self.expired.inc();
                self.expired_bytes.inc_by(*bytes);
                self.left.inc_by(*copies_left as u64);
            }
            Notice::ExpiryRefused { reply, .. } => {
                let reply = match reply {
                    Refused::Migrating => "migrating",
                    Refused::Other => "other",
                };
                self.refused.with_label_values(&[reply]).inc();
            }
            Notice::RetentionSkipped => self.sweeps_skipped.inc(),
            Notice::RetentionSwept { took } => self.sweep_seconds.observe(took.as_secs_f64()),
            Notice::PolicyUnresolved { .. } => self.unresolved.inc(),
            Notice::Scrubbed { result, .. } => {
                self.scrubbed.with_label_values(&[result_label(*result)]).inc();
            }
            Notice::CopyDamaged { .. } => self.damaged.inc(),
            Notice::OrphanRemoved { .. } => self.orphans.inc(),
            Notice::OrphanSweepSkipped { .. } => {}
            Notice::RangeSplit { .. } => self.resized.with_label_values(&["split"]).inc(),
            Notice::RangesMerged { .. } => self.resized.with_label_values(&["merge"]).inc(),
            Notice::RangeLimited { limit, .. } => self.limited.with_label_values(&[limit.word()]).inc(),
            Notice::ResizeRefused { .. } => self.limited.with_label_values(&["metadata"]).inc(),
            Notice::Skipped { group, offsets, lost, origin, exact, .. } => {
                if *lost > 0 {
                    self.lost_skips.inc();
                    self.lost_skipped.inc_by(*lost);
                }
                let expired = offsets.saturating_sub(*lost);
                if expired == 0 {
                    return;
                }
                let reader = if group.is_some() { "group" } else { "none" };
                let origin = match origin {
                    Origin::Cursor => "cursor",
                    Origin::Start => "start",
                };
                let labels = [reader, origin, if *exact { "exact" } else { "upper_bound" }];
                self.skips.with_label_values(&labels).inc();
                self.skipped.with_label_values(&labels).inc_by(expired);
            }
        }
    }
}

fn result_label(result: Scrubbed) -> &'static str {
    match result {
        Scrubbed::Verified => "verified",
        Scrubbed::Repaired => "repaired",
        Scrubbed::Damaged => "damaged",
        Scrubbed::Unrepairable => "unrepairable",
        Scrubbed::Skipped => "skipped",
    }
}
