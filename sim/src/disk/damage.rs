//! What happens to bytes and names at rest, behind the back of whoever owns them: rot, cut files, lost
//! directories, foreign names, a new empty disk.
//!
//! Takes effect on the platter and in the cache at once, and is durable.

use rand::Rng;
use storage::disk::Path;

use super::SimDisk;
use super::names::Side;

/// One flipped bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flip {
    /// `name` or `dir/name`.
    pub path: String,
    /// Which byte of the file.
    pub at: u64,
    /// Which bit of the byte, 0 is the lowest.
    pub bit: u8,
}

impl SimDisk {
    /// Flips one bit on the platter; false when the file has no such byte there.
    ///
    /// Bytes in the cache that no sync has covered yet are newer than the platter and keep their value.
    pub fn flip_bit(&mut self, path: &Path, at: u64, bit: u8) -> bool {
        self.corrupt(&path.to_string(), at, &[1 << (bit % 8)])
    }

    /// Flips one random bit in the durable part of a random file among those wanted.
    pub fn flip_random_durable(&mut self, wanted: impl Fn(&str) -> bool) -> Option<Flip> {
        let machine = &self.machine;
        let files: Vec<_> = self
            .list(Side::Platter)
            .into_keys()
            .filter(|path| wanted(path))
            .filter_map(|path| Some((machine.names.find(&path, Side::Platter)?, path)))
            .map(|(no, path)| (path, machine.files.get(&no).map_or(0, |file| file.platter().len())))
            .filter(|(_, len)| *len > 0)
            .collect();
        if files.is_empty() {
            return None;
        }
        let rng = &mut self.machine.rng;
        let (path, len) = files[rng.random_range(0..files.len())].clone();
        let at = u64::try_from(rng.random_range(0..len)).expect("a length fits");
        let flip = Flip { path, at, bit: rng.random_range(0..8) };
        self.corrupt(&flip.path, at, &[1 << flip.bit]).then_some(flip)
    }

    /// Flips bits by mask from `at` on; false when nothing was there.
    pub fn corrupt(&mut self, path: &str, at: u64, mask: &[u8]) -> bool {
        let no = self.machine.names.find(path, Side::Platter);
        no.and_then(|no| self.machine.files.get_mut(&no)).is_some_and(|file| file.corrupt(at, mask))
    }

    /// Replaces the content of a file, or makes the file; false when its directory is missing.
    ///
    /// Any spelling is allowed, so that names no layout uses can be planted too.
    pub fn plant_file(&mut self, path: &str, content: Vec<u8>) -> bool {
        let no = self.machine.names.find(path, Side::View);
        let Some(no) = no.or_else(|| self.machine.names.plant(path, false)) else { return false };
        let file = self.machine.files.entry(no).or_default();
        file.replace(content);
        true
    }

    /// Makes an empty directory of any spelling.
    pub fn plant_dir(&mut self, name: &str) {
        self.machine.names.plant(name, true);
    }

    /// Cuts a file; false when there is none.
    pub fn cut_file(&mut self, path: &str, len: usize) -> bool {
        let Some(bytes) = self.bytes(path, Side::View) else { return false };
        let content = bytes[..len.min(bytes.len())].to_vec();
        self.plant_file(path, content)
    }

    /// Removes a name and everything below it.
    pub fn uproot(&mut self, path: &str) {
        self.machine.names.uproot(path);
        self.machine.sweep();
    }

    /// An empty disk takes the place of this one; nothing is open on it.
    pub fn wipe(&mut self) {
        self.kill();
        for path in self.list(Side::View).into_keys().chain(self.list(Side::Platter).into_keys()) {
            self.machine.names.uproot(&path);
        }
        self.machine.sweep();
        self.note("wiped");
    }
}
