//! Ten thousand copies on one node: descriptors and memory stay bounded whatever is asked of all of them at once.

use malachi_sim::disk::{Faults, SimDisk};
use malachi_sim::store::single::Single;
use storage::format::batch::{Batch, Flags, Header, Producer, Seed};
use storage::store::{Config, Reply, Request};
use types::limits::OPEN_COPIES_DEFAULT;
use types::{Epoch, Offset, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId, WallTime};

const COPIES: u64 = 10_000;
/// Files that are open beside the logs of copies: the journal's two, and those that come and go with a job.
const OTHERS: usize = 16;

fn segment(range: u64) -> SegmentId {
    SegmentId { range: RangeId { topic: TopicId(0xa11ce), seq: RangeSeq(range) }, seq: SegmentSeq(0) }
}

fn append(range: u64, base: u64, payload: &'static [u8]) -> Request {
    let segment = segment(range);
    let header = Header {
        flags: Flags::default(),
        payload_len: u32::try_from(payload.len()).expect("a short text"),
        record_count: 1,
        base_offset: Offset(base),
        append_time: WallTime(1000),
        epoch: Epoch(1),
        producer: Producer::default(),
        payload_crc: Seed::of(segment).crc(payload),
    };
    let batch = Batch { header, payload: payload.into() };
    Request::Append { segment, epoch: Epoch(1), batches: vec![batch] }
}

/// Asks the same of every copy at one time; gives the answers, and how many files were open at most.
fn all(store: &mut Single, request: impl Fn(u64) -> Request) -> (Vec<Reply>, usize) {
    store.most_open = 0;
    let replies = store.burst((0..COPIES).map(request));
    (replies, store.most_open)
}

#[test]
fn ten_thousand_copies_never_need_more_files_than_allowed() {
    // Without a journal every append needs the file of its copy.
    for journal_bytes in [0, Config::default().journal_bytes] {
        let config = Config { journal_bytes, ..Config::default() };
        let bound = OPEN_COPIES_DEFAULT + 2 * OPEN_COPIES_DEFAULT / 4 + OTHERS;
        let mut store = Single::start(SimDisk::new(1, Faults::none()), &config);
        let create = |range| Request::Create {
            segment: segment(range),
            base: Offset::ZERO,
            epoch: Epoch(1),
            expect_full: false,
            rebuilding: false,
        };
        let (replies, open) = all(&mut store, create);
        assert!(replies.iter().all(|reply| matches!(reply, Reply::Created)));
        assert!(open <= bound, "{open} files open while copies are made");
        for base in 0..2 {
            let (replies, open) = all(&mut store, |range| append(range, base, b"a small record"));
            assert!(replies.iter().all(|reply| matches!(reply, Reply::Appended { .. })));
            assert!(open <= bound, "{open} files open while all are appended to");
        }
        let mut store = store.after_kill();
        let (replies, open) = all(&mut store, |range| Request::Read {
            segment: segment(range),
            from: Offset::ZERO,
            bytes_max: 1000,
        });
        assert!(replies.iter().all(|reply| matches!(reply, Reply::Read(batches) if batches.len() == 2)));
        assert!(open <= bound, "{open} files open while all are read");
        let (replies, open) = all(&mut store, |range| Request::Seal {
            segment: segment(range),
            end: Offset(2),
            at: WallTime(1),
        });
        assert!(replies.iter().all(|reply| matches!(reply, Reply::Sealed(_))));
        assert!(open <= bound, "{open} files open while all are sealed");
        assert!(store.gauges().open_files <= OPEN_COPIES_DEFAULT);
    }
}
