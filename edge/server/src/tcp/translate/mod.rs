//! Between the protocol's messages and the node's.
//!
//! Owns which operations this build has, and the order of checks before the node is asked: a topic operation's
//! payload is decoded first, an administrator's permission is looked at first. Only the node knows permissions, so
//! an administrator's request that cannot be served is refused through it.

mod policies;
mod records;
mod topics;
mod users;

use broker::{Admin, Form, OfCluster, Reply, Request};
use bytes::Bytes;
use types::limits;
use wire::response::Hello;
use wire::{ApiKey, Payload, Reason, Response, features};

pub(super) use records::page;
pub(super) use users::NewPassword;

/// What becomes of a request.
#[derive(Debug)]
pub(super) enum Ask {
    /// The node is asked; records it gives are answered in this form.
    Node(Request, Form),
    /// The same once a password was hashed, which is done for administrators only.
    Hash(NewPassword, Bytes),
    /// Refused with this reason, if the session may administer; else with the node's.
    Refuse(Reason),
    /// Answered here.
    Answer(Response),
}

/// What to do with a request of a connection without a stream, or the refusal.
pub(super) fn request(api_key: u16, payload: Bytes, frame_bytes_max: usize) -> Result<Ask, Reason> {
    let key = ApiKey::from_number(api_key).ok_or(Reason::UnknownApiKey)?;
    // Authentication happened, and no stream is open: whatever they carry, these are no operations here.
    if key.authenticates() || key == ApiKey::StreamAck {
        return Err(Reason::UnknownApiKey);
    }
    match wire::Request::decode(key, payload) {
        Ok(request) => of_message(request, frame_bytes_max),
        Err(_) if users::administers(key) => Ok(Ask::Refuse(Reason::MalformedRequest)),
        Err(_) => Err(Reason::MalformedRequest),
    }
}

fn of_message(request: wire::Request, frame_bytes_max: usize) -> Result<Ask, Reason> {
    use wire::Request as R;
    match request {
        R::Produce(produce) => Ok(node(records::produce(produce))),
        R::ProduceBatch(batch) => records::produce_batch(batch).map(node),
        R::ProduceOnce(once) => records::produce_once(once).map(node),
        R::NewProducer { topic } => Ok(node(Request::NewProducer { topic })),
        R::Fetch(fetch) => Ok(node(records::fetch(fetch, Form::Records))),
        R::FetchBatches(fetch) => Ok(Ask::Node(records::fetch(fetch, Form::Batches), Form::Batches)),
        R::Commit(commit) => Ok(node(records::commit(commit))),
        R::Subscribe(subscribe) => Ok(node(records::subscribe(subscribe))),
        R::LeaveGroup { topic, group, member } => Ok(node(records::leave(topic, group, member))),
        R::CreateTopic { topic, keyspace_bits } => Ok(node(Request::CreateTopic { topic, keyspace_bits })),
        R::ListTopics { prefix, after, max } => Ok(admin(Admin::ListTopics { prefix, after, max })),
        R::DescribeTopic { topic, from_range, max } => {
            Ok(admin(Admin::DescribeTopic { topic, from_range, max }))
        }
        R::SealTopic { topic } => Ok(admin(Admin::SealTopic { topic })),
        R::DeleteTopic { topic } => Ok(admin(Admin::DeleteTopic { topic })),
        R::SplitRange { topic, range } => Ok(admin(Admin::SplitRange { topic, range })),
        R::MergeRanges { topic, a, b } => Ok(admin(Admin::MergeRanges { topic, a, b })),
        R::SeekTime { topic, at_ms } => Ok(admin(Admin::SeekTime { topic, at_ms })),
        R::ListGroups { topic, after, max } => Ok(admin(Admin::ListGroups { topic, after, max })),
        R::MoveGroup(moves) => Ok(admin(Admin::MoveGroup(moves))),
        R::DeleteGroup { topic, group, force } => Ok(admin(Admin::DeleteGroup { topic, group, force })),
        R::DescribeGroup { topic, group } => Ok(admin(Admin::DescribeGroup { topic, group })),
        R::CreateUser { username, password, permissions } => {
            Ok(users::create(username, password, &permissions))
        }
        R::ChangePassword { username, new_password } => Ok(users::change_password(username, new_password)),
        R::DeleteUser { username } => Ok(users::delete(username)),
        R::ListUsers => Ok(users::list()),
        R::GrantAcl(acl) => Ok(users::grant(acl)),
        R::RevokeAcl(acl) => Ok(users::revoke(acl)),
        R::ListAcls { username } => Ok(users::list_rights(username)),
        R::Hello { client, .. } => {
            tracing::debug!(client = %String::from_utf8_lossy(&client.unwrap_or_default()), "hello");
            Ok(Ask::Answer(Response::Ok(Payload::Hello(hello(frame_bytes_max)))))
        }
        R::SetRole { username, role } => Ok(users::set_role(username, role)),
        R::DefinePolicy { name, json } => Ok(policies::define(name, &json)),
        R::DeletePolicy { name, force } => Ok(policies::delete(name, force)),
        R::BindTopicPolicy { topic, name } => Ok(policies::bind(topic, name)),
        R::GetPolicy { topic } => Ok(policies::get(topic)),
        R::ListPolicies => Ok(policies::list()),
        R::ListUsersV2 => Ok(users::list_roles()),
        R::ListUsersPage { after, max } => Ok(users::list_page(after, max)),
        R::UnlockUser { username, address } => Ok(users::unlock(username, address)),
        R::ClusterStatus { after, max } => Ok(of_cluster(OfCluster::Status { after, max })),
        R::ChangeNode { node, change, dry_run } => {
            Ok(of_cluster(OfCluster::ChangeNode { node, change, dry_run }))
        }
        R::DescribeRing { from_token, max } => Ok(of_cluster(OfCluster::Ring { from_token, max })),
        R::Reshard { to, dry_run } => Ok(of_cluster(OfCluster::Reshard { to, dry_run })),
        R::Rebalance { dry_run } => Ok(of_cluster(OfCluster::Rebalance { dry_run })),
        R::ListFlags => Ok(of_cluster(OfCluster::ListFlags)),
        R::EnableFlag { flag, dry_run } => Ok(of_cluster(OfCluster::EnableFlag { flag, dry_run })),
        R::ListSegments { topic, from_range, from_segment, max, depth } => {
            Ok(of_cluster(OfCluster::Segments { topic, from: (from_range, from_segment), max, depth }))
        }
        R::Explain(subject) => Ok(of_cluster(OfCluster::Explain(subject))),
        // These were refused by their number.
        R::Auth { .. } | R::MtlsAuth | R::TokenAuth { .. } | R::StreamAck(_) => Err(Reason::UnknownApiKey),
    }
}

