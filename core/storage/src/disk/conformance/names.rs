//! Names: made, found, renamed, removed, listed and synced.

use super::super::{Disk, Entry, ErrorKind, Step};
use super::{Lab, below, name, top, write};

/// `Create` and `CreateDir` make names, and never take one that exists.
pub fn creating_takes_only_free_names<D: Disk>(lab: &mut Lab<D>) {
    lab.done(vec![Step::CreateDir(name("d"))]);
    lab.create(&top("f"), b"kept");
    lab.create(&below("d", "f"), b"");
    let create = |lab: &mut Lab<D>, path| vec![Step::Create { file: lab.file(), path }];
    for (path, kind) in [
        (top("f"), ErrorKind::Exists),
        (top("d"), ErrorKind::Exists),
        (below("d", "f"), ErrorKind::Exists),
        (below("missing", "f"), ErrorKind::NotFound),
        (below("f", "f"), ErrorKind::Other),
    ] {
        let steps = create(lab, path);
        lab.fails(kind, 0, steps);
    }
    lab.fails(ErrorKind::Exists, 0, vec![Step::CreateDir(name("d"))]);
    lab.fails(ErrorKind::Exists, 0, vec![Step::CreateDir(name("f"))]);
    assert_eq!(lab.read_all(&top("f"))[..], *b"kept");
}

/// `Open` finds files, and only files.
pub fn opening_takes_only_files<D: Disk>(lab: &mut Lab<D>) {
    lab.done(vec![Step::CreateDir(name("d"))]);
    lab.create(&top("f"), b"12345");
    assert_eq!(lab.open(&top("f")).1, 5);
    let open = |lab: &mut Lab<D>, path| vec![Step::Open { file: lab.file(), path }];
    for (path, kind) in [
        (top("missing"), ErrorKind::NotFound),
        (below("d", "f"), ErrorKind::NotFound),
        (below("missing", "f"), ErrorKind::NotFound),
        (below("f", "f"), ErrorKind::Other),
        (top("d"), ErrorKind::Other),
    ] {
        let steps = open(lab, path);
        lab.fails(kind, 0, steps);
    }
}

/// `RemoveDir` removes empty directories only.
pub fn directories_go_when_empty<D: Disk>(lab: &mut Lab<D>) {
    lab.done(vec![Step::CreateDir(name("d"))]);
    lab.create(&below("d", "f"), b"");
    lab.create(&top("f"), b"");
    lab.fails(ErrorKind::NotEmpty, 0, vec![Step::RemoveDir(name("d"))]);
    lab.fails(ErrorKind::NotFound, 0, vec![Step::RemoveDir(name("missing"))]);
    lab.fails(ErrorKind::Other, 0, vec![Step::RemoveDir(name("f"))]);
    lab.done(vec![Step::Remove(below("d", "f")), Step::RemoveDir(name("d")), Step::SyncDir(None)]);
    assert_eq!(lab.names(&None), ["f"]);
    lab.done(vec![Step::CreateDir(name("d"))]);
    assert_eq!(lab.names(&Some(name("d"))), [""; 0]);
}

/// `Remove` removes files only.
pub fn removing_takes_only_files<D: Disk>(lab: &mut Lab<D>) {
    lab.done(vec![Step::CreateDir(name("d"))]);
    lab.create(&top("f"), b"");
    lab.fails(ErrorKind::NotFound, 0, vec![Step::Remove(top("missing"))]);
    lab.fails(ErrorKind::NotFound, 0, vec![Step::Remove(below("missing", "f"))]);
    lab.fails(ErrorKind::Other, 0, vec![Step::Remove(top("d"))]);
    lab.done(vec![Step::Remove(top("f"))]);
    lab.fails(ErrorKind::NotFound, 0, vec![Step::Remove(top("f"))]);
    assert_eq!(lab.names(&None), ["d"]);
}

/// `Rename` puts a file in another's place; ids opened before stay with the bytes they had.
pub fn renaming_replaces_and_keeps_ids<D: Disk>(lab: &mut Lab<D>) {
    let old = lab.create(&top("meta"), b"old");
    let new = lab.create(&top("meta.new"), b"new");
    lab.done(vec![
        Step::Sync(new),
        Step::Rename { from: top("meta.new"), to: top("meta") },
        Step::SyncDir(None),
    ]);
    assert_eq!(lab.names(&None), ["meta"]);
    lab.done(vec![write(new, 3, b"er"), Step::Sync(new)]);
    assert_eq!(lab.read_all(&top("meta"))[..], *b"newer");
    assert_eq!(lab.read(new, 0, 9)[..], *b"newer");
    assert_eq!(lab.read(old, 0, 9)[..], *b"old", "the file replaced stays under the id that holds it");
    lab.done(vec![Step::Rename { from: top("meta"), to: top("meta") }]);
    assert_eq!(lab.read_all(&top("meta"))[..], *b"newer", "a file renamed to itself stays");
}

