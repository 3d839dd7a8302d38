//! `docs/configuration.md` is the list, written out. This test fails when one of them was changed alone; run it
//! with `UPDATE_DOCS=1` to write the page anew.

use std::fmt::Write;
use std::path::Path;

use super::list::{PREFIX, SECTIONS};
use super::setting::{Class, Effect, Setting};

const HEAD: &str = "# Configuration

Every setting of the broker. Written from the list in `edge/server/src/config/list.rs`; a test keeps the two equal.

A setting is a variable of the environment, or a line of a file: `malachi.toml` in the working directory if there \
is one, or the file named by `--config` or `MALACHI_CONFIG_FILE`. In the file a name is written in small letters and \
without `MALACHI_`; lists may be arrays. The environment wins over the file. A name in the file that is no setting \
stops the start, a variable that is none is warned about; both times the nearest name is told.

`malachi config check` says whether the broker would start, and everything that is wrong. `malachi config show` \
tells each value and where it comes from; secrets are masked.

| accepts | means |
|---|---|
| port, integer (exact) | anything else stops the start, the empty text too |
| integer | digits at the start are enough, without any the default counts; both with a warning. Out of range stops the start |
| `true` or `false` | anything else stops the start |
| on with `true`, off with `false` | the one word that changes it; others are warned about |
| words (exact) | anything else stops the start |
| words | anything else is the default, with a warning |
| list | items between commas |

Settings marked *not yet* are checked, and have no effect in this version; *never* marks those of another \
implementation. Setting one of them is told once at a start.
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for section in SECTIONS {
        write!(
            page,
            "\n## {}\n\n| variable | accepts | default | what it does |\n|---|---|---|---|\n",
            section.title
        )
        .expect("a string takes everything");
        for setting in section.settings {
            writeln!(page, "{}", row(setting)).expect("a string takes everything");
        }
    }
    page
}

fn row(setting: &Setting) -> String {
    let default = setting.default.map(|default| format!("`{default}`")).unwrap_or_default();
    let mark = match setting.effect {
        Effect::Acts => "",
        Effect::NotYet => " (*not yet*)",
        Effect::Never => " (*never*)",
    };
    let secret = if setting.secret { ". Secret" } else { "" };
    format!(
        "| `{PREFIX}{}` | {} | {default} | {}{secret}{mark} |",
        setting.name,
        accepts(setting.class),
        setting.doc
    )
}

fn accepts(class: Class) -> String {
    match class {
        Class::Port => "port".to_owned(),
        Class::Strict(..) => format!("{} (exact)", class.accepts().trim_start_matches("an ")),
        Class::Lenient(..) => class.accepts().trim_start_matches("an ").to_owned(),
        Class::Bool => "`true` or `false`".to_owned(),
        Class::On => "on with `true`".to_owned(),
        Class::Off => "off with `false`".to_owned(),
        Class::OffInProduction => "off with `false` in production, on with `true` elsewhere".to_owned(),
        Class::Words(words) | Class::WordsAnyCase(words) => format!("{} (exact)", list(words)),
        Class::WordsOrDefault(words) => list(words),
        Class::Text => "text".to_owned(),
        Class::List => "list".to_owned(),
        Class::Dir => "directory".to_owned(),
    }
}

fn list(words: &[&str]) -> String {
    let words: Vec<String> =
        words.iter().filter(|word| !word.is_empty()).map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

#[test]
fn the_page_says_what_the_list_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&path).expect("docs/configuration.md is there");
    assert!(
        written == page,
        "docs/configuration.md is not what the list says; run this test with UPDATE_DOCS=1"
    );
}
