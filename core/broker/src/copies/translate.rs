//! A store's words as they travel between nodes, and back.
//!
//! Owns nothing. What comes from another node is checked here: a batch must be the one both its checksums vouch for.

use bytes::Bytes;
use peer::message::copy::{self, Frame, OfCopy};
use storage::disk;
use storage::format::batch::{Batch, Header, Seed};
use storage::store::{Damage, DamageClass, Error, Extent, FailReason, Reply, Report, Request, State};
use types::{SegmentId, limits};

/// A frame that is not what its checksums say, or of a later format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a batch that its checksums do not vouch for")]
pub(crate) struct Untrusted;

/// A request as another node is asked it.
pub(super) fn to_peer(request: &Request, bulk: bool) -> OfCopy {
    let segment = request.segment();
    let request = match request {
        Request::Create { base, epoch, expect_full, rebuilding, .. } => copy::Request::Create {
            base: *base,
            epoch: *epoch,
            expect_full: *expect_full,
            rebuilding: *rebuilding,
        },
        Request::Append { epoch, batches, .. } => {
            let seed = Seed::of(segment);
            let frames = batches.iter().map(|batch| frame(batch, seed)).collect();
            copy::Request::Append { epoch: *epoch, frames }
        }
        Request::Read { from, bytes_max, .. } => {
            copy::Request::Read { from: *from, bytes_max: u32::try_from(*bytes_max).unwrap_or(u32::MAX) }
        }
        Request::SeekTime { at, .. } => copy::Request::SeekTime { at: *at },
        Request::Fence { epoch, .. } => copy::Request::Fence { epoch: *epoch },
        Request::Seal { end, at, .. } => copy::Request::Seal { end: *end, at: *at },
        Request::Latch { reason, .. } => copy::Request::Latch { reason: reason_to_peer(*reason) },
        Request::Verify { .. } => copy::Request::Verify,
        Request::Delete { .. } => copy::Request::Delete,
        Request::Inspect { .. } => copy::Request::Inspect,
        Request::Rebuilt { .. } => copy::Request::Rebuilt,
    };
    OfCopy { segment, bulk, request }
}

/// What another node asks, as a store is asked it.
pub(super) fn from_peer(of: OfCopy) -> Result<Request, Untrusted> {
    let OfCopy { segment, bulk, request } = of;
    Ok(match request {
        copy::Request::Create { base, epoch, expect_full, rebuilding } => {
            Request::Create { segment, base, epoch, expect_full, rebuilding }
        }
        copy::Request::Append { epoch, frames } => {
            let seed = Seed::of(segment);
            let batches = frames.into_iter().map(|frame| batch(frame, seed)).collect::<Result<_, _>>()?;
            Request::Append { segment, epoch, batches }
        }
        copy::Request::Read { from, bytes_max } => {
            let most = if bulk { limits::COPY_BULK_READ_BYTES_MAX } else { limits::COPY_READ_BYTES_MAX };
            Request::Read { segment, from, bytes_max: most.min(bytes_max as usize) }
        }
        copy::Request::SeekTime { at } => Request::SeekTime { segment, at },
        copy::Request::Fence { epoch } => Request::Fence { segment, epoch },
        copy::Request::Seal { end, at } => Request::Seal { segment, end, at },
        copy::Request::Latch { reason } => Request::Latch { segment, reason: reason_from_peer(reason) },
        copy::Request::Verify => Request::Verify { segment },
        copy::Request::Delete => Request::Delete { segment },
        copy::Request::Inspect => Request::Inspect { segment },
        copy::Request::Rebuilt => Request::Rebuilt { segment },
    })
}

/// A store's answer as another node is told it.
pub(super) fn reply_to_peer(segment: SegmentId, reply: Reply) -> copy::Reply {
    match reply {
        Reply::Created => copy::Reply::Created,
        Reply::Appended { end } => copy::Reply::Appended { end },
        Reply::Read(batches) => {
            let seed = Seed::of(segment);
            copy::Reply::Read(batches.iter().map(|batch| frame(batch, seed)).collect())
        }
        Reply::Sought(offset) => copy::Reply::Sought(offset),
        Reply::Fenced(extent) => copy::Reply::Fenced(extent_to_peer(extent)),
        Reply::Sealed(extent) => copy::Reply::Sealed(extent_to_peer(extent)),
        Reply::Latched => copy::Reply::Latched,
        Reply::Verified(Report { records, bytes, damage }) => {
            copy::Reply::Verified { records, bytes, damage: damage.map(damage_to_peer) }
        }
        Reply::Deleted => copy::Reply::Deleted,
        Reply::Inspected(extent) => copy::Reply::Inspected(extent_to_peer(extent)),
        Reply::Rebuilt(extent) => copy::Reply::Rebuilt(extent_to_peer(extent)),
        Reply::Failed(error) => copy::Reply::Failed(error_to_peer(&error)),
    }
}

