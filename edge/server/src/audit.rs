//! Who changed what, and who came in: one log line of a fixed shape for each.
//!
//! Lines have the target `audit`, the message `audit`, and always the same fields, so that they can be cut out of
//! the log by their target and read by a machine:
//!
//! | field | what |
//! |---|---|
//! | `event_type` | one of [`Kind::as_str`]; never renamed |
//! | `actor` | the user, `unknown` where there is none |
//! | `client` | its address |
//! | `action` | the operation |
//! | `result` | `success` or `failure` |
//! | `reason` | of a failure, else empty |
//! | `object` | the user, topic or node it was about |
//! | `detail` | values given, never passwords |
//!
//! Owns that shape and what is worth a line. What clients send is cut to a bounded length. Whoever may not do what
//! it asked for is told here too. Does not keep anything: that is for whoever collects the log.

use std::fmt::Write;
use std::net::IpAddr;

use broker::{Admin, OfCluster, Policies, Reply, Request, Right, Users};
use wire::Reason;
use wire::request::NodeChange;

/// Most bytes shown of what a client sent.
const SHOWN_BYTES_MAX: usize = 256;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AuthSuccess,
    AuthFailure,
    AuthLockout,
    AccountUnlocked,
    SessionRevoked,
    DashboardAccess,
    DashboardAuthFailure,
    UserCreated,
    UserDeleted,
    PasswordChanged,
    RoleChanged,
    AclGranted,
    AclRevoked,
    TopicCreated,
    TopicSealed,
    TopicDeleted,
    RangeSplit,
    RangesMerged,
    PolicyDefined,
    PolicyDeleted,
    PolicyBound,
    GroupMoved,
    GroupDeleted,
    NodeDrained,
    NodeUndrained,
    NodeRemoved,
    RingResharded,
    VnodesRebalanced,
    FlagEnabled,
}

impl Kind {
    /// Every one.
    pub(crate) const ALL: [Self; 29] = [
        Self::AuthSuccess,
        Self::AuthFailure,
        Self::AuthLockout,
        Self::AccountUnlocked,
        Self::SessionRevoked,
        Self::DashboardAccess,
        Self::DashboardAuthFailure,
        Self::UserCreated,
        Self::UserDeleted,
        Self::PasswordChanged,
        Self::RoleChanged,
        Self::AclGranted,
        Self::AclRevoked,
        Self::TopicCreated,
        Self::TopicSealed,
        Self::TopicDeleted,
        Self::RangeSplit,
        Self::RangesMerged,
        Self::PolicyDefined,
        Self::PolicyDeleted,
        Self::PolicyBound,
        Self::GroupMoved,
        Self::GroupDeleted,
        Self::NodeDrained,
        Self::NodeUndrained,
        Self::NodeRemoved,
        Self::RingResharded,
        Self::VnodesRebalanced,
        Self::FlagEnabled,
    ];

    /// As it is written and counted.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::AuthSuccess => "auth_success",
            Self::AuthFailure => "auth_failure",
            Self::AuthLockout => "auth_lockout",
            Self::AccountUnlocked => "account_unlocked",
            Self::SessionRevoked => "session_revoked",
            Self::DashboardAccess => "dashboard_access",
            Self::DashboardAuthFailure => "dashboard_auth_failure",
            Self::UserCreated => "user_created",
            Self::UserDeleted => "user_deleted",
            Self::PasswordChanged => "password_changed",
            Self::RoleChanged => "role_changed",
            Self::AclGranted => "acl_granted",
            Self::AclRevoked => "acl_revoked",
            Self::TopicCreated => "topic_created",
            Self::TopicSealed => "topic_sealed",
            Self::TopicDeleted => "topic_deleted",
            Self::RangeSplit => "range_split",
            Self::RangesMerged => "ranges_merged",
            Self::PolicyDefined => "policy_defined",
            Self::PolicyDeleted => "policy_deleted",
            Self::PolicyBound => "policy_bound",
            Self::GroupMoved => "group_moved",
            Self::GroupDeleted => "group_deleted",
            Self::NodeDrained => "node_drained",
            Self::NodeUndrained => "node_undrained",
            Self::NodeRemoved => "node_removed",
            Self::RingResharded => "ring_resharded",
            Self::VnodesRebalanced => "vnodes_rebalanced",
            Self::FlagEnabled => "flag_enabled",
        }
    }
}

