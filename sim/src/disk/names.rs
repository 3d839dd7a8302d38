//! The names: what directories show against what the platter holds of them.
//!
//! Owns directories and the changes to them since their last sync; files are only numbers here. A rename
//! inside one directory is one change; between two directories it is one change of each, so that a power
//! loss can leave both names, or none when only the old directory was synced.
//!
//! Invariant: a directory's `platter` with `pending` applied in order is its `view`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::Rng;
use storage::disk::{Dir, Entry, ErrorKind, Name, Path};

use super::faults::NameLoss;

/// A file, by the number it keeps through renames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileNo(pub(crate) u64);

/// A directory, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DirNo(pub(crate) u64);

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    File(FileNo),
    Dir(DirNo),
}

type Table = BTreeMap<Arc<str>, Node>;

/// Names set or unset together.
type Change = Vec<(Arc<str>, Option<Node>)>;

#[derive(Clone, Debug, Default)]
struct Directory {
    view: Table,
    platter: Table,
    pending: Vec<Change>,
    poisoned: bool,
}

impl Directory {
    fn change(&mut self, change: Change) {
        set(&mut self.view, &change);
        self.pending.push(change);
    }

    fn lose(&mut self, mode: NameLoss, rng: &mut impl Rng) {
        if self.pending.is_empty() {
            return;
        }
        let kept_end = rng.random_range(0..=self.pending.len());
        for (at, change) in std::mem::take(&mut self.pending).iter().enumerate() {
            let kept = match mode {
                NameLoss::Independent => rng.random_bool(0.5),
                NameLoss::Prefix => at < kept_end,
            };
            if kept {
                set(&mut self.platter, change);
            }
        }
        self.view.clone_from(&self.platter);
    }
}

fn set(table: &mut Table, change: &Change) {
    for (name, node) in change {
        match node {
            Some(node) => table.insert(name.clone(), *node),
            None => table.remove(name),
        };
    }
}

/// Which of the two states of the disk is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What the process sees.
    View,
    /// What a power loss that lost every unsynced change would leave.
    Platter,
}

const ROOT: DirNo = DirNo(0);

