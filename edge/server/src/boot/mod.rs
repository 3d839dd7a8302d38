//! Every check made before the node serves.
//!
//! Owns the order of the start, the marker file of each data directory, and what a refusal looks like. A
//! refusal changes nothing in the directories it found, and makes none: a start that was refused leaves the next
//! one the same to decide on.
//!
//! The marker `malachi.format` names the on-disk format and whose data it is. It is text, so that a person
//! can read it, and is written aside, synced and renamed:
//!
//! ```text
//! malachi 1
//! node 0123456789abcdef0123456789abcdef
//! ```

mod belonging;
pub(crate) mod incarnation;
mod small;

use std::io::ErrorKind;
use std::path::Path;

use membership::incarnation::Reservation;
use storage::segment::layout;
use types::{ControlPlaneId, NodeId};

pub(crate) use belonging::Belonging;

use crate::config::Storage;
use crate::driver::{Disks, Queues};

/// Name of the marker.
const MARKER: &str = "malachi.format";
/// How the names of a Raft log's files end.
const RAFT_SUFFIXES: [&str; 2] = [".wal", ".snap"];
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

/// Both data directories, locked, and whose they are.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) disks: Disks,
    pub(crate) node: NodeId,
    /// The numbers of this life of it.
    pub(crate) life: Reservation,
    /// The cluster its data is of; `None` when there is none yet.
    pub(crate) belonging: Option<Belonging>,
}

/// Opens, locks and identifies both data directories.
pub(crate) fn open(storage: &Storage, queues: &Queues) -> Result<Opened, Refusal> {
    let Storage { log_dir, raft_dir, .. } = storage;
    let fix = |error: std::io::Error| Refusal::Fix(error.to_string());
    // Opening makes what is missing, which a refusal must not.
    judge(log_dir, raft_dir)?;
    belonging::judge(log_dir, raft_dir, has_raft_log(raft_dir)?)?;
    let log = queues.open_disk(broker::Volume::Log, log_dir).map_err(fix)?;
    let raft = queues.open_disk(broker::Volume::Raft, raft_dir).map_err(fix)?;
    let node = identify(log_dir, raft_dir)?;
    // Again, because now nobody else changes them.
    let has_log = has_raft_log(raft_dir)?;
    let known = belonging::judge(log_dir, raft_dir, has_log)?;
    let life = incarnation::reserve(log_dir)?;
    let belonging = match known {
        // Data from before there was such a file: a node of its own has formed a cluster of its own.
        None if has_log => Some(Belonging::drawn()?),
        known => known,
    };
    let belonging = belonging.map(|known| Belonging { settled: known.settled || has_log, ..known });
    if let Some(known) = belonging {
        belonging::record(log_dir, raft_dir, known)?;
    }
    Ok(Opened { disks: Disks { log, raft }, node, life, belonging })
}

/// This node forms a cluster; recorded before anything of it is.
pub(crate) fn form(storage: &Storage) -> Result<Belonging, Refusal> {
    let drawn = Belonging::drawn()?;
    belonging::record(&storage.log_dir, &storage.raft_dir, drawn)?;
    Ok(drawn)
}

/// This node joins a cluster; recorded before anything of it is.
pub(crate) fn join(storage: &Storage, control_plane: ControlPlaneId) -> Result<Belonging, Refusal> {
    let joined = Belonging { control_plane, formed: false, settled: false };
    belonging::record(&storage.log_dir, &storage.raft_dir, joined)?;
    Ok(joined)
}

/// The node serves: its Raft directory is not to be without a log again.
pub(crate) fn settle(storage: &Storage, belonging: Belonging) -> Result<(), Refusal> {
    let settled = Belonging { settled: true, ..belonging };
    belonging::record(&storage.log_dir, &storage.raft_dir, settled)
}

fn has_raft_log(raft_dir: &Path) -> Result<bool, Refusal> {
    look(raft_dir, is_raft_file).map(|found| found.has_data)
}

fn is_raft_file(name: &str) -> bool {
    RAFT_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// Whose directories they are. Fresh ones get a new identity.
///
/// The marker of the Raft directory is written first: a log directory with a marker has had a Raft directory,
/// so one that is missing was lost.
fn identify(log_dir: &Path, raft_dir: &Path) -> Result<NodeId, Refusal> {
    // Again, because now nobody else changes them.
    let node = match judge(log_dir, raft_dir)? {
        Whose::Node(node) => return Ok(node),
        Whose::Begun(node) => node,
        Whose::Nobody => {
            let mut bytes = [0; 16];
            getrandom::fill(&mut bytes).map_err(|error| Refusal::Fix(format!("no randomness: {error}")))?;
            let node = NodeId(u128::from_be_bytes(bytes));
            write_marker(raft_dir, node)?;
            node
        }
    };
    write_marker(log_dir, node)?;
    Ok(node)
}

/// Whose the directories are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Node(NodeId),
    /// The first start ended before it had written both markers.
    Begun(NodeId),
    Nobody,
}

