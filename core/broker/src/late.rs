//! Requests that know more than the tables here: a cursor of another node that names a range, or a topic, which this
//! one has not heard of yet.
//!
//! Owns those requests while the tables are asked for. Once they are as far as everything that was decided before the
//! request came, it is looked at again and believed to be wrong.
//!
//! - A cursor is refused, and a topic taken for one that does not exist, only by tables that are up to date.
//! - A group's fetch begins where the group committed last, wherever it did.
//! - Every request has one answer: when the tables cannot be asked for, that nothing can be said at the moment.

use std::collections::BTreeSet;

use types::{Instant, TopicName, VnodeId, limits};
use wire::Reason;

use crate::action::Reply;
use crate::auth::Session;
use crate::event::{Commit, ConnectionId, Fetch, Policies, RequestId};
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
    /// A fetch that begins where its group has committed. Where that cannot be learnt it begins where the group was,
    /// as far as is known here: it may be given records again, and misses none.
    Positions(Fetch, Instant),
    /// Positions.
    Commit(Session, Commit),
    /// Something about storage policies.
    Policies(Session, Policies),
}

impl Wanted {
    /// The groups whose tables it needs.
    fn groups(&self, home_of: impl Fn(&TopicName) -> VnodeId) -> Vec<VnodeId> {
        let name = match self {
            Self::Fetch(request, _) | Self::Positions(request, _) => &request.topic,
            Self::Commit(_, request) => &request.topic,
            Self::Policies(_, request) => return request.groups(home_of),
        };
        let name = TopicName::new(name.as_deref().unwrap_or_default()).ok();
        name.map(|name| home_of(&name)).into_iter().collect()
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

    /// Whether the tables here have the topic it reads.
    fn knows(&mut self, request: &Fetch) -> bool {
        request.topic.as_ref().is_some_and(|name| self.topic_entry(name).is_some())
    }

    fn ask_for_tables(&mut self) {
        self.late.asked = std::mem::take(&mut self.late.next);
        let meta = &self.core.meta;
        let groups = self.late.asked.iter().flat_map(|(_, wanted)| wanted.groups(|name| meta.home_of(name)));
        let groups: BTreeSet<VnodeId> = groups.collect();
        self.core.confirm(Purpose::Cursors, groups);
    }

    /// The tables are up to date, or that could not be found out.
    pub(crate) fn tables_confirmed(&mut self, confirmed: bool) {
        for (id, wanted) in std::mem::take(&mut self.late.asked) {
            match wanted {
                Wanted::Positions(request, deadline) if confirmed || self.knows(&request) => {
                    self.begin(id, request, deadline, true);
                }
                _ if !confirmed => self.core.reply(id, Reply::Failed(Reason::Unavailable)),
                Wanted::Fetch(request, deadline) | Wanted::Positions(request, deadline) => {
                    self.begin(id, request, deadline, true)
                }
                Wanted::Commit(session, request) => self.commit_surely(id, &session, &request),
                Wanted::Policies(session, request) => self.policies_surely(id, &session, request),
            }
        }
        if !self.late.next.is_empty() {
            self.ask_for_tables();
        }
    }
}
