//! Users: who may log in, with what, and what they may do everywhere.
//!
//! A revision names one password of one life of one user. It comes from a counter that no user owns, so a
//! user deleted and created again has a higher one than any session of its earlier life.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use types::{WallTime, limits};

use super::{Cluster, CreateUser, Refusal, Reply};

/// A user's name: 1 to 128 bytes of `A-Z a-z 0-9 . _ @ : / + -`, compared byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserName(Arc<str>);

/// Not a user name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a user name has 1 to {} bytes of A-Z a-z 0-9 . _ @ : / + -", limits::USER_NAME_BYTES_MAX)]
pub struct InvalidUserName;

impl UserName {
    /// Checks and takes a name that came from outside.
    pub fn new(name: &[u8]) -> Result<Self, InvalidUserName> {
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"._@:/+-".contains(b);
        let fits = !name.is_empty() && name.len() <= limits::USER_NAME_BYTES_MAX;
        if !fits || !name.iter().all(allowed) {
            return Err(InvalidUserName);
        }
        let name = std::str::from_utf8(name).map_err(|_| InvalidUserName)?;
        Ok(Self(name.into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, shared.
    #[must_use]
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl Borrow<str> for UserName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a password is verified against: a PHC string. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(Arc<str>);

/// Not a PHC string this machine stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a password hash begins with $ and has at most {} printable bytes", limits::PASSWORD_HASH_BYTES_MAX)]
pub struct InvalidPasswordHash;

impl PasswordHash {
    /// Takes a hash; what is inside is for whoever verifies passwords to know.
    pub fn new(hash: &[u8]) -> Result<Self, InvalidPasswordHash> {
        let fits = hash.first() == Some(&b'$') && hash.len() <= limits::PASSWORD_HASH_BYTES_MAX;
        if !fits || !hash.iter().all(u8::is_ascii_graphic) {
            return Err(InvalidPasswordHash);
        }
        let hash = std::str::from_utf8(hash).map_err(|_| InvalidPasswordHash)?;
        Ok(Self(hash.into()))
    }

    /// The PHC string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The PHC string, shared.
    #[must_use]
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

/// What a user may do on every topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Everything.
    pub admin: bool,
    /// Create topics and append records.
    pub produce: bool,
    /// Read records and commit positions.
    pub consume: bool,
}

impl Permissions {
    pub(super) fn bits(self) -> u8 {
        u8::from(self.admin) | u8::from(self.produce) << 1 | u8::from(self.consume) << 2
    }

    pub(super) fn from_bits(bits: u8) -> Option<Self> {
        let has = |bit: u8| bits & (1 << bit) != 0;
        (bits < 8).then(|| Self { admin: has(0), produce: has(1), consume: has(2) })
    }
}

/// What a user may do on the operator's surfaces. Ordered: each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look.
    Viewer,
    /// Bind policies and act on the cluster.
    Operator,
    /// Change users, rights and roles.
    Admin,
}

impl Role {
    /// 0 is no role.
    pub(super) fn byte(role: Option<Self>) -> u8 {
        match role {
            None => 0,
            Some(Self::Viewer) => 1,
            Some(Self::Operator) => 2,
            Some(Self::Admin) => 3,
        }
    }

    pub(super) fn from_byte(byte: u8) -> Option<Option<Self>> {
        match byte {
            0 => Some(None),
            1 => Some(Some(Self::Viewer)),
            2 => Some(Some(Self::Operator)),
            3 => Some(Some(Self::Admin)),
            _ => None,
        }
    }
}

/// Names one password of one life of one user. Never given twice; later ones are higher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserRevision(pub u64);

/// One user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// What its password is verified against.
    pub hash: PasswordHash,
    /// Of the password.
    pub revision: UserRevision,
    /// What it may do on every topic.
    pub permissions: Permissions,
    /// What it may do on the operator's surfaces.
    pub role: Option<Role>,
    /// The proposer's clock.
    pub created_at: WallTime,
    /// The proposer's clock at the last change.
    pub updated_at: WallTime,
}

/// The table, and the source of revisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Users {
    by_name: BTreeMap<UserName, User>,
    pub(super) next_revision: UserRevision,
}

impl Users {
    pub(super) fn get(&self, name: &str) -> Option<&User> {
        self.by_name.get(name)
    }

    /// In the byte order of names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&UserName, &User)> {
        self.by_name.iter()
    }

    /// The same, only those after a name.
    pub(super) fn iter_after(&self, name: &str) -> impl Iterator<Item = (&UserName, &User)> {
        self.by_name.range::<str, _>((Bound::Excluded(name), Bound::Unbounded))
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn insert(&mut self, name: UserName, user: User) {
        self.by_name.insert(name, user);
    }

    fn draw_revision(&mut self) -> UserRevision {
        let drawn = self.next_revision;
        // A snapshot may claim any counter; one at its end gives the last number again and again.
        self.next_revision = UserRevision(drawn.0.saturating_add(1));
        drawn
    }
}

impl Cluster {
    pub(super) fn create_user(&mut self, create: CreateUser) -> Result<Reply, Refusal> {
        let name = UserName::new(&create.user).map_err(|_| Refusal::InvalidUserName)?;
        if self.users.get(name.as_str()).is_some() {
            return Err(Refusal::UserExists);
        }
        if self.users.len() >= limits::USERS_MAX {
            return Err(Refusal::TooManyUsers);
        }
        let revision = self.users.draw_revision();
        let CreateUser { hash, permissions, role, at, .. } = create;
        let user = User { hash, revision, permissions, role, created_at: at, updated_at: at };
        self.users.insert(name, user);
        Ok(Reply::UserCreated { revision })
    }

    /// A user that is not there is deleted too: rights and lockouts do not need one.
    pub(super) fn delete_user(&mut self, user: &Bytes) -> Reply {
        let user = UserName::new(user).ok();
        if let Some(name) = &user {
            self.users.by_name.remove(name);
            self.grants.remove_user(name.as_str());
            self.lockouts.clear(name, None);
        }
        Reply::UserDeleted { user, revision: self.users.next_revision }
    }

    pub(super) fn change_password(
        &mut self,
        user: &Bytes,
        hash: PasswordHash,
        at: WallTime,
    ) -> Result<Reply, Refusal> {
        let name = UserName::new(user).map_err(|_| Refusal::NoSuchUser)?;
        self.existing(&name)?;
        let revision = self.users.draw_revision();
        let user = self.existing(&name)?;
        (user.hash, user.revision, user.updated_at) = (hash, revision, at);
        Ok(Reply::PasswordChanged { user: name, revision })
    }

    pub(super) fn set_permissions(
        &mut self,
        user: &Bytes,
        permissions: Permissions,
        at: WallTime,
    ) -> Result<Reply, Refusal> {
        let name = UserName::new(user).map_err(|_| Refusal::NoSuchUser)?;
        let user = self.existing(&name)?;
        (user.permissions, user.updated_at) = (permissions, at);
        Ok(Reply::UserChanged)
    }

    pub(super) fn set_role(
        &mut self,
        user: &Bytes,
        role: Option<Role>,
        at: WallTime,
    ) -> Result<Reply, Refusal> {
        let name = UserName::new(user).map_err(|_| Refusal::NoSuchUser)?;
        let user = self.existing(&name)?;
        (user.role, user.updated_at) = (role, at);
        Ok(Reply::UserChanged)
    }

    fn existing(&mut self, name: &UserName) -> Result<&mut User, Refusal> {
        self.users.by_name.get_mut(name).ok_or(Refusal::NoSuchUser)
    }
}
