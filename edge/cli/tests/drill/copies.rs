//! The copies on the disks of a cluster: read as they lie there, compared with each other, and damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use storage::format::batch::{HEADER_BYTES, Header, SHARED_BYTES};
use storage::format::meta::Meta;
use types::{Offset, RangeId};

use super::Random;

/// One copy, as far as its bytes are valid.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) meta: Meta,
    /// What is equal on every copy: frames without what each copy has of its own.
    shared: Vec<u8>,
    /// Offset behind the last valid frame.
    end: Offset,
    /// Bytes of valid frames.
    position: u64,
    file_bytes: u64,
}

impl Copy {
    /// Reads a copy's directory.
    pub(crate) fn read(dir: &Path) -> Result<Self, String> {
        let why = |what: &str| format!("{}: {what}", dir.display());
        let meta = meta(dir).ok_or_else(|| why("no copy.meta that decodes"))?;
        let log = std::fs::read(log_of(dir).ok_or_else(|| why("no log"))?)
            .map_err(|error| why(&error.to_string()))?;
        let mut copy =
            Self { meta, shared: Vec::new(), end: meta.base, position: 0, file_bytes: log.len() as u64 };
        let (identity, mut rest) = (meta.identity(), &log[..]);
        while let Some((header, _)) =
            rest.first_chunk::<HEADER_BYTES>().and_then(|bytes| Header::decode(bytes, identity).ok())
        {
            let Some(payload) = rest.get(HEADER_BYTES..HEADER_BYTES + header.payload_len as usize) else {
                break;
            };
            if identity.seed.crc(payload) != header.payload_crc || header.base_offset != copy.end {
                break;
            }
            copy.shared.extend_from_slice(&rest[..SHARED_BYTES]);
            copy.shared.extend_from_slice(payload);
            copy.end = header.end_offset();
            copy.position += header.frame_len();
            rest = &rest[HEADER_BYTES + payload.len()..];
        }
        Ok(copy)
    }

    /// What keeps it from being whole.
    fn problem(&self) -> Option<String> {
        let Meta { sealed_at, latched, rebuilding, durable_position, durable_end, .. } = self.meta;
        if latched.is_some() || rebuilding {
            return Some(format!("latched: {latched:?}, rebuilding: {rebuilding}"));
        }
        sealed_at?;
        let is_exact = self.position == durable_position
            && self.end == durable_end
            && self.file_bytes == durable_position;
        (!is_exact).then(|| {
            format!(
                "valid up to {} at {} of {} bytes, sealed at {durable_end} at {durable_position}",
                self.end, self.position, self.file_bytes
            )
        })
    }
}

/// What a look at all copies found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) segments: usize,
    pub(crate) sealed: usize,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// The names of the copies in a log directory. What a creation that failed has left is none: it holds nothing, and goes
/// with the next start.
pub(crate) fn names(log_dir: &Path) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(log_dir) else { return BTreeSet::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let has_bytes = |dir: &Path| {
        log_of(dir).and_then(|log| std::fs::metadata(log).ok()).is_some_and(|file| file.len() > 0)
    };
    let is_copy = |dir: PathBuf| dir.join("copy.meta").exists() || has_bytes(&dir);
    names.filter(|name| name.contains("-r") && name.contains("-s") && is_copy(log_dir.join(name))).collect()
}

/// Those that were sealed.
pub(crate) fn sealed(log_dir: &Path) -> BTreeSet<String> {
    let is_sealed = |name: &String| meta(&log_dir.join(name)).is_some_and(|meta| meta.sealed_at.is_some());
    names(log_dir).into_iter().filter(is_sealed).collect()
}

/// Those that take records.
pub(crate) fn active(log_dir: &Path) -> BTreeSet<String> {
    let is_active = |name: &String| meta(&log_dir.join(name)).is_some_and(|meta| meta.sealed_at.is_none());
    names(log_dir).into_iter().filter(is_active).collect()
}

/// Whether a segment has a copy on every node, all of them intact and byte for byte the same, sealed ones of the same
/// length; what it lacks otherwise.
pub(crate) fn same(dirs: &[PathBuf], name: &str) -> Result<Copy, String> {
    let mut first: Option<Copy> = None;
    for dir in dirs {
        let copy = Copy::read(&dir.join(name))?;
        if let Some(problem) = copy.problem() {
            return Err(format!("{}: {problem}", dir.join(name).display()));
        }
        let Some(first) = &first else {
            first = Some(copy);
            continue;
        };
        let ends = [first, &copy].map(|copy| (copy.end, copy.meta.sealed_at.is_some()));
        if ends[0] != ends[1] {
            return Err(format!(
                "{}: one copy ends at {:?}, another at {:?}",
                dir.join(name).display(),
                ends[0],
                ends[1]
            ));
        }
        if first.shared != copy.shared {
            return Err(format!("{}: the bytes of two copies differ", dir.join(name).display()));
        }
    }
    first.ok_or_else(|| "no nodes".to_owned())
}

