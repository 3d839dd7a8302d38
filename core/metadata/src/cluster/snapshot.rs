//! The canonical encoding of the tables: what is stored when the log is cut, sent to a member that is far
//! behind, and hashed to compare members.
//!
//! ```text
//! snapshot = "MCL" format:u8  machine version:u16  applied index:u64  section*
//! section  = tag:u8  format:u8  length:u32 bytes
//!
//! users    = next revision:u64  count:u32 row*        in the order of names
//! grants   = count:u32 row*                           of users, operations, patterns
//! lockouts = count:u32 row*                           of users, addresses
//! policies = count:u32 row*                           of names
//! ```
//!
//! The sections after these are told of in `control`. Format 1 ended before them: it is read as a cluster that
//! has none of what they hold.
//!
//! Each table is a section with a format of its own, so that one can change without the others. Every section
//! this build knows is there, in the order of tags. What is derived is not written: it is made anew from what
//! is.

mod control;

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{self, Reader, Writer};
use types::{RaftIndex, WallTime, limits};

use super::command::{self, put_hash, put_policy};
use super::{
    Address, Cluster, Lockout, Pattern, PolicyName, Role, User, UserName, UserRevision, acl, lockout, policy,
    users,
};
use crate::machine::Version;

const MAGIC: [u8; 3] = *b"MCL";
const FORMAT: u8 = 2;
/// Without nodes, ring, lease and switches.
const FORMAT_OF_USERS: u8 = 1;

const USERS: u8 = 1;
const GRANTS: u8 = 2;
const LOCKOUTS: u8 = 3;
const POLICIES: u8 = 4;
const NODES: u8 = 5;
const RING: u8 = 6;
const LEASE: u8 = 7;
const FLAGS: u8 = 8;
/// Of every section so far.
const SECTION_FORMAT: u8 = 1;

/// Smallest rows.
const USER_BYTES_MIN: usize = 4 + 1 + 4 + 1 + 8 + 1 + 1 + 8 + 8;
const GRANT_BYTES_MIN: usize = 4 + 1 + 1 + 4 + 1;
const LOCKOUT_BYTES_MIN: usize = 4 + 1 + 4 + 1 + 4 + 1 + 8 + 8;
const POLICY_BYTES_MIN: usize = 4 + 1 + 5;

/// Why bytes are not a snapshot this build can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A later build wrote it in another layout.
    #[error("snapshot format {0} is later than this build's {FORMAT}")]
    LaterFormat(u8),
    /// A later build wrote one of its tables in another layout.
    #[error("format {format} of section {tag} is later than this build's {SECTION_FORMAT}")]
    LaterSection {
        /// Which table.
        tag: u8,
        /// Its format.
        format: u8,
    },
    /// A later build wrote it under rules this one does not have.
    #[error("machine version {} is later than this build's {}", .0.0, Version::BUILD.0)]
    LaterVersion(Version),
    /// It does not decode.
    #[error("not a snapshot: {0}")]
    Codec(#[from] codec::Error),
    /// It decodes, but the rows contradict each other.
    #[error("not a snapshot: {0}")]
    Inconsistent(&'static str),
}

impl Cluster {
    /// The canonical encoding of the state.
    #[must_use]
    pub fn encode_snapshot(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.extend_from_slice(&MAGIC);
        out.put_u8(FORMAT);
        out.put_u16(self.version.0);
        out.put_u64(self.applied.0);
        section(&mut out, USERS, |out| put_users(out, &self.users));
        section(&mut out, GRANTS, |out| put_grants(out, &self.grants));
        section(&mut out, LOCKOUTS, |out| put_lockouts(out, &self.lockouts));
        section(&mut out, POLICIES, |out| put_policies(out, &self.policies));
        section(&mut out, NODES, |out| control::put_nodes(out, &self.nodes));
        section(&mut out, RING, |out| control::put_ring(out, self.topology.as_ref()));
        section(&mut out, LEASE, |out| control::put_lease(out, &self.lease));
        section(&mut out, FLAGS, |out| control::put_flags(out, &self.flags.enabled));
        out.freeze()
    }

    /// The state a snapshot holds.
    pub fn decode_snapshot(bytes: Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len())?[..] != MAGIC {
            return Err(Error::Inconsistent("the magic number differs"));
        }
        let format = reader.u8()?;
        match format {
            FORMAT_OF_USERS | FORMAT => {}
            0 => return Err(Error::Inconsistent("no format version")),
            later => return Err(Error::LaterFormat(later)),
        }
        let version = Version(reader.u16()?);
        if version > Version::BUILD {
            return Err(Error::LaterVersion(version));
        }
        let mut state = Self::new(version);
        state.applied = RaftIndex(reader.u64()?);
        state.users = table(&mut reader, USERS, users)?;
        state.grants = table(&mut reader, GRANTS, grants)?;
        state.lockouts = table(&mut reader, LOCKOUTS, |reader| lockouts(reader, state.applied))?;
        state.policies = table(&mut reader, POLICIES, policies)?;
        if format > FORMAT_OF_USERS {
            state.nodes = table(&mut reader, NODES, control::nodes)?;
            state.topology = table(&mut reader, RING, control::ring)?;
            state.lease = table(&mut reader, LEASE, control::lease)?;
            state.flags = table(&mut reader, FLAGS, control::flags)?;
        }
        reader.finish()?;
        Ok(state)
    }
}

