//! What a client and a broker may say they understand in `hello`: one bit each, never used again for
//! something else. An unknown bit is ignored.

/// Topics are listed, described, sealed and deleted; ranges are split and merged.
pub const TOPIC_ADMIN: u64 = 1;
/// Records travel with checksums: `produce_batch` and `fetch_batches`.
pub const BATCHES: u64 = 1 << 1;
/// A time has a cursor: `seek_time`.
pub const SEEK_TIME: u64 = 1 << 2;
/// Groups are listed and described.
pub const GROUP_ADMIN: u64 = 1 << 3;
/// Users have roles: `set_role` and `list_users_v2`.
pub const ROLES: u64 = 1 << 4;
/// Users are listed some at a time and unlocked: `list_users_page` and `unlock_user`.
pub const USER_ADMIN: u64 = 1 << 5;
/// The cluster is shown, its nodes come and go, and its ring changes: `cluster_status` to `reshard`.
pub const CLUSTER_ADMIN: u64 = 1 << 6;
/// Segments and their copies are shown, and what does not move is explained: `list_segments` and `explain`.
pub const EXPLAIN: u64 = 1 << 7;
/// Storage policies are defined, bound and shown: `define_policy` to `list_policies`.
pub const POLICIES: u64 = 1 << 8;
/// Producers that repeat themselves are noticed: `new_producer` and `produce_once`.
pub const ONCE: u64 = 1 << 9;
/// Groups are put somewhere else, and forgotten: `move_group` and `delete_group`.
pub const GROUP_MOVES: u64 = 1 << 10;
/// Members of vnodes are moved to their places, and flags are shown and switched on: `rebalance`, `list_flags` and
/// `enable_flag`.
pub const PLACEMENT: u64 = 1 << 12;
