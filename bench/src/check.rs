//! Reading everything back through a store opened anew.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use storage::store::{Config, Reply, Request};
use types::Offset;

use crate::copy::Written;
use crate::engine::Engine;
use crate::payload::Payloads;

/// Bytes asked for at a time.
const READ_BYTES: usize = 1024 * 1024;

/// What was read back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) batches: u64,
    pub(crate) bytes: u64,
}

/// Compares every copy in a directory, batch by batch, with what was acknowledged; there may be no others.
///
/// # Errors
/// Names the first copy that holds less, more or anything else.
pub(crate) fn read_back(dir: &Path, payloads: &Payloads, copies: &[Written]) -> anyhow::Result<Checked> {
    let mut engine = Engine::open(dir, Config::default())?;
    ensure!(engine.copies() == copies.len(), "{} copies, {} written", engine.copies(), copies.len());
    let mut checked = Checked::default();
    for copy in copies {
        let one = compare(&mut engine, payloads, copy).with_context(|| format!("copy {}", copy.segment))?;
        checked.batches += one.batches;
        checked.bytes += one.bytes;
    }
    Ok(checked)
}

fn compare(engine: &mut Engine, payloads: &Payloads, copy: &Written) -> anyhow::Result<Checked> {
    ensure!(copy.asked == copy.acknowledged, "appends without an answer");
    let segment = copy.segment;
    let reply = engine.call(Request::Inspect { segment })?;
    let Reply::Inspected(extent) = reply else { bail!("inspection: {reply:?}") };
    ensure!(
        extent.end == Offset(copy.acknowledged),
        "ends at {}, acknowledged {}",
        extent.end,
        copy.acknowledged
    );
    let mut checked = Checked::default();
    while checked.batches < copy.acknowledged {
        let from = Offset(checked.batches);
        let reply = engine.call(Request::Read { segment, from, bytes_max: READ_BYTES })?;
        let Reply::Read(batches) = reply else { bail!("read from {from}: {reply:?}") };
        for batch in batches {
            let due = copy.batch(payloads, checked.batches);
            ensure!(batch == due, "batch {} is not the one that was written", checked.batches);
            checked.batches += 1;
            checked.bytes += batch.header.frame_len();
        }
    }
    Ok(checked)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn written(dir: &Path, payloads: &Payloads) -> Vec<Written> {
        let mut engine = Engine::open(dir, Config::default()).unwrap();
        let mut copies = vec![Written::new(0, 1024), Written::new(1, 1024)];
        for copy in &mut copies {
            copy.create(&mut engine, false).unwrap();
            copy.fill(&mut engine, payloads, 20).unwrap();
        }
        copies
    }

    #[test]
    fn what_was_written_is_found() {
        let (dir, payloads) = (tempfile::tempdir().unwrap(), Payloads::new(&[1024]));
        let copies = written(dir.path(), &payloads);
        assert_eq!(read_back(dir.path(), &payloads, &copies).unwrap().batches, 40);
    }

    #[test]
    fn a_record_too_few_a_copy_too_few_and_other_bytes_are_noticed() {
        let (dir, payloads) = (tempfile::tempdir().unwrap(), Payloads::new(&[1024]));
        let copies = written(dir.path(), &payloads);
        assert!(read_back(dir.path(), &payloads, &copies[..1]).is_err(), "a copy nobody wrote");
        let mut more = copies.clone();
        (more[1].asked, more[1].acknowledged) = (21, 21);
        assert!(read_back(dir.path(), &payloads, &more).is_err(), "an acknowledged record is missing");
        let mut other = copies.clone();
        other[1].writer = 7;
        assert!(read_back(dir.path(), &payloads, &other).is_err(), "another payload");
    }

    #[test]
    fn a_flipped_byte_on_the_disk_is_noticed() {
        let (dir, payloads) = (tempfile::tempdir().unwrap(), Payloads::new(&[1024]));
        let copies = written(dir.path(), &payloads);
        let log = storage::segment::layout::log(copies[1].segment, Offset::ZERO);
        let file = fs::File::options().write(true).open(dir.path().join(log.to_string())).unwrap();
        file.write_all_at(b"?", 10 * 1096 + 500).unwrap();
        assert!(read_back(dir.path(), &payloads, &copies).is_err());
    }
}
