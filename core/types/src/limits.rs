//! Every hard limit, and how they relate.
//!
//! A limit that an operator may change is the default here and a field of the server's configuration; what
//! the formats themselves cannot exceed is fixed. The `const` assertions at the end fail the build when a
//! change breaks a relation that other code relies on.

/// Longest topic name, bytes.
pub const TOPIC_NAME_BYTES_MAX: usize = 200;
/// Longest group or member name, bytes.
pub const GROUP_NAME_BYTES_MAX: usize = 255;
/// Largest cursor a client may send, bytes.
pub const CURSOR_BYTES_MAX: usize = 576 * 1024;
/// Most tiles of a cursor: so many fit [`CURSOR_BYTES_MAX`] whatever their values.
pub const CURSOR_TILES_MAX: usize = 16_384;

/// Default for the largest inbound frame body of the client protocol, bytes.
pub const FRAME_BYTES_DEFAULT: usize = 16 * 1024 * 1024;
/// Smallest value an operator may set for it.
pub const FRAME_BYTES_MIN: usize = 1024;
/// Largest value an operator may set for it.
pub const FRAME_BYTES_MAX: usize = i32::MAX as usize;
/// Largest inbound frame before authentication, bytes.
pub const FRAME_BYTES_UNAUTHENTICATED_MAX: usize = 64 * 1024;

/// Records a fetch returns when the client names no maximum.
pub const FETCH_RECORDS_DEFAULT: u32 = 100;
/// Most records one fetch returns.
pub const FETCH_RECORDS_MAX: u32 = 1000;
/// Bytes of batches one fetch walks for the records of a slice; then it answers with how far it came.
pub const FETCH_FILTERED_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Members of one group on one topic.
pub const MEMBERS_PER_GROUP_MAX: usize = 1000;
/// Groups with members on one node, over all topics.
pub const GROUPS_COORDINATED_MAX: usize = 100_000;
/// Push streams open at one time, per node.
pub const STREAMS_MAX: usize = 100_000;
/// A member that is silent for longer is taken out of its group, milliseconds.
pub const MEMBER_SESSION_MS: u64 = 30_000;
/// How often silent members are looked for, milliseconds.
pub const MEMBER_TICK_MS: u64 = 10_000;
/// Members of groups that one message between nodes tells of.
pub const ATTEND_MEMBERS_MAX: usize = 256;
/// Ranges of members that one answer to it lists, unless one member alone has more.
pub const ATTEND_RANGES_MAX: usize = 65_536;
/// Messages about members on their way to one coordinator; what there is to say meanwhile is gathered.
pub const ATTENDS_IN_FLIGHT_MAX: usize = 4;
/// Members' positions, and questions about groups, on their way from or to other nodes; one more is refused.
pub const GROUP_ASKS_MAX: usize = 65_536;
/// Ranges whose loads one message between nodes tells of.
pub const LOADS_PER_MESSAGE_MAX: usize = 256;
/// Messages about loads that one node sends another at one time; of the ranges that are left nothing is told.
pub const LOADS_MESSAGES_MAX: usize = 64;
/// Keys that a load tells the places of.
pub const LOAD_KEYS_MAX: usize = 128;
/// Longest long poll, milliseconds.
pub const FETCH_WAIT_MS_MAX: u32 = 30_000;
/// Records of a push stream on their way unacknowledged when the client names no window.
pub const STREAM_WINDOW_DEFAULT: u32 = 100;
/// Largest window of a push stream, records.
pub const STREAM_WINDOW_MAX: u32 = 10_000;
/// Topics, ranges or groups a list operation returns when the client names no maximum.
pub const LIST_ITEMS_DEFAULT: u32 = 100;
/// Most of them that one list operation returns.
pub const LIST_ITEMS_MAX: u32 = 1000;

/// Groups with committed positions, per topic.
pub const GROUPS_PER_TOPIC_MAX: usize = 65_536;
/// Ranges a topic may ever have, those that were split or merged included: they stay listed.
pub const RANGES_PER_TOPIC_MAX: usize = 65_536;
/// Ranges of a topic that take records at one time: one cursor can stand in all of them.
pub const ACTIVE_RANGES_PER_TOPIC_MAX: usize = 16_384;
/// Longest user name, bytes.
pub const USER_NAME_BYTES_MAX: usize = 128;
/// Users of a cluster.
pub const USERS_MAX: usize = 100_000;
/// Longest stored password hash (a PHC string), bytes.
pub const PASSWORD_HASH_BYTES_MAX: usize = 512;
/// Rights of one user on topics.
pub const GRANTS_PER_USER_MAX: usize = 10_000;
/// Rights of all users together.
pub const GRANTS_MAX: usize = 1_000_000;
/// Pairs of user and address whose failed logins are counted; the oldest makes room.
pub const LOCKOUTS_MAX: usize = 100_000;
/// Longest client address as text, bytes.
pub const ADDRESS_BYTES_MAX: usize = 64;
/// Storage policies of a cluster.
pub const POLICIES_MAX: usize = 10_000;
/// Longest name of a storage policy or of a node's attribute, bytes.
pub const POLICY_NAME_BYTES_MAX: usize = 128;