fn node(request: Request) -> Ask {
    Ask::Node(request, Form::Records)
}

fn of_cluster(request: OfCluster) -> Ask {
    node(Request::Cluster(request))
}

fn admin(admin: Admin) -> Ask {
    node(Request::Admin(admin))
}

/// The one message an open stream takes, or the refusal and whether it can be attributed.
pub(super) fn stream_ack(api_key: u16, payload: Bytes) -> Result<Request, (Reason, bool)> {
    if ApiKey::from_number(api_key) != Some(ApiKey::StreamAck) {
        return Err((Reason::UnexpectedFrame, true));
    }
    match wire::Request::decode(ApiKey::StreamAck, payload) {
        Ok(wire::Request::StreamAck(ack)) => Ok(records::stream_ack(ack)),
        Ok(_) | Err(_) => Err((Reason::MalformedRequest, false)),
    }
}

fn hello(frame_bytes_max: usize) -> Hello {
    let server = concat!("malachi/", env!("CARGO_PKG_VERSION"));
    Hello {
        server: Bytes::from_static(server.as_bytes()),
        features: features::TOPIC_ADMIN
            | features::BATCHES
            | features::SEEK_TIME
            | features::GROUP_ADMIN
            | features::ROLES
            | features::USER_ADMIN
            | features::CLUSTER_ADMIN
            | features::EXPLAIN
            | features::POLICIES
            | features::ONCE
            | features::GROUP_MOVES
            | features::PLACEMENT,
        frame_bytes_max: u32::try_from(frame_bytes_max).unwrap_or(u32::MAX),
        fetch_records_max: limits::FETCH_RECORDS_MAX,
        fetch_wait_ms_max: limits::FETCH_WAIT_MS_MAX,
        stream_window_max: limits::STREAM_WINDOW_MAX,
    }
}

