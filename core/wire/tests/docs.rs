//! `docs/wire.md` says what the code says: every operation, every reason, and what each reason means.

#![allow(clippy::unwrap_used)]

extern crate malachi_wire as wire;

use wire::{ApiKey, Effect, Reason, Retry};

const PAGE: &str = include_str!("../../../docs/wire.md");

/// Cells of the rows of the one table under a heading.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let section = PAGE.split("\n## ").find_map(|section| section.strip_prefix(heading)).unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn every_operation_is_listed_by_its_number() {
    let listed: Vec<(String, String)> =
        rows("Operations").iter().map(|row| (row[0].to_owned(), row[1].to_owned())).collect();
    let known: Vec<(String, String)> =
        ApiKey::ALL.iter().map(|key| (key.number().to_string(), format!("`{}`", key.name()))).collect();
    assert_eq!(listed, known);
}

#[test]
fn every_reason_is_listed_with_what_the_code_answers() {
    let listed: Vec<[String; 4]> =
        rows("Reasons").iter().map(|row| [row[0], row[2], row[3], row[4]].map(str::to_owned)).collect();
    let known: Vec<[String; 4]> = Reason::ALL.iter().map(|reason| answers(*reason)).collect();
    for row in &known {
        assert!(listed.contains(row), "docs/wire.md lacks {row:?}");
    }
    for row in &listed {
        assert!(known.contains(row), "docs/wire.md lists {row:?}, which no reason is");
    }
    assert_eq!(listed.len(), known.len(), "a reason is listed twice");
}

fn answers(reason: Reason) -> [String; 4] {
    let again = match reason.retry() {
        Retry::Never => "never",
        Retry::AfterChange => "after change",
        Retry::BackOff => "back-off",
        Retry::Soon => "soon",
    };
    let left_behind = match reason.effect() {
        Effect::None => "nothing",
        Effect::Unknown => "unknown",
    };
    let closes = if reason.closes() { "yes" } else { "no" };
    [format!("`{reason}`"), again.to_owned(), left_behind.to_owned(), closes.to_owned()]
}
