//! Storing a group's positions.
//!
//! Owns the checks on group and cursor and the answers of `commit`. Merging the positions with those stored
//! is metadata's.

use bytes::Bytes;
use types::GroupName;
use types::cursor::Cursor;
use wire::Reason;

use crate::action::Reply;
use crate::auth::{Operation, Session};
use crate::event::{Commit, RequestId};
use crate::groups;
use crate::late::Wanted;
use crate::meta;
use crate::node::Node;
use crate::planted::Bug;

/// Why positions were not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The session may not consume.
    #[error("not allowed to consume")]
    Denied,
    /// The group's name is null or too long.
    #[error("not a group name")]
    InvalidGroup,
    /// There is no such topic.
    #[error("no such topic")]
    NoSuchTopic,
    /// The cursor was not issued for this topic.
    #[error("not a cursor of this topic")]
    InvalidCursor,
    /// No coordinator of the group is known or can be reached.
    #[error("the coordinator cannot be reached")]
    NotOwner,
    /// Too much is on its way to coordinators.
    #[error("too much is on its way")]
    Overloaded,
    /// Metadata refused or failed.
    #[error("metadata: {0}")]
    Meta(#[from] meta::Error),
}

impl Error {
    /// What the client is told.
    #[must_use]
    pub fn reason(self) -> Reason {
        match self {
            Self::Denied => Reason::PermissionDenied,
            Self::InvalidGroup => Reason::InvalidGroup,
            Self::NoSuchTopic | Self::Meta(meta::Error::NoSuchTopic) => Reason::NoSuchTopic,
            // The tiles passed every check here, so what metadata does not take was never issued.
            Self::InvalidCursor | Self::Meta(meta::Error::Refused) => Reason::InvalidCursor,
            Self::NotOwner => Reason::NotOwner,
            Self::Overloaded => Reason::Overloaded,
            Self::Meta(meta::Error::TooManyGroups) => Reason::TooManyGroups,
            Self::Meta(meta::Error::Unavailable) => Reason::Unavailable,
            Self::Meta(meta::Error::Migrating) => Reason::Migrating,
            Self::Meta(meta::Error::Unknown) => Reason::Timeout,
            Self::Meta(
                meta::Error::Sealed
                | meta::Error::NoSuchRange
                | meta::Error::CannotSplit
                | meta::Error::NotBuddies
                | meta::Error::InsufficientDomains
                | meta::Error::TooManyRanges
                | meta::Error::AlreadyExists
                | meta::Error::InvalidTopicName,
            ) => Reason::InternalError,
        }
    }
}

impl Node {
    /// Proposes the positions; answered when metadata has them.
    pub(crate) fn commit(&mut self, id: RequestId, session: &Session, request: &Commit) {
        if self.may_lag() && self.is_ahead(request) {
            return self.look_later(id, Wanted::Commit(session.clone(), request.clone()));
        }
        self.commit_surely(id, session, request);
    }

    /// Whether a request names what is not known here: another node may have heard of it earlier.
    fn is_ahead(&mut self, request: &Commit) -> bool {
        let cursor = request.cursor.as_ref().and_then(|token| Cursor::decode(token).ok());
        let Some(cursor) = cursor.filter(|cursor| !cursor.is_unborn()) else { return false };
        let topic = request.topic.as_ref().and_then(|name| self.topic(name));
        topic.is_none_or(|topic| cursor.topic != topic || !self.knows_tiles(topic, &cursor.tiles))
    }

    /// The same by tables that are as far as everything that was decided before the request came.
    pub(crate) fn commit_surely(&mut self, id: RequestId, session: &Session, request: &Commit) {
        let early = self.core.config.has_bug(Bug::LoseCommit);
        match self.try_commit(id, session, request) {
            Ok(Proposed::Yes) if early => self.core.reply(id, Reply::Committed),
            Ok(Proposed::Yes) => {}
            Ok(Proposed::Nothing) => self.core.reply(id, Reply::Committed),
            Err(error) => self.core.reply(id, Reply::Failed(error.reason())),
        }
    }

    fn try_commit(&mut self, id: RequestId, session: &Session, request: &Commit) -> Result<Proposed, Error> {
        let name = request.topic.clone().unwrap_or_default();
        if !self.may(session, Operation::Consume, &name) {
            return Err(Error::Denied);
        }
        let group = request.group.as_ref().ok_or(Error::InvalidGroup)?;
        let group = GroupName::new(group).map_err(|_| Error::InvalidGroup)?;
        let topic = self.topic(&name).ok_or(Error::NoSuchTopic)?;
        self.propose_positions(id, groups::Key { topic, group }, request.cursor.as_ref())
    }

    /// Proposes what a cursor says, as far as it is its holder's to say; answered by [`Node::committed`].
    pub(crate) fn propose_positions(
        &mut self,
        id: RequestId,
        key: groups::Key,
        token: Option<&Bytes>,
    ) -> Result<Proposed, Error> {
        let Some(token) = token else { return Ok(Proposed::Nothing) };
        let topic = key.topic;
        let cursor = Cursor::decode(token).map_err(|_| Error::InvalidCursor)?;
        if cursor.is_unborn() {
            return Ok(Proposed::Nothing);
        }
        if cursor.topic != topic || !self.knows_tiles(topic, &cursor.tiles) {
            return Err(Error::InvalidCursor);
        }
        let Cursor { member, mut tiles, .. } = cursor;
        if member.is_some() && !self.coordinates(&key) {
            return self.commit_elsewhere(id, key, token.clone()).map(|()| Proposed::Yes);
        }
        if let Some(holder) = &member
            && !self.core.config.has_bug(Bug::CommitForOthers)
        {
            tiles = self.groups.own_tiles(self.core.meta.of(topic), &key, holder, tiles);
        }
        if tiles.is_empty() {
            return Ok(Proposed::Nothing);
        }
        self.core.commit_positions(id, &key.group, topic, tiles);
        Ok(Proposed::Yes)
    }

    /// Metadata decided on positions.
    pub(crate) fn committed(&mut self, id: RequestId, result: Result<(), meta::Error>) {
        let result = result.map_err(Error::Meta);
        if !self.commit_served(id, result) {
            self.commit_done(id, result);
        }
    }

    /// Positions of a client of this node were decided on, wherever that was.
    pub(crate) fn commit_done(&mut self, id: RequestId, result: Result<(), Error>) {
        if self.stream_committed(id, result) || self.core.config.has_bug(Bug::LoseCommit) {
            return;
        }
        let reply = match (result, self.take_moved(id)) {
            (Ok(()), Some((lag_before, lag_after))) => Reply::GroupMoved { lag_before, lag_after },
            (Ok(()), None) => Reply::Committed,
            (Err(error), _) => Reply::Failed(error.reason()),
        };
        self.core.reply(id, reply);
    }
}

/// What became of a cursor.
pub(crate) enum Proposed {
    /// The answer follows.
    Yes,
    /// It moves nothing.
    Nothing,
}
