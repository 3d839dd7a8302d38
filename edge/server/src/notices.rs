//! What the node tells an operator, as log lines and as counts: constant messages and kinds, values as fields.

mod healing;
mod upkeep;

use broker::{Notice, Unlisted, Volume};
use storage::{raft_log, store};

use crate::audit::{Kind, Line};
use crate::metrics::Metrics;

/// Logs one notice at the level a person should see it at.
pub(crate) fn log(notice: &Notice) {
    match notice {
        Notice::TopicCreated { topic, range } => tracing::info!(topic, %range, "topic created"),
        Notice::TopicSealed { topic } => tracing::info!(topic, "topic sealed"),
        Notice::TopicDeleted { topic, segments } => tracing::info!(topic, segments, "topic deleted"),
        Notice::RangeReplaced { range } => tracing::info!(%range, "range split or merged"),
        Notice::SegmentOpened { segment, base, paused } => {
            let paused_ms = paused.map(|paused| paused.as_secs_f64() * 1000.0);
            tracing::info!(%segment, offset = %base, paused_ms, "segment opened");
        }
        Notice::Assigned { topic, group, generation, members } => {
            let group = String::from_utf8_lossy(group);
            tracing::info!(topic, %group, generation, members, "group assigned");
        }
        Notice::AccountLocked { user, address, failures, until } => {
            tracing::warn!(
                user = &**user,
                client = &**address,
                failures,
                until_ms = until.0,
                "account locked"
            );
            let detail = format!("attempt_count={failures} locked_until={}", until.0);
            Line {
                kind: Kind::AuthLockout,
                actor: user,
                client: address.parse().ok(),
                action: "account_locked",
                failure: None,
                object: user,
                detail: &detail,
            }
            .write();
        }
        Notice::SeedFailed { detail } => tracing::warn!(reason = detail, "default users not created"),
        Notice::SegmentSealed { segment, end, cause } => {
            tracing::info!(%segment, offset = %end, ?cause, "segment sealed");
        }
        Notice::SegmentStuck { segment, detail } => {
            tracing::warn!(%segment, reason = detail, "segment failed in storage");
        }
        Notice::RangeStopped { range, detail } => {
            tracing::error!(%range, reason = detail, "range stopped, its copy is out of service");
        }
        Notice::RecordsLost { segment, end, goes_on } => {
            tracing::error!(
                %segment, offset = %end, %goes_on,
                "records are lost, the only copy is damaged and its range goes on behind it"
            );
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
        Notice::OrphansFound { copies, names, removing } => {
            tracing::warn!(copies, ?names, removing, "segment copies that no topic lists");
        }
        Notice::CopyLeft { segment, detail } => {
            tracing::warn!(%segment, reason = detail, "segment copy could not be removed");
        }
        Notice::Upkeep(notice) => upkeep::log(notice),
        Notice::Healing(notice) => healing::log(notice),
        Notice::LeftBehind { group, version, build } => {
            tracing::error!(
                vnode = group,
                version,
                build,
                "metadata goes on at a later version than this build has, nothing is served until a later one runs"
            );
        }
        Notice::ReplicaLost { group } => {
            tracing::error!(group, "metadata replica is damaged or older than it was, the others replace it");
        }
        Notice::MetadataStopped { detail } => {
            tracing::error!(reason = detail, "metadata takes no writes until the next start");
        }
        Notice::Unlisted(Unlisted::Removed) => tracing::error!(
            "this node was removed from its cluster for good: stop it, and start it with new directories to make it \
             another node"
        ),
        Notice::Unlisted(Unlisted::NameTaken { by }) => tracing::error!(
            node = %by,
            "this node is not taken into the cluster, because another one has its name: remove that with --force if \
             it is gone, or set MALACHI_NODE_NAME to another name"
        ),
        Notice::Unlisted(Unlisted::Renamed { listed }) => tracing::warn!(
            listed,
            "the cluster knows this node by the name of its first start, MALACHI_NODE_NAME changes nothing any more"
        ),
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
        store::Notice::MetaRead { segment } => tracing::info!(%segment, "segment copy is readable again"),
        store::Notice::HalfMadeRemoved { directories } => {
            tracing::info!(directories, "half-made segment copies removed");
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
        raft_log::Notice::SpareFailed { detail } => {
            tracing::warn!(reason = detail, "next raft file could not be made, tried again");
        }
        raft_log::Notice::NotRemoved { detail } => {
            tracing::warn!(reason = detail, "old raft file not removed")
        }
    }
}

/// Counts one notice.
pub(crate) fn count(notice: &Notice, metrics: &Metrics) {
    metrics.notice(kind(notice));
    match notice {
        Notice::SegmentOpened { paused, .. } => metrics.opened(*paused),
        Notice::SegmentSealed { cause, .. } => metrics.sealed(*cause),
        Notice::AccountLocked { .. } => {
            metrics.lockouts.inc();
            metrics.audited(Kind::AuthLockout);
        }
        Notice::Upkeep(notice) => metrics.upkeep.count(notice),
        Notice::TopicCreated { .. }
        | Notice::TopicSealed { .. }
        | Notice::TopicDeleted { .. }
        | Notice::RangeReplaced { .. }
        | Notice::Assigned { .. }
        | Notice::SeedFailed { .. }
        | Notice::SegmentStuck { .. }
        | Notice::RangeStopped { .. }
        | Notice::RecordsLost { .. }
        | Notice::SegmentMissing { .. }
        | Notice::ReadFailed { .. }
        | Notice::Store(_)
        | Notice::RaftLog(_)
        | Notice::Foreign { .. }
        | Notice::OrphansFound { .. }
        | Notice::CopyLeft { .. }
        | Notice::Healing(_)
        | Notice::LeftBehind { .. }
        | Notice::ReplicaLost { .. }
        | Notice::Unlisted(_)
        | Notice::MetadataStopped { .. } => {}
    }
}

/// The kind of a notice as a label.
fn kind(notice: &Notice) -> &'static str {
    match notice {
        Notice::TopicCreated { .. } => "topic_created",
        Notice::TopicSealed { .. } => "topic_sealed",
        Notice::TopicDeleted { .. } => "topic_deleted",
        Notice::RangeReplaced { .. } => "range_replaced",
        Notice::SegmentOpened { .. } => "segment_opened",
        Notice::SegmentSealed { .. } => "segment_sealed",
        Notice::Assigned { .. } => "group_assigned",
        Notice::AccountLocked { .. } => "account_locked",
        Notice::SeedFailed { .. } => "seed_failed",
        Notice::SegmentStuck { .. } => "segment_stuck",
        Notice::RangeStopped { .. } => "range_stopped",
        Notice::RecordsLost { .. } => "records_lost",
        Notice::SegmentMissing { .. } => "segment_missing",
        Notice::ReadFailed { .. } => "read_failed",
        Notice::Foreign { .. } => "foreign_names",
        Notice::OrphansFound { .. } => "orphans_found",
        Notice::CopyLeft { .. } => "copy_not_removed",
        Notice::Upkeep(notice) => upkeep::kind(notice),
        Notice::Healing(notice) => healing::kind(notice),
        Notice::LeftBehind { .. } => "left_behind",
        Notice::ReplicaLost { .. } => "replica_lost",
        Notice::MetadataStopped { .. } => "metadata_stopped",
        Notice::Unlisted(_) => "unlisted",
        Notice::Store(notice) => match notice {
            store::Notice::TornTail { .. } => "torn_tail",
            store::Notice::Latched { .. } => "copy_latched",
            store::Notice::Stopped { .. } => "copy_stopped",
            store::Notice::OpenFailed { .. } => "copy_open_failed",
            store::Notice::MetaUnreadable { .. } => "copy_meta_unreadable",
            store::Notice::IndexRebuilt { .. } => "index_rebuilt",
            store::Notice::MetaRead { .. } => "copy_meta_read",
            store::Notice::HalfMadeRemoved { .. } => "half_made_copies_removed",
        },
        Notice::RaftLog(notice) => match notice {
            raft_log::Notice::TornTail { .. } => "raft_torn_tail",
            raft_log::Notice::Damage { .. } => "raft_damage",
            raft_log::Notice::GroupDamaged { .. } => "raft_group_damaged",
            raft_log::Notice::UnlistedGroupsPossible => "raft_unlisted_groups_possible",
            raft_log::Notice::Failed { .. } => "raft_failed",
            raft_log::Notice::NotRemoved { .. } => "raft_file_not_removed",
            raft_log::Notice::SpareFailed { .. } => "raft_spare_failed",
        },
    }
}

/// A data directory's name in logs.
pub(crate) fn volume(volume: Volume) -> &'static str {
    match volume {
        Volume::Log => "log",
        Volume::Raft => "raft",
    }
}
