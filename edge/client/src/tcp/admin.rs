//! Topics, ranges, groups and users: one method for each operation, and whole lists from their pages.

use std::net::IpAddr;

use bytes::Bytes;
use wire::request::{Acl, MoveGroup};
use wire::response::{
    Grant, GroupInfo, GroupNames, RangeInfo, TopicInfo, TopicSummaries, TopicSummary, User, UserPage, UserV2,
};
use wire::{Payload, Request, Str};

use super::Client;
use super::client::{mismatch, string};
use crate::Error;

/// Items asked for at a time when a whole list is wanted.
pub(super) const PAGE: u32 = 1000;

/// Where a group is to be put, and whether that is meant.
#[derive(Clone, Copy, Debug)]
pub struct GroupMove<'a> {
    /// Where to.
    pub to: GroupTarget<'a>,
    /// Also while it has members.
    pub force: bool,
    /// Nothing is changed, and what would be is told.
    pub dry_run: bool,
}

/// Where a group is to stand.
#[derive(Clone, Copy, Debug)]
pub enum GroupTarget<'a> {
    /// Where a cursor of the topic does that was not issued to a member.
    Cursor(&'a [u8]),
    /// Where another group of the topic does.
    Like(&'a [u8]),
}

impl Client {
    /// Makes a topic of `2^keyspace_bits` key positions; 0 takes the broker's default.
    pub async fn create_topic(&self, topic: &str, keyspace_bits: u8) -> Result<(), Error> {
        self.done(Request::CreateTopic { topic: text(topic), keyspace_bits }).await
    }

    /// Some topics whose names begin with `prefix`, in order, after a name when one is given; `max` 0 takes
    /// the broker's default.
    pub async fn list_topics(
        &self,
        prefix: &str,
        after: Option<&[u8]>,
        max: u32,
    ) -> Result<TopicSummaries, Error> {
        let request = Request::ListTopics { prefix: text(prefix), after: after.and_then(string), max };
        let Payload::Topics(topics) = self.call(request).await? else { return Err(mismatch()) };
        Ok(topics)
    }

    /// All topics whose names begin with `prefix`, in order.
    pub async fn topics(&self, prefix: &str) -> Result<Vec<TopicSummary>, Error> {
        let mut all: Vec<TopicSummary> = Vec::new();
        loop {
            let after = all.last().map(|topic| topic.name.clone());
            let page = self.list_topics(prefix, after.as_deref(), PAGE).await?;
            let more = goes_on(page.more, after, page.topics.last().map(|topic| topic.name.clone()))?;
            all.extend(page.topics);
            if !more {
                return Ok(all);
            }
        }
    }

    /// A topic and some of its ranges, from a number on, inclusive; `max` 0 takes the broker's default.
    pub async fn describe_topic(&self, topic: &str, from_range: u64, max: u32) -> Result<TopicInfo, Error> {
        let request = Request::DescribeTopic { topic: text(topic), from_range, max };
        let Payload::Topic(topic) = self.call(request).await? else { return Err(mismatch()) };
        Ok(topic)
    }

    /// A topic with all its ranges, in order of their numbers.
    pub async fn topic(&self, topic: &str) -> Result<(TopicSummary, Vec<RangeInfo>), Error> {
        let (mut all, mut from): (Vec<RangeInfo>, u64) = (Vec::new(), 0);
        loop {
            let page = self.describe_topic(topic, from, PAGE).await?;
            let last = page.ranges.last().map(|range| range.range);
            all.extend(page.ranges);
            match last.and_then(|last| last.checked_add(1)) {
                Some(next) if page.more && next > from => from = next,
                Some(_) | None if page.more => return Err(stuck()),
                Some(_) | None => return Ok((page.summary, all)),
            }
        }
    }

    /// Ends a topic for writers; what it holds stays readable.
    pub async fn seal_topic(&self, topic: &str) -> Result<(), Error> {
        self.done(Request::SealTopic { topic: text(topic) }).await
    }

    /// Removes a topic, its records and what groups committed on it.
    pub async fn delete_topic(&self, topic: &str) -> Result<(), Error> {
        self.done(Request::DeleteTopic { topic: text(topic) }).await
    }

    /// Replaces a range by its two halves; gives their numbers, lower half first.
    pub async fn split_range(&self, topic: &str, range: u64) -> Result<(u64, u64), Error> {
        let request = Request::SplitRange { topic: text(topic), range };
        let Payload::Split { left, right } = self.call(request).await? else { return Err(mismatch()) };
        Ok((left, right))
    }

    /// Replaces two ranges that are the halves of one block by one; gives its number.
    pub async fn merge_ranges(&self, topic: &str, a: u64, b: u64) -> Result<u64, Error> {
        let request = Request::MergeRanges { topic: text(topic), a, b };
        let Payload::Merged(child) = self.call(request).await? else { return Err(mismatch()) };
        Ok(child)
    }

    /// Some groups of a topic, in order of their names, after one when it is given; `max` 0 takes the
    /// broker's default.
    pub async fn list_groups(
        &self,
        topic: &str,
        after: Option<&[u8]>,
        max: u32,
    ) -> Result<GroupNames, Error> {
        let request = Request::ListGroups { topic: text(topic), after: after.and_then(string), max };
        let Payload::Groups(groups) = self.call(request).await? else { return Err(mismatch()) };
        Ok(groups)
    }

    /// Names of all groups of a topic, in order.
    pub async fn groups(&self, topic: &str) -> Result<Vec<Bytes>, Error> {
        let mut all: Vec<Bytes> = Vec::new();
        loop {
            let after = all.last().cloned();
            let page = self.list_groups(topic, after.as_deref(), PAGE).await?;
            let more = goes_on(page.more, after, page.names.last().cloned())?;
            all.extend(page.names);
            if !more {
                return Ok(all);
            }
        }
    }

    /// A group's members and how far it is behind.
    pub async fn describe_group(&self, topic: &str, group: &[u8]) -> Result<GroupInfo, Error> {
        let request = Request::DescribeGroup { topic: text(topic), group: string(group) };
        let Payload::Group(group) = self.call(request).await? else { return Err(mismatch()) };
        Ok(group)
    }

    /// Puts a group where a cursor of the topic stands ([`seek_time`](Self::seek_time) gives one), or where another
    /// group does; gives the records it had not committed before, and has not after. Refused with `group_active` while
    /// the group has members, unless `force`. With `dry_run` nothing changes.
    pub async fn move_group(
        &self,
        topic: &str,
        group: &[u8],
        moves: GroupMove<'_>,
    ) -> Result<(u64, u64), Error> {
        let GroupMove { to, force, dry_run } = moves;
        let (cursor, like) = match to {
            GroupTarget::Cursor(cursor) => (string(cursor), None),
            GroupTarget::Like(other) => (None, string(other)),
        };
        let (topic, group) = (text(topic), string(group));
        let request = Request::MoveGroup(MoveGroup { topic, group, cursor, like, force, dry_run });
        let Payload::GroupMoved { lag_before, lag_after } = self.call(request).await? else {
            return Err(mismatch());
        };
        Ok((lag_before, lag_after))
    }

    /// Forgets a group and where it stands. Refused like [`move_group`](Self::move_group).
    pub async fn delete_group(&self, topic: &str, group: &[u8], force: bool) -> Result<(), Error> {
        self.done(Request::DeleteGroup { topic: text(topic), group: string(group), force }).await
    }

    /// Makes a user with permissions among `admin`, `produce` and `consume`. The password is sent in clear.
    pub async fn create_user(
        &self,
        username: &str,
        password: &str,
        permissions: &[&str],
    ) -> Result<(), Error> {
        let permissions = permissions.iter().map(|permission| text(permission)).collect();
        let (username, password) = (text(username), text(password));
        self.done(Request::CreateUser { username, password, permissions }).await
    }

    /// Removes a user, its rights and its sessions; fine when there is none.
    pub async fn delete_user(&self, username: &str) -> Result<(), Error> {
        self.done(Request::DeleteUser { username: text(username) }).await
    }

    /// Sets a user's password, sent in clear.
    pub async fn change_password(&self, username: &str, new_password: &str) -> Result<(), Error> {
        let (username, new_password) = (text(username), text(new_password));
        self.done(Request::ChangePassword { username, new_password }).await
    }

    /// All users and what they may do, in no order.
    pub async fn list_users(&self) -> Result<Vec<User>, Error> {
        let Payload::Users(users) = self.call(Request::ListUsers).await? else { return Err(mismatch()) };
        Ok(users)
    }

    /// All users with their roles and what they may do, in no order.
    pub async fn list_users_v2(&self) -> Result<Vec<UserV2>, Error> {
        let payload = self.call(Request::ListUsersV2).await?;
        let Payload::UsersV2(users) = payload else { return Err(mismatch()) };
        Ok(users)
    }

    /// Some users with their roles, in order of their names, after one when it is given; `max` 0 takes the
    /// broker's default.
    pub async fn list_users_page(&self, after: Option<&[u8]>, max: u32) -> Result<UserPage, Error> {
        let request = Request::ListUsersPage { after: after.and_then(string), max };
        let Payload::UserPage(page) = self.call(request).await? else { return Err(mismatch()) };
        Ok(page)
    }

    /// All users with their roles, in order of their names, however many there are.
    pub async fn users(&self) -> Result<Vec<UserV2>, Error> {
        let mut all: Vec<UserV2> = Vec::new();
        loop {
            let name = |user: &UserV2| user.username.clone().unwrap_or_default();
            let after = all.last().map(name);
            let page = self.list_users_page(after.as_deref(), PAGE).await?;
            let more = goes_on(page.more, after, page.users.last().map(name))?;
            all.extend(page.users);
            if !more {
                return Ok(all);
            }
        }
    }

    /// Forgets the failed logins of a user, from one address or all; gives from how many there were any.
    pub async fn unlock_user(&self, username: &str, address: Option<IpAddr>) -> Result<u32, Error> {
        let address = address.and_then(|address| text(&address.to_string()));
        let payload = self.call(Request::UnlockUser { username: text(username), address }).await?;
        let Payload::Unlocked(addresses) = payload else { return Err(mismatch()) };
        Ok(addresses)
    }

    /// Gives a user a role in the console, or takes it away.
    pub async fn set_role(&self, username: &str, role: Option<&str>) -> Result<(), Error> {
        self.done(Request::SetRole { username: text(username), role: role.and_then(text) }).await
    }

    /// Gives a user a right, `produce` or `consume`, on the topics a pattern names.
    pub async fn grant_acl(&self, username: &str, operation: &str, pattern: &str) -> Result<(), Error> {
        self.done(Request::GrantAcl(acl(username, operation, pattern))).await
    }

    /// Takes a right away; fine when there is none.
    pub async fn revoke_acl(&self, username: &str, operation: &str, pattern: &str) -> Result<(), Error> {
        self.done(Request::RevokeAcl(acl(username, operation, pattern))).await
    }

    /// A user's rights, in no order.
    pub async fn list_acls(&self, username: &str) -> Result<Vec<Grant>, Error> {
        let payload = self.call(Request::ListAcls { username: text(username) }).await?;
        let Payload::Grants(grants) = payload else { return Err(mismatch()) };
        Ok(grants)
    }
}

fn acl(username: &str, operation: &str, pattern: &str) -> Acl {
    Acl { username: text(username), operation: text(operation), pattern: text(pattern) }
}

pub(super) fn text(text: &str) -> Str {
    string(text.as_bytes())
}

/// Whether another page is to be asked for. A broker that says so without having gone on would be asked for
/// ever.
fn goes_on(more: bool, after: Option<Bytes>, last: Option<Bytes>) -> Result<bool, Error> {
    if more && last <= after { Err(stuck()) } else { Ok(more) }
}

pub(super) fn stuck() -> Error {
    Error::Protocol("a list that does not go on".to_owned())
}
