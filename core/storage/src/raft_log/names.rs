//! The names of the log's files.
//!
//! ```text
//! <sequence, 20 digits>-<salt, 8 hex digits>.wal      a log file
//! <group, 20 digits>-<index, 20 digits>.snap          a snapshot
//! <group, 20 digits>-<index, 20 digits>.snap.tmp      a snapshot being written; worth nothing
//! ```

use types::{RaftIndex, VnodeId};

use crate::disk::{Name, Path};
use crate::format::raft_log::Stamp;

/// What a name in the directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Log(Stamp),
    Snapshot(VnodeId, RaftIndex),
    Unfinished(VnodeId, RaftIndex),
    Foreign,
}

pub(super) fn log_file(stamp: Stamp) -> Path {
    path(&format!("{:020}-{:08x}.wal", stamp.sequence, stamp.salt))
}

pub(super) fn snapshot(group: VnodeId, index: RaftIndex) -> Path {
    path(&format!("{:020}-{:020}.snap", group.0, index.0))
}

pub(super) fn unfinished(group: VnodeId, index: RaftIndex) -> Path {
    path(&format!("{:020}-{:020}.snap.tmp", group.0, index.0))
}

fn path(name: &str) -> Path {
    Path { dir: None, name: Name::new(name).expect("digits, a dash and a dot are allowed") }
}

/// Reads a name; anything that is not exactly a name of ours is foreign.
pub(super) fn parse(name: &str) -> Found {
    let parsed = if let Some(stem) = name.strip_suffix(".wal") {
        parse_log(stem)
    } else if let Some(stem) = name.strip_suffix(".snap") {
        parse_snapshot(stem).map(|(group, index)| Found::Snapshot(group, index))
    } else if let Some(stem) = name.strip_suffix(".snap.tmp") {
        parse_snapshot(stem).map(|(group, index)| Found::Unfinished(group, index))
    } else {
        None
    };
    parsed.unwrap_or(Found::Foreign)
}

fn parse_log(stem: &str) -> Option<Found> {
    let (sequence, salt) = stem.split_once('-')?;
    let hex = salt.len() == 8 && salt.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let salt = u32::from_str_radix(salt, 16).ok().filter(|_| hex)?;
    Some(Found::Log(Stamp { sequence: number(sequence)?, salt }))
}

fn parse_snapshot(stem: &str) -> Option<(VnodeId, RaftIndex)> {
    let (group, index) = stem.split_once('-')?;
    Some((VnodeId(number(group)?), RaftIndex(number(index)?)))
}

fn number(digits: &str) -> Option<u64> {
    let plain = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_others_are_foreign() {
        let stamp = Stamp { sequence: 12, salt: 0xab };
        assert_eq!(parse(log_file(stamp).name.as_str()), Found::Log(stamp));
        let (group, index) = (VnodeId(3), RaftIndex(u64::MAX));
        assert_eq!(parse(snapshot(group, index).name.as_str()), Found::Snapshot(group, index));
        assert_eq!(parse(unfinished(group, index).name.as_str()), Found::Unfinished(group, index));
        for foreign in [
            "lock",
            "1-000000ab.wal",
            "00000000000000000012-000000AB.wal",
            "00000000000000000012-+00000ab.wal",
            "99999999999999999999-000000ab.wal",
            "+0000000000000000012-000000ab.wal",
            "00000000000000000012.snap",
            "00000000000000000012-000000ab.wal.tmp",
        ] {
            assert_eq!(parse(foreign), Found::Foreign, "{foreign}");
        }
    }
}
