use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use types::{Epoch, RangeId, RangeSeq, SegmentId, SegmentSeq, TopicId, WallTime};

use super::*;
use crate::format::batch::{Flags, Nonce, Producer, Seed};

fn identity() -> Identity {
    let range = RangeId { topic: TopicId(7), seq: RangeSeq(0) };
    Identity { seed: Seed::of(SegmentId { range, seq: SegmentSeq(1) }), nonce: Nonce(3) }
}

/// Frames of the given payload sizes, laid end to end, each testifying for what lies before it.
fn log(base: u64, sizes: &[usize]) -> BytesMut {
    let mut out = BytesMut::new();
    let mut next = Offset(base);
    for size in sizes {
        let payload: Vec<u8> = (0..*size).map(|at| (at * 31 + size) as u8).collect();
        let header = Header {
            flags: Flags::default(),
            payload_len: u32::try_from(*size).unwrap(),
            record_count: 2,
            base_offset: next,
            append_time: WallTime(1),
            epoch: Epoch(1),
            producer: Producer::default(),
            payload_crc: identity().seed.crc(&payload),
        };
        let durable_before = out.len() as u64;
        out.extend_from_slice(&header.encode(identity(), durable_before));
        out.extend_from_slice(&payload);
        next = header.end_offset();
    }
    out
}

/// Runs a scan with a window of `window` bytes over `file`, giving the positions found and where it ended.
fn scan(file: &[u8], base: u64, limit: u64, window: usize) -> (Vec<u64>, Stop) {
    let mut scan = Scan::new(identity(), 0, Offset(base), limit);
    scan.window = window;
    let mut found = Vec::new();
    for _ in 0..100_000 {
        let Some((at, len)) = scan.wants() else { break };
        let at = usize::try_from(at).unwrap().min(file.len());
        let data = Bytes::copy_from_slice(&file[at..(at + len).min(file.len())]);
        scan.feed(data, &mut |frame| {
            found.push(frame.position);
            true
        });
    }
    (found, scan.stop().expect("a scan ends"))
}

fn search(file: &[u8], start: u64, window: usize) -> TailSearch {
    let mut search = TailSearch::new(identity(), start, file.len() as u64);
    search.window = window;
    for _ in 0..100_000 {
        let Some((at, len)) = search.wants() else { break };
        let at = usize::try_from(at).unwrap();
        search.feed(&file[at..at + len]);
    }
    assert_eq!(search.wants(), None, "a search ends");
    search
}

#[test]
fn a_whole_log_is_walked_to_its_limit_with_any_window() {
    let file = log(40, &[10, 500, 1, 3000]);
    for window in [73, 100, 512, 4096, 1 << 20] {
        let (found, stop) = scan(&file, 40, file.len() as u64, window);
        assert_eq!(found, [0, 82, 654, 727], "window {window}");
        assert_eq!(stop, Stop::Limit { position: file.len() as u64, end: Offset(48) });
    }
}

#[test]
fn an_empty_log_ends_at_once() {
    assert_eq!(scan(&[], 5, 0, 4096).1, Stop::Limit { position: 0, end: Offset(5) });
}

#[test]
fn a_file_cut_at_every_length_ends_short_behind_the_last_whole_frame() {
    let file = log(0, &[10, 40, 200]);
    let whole = [0, 82, 194, 466];
    for len in 0..file.len() {
        // Both when the limit is the file's length and when the file is shorter than it should be.
        for limit in [len, file.len()] {
            let (found, stop) = scan(&file[..len], 0, limit as u64, 128);
            let frames = whole.iter().filter(|end| **end > 0 && **end <= len).count();
            assert_eq!(found.len(), frames, "cut at {len}");
            match stop {
                Stop::Limit { position, .. } => assert!(position == len as u64 && limit == len),
                Stop::Bad(damage) => {
                    assert_eq!(
                        (damage.position, damage.class),
                        (whole[frames] as u64, DamageClass::Short),
                        "cut at {len}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_flipped_bit_stops_the_walk_at_its_frame() {
    let file = log(0, &[10, 40]);
    for bit in 0..file.len() * 8 {
        let mut flipped = file.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let frame = if bit / 8 < 82 { 0 } else { 82 };
        let (_, stop) = scan(&flipped, 0, flipped.len() as u64, 4096);
        let Stop::Bad(damage) = stop else { panic!("bit {bit} was not noticed") };
        let header = bit / 8 - frame < HEADER_BYTES;
        let class = if header { DamageClass::Header } else { DamageClass::Payload };
        assert_eq!((damage.position, damage.class), (frame as u64, class), "bit {bit}");
    }
}

#[test]
fn a_frame_that_is_intact_but_not_the_next_one_is_out_of_order() {
    let file = log(7, &[10]);
    let (_, stop) = scan(&file, 6, file.len() as u64, 4096);
    assert_eq!(stop, Stop::Bad(Damage { position: 0, offset: Offset(6), class: DamageClass::Order }));
}

#[test]
fn the_search_hears_every_header_behind_damage_with_any_window() {
    let mut file = log(0, &[10, 40, 200, 30]);
    file[90] ^= 1; // the second frame's header
    let expected = file.len() as u64;
    for window in [72, 73, 100, 257, 4096] {
        let found = search(&file, 82, window);
        assert_eq!(found.testimony, 466, "the last frame speaks for all before it, window {window}");
        assert_eq!(found.reach, expected);
        assert!(!found.clean);
    }
}

#[test]
fn a_header_whose_payload_never_arrived_still_testifies() {
    let file = log(0, &[10, 40]);
    let found = search(&file[..82 + HEADER_BYTES + 3], 10, 4096);
    assert_eq!(found.testimony, 82);
    assert_eq!(found.reach, (82 + HEADER_BYTES + 3) as u64, "clipped to the file");
}

#[test]
fn zeros_are_a_clean_end_and_leftovers_of_others_say_nothing() {
    let zeros = search(&[0; 5000], 0, 256);
    assert!(zeros.clean && zeros.testimony == 0 && zeros.reach == 0);
    let foreign = log(0, &[10, 40]);
    let mut other = TailSearch::new(Identity { nonce: Nonce(99), ..identity() }, 0, foreign.len() as u64);
    other.feed(&foreign);
    assert!(!other.clean && other.testimony == 0 && other.reach == 0);
}

proptest! {
    #[test]
    fn arbitrary_bytes_end_the_walk_and_the_search(bytes in prop::collection::vec(any::<u8>(), 0..2000), window in 72usize..3000) {
        let _ = scan(&bytes, 0, bytes.len() as u64, window);
        let _ = search(&bytes, 0, window);
    }

    #[test]
    fn damage_anywhere_keeps_every_frame_before_it(
        sizes in prop::collection::vec(1usize..300, 1..8), at in any::<prop::sample::Index>(), mask in 1u8..,
    ) {
        let mut file = log(0, &sizes);
        let at = at.index(file.len());
        file[at] ^= mask;
        let (found, stop) = scan(&file, 0, file.len() as u64, 512);
        let Stop::Bad(damage) = stop else { return Err(TestCaseError::fail("damage was not noticed")) };
        prop_assert!(damage.position <= at as u64);
        prop_assert!(found.iter().all(|position| *position < damage.position));
    }
}
