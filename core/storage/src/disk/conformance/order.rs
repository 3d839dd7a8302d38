//! The order of jobs, what they give, and what stops them.

use super::super::{Completion, Disk, ErrorKind, FileId, Output, Step};
use super::{Lab, data, top, write};

/// `wait` does not wait for nothing.
pub fn nothing_outstanding_gives_nothing<D: Disk>(lab: &mut Lab<D>) {
    assert!(lab.disk().wait().is_none());
    lab.done(vec![Step::Close(FileId(7))]);
    assert!(lab.disk().wait().is_none());
}

/// Many jobs in flight, of all kinds, complete in the order submitted.
pub fn jobs_complete_in_order<D: Disk>(lab: &mut Lab<D>) {
    let files: Vec<_> = (0..4).map(|at| lab.create(&top(&format!("f{at}")), b"")).collect();
    let mut ids = Vec::new();
    for round in 0..400u64 {
        let file = files[usize::try_from(round % 4).expect("below 4")];
        let steps = match round % 7 {
            0 => vec![Step::SyncDir(None)],
            1 => vec![Step::Sync(file)],
            2 => vec![Step::Zero { file, at: 10_000 + round * 8, len: 8 }],
            _ => vec![write(file, round * 8, &round.to_be_bytes()), Step::Sync(file)],
        };
        ids.push(lab.submit(steps));
    }
    for result in lab.expect(&ids) {
        assert_eq!(result, Ok(Output::Done));
    }
    for round in (0..400u64).filter(|round| round % 7 > 2) {
        let file = files[usize::try_from(round % 4).expect("below 4")];
        assert_eq!(lab.read(file, round * 8, 8)[..], round.to_be_bytes());
    }
}

/// Jobs take effect in the order submitted, whatever is gathered.
pub fn later_writes_win<D: Disk>(lab: &mut Lab<D>) {
    let file = lab.create(&top("f"), &[0; 64]);
    let mut model = [0u8; 64];
    let mut ids = Vec::new();
    for round in 0..200u8 {
        let at = usize::from(round) * 7 % 48;
        model[at..at + 16].fill(round);
        let at = u64::try_from(at).expect("small");
        ids.push(lab.submit(vec![write(file, at, &[round; 16]), Step::Sync(file)]));
        if round % 50 == 49 {
            model[20..30].fill(0);
            ids.push(lab.submit(vec![Step::Zero { file, at: 20, len: 10 }, Step::Sync(file)]));
        }
    }
    lab.expect(&ids);
    assert_eq!(lab.read(file, 0, 100), model[..]);
}

/// Steps before the failing one took effect, steps after it did not, and other jobs are untouched.
pub fn a_failure_stops_its_job_and_no_other<D: Disk>(lab: &mut Lab<D>) {
    let create = |lab: &mut Lab<D>, text: &str| Step::Create { file: lab.file(), path: top(text) };
    let missing = Step::Open { file: lab.file(), path: top("missing") };
    let steps = vec![create(lab, "before"), missing, create(lab, "after")];
    let failing = lab.submit(steps);
    let steps = vec![create(lab, "other")];
    let other = lab.submit(steps);
    let results = lab.expect(&[failing, other]);
    let error = results[0].clone().expect_err("a file is missing");
    assert_eq!((error.kind, error.step), (ErrorKind::NotFound, 1));
    assert!(error.detail.contains("missing"), "the path is named: {error}");
    assert_eq!(results[1], Ok(Output::Done));
    assert_eq!(lab.names(&None), ["before", "other"]);
}

/// One completion for a job: the output of its last step.
pub fn the_output_is_that_of_the_last_step<D: Disk>(lab: &mut Lab<D>) {
    let file = lab.file();
    let created = vec![Step::Create { file, path: top("f") }, write(file, 0, b"hello"), Step::Sync(file)];
    lab.done(created);
    assert_eq!(data(lab.run(vec![write(file, 5, b"!"), Step::Read { file, at: 4, len: 9 }]))[..], *b"o!");
    let again = lab.file();
    let opened = vec![Step::Close(file), Step::Open { file: again, path: top("f") }];
    assert_eq!(lab.run(opened), Ok(Output::Length(6)));
    let (a, b) = (Step::Read { file: again, at: 0, len: 1 }, Step::Read { file: again, at: 1, len: 2 });
    assert_eq!(data(lab.run(vec![a, b]))[..], *b"el");
}