/// What another node tells, as a store tells it; `None` when nothing was done.
pub(super) fn reply_from_peer(segment: SegmentId, reply: copy::Reply) -> Option<Reply> {
    Some(match reply {
        copy::Reply::Created => Reply::Created,
        copy::Reply::Appended { end } => Reply::Appended { end },
        copy::Reply::Read(frames) => {
            let seed = Seed::of(segment);
            let batches: Result<Vec<Batch>, Untrusted> =
                frames.into_iter().map(|frame| batch(frame, seed)).collect();
            match batches {
                Ok(batches) => Reply::Read(batches),
                Err(untrusted) => Reply::Failed(unreadable(untrusted.to_string())),
            }
        }
        copy::Reply::Sought(offset) => Reply::Sought(offset),
        copy::Reply::Fenced(extent) => Reply::Fenced(extent_from_peer(extent)),
        copy::Reply::Sealed(extent) => Reply::Sealed(extent_from_peer(extent)),
        copy::Reply::Latched => Reply::Latched,
        copy::Reply::Verified { records, bytes, damage } => {
            Reply::Verified(Report { records, bytes, damage: damage.map(damage_from_peer) })
        }
        copy::Reply::Deleted => Reply::Deleted,
        copy::Reply::Inspected(extent) => Reply::Inspected(extent_from_peer(extent)),
        copy::Reply::Rebuilt(extent) => Reply::Rebuilt(extent_from_peer(extent)),
        copy::Reply::Failed(error) => Reply::Failed(error_from_peer(error)),
        copy::Reply::NotServed | copy::Reply::TooLarge => return None,
    })
}

/// Bytes that wait while a request does.
pub(super) fn weight(request: &copy::Request) -> usize {
    match request {
        copy::Request::Append { frames, .. } => frames.iter().map(Frame::encoded_bytes).sum(),
        copy::Request::Read { .. }
        | copy::Request::Create { .. }
        | copy::Request::SeekTime { .. }
        | copy::Request::Fence { .. }
        | copy::Request::Seal { .. }
        | copy::Request::Latch { .. }
        | copy::Request::Verify
        | copy::Request::Delete
        | copy::Request::Inspect
        | copy::Request::Rebuilt => 0,
    }
}

/// Bytes of an answer that may be large.
pub(super) fn reply_bytes(reply: &copy::Reply) -> usize {
    match reply {
        copy::Reply::Read(frames) => frames.iter().map(Frame::encoded_bytes).sum(),
        copy::Reply::Created
        | copy::Reply::Appended { .. }
        | copy::Reply::Sought(_)
        | copy::Reply::Fenced(_)
        | copy::Reply::Sealed(_)
        | copy::Reply::Latched
        | copy::Reply::Verified { .. }
        | copy::Reply::Deleted
        | copy::Reply::Inspected(_)
        | copy::Reply::Rebuilt(_)
        | copy::Reply::Failed(_)
        | copy::Reply::NotServed
        | copy::Reply::TooLarge => 0,
    }
}

/// A failure of a disk that is somewhere else, or as good as one.
pub(crate) fn unreadable(detail: String) -> Error {
    Error::Storage(disk::Error { kind: disk::ErrorKind::Other, step: 0, detail })
}

fn frame(batch: &Batch, seed: Seed) -> Frame {
    Frame { header: batch.header.encode_shared(seed), payload: batch.payload.clone() }
}

fn batch(frame: Frame, seed: Seed) -> Result<Batch, Untrusted> {
    let header = Header::decode_shared(&frame.header, seed).map_err(|_| Untrusted)?;
    let batch = Batch { header, payload: frame.payload };
    if batch.is_intact(seed) { Ok(batch) } else { Err(Untrusted) }
}

fn extent_to_peer(extent: Extent) -> copy::Extent {
    let Extent { base, end, bytes, epoch, last_append, rebuilding, state } = extent;
    let state = match state {
        State::Active => copy::State::Active,
        State::Sealed => copy::State::Sealed,
        State::Stopped(reason) => copy::State::Stopped(reason_to_peer(reason)),
        State::Latched(reason) => copy::State::Latched(reason_to_peer(reason)),
    };
    copy::Extent { base, end, bytes, epoch, last_append, rebuilding, state }
}

