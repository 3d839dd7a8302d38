//! Running commands as a shell does, against a scripted broker.

#![allow(dead_code)]

#[path = "../../../client/tests/fake/mod.rs"]
pub(crate) mod fake;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use fake::Fake;

pub(crate) fn malachi(fake: &Fake, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_malachi"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in ["MALACHI_USER", "MALACHI_PASS", "MALACHI_TOPIC"] {
        command.env_remove(name);
    }
    command.env("MALACHI_HOST", "127.0.0.1").env("MALACHI_PORT", fake.port.to_string());
    command
}

pub(crate) fn run(fake: &Fake, args: &[&str], input: Option<&[u8]>) -> Output {
    let mut command = malachi(fake, args);
    let Some(input) = input else { return command.output().unwrap() };
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // A command that stops reading early is judged by what it says.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// What a command that must succeed says on standard output.
#[track_caller]
pub(crate) fn said(fake: &Fake, args: &[&str]) -> String {
    let output = run(fake, args, None);
    assert_ok(&output);
    text(&output.stdout)
}

/// What a command that must fail says on standard error; its exit status is 1.
#[track_caller]
pub(crate) fn refused(fake: &Fake, args: &[&str]) -> String {
    let output = run(fake, args, None);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    text(&output.stderr)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
pub(crate) fn assert_ok(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}
