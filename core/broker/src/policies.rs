//! Storage policies, as administrators define, bind and show them.
//!
//! Owns the answers of these requests and the two checks that neither table can make alone: a topic is bound to what
//! is defined, and what a topic points at is removed only by force. Does not decide what a policy means: `retention`
//! does, and whoever places copies.
//!
//! - On several nodes the tables are asked for first, so that what one node acknowledged holds on another.
//! - Both checks are made before the proposal: two administrators at the same moment can still leave a topic that
//!   points at nothing. Such a topic keeps everything, up to a bound for just that case.

use bytes::Bytes;
use metadata::cluster::{Command, Policy, PolicyName, Setting};
use metadata::vnode::Topic;
use types::{TopicName, VnodeId, limits};
use wire::Reason;

use crate::action::{Effective, Reply, Source, TopicPolicy};
use crate::auth::Session;
use crate::cluster::Then;
use crate::event::{Policies, RequestId};
use crate::late::Wanted;
use crate::meta::{self, CLUSTER};
use crate::node::Node;

/// Bytes of an answer that holds nothing.
const LIST_BYTES: usize = 64;
/// Bytes of a policy for people without its name and attribute, and of these, at most: a character of theirs may
/// need another before it.
const POLICY_BYTES: usize = 256 + 2 * 2 * limits::POLICY_NAME_BYTES_MAX;

impl Node {
    /// Answers what an administrator asks about storage policies.
    pub(crate) fn policies(&mut self, id: RequestId, session: &Session, request: Policies) {
        if !self.is_admin(session) {
            return self.core.reply(id, Reply::Failed(Reason::PermissionDenied));
        }
        if self.may_lag() && !matches!(request, Policies::Define { .. }) {
            return self.look_later(id, Wanted::Policies(session.clone(), request));
        }
        self.policies_surely(id, session, request);
    }

    /// The same by tables that are up to date.
    pub(crate) fn policies_surely(&mut self, id: RequestId, session: &Session, request: Policies) {
        let reply = if self.is_admin(session) {
            self.answer_policies(id, request)
        } else {
            Err(Reason::PermissionDenied)
        };
        if let Some(reply) = reply.unwrap_or_else(|reason| Some(Reply::Failed(reason))) {
            self.core.reply(id, reply);
        }
    }

    /// `None` when the answer comes with a decision.
    fn answer_policies(&mut self, id: RequestId, request: Policies) -> Result<Option<Reply>, Reason> {
        match request {
            Policies::Define { name, policy } => {
                PolicyName::new(&name).map_err(|_| Reason::InvalidPolicy)?;
                if !policy.is_valid() {
                    return Err(Reason::InvalidPolicy);
                }
                self.core.propose_cluster(&Command::DefinePolicy { name, policy }, Then::Policy(id));
                Ok(None)
            }
            Policies::Delete { name, force } => {
                let known = PolicyName::new(&name).map_err(|_| Reason::NoSuchPolicy)?;
                self.core.meta.cluster().policy(known.as_str()).ok_or(Reason::NoSuchPolicy)?;
                if !force && self.is_bound(&known) {
                    return Err(Reason::PolicyInUse);
                }
                self.core.propose_cluster(&Command::DeletePolicy { name }, Then::Policy(id));
                Ok(None)
            }
            Policies::Bind { topic, name } => {
                let topic = topic.and_then(|name| self.topic(&name)).ok_or(Reason::NoSuchTopic)?;
                if let Some(name) = &name {
                    let name = PolicyName::new(name).map_err(|_| Reason::NoSuchPolicy)?;
                    self.core.meta.cluster().policy(name.as_str()).ok_or(Reason::NoSuchPolicy)?;
                }
                self.core.bind_policy(id, topic, name);
                Ok(None)
            }
            Policies::Get { topic } => {
                let topic = topic.and_then(|name| self.topic(&name)).ok_or(Reason::NoSuchTopic)?;
                let topic = self.core.meta.of(topic).topic(topic).ok_or(Reason::NoSuchTopic)?;
                Ok(Some(Reply::Policy(Box::new(self.policy_of(topic)))))
            }
            Policies::List => self.list_policies().map(Some),
        }
    }