/// Members of one Raft group, learners included.
pub const RAFT_MEMBERS_MAX: usize = 16;
/// Largest command of a Raft group, bytes.
pub const RAFT_COMMAND_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Commands of one Raft group that are proposed and not committed; one more is refused, bytes.
pub const RAFT_UNCOMMITTED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Proposals of one Raft group that wait for their outcome; one more is refused.
pub const RAFT_PROPOSALS_MAX: usize = 65_536;
/// Entries one message carries, bytes; a single larger entry travels alone.
pub const RAFT_APPEND_BYTES: usize = 512 * 1024;
/// Messages with entries on their way to one member of a Raft group.
pub const RAFT_APPENDS_IN_FLIGHT_MAX: usize = 64;
/// Largest message between members of a Raft group, bytes.
pub const RAFT_MESSAGE_BYTES_MAX: usize = RAFT_COMMAND_BYTES_MAX + 4 * 1024 * 1024;
/// Largest snapshot of a Raft group, bytes.
pub const RAFT_SNAPSHOT_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Bytes of a snapshot that travel in one message.
pub const RAFT_SNAPSHOT_CHUNK_BYTES: usize = 256 * 1024;
/// Linearizable reads that wait in one Raft group; one more is refused.
pub const RAFT_READS_MAX: usize = 65_536;

/// Largest body of a frame between nodes, bytes: what is larger is cut, so that nothing waits behind more than this.
pub const PEER_CHUNK_BYTES: usize = 64 * 1024;
/// Largest body of a frame between nodes until the sender has proved who it is, bytes.
pub const PEER_HANDSHAKE_BYTES_MAX: usize = 4096;
/// Largest message between nodes, bytes: a Raft message of the largest command, with what is around it.
pub const PEER_MESSAGE_BYTES_MAX: usize = RAFT_MESSAGE_BYTES_MAX + 1024 * 1024;
/// Largest message of a bulk stream between nodes, bytes.
pub const PEER_BULK_MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Streams of one class on one connection between nodes.
pub const PEER_LANES_MAX: u16 = 16;
/// Bytes of whole messages that may be on their way on one stream before another may begin.
pub const PEER_WINDOW_BYTES: u64 = 4 * 1024 * 1024;
/// The same on a stream of bulk.
pub const PEER_BULK_WINDOW_BYTES: u64 = 1024 * 1024;
/// Bytes that wait to be sent to one node; more than that, and the connection is given up.
pub const PEER_QUEUE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes put into frames ahead of what the connection takes.
pub const PEER_OUT_BYTES: usize = 128 * 1024;
/// Calls without an answer on one connection between nodes, in each direction.
pub const PEER_CALLS_MAX: usize = 65_536;
/// From the beginning of a connection between nodes until both sides have proved who they are, milliseconds.
pub const PEER_HANDSHAKE_MS: u64 = 5_000;
/// A node that has heard nothing from its peer for so long asks for a sign of life, milliseconds.
pub const PEER_PING_MS: u64 = 300;
/// A node that has heard nothing for so long gives the connection up, milliseconds.
pub const PEER_SILENCE_MS: u64 = 1_500;
/// Shortest secret that nodes of a cluster may share, bytes.
pub const PEER_SECRET_BYTES_MIN: usize = 16;
/// Longest name of a node, and of its build, bytes.
pub const NODE_NAME_BYTES_MAX: usize = 255;
/// Longest address of a node as a name or number with a port, bytes.
pub const NODE_ADDRESS_BYTES_MAX: usize = 262;
/// Placement attributes of a node, and capabilities of its build.
pub const NODE_ATTRIBUTES_MAX: usize = 64;
/// Longest value of an attribute, bytes.
pub const NODE_ATTRIBUTE_BYTES_MAX: usize = 256;
/// Vnodes one node tells of at a time that it leads.
pub const NODE_LEADS_MAX: usize = 65_536;
/// Nodes that wait at one node for something new in a group, all groups together.
pub const FOLLOWERS_MAX: usize = 65_536;
/// Raft messages of one batch.
pub const PEER_BATCH_MESSAGES_MAX: usize = 65_536;
/// Members one node keeps track of, dead ones included.
pub const MEMBERS_MAX: usize = 1024;
/// Addresses at which others are looked for.
pub const MEMBER_SEEDS_MAX: usize = 64;
/// Largest membership packet, bytes: it fits into one frame of any network that is in use.
pub const MEMBER_PACKET_BYTES_MAX: usize = 1400;
/// Of it, what the membership engine fills: a header and news.
pub const MEMBER_NEWS_BYTES_MAX: usize = 940;
/// Pairs of addresses that claim one node id and were told of; the oldest makes room.
pub const MEMBER_DUPLICATES_MAX: usize = 64;
/// Suspects that are asked themselves in one step.
pub const MEMBER_ASKED_MAX: usize = 16;
/// Connections between nodes that have not proved anything yet, per node.
pub const PEER_UNPROVED_MAX: usize = 64;
/// The same from one address.
pub const PEER_UNPROVED_PER_ADDRESS_MAX: usize = 16;
/// Accepted connections between nodes from one address.
pub const PEER_CONNECTIONS_PER_ADDRESS_MAX: usize = 64;
/// Accepted connections between nodes in total.
pub const PEER_CONNECTIONS_MAX: usize = 1024;

