//! What must not stand in code: prints where nobody reads them, work left for later, tests that do not run.

use crate::tree::{bare, files};

/// Where printing is the purpose.
const MAY_PRINT: [&str; 3] = ["edge/cli/", "sim/", "bench/"];
const PRINTS: [&str; 4] = ["println!", "eprintln!", "print!", "eprint!"];
const NEVER: [&str; 4] = ["dbg!", "todo!", "unimplemented!", "#[ignore"];

fn complaints(path: &str, text: &str) -> Vec<String> {
    let prints = if MAY_PRINT.iter().any(|prefix| path.starts_with(prefix)) { &[][..] } else { &PRINTS };
    let mut found = Vec::new();
    for (number, line) in bare(text).lines().enumerate() {
        for word in prints.iter().chain(&NEVER).filter(|word| has_word(line, word)) {
            found.push(format!("{path}:{}: {word} does not belong here", number + 1));
        }
    }
    found
}

/// Whether the word occurs with no letter in front of it.
fn has_word(line: &str, word: &str) -> bool {
    let starts_word = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| starts_word(at))
}

#[test]
fn no_stray_prints_nothing_left_for_later_no_ignored_tests() {
    let found: Vec<String> = files()
        .iter()
        .filter(|file| file.is_rust())
        .flat_map(|file| complaints(&file.path, &file.text))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_rule_can_fail() {
    let core = "core/types/src/lib.rs";
    for bad in [
        "fn f() { println!(\"x\"); }",
        "    eprintln!()",
        "dbg!(1)",
        "todo!()",
        "unimplemented!()",
        "#[ignore]\n#[test]",
    ] {
        assert_eq!(complaints(core, bad).len(), 1, "{bad}");
    }
    assert_eq!(complaints("edge/cli/src/print.rs", "print!(); #[ignore = \"slow\"]").len(), 1);
    assert!(complaints(core, "// println! is not for us\nlet word = \"todo!\";").is_empty());
}
