//! Users and their rights, as administrators change and list them.
//!
//! Owns the answers of these requests and the users that are made at the start. Does not see a password: what
//! comes here was hashed at the edge.

mod list;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metadata::cluster::{self as tables, Grant, PasswordHash, Refusal, UserName};
use types::Instant;
use wire::Reason;

use crate::action::{Action, Notice, Reply};
use crate::auth::{Operation, Role, Session};
use crate::cluster::{Decided, Error, Then};
use crate::event::{RequestId, Right, Users};
use crate::meta::Fate;
use crate::node::{Core, Node};

/// How long the start waits for the users it makes.
const SEED_WAIT: Duration = Duration::from_secs(5);

/// Users that are made at the start and were not decided yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeding {
    undecided: usize,
    /// When the node serves without them.
    pub(crate) deadline: Instant,
}

impl Node {
    /// Answers what an administrator asks about users.
    pub(crate) fn users(&mut self, id: RequestId, session: &Session, request: Users) {
        let may = match request {
            Users::Look => self.may_look(session),
            Users::Check
            | Users::Create { .. }
            | Users::Delete { .. }
            | Users::ChangePassword { .. }
            | Users::SetRole { .. }
            | Users::List
            | Users::ListRoles
            | Users::ListPage { .. }
            | Users::Grant(_)
            | Users::Revoke(_)
            | Users::ListRights { .. }
            | Users::Unlock { .. } => self.is_admin(session),
        };
        if !may {
            return self.core.reply(id, Reply::Failed(Reason::PermissionDenied));
        }
        if let Err(reason) = self.admin_users(id, session, request) {
            self.core.reply(id, Reply::Failed(reason));
        }
    }

    fn admin_users(&mut self, id: RequestId, session: &Session, request: Users) -> Result<(), Reason> {
        match request {
            Users::Check | Users::Look => self.core.reply(id, Reply::Done),
            Users::Create { username, hash, permissions } => {
                UserName::new(&username).map_err(|_| Reason::InvalidUsername)?;
                self.core.create_user(username, stored(&hash)?, permissions, Then::User(id));
            }
            Users::Delete { username } => self.core.delete_user(id, username),
            Users::ChangePassword { username, hash } => {
                let own = (username == session.user.as_bytes()).then(|| Arc::clone(&session.user));
                self.core.change_password(id, own, username, stored(&hash)?);
            }
            Users::SetRole { username, role } => self.core.set_role(id, username, named_role(role)?),
            Users::List => {
                let users = self.core.all_users(list::user_bytes)?;
                self.core.reply(id, Reply::Users(users));
            }
            Users::ListRoles => {
                let users = self.core.all_users(list::user_and_role_bytes)?;
                self.core.reply(id, Reply::UsersAndRoles(users));
            }
            Users::ListPage { after, max } => {
                let (users, more) = self.core.some_users(after.as_deref(), max);
                self.core.reply(id, Reply::UserPage(users, more));
            }
            Users::Grant(right) => self.core.grant(id, grant(right)?),
            Users::Revoke(right) => self.core.revoke(id, grant(right)?),
            Users::ListRights { username } => {
                let rights = self.core.rights_of(&username)?;
                self.core.reply(id, Reply::Rights(rights));
            }
            Users::Unlock { username, address } => {
                UserName::new(&username).map_err(|_| Reason::InvalidUsername)?;
                let address = address.map(|address| Bytes::copy_from_slice(address.as_bytes()));
                self.core.unlock(id, username, address);
            }
        }
        Ok(())
    }

