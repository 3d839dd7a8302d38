//! When failures lock, for how long, and when they are forgotten.

use super::*;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

fn address(text: &str) -> Address {
    Address::new(text.as_bytes()).unwrap()
}

fn until(cluster: &Cluster) -> Option<u64> {
    cluster.locked_until("ann", &address("10.0.0.1")).map(|until| until.0)
}

fn count(cluster: &Cluster) -> u32 {
    cluster.lockout("ann", &address("10.0.0.1")).map_or(0, |lockout| lockout.count)
}

fn fail_at(cluster: &mut Cluster, at: u64) -> (u32, Option<u64>, bool) {
    let reply = run(cluster, &failure("ann", "10.0.0.1", at));
    let Reply::FailureRecorded { count, locked_until, locked_now } = reply else { panic!("{reply:?}") };
    (count, locked_until.map(|until| until.0), locked_now)
}

/// Fails whenever that is possible, `failures` times in all; how long each failure locked for.
fn locks(cluster: &mut Cluster, failures: u32) -> Vec<u64> {
    let mut now = 1000;
    (1..=failures)
        .map(|expected| {
            let (count, until, _) = fail_at(cluster, now);
            assert_eq!(count, expected);
            let lock = until.map_or(0, |until| until - now);
            now += lock;
            lock
        })
        .collect()
}

#[test]
fn locks_grow_with_every_limit_reached() {
    let locks = locks(&mut Cluster::default(), 27);
    let of = |failure: usize| locks[failure - 1] / MINUTE;
    assert_eq!([1, 4].map(of), [0, 0]);
    assert_eq!([5, 9].map(of), [5, 5]);
    assert_eq!([10, 14].map(of), [15, 15]);
    assert_eq!([15, 19].map(of), [45, 45]);
    assert_eq!([20, 24].map(of), [120, 120]);
    assert_eq!([25, 27].map(of), [360, 360]);
}

#[test]
fn a_lock_is_of_one_length_when_it_does_not_grow() {
    let mut cluster = Cluster::default();
    let rules = LockoutRules { progressive: false, ..RULES };
    for now in 1..=30 {
        let at = WallTime(now * HOUR / 2);
        let attempt = Attempt { user: bytes("ann"), address: bytes("10.0.0.1"), at };
        let reply = run(&mut cluster, &Command::RecordFailure { attempt, rules });
        let Reply::FailureRecorded { locked_until, .. } = reply else { panic!("{reply:?}") };
        assert_eq!(locked_until.map(|until| until.0 - at.0), (now >= 5).then_some(5 * MINUTE));
    }
}

#[test]
fn a_failure_that_was_let_through_before_the_lock_does_not_make_it_longer() {
    let mut cluster = Cluster::default();
    for _ in 0..4 {
        fail_at(&mut cluster, 1000);
    }
    assert_eq!(until(&cluster), None);
    let end = 1000 + 5 * MINUTE;
    assert_eq!(fail_at(&mut cluster, 1000), (5, Some(end), true));
    assert_eq!(fail_at(&mut cluster, 1001), (5, Some(end), false));
    assert_eq!(fail_at(&mut cluster, end - 1), (5, Some(end), false));
    // At its end it is over, and the count stays.
    assert_eq!(fail_at(&mut cluster, end), (6, Some(end + 5 * MINUTE), true));
}