/// Vnodes on the ring.
pub const VNODES_MAX: usize = 4096;
/// Nodes of a cluster, those on their way in or out included.
pub const NODES_MAX: usize = 1024;
/// Ids of nodes that were removed, which never come back; beyond it no node is added.
pub const NODES_REMOVED_MAX: usize = 65_536;
/// Switches of the whole cluster, enabled or advertised.
pub const FLAGS_MAX: usize = 256;
/// Longest name of such a switch, bytes.
pub const FLAG_NAME_BYTES_MAX: usize = 128;

/// Topics in one vnode.
pub const TOPICS_MAX: usize = 1_000_000;
/// Long polls parked at one time, per node.
pub const WAITERS_MAX: usize = 100_000;
/// Produce requests waiting for their sync, per node; one more is `overloaded`.
pub const PRODUCES_IN_FLIGHT_MAX: usize = 65_536;
/// Body bytes of produce requests waiting for their sync, per node; more is `overloaded`.
pub const PRODUCE_BYTES_IN_FLIGHT_MAX: usize = 256 * 1024 * 1024;

/// Producers of one range that are remembered; those heard of longest ago go first.
pub const PRODUCERS_PER_RANGE_MAX: usize = 4096;
/// Requests remembered of one of them. A producer has no more under way.
pub const PRODUCER_REQUESTS_MAX: usize = 256;
/// Requests remembered of all producers of one range.
pub const PRODUCER_REQUESTS_PER_RANGE_MAX: usize = 65_536;
/// The same for all ranges of a node, about 48 bytes each.
pub const PRODUCER_REQUESTS_PER_NODE_MAX: usize = 2_000_000;
/// A producer that is silent for longer is forgotten, milliseconds.
pub const PRODUCER_IDLE_MS: u64 = 15 * 60 * 1000;
/// A request may have been born so much later than it is here, milliseconds: clocks differ, and one that is far off must
/// not stop a topic.
pub const PRODUCER_AHEAD_MS: u64 = 24 * 3_600_000;
/// Bytes of earlier frames read for what they say of producers, for one range that begins a segment.
pub const PRODUCER_READ_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Reads for that.
pub const PRODUCER_READS_MAX: u32 = 1024;
/// Bytes of one of them, about.
pub const PRODUCER_PIECE_BYTES: u64 = 512 * 1024;

/// Questions of one other node about copies that are here, on their way at one time; one more is `overloaded`.
pub const COPY_CALLS_PER_NODE_MAX: usize = 16_384;
/// Bytes of batches among them.
pub const COPY_CALL_BYTES_PER_NODE_MAX: usize = 256 * 1024 * 1024;
/// Largest batch that one node sends another, bytes.
pub const COPY_FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The same where bulk goes.
pub const COPY_BULK_BYTES_MAX: usize = PEER_BULK_MESSAGE_BYTES_MAX - 1024;
/// Bytes of batches read for another node at one time, if it is not a single batch.
pub const COPY_READ_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The same where bulk goes.
pub const COPY_BULK_READ_BYTES_MAX: usize = COPY_BULK_BYTES_MAX - 1024;

