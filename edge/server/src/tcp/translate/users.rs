//! Users and their rights, for administrators.

use std::net::IpAddr;
use std::sync::Arc;

use broker::{Form, Permissions, Request, Right, Role, UserInfo, Users};
use bytes::Bytes;
use wire::request::Acl;
use wire::response::{Grant, User, UserPage, UserV2};
use wire::{ApiKey, Payload, Reason, Str};

use super::Ask;
use crate::audit::Change;

/// A change that needs a password hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tcp) enum NewPassword {
    /// Of a user that is made.
    Create { username: Bytes, permissions: Permissions },
    /// Of one there is.
    Change { username: Bytes },
}

impl NewPassword {
    /// What an auditor is told of it.
    pub(in crate::tcp) fn change(&self) -> Change {
        match self {
            Self::Create { username, permissions } => Change::created(username, *permissions),
            Self::Change { username } => Change::password(username),
        }
    }

    /// The request once the password was hashed.
    pub(in crate::tcp) fn with(self, hash: Arc<str>) -> Request {
        Request::Users(match self {
            Self::Create { username, permissions } => Users::Create { username, hash, permissions },
            Self::Change { username } => Users::ChangePassword { username, hash },
        })
    }
}

/// Whether it is for administrators only, whatever it carries.
pub(super) fn administers(key: ApiKey) -> bool {
    match key {
        ApiKey::CreateUser
        | ApiKey::DeleteUser
        | ApiKey::ChangePassword
        | ApiKey::ListUsers
        | ApiKey::GrantAcl
        | ApiKey::RevokeAcl
        | ApiKey::ListAcls
        | ApiKey::SetRole
        | ApiKey::ListUsersV2
        | ApiKey::DefinePolicy
        | ApiKey::DeletePolicy
        | ApiKey::BindTopicPolicy
        | ApiKey::GetPolicy
        | ApiKey::ListPolicies
        | ApiKey::UnlockUser
        | ApiKey::ListUsersPage
        | ApiKey::ClusterStatus
        | ApiKey::ChangeNode
        | ApiKey::DescribeRing
        | ApiKey::Reshard
        | ApiKey::Rebalance
        | ApiKey::ListFlags
        | ApiKey::EnableFlag
        | ApiKey::ListSegments
        | ApiKey::Explain => true,
        ApiKey::Auth
        | ApiKey::CreateTopic
        | ApiKey::Produce
        | ApiKey::Fetch
        | ApiKey::Commit
        | ApiKey::Subscribe
        | ApiKey::StreamAck
        | ApiKey::LeaveGroup
        | ApiKey::MtlsAuth
        | ApiKey::TokenAuth
        | ApiKey::Hello
        | ApiKey::ListTopics
        | ApiKey::DescribeTopic
        | ApiKey::SealTopic
        | ApiKey::DeleteTopic
        | ApiKey::SplitRange
        | ApiKey::MergeRanges
        | ApiKey::ProduceBatch
        | ApiKey::FetchBatches
        | ApiKey::SeekTime
        | ApiKey::ListGroups
        | ApiKey::DescribeGroup
        | ApiKey::MoveGroup
        | ApiKey::DeleteGroup
        | ApiKey::NewProducer
        | ApiKey::ProduceOnce => false,
    }
}

// Names and patterns are the node's to judge, and null is one that nobody has; what is left is judged here.

pub(super) fn create(username: Str, password: Str, permissions: &[Str]) -> Ask {
    let Some(permissions) = parse_permissions(permissions) else {
        return Ask::Refuse(Reason::InvalidPermissions);
    };
    let username = username.unwrap_or_default();
    with_password(NewPassword::Create { username, permissions }, password)
}

pub(super) fn change_password(username: Str, password: Str) -> Ask {
    with_password(NewPassword::Change { username: username.unwrap_or_default() }, password)
}

pub(super) fn delete(username: Str) -> Ask {
    node(Users::Delete { username: username.unwrap_or_default() })
}

pub(super) fn list() -> Ask {
    node(Users::List)
}

pub(super) fn list_roles() -> Ask {
    node(Users::ListRoles)
}

pub(super) fn list_page(after: Str, max: u32) -> Ask {
    node(Users::ListPage { after, max })
}

pub(super) fn set_role(username: Str, role: Str) -> Ask {
    node(Users::SetRole { username: username.unwrap_or_default(), role })
}

/// An address is as logins are counted under it.
pub(super) fn unlock(username: Str, address: Str) -> Ask {
    let parse = |address: Bytes| std::str::from_utf8(&address).ok()?.parse::<IpAddr>().ok();
    match address.map(|address| parse(address).ok_or(Reason::MalformedRequest)).transpose() {
        Ok(address) => {
            let address = address.map(|address| address.to_canonical().to_string().into());
            node(Users::Unlock { username: username.unwrap_or_default(), address })
        }
        Err(reason) => Ask::Refuse(reason),
    }
}

pub(super) fn grant(acl: Acl) -> Ask {
    node(Users::Grant(right(acl)))
}