/// The node's answer as it goes out; `None` when the protocol has none for it.
pub(super) fn response(reply: Reply, form: Form) -> Option<Response> {
    let payload = match reply {
        Reply::Created | Reply::Committed | Reply::Left | Reply::Done => Payload::Empty,
        Reply::Stored(count) => Payload::Stored(count),
        Reply::Producer { id, now } => Payload::Producer { id: id.0, now_ms: now.0 },
        Reply::Fetched(fetched) => records::fetched(fetched, form),
        Reply::Topics(topics, more) => topics::topics(topics, more),
        Reply::Topic(summary, ranges, more) => topics::topic(summary, ranges, more),
        Reply::Split { left, right } => Payload::Split { left, right },
        Reply::Merged { child } => Payload::Merged(child),
        Reply::Sought(cursor) => Payload::Cursor(cursor),
        Reply::Groups(names, more) => topics::groups(names, more),
        Reply::Group(group) => topics::group(group),
        Reply::GroupMoved { lag_before, lag_after } => Payload::GroupMoved { lag_before, lag_after },
        Reply::Users(users) => users::users(users),
        Reply::UsersAndRoles(users) => users::users_and_roles(users),
        Reply::UserPage(users, more) => users::user_page(users, more),
        Reply::Policy(policy) => policies::policy(*policy),
        Reply::Policies(policies) => policies::policies(policies),
        Reply::Unlocked(addresses) => Payload::Unlocked(addresses),
        Reply::Rights(rights) => users::rights(rights),
        Reply::ClusterStatus(status) => Payload::ClusterStatus(*status),
        Reply::NodeChanged(changed) => Payload::NodeChanged(changed),
        Reply::Ring(page) => Payload::Ring(page),
        Reply::Resharding(resharding) => Payload::Resharding(resharding),
        Reply::Rebalancing(rebalancing) => Payload::Rebalancing(rebalancing),
        Reply::Flags(flags) => Payload::Flags(flags),
        Reply::FlagEnabled(enabled) => Payload::FlagEnabled(enabled),
        Reply::Segments(page) => Payload::Segments(page),
        Reply::Explained(explanation) => Payload::Explanation(explanation),
        Reply::Failed(reason) => return Some(Response::Error(reason)),
        // A stream's acceptance and acknowledgement are silent.
        Reply::Subscribed | Reply::Acked => return None,
        // Logins were answered before requests are.
        Reply::Credentials(_) | Reply::Welcome(_) => return Some(Response::Error(Reason::InternalError)),
    };
    Some(Response::Ok(payload))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    fn ask(api_key: u16, payload: &[u8]) -> Result<Ask, Reason> {
        request(api_key, Bytes::copy_from_slice(payload), 1024)
    }

    /// A message's payload.
    fn payload(request: &wire::Request) -> Bytes {
        let mut frame = BytesMut::new();
        request.encode(1, &mut frame);
        frame.freeze().slice(4 + wire::request::ENVELOPE_BYTES..)
    }

    #[test]
    fn checks_come_in_the_documented_order() {
        for topic_operation in [1, 2, 3, 4, 5, 7, 40, 46, 47, 59, 60, 61, 62] {
            assert_eq!(ask(topic_operation, b"garbage").unwrap_err(), Reason::MalformedRequest);
        }
        for admin_operation in
            [8, 9, 10, 14, 15, 16, 32, 34, 35, 36, 37, 51, 52, 53, 54, 55, 56, 57, 58, 64, 66]
        {
            assert!(matches!(ask(admin_operation, b"garbage"), Ok(Ask::Refuse(Reason::MalformedRequest))));
        }
        for none in [0, 6, 12, 13, 17, 39, 63, 67, 65535] {
            assert_eq!(ask(none, b"garbage").unwrap_err(), Reason::UnknownApiKey, "{none}");
        }
        for list in [11, 33] {
            assert!(matches!(ask(list, b"garbage"), Ok(Ask::Node(Request::Users(_), _))), "it is ignored");
        }
    }

    #[test]
    fn a_stream_takes_acknowledgements_only() {
        let refused =
            |api_key, payload: &[u8]| stream_ack(api_key, Bytes::copy_from_slice(payload)).unwrap_err();
        for other in [0, 2, 5, 7, 31, 99] {
            assert_eq!(refused(other, b""), (Reason::UnexpectedFrame, true));
        }
        assert_eq!(refused(6, b"garbage"), (Reason::MalformedRequest, false));
        let ack = wire::request::StreamAck {
            topic: Some("t".into()),
            group: Some("g".into()),
            member: None,
            cursor: None,
            count: 3,
        };
        let request = stream_ack(6, payload(&wire::Request::StreamAck(ack))).unwrap();
        assert!(matches!(request, Request::StreamAck(ack) if ack.count == 3 && ack.cursor.is_none()));
    }

    #[test]
    fn a_batch_whose_checksum_is_another_goes_no_further() {
        let record = types::record::Record { key: None, value: "v".into(), timestamp: 1, headers: vec![] };
        let good = wire::request::ProduceBatch::of(wire::request::Produce::of(b"t", &[record]));
        let asked = |batch: &wire::request::ProduceBatch| {
            ask(46, &payload(&wire::Request::ProduceBatch(batch.clone())))
        };
        assert!(matches!(asked(&good), Ok(Ask::Node(Request::Produce(_), _))));
        let wrong = wire::request::ProduceBatch { crc: good.crc ^ 1, ..good.clone() };
        assert_eq!(asked(&wrong).unwrap_err(), Reason::MalformedRequest);
        let packed = wire::request::ProduceBatch { flags: 1, ..good.clone() };
        assert_eq!(asked(&packed).unwrap_err(), Reason::Unsupported);

        let (producer, epoch) = (types::ProducerId(1), types::ProducerEpoch(2));
        let stamp = types::Stamp { producer, epoch, first: 3, settled: 2, born: types::WallTime(4) };
        let once = |batch| {
            ask(60, &payload(&wire::Request::ProduceOnce(wire::request::ProduceOnce { stamp, batch })))
        };
        let asked = once(good);
        assert!(matches!(asked, Ok(Ask::Node(Request::Produce(produce), _)) if produce.stamp == Some(stamp)));
        assert_eq!(once(wrong).unwrap_err(), Reason::MalformedRequest);
    }

    #[test]
    fn hello_is_answered_with_what_this_broker_takes() {
        let hello = wire::Request::Hello { client: Some("test".into()), features: 0 };
        let Ok(Ask::Answer(Response::Ok(Payload::Hello(hello)))) = ask(31, &payload(&hello)) else {
            panic!("answered here")
        };
        assert_eq!((hello.frame_bytes_max, hello.features), (1024, 0b1_0111_1111_1111));
    }
}
