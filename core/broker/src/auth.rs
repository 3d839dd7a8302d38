//! May this session do that?
//!
//! Owns the decision on topics (grants come later: `docs`, security section 9). Does not verify anybody: the
//! edge does, and hands in a [`Session`].

use std::sync::Arc;

/// Who asks, as the edge verified it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The user's name.
    pub user: Arc<str>,
    /// What the user may do on every topic.
    pub permissions: Permissions,
}

/// Global permissions of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Everything.
    pub admin: bool,
    /// Create topics and append records.
    pub produce: bool,
    /// Read records and commit positions.
    pub consume: bool,
}

/// What a topic operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `create_topic` and `produce`.
    Produce,
    /// `fetch`, `commit`, `leave_group`.
    Consume,
}

impl Session {
    /// Whether the session may do `operation` on any topic.
    #[must_use]
    pub fn may(&self, operation: Operation) -> bool {
        let granted = match operation {
            Operation::Produce => self.permissions.produce,
            Operation::Consume => self.permissions.consume,
        };
        self.permissions.admin || granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(permissions: Permissions) -> Session {
        Session { user: "u".into(), permissions }
    }

    #[test]
    fn each_permission_opens_its_own_door_and_admin_opens_all() {
        let producer = session(Permissions { produce: true, ..Permissions::default() });
        assert!(producer.may(Operation::Produce) && !producer.may(Operation::Consume));
        let consumer = session(Permissions { consume: true, ..Permissions::default() });
        assert!(!consumer.may(Operation::Produce) && consumer.may(Operation::Consume));
        let admin = session(Permissions { admin: true, ..Permissions::default() });
        assert!(admin.may(Operation::Produce) && admin.may(Operation::Consume));
        let nobody = session(Permissions::default());
        assert!(!nobody.may(Operation::Produce) && !nobody.may(Operation::Consume));
    }
}
