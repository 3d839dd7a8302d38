//! Groups that are put somewhere else, or forgotten, because a person wants it.
//!
//! Owns the check that nobody reads as the group meanwhile, which its coordinator knows, and what is told of it. That a
//! position is stored or removed is a commit, or an expiry, like any other. A member that reads in spite of it, because
//! it was forced, goes on where the group is put with its next fetch; a push stream goes on where it was, and puts the
//! group there again with its next commit.
//!
//! Invariants:
//! - nothing is changed unless a coordinator said that there are no members, or it was not to be asked;
//! - each request has one answer.

use bytes::Bytes;
use types::cursor::{Cursor, Tile};
use types::{GroupName, TopicId};
use wire::Reason;
use wire::request::MoveGroup;

use super::Key;
use crate::action::Reply;
use crate::auth::{Operation, Session};
use crate::event::RequestId;
use crate::meta;
use crate::node::Node;
use crate::tiles;

/// What is to become of a group.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    /// It is to stand there.
    Move { tiles: Vec<Tile>, dry_run: bool },
    /// It is to be forgotten.
    Delete,
}

/// What was told of a group that is being moved: what it lacks before and after.
pub(crate) type Lags = (u64, u64);

impl Node {
    /// Puts a group somewhere else; answered when that is stored, or would be.
    pub(crate) fn move_group(&mut self, id: RequestId, session: &Session, request: &MoveGroup) {
        let MoveGroup { topic, group, cursor, like, force, dry_run } = request;
        let wish = self.group_named(session, topic.as_ref(), group.as_ref()).and_then(|key| {
            let tiles = match (cursor, like) {
                (Some(cursor), None) => self.tiles_of_cursor(key.topic, cursor)?,
                (None, Some(like)) => self.tiles_of_group(key.topic, like)?,
                (Some(_), Some(_)) | (None, None) => return Err(Reason::InvalidCursor),
            };
            Ok((key, Wish::Move { tiles, dry_run: *dry_run }))
        });
        self.wish_for(id, wish, *force);
    }

    /// Forgets a group; answered when that is recorded.
    pub(crate) fn delete_group(
        &mut self,
        id: RequestId,
        session: &Session,
        (topic, group): (Option<&Bytes>, Option<&Bytes>),
        force: bool,
    ) {
        let wish = self.group_named(session, topic, group).map(|key| (key, Wish::Delete));
        self.wish_for(id, wish, force);
    }

    fn wish_for(&mut self, id: RequestId, wish: Result<(Key, Wish), Reason>, force: bool) {
        match wish {
            Err(reason) => self.core.reply(id, Reply::Failed(reason)),
            Ok((key, wish)) if force => self.grant(id, key, wish),
            Ok((key, wish)) if self.coordinates(&key) => {
                let has_members = self.groups.groups.get(&key).is_some_and(|group| !group.members.is_empty());
                self.grant_unless(id, key, wish, has_members);
            }
            // Who its members are is known elsewhere.
            Ok((key, wish)) => {
                if !self.ask_members_for(id, &key, wish) {
                    self.core.reply(id, Reply::Failed(Reason::NotOwner));
                }
            }
        }
    }

    /// The coordinator said whether the group has members.
    pub(super) fn grant_unless(&mut self, id: RequestId, key: Key, wish: Wish, has_members: bool) {
        if has_members {
            self.core.reply(id, Reply::Failed(Reason::GroupActive));
        } else {
            self.grant(id, key, wish);
        }
    }

    fn grant(&mut self, id: RequestId, key: Key, wish: Wish) {
        match wish {
            Wish::Delete => self.core.delete_group(id, key.topic, &key.group),
            Wish::Move { tiles, dry_run } => {
                let (lag_before, _) = self.lag(key.topic, &self.core.positions(&key.group, key.topic));
                let (lag_after, _) = self.lag(key.topic, &tiles);
                if dry_run {
                    return self.core.reply(id, Reply::GroupMoved { lag_before, lag_after });
                }
                self.attending.commits.moves.insert(id, (lag_before, lag_after));
                self.core.commit_positions(id, &key.group, key.topic, tiles);
            }
        }
    }

    /// What was told of a group whose new position was decided on.
    pub(crate) fn take_moved(&mut self, id: RequestId) -> Option<Lags> {
        self.attending.commits.moves.remove(&id)
    }

    /// Metadata decided on a group that is to be forgotten.
    pub(crate) fn group_deleted(&mut self, id: RequestId, result: Result<(), meta::Error>) {
        let reply = match result {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Failed(match error {
                meta::Error::NoSuchTopic => Reason::NoSuchTopic,
                meta::Error::Migrating => Reason::Migrating,
                meta::Error::Unavailable => Reason::Unavailable,
                meta::Error::Unknown => Reason::Timeout,
                // It is there for ever, or is not: nothing else can be wrong with it.
                meta::Error::Refused => Reason::NoSuchGroup,
                meta::Error::AlreadyExists
                | meta::Error::InvalidTopicName
                | meta::Error::NoSuchRange
                | meta::Error::CannotSplit
                | meta::Error::NotBuddies
                | meta::Error::TooManyRanges
                | meta::Error::Sealed
                | meta::Error::TooManyGroups
                | meta::Error::InsufficientDomains => Reason::InternalError,
            }),
        };
        self.core.reply(id, reply);
    }

    fn group_named(
        &mut self,
        session: &Session,
        topic: Option<&Bytes>,
        group: Option<&Bytes>,
    ) -> Result<Key, Reason> {
        let name = topic.map(|topic| &topic[..]).unwrap_or_default();
        if !self.may(session, Operation::Consume, name) {
            return Err(Reason::PermissionDenied);
        }
        let group = group.and_then(|group| GroupName::new(group).ok()).ok_or(Reason::InvalidGroup)?;
        let topic = topic.and_then(|name| self.topic(name)).ok_or(Reason::NoSuchTopic)?;
        Ok(Key { topic, group })
    }

    /// Where a cursor over all of a topic stands.
    fn tiles_of_cursor(&self, topic: TopicId, token: &Bytes) -> Result<Vec<Tile>, Reason> {
        let cursor = Cursor::decode(token).map_err(|_| Reason::InvalidCursor)?;
        let whole = self.core.meta.of(topic).whole_of(topic).ok_or(Reason::NoSuchTopic)?;
        let covered: u64 = cursor.tiles.iter().map(|tile| tile.span.size()).sum();
        let fits = cursor.topic == topic && cursor.member.is_none() && covered == whole.size();
        if fits && self.knows_tiles(topic, &cursor.tiles) {
            Ok(cursor.tiles)
        } else {
            Err(Reason::InvalidCursor)
        }
    }

    /// Where another group stands, as far as is known here; what it has not read is read from the beginning.
    fn tiles_of_group(&self, topic: TopicId, like: &Bytes) -> Result<Vec<Tile>, Reason> {
        let like = GroupName::new(like).map_err(|_| Reason::InvalidGroup)?;
        let vnode = self.core.meta.of(topic);
        let known = vnode.positions(topic, &like);
        let whole = vnode.whole_of(topic).filter(|_| !known.is_empty()).ok_or(Reason::NoSuchGroup)?;
        Ok(tiles::coalesce(tiles::start(known, &[], &[whole])))
    }
}
