//! The first frame of either side: what it speaks, who it claims to be, and a nonce.
//!
//! ```text
//! hello = magic:8 version_min:u16 version_max:u16                      the same in every version
//!         authentication:u8 nonce:32 control_plane:opt<u128> node:u128 incarnation:u64 features:u64
//!         name:blob build:blob address:blob dialled:opt<u128> later:blob
//! ```
//!
//! A claim is nothing until it is proved. What a later version adds goes into the last field, which this one skips.

use bytes::{BufMut, Bytes, BytesMut};
use types::codec::{Error, Reader, Writer};
use types::{ControlPlaneId, Incarnation, NodeId, limits};

use crate::proof::Authentication;

/// What a connection between nodes begins with.
const MAGIC: &[u8; 8] = b"malachi\x01";
/// Versions of the protocol this build speaks, both ends included.
pub(crate) const VERSIONS: (u16, u16) = (1, 1);
/// Bytes of a nonce.
pub(crate) const NONCE_BYTES: usize = 32;

/// What a node says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The cluster it belongs to; `None` for a node that has not joined one.
    pub control_plane: Option<ControlPlaneId>,
    /// The life of its data directory.
    pub node: NodeId,
    /// Its incarnation at this start; a restart has a higher one.
    pub incarnation: Incarnation,
    /// Which parts of the protocol it understands beside those of the version.
    pub features: u64,
    /// Its name: 1 to 255 printable ASCII characters.
    pub name: String,
    /// Version of its build, at most 255 printable ASCII characters.
    pub build: String,
    /// Where others reach it, as `host:port`; printable ASCII, may be empty.
    pub address: String,
}

impl Claim {
    /// Whether it can be sent: its texts are printable and short enough.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.name.is_empty()
            && is_text(self.name.as_bytes(), limits::NODE_NAME_BYTES_MAX)
            && is_text(self.build.as_bytes(), limits::NODE_NAME_BYTES_MAX)
            && is_text(self.address.as_bytes(), limits::NODE_ADDRESS_BYTES_MAX)
    }
}

/// A peer that has proved what it claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Who it is.
    pub claim: Claim,
    /// The version both speak.
    pub version: u16,
}

/// One side's first frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) versions: (u16, u16),
    pub(crate) authentication: Authentication,
    pub(crate) nonce: [u8; NONCE_BYTES],
    pub(crate) claim: Claim,
    /// Whom the one who dials expects to answer.
    pub(crate) dialled: Option<NodeId>,
}

/// Why a first frame is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    Malformed(Error),
    /// No version in common; what the other side speaks.
    Versions(u16, u16),
}

impl From<Error> for Unusable {
    fn from(error: Error) -> Self {
        Self::Malformed(error)
    }
}

impl Hello {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(256);
        bytes.put_slice(MAGIC);
        bytes.put_u16(self.versions.0);
        bytes.put_u16(self.versions.1);
        bytes.put_u8(self.authentication.number());
        bytes.put_slice(&self.nonce);
        put_opt_u128(&mut bytes, self.claim.control_plane.map(|id| id.0));
        bytes.put_u128(self.claim.node.0);
        bytes.put_u64(self.claim.incarnation.0);
        bytes.put_u64(self.claim.features);
        bytes.put_blob(self.claim.name.as_bytes());
        bytes.put_blob(self.claim.build.as_bytes());
        bytes.put_blob(self.claim.address.as_bytes());
        put_opt_u128(&mut bytes, self.dialled.map(|node| node.0));
        bytes.put_blob(b"");
        bytes.freeze()
    }

    /// Reads a first frame, as far as it is of a version that is spoken here.
    pub(crate) fn decode(bytes: Bytes) -> Result<Self, Unusable> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len())? != MAGIC[..] {
            return Err(Error::Invalid("the first word").into());
        }
        let versions = (reader.u16()?, reader.u16()?);
        if versions.0 > versions.1 {
            return Err(Error::Invalid("a range of versions").into());
        }
        if common_version(VERSIONS, versions).is_none() {
            return Err(Unusable::Versions(versions.0, versions.1));
        }
        let authentication =
            Authentication::from_number(reader.u8()?).ok_or(Error::Invalid("a way of authentication"))?;
        let nonce = reader.take(NONCE_BYTES)?[..].try_into().expect("so many were taken");
        let control_plane = opt_u128(&mut reader)?.map(ControlPlaneId);
        let node = NodeId(reader.u128()?);
        let incarnation = Incarnation(reader.u64()?);
        let features = reader.u64()?;
        let name = text(&mut reader, limits::NODE_NAME_BYTES_MAX)?;
        let build = text(&mut reader, limits::NODE_NAME_BYTES_MAX)?;
        let address = text(&mut reader, limits::NODE_ADDRESS_BYTES_MAX)?;
        let dialled = opt_u128(&mut reader)?.map(NodeId);
        reader.blob()?;
        reader.finish()?;
        if name.is_empty() {
            return Err(Error::Invalid("a node's name").into());
        }
        let claim = Claim { control_plane, node, incarnation, features, name, build, address };
        Ok(Self { versions, authentication, nonce, claim, dialled })
    }
}

