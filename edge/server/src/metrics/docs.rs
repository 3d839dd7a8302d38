//! `docs/metrics.md` is the series, written out. This test fails when one of them was changed alone; run it with
//! `UPDATE_DOCS=1` to write the page anew.

use std::fmt::Write;
use std::path::Path;

use prometheus::core::Desc;

use super::Metrics;
use super::observed::SYNC_SECONDS;

/// What one series is called and means.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Described {
    name: String,
    labels: Vec<String>,
    help: String,
}

impl Described {
    pub(super) fn of(desc: &Desc) -> Self {
        Self { name: desc.fq_name.clone(), labels: desc.variable_labels.clone(), help: desc.help.clone() }
    }
}

const HEAD: &str = "# Metrics

Every series of `GET /metrics`. Written from the names and help texts in `edge/server/src/metrics/mod.rs` and \
`edge/server/src/metrics/series.rs`; a test keeps the two equal. Names end in their unit and are not renamed. Which \
ones are worth an alert: `docs/operations.md`. No label is a name that a client chose.

What is counted since the start ends in `_total`; everything else but the histograms (`_seconds` with `_bucket`, \
`_sum` and `_count`) is a number of the moment. Those of the core, the store and the Raft log are asked for when \
somebody looks; `malachi_core_seen_seconds` tells how old they are.

| series | labels | means |
|---|---|---|
";

fn page() -> String {
    let mut all = Metrics::new().described;
    let (name, help) = SYNC_SECONDS;
    all.push(Described { name: name.to_owned(), labels: vec!["volume".to_owned()], help: help.to_owned() });
    all.sort();
    let mut page = HEAD.to_owned();
    for Described { name, labels, help } in all {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(page, "| `{name}` | {} | {help} |", labels.join(", ")).expect("a string takes everything");
    }
    page
}

#[test]
fn the_page_says_what_is_shown() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&path).expect("docs/metrics.md is there");
    assert!(written == page, "docs/metrics.md is not what is shown; run this test with UPDATE_DOCS=1");
}
