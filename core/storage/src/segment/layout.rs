//! Names of directories and files, both ways.
//!
//! ```text
//! <topic id, 32 hex digits>-r<range>-s<segment>/     one directory for each copy
//!     <base, 20 digits>.log    frames
//!     <base, 20 digits>.idx    sparse index, once sealed
//!     copy.meta                identity and state; copy.meta.tmp while it is replaced
//! ```

use types::{Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId};

use crate::disk::{Name, Path};

/// Name of the file that explains a directory.
pub const META: &str = "copy.meta";
/// Where its replacement is written aside.
pub const META_ASIDE: &str = "copy.meta.tmp";

/// The directory of a segment's copy.
#[must_use]
pub fn dir(segment: SegmentId) -> Name {
    name(&segment.to_string())
}

/// The segment whose directory has this name; `None` for any name [`dir`] does not give.
#[must_use]
pub fn parse_dir(name: &str) -> Option<SegmentId> {
    let (topic, rest) = name.split_once("-r")?;
    let (range, segment) = rest.split_once("-s")?;
    let topic = TopicId(u128::from_str_radix(topic, 16).ok()?);
    let range = RangeId { topic, seq: RangeSeq(range.parse().ok()?) };
    let segment = SegmentId { range, seq: SegmentSeq(segment.parse().ok()?) };
    // One segment has one name: no signs, leading zeros or capitals.
    (segment.to_string() == name).then_some(segment)
}

/// The log file.
#[must_use]
pub fn log(segment: SegmentId, base: Offset) -> Path {
    file(segment, &format!("{:020}.log", base.0))
}

/// Whether a name is one that [`log`] gives.
#[must_use]
pub fn is_log(name: &str) -> bool {
    is_numbered(name, ".log")
}

/// Whether a name is one that [`index`] gives.
#[must_use]
pub fn is_index(name: &str) -> bool {
    is_numbered(name, ".idx")
}

fn is_numbered(name: &str, suffix: &str) -> bool {
    let digits = name.strip_suffix(suffix);
    digits.is_some_and(|digits| digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The index file.
#[must_use]
pub fn index(segment: SegmentId, base: Offset) -> Path {
    file(segment, &format!("{:020}.idx", base.0))
}

/// The file that explains the directory.
#[must_use]
pub fn meta(segment: SegmentId) -> Path {
    file(segment, META)
}

/// Where its replacement is written aside.
#[must_use]
pub fn meta_aside(segment: SegmentId) -> Path {
    file(segment, META_ASIDE)
}

fn file(segment: SegmentId, text: &str) -> Path {
    Path { dir: Some(dir(segment)), name: name(text) }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("hexadecimal, digits, dots, dashes and lower-case letters make a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_are_read_back_and_nothing_else_is() {
        let range = RangeId { topic: TopicId(u128::MAX - 5), seq: RangeSeq(u64::MAX) };
        let segment = SegmentId { range, seq: SegmentSeq(7) };
        assert_eq!(parse_dir(dir(segment).as_str()), Some(segment));
        let good = dir(segment).as_str().to_owned();
        for bad in [
            "recycle".to_owned(),
            good.to_uppercase(),
            good.replace("-s7", "-s07"),
            good.replace("-s7", "-s+7"),
            good.replace("-s7", ""),
            format!("{good}.bak"),
            good[1..].to_owned(),
        ] {
            assert_eq!(parse_dir(&bad), None, "{bad}");
        }
    }
}
