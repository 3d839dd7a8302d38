//! Documents speak of what is there: paths they name exist, and each bug that can be put back is told of.

use crate::tree::{files, read, root};

const FOLDERS: [&str; 7] = ["core/", "edge/", "sim/", "docs/", "bench/", "tidy/", ".ci/"];

/// Paths of this repository in backticks or as link targets.
fn named_paths(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let linked = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let is_path = |word: &&str| FOLDERS.iter().any(|folder| word.starts_with(folder));
    let is_whole = |word: &&str| !word.contains(['*', '{', ' ', '<', '\n', '…']);
    let paths = quoted.chain(linked).filter(is_path).filter(is_whole);
    paths.map(|path| path.split('#').next().unwrap_or_default().trim_end_matches('/').to_owned()).collect()
}

/// Variants of an enum, by its text.
fn variants<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let body = text.split(&format!("pub enum {name} {{")).nth(1).and_then(|rest| rest.split("\n}").next());
    let lines = body.unwrap_or_default().lines().map(str::trim);
    lines.filter(|line| !line.starts_with("//")).filter_map(|line| line.strip_suffix(',')).collect()
}

#[test]
fn paths_named_in_documents_exist() {
    let files = files();
    let documents = files.iter().filter(|file| file.path.ends_with(".md"));
    let mut missing = Vec::new();
    for document in documents {
        let gone = named_paths(&document.text).into_iter().filter(|path| !root().join(path).exists());
        missing.extend(gone.map(|path| format!("{}: there is no {path}", document.path)));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_bug_that_can_be_put_back_is_told_of() {
    let document = read("docs/simulation.md");
    let planted = files()
        .into_iter()
        .filter(|file| file.path.starts_with("core/") && file.path.ends_with("/planted.rs"));
    let mut count = 0;
    for file in planted {
        let bugs = variants(&file.text, "Bug");
        assert!(!bugs.is_empty(), "{} names no bugs", file.path);
        for bug in bugs {
            assert!(document.contains(&format!("`{bug}`")), "docs/simulation.md does not tell of {bug}");
            count += 1;
        }
    }
    assert!(count > 10, "the bugs were not found");
}

#[test]
fn the_rules_can_fail() {
    let text = "see `core/gone.rs`, `core/*/src` and [here](docs/gone.md#top), not `cargo run`";
    assert_eq!(named_paths(text), ["core/gone.rs", "docs/gone.md"]);
    assert_eq!(variants("pub enum Bug {\n    /// One.\n    One,\n    Two,\n}\n", "Bug"), ["One", "Two"]);
}
