//! The commands as a shell sees them, against a scripted broker: what goes in, what comes out, exit status.

#![allow(clippy::unwrap_used)]

mod shell;

use std::io::{BufRead, BufReader, Write};
use std::process::Command;

use shell::fake::{Fake, Verdict};
use shell::{assert_ok, malachi, run, text};
use wire::{ApiKey, Reason, Request};

#[test]
fn a_file_goes_in_and_the_same_bytes_come_out() {
    let fake = Fake::start().topic("t");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut content = Vec::new();
    for n in 0..30_000 {
        content.extend_from_slice(format!("line {n} {}\r\n", "x".repeat(n % 90)).as_bytes());
    }
    content.extend_from_slice(b"\n\xff\xfe not text\n");
    file.write_all(&content).unwrap();

    let path = file.path().to_str().unwrap();
    let produced = run(&fake, &["produce", "t", "--file", path, "--batch-bytes", "20000"], None);
    assert_ok(&produced);
    assert!(text(&produced.stdout).starts_with("Appended 30002 record(s)\ntime: "), "{produced:?}");
    assert!(fake.state.lock().unwrap().seen.len() > 50, "many requests");

    let consumed = run(&fake, &["consume", "t"], None);
    assert_ok(&consumed);
    assert!(consumed.stdout == content, "what comes out differs");
    assert_eq!(text(&consumed.stderr), "");
}

#[test]
fn standard_input_is_read_when_it_is_not_a_terminal() {
    let fake = Fake::start().topic("events");
    assert_ok(&run(&fake, &["produce"], Some(b"a\nb")));
    assert_eq!(fake.values("events"), ["a", "b"]);
    assert_ok(&run(&fake, &["produce", "events", "--file", "-"], Some(b"c\n")));
    assert_eq!(fake.values("events"), ["a", "b", "c"]);
}

#[test]
fn a_count_makes_records_up() {
    let fake = Fake::start().topic("t");
    let output = run(&fake, &["produce", "t", "3", "--key", "k"], Some(b"ignored\n"));
    assert_ok(&output);
    let stdout = text(&output.stdout);
    for part in ["count=3  key=k", "Connected (authenticated as producer)", "Appended 3 record(s)"] {
        assert!(stdout.contains(part), "{stdout}");
    }
    assert!(fake.values("t")[2].starts_with(br#"{"id":3,"message":"record #3","timestamp":""#));
}

#[test]
fn json_goes_in_and_comes_out_unchanged() {
    let fake = Fake::start().topic("t");
    let lines = concat!(
        r#"{"key":"k","value":"v","timestamp":5,"headers":[["a","b"]]}"#,
        "\n",
        r#"{"value_base64":"AP8=","timestamp":6}"#,
        "\n"
    );
    assert_ok(&run(&fake, &["produce", "t", "--format", "json"], Some(lines.as_bytes())));
    let output = run(&fake, &["consume", "t", "--json"], None);
    assert_ok(&output);
    assert_eq!(text(&output.stdout), lines);
}

#[test]
fn people_get_numbers_and_keys() {
    let fake = Fake::start().topic("t");
    assert_ok(&run(&fake, &["produce", "t", "--format", "kv"], Some(b"k\tv\n")));
    assert_ok(&run(&fake, &["produce", "t"], Some(b"w\n")));
    let output = run(&fake, &["consume", "t", "--format", "full"], None);
    assert_ok(&output);
    let stdout = text(&output.stdout);
    assert!(stdout.ends_with("[1] key=k  v\n[2] key=(no key)  w\nDone. consumed=2\n"), "{stdout}");
}

#[test]
fn a_group_goes_on_where_it_committed() {
    let fake = Fake::start().topic("t");
    assert_ok(&run(&fake, &["produce", "t"], Some(b"a\nb\nc\n")));
    let first = run(&fake, &["consume", "t", "--group", "g", "--limit", "2"], None);
    assert_eq!(text(&first.stdout), "a\nb\n");
    let second = run(&fake, &["consume", "t", "--group", "g"], None);
    assert_eq!(text(&second.stdout), "c\n");
    let third = run(&fake, &["consume", "t", "--group", "g"], None);
    assert_ok(&third);
    assert_eq!(text(&third.stdout), "");
    let again = run(&fake, &["consume", "t", "--from-beginning"], None);
    assert_eq!(text(&again.stdout), "a\nb\nc\n");
}

#[test]
fn a_member_commits_each_page_and_leaves() {
    let fake = Fake::start().topic("t");
    assert_ok(&run(&fake, &["produce", "t"], Some(b"a\nb\nc\n")));
    let output = run(&fake, &["consume", "t", "--group", "g", "--member", "m", "--max", "2"], None);
    assert_ok(&output);
    assert_eq!(text(&output.stdout), "a\nb\nc\n");
    let state = fake.state.lock().unwrap();
    assert_eq!(state.seen.iter().filter(|key| **key == ApiKey::Commit).count(), 2);
    assert_eq!(state.seen.last(), Some(&ApiKey::LeaveGroup));
}

#[test]
fn what_settles_is_tried_again() {
    let (mut commits, mut fetches) = (0, 0);
    let fake = Fake::scripted(move |request| {
        let (tries, reason) = if request.api_key() == ApiKey::Commit {
            (&mut commits, Reason::Migrating)
        } else if request.api_key() == ApiKey::Fetch {
            (&mut fetches, Reason::NotOwner)
        } else {
            return Verdict::Serve;
        };
        *tries += 1;
        if *tries == 1 { Verdict::Refuse(reason) } else { Verdict::Serve }
    })
    .topic("t");
    assert_ok(&run(&fake, &["produce", "t"], Some(b"a\n")));
    let output = run(&fake, &["consume", "t", "--group", "g", "--member", "m"], None);
    assert_ok(&output);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("a\n".to_owned(), "~\n~\n".to_owned()));
}

#[test]
fn a_closed_pipe_ends_quietly_and_commits_nothing_unread() {
    let fake = Fake::start().topic("t");
    let lines: String = (0..200_000).map(|n| format!("{n}\n")).collect();
    assert_ok(&run(&fake, &["produce", "t"], Some(lines.as_bytes())));
    let mut child = malachi(&fake, &["consume", "t", "--group", "g"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_ok(&output);
    assert_eq!(text(&output.stderr), "");
    assert!(fake.state.lock().unwrap().positions.is_empty());
}

#[test]
fn a_failure_in_the_middle_says_what_is_stored() {
    let mut produces = 0;
    let fake = Fake::scripted(move |request| {
        if let Request::Produce(_) = request {
            produces += 1;
            if produces == 3 {
                return Verdict::Close;
            }
        }
        Verdict::Serve
    })
    .topic("t");
    let lines = "a line of some length\n".repeat(100);
    let args = ["produce", "t", "--batch-bytes", "400", "--in-flight", "1"];
    let output = run(&fake, &args, Some(lines.as_bytes()));
    assert_eq!(output.status.code(), Some(1));
    let stored = fake.values("t").len();
    assert!(stored > 0);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("Is the server running at 127.0.0.1:"), "{stderr}");
    let said = format!("certainly stored: {stored} record(s), among them the first {stored} of the input");
    assert!(stderr.contains(&said), "{stderr}");
}

#[test]
fn a_bad_line_is_named_and_what_was_sent_is_counted() {
    let fake = Fake::start().topic("t");
    let output = run(&fake, &["produce", "t", "--format", "kv"], Some(b"k\tv\nno tab\n"));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("Error: line 2: no TAB"), "{output:?}");
    assert!(fake.values("t").is_empty());
}

#[test]
fn refusals_are_the_brokers_own_words() {
    let fake = Fake::start();
    let missing = run(&fake, &["produce", "nowhere"], Some(b"a\n"));
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).starts_with("Error: no_such_topic\n"), "{missing:?}");

    assert_ok(&run(&fake, &["topic", "create", "t"], None));
    let twice = run(&fake, &["topic", "create", "t"], None);
    assert_eq!((twice.status.code(), text(&twice.stderr)), (Some(1), "Error: already_exists\n".to_owned()));
    let lenient = run(&fake, &["topic", "create", "t", "--if-not-exists", "--json"], None);
    assert_ok(&lenient);
    assert_eq!(text(&lenient.stdout), "{\"created\":false,\"topic\":\"t\"}\n");

    let made = run(&fake, &["produce", "t", "--create"], Some(b"a\n"));
    assert_eq!(made.status.code(), Some(1));
    assert!(fake.values("t").is_empty(), "nothing is sent when the topic was there");
}

