//! What a disk did, as a running digest and, on demand, as text.
//!
//! Two runs that did the same have the same digest; it is no checksum of anything stored.

use storage::disk::{JobId, Output, Path, Step};

use super::machine::Failure;

/// The digest and the lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    digest: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn record_lines(&mut self) {
        self.lines.get_or_insert_default();
    }

    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Mixes in a number.
    pub(crate) fn add(&mut self, word: u64) {
        // The finalizer of splitmix64 over a rotated state: cheap, and every bit of both counts.
        let mut mixed = (self.digest.rotate_left(23) ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.digest = mixed ^ (mixed >> 31);
    }

    /// Mixes in bytes and their number.
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(u64::try_from(bytes.len()).expect("a length fits"));
        let (mut chunks, mut sum) = (bytes.chunks_exact(8), 0u64);
        for chunk in &mut chunks {
            let word = u64::from_le_bytes(chunk.try_into().expect("a chunk of eight is eight long"));
            sum = (sum.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        for byte in chunks.remainder() {
            sum = (sum.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        self.add(sum);
    }

    /// Adds a line, if lines are wanted.
    pub(crate) fn line(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(line());
        }
    }

    /// Mixes in one step and what it gave.
    pub(crate) fn add_step(&mut self, job: JobId, step: &Step, result: &Result<Output, Failure>) {
        self.add(job.0);
        self.add_what(step);
        match result {
            Ok(Output::Done) => self.add(0),
            Ok(Output::Length(len)) => self.add(*len ^ 1 << 60),
            Ok(Output::Data(data)) => self.add_bytes(data),
            Ok(Output::Entries(entries)) => {
                for entry in entries {
                    self.add_bytes(entry.name.as_bytes());
                    self.add(u64::from(entry.is_dir));
                }
            }
            Err(failure) => {
                self.add(1 << 61);
                self.add_bytes(failure.kind.to_string().as_bytes());
            }
        }
        self.line(|| format!("{job:?} {} -> {}", describe(step), describe_result(result)));
    }

    fn add_what(&mut self, step: &Step) {
        match step {
            Step::CreateDir(name) => self.add_named(1, &[name.as_str()]),
            Step::RemoveDir(name) => self.add_named(2, &[name.as_str()]),
            Step::SyncDir(dir) => self.add_named(3, &[dir.as_ref().map_or("", |name| name.as_str())]),
            Step::Open { file, path } => self.add_path(4 ^ file.0 << 8, &[path]),
            Step::Create { file, path } => self.add_path(5 ^ file.0 << 8, &[path]),
            Step::Close(file) => self.add(6 ^ file.0 << 8),
            Step::Write { file, at, data } => {
                self.add(7 ^ file.0 << 8);
                self.add(*at);
                data.iter().for_each(|slice| self.add_bytes(slice));
            }
            Step::Zero { file, at, len } => {
                self.add(8 ^ file.0 << 8);
                self.add(*at);
                self.add(*len);
            }
            Step::Sync(file) => self.add(9 ^ file.0 << 8),
            Step::Truncate { file, len } => {
                self.add(10 ^ file.0 << 8);
                self.add(*len);
            }
            Step::Rename { from, to } => self.add_path(11, &[from, to]),
            Step::Remove(path) => self.add_path(12, &[path]),
            Step::Read { file, at, len } => {
                self.add(13 ^ file.0 << 8);
                self.add(*at);
                self.add(u64::try_from(*len).expect("a length fits"));
            }
            Step::List(dir) => self.add_named(14, &[dir.as_ref().map_or("", |name| name.as_str())]),
        }
    }

    fn add_named(&mut self, tag: u64, names: &[&str]) {
        self.add(tag);
        names.iter().for_each(|name| self.add_bytes(name.as_bytes()));
    }

    fn add_path(&mut self, tag: u64, paths: &[&Path]) {
        self.add(tag);
        for path in paths {
            self.add_bytes(path.dir.as_ref().map_or("", |name| name.as_str()).as_bytes());
            self.add_bytes(path.name.as_str().as_bytes());
        }
    }
}

/// A step without its bytes.
fn describe(step: &Step) -> String {
    if let Step::Write { file, at, data } = step {
        let len: usize = data.iter().map(|slice| slice.len()).sum();
        return format!("Write {{ file: {file:?}, at: {at}, len: {len} }}");
    }
    format!("{step:?}")
}

/// A result without its bytes.
fn describe_result(result: &Result<Output, Failure>) -> String {
    match result {
        Ok(Output::Data(data)) => format!("{} bytes", data.len()),
        Ok(output) => format!("{output:?}"),
        Err(failure) => format!("{}: {}", failure.kind, failure.detail),
    }
}