/// Whether a node may run over these directories. Only looks; either may be missing.
fn judge(log_dir: &Path, raft_dir: &Path) -> Result<Whose, Refusal> {
    let log = look(log_dir, |name| layout::parse_dir(name).is_some())?;
    let raft = look(raft_dir, is_raft_file)?;
    let (log_shown, raft_shown) = (log_dir.display(), raft_dir.display());
    let refuse = |why: String| Err(Refusal::Data(why));
    match (log.marker, raft.marker) {
        (Some(log), Some(raft)) if log != raft => refuse(format!(
            "{log_shown} belongs to node {log} and {raft_shown} to node {raft}; start with two directories of \
             one node"
        )),
        // Metadata that began anew would list none of them.
        _ if log.has_data && !raft.has_data => refuse(format!(
            "{log_shown} holds records that {raft_shown} knows nothing of; bring the right Raft directory back"
        )),
        (Some(node), Some(_)) => Ok(Whose::Node(node)),
        (Some(node), None) if !raft.has_data => refuse(format!(
            "{log_shown} belongs to node {node}, but {raft_shown} knows nothing of it; bring the right Raft \
             directory back, or start with two new directories"
        )),
        (None, Some(node)) if !log.has_data && !raft.has_data => Ok(Whose::Begun(node)),
        (None, Some(node)) => refuse(format!(
            "{log_shown} has no marker, but {raft_shown} belongs to node {node}, whose records are elsewhere or \
             lost; bring the log directory back, or start with two new directories"
        )),
        (Some(_) | None, None) if raft.has_data => refuse(format!(
            "{raft_shown} holds a Raft log, but no {MARKER} that says whose; restore it from a backup"
        )),
        (Some(_) | None, None) => Ok(Whose::Nobody),
    }
}

/// What a data directory holds.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    marker: Option<NodeId>,
    /// Any name that stands for records, or for metadata.
    has_data: bool,
}

/// A directory that is missing holds nothing.
fn look(dir: &Path, is_data: impl Fn(&str) -> bool) -> Result<Found, Refusal> {
    let fix = |error| Refusal::Fix(format!("cannot look at the data directory {}: {error}", dir.display()));
    let mut entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::default()),
        Err(error) => return Err(fix(error)),
    };
    let has_data = entries
        .try_fold(false, |found, entry| Ok(found || entry?.file_name().to_str().is_some_and(&is_data)));
    Ok(Found { marker: read_marker(dir)?, has_data: has_data.map_err(fix)? })
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
    small::replace(dir, MARKER, format!("malachi {FORMAT}\nnode {node}\n").as_bytes())
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
        std::fs::remove_file(log.path().join(MARKER)).unwrap();
        std::fs::write(log.path().join("malachi.format.new"), "mal").unwrap();
        assert_eq!(identify(log.path(), raft.path()), Ok(node), "a start that ended half-way goes on");
        assert_eq!(judge(log.path(), raft.path()), Ok(Whose::Node(node)));
    }

    /// Every combination of markers and data; none of those that are refused may be served.
    #[test]
    fn what_would_begin_anew_beside_data_is_refused() {
        let copy = "0123456789abcdef0123456789abcdef-r0-s0";
        let wal = "00000000000000000001-0000abcd.wal";
        let (marker, none, node) = ("malachi 1\nnode 00000000000000000000000000000007\n", "", NodeId(7));
        // Log directory: marker, a copy; Raft directory: marker, a log.
        let cases = [
            (none, false, none, false, Ok(Whose::Nobody)),
            (none, false, marker, false, Ok(Whose::Begun(node))),
            (marker, false, marker, false, Ok(Whose::Node(node))),
            (marker, false, marker, true, Ok(Whose::Node(node))),
            (marker, true, marker, true, Ok(Whose::Node(node))),
            (marker, true, marker, false, Err("knows nothing of")),
            (marker, true, none, false, Err("knows nothing of")),
            (marker, false, none, false, Err("knows nothing of")),
            (none, true, none, false, Err("knows nothing of")),
            (none, true, marker, false, Err("knows nothing of")),
            (none, false, marker, true, Err("no marker")),
            (none, true, marker, true, Err("no marker")),
            (marker, true, none, true, Err("that says whose")),
            (marker, false, none, true, Err("that says whose")),
            (none, true, none, true, Err("that says whose")),
            (none, false, none, true, Err("that says whose")),
        ];
        for (log_marker, has_copy, raft_marker, has_wal, expected) in cases {
            let (log, raft) = dirs();
            for (dir, text) in [(&log, log_marker), (&raft, raft_marker)] {
                std::fs::create_dir(dir.path().join("lost+found")).unwrap();
                if !text.is_empty() {
                    std::fs::write(dir.path().join(MARKER), text).unwrap();
                }
            }
            if has_copy {
                std::fs::create_dir(log.path().join(copy)).unwrap();
            }
            if has_wal {
                std::fs::write(raft.path().join(wal), "").unwrap();
            }
            let case = (log_marker, has_copy, raft_marker, has_wal);
            match (judge(log.path(), raft.path()), expected) {
                (Err(refusal), Err(part)) => {
                    assert!(
                        refusal.code() == 78 && refusal.to_string().contains(part),
                        "{case:?}: {refusal}"
                    );
                    assert_eq!(identify(log.path(), raft.path()), Err(refusal), "{case:?}: nothing changed");
                }
                (judged, expected) => assert_eq!(judged.ok(), expected.ok(), "{case:?}"),
            }
        }
    }

    #[test]
    fn directories_that_do_not_belong_together_are_refused() {
        let ((log, raft), (other_log, other_raft)) = (dirs(), dirs());
        identify(log.path(), raft.path()).unwrap();
        identify(other_log.path(), other_raft.path()).unwrap();
        assert_eq!(identify(log.path(), other_raft.path()).unwrap_err().code(), 78);
        std::fs::write(raft.path().join("00000000000000000001-0000abcd.wal"), "").unwrap();
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