    /// Whether a topic points at it. Takes time in proportion to the topics.
    fn is_bound(&self, name: &PolicyName) -> bool {
        self.core.meta.all_topics().any(|(_, _, topic)| topic.policy.as_ref() == Some(name))
    }

    fn list_policies(&self) -> Result<Reply, Reason> {
        let cluster = self.core.meta.cluster();
        let bytes = LIST_BYTES + cluster.policies().count() * POLICY_BYTES;
        if bytes > self.core.config.frame_bytes_max {
            return Err(Reason::Unsupported);
        }
        let row = |(name, policy): (&PolicyName, &Policy)| (name.as_str().to_owned(), policy.clone());
        Ok(Reply::Policies(cluster.policies().map(row).collect()))
    }

    fn policy_of(&self, topic: &Topic) -> TopicPolicy {
        let defaults = &self.core.config.retention;
        let spread_by = self.core.config.placement.spread_by.as_ref();
        let spread_by = spread_by.map(|key| Bytes::copy_from_slice(key.as_bytes()));
        let name = topic.policy.as_ref().map(|name| name.as_str().to_owned());
        let policy = name.as_ref().and_then(|name| self.core.meta.cluster().policy(name));
        let is_defined = policy.is_some();
        if let (Some(name), None) = (&name, policy) {
            // Nothing of it goes, but by the bound for such topics; its copies lie as any others do.
            let kept = || Effective { value: None, source: Source::Undefined };
            let age_ms_max = Effective { value: defaults.unresolved_age_ms_max, source: Source::Undefined };
            return TopicPolicy {
                name: Some(name.clone()),
                is_defined,
                age_ms_max,
                bytes_max: kept(),
                read_age_ms_max: kept(),
                unread_age_ms_max: kept(),
                spread_by: Effective { value: spread_by, source: Source::Default },
            };
        }
        let policy = policy.cloned().unwrap_or_default();
        TopicPolicy {
            name,
            is_defined,
            age_ms_max: effective(policy.age_ms_max, defaults.age_ms_max),
            bytes_max: effective(policy.bytes_max, defaults.bytes_max),
            read_age_ms_max: effective(policy.read_age_ms_max, None),
            unread_age_ms_max: effective(policy.unread_age_ms_max, None),
            spread_by: effective(policy.spread_by, spread_by),
        }
    }

    /// Metadata decided on what a topic points at.
    pub(crate) fn policy_bound(&mut self, id: RequestId, result: Result<(), meta::Error>) {
        let reply = result.map_or_else(|error| Reply::Failed(reason(error)), |()| Reply::Done);
        self.core.reply(id, reply);
    }
}

impl Policies {
    /// Groups whose tables have to be up to date before it can be answered. Which topics point at a policy is not
    /// asked of all vnodes: one of them that has no leader would be in the way of every other request.
    pub(crate) fn groups(&self, home_of: impl Fn(&TopicName) -> VnodeId) -> Vec<VnodeId> {
        match self {
            Self::Bind { topic, .. } | Self::Get { topic } => {
                let name = TopicName::new(topic.as_deref().unwrap_or_default()).ok();
                std::iter::once(CLUSTER).chain(name.map(|name| home_of(&name))).collect()
            }
            Self::Define { .. } | Self::Delete { .. } | Self::List => vec![CLUSTER],
        }
    }
}

fn effective<T>(setting: Setting<T>, default: Option<T>) -> Effective<T> {
    match setting {
        Setting::Inherit => Effective { value: default, source: Source::Default },
        Setting::Off => Effective { value: None, source: Source::Policy },
        Setting::Value(value) => Effective { value: Some(value), source: Source::Policy },
    }
}

fn reason(error: meta::Error) -> Reason {
    match error {
        meta::Error::NoSuchTopic => Reason::NoSuchTopic,
        meta::Error::Unknown => Reason::Timeout,
        meta::Error::Unavailable => Reason::Unavailable,
        meta::Error::Migrating => Reason::Migrating,
        meta::Error::AlreadyExists
        | meta::Error::InvalidTopicName
        | meta::Error::Sealed
        | meta::Error::NoSuchRange
        | meta::Error::CannotSplit
        | meta::Error::NotBuddies
        | meta::Error::TooManyRanges
        | meta::Error::TooManyGroups
        | meta::Error::InsufficientDomains
        | meta::Error::Refused => Reason::InternalError,
    }
}