    /// The cluster group decided on something.
    pub(crate) fn cluster_decided(&mut self, decided: Decided) {
        match decided {
            Decided::SessionsEnded { user, revision } => {
                // Before the node serves nobody has a session: this is the log being read again.
                if self.serves() {
                    self.core.out.push(Action::Revoked { user, revision: revision.0 });
                }
            }
            Decided::Done { then, result } => match then {
                Then::User(id) => self.answer(id, result.map_err(user_reason)),
                Then::Password { id, own } => self.password_changed(id, own, result),
                Then::Right(id) | Then::Policy(id) => self.answer(id, result.map_err(right_reason)),
                Then::Unlock(id) => self.unlocked(id, result),
                Then::Seed(user) => self.seeded(user, result),
                Then::LoginFailed { id, user, address } => self.failure_counted(id, user, address, result),
                Then::LoggedIn { id, session } => self.logged_in(id, session, result),
                // It is tried again when somebody looks the next time.
                Then::Forget => {}
                Then::ChangeNode(changing) => self.node_changed(*changing, result),
                Then::Flag(id) => self.flag_enabled(id, result),
                Then::Control(step) => self.control_decided(step, result),
            },
        }
    }

    fn answer(&mut self, id: RequestId, result: Result<tables::Reply, Reason>) {
        self.core.reply(id, result.map_or_else(Reply::Failed, |_| Reply::Done));
    }

    fn unlocked(&mut self, id: RequestId, result: Result<tables::Reply, Error>) {
        let reply = match result {
            Ok(tables::Reply::LockoutsCleared { addresses }) => {
                Reply::Unlocked(u32::try_from(addresses).unwrap_or(u32::MAX))
            }
            Ok(_) => Reply::Unlocked(0),
            Err(error) => Reply::Failed(right_reason(error)),
        };
        self.core.reply(id, reply);
    }

    /// Whoever changed its own password goes on where it did so; its other sessions end right after.
    fn password_changed(
        &mut self,
        id: RequestId,
        own: Option<Arc<str>>,
        result: Result<tables::Reply, Error>,
    ) {
        if let (Some(user), Ok(tables::Reply::PasswordChanged { revision, .. })) = (own, &result) {
            let session = Session { user, revision: revision.0 };
            self.core.out.push(Action::Renewed { connection: id.connection, session });
        }
        self.answer(id, result.map_err(user_reason));
    }

    /// The cluster's tables are here: makes the users that have to be there.
    pub(crate) fn seed_users(&mut self) {
        let cluster = self.core.meta.cluster();
        let missing = |seed: &crate::SeedUser| cluster.user(&seed.name).is_none();
        let seeds: Vec<_> =
            self.core.config.seed_users.iter().filter(|seed| missing(seed)).cloned().collect();
        let deadline = self.core.now.plus(SEED_WAIT);
        self.seeding = Some(Seeding { undecided: seeds.len(), deadline });
        for seed in seeds {
            let then = Then::Seed(Arc::clone(&seed.name));
            match PasswordHash::new(seed.hash.as_bytes()) {
                Ok(hash) => {
                    let name = Bytes::copy_from_slice(seed.name.as_bytes());
                    self.core.create_user(name, hash, seed.permissions, then);
                }
                Err(_) => self.seed_failed(&seed.name, "its password hash is not a PHC string"),
            }
        }
    }

    fn seeded(&mut self, user: Arc<str>, result: Result<tables::Reply, Error>) {
        match result {
            Ok(_) => {
                self.core.out.push(Action::Seeded { user });
                self.seed_decided();
            }
            // Another node was faster.
            Err(Error::Refused(Refusal::UserExists)) => self.seed_decided(),
            Err(Error::Refused(refusal)) => self.seed_failed(&user, &refusal.to_string()),
            Err(Error::Lost(_)) => self.seed_failed(&user, "the user store did not commit"),
        }
    }

    fn seed_failed(&mut self, user: &str, why: &str) {
        self.core.notice(Notice::SeedFailed { detail: format!("{user}: {why}") });
        self.seed_decided();
    }

    fn seed_decided(&mut self) {
        if let Some(seeding) = &mut self.seeding {
            seeding.undecided = seeding.undecided.saturating_sub(1);
        }
    }

    /// Whether every user that has to be there is decided on, or was waited for long enough.
    pub(crate) fn is_seeded(&mut self) -> bool {
        let Some(seeding) = self.seeding else { return false };
        if seeding.undecided > 0 && seeding.deadline > self.core.now {
            return false;
        }
        if seeding.undecided > 0 {
            let detail = format!("{} users were not decided on in time", seeding.undecided);
            self.core.notice(Notice::SeedFailed { detail });
        }
        self.seeding = Some(Seeding { undecided: 0, ..seeding });
        true
    }
}

