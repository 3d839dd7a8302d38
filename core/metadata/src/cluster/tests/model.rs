//! Random histories against a model that is too simple to be wrong: lists that are searched from the front,
//! and the rules of lockouts written down a second time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn a_user() -> impl Strategy<Value = Bytes> {
    prop_oneof![9 => "[abc]", 1 => Just("not a name".to_owned())].prop_map(|name| bytes(&name))
}

fn an_address() -> impl Strategy<Value = Bytes> {
    prop_oneof![9 => "[12]", 1 => Just(String::new())].prop_map(|address| bytes(&address))
}

fn a_pattern() -> impl Strategy<Value = Bytes> {
    prop_oneof![9 => "[ab]{0,3}\\*?", 1 => Just("a*b".to_owned())].prop_map(|pattern| bytes(&pattern))
}

fn an_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![Just(Operation::Produce), Just(Operation::Consume)]
}

fn a_grant() -> impl Strategy<Value = Grant> {
    (a_user(), an_operation(), a_pattern()).prop_map(|(user, operation, pattern)| Grant {
        user,
        operation,
        pattern,
    })
}

/// Small times and small rules, so that locks begin, end and are forgotten within one history.
fn a_time() -> impl Strategy<Value = WallTime> {
    (0..60_u64).prop_map(WallTime)
}

fn some_rules() -> impl Strategy<Value = LockoutRules> {
    (1..4_u32, 0..8_u64, any::<bool>(), 0..20_u64).prop_map(
        |(attempts, duration_ms, progressive, forget_ms)| {
            let attempts_max = NonZeroU32::new(attempts).unwrap();
            LockoutRules { attempts_max, duration_ms, progressive, forget_ms }
        },
    )
}

fn some_permissions() -> impl Strategy<Value = Permissions> {
    (0..8_u8).prop_map(|bits| Permissions::from_bits(bits).unwrap())
}

fn a_role() -> impl Strategy<Value = Option<Role>> {
    (0..4_u8).prop_map(|byte| Role::from_byte(byte).unwrap())
}

fn a_hash() -> impl Strategy<Value = PasswordHash> {
    "[a-z]{1,4}".prop_map(|text| hash(&text))
}

fn a_setting() -> impl Strategy<Value = Setting<u64>> {
    prop_oneof![Just(Setting::Inherit), Just(Setting::Off), any::<u64>().prop_map(Setting::Value)]
}

fn a_policy() -> impl Strategy<Value = Policy> {
    let key = prop_oneof![Just(Setting::Off), "[a-z]{0,2}".prop_map(|key| Setting::Value(bytes(&key)))];
    let settings = (a_setting(), a_setting(), a_setting(), a_setting(), key);
    settings.prop_map(|(age_ms_max, bytes_max, read_age_ms_max, unread_age_ms_max, spread_by)| Policy {
        age_ms_max,
        bytes_max,
        read_age_ms_max,
        unread_age_ms_max,
        spread_by,
    })
}

fn a_command() -> impl Strategy<Value = Command> {
    let create = (a_user(), a_hash(), some_permissions(), a_role(), a_time()).prop_map(
        |(user, hash, permissions, role, at)| {
            Command::CreateUser(CreateUser { user, hash, permissions, role, at })
        },
    );
    let password = (a_user(), a_hash(), a_time()).prop_map(|(user, hash, at)| Command::ChangePassword {
        user,
        hash,
        at,
    });
    let permissions = (a_user(), some_permissions(), a_time())
        .prop_map(|(user, permissions, at)| Command::SetPermissions { user, permissions, at });
    let role =
        (a_user(), a_role(), a_time()).prop_map(|(user, role, at)| Command::SetRole { user, role, at });
    let failure = (a_user(), an_address(), a_time(), some_rules()).prop_map(|(user, address, at, rules)| {
        Command::RecordFailure { attempt: Attempt { user, address, at }, rules }
    });
    let success =
        (a_user(), an_address()).prop_map(|(user, address)| Command::RecordSuccess { user, address });
    let unlock = (a_user(), prop::option::of(an_address()))
        .prop_map(|(user, address)| Command::Unlock { user, address });
    let name = || "[pq]{0,1}".prop_map(|name| bytes(&name));
    prop_oneof![
        3 => create,
        2 => a_user().prop_map(|user| Command::DeleteUser { user }),
        2 => password,
        1 => permissions,
        1 => role,
        4 => a_grant().prop_map(Command::Grant),
        2 => a_grant().prop_map(Command::Revoke),
        8 => failure,
        1 => success,
        1 => unlock,
        1 => a_time().prop_map(|at| Command::ForgetLockouts { at }),
        1 => (name(), a_policy()).prop_map(|(name, policy)| Command::DefinePolicy { name, policy }),
        1 => name().prop_map(|name| Command::DeletePolicy { name }),
        1 => Just(Command::Upgrade { to: crate::machine::Version::BUILD }),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Command(Command),
    Garbage(Vec<u8>),
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => a_command().prop_map(Step::Command),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Step::Garbage),
    ]
}

