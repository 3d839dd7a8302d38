//! What is written, zeroed, cut and read; open ids, and files that failed.

use bytes::Bytes;

use super::super::{Disk, ErrorKind, FileId, Output, Step};
use super::{Lab, top, write};

/// Reads give what was asked for, less only where the file ends.
pub fn reads_are_short_only_at_the_end<D: Disk>(lab: &mut Lab<D>) {
    let content: Vec<u8> = (0..100_000u32).map(|at| (at % 251).to_le_bytes()[0]).collect();
    let file = lab.create(&top("f"), &content);
    assert_eq!(lab.read(file, 0, 100_000), content[..]);
    assert_eq!(lab.read(file, 4095, 8194), content[4095..4095 + 8194]);
    assert_eq!(lab.read(file, 99_990, 100), content[99_990..]);
    assert_eq!(lab.read(file, 5, 0), b""[..]);
    assert_eq!(lab.read(file, 100_000, 1), b""[..]);
    assert_eq!(lab.read(file, 1 << 40, 10), b""[..]);
    // A length from a damaged header must not become an allocation.
    assert_eq!(lab.read(file, 1, usize::MAX / 4), content[1..]);
}

/// `Write` extends a file, over a gap of zeros if need be, and writes in place inside it.
pub fn writes_extend_and_gaps_are_zero<D: Disk>(lab: &mut Lab<D>) {
    let file = lab.create(&top("f"), b"abc");
    lab.done(vec![write(file, 1, b"X")]);
    assert_eq!(lab.read(file, 0, 99)[..], *b"aXc");
    lab.done(vec![write(file, 2, b"YZ")]);
    assert_eq!(lab.read(file, 0, 99)[..], *b"aXYZ");
    lab.done(vec![write(file, 6, b"end"), Step::Sync(file)]);
    assert_eq!(lab.read_all(&top("f"))[..], *b"aXYZ\0\0end");
}

/// The slices of one write lie back to back, empty ones take no room.
pub fn slices_are_written_back_to_back<D: Disk>(lab: &mut Lab<D>) {
    let file = lab.create(&top("f"), b"");
    let slices = ["one", "", "two", "3", ""].map(|slice| Bytes::from_static(slice.as_bytes())).to_vec();
    let next = vec![Bytes::from_static(b"four")];
    lab.done(vec![
        Step::Write { file, at: 2, data: slices },
        Step::Write { file, at: 9, data: next },
        Step::Write { file, at: 4, data: vec![] },
        Step::Sync(file),
    ]);
    assert_eq!(lab.read(file, 0, 99)[..], *b"\0\0onetwo3four");
}

/// More slices than one system call takes, over several jobs, and more bytes than one call writes at once.
pub fn many_slices_and_many_bytes<D: Disk>(lab: &mut Lab<D>) {
    let file = lab.create(&top("f"), b"");
    let (mut model, mut ids) = (Vec::new(), Vec::new());
    for job in 0..3u8 {
        let at = u64::try_from(model.len()).expect("small");
        let slices: Vec<_> =
            (0..1500u16).map(|slice| Bytes::from(vec![job ^ slice.to_be_bytes()[1]; 5])).collect();
        model.extend_from_slice(&slices.concat());
        ids.push(lab.submit(vec![Step::Write { file, at, data: slices }, Step::Sync(file)]));
    }
    let at = u64::try_from(model.len()).expect("small");
    let large: Vec<u8> = (0..5_000_000u32).map(|at| (at % 241).to_le_bytes()[0]).collect();
    model.extend_from_slice(&large);
    ids.push(lab.submit(vec![Step::Write { file, at, data: vec![large.into()] }, Step::Sync(file)]));
    for result in lab.expect(&ids) {
        assert_eq!(result, Ok(Output::Done));
    }
    assert!(lab.read_all(&top("f")) == model, "the content differs");
}

/// `Zero` writes zeros over content and past the end.
pub fn zeroing_overwrites_and_extends<D: Disk>(lab: &mut Lab<D>) {
    let file = lab.create(&top("f"), &[9; 100]);
    lab.done(vec![Step::Zero { file, at: 10, len: 20 }, Step::Zero { file, at: 90, len: 3_000_000 }]);
    lab.done(vec![Step::Zero { file, at: 5, len: 0 }, Step::Sync(file)]);
    let content = lab.read_all(&top("f"));
    let mut model = vec![9; 90];
    model[10..30].fill(0);
    model.resize(3_000_090, 0);
    assert!(content == model, "the content differs");
}

/// `Truncate` sets the length, and what it grows by is zero even where bytes were before.
pub fn truncating_cuts_and_grows<D: Disk>(lab: &mut Lab<D>) {
    let file = lab.create(&top("f"), b"0123456789");
    lab.done(vec![Step::Truncate { file, len: 4 }]);
    assert_eq!(lab.read(file, 0, 99)[..], *b"0123");
    lab.done(vec![Step::Truncate { file, len: 7 }, Step::Sync(file)]);
    assert_eq!(lab.read_all(&top("f"))[..], *b"0123\0\0\0");
    lab.done(vec![Step::Truncate { file, len: 0 }, write(file, 0, b"x"), Step::Sync(file)]);
    assert_eq!(lab.read_all(&top("f"))[..], *b"x");
}

