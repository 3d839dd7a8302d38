//! The file `malachi.cluster` of both data directories: which cluster their data is of.
//!
//! Owns its bytes and whether the two agree. A cluster is told by its id, which the node that forms it draws; names
//! decide nothing. The file is written before anything of the cluster is, the Raft directory's first. It is text, so
//! that a person can read it, and checked by a CRC-32 over all lines before the last:
//!
//! ```text
//! malachi cluster 1
//! id 0123456789abcdef0123456789abcdef
//! formed begun
//! crc 0123abcd
//! ```
//!
//! `formed` is what the node says that drew the id, `joined` what any other says. `begun` becomes `settled` once there
//! is a Raft log: from then on a Raft directory without one has lost it, and the node could vote again on what it has
//! voted on before.

use std::path::Path;

use types::ControlPlaneId;

use super::{Refusal, small};

/// Name of the file.
pub(super) const FILE: &str = "malachi.cluster";
const HEAD: &str = "malachi cluster ";
const VERSION: u32 = 1;

/// The cluster a node's data is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Belonging {
    pub(crate) control_plane: ControlPlaneId,
    /// Whether this node formed it.
    pub(crate) formed: bool,
    /// Whether there was a Raft log.
    pub(crate) settled: bool,
}

impl Belonging {
    /// A cluster that is formed here.
    pub(super) fn drawn() -> Result<Self, Refusal> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| Refusal::Fix(format!("no randomness: {error}")))?;
        let control_plane = ControlPlaneId(u128::from_be_bytes(bytes));
        Ok(Self { control_plane, formed: true, settled: false })
    }

    fn encode(self) -> String {
        let Self { control_plane, formed, settled } = self;
        let how = if formed { "formed" } else { "joined" };
        let stage = if settled { "settled" } else { "begun" };
        let lines = format!("{HEAD}{VERSION}\nid {control_plane}\n{how} {stage}\n");
        let sum = crc32fast::hash(lines.as_bytes());
        format!("{lines}crc {sum:08x}\n")
    }

    fn decode(text: &str) -> Option<Self> {
        let (lines, sum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let sum = sum.strip_prefix("crc ").filter(|sum| sum.len() == 8)?;
        let sum = u32::from_str_radix(sum, 16).ok()?;
        if sum != crc32fast::hash(format!("{lines}\n").as_bytes()) {
            return None;
        }
        let mut lines = lines.lines().skip(1);
        let id = lines.next()?.strip_prefix("id ").filter(|id| id.len() == 32)?;
        let control_plane = ControlPlaneId(u128::from_str_radix(id, 16).ok()?);
        let (how, stage) = lines.next()?.split_once(' ')?;
        let of = |word, [yes, no]: [&str; 2]| match word {
            _ if word == yes => Some(true),
            _ if word == no => Some(false),
            _ => None,
        };
        let (formed, settled) = (of(how, ["formed", "joined"])?, of(stage, ["settled", "begun"])?);
        lines.next().is_none().then_some(Self { control_plane, formed, settled })
    }
}

fn read(dir: &Path) -> Result<Option<Belonging>, Refusal> {
    let path = dir.join(FILE);
    let refuse = |why: String| Err(Refusal::Data(format!("{} {why}", path.display())));
    let bytes = match small::read(&path) {
        Ok(None) => return Ok(None),
        Ok(Some(bytes)) => bytes,
        Err(error) => return refuse(format!("cannot be read: {error}")),
    };
    let text = String::from_utf8_lossy(&bytes);
    let version = text.lines().next().and_then(|line| line.strip_prefix(HEAD)?.parse::<u32>().ok());
    if let Some(later) = version.filter(|version| *version > VERSION) {
        return refuse(format!(
            "is of version {later}, this build knows {VERSION}; start the release that wrote it or a later one"
        ));
    }
    match Belonging::decode(&text).filter(|_| version == Some(VERSION)) {
        Some(belonging) => Ok(Some(belonging)),
        None => refuse(format!("is damaged; copy the {FILE} of the other data directory over it")),
    }
}

