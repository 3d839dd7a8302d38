//! The commands of the machine and their one encoding.
//!
//! Names and patterns are carried as the proposer gave them: a bad one is a refusal of `apply`, the same on
//! every member, not a decoding error. What only our own edge makes (hashes, rules, permissions) is checked
//! when it is decoded.

pub(super) mod control;

use std::num::NonZeroU32;

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{self, Reader, Writer};
use types::{FenceToken, NodeId, WallTime};

use super::{
    AcquireLease, AddNode, ChangeNode, ChangeRing, EnableFlag, LockoutRules, Operation, PasswordHash,
    Permissions, Policy, Refusal, Role, SetNode, Setting,
};
use crate::machine::{Envelope, Version};

const CREATE_USER: u16 = 1;
const DELETE_USER: u16 = 2;
const CHANGE_PASSWORD: u16 = 3;
const SET_PERMISSIONS: u16 = 4;
const SET_ROLE: u16 = 5;
const GRANT: u16 = 16;
const REVOKE: u16 = 17;
const RECORD_FAILURE: u16 = 32;
const RECORD_SUCCESS: u16 = 33;
const UNLOCK: u16 = 34;
const FORGET_LOCKOUTS: u16 = 35;
const DEFINE_POLICY: u16 = 48;
const DELETE_POLICY: u16 = 49;
const UPGRADE: u16 = 64;
const ADD_NODE: u16 = 80;
const SET_NODE: u16 = 81;
const DRAIN_NODE: u16 = 82;
const UNDRAIN_NODE: u16 = 83;
const REMOVE_NODE: u16 = 84;
const SEED_RING: u16 = 96;
const CHANGE_RING: u16 = 97;
const ACQUIRE_LEASE: u16 = 112;
const RELEASE_LEASE: u16 = 113;
const ENABLE_FLAG: u16 = 128;

/// Something to agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Adds a user.
    CreateUser(CreateUser),
    /// Removes a user with its rights and lockouts. Right too when there is none.
    DeleteUser {
        /// As the client gave it.
        user: Bytes,
    },
    /// Gives a user another password, and with it another revision.
    ChangePassword {
        /// As the client gave it.
        user: Bytes,
        /// Of the new password.
        hash: PasswordHash,
        /// The proposer's clock.
        at: WallTime,
    },
    /// Says what a user may do on every topic.
    SetPermissions {
        /// As the client gave it.
        user: Bytes,
        /// In place of what it had.
        permissions: Permissions,
        /// The proposer's clock.
        at: WallTime,
    },
    /// Says what a user may do on the operator's surfaces.
    SetRole {
        /// As the client gave it.
        user: Bytes,
        /// `None` takes the role away.
        role: Option<Role>,
        /// The proposer's clock.
        at: WallTime,
    },
    /// Gives a right. Giving it twice is giving it once.
    Grant(Grant),
    /// Takes a right away, if it is there.
    Revoke(Grant),
    /// Counts a failed login.
    RecordFailure {
        /// Whose.
        attempt: Attempt,
        /// The proposer's configuration.
        rules: LockoutRules,
    },
    /// Forgets what was counted: the user logged in.
    RecordSuccess {
        /// As the client gave it.
        user: Bytes,
        /// The client's.
        address: Bytes,
    },
    /// Forgets what was counted: an administrator says so.
    Unlock {
        /// As the client gave it.
        user: Bytes,
        /// `None` is every address.
        address: Option<Bytes>,
    },
    /// Drops everything that has to be forgotten by then.
    ForgetLockouts {
        /// The proposer's clock.
        at: WallTime,
    },
    /// Adds a policy or puts another in its place.
    DefinePolicy {
        /// As the client gave it.
        name: Bytes,
        /// What it says.
        policy: Policy,
    },
    /// Removes a policy; topics may go on pointing at it.
    DeletePolicy {
        /// As the client gave it.
        name: Bytes,
    },
    /// Lists a node, which then has to speak for itself.
    AddNode(AddNode),
    /// Says what a node says about itself.
    SetNode(SetNode),
    /// Gives a node nothing new from now on. Repeating it changes nothing.
    DrainNode(ChangeNode),
    /// Takes that back.
    UndrainNode(ChangeNode),
    /// Takes a node off the list, for good.
    RemoveNode {
        /// Which node, and from which list.
        change: ChangeNode,
        /// Even when it is not drained: it is gone and does not come back.
        force: bool,
    },
    /// Gives the cluster its first ring.
    SeedRing {
        /// Members of each vnode, of which there are as many; the first of each to lead.
        placements: Vec<Vec<NodeId>>,
    },
    /// Begins or ends a change of the ring.
    ChangeRing(ChangeRing),
    /// Takes the lease, or keeps it.
    AcquireLease(AcquireLease),
    /// Gives the lease back, if it is held so; fine when it is not.
    ReleaseLease {
        /// Who held it.
        candidate: NodeId,
        /// What it was given.
        fence: FenceToken,
    },
    /// Turns a switch on, for good. Repeating it changes nothing.
    EnableFlag(EnableFlag),
    /// Raises the effective version; a lower one changes nothing.
    Upgrade {
        /// What every member of the group supports.
        to: Version,
    },
}

