//! Users, what they may do, and how they log in.

use std::num::NonZeroU32;
use std::sync::Arc;

use storage::raft_log::{self, RaftLog};
use types::VnodeId;

use super::*;
use crate::event::{Login, Right, Users};
use crate::{Credentials, LockoutRules, UserInfo};

const ADDRESS: &str = "192.0.2.7";
const PRODUCER: Permissions = Permissions { admin: false, produce: true, consume: false };
const MINUTE: u64 = 60_000;

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn create_user(user: &'static str, permissions: Permissions) -> Request {
    Request::Users(Users::Create { username: text(user), hash: "$first$".into(), permissions })
}

fn change_password(user: &'static str) -> Request {
    Request::Users(Users::ChangePassword { username: text(user), hash: "$second$".into() })
}

fn delete_user(user: &'static str) -> Request {
    Request::Users(Users::Delete { username: text(user) })
}

fn set_role(user: &'static str, role: Option<&'static str>) -> Request {
    Request::Users(Users::SetRole { username: text(user), role: role.map(text) })
}

fn page(after: Option<&'static str>, max: u32) -> Request {
    Request::Users(Users::ListPage { after: after.map(text), max })
}

fn right(user: &'static str, operation: &'static str, pattern: &'static str) -> Right {
    Right { username: text(user), operation: text(operation), pattern: text(pattern) }
}

fn grant(user: &'static str, operation: &'static str, pattern: &'static str) -> Request {
    Request::Users(Users::Grant(right(user, operation, pattern)))
}

fn revoke(user: &'static str, operation: &'static str, pattern: &'static str) -> Request {
    Request::Users(Users::Revoke(right(user, operation, pattern)))
}

fn rights_of(user: &'static str) -> Request {
    Request::Users(Users::ListRights { username: text(user) })
}

impl Bench {
    fn login(&mut self, login: Login) -> Reply {
        self.next += 1;
        let id = RequestId { connection: ConnectionId(1), number: self.next };
        self.step(Event::Login { id, login });
        self.settle();
        self.reply(id).expect("answered once the disks are done")
    }

    fn credentials(&mut self, user: &'static str) -> Credentials {
        match self.login(Login::Credentials { username: text(user), address: ADDRESS.into() }) {
            Reply::Credentials(credentials) => credentials,
            reply => panic!("{reply:?}"),
        }
    }

    fn fail(&mut self, user: &'static str) -> Reply {
        self.login(Login::Failed { username: text(user), address: ADDRESS.into() })
    }

    fn succeed(&mut self, user: &'static str) -> Reply {
        let revision = self.credentials(user).revision;
        self.login(Login::Succeeded { username: text(user), address: ADDRESS.into(), revision })
    }

    fn pass_ms(&mut self, ms: u64) {
        self.wall.0 += ms;
        self.pass(Duration::from_millis(ms));
    }
}

#[test]
fn users_that_have_to_be_there_are_made_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.seeded.len(), 8);
    bench.seeded.clear();
    bench.restart();
    assert!(bench.ready);
    assert_eq!(bench.seeded, [""; 0]);
    // A password that was changed since stays, and so does another that the configuration has now.
    let user: &'static str = "admin-true-produce-false-consume-false";
    assert_eq!(bench.ask(change_password(user)), Reply::Done);
    bench.config.seed_users[0].hash = "$third$".into();
    assert_eq!(bench.ask_in(&bench.session(user), delete_user(name_of(NOBODY).leak())), Reply::Done);
    bench.restart();
    assert_eq!(bench.seeded, [name_of(NOBODY)], "one that was deleted does not exist");
    assert_eq!(bench.credentials(user).hash.as_deref(), Some("$second$"));
}

#[test]
fn a_node_serves_once_its_users_are_there() {
    let mut bench = Bench::new();
    bench.config.seed_users.push(SeedUser {
        name: "late".into(),
        hash: "$late$".into(),
        permissions: NOBODY,
    });
    bench.restart_for(0);
    // The log holds everything, and the new user is not durable yet.
    while !bench.raft.jobs.is_empty() || !bench.log.jobs.is_empty() {
        assert!(!bench.ready || bench.node.core.session_of("late").is_some());
        assert_eq!(bench.run_jobs(1), 0);
    }
    assert!(bench.ready);
    assert_eq!(bench.seeded.last().map(String::as_str), Some("late"));
}