/// A change that was asked for; who asked and what came of it are known later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    kind: Kind,
    object: String,
    detail: String,
}

/// One line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) kind: Kind,
    pub(crate) actor: &'a str,
    pub(crate) client: Option<IpAddr>,
    pub(crate) action: &'a str,
    /// Why it failed, when it did.
    pub(crate) failure: Option<&'a str>,
    pub(crate) object: &'a str,
    pub(crate) detail: &'a str,
}

impl Line<'_> {
    /// Writes it.
    pub(crate) fn write(&self) {
        let Self { kind, actor, action, failure, object, detail, .. } = *self;
        let actor = if actor.is_empty() { "unknown" } else { cut(actor) };
        let client = self.client.map_or_else(|| "unknown".to_owned(), |client| client.to_string());
        let (event_type, result) = (kind.as_str(), if failure.is_some() { "failure" } else { "success" });
        let (reason, object) = (failure.unwrap_or_default(), cut(object));
        tracing::info!(
            target: "audit",
            event_type,
            actor,
            client,
            action,
            result,
            reason,
            object,
            detail,
            "audit"
        );
    }
}

impl Change {
    /// What a request would change; `None` when that is nothing an auditor asks about.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        match request {
            Request::CreateTopic { topic, keyspace_bits } => Some(
                Self::about(Kind::TopicCreated, topic)
                    .with(|out| write!(out, "keyspace_bits={keyspace_bits}")),
            ),
            Request::Admin(admin) => Self::of_admin(admin),
            Request::Users(users) => Self::of_users(users),
            Request::Cluster(request) => Self::of_cluster(request),
            Request::Policies(request) => Self::of_policies(request),
            Request::Produce(_)
            | Request::NewProducer { .. }
            | Request::Fetch(_)
            | Request::Commit(_)
            | Request::LeaveGroup(_)
            | Request::Subscribe(_)
            | Request::StreamAck(_) => None,
        }
    }

    fn of_admin(admin: &Admin) -> Option<Self> {
        match admin {
            Admin::SealTopic { topic } => Some(Self::about(Kind::TopicSealed, topic)),
            Admin::DeleteTopic { topic } => Some(Self::about(Kind::TopicDeleted, topic)),
            Admin::SplitRange { topic, range } => {
                Some(Self::about(Kind::RangeSplit, topic).with(|out| write!(out, "range={range}")))
            }
            Admin::MergeRanges { topic, a, b } => {
                Some(Self::about(Kind::RangesMerged, topic).with(|out| write!(out, "ranges={a},{b}")))
            }
            Admin::MoveGroup(moves) if moves.dry_run => None,
            Admin::MoveGroup(moves) => Some(
                Self::about(Kind::GroupMoved, &moves.topic)
                    .with(|out| write!(out, "group={}", shown(moves.group.as_deref().unwrap_or_default()))),
            ),
            Admin::DeleteGroup { topic, group, .. } => Some(
                Self::about(Kind::GroupDeleted, topic)
                    .with(|out| write!(out, "group={}", shown(group.as_deref().unwrap_or_default()))),
            ),
            Admin::ListTopics { .. }
            | Admin::DescribeTopic { .. }
            | Admin::SeekTime { .. }
            | Admin::ListGroups { .. }
            | Admin::DescribeGroup { .. } => None,
        }
    }

    fn of_users(users: &Users) -> Option<Self> {
        match users {
            Users::Create { username, permissions, .. } => Some(Self::created(username, *permissions)),
            Users::Delete { username } => Some(Self::new(Kind::UserDeleted, username)),
            Users::ChangePassword { username, .. } => Some(Self::password(username)),
            Users::SetRole { username, role } => {
                let role = shown(role.as_deref().unwrap_or(b"none"));
                Some(Self::new(Kind::RoleChanged, username).with(|out| write!(out, "role={role}")))
            }
            Users::Grant(right) => Some(Self::right(Kind::AclGranted, right)),
            Users::Revoke(right) => Some(Self::right(Kind::AclRevoked, right)),
            Users::Unlock { username, address } => {
                let address = address.as_deref().unwrap_or("all");
                let change = Self::new(Kind::AccountUnlocked, username);
                Some(change.with(|out| write!(out, "address={}", cut(address))))
            }
            Users::Check
            | Users::Look
            | Users::List
            | Users::ListRoles
            | Users::ListPage { .. }
            | Users::ListRights { .. } => None,
        }
    }

    fn of_policies(request: &Policies) -> Option<Self> {
        match request {
            Policies::Define { name, policy } => {
                // Its attribute is a client's text, like its name.
                let said = shown(format!("{policy:?}").as_bytes());
                Some(Self::new(Kind::PolicyDefined, name).with(|out| write!(out, "policy={said}")))
            }
            Policies::Delete { name, force } => {
                Some(Self::new(Kind::PolicyDeleted, name).with(|out| write!(out, "force={force}")))
            }
            Policies::Bind { topic, name } => {
                let name = shown(name.as_deref().unwrap_or(b"none"));
                Some(Self::about(Kind::PolicyBound, topic).with(|out| write!(out, "policy={name}")))
            }
            Policies::Get { .. } | Policies::List => None,
        }
    }

    /// What would only be tried is no change.
    fn of_cluster(request: &OfCluster) -> Option<Self> {
        match request {
            OfCluster::ChangeNode { node, change, dry_run: false } => {
                let (kind, forced) = match change {
                    NodeChange::Drain => (Kind::NodeDrained, false),
                    NodeChange::Undrain => (Kind::NodeUndrained, false),
                    NodeChange::Remove => (Kind::NodeRemoved, false),
                    NodeChange::ForceRemove => (Kind::NodeRemoved, true),
                };
                let change = Self::new(kind, node.to_string().as_bytes());
                Some(if forced { change.with(|out| write!(out, "force=true")) } else { change })
            }
            OfCluster::Reshard { to, dry_run: false } => {
                Some(Self::new(Kind::RingResharded, b"").with(|out| write!(out, "vnodes={to}")))
            }
            OfCluster::Rebalance { dry_run: false } => Some(Self::new(Kind::VnodesRebalanced, b"")),
            OfCluster::EnableFlag { flag, dry_run: false } => {
                Some(Self::new(Kind::FlagEnabled, flag.as_deref().unwrap_or_default()))
            }
            OfCluster::Status { .. }
            | OfCluster::ListFlags
            | OfCluster::Rebalance { dry_run: true }
            | OfCluster::EnableFlag { dry_run: true, .. }
            | OfCluster::ChangeNode { dry_run: true, .. }
            | OfCluster::Ring { .. }
            | OfCluster::Segments { .. }
            | OfCluster::Explain(_)
            | OfCluster::Reshard { dry_run: true, .. } => None,
        }
    }

    /// A user is to be made.
    pub(crate) fn created(username: &[u8], permissions: broker::Permissions) -> Self {
        let broker::Permissions { admin, produce, consume } = permissions;
        let all = [("admin", admin), ("produce", produce), ("consume", consume)];
        let given: Vec<&str> = all.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        Self::new(Kind::UserCreated, username).with(|out| write!(out, "permissions={}", given.join(",")))
    }

    /// A password is to be changed.
    pub(crate) fn password(username: &[u8]) -> Self {
        Self::new(Kind::PasswordChanged, username)
    }

    fn right(kind: Kind, right: &Right) -> Self {
        let (operation, pattern) = (shown(&right.operation), shown(&right.pattern));
        let change = Self::new(kind, &right.username);
        change.with(|out| write!(out, "operation={operation} pattern={pattern}"))
    }

    fn about(kind: Kind, topic: &Option<bytes::Bytes>) -> Self {
        Self::new(kind, topic.as_deref().unwrap_or_default())
    }

    fn new(kind: Kind, object: &[u8]) -> Self {
        Self { kind, object: shown(object), detail: String::new() }
    }

    fn with(mut self, write: impl FnOnce(&mut String) -> std::fmt::Result) -> Self {
        write(&mut self.detail).expect("a string takes everything");
        self
    }

    /// Which kind it is.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Writes what came of it.
    pub(crate) fn answered(&self, actor: &str, client: IpAddr, action: &str, reply: &Reply) {
        self.write(actor, client, action, reason_of(reply));
    }

    /// The same for a refusal that the core did not make.
    pub(crate) fn refused(&self, actor: &str, client: IpAddr, action: &str, reason: Reason) {
        self.write(actor, client, action, Some(reason));
    }

    fn write(&self, actor: &str, client: IpAddr, action: &str, reason: Option<Reason>) {
        let Self { kind, object, detail } = self;
        let failure = reason.map(Reason::as_str);
        Line { kind: *kind, actor, client: Some(client), action, failure, object, detail }.write();
    }
}