impl Step {
    fn entry(&self) -> Bytes {
        match self {
            Self::Command(command) => command.encode(),
            Self::Garbage(bytes) => bytes.clone().into(),
        }
    }
}

/// What is counted: failures, end of the lock (0 without one), when it is forgotten.
type Counted = (u32, u64, u64);

#[derive(Default)]
struct Model {
    users: BTreeMap<Bytes, (PasswordHash, Permissions, Option<Role>, WallTime, WallTime)>,
    revisions: BTreeMap<Bytes, u64>,
    highest: Option<u64>,
    grants: Vec<Grant>,
    counted: BTreeMap<(Bytes, Bytes), Counted>,
    policies: BTreeMap<Bytes, Policy>,
}

impl Model {
    fn drew(&mut self, user: &Bytes, revision: UserRevision) {
        assert!(self.highest.is_none_or(|highest| highest < revision.0), "revisions only grow");
        self.highest = Some(revision.0);
        self.revisions.insert(user.clone(), revision.0);
    }

    /// What a command that was not refused must have done.
    fn follow(&mut self, command: &Command, reply: &Reply) {
        match (command, reply) {
            (Command::CreateUser(c), Reply::UserCreated { revision }) => {
                let user = (c.hash.clone(), c.permissions, c.role, c.at, c.at);
                assert!(self.users.insert(c.user.clone(), user).is_none());
                self.drew(&c.user, *revision);
            }
            (Command::DeleteUser { user }, Reply::UserDeleted { revision, .. }) => {
                assert!(self.highest.is_none_or(|highest| highest < revision.0));
                self.users.remove(user);
                self.revisions.remove(user);
                self.grants.retain(|grant| grant.user != *user);
                self.counted.retain(|(name, _), _| name != user);
            }
            (Command::ChangePassword { user, hash, at }, Reply::PasswordChanged { revision, .. }) => {
                let row = self.users.get_mut(user).unwrap();
                (row.0, row.4) = (hash.clone(), *at);
                self.drew(user, *revision);
            }
            (Command::SetPermissions { user, permissions, at }, Reply::UserChanged) => {
                let row = self.users.get_mut(user).unwrap();
                (row.1, row.4) = (*permissions, *at);
            }
            (Command::SetRole { user, role, at }, Reply::UserChanged) => {
                let row = self.users.get_mut(user).unwrap();
                (row.2, row.4) = (*role, *at);
            }
            (Command::Grant(grant), Reply::Granted) => {
                if !self.grants.contains(grant) {
                    self.grants.push(grant.clone());
                }
            }
            (Command::Revoke(grant), Reply::Revoked) => self.grants.retain(|held| held != grant),
            (
                Command::RecordFailure { attempt, rules },
                Reply::FailureRecorded { count, locked_until, .. },
            ) => {
                let counted = self.fail(attempt, *rules);
                assert_eq!((counted.0, counted.1), (*count, locked_until.map_or(0, |until| until.0)));
            }
            (Command::RecordSuccess { user, address }, Reply::LockoutsCleared { .. }) => {
                self.counted.remove(&(user.clone(), address.clone()));
            }
            (Command::Unlock { user, address }, Reply::LockoutsCleared { .. }) => {
                let wanted = |at: &Bytes| address.as_ref().is_none_or(|address| address == at);
                self.counted.retain(|(name, at), _| name != user || !wanted(at));
            }
            (Command::ForgetLockouts { at }, Reply::LockoutsForgotten { .. }) => {
                self.counted.retain(|_, (_, _, forget)| *forget > at.0);
            }
            (Command::DefinePolicy { name, policy }, Reply::PolicyDefined) => {
                self.policies.insert(name.clone(), policy.clone());
            }
            (Command::DeletePolicy { name }, Reply::PolicyDeleted) => {
                self.policies.remove(name).unwrap();
            }
            (Command::Upgrade { .. }, Reply::Upgraded(_)) | (_, Reply::Refused(_)) => {}
            (command, reply) => panic!("{command:?} was answered {reply:?}"),
        }
    }