#[test]
fn a_user_that_cannot_be_made_does_not_stop_the_start() {
    let bad = SeedUser { name: "no name".into(), hash: "$x$".into(), permissions: NOBODY };
    let unhashed = SeedUser { name: "plain".into(), hash: "secret".into(), permissions: NOBODY };
    let bench = Bench::with(|config| config.seed_users.extend([bad, unhashed]));
    assert_eq!(bench.seeded.len(), 8);
    let failed: Vec<_> =
        bench.notices.iter().filter(|notice| matches!(notice, Notice::SeedFailed { .. })).collect();
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(!format!("{failed:?}").contains("secret"));
}

#[test]
fn only_administrators_see_and_change_users() {
    let mut bench = Bench::new();
    let everything = Permissions { admin: false, produce: true, consume: true };
    let requests = [
        Request::Users(Users::Check),
        create_user("ann", NOBODY),
        delete_user("ann"),
        change_password("ann"),
        Request::Users(Users::List),
        Request::Users(Users::ListRoles),
        page(None, 0),
        set_role("ann", Some("viewer")),
        Request::Users(Users::Look),
        grant("ann", "produce", "*"),
        revoke("ann", "produce", "*"),
        rights_of("ann"),
        Request::Users(Users::Unlock { username: text("ann"), address: None }),
    ];
    for request in requests {
        assert_eq!(bench.ask_as(everything, request), failed(Reason::PermissionDenied));
    }
    assert_eq!(bench.ask(Request::Users(Users::Check)), Reply::Done);
}

#[test]
fn users_are_made_listed_and_removed() {
    let mut bench = Bench::new();
    let seeded = match bench.ask(Request::Users(Users::List)) {
        Reply::Users(users) => users,
        reply => panic!("{reply:?}"),
    };
    assert_eq!(bench.ask(create_user("ann", PRODUCER)), Reply::Done);
    assert_eq!(bench.ask(create_user("ann", PRODUCER)), failed(Reason::UserExists));
    assert_eq!(bench.ask(create_user("a n", PRODUCER)), failed(Reason::InvalidUsername));
    assert_eq!(bench.ask(change_password("bob")), failed(Reason::UserNotFound));
    let ann = UserInfo { name: "ann".into(), permissions: PRODUCER, role: None };
    let expected: Vec<_> = seeded.iter().cloned().chain([ann]).collect();
    bench.restart();
    assert_eq!(bench.ask(Request::Users(Users::List)), Reply::Users(expected));
    for _ in 0..2 {
        assert_eq!(bench.ask(delete_user("ann")), Reply::Done);
    }
    assert_eq!(bench.ask(Request::Users(Users::List)), Reply::Users(seeded));
}

/// Whoever changes its own password goes on where it did; an administrator who changes another's does not matter.
#[test]
fn the_connection_a_password_was_changed_on_goes_on() {
    let mut bench = Bench::new();
    let admin = Permissions { admin: true, ..NOBODY };
    assert_eq!(bench.ask(create_user("root", admin)), Reply::Done);
    let before = bench.session("root");
    assert_eq!(bench.ask_in(&before, change_password("root")), Reply::Done);
    let after = bench.session("root");
    assert_eq!(bench.renewed, [(ConnectionId(1), after.clone())]);
    assert_eq!(bench.revoked, [("root".to_owned(), after.revision)], "the others end");
    assert_eq!(bench.ask_in(&before, Request::Users(Users::Check)), failed(Reason::PermissionDenied));
    assert_eq!(bench.ask_in(&after, Request::Users(Users::Check)), Reply::Done);
    assert_eq!(bench.ask(change_password("root")), Reply::Done);
    assert_eq!(bench.renewed.len(), 1, "it was somebody else's");
}