#[test]
fn a_success_or_an_unlock_clears() {
    let mut cluster = Cluster::default();
    let success = Command::RecordSuccess { user: bytes("ann"), address: bytes("10.0.0.1") };
    let cleared = |addresses| Reply::LockoutsCleared { addresses };
    locks(&mut cluster, 5);
    assert_eq!(run(&mut cluster, &success), cleared(1));
    assert_eq!((count(&cluster), until(&cluster)), (0, None));
    assert_eq!(run(&mut cluster, &success), cleared(0));

    let unlock = |address: Option<&str>| Command::Unlock { user: bytes("ann"), address: address.map(bytes) };
    locks(&mut cluster, 5);
    run(&mut cluster, &failure("ann", "10.0.0.2", 1000));
    run(&mut cluster, &failure("bob", "10.0.0.2", 1000));
    assert_eq!(run(&mut cluster, &unlock(Some("10.0.0.9"))), cleared(0));
    assert_eq!(run(&mut cluster, &unlock(Some("10.0.0.1"))), cleared(1));
    assert_eq!(count(&cluster), 0);
    locks(&mut cluster, 5);
    assert_eq!(run(&mut cluster, &unlock(None)), cleared(2));
    assert_eq!(cluster.lockout_count(), 1);
    refused(&mut cluster, &unlock(Some("")), Refusal::InvalidAddress);
    refused(&mut cluster, &failure("ann", &"x".repeat(65), 1), Refusal::InvalidAddress);
    refused(&mut cluster, &failure("ann", "10.0.0.1 ", 1), Refusal::InvalidAddress);
}

#[test]
fn a_count_is_forgotten_an_hour_after_the_last_failure() {
    let mut cluster = Cluster::default();
    fail_at(&mut cluster, 1000);
    assert_eq!(fail_at(&mut cluster, 1000 + HOUR - 1).0, 2);
    assert_eq!(fail_at(&mut cluster, 1000 + 2 * HOUR - 1).0, 1);
}

#[test]
fn a_count_is_forgotten_an_hour_after_the_end_of_its_lock() {
    let mut cluster = Cluster::default();
    for _ in 0..5 {
        fail_at(&mut cluster, 1000);
    }
    let forget = 1000 + 5 * MINUTE + HOUR;
    let mut later = cluster.clone();
    assert_eq!(fail_at(&mut cluster, forget - 1).0, 6);
    assert_eq!(fail_at(&mut later, forget), (1, None, false));
}

#[test]
fn what_is_to_be_forgotten_goes_when_it_is_swept() {
    let mut cluster = Cluster::default();
    fail_at(&mut cluster, 1000);
    run(&mut cluster, &failure("bob", "10.0.0.1", 5000));
    let sweep = |at| Command::ForgetLockouts { at: WallTime(at) };
    assert!(!cluster.has_forgotten_lockouts(WallTime(999 + HOUR)));
    assert_eq!(run(&mut cluster, &sweep(999 + HOUR)), Reply::LockoutsForgotten { pairs: 0 });
    assert!(cluster.has_forgotten_lockouts(WallTime(1000 + HOUR)));
    assert_eq!(run(&mut cluster, &sweep(1000 + HOUR)), Reply::LockoutsForgotten { pairs: 1 });
    assert_eq!((count(&cluster), cluster.lockout_count()), (0, 1));
}

#[test]
fn times_at_the_end_of_the_clock_do_not_wrap() {
    let mut cluster = Cluster::default();
    for _ in 0..5 {
        fail_at(&mut cluster, u64::MAX - 1);
    }
    assert_eq!(until(&cluster), Some(u64::MAX));
}

#[test]
fn the_pair_that_failed_longest_ago_makes_room() {
    let mut cluster = Cluster::default();
    fail_at(&mut cluster, 1000);
    run(&mut cluster, &failure("old", "10.0.0.1", 2000));
    // Touched again: not the oldest any more, whatever the clock said.
    fail_at(&mut cluster, 500);
    for i in 0..limits::LOCKOUTS_MAX - 2 {
        run(&mut cluster, &failure(&format!("u{i}"), "10.0.0.1", 1));
    }
    assert_eq!(cluster.lockout_count(), limits::LOCKOUTS_MAX);
    assert!(cluster.lockouts_of("old").next().is_some());
    run(&mut cluster, &failure("new", "10.0.0.1", 1));
    assert_eq!(cluster.lockout_count(), limits::LOCKOUTS_MAX);
    assert!(cluster.lockouts_of("old").next().is_none());
    assert_eq!(count(&cluster), 2);
    let snapshot = cluster.encode_snapshot();
    assert_eq!(Cluster::decode_snapshot(snapshot), Ok(cluster));
}
