//! Segments ended for a primary that is gone, and copies made whole, as log lines.

use broker::healing::Notice;

/// Logs one notice at the level a person should see it at.
pub(super) fn log(notice: &Notice) {
    match notice {
        Notice::Sealed { segment, end, whole } => {
            tracing::info!(%segment, offset = %end, copies = whole, "segment ended without its primary");
        }
        Notice::Unavailable { segment, counted, needed } => {
            tracing::warn!(
                %segment, counted, needed,
                "segment cannot be ended, too few of its copies can tell where, tried again"
            );
        }
        Notice::Mended { segment, node } => tracing::info!(%segment, %node, "segment copy is whole"),
        Notice::NotMended { segment, node, failure } => {
            tracing::warn!(%segment, %node, reason = ?failure, "segment copy is not whole, tried again");
        }
        Notice::Moved { segment, replicas } => {
            tracing::info!(%segment, ?replicas, "segment is held by other nodes");
        }
        Notice::NoSpare { segment, node } => {
            tracing::warn!(%segment, %node, "segment copy is out of service and no node can take its place");
        }
    }
}

/// The kind of a notice as a label.
pub(super) fn kind(notice: &Notice) -> &'static str {
    match notice {
        Notice::Sealed { .. } => "segment_ended_for_primary",
        Notice::Unavailable { .. } => "segment_unavailable",
        Notice::Mended { .. } => "copy_mended",
        Notice::NotMended { .. } => "copy_not_mended",
        Notice::Moved { .. } => "segment_moved",
        Notice::NoSpare { .. } => "copy_without_spare",
    }
}
