//! Bounds-checked reading and writing of bytes, big-endian everywhere.
//!
//! A [`Reader`] never allocates for a length or count it has not checked against the bytes that remain, and
//! a decoder ends with [`Reader::finish`], so that it consumes its input exactly. Shared by the client
//! protocol, the disk formats and the replicated state.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The input ends inside a field.
    #[error("the input ends inside a field")]
    Short,
    /// Bytes are left over after the last field.
    #[error("bytes are left over after the last field")]
    Trailing,
    /// A tag, length or value that is not allowed where it stands.
    #[error("{0} is not valid")]
    Invalid(&'static str),
}

/// Reads fields from the front of a shared slice.
#[derive(Clone, Debug)]
pub struct Reader {
    rest: Bytes,
}

impl Reader {
    /// A reader over all of `bytes`.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Succeeds only when everything was read.
    pub fn finish(self) -> Result<(), Error> {
        if self.rest.is_empty() { Ok(()) } else { Err(Error::Trailing) }
    }

    fn need(&self, len: usize) -> Result<(), Error> {
        if self.rest.len() < len { Err(Error::Short) } else { Ok(()) }
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, Error> {
        self.need(1)?;
        Ok(self.rest.get_u8())
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, Error> {
        self.need(2)?;
        Ok(self.rest.get_u16())
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, Error> {
        self.need(4)?;
        Ok(self.rest.get_u32())
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, Error> {
        self.need(8)?;
        Ok(self.rest.get_u64())
    }

    /// Sixteen bytes.
    pub fn u128(&mut self) -> Result<u128, Error> {
        self.need(16)?;
        Ok(self.rest.get_u128())
    }

    /// A byte that must be 0 or 1.
    pub fn bool(&mut self) -> Result<bool, Error> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Error::Invalid("a truth value")),
        }
    }

    /// An unsigned integer of 1 to 10 bytes, seven bits each, lowest first; only the shortest form is valid,
    /// so a value has one encoding.
    pub fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return Err(Error::Invalid("a varint"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                let shortest = byte != 0 || shift == 0;
                return if shortest { Ok(value) } else { Err(Error::Invalid("a varint")) };
            }
        }
        Err(Error::Invalid("a varint"))
    }

    /// The next `len` bytes as a shared slice.
    pub fn take(&mut self, len: usize) -> Result<Bytes, Error> {
        self.need(len)?;
        Ok(self.rest.split_to(len))
    }

    /// `length:u32` and that many bytes.
    pub fn blob(&mut self) -> Result<Bytes, Error> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    /// `00` for null, or `01 length:u32 bytes`.
    pub fn opt_blob(&mut self) -> Result<Option<Bytes>, Error> {
        if self.bool()? { self.blob().map(Some) } else { Ok(None) }
    }

    /// A `u32` count of items that take at least `item_bytes_min` bytes each; a count the remaining bytes
    /// cannot hold is refused, so the caller may allocate for it.
    pub fn count(&mut self, item_bytes_min: usize) -> Result<usize, Error> {
        let count = self.u32()? as usize;
        match count.checked_mul(item_bytes_min.max(1)) {
            Some(bytes) if bytes <= self.rest.len() => Ok(count),
            Some(_) | None => Err(Error::Invalid("a count")),
        }
    }
}

/// Writes fields to the end of a growing buffer.
pub trait Writer {
    /// `length:u32` and the bytes. Panics above 4 GiB, which every caller's limit excludes.
    fn put_blob(&mut self, bytes: &[u8]);
    /// `00` for null, or `01 length:u32 bytes`.
    fn put_opt_blob(&mut self, bytes: Option<&[u8]>);
    /// A list's `u32` count.
    fn put_count(&mut self, count: usize);
    /// The shortest form of what [`Reader::varint`] reads.
    fn put_varint(&mut self, value: u64);
    /// `00` or `01`.
    fn put_bool(&mut self, value: bool);
}

impl Writer for BytesMut {
    fn put_blob(&mut self, bytes: &[u8]) {
        self.put_count(bytes.len());
        self.extend_from_slice(bytes);
    }

    fn put_opt_blob(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.put_u8(0),
            Some(bytes) => {
                self.put_u8(1);
                self.put_blob(bytes);
            }
        }
    }

    fn put_count(&mut self, count: usize) {
        self.put_u32(u32::try_from(count).expect("lengths are limited far below 4 GiB"));
    }

    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_u8(0x80 | (value & 0x7f) as u8);
            value >>= 7;
        }
        self.put_u8(value as u8);
    }

    fn put_bool(&mut self, value: bool) {
        self.put_u8(u8::from(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_the_rest_cannot_hold_is_refused_before_it_is_used() {
        let mut reader = Reader::new(Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 1, 2, 3]));
        assert_eq!(reader.count(17), Err(Error::Invalid("a count")));
    }

    #[test]
    fn null_and_empty_differ() {
        let mut bytes = BytesMut::new();
        bytes.put_opt_blob(None);
        bytes.put_opt_blob(Some(b""));
        let mut reader = Reader::new(bytes.freeze());
        assert_eq!(reader.opt_blob(), Ok(None));
        assert_eq!(reader.opt_blob(), Ok(Some(Bytes::new())));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn a_varint_has_one_encoding() {
        for value in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = BytesMut::new();
            bytes.put_varint(value);
            let mut reader = Reader::new(bytes.freeze());
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.finish(), Ok(()));
        }
        let refused: [&'static [u8]; 4] = [&[0x80, 0], &[0xff, 0x80, 0], &[0xff; 11], &[0xff; 9]];
        for bytes in refused {
            assert!(Reader::new(Bytes::from_static(bytes)).varint().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn leftovers_and_other_tags_are_refused() {
        assert_eq!(Reader::new(Bytes::from_static(&[0])).finish(), Err(Error::Trailing));
        assert!(Reader::new(Bytes::from_static(&[2])).opt_blob().is_err());
        assert_eq!(Reader::new(Bytes::from_static(&[1, 0, 0, 0, 5, 1])).opt_blob(), Err(Error::Short));
    }
}