    fn fail(&mut self, attempt: &Attempt, rules: LockoutRules) -> Counted {
        let row = self.counted.entry((attempt.user.clone(), attempt.address.clone())).or_default();
        let at = attempt.at.0;
        if at >= row.2 {
            *row = (0, 0, 0);
        }
        if row.1 <= at {
            let count = row.0 + 1;
            let lock = match count / rules.attempts_max.get() {
                0 => None,
                _ if !rules.progressive => Some(rules.duration_ms),
                1 => Some(rules.duration_ms),
                2 => Some(rules.duration_ms * 3),
                3 => Some(rules.duration_ms * 9),
                4 => Some(rules.duration_ms * 24),
                _ => Some(rules.duration_ms * 72),
            };
            let until = lock.map_or(0, |lock| at + lock);
            *row = (count, until, until.max(at) + rules.forget_ms);
        }
        *row
    }

    fn check(&self, cluster: &Cluster) {
        let users: Vec<_> = cluster.users().map(|(name, _)| bytes(name.as_str())).collect();
        assert_eq!(users, self.users.keys().cloned().collect::<Vec<_>>());
        for (name, (hash, permissions, role, created, updated)) in &self.users {
            let user = cluster.user(std::str::from_utf8(name).unwrap()).unwrap();
            assert_eq!((&user.hash, user.permissions, user.role), (hash, *permissions, *role));
            assert_eq!((user.created_at, user.updated_at), (*created, *updated));
            assert_eq!(user.revision.0, self.revisions[name]);
        }
        self.check_grants(cluster);
        let counted: Vec<_> = cluster
            .lockouts
            .iter()
            .map(|(user, address, lockout)| {
                let until = lockout.locked_until.map_or(0, |until| until.0);
                let key = (bytes(user.as_str()), bytes(address.as_str()));
                (key, (lockout.count, until, lockout.forget_at.0))
            })
            .collect();
        assert_eq!(counted, self.counted.clone().into_iter().collect::<Vec<_>>());
        let policies: Vec<_> =
            cluster.policies().map(|(name, policy)| (bytes(name.as_str()), policy.clone())).collect();
        assert_eq!(policies, self.policies.clone().into_iter().collect::<Vec<_>>());
        // Derived indexes are rebuilt when a snapshot is decoded, so equality checks them against a rescan.
        assert_eq!(Cluster::decode_snapshot(cluster.encode_snapshot()).as_ref(), Ok(cluster));
    }

