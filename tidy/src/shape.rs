//! The shape of a file: it says what it owns before anything else, and it stays short enough to be read.

use crate::tree::files;

/// Past 600 lines one asks which second subject moved in; past this one has the answer.
const LINES_MAX: usize = 700;

fn complaints(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        found.push(format!("{path}: {lines} lines; find the second subject and give it a file"));
    }
    // A `tests.rs` beside the code belongs to the module that declares it.
    let is_module = path.contains("/src/") && !path.ends_with("/tests.rs");
    if is_module && !text.starts_with("//! ") {
        found.push(format!("{path}: does not open with //! and what it owns"));
    }
    found
}

#[test]
fn files_are_short_and_open_with_what_they_own() {
    let files = files();
    let rust = files.iter().filter(|file| file.is_rust());
    let found: Vec<String> = rust.flat_map(|file| complaints(&file.path, &file.text)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_rule_can_fail() {
    let path = "core/types/src/lib.rs";
    assert!(complaints(path, "//! Owns it.\n").is_empty());
    assert_eq!(complaints(path, "use std::fmt;\n").len(), 1);
    assert!(complaints("core/types/src/record/tests.rs", "use super::*;\n").is_empty());
    assert_eq!(complaints(path, &format!("//! Owns it.\n{}", "\n".repeat(LINES_MAX))).len(), 1);
}