pub(super) fn revoke(acl: Acl) -> Ask {
    node(Users::Revoke(right(acl)))
}

pub(super) fn list_rights(username: Str) -> Ask {
    node(Users::ListRights { username: username.unwrap_or_default() })
}

fn node(users: Users) -> Ask {
    Ask::Node(Request::Users(users), Form::Records)
}

fn with_password(change: NewPassword, password: Str) -> Ask {
    match password {
        Some(password) => Ask::Hash(change, password),
        None => Ask::Refuse(Reason::InvalidPassword),
    }
}

fn right(acl: Acl) -> Right {
    Right {
        username: acl.username.unwrap_or_default(),
        operation: acl.operation.unwrap_or_default(),
        pattern: acl.pattern.unwrap_or_default(),
    }
}

fn parse_permissions(list: &[Str]) -> Option<Permissions> {
    let mut permissions = Permissions::default();
    for permission in list {
        match permission.as_deref()? {
            b"admin" => permissions.admin = true,
            b"produce" => permissions.produce = true,
            b"consume" => permissions.consume = true,
            _ => return None,
        }
    }
    Some(permissions)
}

pub(super) fn users(users: Vec<UserInfo>) -> Payload {
    let user = |user: UserInfo| User {
        username: Some(Bytes::copy_from_slice(user.name.as_bytes())),
        permissions: permission_names(user.permissions),
    };
    Payload::Users(users.into_iter().map(user).collect())
}

pub(super) fn users_and_roles(users: Vec<UserInfo>) -> Payload {
    Payload::UsersV2(users.into_iter().map(with_role).collect())
}

pub(super) fn user_page(users: Vec<UserInfo>, more: bool) -> Payload {
    Payload::UserPage(UserPage { users: users.into_iter().map(with_role).collect(), more })
}

fn with_role(user: UserInfo) -> UserV2 {
    let role = |role| match role {
        Role::Viewer => "viewer",
        Role::Operator => "operator",
        Role::Admin => "admin",
    };
    UserV2 {
        username: Some(Bytes::copy_from_slice(user.name.as_bytes())),
        role: user.role.map(|of| Bytes::from_static(role(of).as_bytes())),
        permissions: permission_names(user.permissions),
    }
}

fn permission_names(permissions: Permissions) -> Vec<Str> {
    let Permissions { admin, produce, consume } = permissions;
    let all = [("admin", admin), ("produce", produce), ("consume", consume)];
    let given = all.into_iter().filter(|(_, given)| *given);
    given.map(|(name, _)| Some(Bytes::from_static(name.as_bytes()))).collect()
}

pub(super) fn rights(rights: Vec<(&'static str, String)>) -> Payload {
    let grant = |(operation, pattern): (&'static str, String)| Grant {
        operation: Some(Bytes::from_static(operation.as_bytes())),
        pattern: Some(pattern.into()),
    };
    Payload::Grants(rights.into_iter().map(grant).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_the_three_words_and_nothing_else() {
        let parse = |words: &[&'static str]| {
            let words: Vec<Str> =
                words.iter().map(|word| Some(Bytes::from_static(word.as_bytes()))).collect();
            parse_permissions(&words)
        };
        let both = Permissions { produce: true, consume: true, ..Permissions::default() };
        assert_eq!(parse(&["produce", "consume", "produce"]), Some(both));
        assert_eq!(parse(&[]), Some(Permissions::default()));
        assert_eq!(parse(&["admin", "root"]), None);
        assert_eq!(parse(&["Admin"]), None);
        assert_eq!(parse_permissions(&[None]), None);
        assert_eq!(permission_names(both), [Some("produce".into()), Some("consume".into())]);
    }

    #[test]
    fn what_is_wrong_with_a_user_is_told_to_administrators_only() {
        let create = |password: Option<&'static str>, permission: &'static str| {
            create(Some("u".into()), password.map(Bytes::from), &[Some(permission.into())])
        };
        assert!(matches!(create(Some("p"), "admin"), Ask::Hash(NewPassword::Create { .. }, _)));
        assert!(matches!(create(Some("p"), "x"), Ask::Refuse(Reason::InvalidPermissions)));
        assert!(matches!(create(None, "admin"), Ask::Refuse(Reason::InvalidPassword)));
    }

    #[test]
    fn an_address_is_taken_as_logins_are_counted_under_it() {
        let unlock = |address: Option<&'static str>| unlock(Some("u".into()), address.map(Bytes::from));
        for (given, counted) in [("::ffff:192.0.2.7", "192.0.2.7"), ("2001:DB8::1", "2001:db8::1")] {
            let Ask::Node(Request::Users(Users::Unlock { address, .. }), _) = unlock(Some(given)) else {
                panic!("{given}")
            };
            assert_eq!(address.as_deref(), Some(counted));
        }
        assert!(matches!(unlock(Some("somewhere")), Ask::Refuse(Reason::MalformedRequest)));
        assert!(matches!(unlock(None), Ask::Node(Request::Users(Users::Unlock { address: None, .. }), _)));
    }
}
