//! Records as text.
//!
//! `value` writes each value as it is and a newline, and nothing else: what was produced from the lines of a
//! file becomes that file again.

use std::fmt::{self, Display, Write as _};
use std::io::{self, BufWriter, IsTerminal, Write};

use client::{Page, Record};
use types::record::Walk;

use crate::json;

const BUFFER_BYTES: usize = 256 * 1024;

/// How to print a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// The value and a newline, nothing else
    Value,
    /// Number, key and value, for people
    Full,
    /// A JSON object
    Json,
}

/// The flags that choose a format.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Choice {
    /// How to print a record: full on a terminal, else value
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl Choice {
    pub(super) fn format(self) -> Format {
        match self.format {
            _ if self.json => Format::Json,
            Some(format) => format,
            None if io::stdout().is_terminal() => Format::Full,
            None => Format::Value,
        }
    }
}

/// Whoever reads our output has enough; nothing is wrong.
pub(super) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Where records are written to, and how many were.
pub(super) struct Output<W: Write> {
    format: Format,
    out: BufWriter<W>,
    written: u64,
}

impl<W: Write> Output<W> {
    pub(super) fn new(format: Format, out: W) -> Self {
        Self { format, out: BufWriter::with_capacity(BUFFER_BYTES, out), written: 0 }
    }

    /// Records written; all of them are out after a flush.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The first line, for people.
    pub(super) fn heading(&mut self, line: &dyn Display) -> io::Result<()> {
        if self.format == Format::Full {
            writeln!(self.out, "{line}")?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// The last line, for people.
    pub(super) fn end(&mut self, line: &dyn Display) -> io::Result<()> {
        if self.format == Format::Full {
            let ended = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
            return crate::print::quiet_when_closed(ended);
        }
        Ok(())
    }

    /// A wait brought nothing.
    pub(super) fn idle(&mut self) -> io::Result<()> {
        if self.format == Format::Full {
            self.out.write_all(b".")?;
            self.out.flush()?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub(super) fn page(&mut self, page: &Page) -> anyhow::Result<()> {
        match self.format {
            Format::Value => self.values(page),
            Format::Full => self.each(page, |n, record| full(n, &record)),
            Format::Json => self.each(page, |_, record| json::print(&record)),
        }
    }

    fn values(&mut self, page: &Page) -> anyhow::Result<()> {
        for slice in &page.records {
            for span in Walk::new(slice) {
                let span = span?;
                let value = span.start + span.key.map_or(1, |key| 5 + key.len()) + 4;
                self.out.write_all(&slice[value..value + span.value_bytes])?;
                self.out.write_all(b"\n")?;
                self.written += 1;
            }
        }
        Ok(())
    }

    fn each(&mut self, page: &Page, print: impl Fn(u64, Record) -> String) -> anyhow::Result<()> {
        for record in page.decode_records()? {
            self.written += 1;
            let line = print(self.written, record);
            self.out.write_all(line.as_bytes())?;
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }
}

fn full(n: u64, record: &Record) -> String {
    let mut line = format!("[{n}] key=");
    let written = match &record.key {
        None => line.write_str("(no key)"),
        Some(key) => printable(key, &mut line),
    };
    let written =
        written.and_then(|()| line.write_str("  ")).and_then(|()| printable(&record.value, &mut line));
    written.expect("a string takes everything");
    line
}

/// Text as it is, except that nothing in it can act on the terminal.
fn printable(bytes: &[u8], line: &mut String) -> fmt::Result {
    for c in String::from_utf8_lossy(bytes).chars() {
        if c.is_control() && c != '\t' {
            write!(line, "{}", c.escape_default())?;
        } else {
            line.write_char(c)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;
    use client::{Batch, Header};

    use super::*;

    fn record(key: Option<&'static str>, value: &'static str) -> Record {
        let headers = vec![Header { name: "h".into(), value: "v".into() }];
        Record { key: key.map(Bytes::from), value: value.into(), timestamp: 7, headers }
    }

    fn printed(format: Format, records: &[Record]) -> String {
        let batch: Batch = records.iter().collect();
        let produce = batch.into_produce(None);
        let page = Page { count: produce.count, records: vec![produce.records], next_cursor: Bytes::new() };
        let mut out = Vec::new();
        let mut output = Output::new(format, &mut out);
        output.page(&page).unwrap();
        assert_eq!(output.written(), records.len() as u64);
        output.flush().unwrap();
        drop(output);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_are_written_as_they_are() {
        let records = [record(None, "a\r"), record(Some("key"), ""), record(Some(""), "\u{1b}[2Jc")];
        assert_eq!(printed(Format::Value, &records), "a\r\n\n\u{1b}[2Jc\n");
    }

    #[test]
    fn people_see_keys_and_no_control_bytes() {
        let records = [record(None, "a"), record(Some("k"), "\u{1b}[2J")];
        assert_eq!(printed(Format::Full, &records), "[1] key=(no key)  a\n[2] key=k  \\u{1b}[2J\n");
    }

    #[test]
    fn json_is_what_produce_takes() {
        let records = [record(Some("k"), "v"), record(None, "w")];
        let lines = printed(Format::Json, &records);
        let back: Vec<Record> = lines.lines().map(|line| json::parse(line.as_bytes(), 0).unwrap()).collect();
        assert_eq!(back, records);
    }
}
