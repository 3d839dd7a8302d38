//! What an entry's stored bytes say: which kind it is, then its content.
//!
//! The engine knows entries by two types only, and never sees these bytes' meaning; storage does not either. An
//! empty entry is a leader's first in its term. Every other begins with one byte for its kind, so that no command
//! can be taken for a change of members whatever it says.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader};

use crate::members::{Amendment, Members};

const COMMAND: u8 = 1;
const FOUNDING: u8 = 2;
const AMENDMENT: u8 = 3;

/// An entry's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// A leader's first entry in its term; applied by nobody.
    Opening,
    /// What somebody proposed.
    Command(Bytes),
    /// The group's first entry: who its members are at the start.
    Founding(Members),
    /// One change of the members.
    Amendment(Amendment),
}

impl Payload {
    /// What is stored.
    pub(crate) fn encode(&self) -> BytesMut {
        let mut bytes = BytesMut::new();
        match self {
            Self::Opening => {}
            Self::Command(command) => {
                bytes.reserve(1 + command.len());
                bytes.put_u8(COMMAND);
                bytes.extend_from_slice(command);
            }
            Self::Founding(members) => {
                bytes.put_u8(FOUNDING);
                members.encode(&mut bytes);
            }
            Self::Amendment(amendment) => {
                bytes.put_u8(AMENDMENT);
                amendment.encode(&mut bytes);
            }
        }
        bytes
    }

    /// Reads what [`Payload::encode`] wrote.
    pub(crate) fn decode(bytes: Bytes) -> Result<Self, Error> {
        if bytes.is_empty() {
            return Ok(Self::Opening);
        }
        let mut reader = Reader::new(bytes);
        let payload = match reader.u8()? {
            COMMAND => Self::Command(reader.take(reader.remaining())?),
            FOUNDING => Self::Founding(Members::decode(&mut reader)?),
            AMENDMENT => Self::Amendment(Amendment::decode(&mut reader)?),
            _ => return Err(Error::Invalid("an entry's kind")),
        };
        reader.finish()?;
        Ok(payload)
    }
}

/// Whether the entry is a command, by its first byte.
pub(crate) fn is_command(data: &[u8]) -> bool {
    data.first() == Some(&COMMAND)
}

/// Whether the entry changes who the members are, by its first byte.
pub(crate) fn is_about_members(data: &[u8]) -> bool {
    matches!(data.first(), Some(&(FOUNDING | AMENDMENT)))
}
/// The command in what is stored of an entry; `None` for an entry that carries none.
#[must_use]
pub fn command_of(stored: &Bytes) -> Option<Bytes> {
    (stored.first() == Some(&COMMAND)).then(|| stored.slice(1..))
}