/// Arguments of [`Command::CreateUser`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateUser {
    /// As the client gave it.
    pub user: Bytes,
    /// Of its password.
    pub hash: PasswordHash,
    /// What it may do on every topic; may be nothing.
    pub permissions: Permissions,
    /// What it may do on the operator's surfaces.
    pub role: Option<Role>,
    /// The proposer's clock.
    pub at: WallTime,
}

/// A right. Neither the user nor a topic has to exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// As the client gave it.
    pub user: Bytes,
    /// What it allows.
    pub operation: Operation,
    /// As the client gave it.
    pub pattern: Bytes,
}

/// A login that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// As the client gave it; does not have to be a user's name.
    pub user: Bytes,
    /// The client's.
    pub address: Bytes,
    /// The proposer's clock.
    pub at: WallTime,
}

impl Command {
    /// The entry to propose.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        Envelope::open(Version(1), self.kind(), &mut out);
        match self {
            Self::CreateUser(create) => {
                out.put_blob(&create.user);
                put_hash(&mut out, &create.hash);
                out.put_u8(create.permissions.bits());
                out.put_u8(Role::byte(create.role));
                out.put_u64(create.at.0);
            }
            Self::DeleteUser { user } => out.put_blob(user),
            Self::ChangePassword { user, hash, at } => {
                out.put_blob(user);
                put_hash(&mut out, hash);
                out.put_u64(at.0);
            }
            Self::SetPermissions { user, permissions, at } => {
                out.put_blob(user);
                out.put_u8(permissions.bits());
                out.put_u64(at.0);
            }
            Self::SetRole { user, role, at } => {
                out.put_blob(user);
                out.put_u8(Role::byte(*role));
                out.put_u64(at.0);
            }
            Self::Grant(grant) | Self::Revoke(grant) => {
                out.put_blob(&grant.user);
                out.put_u8(grant.operation.byte());
                out.put_blob(&grant.pattern);
            }
            Self::RecordFailure { attempt, rules } => {
                out.put_blob(&attempt.user);
                out.put_blob(&attempt.address);
                out.put_u64(attempt.at.0);
                put_rules(&mut out, *rules);
            }
            Self::RecordSuccess { user, address } => {
                out.put_blob(user);
                out.put_blob(address);
            }
            Self::Unlock { user, address } => {
                out.put_blob(user);
                out.put_opt_blob(address.as_deref());
            }
            Self::ForgetLockouts { at } => out.put_u64(at.0),
            Self::DefinePolicy { name, policy } => {
                out.put_blob(name);
                put_policy(&mut out, policy);
            }
            Self::DeletePolicy { name } => out.put_blob(name),
            Self::AddNode(add) => control::put_add_node(&mut out, add),
            Self::SetNode(set) => control::put_set_node(&mut out, set),
            Self::DrainNode(change) | Self::UndrainNode(change) => {
                control::put_change_node(&mut out, *change);
            }
            Self::RemoveNode { change, force } => {
                control::put_change_node(&mut out, *change);
                out.put_bool(*force);
            }
            Self::SeedRing { placements } => control::put_seed_ring(&mut out, placements),
            Self::ChangeRing(change) => control::put_change_ring(&mut out, change),
            Self::AcquireLease(acquire) => control::put_acquire_lease(&mut out, *acquire),
            Self::ReleaseLease { candidate, fence } => {
                out.put_u128(candidate.0);
                out.put_u64(fence.0);
            }
            Self::EnableFlag(enable) => control::put_enable_flag(&mut out, enable),
            Self::Upgrade { to } => out.put_u16(to.0),
        }
        out.freeze()
    }

    /// The version to upgrade to, when this build does not have it.
    pub(super) fn beyond_build(&self) -> Option<Version> {
        let Self::Upgrade { to } = self else { return None };
        (*to > Version::BUILD).then_some(*to)
    }

    fn kind(&self) -> u16 {
        match self {
            Self::CreateUser(_) => CREATE_USER,
            Self::DeleteUser { .. } => DELETE_USER,
            Self::ChangePassword { .. } => CHANGE_PASSWORD,
            Self::SetPermissions { .. } => SET_PERMISSIONS,
            Self::SetRole { .. } => SET_ROLE,
            Self::Grant(_) => GRANT,
            Self::Revoke(_) => REVOKE,
            Self::RecordFailure { .. } => RECORD_FAILURE,
            Self::RecordSuccess { .. } => RECORD_SUCCESS,
            Self::Unlock { .. } => UNLOCK,
            Self::ForgetLockouts { .. } => FORGET_LOCKOUTS,
            Self::DefinePolicy { .. } => DEFINE_POLICY,
            Self::DeletePolicy { .. } => DELETE_POLICY,
            Self::AddNode(_) => ADD_NODE,
            Self::SetNode(_) => SET_NODE,
            Self::DrainNode(_) => DRAIN_NODE,
            Self::UndrainNode(_) => UNDRAIN_NODE,
            Self::RemoveNode { .. } => REMOVE_NODE,
            Self::SeedRing { .. } => SEED_RING,
            Self::ChangeRing(_) => CHANGE_RING,
            Self::AcquireLease(_) => ACQUIRE_LEASE,
            Self::ReleaseLease { .. } => RELEASE_LEASE,
            Self::EnableFlag(_) => ENABLE_FLAG,
            Self::Upgrade { .. } => UPGRADE,
        }
    }

    /// The command in an envelope that passed the version gate.
    pub(super) fn decode(envelope: Envelope) -> Result<Self, Refusal> {
        let mut reader = Reader::new(envelope.body);
        let command = match (envelope.version.0, envelope.kind) {
            (1, CREATE_USER) => create_user(&mut reader),
            (1, DELETE_USER) => reader.blob().map(|user| Self::DeleteUser { user }),
            (1, CHANGE_PASSWORD) => change_password(&mut reader),
            (1, SET_PERMISSIONS) => set_permissions(&mut reader),
            (1, SET_ROLE) => set_role(&mut reader),
            (1, GRANT) => grant(&mut reader).map(Self::Grant),
            (1, REVOKE) => grant(&mut reader).map(Self::Revoke),
            (1, RECORD_FAILURE) => record_failure(&mut reader),
            (1, RECORD_SUCCESS) => record_success(&mut reader),
            (1, UNLOCK) => unlock(&mut reader),
            (1, FORGET_LOCKOUTS) => wall(&mut reader).map(|at| Self::ForgetLockouts { at }),
            (1, DEFINE_POLICY) => define_policy(&mut reader),
            (1, DELETE_POLICY) => reader.blob().map(|name| Self::DeletePolicy { name }),
            (1, ADD_NODE) => control::add_node(&mut reader),
            (1, SET_NODE) => control::set_node(&mut reader),
            (1, DRAIN_NODE) => control::change_node(&mut reader).map(Self::DrainNode),
            (1, UNDRAIN_NODE) => control::change_node(&mut reader).map(Self::UndrainNode),
            (1, REMOVE_NODE) => control::remove_node(&mut reader),
            (1, SEED_RING) => control::seed_ring(&mut reader),
            (1, CHANGE_RING) => control::change_ring(&mut reader),
            (1, ACQUIRE_LEASE) => control::acquire_lease(&mut reader),
            (1, RELEASE_LEASE) => control::release_lease(&mut reader),
            (1, ENABLE_FLAG) => control::enable_flag(&mut reader),
            (1, UPGRADE) => reader.u16().map(|to| Self::Upgrade { to: Version(to) }),
            (_, _) => return Err(Refusal::UnknownCommand),
        };
        let command = command.map_err(|_| Refusal::InvalidCommand)?;
        reader.finish().map_err(|_| Refusal::InvalidCommand)?;
        Ok(command)
    }
}

