//! Requests that know more than the tables here: a cursor of another node that names a range, or a topic, which this
//! one has not heard of yet.
//!
//! Owns those requests while the tables are asked for. Once they are as far as everything that was decided before the
//! request came, it is looked at again and believed to be wrong.
//!
//! - A cursor is refused, and a topic taken for one that does not exist, only by tables that are up to date.
//! - Every request has one answer: when the tables cannot be asked for, that nothing can be said at the moment.

use types::{Instant, TopicName, limits};
use wire::Reason;

use crate::action::Reply;
use crate::auth::Session;
use crate::event::{Commit, ConnectionId, Fetch, RequestId};
use crate::meta::Purpose;
use crate::node::Node;

/// What waits for the tables.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// Came before the tables were asked for.
    asked: Vec<(RequestId, Wanted)>,
    /// Came since: the tables are asked for again.
    next: Vec<(RequestId, Wanted)>,
}

/// A request as it is made again.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// A fetch that may wait until then.
    Fetch(Fetch, Instant),
    /// Positions.
    Commit(Session, Commit),
}

impl Wanted {
    fn topic(&self) -> Option<TopicName> {
        let name = match self {
            Self::Fetch(request, _) => &request.topic,
            Self::Commit(_, request) => &request.topic,
        };
        TopicName::new(name.as_deref().unwrap_or_default()).ok()
    }
}

impl Late {
    /// A connection closed: nobody waits there.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        self.asked.retain(|(id, _)| id.connection != connection);
        self.next.retain(|(id, _)| id.connection != connection);
    }
}

impl Node {
    /// Whether the tables here may lag behind what somebody knows.
    pub(crate) fn may_lag(&self) -> bool {
        self.core.meta.cluster().nodes().nth(1).is_some()
    }

    /// Looks at a request again once the tables are up to date.
    pub(crate) fn look_later(&mut self, id: RequestId, wanted: Wanted) {
        if self.late.asked.len() + self.late.next.len() >= limits::WAITERS_MAX {
            return self.core.reply(id, Reply::Failed(Reason::Overloaded));
        }
        self.late.next.push((id, wanted));
        if self.late.asked.is_empty() {
            self.ask_for_tables();
        }
    }

    fn ask_for_tables(&mut self) {
        self.late.asked = std::mem::take(&mut self.late.next);
        let names = self.late.asked.iter().filter_map(|(_, wanted)| wanted.topic());
        let homes: std::collections::BTreeSet<_> = names.map(|name| self.core.meta.home_of(&name)).collect();
        self.core.confirm(Purpose::Cursors, homes);
    }

    /// The tables are up to date, or that could not be found out.
    pub(crate) fn tables_confirmed(&mut self, confirmed: bool) {
        for (id, wanted) in std::mem::take(&mut self.late.asked) {
            match wanted {
                _ if !confirmed => self.core.reply(id, Reply::Failed(Reason::Unavailable)),
                Wanted::Fetch(request, deadline) => self.begin(id, request, deadline, true),
                Wanted::Commit(session, request) => self.commit_surely(id, &session, &request),
            }
        }
        if !self.late.next.is_empty() {
            self.ask_for_tables();
        }
    }
}