/// Files move between the data directory and one below it.
pub fn renaming_between_directories<D: Disk>(lab: &mut Lab<D>) {
    lab.done(vec![Step::CreateDir(name("d")), Step::CreateDir(name("e"))]);
    let file = lab.create(&top("f"), b"moved");
    lab.create(&below("e", "g"), b"replaced");
    lab.done(vec![Step::Rename { from: top("f"), to: below("d", "f") }]);
    lab.done(vec![Step::Rename { from: below("d", "f"), to: below("e", "g") }]);
    lab.done(vec![Step::SyncDir(None), Step::SyncDir(Some(name("d"))), Step::SyncDir(Some(name("e")))]);
    assert_eq!(lab.names(&None), ["d", "e"]);
    assert_eq!(lab.names(&Some(name("d"))), [""; 0]);
    assert_eq!(lab.read_all(&below("e", "g"))[..], *b"moved");
    assert_eq!(lab.read(file, 0, 9)[..], *b"moved");
}

/// `Rename` needs a file and a place.
pub fn renaming_what_is_not_there<D: Disk>(lab: &mut Lab<D>) {
    lab.done(vec![Step::CreateDir(name("d"))]);
    lab.create(&top("f"), b"kept");
    for (from, to, kind) in [
        (top("missing"), top("f"), ErrorKind::NotFound),
        (below("missing", "f"), top("f"), ErrorKind::NotFound),
        (top("f"), below("missing", "f"), ErrorKind::NotFound),
        (top("f"), top("d"), ErrorKind::Other),
        (top("f"), below("f", "f"), ErrorKind::Other),
    ] {
        lab.fails(kind, 0, vec![Step::Rename { from, to }]);
    }
    assert_eq!(lab.read_all(&top("f"))[..], *b"kept");
    assert_eq!(lab.names(&None), ["d", "f"]);
}

/// `List` gives every name once, with its kind.
pub fn listing_shows_names_and_kinds<D: Disk>(lab: &mut Lab<D>) {
    let long = "x".repeat(255);
    lab.done(vec![Step::CreateDir(name("dir")), Step::CreateDir(name("other"))]);
    for path in [top("file"), below("dir", "a.b-c"), below("dir", &long), below("dir", "0")] {
        lab.create(&path, b"");
    }
    let entry = |name: &str, is_dir| Entry { name: name.to_owned(), is_dir };
    assert_eq!(lab.list(&None), [entry("dir", true), entry("file", false), entry("other", true)]);
    let dir = [entry("0", false), entry("a.b-c", false), entry(&long, false)];
    assert_eq!(lab.list(&Some(name("dir"))), dir);
    assert_eq!(lab.list(&Some(name("other"))), []);
    lab.fails(ErrorKind::NotFound, 0, vec![Step::List(Some(name("missing")))]);
    lab.fails(ErrorKind::Other, 0, vec![Step::List(Some(name("file")))]);
}

/// `SyncDir` needs a directory, also one that was removed and made again.
pub fn syncing_directories<D: Disk>(lab: &mut Lab<D>) {
    let dir = || Some(name("d"));
    lab.done(vec![Step::CreateDir(name("d")), Step::SyncDir(dir()), Step::SyncDir(None)]);
    lab.create(&below("d", "f"), b"");
    lab.done(vec![Step::SyncDir(dir())]);
    lab.done(vec![Step::Remove(below("d", "f")), Step::RemoveDir(name("d"))]);
    lab.fails(ErrorKind::NotFound, 1, vec![Step::SyncDir(None), Step::SyncDir(dir())]);
    lab.create(&top("d"), b"");
    lab.fails(ErrorKind::Other, 0, vec![Step::SyncDir(dir())]);
    lab.done(vec![
        Step::Remove(top("d")),
        Step::CreateDir(name("d")),
        Step::SyncDir(dir()),
        Step::SyncDir(None),
    ]);
}

/// A process that starts again finds every synced name and byte, under ids it may choose anew.
pub fn reopening_finds_what_was_synced<D: Disk>(lab: &mut Lab<D>) {
    lab.done(vec![Step::CreateDir(name("d")), Step::SyncDir(None)]);
    let file = lab.create(&below("d", "log"), b"synced");
    let other = lab.create(&below("d", "meta.new"), b"small");
    lab.done(vec![Step::Sync(file), Step::Sync(other)]);
    lab.done(vec![Step::Rename { from: below("d", "meta.new"), to: below("d", "meta") }]);
    lab.done(vec![Step::SyncDir(Some(name("d")))]);
    lab.reopen();
    lab.fails(ErrorKind::NotOpen, 0, vec![Step::Sync(file)]);
    assert_eq!(lab.names(&Some(name("d"))), ["log", "meta"]);
    assert_eq!(lab.read_all(&below("d", "log"))[..], *b"synced");
    assert_eq!(lab.read_all(&below("d", "meta"))[..], *b"small");
    let (file, _) = lab.open(&below("d", "log"));
    lab.done(vec![write(file, 6, b" twice"), Step::Sync(file)]);
    lab.reopen();
    assert_eq!(lab.read_all(&below("d", "log"))[..], *b"synced twice");
}