fn create_user(reader: &mut Reader) -> Result<Command, codec::Error> {
    let user = reader.blob()?;
    let hash = hash(reader)?;
    let permissions = permissions(reader)?;
    let role = role(reader)?;
    Ok(Command::CreateUser(CreateUser { user, hash, permissions, role, at: wall(reader)? }))
}

fn change_password(reader: &mut Reader) -> Result<Command, codec::Error> {
    let user = reader.blob()?;
    let hash = hash(reader)?;
    Ok(Command::ChangePassword { user, hash, at: wall(reader)? })
}

fn set_permissions(reader: &mut Reader) -> Result<Command, codec::Error> {
    let user = reader.blob()?;
    let permissions = permissions(reader)?;
    Ok(Command::SetPermissions { user, permissions, at: wall(reader)? })
}

fn set_role(reader: &mut Reader) -> Result<Command, codec::Error> {
    let user = reader.blob()?;
    let role = role(reader)?;
    Ok(Command::SetRole { user, role, at: wall(reader)? })
}

fn grant(reader: &mut Reader) -> Result<Grant, codec::Error> {
    let user = reader.blob()?;
    let operation = operation(reader)?;
    Ok(Grant { user, operation, pattern: reader.blob()? })
}

fn record_failure(reader: &mut Reader) -> Result<Command, codec::Error> {
    let user = reader.blob()?;
    let address = reader.blob()?;
    let attempt = Attempt { user, address, at: wall(reader)? };
    Ok(Command::RecordFailure { attempt, rules: rules(reader)? })
}