#[test]
fn a_role_opens_the_operators_surfaces_and_nothing_else() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(create_user("ann", NOBODY)), Reply::Done);
    let ann = bench.session("ann");
    let look = || Request::Users(Users::Look);
    assert_eq!(bench.ask_in(&ann, look()), failed(Reason::PermissionDenied));
    assert_eq!(bench.ask(set_role("ann", Some("owner"))), failed(Reason::InvalidRole));
    assert_eq!(bench.ask(set_role("bob", Some("viewer"))), failed(Reason::UserNotFound));
    assert_eq!(bench.ask(set_role("ann", Some("viewer"))), Reply::Done);
    assert_eq!(bench.ask_in(&ann, look()), Reply::Done);
    assert_eq!(bench.ask_in(&ann, Request::Users(Users::Check)), failed(Reason::PermissionDenied));
    assert_eq!(bench.ask_in(&ann, produce("t", &["a"])), failed(Reason::PermissionDenied));
    let Reply::UsersAndRoles(users) = bench.ask(Request::Users(Users::ListRoles)) else { panic!("users") };
    let roles: Vec<_> = users.iter().filter_map(|user| user.role.map(|role| (&*user.name, role))).collect();
    assert_eq!(roles, [("ann", crate::Role::Viewer)]);
    assert_eq!(bench.ask(set_role("ann", None)), Reply::Done);
    assert_eq!(bench.ask_in(&ann, look()), failed(Reason::PermissionDenied));
}