/// The highest version of both ranges.
pub(crate) fn common_version(ours: (u16, u16), theirs: (u16, u16)) -> Option<u16> {
    let (lowest, highest) = (ours.0.max(theirs.0), ours.1.min(theirs.1));
    (lowest <= highest).then_some(highest)
}

fn is_text(bytes: &[u8], bytes_max: usize) -> bool {
    bytes.len() <= bytes_max && bytes.iter().all(u8::is_ascii_graphic)
}

/// A printable text, so that it can be shown as it is.
pub(crate) fn text(reader: &mut Reader, bytes_max: usize) -> Result<String, Error> {
    let bytes = reader.blob()?;
    if !is_text(&bytes, bytes_max) {
        return Err(Error::Invalid("a text"));
    }
    Ok(bytes.iter().map(|byte| char::from(*byte)).collect())
}

pub(crate) fn put_opt_u128(bytes: &mut BytesMut, value: Option<u128>) {
    bytes.put_bool(value.is_some());
    if let Some(value) = value {
        bytes.put_u128(value);
    }
}

pub(crate) fn opt_u128(reader: &mut Reader) -> Result<Option<u128>, Error> {
    if reader.bool()? { reader.u128().map(Some) } else { Ok(None) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Hello {
        let claim = Claim {
            control_plane: Some(ControlPlaneId(5)),
            node: NodeId(7),
            incarnation: Incarnation(9),
            features: 3,
            name: "a@h".to_owned(),
            build: "0.1".to_owned(),
            address: "h:4043".to_owned(),
        };
        let authentication = Authentication::Secret;
        Hello { versions: VERSIONS, authentication, nonce: [0xab; 32], claim, dialled: Some(NodeId(8)) }
    }

    #[test]
    fn golden() {
        let bytes = hello().encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = [
            "6d616c6163686901",
            "00010001",
            "01",
            &"ab".repeat(32),
            "0100000000000000000000000000000005",
            "00000000000000000000000000000007",
            "0000000000000009",
            "0000000000000003",
            "00000003614068",
            "00000003302e31",
            "00000006683a34303433",
            "0100000000000000000000000000000008",
            "00000000",
        ];
        assert_eq!(hex, expected.concat());
        assert_eq!(Hello::decode(bytes), Ok(hello()));
    }

    #[test]
    fn another_version_is_told_before_anything_else_is_read() {
        let mut bytes = BytesMut::from(&hello().encode()[..12]);
        bytes[9] = 2;
        bytes[11] = 4;
        bytes.extend_from_slice(b"whatever that version says");
        assert_eq!(Hello::decode(bytes.freeze()), Err(Unusable::Versions(2, 4)));
        assert_eq!(common_version((1, 3), (2, 5)), Some(3));
        assert_eq!(common_version((4, 5), (2, 3)), None);
    }

    #[test]
    fn what_a_later_version_adds_is_skipped() {
        let bytes = hello().encode();
        let mut later = BytesMut::from(&bytes[..bytes.len() - 4]);
        later.put_blob(b"more");
        assert_eq!(Hello::decode(later.freeze()), Ok(hello()));
    }

    #[test]
    fn texts_that_cannot_be_shown_are_refused() {
        for name in ["", "a b", "a\x1b[2J", "\u{e9}", &"x".repeat(256)] {
            let mut hello = hello();
            hello.claim.name = name.to_owned();
            assert!(!hello.claim.is_valid(), "{name:?}");
            assert!(Hello::decode(hello.encode()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn the_largest_fits_the_handshake() {
        let mut hello = hello();
        hello.claim.name = "n".repeat(limits::NODE_NAME_BYTES_MAX);
        hello.claim.build = "b".repeat(limits::NODE_NAME_BYTES_MAX);
        hello.claim.address = "a".repeat(limits::NODE_ADDRESS_BYTES_MAX);
        assert!(hello.claim.is_valid());
        assert!(hello.encode().len() < limits::PEER_HANDSHAKE_BYTES_MAX / 2);
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_canonical(
            mut bytes in prop::collection::vec(any::<u8>(), 0..300),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            honest in any::<bool>(),
        ) {
            if honest {
                bytes = hello().encode().to_vec();
            }
            for (at, byte) in changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            if let Ok(hello) = Hello::decode(bytes.clone().into()) {
                prop_assert_eq!(&hello.encode()[..], &bytes[..]);
            }
        }
    }
}
