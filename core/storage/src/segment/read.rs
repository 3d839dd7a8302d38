//! Collecting whole batches for a reader, from the frame an index entry points at onwards.

use bytes::Bytes;
use types::Offset;
use types::limits::READ_WINDOW_BYTES;

use super::index::Entry;
use crate::format::batch::{Batch, HEADER_BYTES, Header, Identity, Undecodable};
use crate::store::{Damage, DamageClass};

/// Collects batches from the one that holds `from`, up to a number of bytes. Every batch returned has been
/// checked in full; frames that are only stepped over have had their headers checked.
#[derive(Debug)]
pub struct Collect {
    identity: Identity,
    from: Offset,
    bytes_max: u64,
    limit: u64,
    at: u64,
    next: Offset,
    want: usize,
    batches: Vec<Batch>,
    bytes: u64,
}

/// What to do next.
#[derive(Debug)]
pub enum Progress {
    /// Read again: [`Collect::wants`] says where.
    More,
    /// The batches; at least one.
    Done(Vec<Batch>),
    /// The frame that holds the offset, or one before it, is not intact.
    Damaged(Damage),
}

impl Collect {
    /// Reads from the frame at `start` (the log's own start, or an index entry) and never at or past `limit`.
    #[must_use]
    pub fn new(identity: Identity, start: Entry, from: Offset, bytes_max: usize, limit: u64) -> Self {
        let bytes_max = bytes_max as u64;
        let want = usize::try_from(bytes_max).unwrap_or(usize::MAX).saturating_add(READ_WINDOW_BYTES / 16);
        Self {
            identity,
            from,
            bytes_max,
            limit,
            at: start.position,
            next: start.offset,
            want: want.min(READ_WINDOW_BYTES * 8),
            batches: Vec::new(),
            bytes: 0,
        }
    }

    /// About so many bytes lie before what is wanted: the first read is to reach over them.
    #[must_use]
    pub fn behind(mut self, bytes: u64) -> Self {
        let behind = usize::try_from(bytes).unwrap_or(usize::MAX).min(READ_WINDOW_BYTES);
        self.want = self.want.saturating_add(behind).min(READ_WINDOW_BYTES * 8);
        self
    }

    /// The bytes wanted next, `(position, length)`.
    #[must_use]
    pub fn wants(&self) -> (u64, usize) {
        let left = usize::try_from(self.limit.saturating_sub(self.at)).unwrap_or(usize::MAX);
        (self.at, self.want.min(left))
    }

    /// Takes the bytes last wanted; fewer only where the file ends.
    #[must_use]
    pub fn feed(&mut self, mut data: Bytes) -> Progress {
        let file_ends = data.len() < self.wants().1;
        loop {
            if self.at >= self.limit {
                return self.done(DamageClass::Short);
            }
            let Some(bytes) = data.first_chunk::<HEADER_BYTES>() else {
                return if file_ends || self.limit - self.at < HEADER_BYTES as u64 {
                    self.done(DamageClass::Short)
                } else {
                    Progress::More
                };
            };
            let header = match Header::decode(bytes, self.identity) {
                Ok((header, _)) => header,
                Err(Undecodable::NotAHeader) => return self.done(DamageClass::Header),
                Err(Undecodable::Unsupported { .. }) => return self.done(DamageClass::Unsupported),
            };
            if header.base_offset != self.next {
                return self.done(DamageClass::Order);
            }
            if header.frame_len() > self.limit - self.at {
                return self.done(DamageClass::Short);
            }
            let frame_len = usize::try_from(header.frame_len()).expect("a frame is far smaller than memory");
            let wanted = header.end_offset() > self.from;
            if wanted && !self.batches.is_empty() && self.bytes + header.frame_len() > self.bytes_max {
                return self.done(DamageClass::Short);
            }
            if data.len() < frame_len {
                if wanted && file_ends {
                    return self.done(DamageClass::Short);
                }
                if wanted {
                    self.want = self.want.max(frame_len);
                    return Progress::More;
                }
            }
            if wanted {
                let batch = Batch { header, payload: data.slice(HEADER_BYTES..frame_len) };
                if !batch.is_intact(self.identity.seed) {
                    return self.done(DamageClass::Payload);
                }
                self.bytes += header.frame_len();
                self.batches.push(batch);
            }
            data = data.slice(frame_len.min(data.len())..);
            self.at += header.frame_len();
            self.next = header.end_offset();
        }
    }

    /// What was collected; with nothing collected, `class` says what is wrong where the reader stands.
    fn done(&mut self, class: DamageClass) -> Progress {
        if self.batches.is_empty() {
            Progress::Damaged(Damage { position: self.at, offset: self.next, class })
        } else {
            Progress::Done(std::mem::take(&mut self.batches))
        }
    }
}