#[test]
fn users_are_listed_some_at_a_time_and_whole_only_when_they_fit_a_frame() {
    let mut bench = Bench::with(|config| config.frame_bytes_max = 1024);
    for user in ["ann", "bob", "cid"] {
        assert_eq!(bench.ask(create_user(user, PRODUCER)), Reply::Done);
    }
    let names = |reply: Reply| match reply {
        Reply::UserPage(users, more) => (users.iter().map(|user| user.name.to_string()).collect(), more),
        reply => panic!("{reply:?}"),
    };
    let (all, more): (Vec<String>, bool) = names(bench.ask(page(None, 0)));
    assert!(all.len() == 11 && !more && all.is_sorted());
    let listed = |bench: &mut Bench, after, max| names(bench.ask(page(after, max)));
    let some = |names: &[&str], more| (names.iter().map(ToString::to_string).collect::<Vec<_>>(), more);
    assert_eq!(listed(&mut bench, Some("ann"), 1), some(&["bob"], true));
    assert_eq!(listed(&mut bench, Some("bob"), 1), some(&["cid"], false));
    assert_eq!(listed(&mut bench, Some("aaa"), 2), some(&[&all[0], &all[1]], true));
    assert_eq!(listed(&mut bench, Some("cid"), 0), some(&[], false));
    // A name as long as names may be, often enough.
    let long = |n: usize| -> &'static str { format!("z{n:0>127}").leak() };
    for n in 0..8 {
        assert_eq!(bench.ask(create_user(long(n), PRODUCER)), Reply::Done);
    }
    for list in [Users::List, Users::ListRoles] {
        assert_eq!(bench.ask(Request::Users(list)), failed(Reason::Unsupported));
    }
    let (mut seen, mut more) = (Vec::new(), true);
    while more {
        let after = seen.last().map(|name: &String| -> &'static str { name.clone().leak() });
        let (some, goes_on): (Vec<String>, bool) = names(bench.ask(page(after, 0)));
        assert!(!some.is_empty());
        seen.extend(some);
        more = goes_on;
    }
    assert!(seen.len() == 19 && seen.is_sorted());
    for n in 0..8 {
        assert_eq!(bench.ask(grant("ann", "produce", long(n))), Reply::Done);
    }
    assert_eq!(bench.ask(rights_of("ann")), failed(Reason::Unsupported));
}

#[test]
fn a_session_ends_with_the_password_or_the_life_it_began_with() {
    let mut bench = Bench::with_topic();
    let user = || create_user("ann", PRODUCER);
    assert_eq!(bench.ask(user()), Reply::Done);
    let first = bench.session("ann");
    assert_eq!(bench.ask_in(&first, produce("t", &["a"])), Reply::Stored(1));
    assert_eq!(bench.ask_in(&first, Request::Fetch(fetch("t"))), failed(Reason::PermissionDenied));

    assert_eq!(bench.ask(change_password("ann")), Reply::Done);
    let second = bench.session("ann");
    assert!(second.revision > first.revision);
    assert_eq!(bench.revoked, [("ann".to_owned(), second.revision)]);
    assert_eq!(bench.ask_in(&first, produce("t", &["b"])), failed(Reason::PermissionDenied));
    assert_eq!(bench.ask_in(&second, produce("t", &["b"])), Reply::Stored(1));

    bench.revoked.clear();
    assert_eq!(bench.ask(delete_user("ann")), Reply::Done);
    let over = bench.revoked[0].1;
    assert!(over > second.revision);
    assert_eq!(bench.ask_in(&second, produce("t", &["c"])), failed(Reason::PermissionDenied));
    assert_eq!(bench.ask(user()), Reply::Done);
    let third = bench.session("ann");
    assert!(third.revision >= over, "a session of the new life is not over");
    for old in [&first, &second] {
        assert_eq!(bench.ask_in(old, produce("t", &["c"])), failed(Reason::PermissionDenied));
    }
    assert_eq!(bench.ask_in(&third, produce("t", &["c"])), Reply::Stored(1));
    // Nobody is told again when the log is read again.
    bench.revoked.clear();
    bench.restart();
    assert_eq!(bench.revoked, []);
}

#[test]
fn a_right_counts_from_the_next_request_on() {
    let mut bench = Bench::with_topic();
    let ask = |bench: &mut Bench, topic| bench.ask_as(NOBODY, produce(topic, &["a"]));
    assert_eq!(ask(&mut bench, "t"), failed(Reason::PermissionDenied));
    let nobody: &'static str = name_of(NOBODY).leak();
    for _ in 0..2 {
        assert_eq!(bench.ask(grant(nobody, "produce", "t")), Reply::Done);
    }
    assert_eq!(ask(&mut bench, "t"), Reply::Stored(1));
    assert_eq!(ask(&mut bench, "t2"), failed(Reason::PermissionDenied));
    assert_eq!(bench.ask_as(NOBODY, Request::Fetch(fetch("t"))), failed(Reason::PermissionDenied));
    assert_eq!(bench.ask(grant(nobody, "consume", "t*")), Reply::Done);
    bench.restart();
    assert!(matches!(bench.ask_as(NOBODY, Request::Fetch(fetch("t2"))), Reply::Fetched(_)));
    let rights = vec![("produce", "t".to_owned()), ("consume", "t*".to_owned())];
    assert_eq!(bench.ask(rights_of(nobody)), Reply::Rights(rights));
    assert_eq!(bench.ask(revoke(nobody, "produce", "t")), Reply::Done);
    assert_eq!(ask(&mut bench, "t"), failed(Reason::PermissionDenied));
    assert_eq!(bench.ask(rights_of("whoever")), Reply::Rights(Vec::new()));
    assert_eq!(bench.ask(grant(nobody, "Produce", "t")), failed(Reason::InvalidOperation));
    assert_eq!(bench.ask(grant(nobody, "produce", "a*b")), failed(Reason::InvalidAcl));
}

#[test]
fn in_strict_mode_only_rights_count() {
    let mut bench = Bench::with(|config| config.acl_strict = true);
    assert_eq!(bench.ask(create("t")), Reply::Created);
    assert_eq!(bench.ask_as(PRODUCER, produce("t", &["a"])), failed(Reason::PermissionDenied));
    assert_eq!(bench.ask(grant(name_of(PRODUCER).leak(), "produce", "*")), Reply::Done);
    assert_eq!(bench.ask_as(PRODUCER, produce("t", &["a"])), Reply::Stored(1));
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1), "an administrator needs none");
}

