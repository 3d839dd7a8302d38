//! The file `malachi.incarnation`: which numbers this life of the node may use. The arithmetic is the `membership`
//! crate's.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use membership::incarnation::{self, FILE_NAME, Reservation};
use types::Incarnation;

use super::{Refusal, small};

/// Reserves numbers no earlier life of this node used; durable when it returns.
pub(super) fn reserve(log_dir: &Path) -> Result<Reservation, Refusal> {
    let path = log_dir.join(FILE_NAME);
    let refuse = |why: String| Refusal::Data(format!("{}: {why}", path.display()));
    let bytes = small::read(&path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let damaged = |error: incarnation::Error| refuse(format!("{error}; restore it from a backup"));
    let recorded = bytes.map(|bytes| incarnation::decode(&bytes)).transpose().map_err(damaged)?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let reserved = incarnation::start(recorded, seconds).map_err(|error| refuse(error.to_string()))?;
    raise(log_dir, reserved.ceiling)
        .map_err(|error| refuse(format!("cannot be written, and no number may be used before: {error}")))?;
    Ok(reserved)
}

/// Records a ceiling; durable when it returns.
pub(crate) fn raise(log_dir: &Path, ceiling: Incarnation) -> std::io::Result<()> {
    small::replace(log_dir, FILE_NAME, &incarnation::encode(ceiling))
}

/// The file, for people.
pub(crate) fn path(log_dir: &Path) -> PathBuf {
    log_dir.join(FILE_NAME)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_start_is_above_the_one_before_and_damage_is_not_guessed_at() {
        let dir = tempfile::tempdir().unwrap();
        let first = reserve(dir.path()).unwrap();
        let second = reserve(dir.path()).unwrap();
        assert!(second.first > first.ceiling);
        raise(dir.path(), Incarnation(1 << 40)).unwrap();
        assert_eq!(reserve(dir.path()).unwrap().first, Incarnation((1 << 40) + 1));
        std::fs::write(path(dir.path()), "MINC").unwrap();
        let refusal = reserve(dir.path()).unwrap_err();
        assert!(refusal.code() == 78 && refusal.to_string().contains(FILE_NAME), "{refusal}");
        assert_eq!(std::fs::read(path(dir.path())).unwrap(), b"MINC", "a refusal changes nothing");
        assert_eq!(reserve(&dir.path().join("none")).unwrap_err().code(), 78);
    }
}
