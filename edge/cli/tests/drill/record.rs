//! What a drill did and found, for people: a section of `docs/drills.md`.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::Asked;
use super::copies::Totals;
use super::load::Outcome;
use super::rig::SETTINGS;

/// One thing that was done to a cluster.
#[derive(Debug)]
pub(crate) struct Happened {
    /// When all was well again, since the start.
    pub(crate) at: Duration,
    pub(crate) what: String,
    pub(crate) lasted: Duration,
    /// The longest while in which nothing was acknowledged in some topic.
    pub(crate) pause: Duration,
    /// From the end of it until all was well.
    pub(crate) recovered: Duration,
}

/// What the look at everything found.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) outcome: Outcome,
    /// From the end of the load until all copies were whole.
    pub(crate) took: Duration,
    pub(crate) records: u64,
    pub(crate) again: u64,
    pub(crate) totals: Totals,
}

/// Puts the outcome of a drill in the place of the last one of its name.
pub(crate) fn write(name: &str, asked: Asked, happened: &[Happened], closing: &Closing) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/drills.md");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, replaced(&text, name, &section(name, asked, happened, closing))).unwrap();
}

/// A document with another section of a name: from its heading to the next one, or to the end.
fn replaced(text: &str, name: &str, section: &str) -> String {
    let heading = format!("## {name}\n");
    let Some(at) = text.find(&heading) else { return format!("{}\n\n{section}", text.trim_end()) };
    let rest = &text[at + heading.len()..];
    match rest.find("\n## ") {
        Some(next) => format!("{}{section}{}", &text[..at], &rest[next..]),
        None => format!("{}{section}", &text[..at]),
    }
}

fn section(name: &str, asked: Asked, happened: &[Happened], closing: &Closing) -> String {
    let Closing { outcome, took, records, again, totals } = closing;
    let confirmed: u64 = outcome.writers.iter().map(|writer| writer.confirmed()).sum();
    let settings = SETTINGS.map(|(name, value)| format!("`{name}={value}`")).join(", ");
    let mut out = format!("## {name}\n\nCommit {}, seed {}, {settings}.\n\n", commit(), asked.seed);
    out.push_str("| at, s | what | lasted, s | longest pause of a topic, s | well again after, s |\n|---:|---|---:|---:|---:|\n");
    for Happened { at, what, lasted, pause, recovered } in happened {
        let [at, lasted, pause, recovered] = [at, lasted, pause, recovered].map(Duration::as_secs_f64);
        writeln!(out, "| {at:.0} | {what} | {lasted:.1} | {pause:.2} | {recovered:.1} |").unwrap();
    }
    writeln!(
        out,
        "\n{confirmed} records were acknowledged, all of them were read back on all three nodes. {records} are stored, \
         {again} of them again, because a client did not know what had become of them ({} were sent again). Readers \
         came to the end of a topic {} times meanwhile.\n\nAll copies were whole {:.1} s after the load ended: {} \
         segments ({} ended), {:.1} MiB and {} records on each node, byte for byte the same.\n",
        outcome.sent_again,
        outcome.ends_read,
        took.as_secs_f64(),
        totals.segments,
        totals.sealed,
        totals.bytes as f64 / f64::from(1 << 20),
        totals.records,
    )
    .unwrap();
    out.push_str("What clients were told:\n\n| who: what | times |\n|---|---:|\n");
    for (what, times) in &outcome.told {
        writeln!(out, "| {what} | {times} |").unwrap();
    }
    out
}

fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::replaced;

    #[test]
    fn a_section_takes_the_place_of_the_last_one() {
        let text = "# Drills\n\nWhat.\n\n## Chaos\n\nold\n\n## Storage\n\nolder\n";
        assert_eq!(
            replaced(text, "Chaos", "## Chaos\n\nnew\n"),
            "# Drills\n\nWhat.\n\n## Chaos\n\nnew\n\n## Storage\n\nolder\n"
        );
        assert_eq!(
            replaced(text, "Storage", "## Storage\n"),
            "# Drills\n\nWhat.\n\n## Chaos\n\nold\n\n## Storage\n"
        );
        assert_eq!(replaced("# Drills\n", "Chaos", "## Chaos\n"), "# Drills\n\n## Chaos\n");
    }
}