/// `Close` ends an id, and does nothing to one that is not open.
pub fn closing_never_fails<D: Disk>(lab: &mut Lab<D>) {
    let file = lab.create(&top("f"), b"kept");
    lab.done(vec![Step::Close(FileId(999)), Step::Close(file), Step::Close(file)]);
    lab.fails(ErrorKind::NotOpen, 0, vec![Step::Read { file, at: 0, len: 1 }]);
    lab.fails(ErrorKind::NotOpen, 0, vec![write(file, 0, b"x")]);
    assert_eq!(lab.read_all(&top("f"))[..], *b"kept");
}

/// Every step on a file needs it open, and the error says which step that was.
pub fn what_is_not_open_fails<D: Disk>(lab: &mut Lab<D>) {
    let (file, good) = (FileId(999), lab.create(&top("f"), b""));
    for step in [
        write(file, 0, b"x"),
        Step::Zero { file, at: 0, len: 1 },
        Step::Sync(file),
        Step::Truncate { file, len: 1 },
        Step::Read { file, at: 0, len: 1 },
    ] {
        lab.fails(ErrorKind::NotOpen, 0, vec![step.clone()]);
        lab.fails(ErrorKind::NotOpen, 2, vec![write(good, 0, b"a"), Step::Sync(good), step.clone()]);
        lab.fails(ErrorKind::NotOpen, 1, vec![Step::List(None), step]);
    }
    assert_eq!(lab.read(good, 0, 9)[..], *b"a");
}

/// No disk has a place there, so these fail everywhere, without any injected fault.
fn impossible(file: FileId) -> [Step; 4] {
    let last = u64::MAX - 8;
    [
        write(file, last, b"far"),
        Step::Zero { file, at: last, len: 3 },
        Step::Truncate { file, len: last },
        Step::Write { file, at: u64::MAX, data: vec![Bytes::from_static(b"past the end of numbers")] },
    ]
}

/// After one failure a file takes only reads and its closing; opened anew, it works.
pub fn a_failed_file_takes_nothing_more<D: Disk>(lab: &mut Lab<D>) {
    for at in 0..impossible(FileId(0)).len() {
        let path = top(&format!("f{at}"));
        let file = lab.create(&path, b"content");
        lab.done(vec![Step::Sync(file)]);
        lab.fails(
            ErrorKind::Other,
            1,
            vec![write(file, 0, b"C"), impossible(file)[at].clone(), write(file, 1, b"x")],
        );
        for step in [
            write(file, 0, b"x"),
            Step::Zero { file, at: 0, len: 1 },
            Step::Truncate { file, len: 1 },
            Step::Sync(file),
        ] {
            lab.fails(ErrorKind::Poisoned, 0, vec![step.clone()]);
            lab.fails(ErrorKind::Poisoned, 0, vec![step, Step::Sync(file)]);
        }
        assert_eq!(lab.read(file, 1, 99)[..], *b"ontent");
        lab.done(vec![Step::Close(file)]);
        lab.fails(ErrorKind::NotOpen, 0, vec![Step::Sync(file)]);
        let (file, length) = lab.open(&path);
        assert_eq!(length, 7);
        lab.done(vec![write(file, 0, b"again!!"), Step::Sync(file)]);
        assert_eq!(lab.read_all(&path)[..], *b"again!!");
    }
}

/// Where several jobs share a sync, those before the failure hold, those on that file after it do not, and
/// other files are not concerned.
pub fn a_failed_file_in_shared_syncs<D: Disk>(lab: &mut Lab<D>) {
    for at in 0..2 {
        let bad = lab.create(&top(&format!("bad{at}")), b"");
        let good = lab.create(&top(&format!("good{at}")), b"");
        let ids = [
            lab.submit(vec![write(bad, 0, b"a"), Step::Sync(bad)]),
            lab.submit(vec![write(good, 0, b"b"), Step::Sync(good)]),
            lab.submit(vec![write(good, 1, b"c"), impossible(bad)[at].clone(), Step::Sync(good)]),
            lab.submit(vec![write(good, 2, b"d"), Step::Sync(good), Step::Sync(bad)]),
            lab.submit(vec![write(bad, 1, b"e"), Step::Sync(bad)]),
            lab.submit(vec![Step::Sync(bad)]),
            lab.submit(vec![write(good, 3, b"f"), Step::Sync(good)]),
        ];
        let results =
            lab.expect(&ids).into_iter().map(|result| result.map_err(|error| (error.kind, error.step)));
        let done = Ok(Output::Done);
        let expected = [
            done.clone(),
            done.clone(),
            Err((ErrorKind::Other, 1)),
            Err((ErrorKind::Poisoned, 2)),
            Err((ErrorKind::Poisoned, 0)),
            Err((ErrorKind::Poisoned, 0)),
            done,
        ];
        assert_eq!(results.collect::<Vec<_>>(), expected);
        assert_eq!(lab.read(bad, 0, 9)[..], *b"a");
        assert_eq!(lab.read(good, 0, 9)[..], *b"bcdf");
    }
}
