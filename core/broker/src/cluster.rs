//! What the cluster group's proposals and replies mean to the rest of the node.
//!
//! Owns who waits for a decision about users, rights and lockouts, and how each is proposed. Does not decide who
//! may ask for it (`users`) or what a login needs (`login`).

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use metadata::cluster::{
    Attempt, Command, CreateUser, Grant, LockoutRules, PasswordHash, Refusal, Reply, Role, UserRevision,
};

use crate::action::Credentials;
use crate::auth::{Permissions, Session};
use crate::event::RequestId;
use crate::meta::{Fate, Outcome};
use crate::node::Core;

/// The usual rules of lockouts: five failures lock for five minutes, then longer and longer.
pub(crate) const LOCKOUT_RULES: LockoutRules = LockoutRules {
    attempts_max: NonZeroU32::new(5).expect("five is not zero"),
    duration_ms: 300_000,
    progressive: true,
    forget_ms: 3_600_000,
};

/// Who waits for a decision.
#[derive(Debug)]
pub(crate) enum Then {
    /// A request that changes a user.
    User(RequestId),
    /// A request that changes a password; with the user that asks, when it is its own.
    Password { id: RequestId, own: Option<Arc<str>> },
    /// A request that changes a right.
    Right(RequestId),
    /// A request that defines or removes a storage policy.
    Policy(RequestId),
    /// A request that ends a lock.
    Unlock(RequestId),
    /// The start: the user does not exist yet.
    Seed(Arc<str>),
    /// A login that failed.
    LoginFailed { id: RequestId, user: Arc<str>, address: Arc<str> },
    /// A login that succeeded and clears what was counted.
    LoggedIn { id: RequestId, session: Session },
    /// Nobody: what has to be forgotten is.
    Forget,
    /// A request that changes how far a node belongs.
    ChangeNode(Box<crate::control::Changing>),
    /// A request that puts a switch on.
    Flag(RequestId),
    /// What this node does about the cluster.
    Control(crate::control::Step),
}

/// Why the cluster group did not take something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    Refused(Refusal),
    Lost(Fate),
}

/// What the cluster group decided, in log order.
#[derive(Debug)]
pub(crate) enum Decided {
    /// What was proposed here.
    Done { then: Then, result: Result<Reply, Error> },
    /// Whoever proposed it: sessions of lower revisions are over.
    SessionsEnded { user: Arc<str>, revision: UserRevision },
}

/// What an outcome says to the node. Whoever waits hears first.
pub(crate) fn decided(outcome: Outcome<Reply, Then>) -> Vec<crate::meta::Decided> {
    use crate::meta::Decided as D;
    match outcome {
        Outcome::Applied { reply, then } => {
            let ended = sessions_ended(&reply);
            let result =
                if let Reply::Refused(refusal) = reply { Err(Error::Refused(refusal)) } else { Ok(reply) };
            let done = then.map(|then| Decided::Done { then, result });
            done.into_iter().chain(ended).map(D::Cluster).collect()
        }
        Outcome::Lost { then, fate } => {
            vec![D::Cluster(Decided::Done { then, result: Err(Error::Lost(fate)) })]
        }
    }
}

fn sessions_ended(reply: &Reply) -> Option<Decided> {
    match reply {
        Reply::UserDeleted { user: Some(user), revision } | Reply::PasswordChanged { user, revision } => {
            Some(Decided::SessionsEnded { user: user.shared(), revision: *revision })
        }
        Reply::UserDeleted { user: None, .. }
        | Reply::UserCreated { .. }
        | Reply::UserChanged
        | Reply::Granted
        | Reply::Revoked
        | Reply::FailureRecorded { .. }
        | Reply::LockoutsCleared { .. }
        | Reply::LockoutsForgotten { .. }
        | Reply::PolicyDefined
        | Reply::PolicyDeleted
        | Reply::NodesChanged(_)
        | Reply::RingChanged { .. }
        | Reply::LeaseGranted(_)
        | Reply::LeaseHeld { .. }
        | Reply::LeaseReleased
        | Reply::FlagEnabled
        | Reply::Upgraded(_)
        | Reply::Refused(_) => None,
    }
}

/// What the subjects propose.
impl Core {
    pub(crate) fn create_user(
        &mut self,
        user: Bytes,
        hash: PasswordHash,
        permissions: Permissions,
        then: Then,
    ) {
        let create = CreateUser { user, hash, permissions, role: None, at: self.wall };
        self.propose_cluster(&Command::CreateUser(create), then);
    }

    pub(crate) fn delete_user(&mut self, id: RequestId, user: Bytes) {
        self.propose_cluster(&Command::DeleteUser { user }, Then::User(id));
    }

    pub(crate) fn change_password(
        &mut self,
        id: RequestId,
        own: Option<Arc<str>>,
        user: Bytes,
        hash: PasswordHash,
    ) {
        let then = Then::Password { id, own };
        self.propose_cluster(&Command::ChangePassword { user, hash, at: self.wall }, then);
    }

    pub(crate) fn set_role(&mut self, id: RequestId, user: Bytes, role: Option<Role>) {
        self.propose_cluster(&Command::SetRole { user, role, at: self.wall }, Then::User(id));
    }

    pub(crate) fn grant(&mut self, id: RequestId, grant: Grant) {
        self.propose_cluster(&Command::Grant(grant), Then::Right(id));
    }

    pub(crate) fn revoke(&mut self, id: RequestId, grant: Grant) {
        self.propose_cluster(&Command::Revoke(grant), Then::Right(id));
    }

    pub(crate) fn unlock(&mut self, id: RequestId, user: Bytes, address: Option<Bytes>) {
        self.propose_cluster(&Command::Unlock { user, address }, Then::Unlock(id));
    }

    pub(crate) fn record_failure(&mut self, id: RequestId, user: Arc<str>, address: Arc<str>) {
        let attempt = Attempt { user: copied(&user), address: copied(&address), at: self.wall };
        let rules = self.config.lockout;
        let then = Then::LoginFailed { id, user, address };
        self.propose_cluster(&Command::RecordFailure { attempt, rules }, then);
    }

    pub(crate) fn record_success(&mut self, id: RequestId, session: Session, address: &str) {
        let command = Command::RecordSuccess { user: copied(&session.user), address: copied(address) };
        self.propose_cluster(&command, Then::LoggedIn { id, session });
    }

    pub(crate) fn forget_lockouts(&mut self) {
        self.propose_cluster(&Command::ForgetLockouts { at: self.wall }, Then::Forget);
    }

    /// What a password is to be checked against; for a name that nobody has, nothing of anybody.
    pub(crate) fn credentials(&self, user: &str, locked: bool) -> Credentials {
        match self.meta.cluster().user(user) {
            Some(user) => Credentials { hash: Some(user.hash.shared()), revision: user.revision.0, locked },
            None => Credentials { hash: None, revision: 0, locked },
        }
    }
}

fn copied(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}
