//! What a record of a run says about itself, and what became of each.
//!
//! ```text
//! value = run:u32 connection:u32 sequence:u64 nanos:u64 filler
//! ```
//!
//! The filler follows from connection and sequence, so a value can be compared without having been kept. A
//! value too short for a mark carries none, and only the number of records is compared.

/// Bytes of a mark.
pub(super) const BYTES: usize = 4 + 4 + 8 + 8;

/// What a record says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) run: u32,
    pub(super) connection: u32,
    /// Counts the records of the connection, from 0.
    pub(super) sequence: u64,
    /// Since the run's epoch, when it was to be sent.
    pub(super) nanos: u64,
}

impl Mark {
    /// Makes `value`, whose length is kept, the value of this record.
    pub(super) fn write(&self, value: &mut [u8]) {
        let Some((head, filler)) = value.split_at_mut_checked(BYTES) else {
            value.fill(self.filler());
            return;
        };
        head[..4].copy_from_slice(&self.run.to_be_bytes());
        head[4..8].copy_from_slice(&self.connection.to_be_bytes());
        head[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        head[16..].copy_from_slice(&self.nanos.to_be_bytes());
        filler.fill(self.filler());
    }

    /// The mark of a value; `None` when it is too short for one.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let head: &[u8; BYTES] = value.first_chunk()?;
        let number = |at: usize| {
            let bytes: [u8; 8] = head[at..at + 8].try_into().expect("it is 8 bytes long");
            u64::from_be_bytes(bytes)
        };
        let (run, connection) = head[..8].split_at(4);
        let half = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("it is 4 bytes long"));
        Some(Self { run: half(run), connection: half(connection), sequence: number(8), nanos: number(16) })
    }

    /// Whether a value with this mark is what was sent.
    pub(super) fn is_whole(&self, value: &[u8], record_size: usize) -> bool {
        let filler = self.filler();
        value.len() == record_size && value.get(BYTES..).is_some_and(|rest| rest.iter().all(|b| *b == filler))
    }

    fn filler(&self) -> u8 {
        (self.sequence.wrapping_mul(31) ^ u64::from(self.connection)) as u8
    }
}

/// The key of a record.
pub(super) fn key(sequence: u64, keys: u32) -> String {
    format!("key-{}", sequence % u64::from(keys))
}

/// What became of the records of one connection: a bit for each.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    pub(super) connection: u32,
    /// Records sent.
    pub(super) sent: u64,
    /// Records acknowledged.
    pub(super) acknowledged: u64,
    acknowledged_bits: Vec<u64>,
    seen_bits: Vec<u64>,
}

impl Marks {
    pub(super) fn new(connection: u32) -> Self {
        Self { connection, ..Self::default() }
    }

    /// Gives the first of `count` new sequences.
    pub(super) fn send(&mut self, count: u32) -> u64 {
        let first = self.sent;
        self.sent += u64::from(count);
        first
    }

    /// The broker acknowledged so many from `first` on.
    pub(super) fn acknowledge(&mut self, first: u64, count: u32) {
        self.acknowledged += u64::from(count);
        for sequence in first..first + u64::from(count) {
            set(&mut self.acknowledged_bits, sequence);
        }
    }

    /// It was read back; whether that is the first time.
    pub(super) fn see(&mut self, sequence: u64) -> bool {
        set(&mut self.seen_bits, sequence)
    }

    /// Whether the broker acknowledged it.
    pub(super) fn is_acknowledged(&self, sequence: u64) -> bool {
        is_set(&self.acknowledged_bits, sequence)
    }

    /// Acknowledged and not read back.
    pub(super) fn missing(&self) -> u64 {
        let seen = |word: usize| self.seen_bits.get(word).copied().unwrap_or(0);
        let words = self.acknowledged_bits.iter().enumerate();
        words.map(|(word, bits)| u64::from((bits & !seen(word)).count_ones())).sum()
    }
}

/// Sets a bit; whether it was not set before.
fn set(bits: &mut Vec<u64>, at: u64) -> bool {
    let (word, bit) = place(at);
    if bits.len() <= word {
        bits.resize(word + 1, 0);
    }
    let was = bits[word] & bit;
    bits[word] |= bit;
    was == 0
}

fn is_set(bits: &[u64], at: u64) -> bool {
    let (word, bit) = place(at);
    bits.get(word).is_some_and(|bits| bits & bit != 0)
}

fn place(at: u64) -> (usize, u64) {
    (usize::try_from(at / 64).expect("as many records fit memory"), 1 << (at % 64))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_what_it_is_and_shows_damage() {
        let mark = Mark { run: 7, connection: 3, sequence: 1 << 40, nanos: 99 };
        let mut value = vec![0; 60];
        mark.write(&mut value);
        assert_eq!(Mark::read(&value), Some(mark));
        assert!(mark.is_whole(&value, 60));
        assert!(!mark.is_whole(&value[..59], 60));
        value[59] ^= 1;
        assert!(!mark.is_whole(&value, 60));
        assert_eq!(Mark::read(&value[..BYTES - 1]), None);
        mark.write(&mut value[..3]);
    }

    #[test]
    fn what_is_missing_is_what_was_acknowledged_and_not_seen() {
        let mut marks = Marks::new(1);
        assert_eq!((marks.send(100), marks.send(100)), (0, 100));
        marks.acknowledge(100, 100);
        assert_eq!(marks.missing(), 100);
        assert!(marks.see(150));
        assert!(!marks.see(150));
        assert!(marks.see(3), "in doubt, and there");
        assert_eq!(
            (marks.missing(), marks.is_acknowledged(3), marks.is_acknowledged(150)),
            (99, false, true)
        );
    }
}