/// Parts of produce requests on their way to the node that takes the records of one range.
pub const OUTLET_PARTS_MAX: usize = 256;
/// Bytes of records that go there together, if it is not a single part.
pub const OUTLET_GROUP_BYTES: usize = 256 * 1024;
/// Bytes of records among them, if it is not a single part.
pub const OUTLET_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The same for all ranges of one node.
pub const OUTLET_BYTES_PER_NODE_MAX: usize = 64 * 1024 * 1024;

/// Other nodes' questions for how far readers may go that wait at one node; one more is `overloaded`.
pub const WATCHERS_MAX: usize = 1_000_000;
/// Ranges that could not be read and are looked at again in one step.
pub const LOST_LOOKS_MAX: usize = 1024;

/// Smallest encoded record: null key, empty value, timestamp, no headers.
pub const RECORD_BYTES_MIN: usize = 1 + 4 + 8 + 4;
/// Largest payload of one stored batch, bytes. A produce request of the largest frame fits.
pub const BATCH_BYTES_MAX: usize = FRAME_BYTES_MAX;

/// Default size at which an active segment is sealed, bytes.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;
/// Window of sequential scans (recovery, verification), bytes.
pub const SCAN_WINDOW_BYTES: usize = 1024 * 1024;
/// First read of a fetch from disk, bytes.
pub const READ_WINDOW_BYTES: usize = 256 * 1024;
/// The same for a range that a reader has not come to yet.
pub const READ_AHEAD_BYTES: usize = 16 * 1024;
/// Ranges of one reader that are read at one time, once it has found little in those before.
pub const READS_AHEAD_PER_READER_MAX: usize = 32;
/// Ranges read ahead of their readers at one time, over all readers of a node.
pub const READS_AHEAD_MAX: usize = 128;
/// Least distance between two entries of the sparse index, bytes of log.
pub const INDEX_INTERVAL_BYTES: u64 = 4096;
/// Entries of one sparse index; of a longer log every second goes, and the distance doubles.
pub const INDEX_ENTRIES_MAX: usize = 1024;
/// Bytes of recently written batches kept in memory, over all segments of a node.
pub const TAIL_CACHE_BYTES_DEFAULT: usize = 64 * 1024 * 1024;
/// Segment files open at one time.
pub const OPEN_COPIES_DEFAULT: usize = 512;
/// Least and most of them a broker gives itself, by what the system allows it to have open.
pub const OPEN_COPIES_MIN: usize = 64;
/// See [`OPEN_COPIES_MIN`].
pub const OPEN_COPIES_MAX: usize = 4096;
/// Copies of one segment.
pub const SEGMENT_REPLICAS_MAX: usize = 16;
/// Bytes of frames that are appended to a copy together, if it is not a single one.
pub const APPEND_GROUP_BYTES: u64 = 256 * 1024;
/// How many they may be.
pub const APPEND_GROUP_BATCHES: usize = 1024;
/// Batches of one segment on their way to one follower. A batch is what one produce brought, so that there have to be
/// many to keep a disk busy whose syncs take longer than the way.
pub const REPLICA_WINDOW_BATCHES: usize = 256;
/// Bytes of them, if it is more than one batch.
pub const REPLICA_WINDOW_BYTES: u64 = 16 * 1024 * 1024;
/// Bytes of a segment kept in memory until a quorum and the primary's own copy have them; more is `overloaded`.
pub const REPLICA_HELD_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Bytes read at one time for a follower that lacks them.
pub const REPLICA_READ_BYTES: usize = 512 * 1024;
/// Requests that may wait for one segment copy while it is busy with another.
pub const COPY_QUEUE_MAX: usize = 4096;
/// Least and most zeros written ahead of a growing log at one time, bytes.
pub const PREALLOCATE_BYTES: (u64, u64) = (64 * 1024, 1024 * 1024);
/// A flush of at least this many bytes is not followed by zeros: writing as much again costs it what growing does.
pub const PREALLOCATE_BELOW_BYTES: u64 = 64 * 1024;
/// Log files of removed copies kept for reuse, per store.
pub const RECYCLED_FILES_MAX: usize = 8;
/// Log files of written zeros kept ahead of need, those of removed copies included, per store.
pub const SPARE_FILES_MAX: usize = 2;
/// Zeros written ahead of need in one go, bytes: a flush that comes meanwhile waits for no more.
pub const SPARE_PIECE_BYTES: u64 = 256 * 1024;
/// Time after a failed write ahead of need before the next, milliseconds.
pub const SPARE_REST_MS: u64 = 30_000;
/// Bytes of each of the two files of a store's journal.
pub const JOURNAL_BYTES: u64 = 16 * 1024 * 1024;
/// Copies that must wait for a flush together before the journal is used for them.
pub const JOURNAL_COPIES_MIN: usize = 4;
/// A copy with more than this to write gets its own write and sync, bytes.
pub const JOURNAL_PART_BYTES_MAX: u64 = 32 * 1024;
/// Time without an append after which a copy records its durable end, milliseconds.
pub const IDLE_RECORD_MS: u64 = 1000;