#[test]
fn a_reader_is_told_of_a_topic_that_is_not_there() {
    let fake = Fake::start().topic("empty");
    for args in [vec!["consume", "nowhere"], vec!["consume", "nowhere", "--group", "g"]] {
        let missing = run(&fake, &args, None);
        assert_ok(&missing);
        assert_eq!(text(&missing.stdout), "");
        assert!(text(&missing.stderr).starts_with("Note: there is no topic \"nowhere\" yet"), "{missing:?}");
    }
    let mut waiting = malachi(&fake, &["subscribe", "nowhere"]).spawn().unwrap();
    let mut told = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut told).unwrap();
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    assert!(told.starts_with("Note: there is no topic \"nowhere\" yet"), "{told}");
    // One that is there and empty is nothing to wonder about.
    let empty = run(&fake, &["consume", "empty"], None);
    assert_ok(&empty);
    assert_eq!(text(&empty.stderr), "");
}

#[test]
fn a_broker_that_is_not_there_is_named() {
    let fake = Fake::start();
    let mut command = malachi(&fake, &["consume"]);
    // Bound and dropped: nobody listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let output = command.env("MALACHI_PORT", port.to_string()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with("Error: ") && stderr.contains("refused"), "{stderr}");
    assert!(stderr.ends_with(&format!("Is the server running at 127.0.0.1:{port}?\n")), "{stderr}");
}

#[test]
fn usage_errors_exit_with_1_and_help_with_0() {
    let fake = Fake::start();
    assert_eq!(run(&fake, &["produce", "--nonsense"], None).status.code(), Some(1));
    assert_eq!(run(&fake, &["consume", "--member", "m"], None).status.code(), Some(1));
    assert_eq!(run(&fake, &[], None).status.code(), Some(1));
    assert_ok(&run(&fake, &["--help"], None));
    assert_ok(&run(&fake, &["consume", "--help"], None));
    assert_ok(&run(&fake, &["--version"], None));
}

#[test]
fn a_password_can_come_from_standard_input() {
    let fake = Fake::start().topic("t");
    let right = run(&fake, &["produce", "t", "1", "--password-stdin"], Some(b"right\n"));
    assert_ok(&right);
    let wrong = run(&fake, &["produce", "t", "1", "--password-stdin"], Some(b"wrong\n"));
    assert!(text(&wrong.stderr).starts_with("Error: invalid_credentials\nSet MALACHI_USER"), "{wrong:?}");
}

#[test]
fn an_interrupt_ends_following_in_order() {
    let fake = Fake::start().topic("t");
    assert_ok(&run(&fake, &["produce", "t"], Some(b"a\n")));
    let mut child = malachi(&fake, &["consume", "t", "--follow", "--group", "g"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "a\n");
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_ok(&child.wait_with_output().unwrap());
    let state = fake.state.lock().unwrap();
    assert_eq!(state.positions.get(&("t".into(), "g".into())), Some(&1));
}