    fn check_grants(&self, cluster: &Cluster) {
        assert_eq!(cluster.grant_count(), self.grants.len());
        let topics = ["a", "b", "c", "aa", "ab", "ba", "aab", "abb", "bba", "aaab", "abba"];
        for user in ["a", "b", "c"] {
            for operation in [Operation::Produce, Operation::Consume] {
                let held = || self.grants.iter().filter(|g| g.user == user && g.operation == operation);
                let mut listed: Vec<_> = held().map(|g| g.pattern.clone()).collect();
                let mut stored: Vec<_> = rights(cluster, user)
                    .into_iter()
                    .filter(|(of, _)| *of == operation)
                    .map(|(_, pattern)| bytes(&pattern))
                    .collect();
                listed.sort();
                stored.sort();
                assert_eq!(stored, listed);
                for topic in topics {
                    let matches = |pattern: &[u8]| match pattern.strip_suffix(b"*") {
                        Some(prefix) => topic.as_bytes().starts_with(prefix),
                        None => topic.as_bytes() == pattern,
                    };
                    let expected = held().any(|grant| matches(&grant.pattern));
                    assert_eq!(may(cluster, user, operation, topic), expected, "{user} {topic}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_do_what_the_commands_say(
        steps in prop::collection::vec(a_step(), 1..80),
        cut in any::<prop::sample::Index>(),
    ) {
        let (mut cluster, mut model) = (Cluster::default(), Model::default());
        for (step, index) in steps.iter().zip(1..) {
            let mut before = cluster.clone();
            let reply = cluster.apply(RaftIndex(index), &step.entry());
            if matches!(reply, Reply::Refused(_)) {
                before.applied = cluster.applied;
                prop_assert_eq!(&cluster, &before);
            }
            if let Step::Command(command) = step {
                model.follow(command, &reply);
            }
            model.check(&cluster);
        }
        // The same log gives the same bytes, also across a snapshot taken anywhere.
        let cut = cut.index(steps.len());
        let mut other = Cluster::default();
        for (at, step) in steps.iter().enumerate() {
            if at == cut {
                other = Cluster::decode_snapshot(other.encode_snapshot()).unwrap();
            }
            other.apply(RaftIndex(at as u64 + 1), &step.entry());
        }
        prop_assert_eq!(other.encode_snapshot(), cluster.encode_snapshot());
        prop_assert_eq!(other.state_hash(), cluster.state_hash());
    }

    #[test]
    fn commands_come_back(command in a_command()) {
        let envelope = crate::machine::Envelope::decode(&command.encode()).unwrap();
        prop_assert_eq!(Command::decode(envelope), Ok(command));
    }

    #[test]
    fn no_bytes_stop_the_machine(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in prop_oneof![0..6_u8, 16..18_u8, 32..36_u8, 48..50_u8, 80..85_u8, 96..98_u8, 112..114_u8, 128..129_u8],
    ) {
        let mut cluster = Cluster::default();
        let entry = [&[0, 1, 0, kind], &bytes[..]].concat();
        cluster.apply(RaftIndex(9), &entry.into());
        prop_assert_eq!(Cluster::decode_snapshot(cluster.encode_snapshot()), Ok(cluster));
        let _ = Cluster::decode_snapshot(bytes.clone().into());
        let snapshot = [b"MCL\x02\x00\x01", &bytes[..]].concat();
        if let Ok(state) = Cluster::decode_snapshot(snapshot.clone().into()) {
            prop_assert_eq!(&state.encode_snapshot()[..], &snapshot[..]);
        }
    }

    /// Changes a real snapshot in a few places, which gets much further than bytes from nowhere.
    #[test]
    fn a_snapshot_that_was_touched_is_an_error_or_canonical(
        steps in prop::collection::vec(a_step(), 1..40),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut cluster = Cluster::default();
        for (step, index) in steps.iter().zip(1..) {
            cluster.apply(RaftIndex(index), &step.entry());
        }
        let mut snapshot = cluster.encode_snapshot().to_vec();
        for (at, value) in changes {
            let at = at.index(snapshot.len());
            snapshot[at] = value;
        }
        if let Ok(mut state) = Cluster::decode_snapshot(snapshot.clone().into()) {
            prop_assert_eq!(&state.encode_snapshot()[..], &snapshot[..]);
            // Whatever it says, it takes commands.
            for command in [create("zed", 1), failure("zed", "9", 1), delete("a")] {
                state.apply(RaftIndex(state.applied().0.saturating_add(1)), &command.encode());
            }
        }
    }
}