fn extent_from_peer(extent: copy::Extent) -> Extent {
    let copy::Extent { base, end, bytes, epoch, last_append, rebuilding, state } = extent;
    let state = match state {
        copy::State::Active => State::Active,
        copy::State::Sealed => State::Sealed,
        copy::State::Stopped(reason) => State::Stopped(reason_from_peer(reason)),
        copy::State::Latched(reason) => State::Latched(reason_from_peer(reason)),
    };
    Extent { base, end, bytes, epoch, last_append, rebuilding, state }
}

fn reason_to_peer(reason: FailReason) -> copy::FailReason {
    match reason {
        FailReason::Enospc => copy::FailReason::Enospc,
        FailReason::Eio => copy::FailReason::Eio,
        FailReason::Erofs => copy::FailReason::Erofs,
        FailReason::Other => copy::FailReason::Other,
    }
}

fn reason_from_peer(reason: copy::FailReason) -> FailReason {
    match reason {
        copy::FailReason::Enospc => FailReason::Enospc,
        copy::FailReason::Eio => FailReason::Eio,
        copy::FailReason::Erofs => FailReason::Erofs,
        copy::FailReason::Other => FailReason::Other,
    }
}

fn damage_to_peer(damage: Damage) -> copy::Damage {
    let Damage { position, offset, class } = damage;
    let class = match class {
        DamageClass::Header => copy::DamageClass::Header,
        DamageClass::Payload => copy::DamageClass::Payload,
        DamageClass::Order => copy::DamageClass::Order,
        DamageClass::Short => copy::DamageClass::Short,
        DamageClass::Unsupported => copy::DamageClass::Unsupported,
        DamageClass::Meta => copy::DamageClass::Meta,
    };
    copy::Damage { position, offset, class }
}

fn damage_from_peer(damage: copy::Damage) -> Damage {
    let copy::Damage { position, offset, class } = damage;
    let class = match class {
        copy::DamageClass::Header => DamageClass::Header,
        copy::DamageClass::Payload => DamageClass::Payload,
        copy::DamageClass::Order => DamageClass::Order,
        copy::DamageClass::Short => DamageClass::Short,
        copy::DamageClass::Unsupported => DamageClass::Unsupported,
        copy::DamageClass::Meta => DamageClass::Meta,
    };
    Damage { position, offset, class }
}

fn error_to_peer(error: &Error) -> copy::Error {
    match error {
        Error::NoSuchSegment => copy::Error::NoSuchSegment,
        Error::Exists => copy::Error::Exists,
        Error::Sealed { end } => copy::Error::Sealed { end: *end },
        Error::Fenced { epoch } => copy::Error::Fenced { epoch: *epoch },
        Error::OutOfSync { end } => copy::Error::OutOfSync { end: *end },
        Error::OutOfRange { base } => copy::Error::OutOfRange { base: *base },
        Error::EndOfData { end } => copy::Error::EndOfData { end: *end },
        Error::CannotSeal { end } => copy::Error::CannotSeal { end: *end },
        Error::Damaged(damage) => copy::Error::Damaged(damage_to_peer(*damage)),
        Error::Latched(reason) => copy::Error::Latched(reason_to_peer(*reason)),
        Error::Storage(error) => copy::Error::Storage { detail: detail(&error.to_string()) },
        Error::Overloaded => copy::Error::Overloaded,
    }
}

fn error_from_peer(error: copy::Error) -> Error {
    match error {
        copy::Error::NoSuchSegment => Error::NoSuchSegment,
        copy::Error::Exists => Error::Exists,
        copy::Error::Sealed { end } => Error::Sealed { end },
        copy::Error::Fenced { epoch } => Error::Fenced { epoch },
        copy::Error::OutOfSync { end } => Error::OutOfSync { end },
        copy::Error::OutOfRange { base } => Error::OutOfRange { base },
        copy::Error::EndOfData { end } => Error::EndOfData { end },
        copy::Error::CannotSeal { end } => Error::CannotSeal { end },
        copy::Error::Damaged(damage) => Error::Damaged(damage_from_peer(damage)),
        copy::Error::Latched(reason) => Error::Latched(reason_from_peer(reason)),
        // For people, from a node that may be of another build: only what can be shown.
        copy::Error::Storage { detail } => unreadable(String::from_utf8_lossy(&detail).into_owned()),
        copy::Error::Overloaded => Error::Overloaded,
    }
}