/// Looks at every copy of every node: all segments are on all nodes and the same, and each range's follow each other.
pub(crate) fn whole(dirs: &[PathBuf]) -> Result<Totals, String> {
    let all: BTreeSet<String> = dirs.iter().flat_map(|dir| names(dir)).collect();
    let mut totals = Totals::default();
    let mut ranges: BTreeMap<RangeId, Vec<(Offset, Offset, bool)>> = BTreeMap::new();
    for name in &all {
        let copy = same(dirs, name)?;
        let is_sealed = copy.meta.sealed_at.is_some();
        totals.segments += 1;
        totals.sealed += usize::from(is_sealed);
        totals.records += copy.end.0 - copy.meta.base.0;
        totals.bytes += copy.position;
        ranges.entry(copy.meta.segment.range).or_default().push((copy.meta.base, copy.end, is_sealed));
    }
    for (range, mut segments) in ranges {
        segments.sort_unstable();
        for pair in segments.windows(2) {
            if pair[0].1 != pair[1].0 {
                return Err(format!("{range}: {:?} is followed by {:?}", pair[0], pair[1]));
            }
            if !pair[0].2 {
                return Err(format!("{range}: {:?} takes records, and so does {:?}", pair[0], pair[1]));
            }
        }
    }
    Ok(totals)
}

fn meta(dir: &Path) -> Option<Meta> {
    let bytes = std::fs::read(dir.join("copy.meta")).ok()?;
    Meta::decode(&Bytes::from(bytes)).ok()
}

fn log_of(dir: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| path.extension().is_some_and(|extension| extension == "log"))
}

/// What is done to a copy's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// The last bytes are gone, and half a frame of garbage lies in their place.
    Torn,
    /// Half of the log is gone.
    Halved,
    /// The whole directory is gone.
    Removed,
    /// One bit of a record is another.
    Rotten,
    /// One bit of a frame's length is another.
    RottenLength,
    /// One bit of what the copy says of itself is another.
    RottenMeta,
    /// The index is garbage.
    RottenIndex,
}

impl Damage {
    pub(crate) const ALL: [Self; 7] = [
        Self::Torn,
        Self::Halved,
        Self::Removed,
        Self::Rotten,
        Self::RottenLength,
        Self::RottenMeta,
        Self::RottenIndex,
    ];

    /// Does it; `false` when the copy has nothing that it could be done to.
    pub(crate) fn inflict(self, dir: &Path, random: &mut Random) -> bool {
        let Some((log, copy)) = log_of(dir).zip(Copy::read(dir).ok()) else { return false };
        let Ok(valid) = usize::try_from(copy.position) else { return false };
        if valid == 0 {
            return false;
        }
        match self {
            Self::Torn => {
                let left = valid.saturating_sub(1 + random.below(3000));
                cut(&log, left as u64);
                let mut file = OpenOptions::new().append(true).open(&log).unwrap();
                // It begins as a frame does.
                let mut garbage = vec![0xd7, 0x4d, 1];
                garbage.extend((0..random.below(400)).map(|_| random.next().to_be_bytes()[0]));
                file.write_all(&garbage).unwrap();
                file.sync_all().unwrap();
            }
            Self::Halved => cut(&log, copy.position / 2),
            Self::Removed => std::fs::remove_dir_all(dir).unwrap(),
            Self::Rotten => {
                let frame = random_frame(&log, &copy, random);
                flip(&log, frame + HEADER_BYTES as u64 + random.below(64) as u64, random);
            }
            Self::RottenLength => {
                let frame = random_frame(&log, &copy, random);
                flip(&log, frame + 4 + random.below(4) as u64, random);
            }
            Self::RottenMeta => {
                flip(&dir.join("copy.meta"), random.below(storage::format::meta::META_BYTES) as u64, random);
            }
            Self::RottenIndex => {
                let index = log.with_extension("idx");
                if !index.exists() {
                    return false;
                }
                let bytes = std::fs::metadata(&index).unwrap().len();
                std::fs::write(&index, vec![0xa5; usize::try_from(bytes).unwrap()]).unwrap();
            }
        }
        true
    }
}

/// Where some frame of a copy begins.
fn random_frame(log: &Path, copy: &Copy, random: &mut Random) -> u64 {
    let bytes = std::fs::read(log).unwrap();
    let mut starts = Vec::new();
    let mut at = 0;
    while at < copy.position {
        starts.push(at);
        let header = bytes[usize::try_from(at).unwrap()..].first_chunk::<HEADER_BYTES>().unwrap();
        at += Header::decode(header, copy.meta.identity()).unwrap().0.frame_len();
    }
    starts[random.below(starts.len())]
}

fn cut(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
    file.sync_all().unwrap();
}

fn flip(path: &Path, at: u64, random: &mut Random) {
    let mut file: File = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(at)).unwrap();
    file.read_exact(&mut byte).unwrap();
    byte[0] ^= 1 << random.below(8);
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&byte).unwrap();
    file.sync_all().unwrap();
}