const _: () = assert!(FRAME_BYTES_MIN >= RECORD_BYTES_MIN);
const _: () = assert!(FRAME_BYTES_MIN <= FRAME_BYTES_DEFAULT && FRAME_BYTES_DEFAULT <= FRAME_BYTES_MAX);
const _: () = assert!(FRAME_BYTES_UNAUTHENTICATED_MAX <= FRAME_BYTES_DEFAULT);
const _: () = assert!(CURSOR_BYTES_MAX < FRAME_BYTES_DEFAULT);
const _: () = assert!(FETCH_RECORDS_DEFAULT <= FETCH_RECORDS_MAX);
const _: () = assert!(STREAM_WINDOW_DEFAULT <= STREAM_WINDOW_MAX && LIST_ITEMS_DEFAULT <= LIST_ITEMS_MAX);
const _: () = assert!(ACTIVE_RANGES_PER_TOPIC_MAX <= RANGES_PER_TOPIC_MAX);
const _: () = assert!(ACTIVE_RANGES_PER_TOPIC_MAX <= CURSOR_TILES_MAX, "a cursor can stand in every range");
const _: () = assert!(BATCH_BYTES_MAX <= u32::MAX as usize, "a batch frame counts its payload in 32 bits");
const _: () = assert!(PREALLOCATE_BYTES.0 <= PREALLOCATE_BYTES.1);
const _: () =
    assert!(INDEX_INTERVAL_BYTES <= READ_WINDOW_BYTES as u64, "a read from an index entry reaches the next");
const _: () = assert!(RAFT_APPEND_BYTES <= RAFT_COMMAND_BYTES_MAX, "a message has room for one entry");
const _: () = assert!(
    2 * RAFT_APPEND_BYTES <= PEER_BULK_MESSAGE_BYTES_MAX,
    "what is around small entries fits bulk too"
);
const _: () = assert!(RAFT_COMMAND_BYTES_MAX <= RAFT_UNCOMMITTED_BYTES_MAX);
const _: () = assert!(RAFT_SNAPSHOT_CHUNK_BYTES < RAFT_MESSAGE_BYTES_MAX);
const _: () = assert!(PEER_HANDSHAKE_BYTES_MAX <= PEER_CHUNK_BYTES && PEER_CHUNK_BYTES <= PEER_OUT_BYTES);
const _: () =
    assert!(RAFT_SNAPSHOT_CHUNK_BYTES < PEER_BULK_MESSAGE_BYTES_MAX, "a part of a snapshot is bulk");
const _: () = assert!(PEER_MESSAGE_BYTES_MAX < PEER_QUEUE_BYTES_MAX, "a queue has room for one message");
const _: () = assert!(COPY_FRAME_BYTES_MAX + 4096 < PEER_MESSAGE_BYTES_MAX, "a batch fits a message");
const _: () = assert!(COPY_READ_BYTES_MAX < COPY_FRAME_BYTES_MAX);
const _: () = assert!(PRODUCER_PIECE_BYTES < COPY_BULK_READ_BYTES_MAX as u64, "a piece is one read, mostly");
const _: () = assert!(PRODUCER_REQUESTS_MAX < PRODUCER_REQUESTS_PER_RANGE_MAX);
const _: () = assert!(PRODUCER_REQUESTS_PER_RANGE_MAX < PRODUCER_REQUESTS_PER_NODE_MAX);
const _: () =
    assert!(APPEND_GROUP_BYTES <= COPY_BULK_READ_BYTES_MAX as u64, "a group is never too large for bulk");
const _: () = assert!(APPEND_GROUP_BATCHES <= PEER_BATCH_MESSAGES_MAX);
const _: () = assert!(PEER_PING_MS < PEER_SILENCE_MS, "a peer is asked before it is given up");
const _: () = assert!(MEMBER_NEWS_BYTES_MAX < MEMBER_PACKET_BYTES_MAX);