/// What fits of an explanation, in whole characters.
pub(super) fn detail(text: &str) -> Bytes {
    let ends = (0..=copy::DETAIL_BYTES_MAX.min(text.len())).rev();
    let end = ends.into_iter().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    Bytes::copy_from_slice(&text.as_bytes()[..end])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use storage::format::batch::{Flags, Producer};
    use types::{Epoch, Offset, RangeId, RangeSeq, SegmentSeq, TopicId, WallTime};

    use super::*;

    fn segment(seq: u64) -> SegmentId {
        let range = RangeId { topic: TopicId(7), seq: RangeSeq(0) };
        SegmentId { range, seq: SegmentSeq(seq) }
    }

    fn a_batch(segment: SegmentId) -> Batch {
        let payload = Bytes::from_static(b"records");
        let header = Header {
            flags: Flags::default(),
            payload_len: 7,
            record_count: 2,
            base_offset: Offset(5),
            append_time: WallTime(9),
            epoch: Epoch(1),
            producer: Producer::default(),
            payload_crc: Seed::of(segment).crc(&payload),
        };
        Batch { header, payload }
    }

    #[test]
    fn every_request_comes_through() {
        let segment = segment(3);
        let requests = [
            Request::Create {
                segment,
                base: Offset(1),
                epoch: Epoch(2),
                expect_full: true,
                rebuilding: true,
            },
            Request::Append { segment, epoch: Epoch(2), batches: vec![a_batch(segment), a_batch(segment)] },
            Request::Read { segment, from: Offset(4), bytes_max: 77 },
            Request::SeekTime { segment, at: WallTime(6) },
            Request::Fence { segment, epoch: Epoch(8) },
            Request::Seal { segment, end: Offset(8), at: WallTime(9) },
            Request::Latch { segment, reason: FailReason::Erofs },
            Request::Verify { segment },
            Request::Delete { segment },
            Request::Inspect { segment },
            Request::Rebuilt { segment },
        ];
        for request in requests {
            let there = from_peer(to_peer(&request, true)).unwrap();
            assert_eq!(format!("{there:?}"), format!("{request:?}"));
        }
    }

    #[test]
    fn every_answer_comes_through() {
        let segment = segment(3);
        let damage = Damage { position: 3, offset: Offset(4), class: DamageClass::Order };
        let extent = |state| Extent {
            base: Offset(1),
            end: Offset(9),
            bytes: 77,
            epoch: Epoch(2),
            last_append: Some(WallTime(5)),
            rebuilding: true,
            state,
        };
        let replies = [
            Reply::Created,
            Reply::Appended { end: Offset(9) },
            Reply::Read(vec![a_batch(segment), a_batch(segment)]),
            Reply::Sought(Offset(3)),
            Reply::Fenced(extent(State::Active)),
            Reply::Sealed(extent(State::Sealed)),
            Reply::Latched,
            Reply::Verified(Report { records: 1, bytes: 2, damage: Some(damage) }),
            Reply::Deleted,
            Reply::Inspected(extent(State::Stopped(FailReason::Enospc))),
            Reply::Rebuilt(extent(State::Latched(FailReason::Eio))),
            Reply::Failed(Error::NoSuchSegment),
            Reply::Failed(Error::Exists),
            Reply::Failed(Error::Sealed { end: Offset(3) }),
            Reply::Failed(Error::Fenced { epoch: Epoch(3) }),
            Reply::Failed(Error::OutOfSync { end: Offset(3) }),
            Reply::Failed(Error::OutOfRange { base: Offset(3) }),
            Reply::Failed(Error::EndOfData { end: Offset(3) }),
            Reply::Failed(Error::CannotSeal { end: Offset(3) }),
            Reply::Failed(Error::Damaged(damage)),
            Reply::Failed(Error::Latched(FailReason::Other)),
            Reply::Failed(Error::Overloaded),
        ];
        for reply in replies {
            let told = reply_from_peer(segment, reply_to_peer(segment, reply.clone())).unwrap();
            assert_eq!(format!("{told:?}"), format!("{reply:?}"));
        }
        let failed = reply_to_peer(segment, Reply::Failed(unreadable("ü".repeat(2000))));
        assert!(matches!(&failed, copy::Reply::Failed(copy::Error::Storage { detail })
            if detail.len() <= copy::DETAIL_BYTES_MAX));
        assert!(reply_from_peer(segment, copy::Reply::NotServed).is_none());
    }

    #[test]
    fn a_batch_of_another_segment_or_with_another_byte_is_not_trusted() {
        let append = |batch| Request::Append {
            segment: segment(3),
            epoch: Epoch(2),
            batches: vec![a_batch(segment(3)), batch],
        };
        let mut sent = to_peer(&append(a_batch(segment(3))), false);
        sent.segment = segment(4);
        assert!(from_peer(sent).is_err());
        let other = Batch { payload: Bytes::from_static(b"recordz"), ..a_batch(segment(3)) };
        assert!(from_peer(to_peer(&append(other.clone()), false)).is_err());
        let told = reply_from_peer(segment(3), reply_to_peer(segment(3), Reply::Read(vec![other])));
        assert!(matches!(told, Some(Reply::Failed(Error::Storage(_)))));
    }
}
