//! Access to the source tree: which files there are, and Rust code without its comments and strings.

use std::path::{Path, PathBuf};

/// Folders that hold nothing a person wrote.
const SKIPPED: [&str; 3] = ["target", "data", ".git"];

/// One text file of the repository.
pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The content of one file.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every text file, in order of path.
pub(crate) fn files() -> Vec<File> {
    let mut found = Vec::new();
    walk(&root(), "", &mut found);
    found.sort_by(|one, two| one.path.cmp(&two.path));
    assert!(found.len() > 100, "the tree was not found");
    found
}

fn walk(dir: &Path, prefix: &str, found: &mut Vec<File>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
            walk(&entry.path(), &path, found);
        } else if kind.is_file() {
            // What is not text is data: golden files.
            let text = std::fs::read(entry.path()).map(String::from_utf8);
            if let Ok(Ok(text)) = text {
                found.push(File { path, text });
            }
        }
    }
}

/// Rust code with comments and the insides of strings replaced by spaces; lines stay where they are.
///
/// Knows line and nested block comments, strings, raw strings and character literals: enough to tell a call from
/// somebody speaking of one.
pub(crate) fn bare(code: &str) -> String {
    let chars: Vec<char> = code.chars().collect();
    let mut out = String::with_capacity(code.len());
    let mut at = 0;
    while at < chars.len() {
        let end = skipped(&chars, at);
        let blank = |c: &char| if *c == '\n' { '\n' } else { ' ' };
        match end {
            Some(end) => {
                out.extend(chars[at..end].iter().map(blank));
                at = end;
            }
            None => {
                out.push(chars[at]);
                at += 1;
            }
        }
    }
    out
}

/// Where the comment, string or character that starts here ends, if one does.
fn skipped(chars: &[char], at: usize) -> Option<usize> {
    let next = chars.get(at + 1).copied();
    let in_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match (chars[at], next) {
        ('/', Some('/')) => Some((at..chars.len()).find(|i| chars[*i] == '\n').unwrap_or(chars.len())),
        ('/', Some('*')) => Some(block_end(chars, at)),
        ('"', _) => Some(string_end(chars, at + 1)),
        ('r', Some('"' | '#')) if !in_word || chars[at - 1] == 'b' => raw_end(chars, at),
        ('\'', Some('\\')) => (at + 3..chars.len()).find(|i| chars[*i] == '\'').map(|i| i + 1),
        ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => Some(at + 3),
        _ => None,
    }
}

fn block_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

fn raw_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    let open = at + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |i: &usize| chars[*i] == '"' && chars[*i + 1..].iter().take(hashes).all(|c| *c == '#');
    (open + 1..chars.len()).find(closes).map(|i| i + 1 + hashes)
}

#[test]
fn code_is_told_from_talk() {
    let code = "a // todo!()\n/* x /* y */ todo! */ b \"todo!\\\" todo!\" c r#\"todo!\"# d '\"' e 'x f<'a>() br\"todo!\"";
    let bare = bare(code);
    assert!(!bare.contains("todo!"), "{bare}");
    assert_eq!(bare.lines().count(), 2);
    for letter in ["a", "b", "c", "d", "e", "f<'a>()"] {
        assert!(bare.contains(letter), "{letter} in {bare}");
    }
}
