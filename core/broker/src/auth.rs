//! May this session do that?
//!
//! Owns the decision, which is made anew for every request from the user as it is now: a change of permissions or
//! rights holds from the next request on. Does not verify anybody: that is `login` and the edge.

use std::sync::Arc;

use metadata::cluster::User;
pub use metadata::cluster::{Operation, Permissions, Role};
use types::TopicName;

use crate::node::Node;

/// Who asks: a user who proved to be one, see [`Login`](crate::Login).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The user's name.
    pub user: Arc<str>,
    /// Of the password, or the other proof, with which it began. When the user has a later one it is over.
    pub revision: u64,
}

impl Node {
    /// Whether the session may do `operation` on the topic of that name.
    pub(crate) fn may(&self, session: &Session, operation: Operation, topic: &[u8]) -> bool {
        let Some(user) = self.user_of(session) else { return false };
        let everywhere = match operation {
            Operation::Produce => user.permissions.produce,
            Operation::Consume => user.permissions.consume,
        };
        let granted = || {
            let topic = TopicName::new(topic);
            topic.is_ok_and(|topic| self.core.meta.cluster().is_granted(&session.user, operation, &topic))
        };
        user.permissions.admin || (everywhere && !self.core.config.acl_strict) || granted()
    }

    /// Whether the session may change everything.
    pub(crate) fn is_admin(&self, session: &Session) -> bool {
        self.user_of(session).is_some_and(|user| user.permissions.admin)
    }

    /// Whether the session may look at the operator's surfaces: every role may, and administrators.
    pub(crate) fn may_look(&self, session: &Session) -> bool {
        self.user_of(session).is_some_and(|user| user.permissions.admin || user.role.is_some())
    }

    /// The user as it is now, unless the session is over.
    fn user_of(&self, session: &Session) -> Option<&User> {
        let user = self.core.meta.cluster().user(&session.user)?;
        (user.revision.0 == session.revision).then_some(user)
    }
}
