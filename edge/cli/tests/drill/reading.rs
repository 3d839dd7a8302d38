//! What readers may be given, whoever they ask and whenever.
//!
//! Every record names its writer and its number there, and all else in it follows from these, so that a reader can
//! tell what was never sent. A *serial* writer sends a number once everything below it is known to be stored: nobody
//! is ever given one of its numbers before all below it, not by a place that was damaged either.

use std::collections::{BTreeMap, BTreeSet};

use client::Page;

/// Bytes of each record's value.
const VALUE_BYTES: usize = 256;

/// A record's value.
pub(crate) fn value(writer: &str, number: u64) -> Vec<u8> {
    let mut value = format!("{writer} {number:010} ").into_bytes();
    let mut random = super::Random::new(number ^ u64::from(writer.bytes().map(u32::from).sum::<u32>()) << 40);
    while value.len() < VALUE_BYTES {
        value.extend(random.next().to_be_bytes());
    }
    value.truncate(VALUE_BYTES);
    value
}

/// Who wrote a value, and its number; `None` when nobody did.
fn written(bytes: &[u8]) -> Option<(String, u64)> {
    let mut words = bytes.splitn(3, |byte| *byte == b' ');
    let (writer, number) = (words.next()?, words.next()?);
    let writer = std::str::from_utf8(writer).ok()?.to_owned();
    let number = std::str::from_utf8(number).ok()?.parse().ok()?;
    (value(&writer, number) == bytes).then_some((writer, number))
}

/// What one reader was given of each writer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// All below the number, and what lies above it.
    writers: BTreeMap<String, (u64, BTreeSet<u64>)>,
    /// Records, those that came again included.
    pub(crate) records: u64,
    /// Those that had come before.
    pub(crate) again: u64,
}

impl Seen {
    /// Takes a page in; what is wrong with it, if anything is.
    pub(crate) fn take(&mut self, page: &Page) -> Result<(), String> {
        let records = page.decode_records().map_err(|error| format!("a page does not decode: {error}"))?;
        for record in records {
            let Some((writer, number)) = written(&record.value) else {
                return Err(format!(
                    "a record nobody wrote: {:?}",
                    &record.value[..record.value.len().min(32)]
                ));
            };
            if record.key.as_deref() != Some(writer.as_bytes()) {
                return Err(format!("number {number} of {writer} has the key {:?}", record.key));
            }
            self.records += 1;
            let (below, above) = self.writers.entry(writer.clone()).or_default();
            if number < *below || !above.insert(number) {
                self.again += 1;
                continue;
            }
            if is_serial(&writer) && number != *below {
                return Err(format!("{writer}: number {number} came, {below} had not"));
            }
            while above.remove(below) {
                *below += 1;
            }
        }
        Ok(())
    }

    /// The first number of a writer that was not given.
    pub(crate) fn lacks(&self, writer: &str) -> u64 {
        self.writers.get(writer).map_or(0, |(below, _)| *below)
    }
}

/// Whether a writer waits for each batch before it sends the next; its name says so.
pub(crate) fn is_serial(writer: &str) -> bool {
    writer.starts_with("serial")
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Record;

    fn page(records: &[(&str, u64)]) -> Page {
        let mut bytes = bytes::BytesMut::new();
        for (writer, number) in records {
            let key = Some(writer.to_string().into());
            let value = value(writer, *number).into();
            Record { key, value, timestamp: 0, headers: Vec::new() }.encode(&mut bytes);
        }
        let count = u32::try_from(records.len()).unwrap();
        Page { count, records: vec![bytes.freeze()], next_cursor: bytes::Bytes::new() }
    }

    #[test]
    fn a_reader_notices_what_is_missing_and_what_nobody_wrote() {
        let mut seen = Seen::default();
        seen.take(&page(&[("serial-0", 0), ("many-0", 3), ("serial-0", 1), ("serial-0", 0)])).unwrap();
        assert_eq!((seen.records, seen.again), (4, 1));
        assert_eq!((seen.lacks("serial-0"), seen.lacks("many-0"), seen.lacks("serial-1")), (2, 0, 0));
        assert!(seen.clone().take(&page(&[("serial-0", 3)])).is_err());
        let mut wrong = page(&[("serial-0", 2)]);
        let mut bytes = wrong.records[0].to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        wrong.records = vec![bytes.into()];
        assert!(seen.take(&wrong).is_err());
        seen.take(&page(&[("many-0", 0), ("many-0", 2), ("many-0", 1)])).unwrap();
        assert_eq!(seen.lacks("many-0"), 4);
    }
}
