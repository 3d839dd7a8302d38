//! Bytes on their way out, as a list of slices for one gathered write.
//!
//! Small fields are written into one growing buffer; long slices are linked in where they belong and never
//! copied. Read it as a [`Buf`]: any writer that takes several slices at once can send it.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Slices up to this long are copied: an entry of a gathered write costs more than so many bytes do.
const COPY_BYTES_MAX: usize = 512;

/// Slices in the order they are sent. Cheap to keep and use again.
#[derive(Debug, Default)]
pub struct Gather {
    sealed: VecDeque<Bytes>,
    sealed_bytes: usize,
    open: BytesMut,
}

impl Gather {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The buffer small fields are written to; what is in it already stays in front.
    pub fn fields(&mut self) -> &mut BytesMut {
        &mut self.open
    }

    /// Puts `slice` at the end, without copying it when it is long.
    pub fn link(&mut self, slice: Bytes) {
        if slice.len() <= COPY_BYTES_MAX {
            self.open.extend_from_slice(&slice);
            return;
        }
        if !self.open.is_empty() {
            let fields = self.open.split().freeze();
            self.seal(fields);
        }
        self.seal(slice);
    }

    fn seal(&mut self, slice: Bytes) {
        self.sealed_bytes += slice.len();
        self.sealed.push_back(slice);
    }
}

impl Buf for Gather {
    fn remaining(&self) -> usize {
        self.sealed_bytes + self.open.len()
    }

    fn chunk(&self) -> &[u8] {
        self.sealed.front().map_or(&self.open[..], |slice| &slice[..])
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let open = (!self.open.is_empty()).then_some(&self.open[..]);
        let slices = self.sealed.iter().map(|slice| &slice[..]).chain(open);
        let mut filled = 0;
        for (to, slice) in into.iter_mut().zip(slices) {
            *to = IoSlice::new(slice);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.remaining(), "cannot send more than there is");
        while let Some(front) = self.sealed.front_mut() {
            if count < front.len() {
                front.advance(count);
                self.sealed_bytes -= count;
                return;
            }
            count -= front.len();
            self.sealed_bytes -= front.len();
            self.sealed.pop_front();
        }
        self.open.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_slice_is_not_copied() {
        let long = Bytes::from(vec![7; COPY_BYTES_MAX + 1]);
        let mut gather = Gather::new();
        gather.fields().extend_from_slice(b"head");
        gather.link(long.clone());
        gather.fields().extend_from_slice(b"tail");
        gather.advance(4);
        assert_eq!(gather.chunk().as_ptr(), long.as_ptr());
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(gather.chunks_vectored(&mut slices), 2);
        assert_eq!(&*slices[1], b"tail");
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out_in_order_whatever_a_write_takes(
            parts in prop::collection::vec((any::<bool>(), 0_usize..1200, any::<u8>()), 0..10),
            takes in prop::collection::vec(1_usize..900, 1..8),
        ) {
            let (mut gather, mut expected) = (Gather::new(), Vec::new());
            for (link, len, byte) in parts {
                expected.extend_from_slice(&vec![byte; len]);
                if link {
                    gather.link(Bytes::from(vec![byte; len]));
                } else {
                    gather.fields().extend_from_slice(&vec![byte; len]);
                }
            }
            let mut sent = Vec::new();
            for take in takes.iter().cycle() {
                prop_assert_eq!(gather.remaining(), expected.len() - sent.len());
                if !gather.has_remaining() {
                    break;
                }
                let mut slices = [IoSlice::new(&[]); 3];
                let filled = gather.chunks_vectored(&mut slices);
                let offered: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
                let taken = (*take).min(offered.len());
                sent.extend_from_slice(&offered[..taken]);
                gather.advance(taken);
            }
            prop_assert_eq!(sent, expected);
        }
    }
}