/// All directories.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    directories: BTreeMap<DirNo, Directory>,
    next_no: u64,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self { directories: BTreeMap::from([(ROOT, Directory::default())]), next_no: 1 }
    }

    fn dir_no(&self, dir: &Dir) -> Result<DirNo, ErrorKind> {
        let Some(name) = dir else { return Ok(ROOT) };
        match self.get(ROOT).view.get(name.as_str()) {
            Some(Node::Dir(no)) => Ok(*no),
            Some(Node::File(_)) => Err(ErrorKind::Other),
            None => Err(ErrorKind::NotFound),
        }
    }

    fn get(&self, no: DirNo) -> &Directory {
        self.directories.get(&no).expect("directories are dropped only once no name leads to them")
    }

    fn get_mut(&mut self, no: DirNo) -> &mut Directory {
        self.directories.get_mut(&no).expect("directories are dropped only once no name leads to them")
    }

    fn next(&mut self) -> u64 {
        self.next_no += 1;
        self.next_no - 1
    }

    /// The file a path names.
    pub(crate) fn file(&self, path: &Path) -> Result<FileNo, ErrorKind> {
        let dir = self.dir_no(&path.dir)?;
        match self.get(dir).view.get(path.name.as_str()) {
            Some(Node::File(no)) => Ok(*no),
            Some(Node::Dir(_)) => Err(ErrorKind::Other),
            None => Err(ErrorKind::NotFound),
        }
    }

    /// Names a new file.
    pub(crate) fn create(&mut self, path: &Path) -> Result<FileNo, ErrorKind> {
        let dir = self.dir_no(&path.dir)?;
        if self.get(dir).view.contains_key(path.name.as_str()) {
            return Err(ErrorKind::Exists);
        }
        let no = FileNo(self.next());
        self.get_mut(dir).change(vec![(path.name.as_str().into(), Some(Node::File(no)))]);
        Ok(no)
    }

    pub(crate) fn create_dir(&mut self, name: &Name) -> Result<(), ErrorKind> {
        if self.get(ROOT).view.contains_key(name.as_str()) {
            return Err(ErrorKind::Exists);
        }
        let no = DirNo(self.next());
        self.directories.insert(no, Directory::default());
        self.get_mut(ROOT).change(vec![(name.as_str().into(), Some(Node::Dir(no)))]);
        Ok(())
    }

    pub(crate) fn remove_dir(&mut self, name: &Name) -> Result<(), ErrorKind> {
        let no = self.dir_no(&Some(name.clone()))?;
        if !self.get(no).view.is_empty() {
            return Err(ErrorKind::NotEmpty);
        }
        self.get_mut(ROOT).change(vec![(name.as_str().into(), None)]);
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), ErrorKind> {
        let file = self.file(from)?;
        let (from_dir, to_dir) = (self.dir_no(&from.dir)?, self.dir_no(&to.dir)?);
        match self.get(to_dir).view.get(to.name.as_str()) {
            Some(Node::Dir(_)) => return Err(ErrorKind::Other),
            // Two names of one file: nothing happens, as POSIX has it.
            Some(Node::File(there)) if *there == file => return Ok(()),
            Some(Node::File(_)) | None => {}
        }
        let unset = (Arc::from(from.name.as_str()), None);
        let set = (Arc::from(to.name.as_str()), Some(Node::File(file)));
        if from_dir == to_dir {
            self.get_mut(from_dir).change(vec![unset, set]);
        } else {
            self.get_mut(to_dir).change(vec![set]);
            self.get_mut(from_dir).change(vec![unset]);
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, path: &Path) -> Result<(), ErrorKind> {
        self.file(path)?;
        let dir = self.dir_no(&path.dir)?;
        self.get_mut(dir).change(vec![(path.name.as_str().into(), None)]);
        Ok(())
    }

    pub(crate) fn list(&self, dir: &Dir) -> Result<Vec<Entry>, ErrorKind> {
        let view = &self.get(self.dir_no(dir)?).view;
        let entry = |(name, node): (&Arc<str>, &Node)| Entry {
            name: name.to_string(),
            is_dir: matches!(node, Node::Dir(_)),
        };
        Ok(view.iter().map(entry).collect())
    }

    /// Whether syncs of a directory still mean anything.
    pub(crate) fn check_sync(&self, dir: &Dir) -> Result<(), ErrorKind> {
        if self.get(self.dir_no(dir)?).poisoned { Err(ErrorKind::Poisoned) } else { Ok(()) }
    }

    /// Makes every name in a directory durable.
    pub(crate) fn sync(&mut self, dir: &Dir) -> Result<(), ErrorKind> {
        let no = self.dir_no(dir)?;
        let directory = self.get_mut(no);
        for change in std::mem::take(&mut directory.pending) {
            set(&mut directory.platter, &change);
        }
        Ok(())
    }

    /// A sync that reports failure: the directory takes no more syncs until the process starts again.
    pub(crate) fn sync_failing(&mut self, dir: &Dir) {
        if let Ok(no) = self.dir_no(dir) {
            self.get_mut(no).poisoned = true;
        }
    }

    /// The process is gone: what it knew of failures too.
    pub(crate) fn forget(&mut self) {
        self.directories.values_mut().for_each(|directory| directory.poisoned = false);
    }

    /// The power goes: each unsynced change is kept or lost.
    pub(crate) fn lose_power(&mut self, mode: NameLoss, rng: &mut impl Rng) {
        self.forget();
        self.directories.values_mut().for_each(|directory| directory.lose(mode, rng));
    }

    /// Drops directories that no name can lead to any more, and gives the files that one can.
    pub(crate) fn sweep(&mut self) -> BTreeSet<FileNo> {
        let (mut dirs, mut files, mut todo) = (BTreeSet::from([ROOT]), BTreeSet::new(), vec![ROOT]);
        while let Some(no) = todo.pop() {
            let directory = self.get(no);
            let pending = directory.pending.iter().flatten().filter_map(|(_, node)| node.as_ref());
            for node in directory.view.values().chain(directory.platter.values()).chain(pending) {
                match node {
                    Node::File(file) => _ = files.insert(*file),
                    Node::Dir(dir) => {
                        if dirs.insert(*dir) {
                            todo.push(*dir);
                        }
                    }
                }
            }
        }
        self.directories.retain(|no, _| dirs.contains(no));
        files
    }

    pub(crate) fn directory_count(&self) -> usize {
        self.directories.len()
    }

    /// Every name below the data directory, `dir/name` for those one level down, in order.
    pub(crate) fn walk(&self, side: Side) -> Vec<(String, Node)> {
        let mut found = Vec::new();
        for (name, node) in self.table(ROOT, side) {
            found.push((name.to_string(), *node));
            if let Node::Dir(no) = node {
                let below = self.table(*no, side).iter();
                found.extend(below.map(|(below, node)| (format!("{name}/{below}"), *node)));
            }
        }
        found
    }

    /// The file a name of one side stands for.
    pub(crate) fn find(&self, path: &str, side: Side) -> Option<FileNo> {
        let (dir, name) = path.split_once('/').map_or((None, path), |(dir, name)| (Some(dir), name));
        let dir = match dir.map(|dir| self.table(ROOT, side).get(dir)) {
            None => ROOT,
            Some(Some(Node::Dir(no))) => *no,
            Some(Some(Node::File(_)) | None) => return None,
        };
        match self.table(dir, side).get(name)? {
            Node::File(no) => Some(*no),
            Node::Dir(_) => None,
        }
    }

    fn table(&self, no: DirNo, side: Side) -> &Table {
        match side {
            Side::View => &self.get(no).view,
            Side::Platter => &self.get(no).platter,
        }
    }

    /// Puts a name on the disk behind everybody's back, durable at once; any spelling is allowed.
    pub(crate) fn plant(&mut self, path: &str, is_dir: bool) -> Option<FileNo> {
        let (dir, name) = path.split_once('/').map_or((None, path), |(dir, name)| (Some(dir), name));
        let dir = match dir {
            None => ROOT,
            Some(dir) => match self.table(ROOT, Side::View).get(dir) {
                Some(Node::Dir(no)) => *no,
                Some(Node::File(_)) | None => return None,
            },
        };
        let no = self.next();
        let node = if is_dir { Node::Dir(DirNo(no)) } else { Node::File(FileNo(no)) };
        if is_dir {
            self.directories.insert(DirNo(no), Directory::default());
        }
        self.force(dir, name, Some(node));
        (!is_dir).then_some(FileNo(no))
    }

    /// Takes a name off the disk, durably, with all below it.
    pub(crate) fn uproot(&mut self, path: &str) {
        let (dir, name) = path.split_once('/').map_or((None, path), |(dir, name)| (Some(dir), name));
        let dir = match dir.map(|dir| self.table(ROOT, Side::View).get(dir)) {
            None => ROOT,
            Some(Some(Node::Dir(no))) => *no,
            Some(Some(Node::File(_)) | None) => return,
        };
        self.force(dir, name, None);
    }

    fn force(&mut self, dir: DirNo, name: &str, node: Option<Node>) {
        let directory = self.get_mut(dir);
        let change = vec![(Arc::from(name), node)];
        directory.pending.iter_mut().for_each(|change| change.retain(|(changed, _)| &**changed != name));
        set(&mut directory.view, &change);
        set(&mut directory.platter, &change);
    }
}