#[test]
fn whoever_knows_the_password_gets_a_session() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(create_user("ann", PRODUCER)), Reply::Done);
    let credentials = bench.credentials("ann");
    assert_eq!((credentials.hash.as_deref(), credentials.locked), (Some("$first$"), false));
    assert!(!format!("{credentials:?}").contains("first"));
    assert_eq!(bench.succeed("ann"), Reply::Welcome(bench.session("ann")));
    for user in ["bob", "no name", ""] {
        assert_eq!(bench.credentials(user), Credentials { hash: None, revision: 0, locked: false });
        assert_eq!(bench.succeed(user), failed(Reason::InvalidCredentials));
    }
    // What was proven was proven about a password that is not the user's any more.
    assert_eq!(bench.ask(change_password("ann")), Reply::Done);
    let revision = credentials.revision;
    let late = Login::Succeeded { username: text("ann"), address: ADDRESS.into(), revision };
    assert_eq!(bench.login(late), failed(Reason::InvalidCredentials));
}

#[test]
fn failures_lock_by_address_and_across_restarts() {
    let mut bench = Bench::new();
    for user in ["bob", "ann"] {
        for _ in 0..5 {
            assert!(!bench.credentials(user).locked);
            assert_eq!(bench.fail(user), Reply::Done);
        }
    }
    let locked = |notice: &Notice| matches!(notice, Notice::AccountLocked { failures: 5, .. });
    assert_eq!(bench.notices.iter().filter(|notice| locked(notice)).count(), 2);
    bench.restart();
    assert!(bench.credentials("bob").locked, "nobody has that name");
    assert_eq!(bench.fail("bob"), failed(Reason::AccountLocked));
    let elsewhere = Login::Credentials { username: text("bob"), address: "192.0.2.8".into() };
    assert!(matches!(bench.login(elsewhere), Reply::Credentials(Credentials { locked: false, .. })));
    bench.pass_ms(5 * MINUTE);
    assert!(!bench.credentials("bob").locked);
    assert_eq!(bench.fail("bob"), Reply::Done);
    assert!(bench.credentials("bob").locked, "the count stayed");
}

#[test]
fn guessing_in_parallel_gains_nothing() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(create_user("ann", PRODUCER)), Reply::Done);
    // All were let through before the first failure.
    let revision = bench.credentials("ann").revision;
    let ids: Vec<RequestId> = (0..8)
        .map(|number| {
            let id = RequestId { connection: ConnectionId(9), number };
            let login = Login::Failed { username: text("ann"), address: ADDRESS.into() };
            bench.step(Event::Login { id, login });
            id
        })
        .collect();
    assert!(ids.iter().all(|id| bench.reply(*id).is_none()), "a failure is counted before it is answered");
    bench.settle();
    let replies: Vec<_> = ids.iter().map(|id| bench.reply(*id).unwrap()).collect();
    assert_eq!(replies[..5], vec![Reply::Done; 5]);
    assert_eq!(replies[5..], vec![failed(Reason::AccountLocked); 3]);
    let right = Login::Succeeded { username: text("ann"), address: ADDRESS.into(), revision };
    assert_eq!(bench.login(right), failed(Reason::AccountLocked));
}

#[test]
fn a_success_and_an_administrator_clear_what_was_counted() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(create_user("ann", PRODUCER)), Reply::Done);
    for _ in 0..4 {
        bench.fail("ann");
    }
    assert_eq!(bench.succeed("ann"), Reply::Welcome(bench.session("ann")));
    for _ in 0..4 {
        bench.fail("ann");
    }
    assert!(!bench.credentials("ann").locked);
    bench.fail("ann");
    assert!(bench.credentials("ann").locked);
    let unlock = |address: Option<&str>| {
        Request::Users(Users::Unlock { username: text("ann"), address: address.map(Arc::from) })
    };
    assert_eq!(bench.ask(unlock(Some("192.0.2.8"))), Reply::Unlocked(0));
    assert!(bench.credentials("ann").locked);
    assert_eq!(bench.ask(unlock(None)), Reply::Unlocked(1));
    assert!(!bench.credentials("ann").locked);
}