fn section(out: &mut BytesMut, tag: u8, rows: impl FnOnce(&mut BytesMut)) {
    out.put_u8(tag);
    out.put_u8(SECTION_FORMAT);
    let at = out.len();
    out.put_u32(0);
    rows(out);
    let length = u32::try_from(out.len() - at - 4).expect("every table is limited far below 4 GiB");
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn table<T>(
    reader: &mut Reader,
    expected: u8,
    rows: impl FnOnce(&mut Reader) -> Result<T, Error>,
) -> Result<T, Error> {
    let (tag, format) = (reader.u8()?, reader.u8()?);
    if tag != expected || format == 0 {
        return Err(Error::Inconsistent("not the section that belongs there"));
    }
    if format > SECTION_FORMAT {
        return Err(Error::LaterSection { tag, format });
    }
    let mut section = Reader::new(reader.blob()?);
    let table = rows(&mut section)?;
    section.finish()?;
    Ok(table)
}

/// Refuses rows that are repeated or out of order, so that a state has one encoding.
struct Ascending<K>(Option<K>);

impl<K: Ord> Ascending<K> {
    fn check(&mut self, key: K) -> Result<(), Error> {
        if self.0.as_ref().is_some_and(|last| *last >= key) {
            return Err(Error::Inconsistent("rows are out of order"));
        }
        self.0 = Some(key);
        Ok(())
    }
}

fn rows(reader: &mut Reader, bytes_min: usize, max: usize) -> Result<usize, Error> {
    let count = reader.count(bytes_min)?;
    if count <= max { Ok(count) } else { Err(Error::Inconsistent("more rows than there may be")) }
}

fn user_name(reader: &mut Reader) -> Result<UserName, Error> {
    UserName::new(&reader.blob()?).map_err(|_| Error::Inconsistent("a user name"))
}

fn put_users(out: &mut BytesMut, users: &users::Users) {
    out.put_u64(users.next_revision.0);
    out.put_count(users.len());
    for (name, user) in users.iter() {
        out.put_blob(name.as_str().as_bytes());
        put_hash(out, &user.hash);
        out.put_u64(user.revision.0);
        out.put_u8(user.permissions.bits());
        out.put_u8(Role::byte(user.role));
        out.put_u64(user.created_at.0);
        out.put_u64(user.updated_at.0);
    }
}

fn users(reader: &mut Reader) -> Result<users::Users, Error> {
    let mut table = users::Users::default();
    table.next_revision = UserRevision(reader.u64()?);
    let mut order = Ascending(None);
    for _ in 0..rows(reader, USER_BYTES_MIN, limits::USERS_MAX)? {
        let name = user_name(reader)?;
        order.check(name.clone())?;
        let hash = command::hash(reader)?;
        let revision = UserRevision(reader.u64()?);
        let permissions = command::permissions(reader)?;
        let role = command::role(reader)?;
        let (created_at, updated_at) = (command::wall(reader)?, command::wall(reader)?);
        if revision >= table.next_revision {
            return Err(Error::Inconsistent("a revision that was not given yet"));
        }
        table.insert(name, User { hash, revision, permissions, role, created_at, updated_at });
    }
    Ok(table)
}

fn put_grants(out: &mut BytesMut, grants: &acl::Grants) {
    out.put_count(grants.len());
    for user in grants.users() {
        for (operation, pattern) in grants.of_user(user.as_str()) {
            out.put_blob(user.as_str().as_bytes());
            out.put_u8(operation.byte());
            match pattern {
                Pattern::Exact(topic) => {
                    out.put_u8(1);
                    out.put_blob(topic.as_str().as_bytes());
                }
                Pattern::Prefix(prefix) => {
                    out.put_u8(2);
                    out.put_blob(prefix.as_bytes());
                }
            }
        }
    }
}

fn grants(reader: &mut Reader) -> Result<acl::Grants, Error> {
    let mut table = acl::Grants::default();
    let mut order = Ascending(None);
    for _ in 0..rows(reader, GRANT_BYTES_MIN, limits::GRANTS_MAX)? {
        let user = user_name(reader)?;
        let operation = command::operation(reader)?;
        let pattern = pattern(reader)?;
        order.check((user.clone(), operation, pattern.clone()))?;
        if !table.insert(user, operation, pattern) {
            return Err(Error::Inconsistent("more rights than a user may have"));
        }
    }
    Ok(table)
}

fn pattern(reader: &mut Reader) -> Result<Pattern, Error> {
    let exact = match reader.u8()? {
        1 => true,
        2 => false,
        _ => return Err(Error::Inconsistent("a kind of pattern")),
    };
    let name = reader.blob()?;
    let written = if exact { name } else { [&name[..], b"*"].concat().into() };
    let pattern = Pattern::new(&written).map_err(|_| Error::Inconsistent("a pattern"))?;
    if matches!(pattern, Pattern::Exact(_)) == exact {
        Ok(pattern)
    } else {
        Err(Error::Inconsistent("a pattern of another kind"))
    }
}

fn put_lockouts(out: &mut BytesMut, lockouts: &lockout::Lockouts) {
    out.put_count(lockouts.len());
    for (user, address, lockout) in lockouts.iter() {
        out.put_blob(user.as_str().as_bytes());
        out.put_blob(address.as_str().as_bytes());
        out.put_u32(lockout.count);
        match lockout.locked_until {
            None => out.put_u8(0),
            Some(until) => {
                out.put_u8(1);
                out.put_u64(until.0);
            }
        }
        out.put_u64(lockout.forget_at.0);
        out.put_u64(lockout.touched.0);
    }
}

fn lockouts(reader: &mut Reader, applied: RaftIndex) -> Result<lockout::Lockouts, Error> {
    let mut table = lockout::Lockouts::default();
    let mut order = Ascending(None);
    for _ in 0..rows(reader, LOCKOUT_BYTES_MIN, limits::LOCKOUTS_MAX)? {
        let user = user_name(reader)?;
        let address = Address::new(&reader.blob()?).ok_or(Error::Inconsistent("an address"))?;
        order.check((user.clone(), address.clone()))?;
        let count = reader.u32()?;
        let locked_until = if reader.bool()? { Some(WallTime(reader.u64()?)) } else { None };
        let (forget_at, touched) = (command::wall(reader)?, RaftIndex(reader.u64()?));
        let lockout = Lockout { count, locked_until, forget_at, touched };
        // A later entry takes an index of its own, which must be free.
        if touched > applied || !table.insert(user, address, lockout) {
            return Err(Error::Inconsistent("a lockout of an entry that cannot have made it"));
        }
    }
    Ok(table)
}

fn put_policies(out: &mut BytesMut, policies: &policy::Policies) {
    out.put_count(policies.len());
    for (name, policy) in policies.iter() {
        out.put_blob(name.as_str().as_bytes());
        put_policy(out, policy);
    }
}

fn policies(reader: &mut Reader) -> Result<policy::Policies, Error> {
    let mut table = policy::Policies::default();
    let mut order = Ascending(None);
    for _ in 0..rows(reader, POLICY_BYTES_MIN, limits::POLICIES_MAX)? {
        let name = PolicyName::new(&reader.blob()?).map_err(|_| Error::Inconsistent("a policy's name"))?;
        order.check(name.clone())?;
        let policy = command::policy(reader)?;
        if !policy.is_valid() {
            return Err(Error::Inconsistent("a policy"));
        }
        table.insert(name, policy);
    }
    Ok(table)
}
