//! Rights of users on topics: grants only, there is nothing that denies.
//!
//! A right names its user and its topics without either having to exist. Whether a right is needed at all is
//! for whoever knows the user's permissions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use types::{TopicName, limits};

use super::{Cluster, Grant, Refusal, Reply, UserName};

/// What a right allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Create the topic and append records.
    Produce,
    /// Read records and commit positions.
    Consume,
}

impl Operation {
    pub(super) fn byte(self) -> u8 {
        match self {
            Self::Produce => 1,
            Self::Consume => 2,
        }
    }

    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Produce),
            2 => Some(Self::Consume),
            _ => None,
        }
    }
}

/// The topics a right is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// This one.
    Exact(TopicName),
    /// Every one whose name starts so; nothing is every topic. Some topic could.
    Prefix(Arc<str>),
}

/// A pattern that no topic name can match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pattern is a topic name, or the beginning of one and a *")]
pub struct InvalidPattern;

impl Pattern {
    /// Reads a pattern as it is written: a `*` at the end makes it a prefix.
    pub fn new(pattern: &[u8]) -> Result<Self, InvalidPattern> {
        let Some(prefix) = pattern.strip_suffix(b"*") else {
            return TopicName::new(pattern).map(Self::Exact).map_err(|_| InvalidPattern);
        };
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if prefix.len() > limits::TOPIC_NAME_BYTES_MAX || !prefix.iter().all(allowed) {
            return Err(InvalidPattern);
        }
        let prefix = std::str::from_utf8(prefix).map_err(|_| InvalidPattern)?;
        Ok(Self::Prefix(prefix.into()))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(topic) => topic.fmt(f),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
        }
    }
}

/// Patterns of one user for one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Patterns {
    exact: BTreeSet<TopicName>,
    prefixes: BTreeSet<Arc<str>>,
}

impl Patterns {
    fn insert(&mut self, pattern: Pattern) -> bool {
        match pattern {
            Pattern::Exact(topic) => self.exact.insert(topic),
            Pattern::Prefix(prefix) => self.prefixes.insert(prefix),
        }
    }

    fn remove(&mut self, pattern: &Pattern) -> bool {
        match pattern {
            Pattern::Exact(topic) => self.exact.remove(topic),
            Pattern::Prefix(prefix) => self.prefixes.remove(prefix),
        }
    }

    fn contains(&self, pattern: &Pattern) -> bool {
        match pattern {
            Pattern::Exact(topic) => self.exact.contains(topic),
            Pattern::Prefix(prefix) => self.prefixes.contains(prefix),
        }
    }

    /// In the order of [`Pattern`].
    fn iter(&self) -> impl Iterator<Item = Pattern> {
        let exact = self.exact.iter().cloned().map(Pattern::Exact);
        exact.chain(self.prefixes.iter().cloned().map(Pattern::Prefix))
    }

    fn matches(&self, topic: &TopicName) -> bool {
        self.exact.contains(topic) || self.has_prefix_of(topic.as_str())
    }

    /// The greatest stored prefix that does not sort after the name either begins it, or shares with it
    /// everything that a stored beginning of the name could be: so each look shortens what is looked for.
    fn has_prefix_of(&self, name: &str) -> bool {
        let mut rest = name;
        loop {
            let up_to = (Bound::Unbounded, Bound::Included(rest));
            let Some(found) = self.prefixes.range::<str, _>(up_to).next_back() else { return false };
            let shared = rest.bytes().zip(found.bytes()).take_while(|(a, b)| a == b).count();
            if shared == found.len() {
                return true;
            }
            rest = &rest[..shared];
        }
    }
}

/// Rights of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfUser {
    produce: Patterns,
    consume: Patterns,
    count: usize,
}

impl OfUser {
    fn of(&self, operation: Operation) -> &Patterns {
        match operation {
            Operation::Produce => &self.produce,
            Operation::Consume => &self.consume,
        }
    }

    fn of_mut(&mut self, operation: Operation) -> &mut Patterns {
        match operation {
            Operation::Produce => &mut self.produce,
            Operation::Consume => &mut self.consume,
        }
    }
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Grants {
    by_user: BTreeMap<UserName, OfUser>,
    count: usize,
}

impl Grants {
    pub(super) fn matches(&self, user: &str, operation: Operation, topic: &TopicName) -> bool {
        self.by_user.get(user).is_some_and(|of_user| of_user.of(operation).matches(topic))
    }

    /// One user's rights, `produce` first, in the order of patterns.
    pub(super) fn of_user(&self, user: &str) -> impl Iterator<Item = (Operation, Pattern)> {
        self.by_user.get(user).into_iter().flat_map(|of_user| {
            [Operation::Produce, Operation::Consume].into_iter().flat_map(move |operation| {
                of_user.of(operation).iter().map(move |pattern| (operation, pattern))
            })
        })
    }

    /// Users with a right, in byte order.
    pub(super) fn users(&self) -> impl Iterator<Item = &UserName> {
        self.by_user.keys()
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// `false`, and no change, when there would be too many. Giving a right twice is giving it once.
    pub(super) fn insert(&mut self, user: UserName, operation: Operation, pattern: Pattern) -> bool {
        let of_user = self.by_user.get(user.as_str());
        if of_user.is_some_and(|of_user| of_user.of(operation).contains(&pattern)) {
            return true;
        }
        let held = of_user.map_or(0, |of_user| of_user.count);
        if held >= limits::GRANTS_PER_USER_MAX || self.count >= limits::GRANTS_MAX {
            return false;
        }
        let of_user = self.by_user.entry(user).or_default();
        of_user.of_mut(operation).insert(pattern);
        of_user.count += 1;
        self.count += 1;
        true
    }

    fn remove(&mut self, user: &UserName, operation: Operation, pattern: &Pattern) {
        let Some(of_user) = self.by_user.get_mut(user) else { return };
        if of_user.of_mut(operation).remove(pattern) {
            of_user.count -= 1;
            self.count -= 1;
        }
        if of_user.count == 0 {
            self.by_user.remove(user);
        }
    }

    pub(super) fn remove_user(&mut self, user: &str) {
        if let Some(of_user) = self.by_user.remove(user) {
            self.count -= of_user.count;
        }
    }
}

impl Cluster {
    pub(super) fn grant(&mut self, grant: &Grant) -> Result<Reply, Refusal> {
        let user = UserName::new(&grant.user).map_err(|_| Refusal::InvalidUserName)?;
        let pattern = Pattern::new(&grant.pattern).map_err(|_| Refusal::InvalidPattern)?;
        let taken = self.grants.insert(user, grant.operation, pattern);
        if taken { Ok(Reply::Granted) } else { Err(Refusal::TooManyGrants) }
    }

    pub(super) fn revoke(&mut self, grant: &Grant) -> Result<Reply, Refusal> {
        let user = UserName::new(&grant.user).map_err(|_| Refusal::InvalidUserName)?;
        let pattern = Pattern::new(&grant.pattern).map_err(|_| Refusal::InvalidPattern)?;
        self.grants.remove(&user, grant.operation, &pattern);
        Ok(Reply::Revoked)
    }
}