/// A reading job sees every job completed before it was submitted, synced or not.
pub fn reading_jobs_see_completed_jobs<D: Disk>(lab: &mut Lab<D>) {
    let file = lab.create(&top("f"), b"");
    for round in 0..100u64 {
        lab.done(vec![write(file, round % 3 * 8, &round.to_be_bytes())]);
        assert_eq!(lab.read(file, round % 3 * 8, 8)[..], round.to_be_bytes());
    }
}

/// Reading jobs run beside others: each completes once, and shows each byte as it was or as it is to be.
pub fn reading_jobs_beside_writing_jobs<D: Disk>(lab: &mut Lab<D>) {
    let file = lab.create(&top("f"), &[1; 4096]);
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        writers.push(lab.submit(vec![write(file, 0, &[2; 4096]), Step::Sync(file)]));
        let first = Step::Read { file, at: 0, len: 1 };
        readers.push(lab.submit(vec![first, Step::List(None), Step::Read { file, at: 0, len: 5000 }]));
    }
    let mut written = Vec::new();
    for _ in 0..200 {
        let Completion { job, result } = lab.next();
        if writers.contains(&job) {
            assert_eq!(result, Ok(Output::Done));
            written.push(job);
            continue;
        }
        let reader = readers.iter().position(|reader| *reader == job).expect("a job of ours, once");
        readers.remove(reader);
        let content = data(result);
        assert_eq!(content.len(), 4096);
        assert!(content.iter().all(|byte| matches!(byte, 1 | 2)));
    }
    assert!(lab.disk().wait().is_none());
    assert_eq!(written, writers, "completed out of order");
    assert!(readers.is_empty());
}

/// A job with any changing step keeps its place in the order, its reads too.
pub fn mixed_jobs_keep_their_order<D: Disk>(lab: &mut Lab<D>) {
    let file = lab.create(&top("f"), b"0");
    let ids: Vec<_> = (1..=50u8)
        .map(|round| lab.submit(vec![write(file, 0, &[round]), Step::Read { file, at: 0, len: 9 }]))
        .collect();
    for (round, result) in (1..=50u8).zip(lab.expect(&ids)) {
        assert_eq!(data(result)[..], [round]);
    }
    let again = lab.file();
    let steps = vec![
        Step::Close(file),
        Step::Open { file: again, path: top("f") },
        Step::Read { file: again, at: 0, len: 9 },
    ];
    assert_eq!(data(lab.run(steps))[..], [50]);
}

/// Jobs over several files, all in flight, with everything else between them.
pub fn shared_syncs_over_several_files<D: Disk>(lab: &mut Lab<D>) {
    let files: Vec<_> = (0..5).map(|at| lab.create(&top(&format!("f{at}")), b"")).collect();
    let mut models = vec![Vec::new(); 5];
    let mut ids = Vec::new();
    for round in 0..120u8 {
        let mut steps = Vec::new();
        let (a, b) = (usize::from(round % 5), usize::from(round / 5 % 5));
        for at in [a, b] {
            let end = u64::try_from(models[at].len()).expect("small");
            steps.push(write(files[at], end, &[round; 3]));
            models[at].extend_from_slice(&[round; 3]);
        }
        steps.extend([Step::Sync(files[a]), Step::Sync(files[b])]);
        ids.push(lab.submit(steps));
        if round % 30 == 29 {
            models[a].truncate(10);
            ids.push(lab.submit(vec![Step::Truncate { file: files[a], len: 10 }, Step::Sync(files[a])]));
        }
    }
    for result in lab.expect(&ids) {
        assert_eq!(result, Ok(Output::Done));
    }
    for (at, model) in models.iter().enumerate() {
        assert_eq!(lab.read_all(&top(&format!("f{at}"))), model[..], "file {at}");
    }
}
