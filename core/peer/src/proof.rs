//! How two nodes prove to each other that they know the same secret.
//!
//! ```text
//! proof = HMAC-SHA256(secret, label binding:blob hello_of_the_dialler:blob hello_of_the_accepter:blob)
//! ```
//!
//! The label is another for each side, so that no proof can be played back to the one who made it. Both first
//! frames are in it whole, and with them both nonces, both node ids, the cluster, and the versions offered, so that
//! none of them can be changed on the way. The binding is what the channel below has that no other channel has:
//! somebody in between who ends TLS on either side has another. The comparison is the library's, in constant time.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use types::codec::Writer;
use types::limits;

/// How a node proves itself; both sides must do it the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication {
    /// Not at all. For development: whoever reaches the port is believed.
    Open,
    /// By a secret that all nodes share.
    Secret,
    /// By certificates alone: the channel below has verified both.
    Certificate,
}

impl Authentication {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Secret => 1,
            Self::Certificate => 2,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        [Self::Open, Self::Secret, Self::Certificate].into_iter().find(|way| way.number() == number)
    }
}

impl fmt::Display for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "nothing",
            Self::Secret => "the cluster's secret",
            Self::Certificate => "certificates",
        })
    }
}

/// The secret is shorter than [`limits::PEER_SECRET_BYTES_MIN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret has at least {} bytes", limits::PEER_SECRET_BYTES_MIN)]
pub struct SecretTooShort;

/// What all nodes of a cluster know. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Takes a secret of at least [`limits::PEER_SECRET_BYTES_MIN`] bytes.
    pub fn new(secret: &[u8]) -> Result<Self, SecretTooShort> {
        if secret.len() < limits::PEER_SECRET_BYTES_MIN {
            Err(SecretTooShort)
        } else {
            Ok(Self(secret.into()))
        }
    }

    /// The secret itself, for a key to be made of it.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What a node believes a peer for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// That it knows the secret.
    Secret(Secret),
    /// That the channel below has verified its certificate. Whoever builds a link sees to that.
    Certificate,
    /// Anything: for development.
    Anybody,
}

impl Trust {
    /// How both sides prove themselves then.
    #[must_use]
    pub fn authentication(&self) -> Authentication {
        match self {
            Self::Secret(_) => Authentication::Secret,
            Self::Certificate => Authentication::Certificate,
            Self::Anybody => Authentication::Open,
        }
    }

    pub(crate) fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Secret(secret) => Some(secret),
            Self::Certificate | Self::Anybody => None,
        }
    }
}

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Dialler,
    Accepter,
}

impl Role {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Dialler => Self::Accepter,
            Self::Accepter => Self::Dialler,
        }
    }

    fn label(self) -> &'static [u8] {
        match self {
            Self::Dialler => b"malachi peer 1 dialler",
            Self::Accepter => b"malachi peer 1 accepter",
        }
    }
}

/// What both proofs are about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transcript<'a> {
    pub(crate) binding: &'a [u8],
    pub(crate) dialler: &'a [u8],
    pub(crate) accepter: &'a [u8],
}

impl Transcript<'_> {
    fn mac(&self, secret: &Secret, prover: Role) -> Hmac<Sha256> {
        let mut bytes = BytesMut::new();
        bytes.extend_from_slice(prover.label());
        bytes.put_blob(self.binding);
        bytes.put_blob(self.dialler);
        bytes.put_blob(self.accepter);
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("this code takes a key of any length");
        mac.update(&bytes);
        mac
    }

    /// The proof of one side; empty where none is asked for.
    pub(crate) fn prove(&self, secret: Option<&Secret>, prover: Role) -> Bytes {
        secret.map_or_else(Bytes::new, |secret| {
            Bytes::copy_from_slice(&self.mac(secret, prover).finalize().into_bytes())
        })
    }

    /// Whether a proof is the other side's.
    pub(crate) fn is_proved(&self, secret: Option<&Secret>, prover: Role, proof: &[u8]) -> bool {
        match secret {
            None => proof.is_empty(),
            Some(secret) => self.mac(secret, prover).verify_slice(proof).is_ok(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_secret_one_side_one_channel_and_both_hellos() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let good = Transcript { binding: b"x", dialler: b"one", accepter: b"two" };
        let proof = good.prove(Some(&secret), Role::Dialler);
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
        assert!(good.is_proved(Some(&secret), Role::Dialler, &proof));
        assert!(!good.is_proved(Some(&secret), Role::Accepter, &proof));
        assert!(!good.is_proved(Some(&secret), Role::Dialler, &proof[..31]));
        assert!(!good.is_proved(Some(&secret), Role::Dialler, b""));
        let other = Secret::new(b"0123456789abcdeg").unwrap();
        assert!(!good.is_proved(Some(&other), Role::Dialler, &proof));
        for bad in [
            Transcript { binding: b"", ..good },
            Transcript { dialler: b"onet", accepter: b"wo", ..good },
            Transcript { dialler: b"two", accepter: b"one", ..good },
        ] {
            assert!(!bad.is_proved(Some(&secret), Role::Dialler, &proof));
        }
    }

    #[test]
    fn without_a_secret_only_silence_is_a_proof() {
        let transcript = Transcript { binding: b"", dialler: b"", accepter: b"" };
        assert_eq!(transcript.prove(None, Role::Dialler), Bytes::new());
        assert!(transcript.is_proved(None, Role::Dialler, b""));
        assert!(!transcript.is_proved(None, Role::Dialler, b"x"));
    }

    #[test]
    fn a_secret_is_long_and_never_shown() {
        assert_eq!(Secret::new(b"0123456789abcde"), Err(SecretTooShort));
        assert_eq!(format!("{:?}", Secret::new(b"0123456789abcdef").unwrap()), "***");
    }

    const GOLDEN: &str = "6d52150936a712cbc4c653ee5fba85a14df7643fdd68e6c13a45a811ee7ba7a4";
}