#[test]
fn counts_are_forgotten_by_themselves() {
    let rules = LockoutRules {
        attempts_max: NonZeroU32::new(2).unwrap(),
        duration_ms: 1000,
        progressive: true,
        forget_ms: 10 * MINUTE,
    };
    let mut bench = Bench::with(|config| config.lockout = rules);
    bench.fail("ann");
    assert_eq!(bench.node.core.meta.cluster().lockout_count(), 1);
    bench.pass_ms(9 * MINUTE);
    assert_eq!(bench.node.core.meta.cluster().lockout_count(), 1);
    for _ in 0..2 {
        bench.pass_ms(MINUTE);
    }
    assert_eq!(bench.node.core.meta.cluster().lockout_count(), 0);
}

#[test]
fn users_survive_the_snapshots_of_their_group() {
    let mut bench = Bench::with(|config| config.snapshot_entries = 10);
    for _ in 0..30 {
        assert_eq!(bench.ask(grant("ann", "produce", "a")), Reply::Done);
        assert_eq!(bench.ask(create_user("ann", PRODUCER)), Reply::Done);
        assert_eq!(bench.ask(delete_user("ann")), Reply::Done);
    }
    assert_eq!(bench.ask(create_user("ann", PRODUCER)), Reply::Done);
    assert!(bench.raft.has_file(".snap"), "the log was cut");
    let before = bench.node.core.meta.cluster().clone();
    bench.seeded.clear();
    bench.restart();
    assert!(bench.ready, "{:?}", bench.stop);
    let after = bench.node.core.meta.cluster();
    assert!(after.users().eq(before.users()) && after.grant_count() == 0);
    assert_eq!(bench.seeded, [""; 0]);
}

#[test]
fn what_the_user_store_did_not_commit_is_said() {
    let mut bench = Bench::new();
    bench.raft.fail_writes = Some(ErrorKind::Other);
    assert_eq!(bench.ask(create_user("ann", PRODUCER)), failed(Reason::PersistFailed));
    assert_eq!(bench.ask(create_user("bob", PRODUCER)), failed(Reason::PersistFailed));
    assert_eq!(bench.ask(grant("ann", "produce", "*")), failed(Reason::Unavailable));
    assert_eq!(bench.fail("ann"), failed(Reason::Unavailable), "not counted, and not told as wrong");
    // Everybody who is known goes on.
    assert_eq!(bench.ask(Request::Users(Users::Check)), Reply::Done);
}

#[test]
fn data_of_a_build_without_users_gets_its_group() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    forget_group(&mut bench, crate::meta::CLUSTER);
    bench.seeded.clear();
    bench.restart();
    assert!(bench.ready, "{:?}", bench.stop);
    assert_eq!(bench.seeded.len(), 8);
    assert_eq!(bench.page(fetch("t")).values, ["a"]);
}

#[test]
fn users_beside_a_lost_vnode_do_not_stand_for_it() {
    let mut bench = Bench::with_topic();
    assert_eq!(bench.ask(produce("t", &["a"])), Reply::Stored(1));
    forget_group(&mut bench, crate::meta::VNODE);
    for _ in 0..2 {
        bench.stop = None;
        bench.restart();
        assert_eq!(bench.stop, Some(Stop::Orphans { copies: 1 }));
    }
}

/// Removes a group from the log by hand, as if it had never been.
fn forget_group(bench: &mut Bench, group: VnodeId) {
    bench.raft.crash();
    let mut log = RaftLog::new(bench.config.raft_log.clone());
    let mut actions = Vec::new();
    log.start(&mut actions);
    let mut forgotten = false;
    loop {
        for action in std::mem::take(&mut actions) {
            match action {
                raft_log::Action::Disk(job) => bench.raft.jobs.push_back(job),
                raft_log::Action::Started { .. } => {
                    log.forget(storage::store::RequestId(1), group, &mut actions);
                }
                raft_log::Action::Reply(_, reply) => forgotten = matches!(reply, raft_log::Reply::Forgotten),
                raft_log::Action::StartFailed(error) => panic!("{error}"),
                raft_log::Action::Notice(_) => {}
            }
        }
        if actions.is_empty() {
            let Some(done) = bench.raft.run_one() else { break };
            log.complete(done, &mut actions);
        }
    }
    assert!(forgotten);
}