/// What both directories say. Only looks.
pub(super) fn judge(log_dir: &Path, raft_dir: &Path, has_raft: bool) -> Result<Option<Belonging>, Refusal> {
    let (log, raft) = (read(log_dir)?, read(raft_dir)?);
    let (log_shown, raft_shown) = (log_dir.display(), raft_dir.display());
    if let (Some(log), Some(raft)) = (log, raft)
        && log.control_plane != raft.control_plane
    {
        return Err(Refusal::Data(format!(
            "{log_shown} belongs to cluster {} and {raft_shown} to cluster {}; start with two directories of one \
             node",
            log.control_plane, raft.control_plane
        )));
    }
    let settled = [log, raft].into_iter().flatten().any(|belonging| belonging.settled);
    let found = raft.or(log);
    match found {
        Some(Belonging { control_plane, .. }) if settled && !has_raft => Err(Refusal::Data(format!(
            "{raft_shown} belongs to cluster {control_plane} and has lost its Raft log; bring it back, or start \
             with two new directories as a new node"
        ))),
        Some(belonging) => Ok(Some(Belonging { settled, ..belonging })),
        None => Ok(None),
    }
}

/// Records it in both directories; durable when it returns.
pub(super) fn record(log_dir: &Path, raft_dir: &Path, belonging: Belonging) -> Result<(), Refusal> {
    for dir in [raft_dir, log_dir] {
        if read(dir)? != Some(belonging) {
            small::replace(dir, FILE, belonging.encode().as_bytes()).map_err(|error| {
                Refusal::Fix(format!("cannot write {}: {error}", dir.join(FILE).display()))
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ID: ControlPlaneId = ControlPlaneId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    const BEGUN: Belonging = Belonging { control_plane: ID, formed: true, settled: false };

    #[test]
    fn the_file_is_read_back_and_its_golden_bytes_stay() {
        let text = "malachi cluster 1\nid 0123456789abcdef0123456789abcdef\nformed begun\ncrc 4b856146\n";
        assert_eq!(BEGUN.encode(), text);
        for (formed, settled) in [(true, true), (true, false), (false, true), (false, false)] {
            let belonging = Belonging { control_plane: ID, formed, settled };
            assert_eq!(Belonging::decode(&belonging.encode()), Some(belonging));
        }
        for at in 0..text.len() {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] ^= 1;
            assert_eq!(Belonging::decode(&String::from_utf8_lossy(&bytes)), None, "byte {at}");
            assert_eq!(Belonging::decode(&text[..at]), None);
        }
    }

    #[test]
    fn two_directories_say_the_same_or_nothing_is_started() {
        let (log, raft) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (log, raft) = (log.path(), raft.path());
        let code = |refusal: Refusal| (refusal.code(), refusal.to_string());
        assert_eq!(judge(log, raft, false), Ok(None));
        record(log, raft, BEGUN).unwrap();
        assert_eq!(judge(log, raft, false), Ok(Some(BEGUN)));
        // A start that ended between the two goes on, and either is enough.
        for dir in [log, raft] {
            std::fs::remove_file(dir.join(FILE)).unwrap();
            assert_eq!(judge(log, raft, false), Ok(Some(BEGUN)));
            record(log, raft, BEGUN).unwrap();
        }
        let settled = Belonging { settled: true, ..BEGUN };
        small::replace(log, FILE, settled.encode().as_bytes()).unwrap();
        assert_eq!(judge(log, raft, true), Ok(Some(settled)));
        let (status, line) = code(judge(log, raft, false).unwrap_err());
        assert!(status == 78 && line.contains("lost its Raft log"), "{line}");
        let other = Belonging { control_plane: ControlPlaneId(1), ..BEGUN };
        small::replace(raft, FILE, other.encode().as_bytes()).unwrap();
        let (status, line) = code(judge(log, raft, true).unwrap_err());
        assert!(status == 78 && line.contains("two directories of one node"), "{line}");
        std::fs::write(raft.join(FILE), "malachi cluster 2\n").unwrap();
        let (status, line) = code(judge(log, raft, true).unwrap_err());
        assert!(status == 78 && line.contains("version 2"), "{line}");
        std::fs::write(raft.join(FILE), "malachi cluster 1\nid").unwrap();
        let (status, line) = code(judge(log, raft, true).unwrap_err());
        assert!(status == 78 && line.contains("damaged"), "{line}");
    }
}
