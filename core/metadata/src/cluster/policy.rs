//! Storage policies: what topics that point at one by name do otherwise than the cluster's defaults.
//!
//! Owns the definitions. Which topic points at which name is the vnode's; either can be there without the
//! other.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use types::limits;

use super::{Cluster, Refusal, Reply};

/// A policy's name: 1 to 128 bytes of UTF-8 without control characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyName(Arc<str>);

/// Not the name of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a policy's name has 1 to {} bytes and no control characters", limits::POLICY_NAME_BYTES_MAX)]
pub struct InvalidPolicyName;

impl PolicyName {
    /// Checks and takes a name that came from outside.
    pub fn new(name: &[u8]) -> Result<Self, InvalidPolicyName> {
        let name = text(name).ok_or(InvalidPolicyName)?;
        Ok(Self(name.into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for PolicyName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name or an attribute key.
pub(super) fn text(bytes: &[u8]) -> Option<&str> {
    let fits = !bytes.is_empty() && bytes.len() <= limits::POLICY_NAME_BYTES_MAX;
    let text = std::str::from_utf8(bytes).ok()?;
    (fits && !text.chars().any(char::is_control)).then_some(text)
}

/// What a policy says about one thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Setting<T> {
    /// Nothing: the cluster's default holds.
    #[default]
    Inherit,
    /// The rule is off.
    Off,
    /// This. Zero is a bound like any other, not "without bound".
    Value(T),
}

/// What topics do that point at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Sealed segments older than this go, milliseconds.
    pub age_ms_max: Setting<u64>,
    /// The oldest sealed segments of a range go while it holds more than this, bytes.
    pub bytes_max: Setting<u64>,
    /// Sealed segments go that are older than this and that every group of the topic is past, of which there is at
    /// least one; milliseconds. Only beside a value of `unread_age_ms_max`.
    pub read_age_ms_max: Setting<u64>,
    /// Sealed segments that some group is not past, or that no group ever read, are not kept to `age_ms_max` but
    /// to this age, milliseconds: the longest that a group which stands still holds anything.
    pub unread_age_ms_max: Setting<u64>,
    /// Attribute in which the replicas of a segment should differ: its key.
    pub spread_by: Setting<Bytes>,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Policies {
    by_name: BTreeMap<PolicyName, Policy>,
}

impl Policies {
    pub(super) fn get(&self, name: &str) -> Option<&Policy> {
        self.by_name.get(name)
    }

    /// In the byte order of names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&PolicyName, &Policy)> {
        self.by_name.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn insert(&mut self, name: PolicyName, policy: Policy) {
        self.by_name.insert(name, policy);
    }
}

impl Policy {
    /// Whether [`Command::DefinePolicy`](super::Command::DefinePolicy) takes it.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let spread = match &self.spread_by {
            Setting::Inherit | Setting::Off => true,
            Setting::Value(key) => text(key).is_some(),
        };
        // What goes by progress alone would stay for ever when a group stands still.
        let is_set = |setting: &Setting<u64>| matches!(setting, Setting::Value(_));
        spread && (!is_set(&self.read_age_ms_max) || is_set(&self.unread_age_ms_max))
    }
}

impl Cluster {
    pub(super) fn define_policy(&mut self, name: &Bytes, policy: Policy) -> Result<Reply, Refusal> {
        let name = PolicyName::new(name).map_err(|_| Refusal::InvalidPolicy)?;
        if !policy.is_valid() {
            return Err(Refusal::InvalidPolicy);
        }
        if self.policies.get(name.as_str()).is_none() && self.policies.len() >= limits::POLICIES_MAX {
            return Err(Refusal::TooManyPolicies);
        }
        self.policies.insert(name, policy);
        Ok(Reply::PolicyDefined)
    }

    pub(super) fn delete_policy(&mut self, name: &Bytes) -> Result<Reply, Refusal> {
        let name = PolicyName::new(name).map_err(|_| Refusal::NoSuchPolicy)?;
        self.policies.by_name.remove(&name).ok_or(Refusal::NoSuchPolicy)?;
        Ok(Reply::PolicyDeleted)
    }
}
