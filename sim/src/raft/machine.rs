//! The machine that members of simulated groups replicate.

use bytes::{BufMut, Bytes, BytesMut};

use super::judge::CommandId;

/// The replicated machine: a number for each state, and a digest of how it was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Commands applied.
    pub(crate) count: u64,
    digest: u64,
}

impl Machine {
    pub(crate) fn apply(&mut self, command: CommandId) {
        self.count += 1;
        let mixed = (self.digest ^ command.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.digest = mixed.rotate_left(23);
    }

    /// Some states are longer than others, so that they travel in different numbers of parts.
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        bytes.put_u64(self.count);
        bytes.put_u64(self.digest);
        bytes.put_bytes(0, (self.digest % 700) as usize);
        bytes.to_vec()
    }

    pub(crate) fn decode(state: &Bytes) -> Self {
        let word =
            |at: usize| state.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
        Self { count: word(0).unwrap_or_default(), digest: word(8).unwrap_or_default() }
    }
}
