//! Reading one file whole, in windows, as a sequence of jobs.

use bytes::{Bytes, BytesMut};
use types::limits;

use crate::disk::{FileId, Output, Path, Step};

/// A file being read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) file: FileId,
    len: Option<u64>,
    data: BytesMut,
}

/// What comes next.
pub(super) enum Next {
    /// Run this and hand back its output.
    Step(Step),
    /// The file's bytes.
    Whole(Bytes),
}

impl Reading {
    /// Opens the file; the first output belongs to this step.
    pub(super) fn open(file: FileId, path: Path) -> (Self, Step) {
        (Self { file, len: None, data: BytesMut::new() }, Step::Open { file, path })
    }

    /// Takes the output of the last step.
    pub(super) fn step(&mut self, output: Output) -> Next {
        let mut ended = false;
        match output {
            Output::Length(len) => self.len = Some(len),
            Output::Data(data) => {
                ended = data.is_empty();
                self.data.extend_from_slice(&data);
            }
            Output::Done | Output::Entries(_) => ended = true,
        }
        let at = self.data.len() as u64;
        let left = self.len.unwrap_or_default().saturating_sub(at);
        if ended || left == 0 {
            return Next::Whole(std::mem::take(&mut self.data).freeze());
        }
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(limits::SCAN_WINDOW_BYTES);
        Next::Step(Step::Read { file: self.file, at, len })
    }
}
