//! Between the protocol's messages and the node's.
//!
//! Owns which operations this build has, and the order of checks before the node is asked: a topic
//! operation's payload is decoded first, an administrator's permission is looked at first.

use broker::{Commit, Fetch, Permissions, Produce, Reply, Request};
use bytes::Bytes;
use wire::response::Page;
use wire::{ApiKey, Payload, Reason, Response};

/// What the node is to be asked, or the refusal.
pub(super) fn request(api_key: u16, payload: Bytes, permissions: Permissions) -> Result<Request, Reason> {
    let key = ApiKey::from_number(api_key).ok_or(Reason::UnknownApiKey)?;
    if is_admin(key) && !permissions.admin {
        return Err(Reason::PermissionDenied);
    }
    // Authentication happened, and no stream is open: whatever they carry, these are no operations here.
    if key.authenticates() || key == ApiKey::StreamAck {
        return Err(Reason::UnknownApiKey);
    }
    let request = wire::Request::decode(key, payload).map_err(|_| Reason::MalformedRequest)?;
    match request {
        wire::Request::CreateTopic { topic, keyspace_bits } => {
            Ok(Request::CreateTopic { topic, keyspace_bits })
        }
        wire::Request::Produce(wire::request::Produce { topic, records, count }) => {
            let crc = crc32fast::hash(&records);
            Ok(Request::Produce(Produce { topic, records, count, crc }))
        }
        wire::Request::Fetch(wire::request::Fetch { topic, cursor, group, member, max, wait_ms }) => {
            Ok(Request::Fetch(Fetch { topic, cursor, group, member, max, wait_ms }))
        }
        wire::Request::Commit(wire::request::Commit { topic, group, cursor }) => {
            Ok(Request::Commit(Commit { topic, group, cursor }))
        }
        wire::Request::LeaveGroup { topic, .. } => Ok(Request::LeaveGroup { topic }),
        // Not in this build: nothing else would be true.
        wire::Request::Subscribe(_)
        | wire::Request::CreateUser { .. }
        | wire::Request::DeleteUser { .. }
        | wire::Request::ChangePassword { .. }
        | wire::Request::ListUsers
        | wire::Request::GrantAcl(_)
        | wire::Request::RevokeAcl(_)
        | wire::Request::ListAcls { .. }
        | wire::Request::Auth { .. }
        | wire::Request::MtlsAuth
        | wire::Request::TokenAuth { .. }
        | wire::Request::StreamAck(_) => Err(Reason::UnknownApiKey),
    }
}

fn is_admin(key: ApiKey) -> bool {
    match key {
        ApiKey::CreateUser
        | ApiKey::DeleteUser
        | ApiKey::ChangePassword
        | ApiKey::ListUsers
        | ApiKey::GrantAcl
        | ApiKey::RevokeAcl
        | ApiKey::ListAcls => true,
        ApiKey::Auth
        | ApiKey::CreateTopic
        | ApiKey::Produce
        | ApiKey::Fetch
        | ApiKey::Commit
        | ApiKey::Subscribe
        | ApiKey::StreamAck
        | ApiKey::LeaveGroup
        | ApiKey::MtlsAuth
        | ApiKey::TokenAuth => false,
    }
}

/// The node's answer as it goes out.
pub(super) fn response(reply: Reply) -> Response {
    match reply {
        Reply::Created | Reply::Committed | Reply::Left => Response::Ok(Payload::Empty),
        Reply::Stored(count) => Response::Ok(Payload::Stored(count)),
        Reply::Fetched(fetched) => {
            let page = Page { count: fetched.count, records: fetched.records, next_cursor: fetched.cursor };
            Response::Ok(Payload::Page(page))
        }
        Reply::Failed(reason) => Response::Error(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMIN: Permissions = Permissions { admin: true, produce: false, consume: false };

    fn refusal(api_key: u16, payload: &'static [u8], permissions: Permissions) -> Option<Reason> {
        request(api_key, Bytes::from_static(payload), permissions).err()
    }

    #[test]
    fn checks_come_in_the_documented_order() {
        let nobody = Permissions::default();
        assert_eq!(refusal(1, b"garbage", nobody), Some(Reason::MalformedRequest));
        assert_eq!(refusal(8, b"garbage", nobody), Some(Reason::PermissionDenied));
        assert_eq!(refusal(8, b"garbage", ADMIN), Some(Reason::MalformedRequest));
        for api_key in [0, 6, 12, 13, 17, 31, 65535] {
            assert_eq!(refusal(api_key, b"garbage", ADMIN), Some(Reason::UnknownApiKey), "{api_key}");
        }
    }
}
