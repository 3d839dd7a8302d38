//! Lines to records to batches.
//!
//! Invariants:
//! - every line becomes exactly one record, in order, whatever the chunks are; the value of a plain line is
//!   all its bytes without the newline, so a carriage return or an empty line is kept;
//! - a last line without a newline counts as a line;
//! - no more than one line is held beside the batch, and a line that cannot fit a frame is refused before
//!   the rest of it is read.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Buf, Bytes, BytesMut};
use client::{Batch, Record};
use memchr::{memchr, memchr_iter};

use crate::json;

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// The line is the value
    Lines,
    /// Key, TAB, value
    Kv,
    /// A JSON object: key, value, timestamp, headers
    Json,
}

/// Why the input cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No frame holds it.
    #[error("line {line}: the record does not fit a frame of {frame_bytes} bytes (see --frame-bytes)")]
    TooLong {
        /// From 1.
        line: u64,
        /// Largest request.
        frame_bytes: usize,
    },
    /// A key and value line without its TAB.
    #[error("line {line}: no TAB between key and value")]
    NoTab {
        /// From 1.
        line: u64,
    },
    /// Not a record in JSON.
    #[error("line {line}: {error}")]
    Json {
        /// From 1.
        line: u64,
        /// What is wrong.
        error: json::Error,
    },
}

/// How lines become batches.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// What a line is.
    pub(crate) format: Format,
    /// The key of every record, where the line names none.
    pub(crate) key: Option<Bytes>,
    /// A batch is sent before it grows past this.
    pub(crate) batch_bytes: usize,
    /// Largest request the broker takes.
    pub(crate) frame_bytes: usize,
    /// Bytes of a request beside its records.
    pub(crate) overhead_bytes: usize,
}

/// Cuts chunks into batches.
#[derive(Debug)]
pub(crate) struct Batcher {
    config: Config,
    /// The beginning of a line whose end has not been read.
    partial: BytesMut,
    batch: Batch,
    full: Option<Batch>,
    line: u64,
}

impl Batcher {
    pub(crate) fn new(config: Config) -> Self {
        let batch = Batch::with_capacity(config.batch_bytes);
        Self { config, partial: BytesMut::new(), batch, full: None, line: 0 }
    }

    /// Takes lines off the front of `chunk` until a batch is full (then call again) or the chunk is used up.
    pub(crate) fn fill(&mut self, chunk: &mut Bytes) -> Result<Option<Batch>, Error> {
        let now = now();
        if !self.partial.is_empty() {
            let Some(end) = memchr(b'\n', chunk) else {
                self.keep(chunk)?;
                chunk.clear();
                return Ok(None);
            };
            self.keep(&chunk[..end])?;
            chunk.advance(end + 1);
            let line = self.partial.split();
            self.add(&line, now)?;
        }
        let mut start = 0;
        for end in memchr_iter(b'\n', chunk) {
            if self.full.is_some() {
                break;
            }
            self.add(&chunk[start..end], now)?;
            start = end + 1;
        }
        chunk.advance(start);
        if self.full.is_none() && !chunk.is_empty() && memchr(b'\n', chunk).is_none() {
            self.keep(chunk)?;
            chunk.clear();
        }
        Ok(self.full.take())
    }

    /// Takes what was gathered so far, a line without its end left out.
    pub(crate) fn take(&mut self) -> Batch {
        std::mem::replace(&mut self.batch, Batch::with_capacity(self.config.batch_bytes))
    }

    /// Whether a batch was begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// The input has ended: the rest, as up to two batches.
    pub(crate) fn finish(mut self) -> Result<Vec<Batch>, Error> {
        if !self.partial.is_empty() {
            let line = self.partial.split();
            self.add(&line, now())?;
        }
        let rest = [self.full.take(), Some(self.batch)];
        Ok(rest.into_iter().flatten().filter(|batch| !batch.is_empty()).collect())
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), Error> {
        // A JSON line may be longer than its record, by six times where everything is escaped.
        let longest = match self.config.format {
            Format::Lines | Format::Kv => self.config.frame_bytes,
            Format::Json => self.config.frame_bytes.saturating_mul(6),
        };
        if self.partial.len() + part.len() > longest {
            return Err(self.too_long(self.line + 1));
        }
        self.partial.extend_from_slice(part);
        Ok(())
    }

    fn too_long(&self, line: u64) -> Error {
        Error::TooLong { line, frame_bytes: self.config.frame_bytes }
    }

    fn add(&mut self, line: &[u8], now: u64) -> Result<(), Error> {
        self.line += 1;
        match self.config.format {
            Format::Lines => {
                self.make_room(self.config.key.as_ref().map_or(1, |key| 5 + key.len()) + line.len() + 16)?;
                self.batch.push_parts(self.config.key.as_deref(), line, now);
            }
            Format::Kv => {
                let tab = memchr(b'\t', line).ok_or(Error::NoTab { line: self.line })?;
                self.make_room(5 + tab + line.len() - tab - 1 + 16)?;
                self.batch.push_parts(Some(&line[..tab]), &line[tab + 1..], now);
            }
            Format::Json => {
                let mut record =
                    json::parse(line, now).map_err(|error| Error::Json { line: self.line, error })?;
                record.key = record.key.or_else(|| self.config.key.clone());
                self.add_record(&record)?;
            }
        }
        Ok(())
    }

