//! Commands a document tells people to type are there, and the machine that gates a merge runs the same one.

use crate::tree::{files, read};

/// Targets a Makefile has.
fn targets(makefile: &str) -> Vec<&str> {
    let rules = makefile.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    rules.filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim()).collect()
}

/// Targets a text tells people to make, in backticks or at the start of a line of an indented or fenced block.
fn told(text: &str) -> Vec<&str> {
    let word = |rest: &'_ str| {
        rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap_or_default().len()
    };
    let quoted = text.match_indices("`make ").map(|(at, found)| at + found.len());
    let lines = text.match_indices("\nmake ").map(|(at, found)| at + found.len());
    quoted.chain(lines).map(|at| &text[at..at + word(&text[at..])]).collect()
}

#[test]
fn commands_in_documents_exist() {
    let makefile = read("Makefile");
    let targets = targets(&makefile);
    let files = files();
    for document in files.iter().filter(|file| file.path.ends_with(".md")) {
        for target in told(&document.text) {
            assert!(targets.contains(&target), "{}: there is no make {target}", document.path);
        }
    }
    let readme = read("README.md");
    assert!(told(&readme).contains(&"run") && told(&readme).contains(&"test"));
    assert!(read(".ci/run").lines().any(|line| line.trim() == "make test"), "the gate runs something else");
}

#[test]
fn the_rule_can_fail() {
    assert_eq!(targets("A := 1\nrun: build\n\techo x:\ntest:\n"), ["run", "test"]);
    assert_eq!(told("`make run`\n\nmake sim SEED=1\nor make it so\n"), ["run", "sim"]);
}