fn reason_of(reply: &Reply) -> Option<Reason> {
    if let Reply::Failed(reason) = reply { Some(*reason) } else { None }
}

/// Text of a client, readable and bounded.
fn shown(bytes: &[u8]) -> String {
    let end = bytes.len().min(SHOWN_BYTES_MAX);
    cut(&String::from_utf8_lossy(&bytes[..end])).to_owned()
}

/// The beginning of a text, at a whole character.
fn cut(text: &str) -> &str {
    let most = text.len().min(SHOWN_BYTES_MAX);
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    &text[..end]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What is logged meanwhile, a line of JSON each.
    fn logged(act: impl FnOnce()) -> Vec<serde_json::Value> {
        #[derive(Clone, Default)]
        struct Sink(Arc<Mutex<Vec<u8>>>);
        impl io::Write for Sink {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber =
            tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, act);
        let bytes = sink.0.lock().unwrap().clone();
        let lines = String::from_utf8(bytes).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn bytes(text: &'static str) -> bytes::Bytes {
        bytes::Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn a_line_has_every_field_whatever_happened() {
        let right = Right { username: bytes("ann"), operation: bytes("produce"), pattern: bytes("orders.*") };
        let change = Change::of(&Request::Users(Users::Grant(right))).unwrap();
        let client: IpAddr = "192.0.2.7".parse().unwrap();
        let lines = logged(|| {
            change.answered("root", client, "grant_acl", &Reply::Done);
            change.answered("eve", client, "grant_acl", &Reply::Failed(Reason::PermissionDenied));
        });
        let fields = |line: &serde_json::Value| {
            [
                "target",
                "message",
                "event_type",
                "actor",
                "client",
                "action",
                "result",
                "reason",
                "object",
                "detail",
            ]
            .map(|name| line[name].as_str().unwrap().to_owned())
        };
        let common = ["grant_acl", "ann", "operation=produce pattern=orders.*"];
        assert_eq!(
            fields(&lines[0]),
            [
                "audit",
                "audit",
                "acl_granted",
                "root",
                "192.0.2.7",
                common[0],
                "success",
                "",
                common[1],
                common[2]
            ]
        );
        assert_eq!(lines[1]["result"], "failure");
        assert_eq!(lines[1]["reason"], "permission_denied");
        assert_eq!(lines[1]["actor"], "eve");
    }

    #[test]
    fn passwords_are_not_shown_and_what_a_client_sends_is_cut() {
        let hash = "$argon2id$secret".into();
        let long: Vec<u8> = "\u{e9}".repeat(5000).into_bytes();
        let create = Users::Create {
            username: long.into(),
            hash,
            permissions: broker::Permissions { produce: true, ..Default::default() },
        };
        let change = Change::of(&Request::Users(create)).unwrap();
        assert!(!format!("{change:?}").contains("secret"));
        assert_eq!((change.object.len(), &*change.detail), (SHOWN_BYTES_MAX, "permissions=produce"));
        let lines = logged(|| {
            let actor = "x".repeat(1000);
            let kind = Kind::AuthFailure;
            let failure = Some("invalid_credentials");
            Line { kind, actor: &actor, client: None, action: "auth", failure, object: "", detail: "" }
                .write();
        });
        assert_eq!(lines[0]["actor"].as_str().unwrap().len(), SHOWN_BYTES_MAX);
        assert_eq!(lines[0]["client"], "unknown");
    }

    #[test]
    fn looking_changes_nothing() {
        for users in [Users::Check, Users::Look, Users::List, Users::ListPage { after: None, max: 0 }] {
            assert_eq!(Change::of(&Request::Users(users)), None);
        }
        let list = Admin::ListTopics { prefix: None, after: None, max: 0 };
        assert_eq!(Change::of(&Request::Admin(list)), None);
        let drained = |dry_run| {
            let (node, change) = (types::NodeId(7), NodeChange::Drain);
            Change::of(&Request::Cluster(OfCluster::ChangeNode { node, change, dry_run }))
        };
        assert_eq!(drained(true), None);
        assert_eq!(drained(false).unwrap().kind(), Kind::NodeDrained);
    }

    #[test]
    fn kinds_have_names_of_their_own() {
        let mut names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
    }
}
