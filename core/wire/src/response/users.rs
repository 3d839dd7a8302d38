//! Users and their rights, as listed.

use bytes::BytesMut;
use types::codec::{Error, Reader, Writer};

use crate::Str;
use crate::request::decode_strings;

/// Smallest item of a list of users: a null name and an empty list.
const USER_BYTES_MIN: usize = 1 + 4;
/// The same with a null role.
const USER_V2_BYTES_MIN: usize = USER_BYTES_MIN + 1;
/// Smallest item of a list of rights: two nulls.
const GRANT_BYTES_MIN: usize = 2;

/// A user as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub username: Str,
    /// What it may do.
    pub permissions: Vec<Str>,
}

/// A user as listed with its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserV2 {
    /// The name.
    pub username: Str,
    /// Its role in the console; null when it has none.
    pub role: Str,
    /// What it may do.
    pub permissions: Vec<Str>,
}

/// Some users, in order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserPage {
    /// In order of their bytes.
    pub users: Vec<UserV2>,
    /// Whether others come after the last one.
    pub more: bool,
}

impl UserPage {
    pub(super) fn decode(reader: &mut Reader) -> Result<Self, Error> {
        Ok(Self { users: decode_v2(reader)?, more: reader.bool()? })
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        encode_v2(&self.users, out);
        out.put_bool(self.more);
    }
}

/// A right as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The right.
    pub operation: Str,
    /// The topics it holds for.
    pub pattern: Str,
}

pub(super) fn decode(reader: &mut Reader) -> Result<Vec<User>, Error> {
    let mut users = Vec::new();
    for _ in 0..reader.count(USER_BYTES_MIN)? {
        users.push(User { username: reader.opt_blob()?, permissions: decode_strings(reader)? });
    }
    Ok(users)
}

pub(super) fn decode_v2(reader: &mut Reader) -> Result<Vec<UserV2>, Error> {
    let mut users = Vec::new();
    for _ in 0..reader.count(USER_V2_BYTES_MIN)? {
        let (username, role) = (reader.opt_blob()?, reader.opt_blob()?);
        users.push(UserV2 { username, role, permissions: decode_strings(reader)? });
    }
    Ok(users)
}

pub(super) fn decode_grants(reader: &mut Reader) -> Result<Vec<Grant>, Error> {
    let mut grants = Vec::new();
    for _ in 0..reader.count(GRANT_BYTES_MIN)? {
        grants.push(Grant { operation: reader.opt_blob()?, pattern: reader.opt_blob()? });
    }
    Ok(grants)
}

pub(super) fn encode(users: &[User], out: &mut BytesMut) {
    out.put_count(users.len());
    for user in users {
        out.put_opt_blob(user.username.as_deref());
        put_permissions(&user.permissions, out);
    }
}

pub(super) fn encode_v2(users: &[UserV2], out: &mut BytesMut) {
    out.put_count(users.len());
    for user in users {
        out.put_opt_blob(user.username.as_deref());
        out.put_opt_blob(user.role.as_deref());
        put_permissions(&user.permissions, out);
    }
}

fn put_permissions(permissions: &[Str], out: &mut BytesMut) {
    out.put_count(permissions.len());
    permissions.iter().for_each(|permission| out.put_opt_blob(permission.as_deref()));
}

pub(super) fn encode_grants(grants: &[Grant], out: &mut BytesMut) {
    out.put_count(grants.len());
    for grant in grants {
        out.put_opt_blob(grant.operation.as_deref());
        out.put_opt_blob(grant.pattern.as_deref());
    }
}
