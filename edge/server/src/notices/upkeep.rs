//! Retention, orphans, scrub, and splits and merges by load, as log lines.

use broker::upkeep::{Notice, Origin, Scrubbed};

/// Logs one notice at the level a person should see it at.
pub(super) fn log(notice: &Notice) {
    match notice {
        Notice::SegmentExpired { topic, segment, bytes, copies_left } => {
            tracing::info!(topic, %segment, bytes, copies_left, "segment expired");
        }
        Notice::ExpiryRefused { segment, detail, .. } => {
            tracing::warn!(%segment, reason = detail, "segment not expired, tried again with the next sweep");
        }
        Notice::RetentionSkipped => {
            tracing::warn!("nothing expired, it could not be learnt which policies hold");
        }
        Notice::RetentionSwept { took } => {
            tracing::debug!(elapsed_ms = took.as_secs_f64() * 1000.0, "retention swept");
        }
        Notice::PolicyUnresolved { topic, policy, first: true } => {
            tracing::warn!(topic, policy, "policy is not defined, the topic keeps everything");
        }
        Notice::PolicyUnresolved { first: false, .. } => {}
        Notice::Scrubbed { segment, result: Scrubbed::Repaired } => {
            tracing::info!(%segment, "damaged segment copy is whole again");
        }
        Notice::Scrubbed { segment, result } => tracing::debug!(%segment, ?result, "segment copy verified"),
        Notice::CopyDamaged { segment, detail, alone: false } => {
            tracing::error!(%segment, reason = detail, "segment copy is damaged, another node has one");
        }
        Notice::CopyDamaged { segment, detail, alone: true } => {
            tracing::error!(%segment, reason = detail, "segment copy is damaged and the only one, it is left as it is");
        }
        Notice::OrphanSweepSkipped { detail } => {
            tracing::warn!(reason = detail, "segment copies that no topic lists are held");
        }
        Notice::OrphanRemoved { segment } => {
            tracing::info!(%segment, "segment copy that no topic lists removed");
        }
        Notice::RangeSplit { topic, range, records_per_second } => {
            tracing::info!(topic, %range, records_per_second, "range split by load");
        }
        Notice::RangesMerged { topic, ranges: [low, high] } => {
            tracing::info!(topic, range = %low, other = %high, "ranges merged by load");
        }
        Notice::RangeLimited { topic, range, limit } => {
            tracing::warn!(topic, %range, reason = limit.word(), "range takes or holds too much and is not split");
        }
        Notice::ResizeRefused { range, detail } => {
            tracing::info!(%range, reason = detail, "range not split or merged, looked at again");
        }
        Notice::Skipped { held_back: None, .. } => {}
        Notice::Skipped {
            topic,
            group,
            range,
            to,
            offsets,
            lost,
            origin,
            held_back: Some(held_back),
            ..
        } => {
            let group = group.as_deref();
            if *lost > 0 {
                return tracing::warn!(
                    topic, group, %range, offset = %to, offsets = lost, held_back,
                    "reader was moved over records whose only copy is damaged"
                );
            }
            match origin {
                Origin::Cursor => tracing::warn!(
                    topic, group, %range, offset = %to, offsets, held_back,
                    "reader fell behind retention and was moved up"
                ),
                Origin::Start => tracing::info!(
                    topic, group, %range, offset = %to, offsets, held_back,
                    "reader begins behind what has expired"
                ),
            }
        }
    }
}

/// The kind of a notice as a label.
pub(super) fn kind(notice: &Notice) -> &'static str {
    match notice {
        Notice::SegmentExpired { .. } => "segment_expired",
        Notice::ExpiryRefused { .. } => "expiry_refused",
        Notice::RetentionSkipped => "retention_skipped",
        Notice::RetentionSwept { .. } => "retention_swept",
        Notice::PolicyUnresolved { .. } => "policy_unresolved",
        Notice::Scrubbed { .. } => "copy_scrubbed",
        Notice::CopyDamaged { .. } => "copy_damaged",
        Notice::OrphanSweepSkipped { .. } => "orphan_sweep_skipped",
        Notice::OrphanRemoved { .. } => "orphan_removed",
        Notice::RangeSplit { .. } => "range_split_by_load",
        Notice::RangesMerged { .. } => "ranges_merged_by_load",
        Notice::RangeLimited { .. } => "range_limited",
        Notice::ResizeRefused { .. } => "resize_refused",
        Notice::Skipped { .. } => "reader_skipped",
    }
}
