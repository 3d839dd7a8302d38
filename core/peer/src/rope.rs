//! Bytes as a list of slices, to be cut into frames and sent with one gathered write.
//!
//! Small fields are written into one growing buffer; long slices are linked in where they belong and never copied.
//! Read it as a [`Buf`].

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Slices up to this long are copied: an entry of a gathered write costs more than so many bytes do.
const COPY_BYTES_MAX: usize = 512;

/// Slices in the order they are sent. Cheap to keep and use again.
#[derive(Debug, Default)]
pub struct Rope {
    sealed: VecDeque<Bytes>,
    sealed_bytes: usize,
    open: BytesMut,
}

impl Rope {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
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

    /// Moves the first `count` bytes to the end of another. Panics when there are not so many.
    pub(crate) fn move_to(&mut self, into: &mut Self, mut count: usize) {
        assert!(count <= self.remaining(), "cannot move more than there is");
        while count > 0 {
            let Some(front) = self.sealed.front_mut() else {
                into.link(self.open.split_to(count).freeze());
                return;
            };
            let now = count.min(front.len());
            into.link(front.split_to(now));
            count -= now;
            self.sealed_bytes -= now;
            if front.is_empty() {
                self.sealed.pop_front();
            }
        }
    }

    /// Everything, in one piece.
    #[cfg(test)]
    pub(crate) fn into_bytes(mut self) -> Bytes {
        self.copy_to_bytes(self.remaining())
    }
}

impl Buf for Rope {
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
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_long_slice_is_not_copied() {
        let long = Bytes::from(vec![7; 2 * COPY_BYTES_MAX + 2]);
        let (mut rope, mut cut) = (Rope::new(), Rope::new());
        rope.fields().extend_from_slice(b"head");
        rope.link(long.clone());
        rope.move_to(&mut cut, 4 + COPY_BYTES_MAX + 1);
        assert_eq!(rope.chunk().as_ptr(), long[COPY_BYTES_MAX + 1..].as_ptr());
        cut.advance(4);
        assert_eq!(cut.chunk().as_ptr(), long.as_ptr());
    }

    proptest! {
        #[test]
        fn cutting_changes_no_byte(
            parts in prop::collection::vec((any::<bool>(), any::<u8>(), 0..1500_usize), 0..8),
            cuts in prop::collection::vec(0..900_usize, 0..20),
        ) {
            let (mut rope, mut expected) = (Rope::new(), Vec::new());
            for (linked, byte, len) in parts {
                let bytes = vec![byte; len];
                expected.extend_from_slice(&bytes);
                if linked { rope.link(bytes.into()) } else { rope.fields().extend_from_slice(&bytes) }
            }
            let mut whole = Vec::new();
            for cut in cuts {
                let mut piece = Rope::new();
                let cut = cut.min(rope.remaining());
                rope.move_to(&mut piece, cut);
                prop_assert_eq!(piece.remaining(), cut);
                whole.extend_from_slice(&piece.into_bytes());
            }
            whole.extend_from_slice(&rope.into_bytes());
            prop_assert_eq!(whole, expected);
        }
    }
}
