//! What is shown of the core, its store and its Raft log: a name, a help text, and where the number is.

use prometheus::IntGauge;

use super::{Maker, Observed};

/// How a series is read off the core.
pub(super) type OfCore = fn(&Observed) -> u64;
type Series = (&'static str, &'static str, OfCore);

/// Every one of them, registered.
pub(super) fn core_series(make: &Maker<'_>) -> Vec<(IntGauge, OfCore)> {
    let all = CORE.iter().chain(CLUSTER).chain(STORE).chain(RAFT_LOG);
    all.map(|(name, help, value)| (make.gauge(name, help), *value)).collect()
}

#[rustfmt::skip]
const CORE: &[Series] = &[
    ("malachi_core_requests_waiting", "Batches of requests that wait for the core", |o| count(o.requests_waiting)),
    ("malachi_core_completions_waiting", "Disk jobs done that wait for the core", |o| count(o.completions_waiting)),
    ("malachi_topics", "Topics", |o| count(o.gauges.topics)),
    ("malachi_ranges", "Ranges this node appends to, or has to end a segment of", |o| count(o.gauges.ranges)),
    ("malachi_open_segments", "Segments that take records", |o| count(o.gauges.open_segments)),
    ("malachi_stopped_ranges", "Ranges that take no records until a person has looked", |o| count(o.gauges.stopped_ranges)),
    ("malachi_segments_unavailable", "Segments to be ended of which too few copies can tell where", |o| count(o.gauges.unavailable_segments)),
    ("malachi_segments_mending", "Ended segments whose copies this node looks at, or makes whole", |o| count(o.gauges.mending_segments)),
    ("malachi_blocked_ranges", "Ranges that wait for the ones they came of to end", |o| count(o.gauges.blocked_ranges)),
    ("malachi_produces_waiting", "Produce requests without an answer", |o| count(o.gauges.produces.0)),
    ("malachi_produce_bytes_waiting", "Their bytes", |o| count(o.gauges.produces.1)),
    ("malachi_parked_readers", "Long polls and streams that wait for records", |o| count(o.gauges.parked)),
    ("malachi_streams", "Open push streams", |o| count(o.gauges.streams)),
    ("malachi_groups", "Groups with members", |o| count(o.gauges.groups.0)),
    ("malachi_members", "Members of groups", |o| count(o.gauges.groups.1)),
];

#[rustfmt::skip]
const CLUSTER: &[Series] = &[
    ("malachi_nodes", "Nodes the cluster lists", |o| count(o.gauges.cluster.nodes)),
    ("malachi_peers_up", "Other nodes this one is connected to", |o| count(o.gauges.cluster.peers_up)),
    ("malachi_raft_groups", "Raft groups this node has a replica of", |o| count(o.gauges.cluster.groups)),
    ("malachi_raft_groups_led", "Those it leads", |o| count(o.gauges.cluster.led)),
    ("malachi_raft_groups_leaderless", "Those whose leader it does not know", |o| count(o.gauges.cluster.leaderless)),
    ("malachi_raft_applied_lag", "Entries committed and not applied here, of all groups", |o| o.gauges.cluster.applied_lag),
    ("malachi_raft_learners", "Members without a vote in the groups this node leads", |o| count(o.gauges.cluster.learners)),
];

#[rustfmt::skip]
const STORE: &[Series] = &[
    ("malachi_store_copies", "Segment copies, whatever became of them", |o| count(o.gauges.store.copies)),
    ("malachi_store_active_copies", "Copies that take appends, as far as is known without opening them", |o| count(o.gauges.store.active)),
    ("malachi_store_stopped_copies", "Copies a write failed on since the start", |o| count(o.gauges.store.stopped)),
    ("malachi_store_latched_copies", "Damaged copies, out of service until a person has looked", |o| count(o.gauges.store.latched)),
    ("malachi_store_unreadable_copies", "Copies whose copy.meta cannot be read", |o| count(o.gauges.store.unreadable)),
    ("malachi_store_unlisted_copies", "Copies that no topic lists, those being removed included", |o| count(o.gauges.unlisted_copies)),
    ("malachi_store_open_files", "Log files of copies that are open", |o| count(o.gauges.store.open_files)),
    ("malachi_store_dirty_copies", "Copies with appends that were not sent to the disk yet", |o| count(o.gauges.store.dirty)),
    ("malachi_store_tail_cache_bytes", "Batches kept in memory because they were appended lately", |o| count(o.gauges.store.tail_cache_bytes)),
    ("malachi_store_held_bytes", "Batches in memory because the file of their copy lacks them", |o| o.gauges.store.held_bytes),
    ("malachi_store_appends_waiting", "Appends without an answer", |o| count(o.gauges.store.unanswered)),
    ("malachi_store_requests_waiting", "Requests that wait for their copy", |o| count(o.gauges.store.queued)),
    ("malachi_store_reads", "Reads under way", |o| count(o.gauges.store.reads)),
    ("malachi_store_journal_bytes", "Bytes in the present use of the journal", |o| o.gauges.store.journal_bytes),
    ("malachi_store_journal_copies", "Copies whose own files lack what the journal holds, for each of its two files", |o| count(o.gauges.store.journal_copies)),
    ("malachi_store_journal_usable", "1 while many small appends can share one sync", |o| u64::from(o.gauges.store.journal_usable)),
    ("malachi_store_recycled_files", "Files of removed copies, free for reuse", |o| count(o.gauges.store.recycled_files)),
    ("malachi_store_spare_files", "Files of zeros, free for use", |o| count(o.gauges.store.spare_files)),
];

#[rustfmt::skip]
const RAFT_LOG: &[Series] = &[
    ("malachi_raft_log_groups", "Raft groups in the log", |o| count(o.gauges.raft_log.groups)),
    ("malachi_raft_log_damaged_groups", "Groups that cannot be vouched for", |o| count(o.gauges.raft_log.groups_damaged)),
    ("malachi_raft_log_entry_bytes", "Entries behind the snapshots, all in memory", |o| count(o.gauges.raft_log.entry_bytes)),
    ("malachi_raft_log_changes_waiting", "Changes that wait for the flush under way", |o| count(o.gauges.raft_log.waiting)),
    ("malachi_raft_log_files", "Log files that are needed", |o| count(o.gauges.raft_log.files)),
    ("malachi_raft_log_spare_files", "Log files made ahead", |o| count(o.gauges.raft_log.spare_files)),
    ("malachi_raft_log_snapshots", "Snapshot files", |o| count(o.gauges.raft_log.snapshots)),
    ("malachi_raft_log_failed", "1 once a write failed: the metadata takes no writes until the next start", |o| u64::from(o.gauges.raft_log.failed)),
];

fn count(count: usize) -> u64 {
    count as u64
}
