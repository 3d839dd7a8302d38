//! The operating system's errors in the words of the contract.

use std::fmt::Display;

use rustix::io::Errno;
use storage::disk::{Error, ErrorKind};

/// Why a step failed; becomes an [`Error`] once the step's place in its job is known.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) detail: String,
}

impl Failure {
    pub(super) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// A system call on `what` failed.
    pub(super) fn from_errno(what: impl Display, errno: Errno) -> Self {
        Self::new(kind(errno), format!("{what}: {}", std::io::Error::from(errno)))
    }

    pub(super) fn in_step(self, step: usize) -> Error {
        Error { kind: self.kind, step, detail: self.detail }
    }
}

fn kind(errno: Errno) -> ErrorKind {
    match errno {
        Errno::NOSPC | Errno::DQUOT => ErrorKind::Full,
        Errno::ROFS => ErrorKind::ReadOnly,
        Errno::IO => ErrorKind::Io,
        Errno::NOENT => ErrorKind::NotFound,
        Errno::EXIST => ErrorKind::Exists,
        Errno::NOTEMPTY => ErrorKind::NotEmpty,
        // A number, not an enum: what is not named here is `Other` by definition.
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_kind() {
        for (errno, expected) in [
            (Errno::NOSPC, ErrorKind::Full),
            (Errno::DQUOT, ErrorKind::Full),
            (Errno::ROFS, ErrorKind::ReadOnly),
            (Errno::IO, ErrorKind::Io),
            (Errno::NOENT, ErrorKind::NotFound),
            (Errno::EXIST, ErrorKind::Exists),
            (Errno::NOTEMPTY, ErrorKind::NotEmpty),
            (Errno::ACCESS, ErrorKind::Other),
            (Errno::MFILE, ErrorKind::Other),
            (Errno::LOOP, ErrorKind::Other),
        ] {
            let error = Failure::from_errno("d/f at 7", errno).in_step(3);
            assert_eq!((error.kind, error.step), (expected, 3), "{errno:?}");
            assert!(error.detail.starts_with("d/f at 7: "), "{error}");
        }
    }
}
