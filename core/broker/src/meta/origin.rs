//! Who proposed an entry.
//!
//! ```text
//! entry = node:u128  life:u64  number:u64  led:u64  command      led is 0 when it was proposed as nobody's leader
//! ```
//!
//! Every node that applies entries of a group knows its own by this, whoever led when they were recorded: so a
//! proposal that went through another node, or whose leader changed, is answered like any other, and whoever hears
//! the answer finds what was decided in its own tables.
//!
//! What only the leader of a group may decide says in which term it was that. The term of the entry is later when
//! another led by the time it was recorded, and then nobody does it, on any node.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader};
use types::{NodeId, Term};

/// One proposal of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) node: NodeId,
    /// Of the process; no other of the node has it.
    pub(crate) life: u64,
    /// Never used again in that process.
    pub(crate) number: u64,
    /// The term in which the proposer led the group, when it proposes as its leader.
    pub(crate) led: Option<Term>,
}

impl Origin {
    /// The entry of a command that is proposed so.
    pub(crate) fn entry(self, command: &[u8]) -> Bytes {
        let mut entry = BytesMut::with_capacity(40 + command.len());
        entry.put_u128(self.node.0);
        entry.put_u64(self.life);
        entry.put_u64(self.number);
        entry.put_u64(self.led.unwrap_or_default().0);
        entry.extend_from_slice(command);
        entry.freeze()
    }

    /// What an entry says.
    pub(crate) fn split(entry: &Bytes) -> Result<(Self, Bytes), Error> {
        let mut reader = Reader::new(entry.clone());
        let (node, life, number) = (NodeId(reader.u128()?), reader.u64()?, reader.u64()?);
        let led = Some(Term(reader.u64()?)).filter(|term| *term > Term::default());
        let origin = Self { node, life, number, led };
        let command = reader.take(reader.remaining())?;
        Ok((origin, command))
    }

    /// Whether it was proposed as the leader of a term that was over when the entry was recorded, in this one.
    pub(crate) fn is_late(self, recorded: Term) -> bool {
        self.led.is_some_and(|led| led < recorded)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn origin(led: Option<Term>) -> Origin {
        Origin { node: NodeId(7), life: 8, number: 9, led }
    }

    #[test]
    fn an_entry_says_who_proposed_it_and_as_whose_leader() {
        for led in [None, Some(Term(1)), Some(Term(u64::MAX))] {
            let entry = origin(led).entry(b"command");
            assert_eq!(Origin::split(&entry).unwrap(), (origin(led), Bytes::from_static(b"command")));
        }
        assert!(Origin::split(&origin(None).entry(b"").slice(1..)).is_err());
    }

    #[test]
    fn only_who_led_in_an_earlier_term_is_late() {
        let late = |led| origin(led).is_late(Term(5));
        assert_eq!(
            [None, Some(Term(4)), Some(Term(5)), Some(Term(6))].map(late),
            [false, true, false, false]
        );
    }
}