    fn add_record(&mut self, record: &Record) -> Result<(), Error> {
        self.make_room(record.encoded_len())?;
        self.batch.push(record);
        Ok(())
    }

    /// Makes the batch full when a record of `bytes` would push it over the target.
    fn make_room(&mut self, bytes: usize) -> Result<(), Error> {
        if self.config.overhead_bytes + bytes > self.config.frame_bytes {
            return Err(self.too_long(self.line));
        }
        let largest = self.config.batch_bytes.min(self.config.frame_bytes - self.config.overhead_bytes);
        if !self.batch.is_empty() && self.batch.bytes() + bytes > largest {
            let batch = self.take();
            self.full = Some(batch);
        }
        Ok(())
    }
}

/// Milliseconds since the epoch.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use types::codec::Reader;

    use super::*;

    fn config(format: Format) -> Config {
        Config { format, key: None, batch_bytes: 100, frame_bytes: 200, overhead_bytes: 20 }
    }

    fn batches(config: &Config, chunks: &[&[u8]]) -> Result<Vec<Batch>, Error> {
        let mut batcher = Batcher::new(config.clone());
        let mut batches = Vec::new();
        for chunk in chunks {
            let mut chunk = Bytes::copy_from_slice(chunk);
            while let Some(batch) = batcher.fill(&mut chunk)? {
                batches.push(batch);
            }
            assert!(chunk.is_empty());
        }
        batches.extend(batcher.finish()?);
        Ok(batches)
    }

    fn records(batches: Vec<Batch>) -> Vec<Record> {
        let mut records = Vec::new();
        for batch in batches {
            let mut reader = Reader::new(batch.into_produce(None).records);
            while reader.remaining() > 0 {
                records.push(Record::decode(&mut reader).unwrap());
            }
        }
        records
    }

    fn values(format: Format, input: &[u8]) -> Vec<Bytes> {
        records(batches(&config(format), &[input]).unwrap()).into_iter().map(|record| record.value).collect()
    }

    #[test]
    fn every_line_is_a_record_and_nothing_of_it_is_lost() {
        assert_eq!(values(Format::Lines, b"a\r\n\n b \nc"), ["a\r", "", " b ", "c"]);
        assert!(values(Format::Lines, b"").is_empty());
        assert_eq!(values(Format::Lines, b"\n"), [""]);
    }

    #[test]
    fn the_first_tab_parts_key_and_value() {
        let records = records(batches(&config(Format::Kv), &[b"k\tv\tw\n\tempty key\n"]).unwrap());
        let parts: Vec<_> = records.iter().map(|r| (r.key.as_deref().unwrap(), &r.value[..])).collect();
        assert_eq!(parts, [(&b"k"[..], &b"v\tw"[..]), (b"", b"empty key")]);
        assert!(matches!(batches(&config(Format::Kv), &[b"k\tv\nx\n"]), Err(Error::NoTab { line: 2 })));
    }

    #[test]
    fn what_fits_no_frame_is_refused_by_its_line() {
        let long = [b'x'; 200 - 20 - 17 + 1];
        let fits = &long[1..];
        assert_eq!(values(Format::Lines, fits).len(), 1);
        let input = [b"a\n", &long[..], b"\n"].concat();
        assert!(matches!(batches(&config(Format::Lines), &[&input]), Err(Error::TooLong { line: 2, .. })));
        // No newline in sight: not gathered without end.
        let endless = [&b"x"[..]; 300];
        assert!(matches!(batches(&config(Format::Lines), &endless), Err(Error::TooLong { line: 1, .. })));
    }

    #[test]
    fn json_lines_are_named_when_they_are_wrong() {
        let input = b"{\"value\":\"a\"}\n{\"value\":1}\n";
        assert!(matches!(batches(&config(Format::Json), &[input]), Err(Error::Json { line: 2, .. })));
    }

    proptest! {
        #[test]
        fn the_lines_come_out_as_they_went_in(
            lines in prop::collection::vec(prop::collection::vec(prop::sample::select(b"ab\r\t".to_vec()), 0..60), 1..40),
            ends in any::<bool>(), cut in 1_usize..90,
        ) {
            let mut input = lines.join(&b'\n');
            // A last line that is empty is one only when its newline is there.
            let ends = ends || lines.last().unwrap().is_empty();
            if ends {
                input.push(b'\n');
            }
            let chunks: Vec<&[u8]> = input.chunks(cut).collect();
            let batches = batches(&config(Format::Lines), &chunks).unwrap();
            prop_assert!(batches.iter().all(|batch| batch.bytes() <= 100 && !batch.is_empty()));
            let values: Vec<Vec<u8>> = records(batches).iter().map(|record| record.value.to_vec()).collect();
            prop_assert_eq!(values, lines);
        }
    }
}
