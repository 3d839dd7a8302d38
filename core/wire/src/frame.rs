//! Length-prefixed frames, refused by size before a byte of their body is kept.
//!
//! ```text
//! frame = length:u32 body:[length bytes]        length counts the body alone
//! ```
//!
//! Works on the buffer the socket is read into: a large body is split off as a shared slice and not copied. A small
//! one is copied, because a shared slice keeps the whole buffer alive for as long as somebody has it: a record of a
//! hundred bytes in a cache would cost what the buffer costs, and each read a new buffer. Does not read, and does
//! not decide what a refused frame is answered with.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes of the length prefix.
pub const PREFIX_BYTES: usize = 4;
/// Largest body that is copied.
const COPIED_BYTES_MAX: usize = 2 * 1024;

/// A frame announced a body above the limit; nothing that follows on the connection can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {length} bytes, at most {limit} are allowed")]
pub struct TooLarge {
    /// Bytes of body it announced.
    pub length: usize,
    /// Most that were allowed.
    pub limit: usize,
}

/// Splits the first whole frame's body off the front of `buffer`.
///
/// `None` when more bytes are needed; the buffer is then unchanged. `limit` is inclusive and judged as soon
/// as the prefix is there.
pub fn take(buffer: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, TooLarge> {
    let Some(length) = announced(buffer) else { return Ok(None) };
    if length > limit {
        return Err(TooLarge { length, limit });
    }
    if buffer.len() - PREFIX_BYTES < length {
        return Ok(None);
    }
    buffer.advance(PREFIX_BYTES);
    if length > COPIED_BYTES_MAX {
        return Ok(Some(buffer.split_to(length).freeze()));
    }
    let body = Bytes::copy_from_slice(&buffer[..length]);
    buffer.advance(length);
    Ok(Some(body))
}

/// Bytes still missing before [`take`] can give the first frame; 0 when it can, `None` before the prefix is
/// whole. A peer's claim until the bytes arrive: bound what is reserved for it.
#[must_use]
pub fn missing(buffer: &[u8]) -> Option<usize> {
    announced(buffer).map(|length| (PREFIX_BYTES + length).saturating_sub(buffer.len()))
}

fn announced(buffer: &[u8]) -> Option<usize> {
    buffer.first_chunk::<PREFIX_BYTES>().map(|prefix| u32::from_be_bytes(*prefix) as usize)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_limit_is_inclusive_and_judged_by_the_prefix_alone() {
        let mut at_limit = BytesMut::from(&[0, 0, 0, 3, 1, 2, 3][..]);
        assert_eq!(take(&mut at_limit, 3), Ok(Some(Bytes::from_static(&[1, 2, 3]))));
        let mut above = BytesMut::from(&[0, 0, 0, 4][..]);
        assert_eq!(take(&mut above, 3), Err(TooLarge { length: 4, limit: 3 }));
        // G27
        let mut above = BytesMut::from(&[1, 0, 0, 1][..]);
        assert!(take(&mut above, 16 * 1024 * 1024).is_err());
    }

    #[test]
    fn a_small_body_leaves_the_buffer_to_its_owner() {
        let framed = |length: u32| {
            let mut frame = length.to_be_bytes().to_vec();
            frame.resize(PREFIX_BYTES + length as usize, 7);
            frame
        };
        for (length, reused) in [(COPIED_BYTES_MAX, true), (COPIED_BYTES_MAX + 1, false)] {
            let frame = framed(u32::try_from(length).unwrap());
            let mut buffer = BytesMut::from(&frame[..]);
            let body = take(&mut buffer, 1 << 20).unwrap().unwrap();
            assert_eq!(body.len(), length);
            assert_eq!(buffer.try_reclaim(length), reused);
        }
    }

    #[test]
    fn an_empty_body_is_a_frame() {
        let mut buffer = BytesMut::from(&[0, 0, 0, 0, 0][..]);
        assert_eq!(take(&mut buffer, 10), Ok(Some(Bytes::new())));
        assert_eq!(take(&mut buffer, 10), Ok(None));
        assert_eq!(buffer.len(), 1);
    }

    #[test]
    fn what_is_missing_is_counted_once_the_prefix_is_whole() {
        assert_eq!(missing(&[0, 0, 0]), None);
        assert_eq!(missing(&[0, 0, 0, 5]), Some(5));
        assert_eq!(missing(&[0, 0, 0, 2, 9, 9, 9]), Some(0));
    }

    proptest! {
        #[test]
        fn frames_come_out_whole_however_they_arrive(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            cuts in prop::collection::vec(1_usize..30, 1..60),
        ) {
            let mut sent = Vec::new();
            for body in &bodies {
                sent.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes());
                sent.extend_from_slice(body);
            }
            let (mut buffer, mut received, mut rest) = (BytesMut::new(), Vec::new(), &sent[..]);
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                buffer.extend_from_slice(now);
                rest = later;
                while let Some(body) = take(&mut buffer, 40).unwrap() {
                    received.push(body.to_vec());
                }
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(received, bodies);
            prop_assert!(buffer.is_empty());
        }
    }
}