fn record_success(reader: &mut Reader) -> Result<Command, codec::Error> {
    let user = reader.blob()?;
    Ok(Command::RecordSuccess { user, address: reader.blob()? })
}

fn unlock(reader: &mut Reader) -> Result<Command, codec::Error> {
    let user = reader.blob()?;
    Ok(Command::Unlock { user, address: reader.opt_blob()? })
}

fn define_policy(reader: &mut Reader) -> Result<Command, codec::Error> {
    let name = reader.blob()?;
    Ok(Command::DefinePolicy { name, policy: policy(reader)? })
}

pub(super) fn wall(reader: &mut Reader) -> Result<WallTime, codec::Error> {
    reader.u64().map(WallTime)
}

pub(super) fn hash(reader: &mut Reader) -> Result<PasswordHash, codec::Error> {
    PasswordHash::new(&reader.blob()?).map_err(|_| codec::Error::Invalid("a password hash"))
}

pub(super) fn permissions(reader: &mut Reader) -> Result<Permissions, codec::Error> {
    Permissions::from_bits(reader.u8()?).ok_or(codec::Error::Invalid("a set of permissions"))
}

pub(super) fn role(reader: &mut Reader) -> Result<Option<Role>, codec::Error> {
    Role::from_byte(reader.u8()?).ok_or(codec::Error::Invalid("a role"))
}

pub(super) fn operation(reader: &mut Reader) -> Result<Operation, codec::Error> {
    Operation::from_byte(reader.u8()?).ok_or(codec::Error::Invalid("an operation"))
}

fn rules(reader: &mut Reader) -> Result<LockoutRules, codec::Error> {
    let attempts_max = NonZeroU32::new(reader.u32()?).ok_or(codec::Error::Invalid("a number of attempts"))?;
    let duration_ms = reader.u64()?;
    let progressive = reader.bool()?;
    Ok(LockoutRules { attempts_max, duration_ms, progressive, forget_ms: reader.u64()? })
}

pub(super) fn policy(reader: &mut Reader) -> Result<Policy, codec::Error> {
    let age_ms_max = setting(reader, Reader::u64)?;
    let bytes_max = setting(reader, Reader::u64)?;
    let read_age_ms_max = setting(reader, Reader::u64)?;
    let unread_age_ms_max = setting(reader, Reader::u64)?;
    let spread_by = setting(reader, Reader::blob)?;
    Ok(Policy { age_ms_max, bytes_max, read_age_ms_max, unread_age_ms_max, spread_by })
}

fn setting<T>(
    reader: &mut Reader,
    value: impl FnOnce(&mut Reader) -> Result<T, codec::Error>,
) -> Result<Setting<T>, codec::Error> {
    match reader.u8()? {
        0 => Ok(Setting::Inherit),
        1 => Ok(Setting::Off),
        2 => value(reader).map(Setting::Value),
        _ => Err(codec::Error::Invalid("a setting")),
    }
}

pub(super) fn put_hash(out: &mut BytesMut, hash: &PasswordHash) {
    out.put_blob(hash.as_str().as_bytes());
}

fn put_rules(out: &mut BytesMut, rules: LockoutRules) {
    out.put_u32(rules.attempts_max.get());
    out.put_u64(rules.duration_ms);
    out.put_bool(rules.progressive);
    out.put_u64(rules.forget_ms);
}

pub(super) fn put_policy(out: &mut BytesMut, policy: &Policy) {
    put_setting(out, &policy.age_ms_max, |out, ms| out.put_u64(*ms));
    put_setting(out, &policy.bytes_max, |out, bytes| out.put_u64(*bytes));
    put_setting(out, &policy.read_age_ms_max, |out, ms| out.put_u64(*ms));
    put_setting(out, &policy.unread_age_ms_max, |out, ms| out.put_u64(*ms));
    put_setting(out, &policy.spread_by, |out, key| out.put_blob(key));
}

fn put_setting<T>(out: &mut BytesMut, setting: &Setting<T>, value: impl FnOnce(&mut BytesMut, &T)) {
    match setting {
        Setting::Inherit => out.put_u8(0),
        Setting::Off => out.put_u8(1),
        Setting::Value(set) => {
            out.put_u8(2);
            value(out, set);
        }
    }
}
