//! `malachi subscribe` as a shell sees it, against a scripted broker.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

mod shell;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};

use shell::fake::{Fake, Verdict};
use shell::{assert_ok, malachi, refused, run, said, text};
use wire::{ApiKey, Reason, Request};

fn lines(child: &mut Child, count: usize) -> Vec<String> {
    let reader = BufReader::new(child.stdout.as_mut().unwrap());
    reader.lines().take(count).map(|line| line.unwrap()).collect()
}

#[track_caller]
fn interrupt(child: Child) {
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_ok(&child.wait_with_output().unwrap());
}

fn committed(fake: &Fake, group: &'static str) -> Option<usize> {
    fake.with(|state| state.positions.get(&("t".into(), group.into())).copied())
}

#[test]
fn records_are_printed_as_they_come_and_committed() {
    let fake = Fake::start().topic("t");
    assert_ok(&run(&fake, &["produce", "t"], Some(b"a\nb\n")));
    let mut child = malachi(&fake, &["subscribe", "t"]).spawn().unwrap();
    assert_eq!(lines(&mut child, 2), ["a", "b"]);
    assert_ok(&run(&fake, &["produce", "t"], Some(b"c\n")));
    assert_eq!(lines(&mut child, 1), ["c"]);
    fake.wait_until(|state| state.positions.get(&("t".into(), "stream".into())) == Some(&3));
    interrupt(child);
}

#[test]
fn a_limit_ends_it_with_everything_printed_committed() {
    let fake = Fake::start().topic("t");
    assert_ok(&run(&fake, &["produce", "t"], Some(b"a\nb\nc\nd\n")));
    let args = ["subscribe", "t", "--group", "g", "--limit", "3", "--max", "1"];
    assert_eq!(said(&fake, &args), "a\nb\nc\n");
    assert_eq!(committed(&fake, "g"), Some(3));
    assert_eq!(said(&fake, &["subscribe", "t", "--group", "g", "--limit", "1", "--json"]).lines().count(), 1);
    assert_eq!(committed(&fake, "g"), Some(4));
    let full = said(&fake, &["subscribe", "t", "--group", "h", "--limit", "4", "--format", "full"]);
    assert!(full.ends_with("[4] key=(no key)  d\nDone. received=4\n"), "{full}");
}

#[test]
fn a_member_keeps_itself_alive() {
    let fake = Fake::start().topic("t");
    let args = ["subscribe", "t", "--group", "g", "--member", "m1", "--heartbeat", "5"];
    let child = malachi(&fake, &args).spawn().unwrap();
    fake.wait_until(|state| state.heartbeats.len() >= 3);
    interrupt(child);
}

#[test]
fn a_stream_that_is_refused_or_ended_says_why() {
    let fake = Fake::scripted(|request| match request {
        Request::Subscribe(_) => Verdict::Refuse(Reason::PermissionDenied),
        _ => Verdict::Serve,
    })
    .topic("t");
    assert!(refused(&fake, &["subscribe", "t"]).starts_with("Stream error: permission_denied\n"));

    let fake = Fake::scripted(|request| match request {
        Request::StreamAck(_) => Verdict::Refuse(Reason::InvalidCursor),
        _ => Verdict::Serve,
    })
    .topic("t");
    assert_ok(&run(&fake, &["produce", "t"], Some(b"a\n")));
    let output = run(&fake, &["subscribe", "t"], None);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("a\n".into(), "Stream error: invalid_cursor\n".into())
    );
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let fake = Fake::start().topic("t");
    assert_ok(&run(&fake, &["produce", "t"], Some("line\n".repeat(50_000).as_bytes())));
    let mut child = malachi(&fake, &["subscribe", "t"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_ok(&output);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(committed(&fake, "stream"), None, "nothing was printed, nothing is committed");
}

#[test]
fn reading_can_start_at_a_time_or_at_the_end() {
    let fake = Fake::start().topic("t");
    assert_ok(&run(&fake, &["produce", "t"], Some(b"a\nb\nc\n")));
    // The fake appended the n-th record at n milliseconds.
    assert_eq!(said(&fake, &["consume", "t", "--from-time", "2"]), "c\n");
    assert_eq!(said(&fake, &["consume", "t", "--from-end"]), "");
    assert_eq!(said(&fake, &["consume", "t", "--from-end", "--group", "g"]), "");
    let seeks = fake.with(|state| state.seen.iter().filter(|key| **key == ApiKey::SeekTime).count());
    assert_eq!(seeks, 3);
}
