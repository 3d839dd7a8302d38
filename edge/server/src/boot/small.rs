//! Small files of a data directory: read whole, replaced whole.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

/// A small file is shorter than this.
const BYTES_MAX: u64 = 4096;

/// A file's bytes; `None` when it is not there.
pub(super) fn read(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "it is too long"));
    }
    Ok(Some(bytes))
}

/// Puts a file in the place of the one of that name: written aside, synced, renamed, and the directory synced.
pub(super) fn replace(dir: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let aside = dir.join(format!("{name}.new"));
    let mut file = File::create(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&aside, dir.join(name))?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        assert_eq!(read(&path).unwrap(), None);
        replace(dir.path(), "f", b"one").unwrap();
        replace(dir.path(), "f", b"two").unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), b"two");
        assert!(!dir.path().join("f.new").exists());
        std::fs::write(&path, vec![0; 5000]).unwrap();
        assert!(read(&path).is_err());
        assert!(replace(&dir.path().join("none"), "f", b"").is_err());
    }
}
