//! What the node tells an operator, as log lines: constant messages, values as fields.

use broker::{Notice, Volume};
use storage::{raft_log, store};

/// Logs one notice at the level a person should see it at.
pub(crate) fn log(notice: &Notice) {
    match notice {
        Notice::TopicCreated { topic, range } => tracing::info!(topic, %range, "topic created"),
        Notice::SegmentOpened { segment, base } => tracing::info!(%segment, offset = %base, "segment opened"),
        Notice::SegmentSealed { segment, end, cause } => {
            tracing::info!(%segment, offset = %end, ?cause, "segment sealed");
        }
        Notice::SegmentStuck { segment, detail } => {
            tracing::warn!(%segment, reason = detail, "segment failed in storage");
        }
        Notice::RangeStopped { range, detail } => {
            tracing::error!(%range, reason = detail, "range stopped, its copy is out of service");
        }
        Notice::SegmentMissing { segment } => tracing::warn!(%segment, "segment copy missing, sealed empty"),
        Notice::ReadFailed { segment, offset, detail } => {
            tracing::error!(%segment, %offset, reason = detail, "read failed");
        }
        Notice::Store(notice) => log_store(notice),
        Notice::RaftLog(notice) => log_raft(notice),
        Notice::Foreign { count, names } => {
            tracing::warn!(
                volume = volume(Volume::Log),
                count,
                ?names,
                "directories that are not ours were left alone"
            );
        }
        Notice::MetadataStopped { detail } => {
            tracing::error!(reason = detail, "metadata takes no writes until the next start");
        }
    }
}

fn log_store(notice: &store::Notice) {
    match notice {
        store::Notice::TornTail { segment, position, bytes } => {
            tracing::info!(%segment, position, bytes, "torn tail dropped");
        }
        store::Notice::Latched { segment, reason, detail } => {
            tracing::error!(%segment, ?reason, detail, "segment failed in storage, its copy is out of service");
        }
        store::Notice::Stopped { segment, reason, detail } => {
            tracing::error!(%segment, ?reason, detail, "segment failed in storage, it takes no more records");
        }
        store::Notice::OpenFailed { segment, reason, detail } => {
            tracing::error!(%segment, ?reason, detail, "segment could not be opened");
        }
        store::Notice::MetaUnreadable { segment, detail } => {
            tracing::error!(%segment, detail, "segment copy is not readable, it is left alone");
        }
        store::Notice::IndexRebuilt { segment } => tracing::info!(%segment, "index rebuilt"),
    }
}

fn log_raft(notice: &raft_log::Notice) {
    match notice {
        raft_log::Notice::TornTail { file, position } => {
            tracing::info!(file, position, "raft log torn tail dropped")
        }
        raft_log::Notice::Damage { file, position, records } => {
            tracing::error!(file, position, records, "raft log damaged");
        }
        raft_log::Notice::GroupDamaged { group, detail } => {
            tracing::error!(vnode = %group, detail, "raft group damaged")
        }
        raft_log::Notice::UnlistedGroupsPossible => {
            tracing::error!("raft log lost records of groups it does not list");
        }
        raft_log::Notice::Failed { detail } => tracing::error!(reason = detail, "raft log failed"),
        raft_log::Notice::NotRemoved { detail } => {
            tracing::warn!(reason = detail, "old raft file not removed")
        }
    }
}

/// A data directory's name in logs.
pub(crate) fn volume(volume: Volume) -> &'static str {
    match volume {
        Volume::Log => "log",
        Volume::Raft => "raft",
    }
}
