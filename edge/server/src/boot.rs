//! Every check made before the node serves.
//!
//! Owns the order of the start, the marker file of each data directory, and what a refusal looks like. A
//! refusal changes nothing on disk but directories and locks that were missing.
//!
//! The marker `malachi.format` names the on-disk format and whose data it is. It is text, so that a person
//! can read it, and is written aside, synced and renamed:
//!
//! ```text
//! malachi 1
//! node 0123456789abcdef0123456789abcdef
//! ```

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use types::NodeId;

use crate::config::Storage;
use crate::driver::{Disks, Queues};

/// Name of the marker.
const MARKER: &str = "malachi.format";
/// Where it is written before it is renamed.
const MARKER_ASIDE: &str = "malachi.format.new";
/// The on-disk format of this build.
const FORMAT: u32 = 1;
/// A marker is shorter than this.
const MARKER_BYTES_MAX: u64 = 4096;

/// Why the node does not start. Shown as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// Something an operator can change; exit status 1.
    #[error("{0}")]
    Fix(String),
    /// The node must not run over the data it found; exit status 78.
    #[error("REFUSING TO START (exit 78): {0}")]
    Data(String),
}

impl Refusal {
    /// The exit status.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Fix(_) => 1,
            Self::Data(_) => 78,
        }
    }
}

/// Opens, locks and identifies both data directories.
pub(crate) fn open(storage: &Storage, queues: &Queues) -> Result<(Disks, NodeId), Refusal> {
    let fix = |error: std::io::Error| Refusal::Fix(error.to_string());
    let log = queues.open_disk(broker::Volume::Log, &storage.log_dir).map_err(fix)?;
    let raft = queues.open_disk(broker::Volume::Raft, &storage.raft_dir).map_err(fix)?;
    let node = identify(&storage.log_dir, &storage.raft_dir)?;
    Ok((Disks { log, raft }, node))
}

/// Whose directories they are. Fresh ones get a new identity.
fn identify(log_dir: &Path, raft_dir: &Path) -> Result<NodeId, Refusal> {
    match (read_marker(log_dir)?, read_marker(raft_dir)?) {
        (Some(log), Some(raft)) if log == raft => Ok(log),
        (Some(log), Some(raft)) => Err(Refusal::Data(format!(
            "{} belongs to node {log} and {} to node {raft}; start with two directories of one node",
            log_dir.display(),
            raft_dir.display()
        ))),
        // The identity is written here first: a start that ended in between goes on.
        (Some(log), None) => {
            write_marker(raft_dir, log)?;
            Ok(log)
        }
        (None, Some(raft)) => Err(Refusal::Data(format!(
            "{} has no marker, but {} belongs to node {raft}, whose records are elsewhere or lost; bring the \
             log directory back, or start with two new directories",
            log_dir.display(),
            raft_dir.display()
        ))),
        (None, None) => {
            let mut bytes = [0; 16];
            getrandom::fill(&mut bytes).map_err(|error| Refusal::Fix(format!("no randomness: {error}")))?;
            let node = NodeId(u128::from_be_bytes(bytes));
            write_marker(log_dir, node)?;
            write_marker(raft_dir, node)?;
            Ok(node)
        }
    }
}

fn read_marker(dir: &Path) -> Result<Option<NodeId>, Refusal> {
    let path = dir.join(MARKER);
    let text = match std::fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Refusal::Data(format!("cannot read {}: {error}", path.display()))),
        Ok(metadata) if metadata.len() > MARKER_BYTES_MAX => return Err(unparsable(&path)),
        Ok(_) => match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => return Err(Refusal::Data(format!("cannot read {}: {error}", path.display()))),
        },
    };
    parse_marker(&text, &path).map(Some)
}

fn parse_marker(text: &str, path: &Path) -> Result<NodeId, Refusal> {
    let mut lines = text.lines();
    let format =
        lines.next().and_then(|line| line.strip_prefix("malachi ")).and_then(|n| n.parse::<u32>().ok());
    match format {
        Some(FORMAT) => {}
        Some(later) if later > FORMAT => {
            return Err(Refusal::Data(format!(
                "{} says format {later}, this build knows {FORMAT}; start the release that wrote it or a later one",
                path.display()
            )));
        }
        Some(_) | None => return Err(unparsable(path)),
    }
    let digits = lines.next().and_then(|line| line.strip_prefix("node ")).filter(|digits| digits.len() == 32);
    let node = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
    node.filter(|_| lines.next().is_none()).map(NodeId).ok_or_else(|| unparsable(path))
}

fn unparsable(path: &Path) -> Refusal {
    Refusal::Data(format!("{} is not a marker of this product; restore it from a backup", path.display()))
}

fn write_marker(dir: &Path, node: NodeId) -> Result<(), Refusal> {
    let write = |aside: PathBuf| {
        let mut file = File::create(&aside)?;
        write!(file, "malachi {FORMAT}\nnode {node}\n")?;
        file.sync_all()?;
        std::fs::rename(&aside, dir.join(MARKER))?;
        File::open(dir)?.sync_all()
    };
    write(dir.join(MARKER_ASIDE))
        .map_err(|error| Refusal::Fix(format!("cannot write {}: {error}", dir.join(MARKER).display())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn dirs() -> (tempfile::TempDir, tempfile::TempDir) {
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap())
    }

    #[test]
    fn fresh_directories_get_one_identity_and_keep_it() {
        let (log, raft) = dirs();
        let node = identify(log.path(), raft.path()).unwrap();
        assert_eq!(identify(log.path(), raft.path()), Ok(node));
        std::fs::remove_file(raft.path().join(MARKER)).unwrap();
        assert_eq!(identify(log.path(), raft.path()), Ok(node), "a start that ended half-way goes on");
    }

    #[test]
    fn directories_that_do_not_belong_together_are_refused() {
        let ((log, raft), (other_log, other_raft)) = (dirs(), dirs());
        identify(log.path(), raft.path()).unwrap();
        identify(other_log.path(), other_raft.path()).unwrap();
        assert_eq!(identify(log.path(), other_raft.path()).unwrap_err().code(), 78);
        let empty = tempfile::tempdir().unwrap();
        let refusal = identify(empty.path(), raft.path()).unwrap_err();
        assert_eq!(refusal.code(), 78);
        assert!(refusal.to_string().starts_with("REFUSING TO START (exit 78): "));
        assert!(!empty.path().join(MARKER).exists(), "a refusal writes nothing");
    }

    #[test]
    fn a_later_format_and_garbage_are_never_guessed_at() {
        let path = Path::new("dir/malachi.format");
        let node = "0123456789abcdef0123456789abcdef";
        assert!(parse_marker(&format!("malachi 1\nnode {node}\n"), path).is_ok());
        let later = parse_marker(&format!("malachi 2\nwhatever {node}\n"), path).unwrap_err();
        assert!(later.code() == 78 && later.to_string().contains("format 2"));
        for garbage in [
            "",
            "malachi",
            "malachi 0\n",
            "malachi 1\n",
            "malachi 1\nnode 12\n",
            "\u{0}\u{0}",
            &format!("malachi 1\nnode {node}\nmore\n"),
        ] {
            assert_eq!(parse_marker(garbage, path).unwrap_err().code(), 78, "{garbage:?}");
        }
    }
}
