//! What goes to the terminal. The one place that prints, so that a closed pipe is handled once.
//!
//! People at a terminal get columns, headings and colour (none with `NO_COLOR`); whatever else reads gets one
//! line an item with tabs between the fields, and never an escape sequence.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// A line on standard output.
pub(crate) fn line(text: &dyn Display) -> io::Result<()> {
    quiet_when_closed(writeln!(io::stdout().lock(), "{text}"))
}

/// A line on standard error; a failure to say it is nothing more to say.
pub(crate) fn note(text: &dyn Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// `Error: ...` on standard error.
pub(crate) fn error(error: &anyhow::Error) {
    note(&format_args!("{} {error:#}", Style::Bad.on_stderr("Error:")));
}

/// A reader that has enough closes the pipe; that is no failure of ours.
pub(crate) fn quiet_when_closed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// How a piece of text is shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// A heading.
    Heading,
    /// It went well.
    Good,
    /// It did not.
    Bad,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Heading => "\x1b[1m",
            Self::Good => "\x1b[32m",
            Self::Bad => "\x1b[31m",
        }
    }

    fn paint(self, text: &str, wanted: bool) -> String {
        // An empty variable counts as not set, as the convention of NO_COLOR has it.
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if wanted && !refused { format!("{}{text}\x1b[0m", self.code()) } else { text.to_owned() }
    }

    /// The text for standard output.
    pub(crate) fn on_stdout(self, text: &str) -> String {
        self.paint(text, io::stdout().is_terminal())
    }

    /// The text for standard error.
    pub(crate) fn on_stderr(self, text: &str) -> String {
        self.paint(text, io::stderr().is_terminal())
    }
}

/// Rows of fields: aligned under a heading for people, tabs between the fields for everything else.
#[derive(Debug)]
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with a field for each heading.
    pub(crate) fn row(&mut self, fields: Vec<String>) {
        assert_eq!(fields.len(), self.headings.len(), "a field for each heading");
        self.rows.push(fields.iter().map(|field| printable(field)).collect());
    }

    /// Prints all of it; people are told when there is nothing.
    pub(crate) fn print(&self, nothing: &str) -> io::Result<()> {
        let text = if io::stdout().is_terminal() { self.for_people(nothing) } else { self.for_programs() };
        quiet_when_closed(io::stdout().lock().write_all(text.as_bytes()))
    }

    fn for_people(&self, nothing: &str) -> String {
        if self.rows.is_empty() {
            return format!("{nothing}\n");
        }
        let headings: Vec<String> = self.headings.iter().map(|heading| (*heading).to_owned()).collect();
        let width = |column: usize| {
            let fields = self.rows.iter().chain([&headings]).map(|row| row[column].chars().count());
            fields.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..headings.len()).map(width).collect();
        let aligned = |row: &[String]| {
            let fields = row.iter().zip(&widths).map(|(field, width)| format!("{field:width$}"));
            fields.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let mut text = format!("{}\n", Style::Heading.on_stdout(&aligned(&headings)));
        for row in &self.rows {
            text.push_str(&aligned(row));
            text.push('\n');
        }
        text
    }

    fn for_programs(&self) -> String {
        self.rows.iter().map(|row| format!("{}\n", row.join("\t"))).collect()
    }
}

/// Text in which nothing can act on the terminal, or pass for the end of a field or a line.
pub(crate) fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            clean.extend(c.escape_default());
        } else {
            clean.push(c);
        }
    }
    clean
}

/// What stands between the fields of a line that is not part of a table.
pub(crate) fn separator() -> &'static str {
    if io::stdout().is_terminal() { "  " } else { "\t" }
}

/// Says to people that a list is empty.
pub(crate) fn nothing(text: &str) -> anyhow::Result<()> {
    if io::stdout().is_terminal() { Ok(line(&text)?) } else { Ok(()) }
}

/// Bytes of a name as text; what is no text shows as such.
pub(crate) fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running count on standard error, when that is a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    shown: Option<Instant>,
    on: bool,
}

impl Progress {
    const EVERY: Duration = Duration::from_millis(200);

    /// Starts the clock; silent when `wanted` is false or nobody watches.
    pub(crate) fn start(wanted: bool) -> Self {
        Self { start: Instant::now(), shown: None, on: wanted && io::stderr().is_terminal() }
    }

    /// Shows a count, not too often.
    pub(crate) fn show(&mut self, records: u64) {
        if self.due() {
            let rate = per_second(records, self.start.elapsed());
            self.write(&format_args!("{records} records   {rate} rec/s"));
        }
    }

    /// Shows a text, not too often.
    pub(crate) fn say(&mut self, text: &dyn Display) {
        if self.due() {
            self.write(text);
        }
    }

    fn due(&self) -> bool {
        self.on && self.shown.is_none_or(|shown| shown.elapsed() >= Self::EVERY)
    }

    fn write(&mut self, text: &dyn Display) {
        self.shown = Some(Instant::now());
        let _ = write!(io::stderr().lock(), "\r\x1b[K{text}");
    }

    /// Takes the count off the screen; gives the time since the start.
    pub(crate) fn finish(&mut self) -> Duration {
        if self.on && self.shown.take().is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
        self.start.elapsed()
    }
}

/// Whole records a second.
pub(crate) fn per_second(records: u64, elapsed: Duration) -> u64 {
    let micros = elapsed.as_micros().max(1);
    u64::try_from(u128::from(records) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "STATE"]);
        table.row(vec!["orders".to_owned(), "active".to_owned()]);
        table.row(vec!["é".to_owned(), "x\ty\u{1b}[2J".to_owned()]);
        table
    }

    #[test]
    fn people_get_columns_and_programs_get_tabs() {
        let people = table().for_people("(none)");
        assert_eq!(people, "NAME    STATE\norders  active\né       x\\ty\\u{1b}[2J\n");
        assert_eq!(table().for_programs(), "orders\tactive\né\tx\\ty\\u{1b}[2J\n");
    }

    #[test]
    fn nothing_is_said_to_people_alone() {
        let empty = Table::new(&["NAME"]);
        assert_eq!(empty.for_people("(none)"), "(none)\n");
        assert_eq!(empty.for_programs(), "");
    }

    #[test]
    fn colour_is_for_those_who_see_it() {
        assert_eq!(Style::Bad.paint("no", false), "no");
    }
}