impl Core {
    /// A session of the user as it is now.
    pub(crate) fn session_of(&self, user: &str) -> Option<Session> {
        let (name, user) = (user, self.meta.cluster().user(user)?);
        Some(Session { user: name.into(), revision: user.revision.0 })
    }
}

/// The edge hashes: what it sends is a PHC string unless it has a bug.
fn stored(hash: &str) -> Result<PasswordHash, Reason> {
    PasswordHash::new(hash.as_bytes()).map_err(|_| Reason::InternalError)
}

fn grant(right: Right) -> Result<Grant, Reason> {
    let operation = match &right.operation[..] {
        b"produce" => Operation::Produce,
        b"consume" => Operation::Consume,
        _ => return Err(Reason::InvalidOperation),
    };
    Ok(Grant { user: right.username, operation, pattern: right.pattern })
}

fn named_role(role: Option<Bytes>) -> Result<Option<Role>, Reason> {
    match role.as_deref() {
        None => Ok(None),
        Some(b"viewer") => Ok(Some(Role::Viewer)),
        Some(b"operator") => Ok(Some(Role::Operator)),
        Some(b"admin") => Ok(Some(Role::Admin)),
        Some(_) => Err(Reason::InvalidRole),
    }
}

fn user_reason(error: Error) -> Reason {
    match error {
        Error::Refused(refusal) => reason(refusal),
        Error::Lost(Fate::NotRecorded | Fate::Unknown) => Reason::PersistFailed,
    }
}

pub(crate) fn right_reason(error: Error) -> Reason {
    match error {
        Error::Refused(refusal) => reason(refusal),
        Error::Lost(Fate::NotRecorded) => Reason::Unavailable,
        Error::Lost(Fate::Unknown) => Reason::Timeout,
    }
}

/// What a refusal is on the wire.
pub(crate) fn reason(refusal: Refusal) -> Reason {
    match refusal {
        Refusal::InvalidUserName => Reason::InvalidUsername,
        Refusal::UserExists => Reason::UserExists,
        Refusal::NoSuchUser => Reason::UserNotFound,
        Refusal::InvalidPattern => Reason::InvalidAcl,
        // Room is made by removing some.
        Refusal::TooManyUsers | Refusal::TooManyGrants | Refusal::TooManyPolicies => Reason::Overloaded,
        Refusal::LaterVersion => Reason::Unavailable,
        Refusal::UnknownCommand => Reason::UpgradePending,
        Refusal::InvalidPolicy => Reason::InvalidPolicy,
        Refusal::InvalidFlag => Reason::InvalidFlag,
        Refusal::FlagUnsupported | Refusal::CapabilitiesChanged => Reason::FlagUnsupported,
        Refusal::NoSuchPolicy => Reason::NoSuchPolicy,
        Refusal::InvalidCommand | Refusal::AlreadyApplied | Refusal::InvalidAddress => Reason::InternalError,
        Refusal::NodeRemoved | Refusal::NoSuchNode => Reason::NoSuchNode,
        Refusal::LastNode => Reason::LastNode,
        Refusal::NotDrained => Reason::NodeNotDrained,
        // The list of nodes changes again and again.
        Refusal::StaleRevision => Reason::Unavailable,
        // Of commands that no client sends.
        Refusal::InvalidNode
        | Refusal::NodeExists
        | Refusal::NodeNameTaken
        | Refusal::TooManyNodes
        | Refusal::StaleIncarnation
        | Refusal::AlreadySeeded
        | Refusal::NoTopology
        | Refusal::StaleRing
        | Refusal::StaleFence
        | Refusal::ChangePending
        | Refusal::NothingPending
        | Refusal::TokenTaken
        | Refusal::NoSuchVnode
        | Refusal::LastVnode
        | Refusal::TooManyVnodes
        | Refusal::InvalidReplicaSet
        | Refusal::TooManyFlags => Reason::InternalError,
    }
}
