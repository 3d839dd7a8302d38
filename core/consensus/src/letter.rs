//! What one node's groups say to another's, as bytes.
//!
//! ```text
//!   0 message        one of the group's own messages
//!   1 replica:u64    the replica left, and may forget the group
//!   2 replica:u64    the replica hears no leader: does anybody need it?
//!   3 replica:u64    the replica is lost: another has to take its place
//!   4 beats          heartbeats of many groups: see `beats`
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use raft::{Message, ReplicaId};
use types::codec::{Error, Reader};

use crate::beats::{self, Beat};

/// Most letters are smaller.
const LETTER_BYTES: usize = 128;

const MESSAGE: u8 = 0;
const FORGET: u8 = 1;
const ASKING: u8 = 2;
const LOST: u8 = 3;
const BEATS: u8 = 4;

/// One of them. Which group it is about travels beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Letter {
    /// Of the group.
    Message(Message),
    /// A leader knows that a quorum knows that this replica left: nobody needs it any more.
    Forget(ReplicaId),
    /// A replica hears no leader, or is lost. It may have left while it could not be told.
    Asking(ReplicaId),
    /// What a replica had stored cannot be relied on, and a leader goes on talking to it.
    Lost(ReplicaId),
    /// Of many groups, whichever travels beside it.
    Beats(Vec<Beat>),
}

impl Letter {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(LETTER_BYTES);
        match self {
            Self::Message(message) => {
                bytes.put_u8(MESSAGE);
                message.encode_to(&mut bytes);
            }
            Self::Forget(replica) => {
                bytes.put_u8(FORGET);
                bytes.put_u64(replica.0);
            }
            Self::Asking(replica) => {
                bytes.put_u8(ASKING);
                bytes.put_u64(replica.0);
            }
            Self::Lost(replica) => {
                bytes.put_u8(LOST);
                bytes.put_u64(replica.0);
            }
            Self::Beats(beats) => {
                bytes.put_u8(BEATS);
                beats::encode(beats, &mut bytes);
            }
        }
        bytes.freeze()
    }

    /// Reads one; whoever sent it is checked elsewhere.
    pub fn decode(bytes: Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        match reader.u8()? {
            MESSAGE => Ok(Self::Message(Message::decode(reader.take(reader.remaining())?)?)),
            BEATS => Ok(Self::Beats(beats::decode(reader)?)),
            kind @ (FORGET | ASKING | LOST) => {
                let replica = ReplicaId(reader.u64()?);
                reader.finish()?;
                Ok(match kind {
                    FORGET => Self::Forget(replica),
                    ASKING => Self::Asking(replica),
                    _ => Self::Lost(replica),
                })
            }
            _ => Err(Error::Invalid("a letter")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use raft::{Body, Member};
    use types::{NodeId, Term, VnodeId};

    use super::*;

    #[test]
    fn letters_come_back_as_they_were_sent() {
        let from = Member { replica: ReplicaId(2), node: NodeId(7) };
        let message = Message { from, to: ReplicaId(3), term: Term(4), body: Body::TakeOver };
        let others = [Letter::Forget(ReplicaId(9)), Letter::Asking(ReplicaId(8)), Letter::Lost(ReplicaId(7))];
        let beat = |group, is_reply| Beat {
            group: VnodeId(group),
            from: ReplicaId(300),
            to: ReplicaId(u64::MAX),
            term: Term(0),
            commit: types::RaftIndex(1 << 40),
            is_reply,
        };
        let beats = (0..beats::BEATS_MAX as u64).map(|group| beat(group, group % 2 == 0)).collect();
        let others = others.into_iter().chain([Letter::Beats(beats), Letter::Beats(Vec::new())]);
        for letter in [Letter::Message(message)].into_iter().chain(others) {
            assert_eq!(Letter::decode(letter.encode()), Ok(letter));
        }
        // More than there may be, and more than there are.
        assert!(Letter::decode(Bytes::from_static(&[4, 0x81, 8])).is_err());
        assert!(Letter::decode(Bytes::from_static(&[4, 2, 0, 1, 1, 1, 1, 1])).is_err());
        assert!(Letter::decode(Bytes::new()).is_err());
        assert!(Letter::decode(Bytes::from_static(&[1, 0, 0, 0, 0, 0, 0, 0, 9, 1])).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_letter_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(letter) = Letter::decode(bytes.clone().into()) {
                prop_assert_eq!(&letter.encode()[..], &bytes[..]);
            }
        }
    }
}
