//! Why a request of this client failed.

use std::io;
use std::sync::Arc;

use wire::{Effect, Reason};

/// Why a request failed. Cheap to clone: a broken connection fails all that were in flight.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The broker refused it or failed at it.
    #[error("{0}")]
    Refused(Reason),
    /// The same, with a reason that a later broker knows and this build does not.
    #[error("{0}")]
    RefusedUnknown(String),
    /// The last of several attempts was refused, and an earlier one, which was not answered, may have been stored.
    #[error("{0}; an earlier attempt was not answered and may be stored")]
    InDoubt(Arc<Self>),
    /// The operating system reported a failure; the request may have arrived.
    #[error("{0}")]
    Network(Arc<io::Error>),
    /// The request was never sent, because no connection could be made.
    #[error("{0}")]
    Unconnected(Arc<io::Error>),
    /// The broker is not who it should be, or does not speak TLS; nothing was sent.
    #[error("TLS: {0}")]
    Tls(Arc<io::Error>),
    /// The broker closed the connection without a word.
    #[error("the server closed the connection")]
    Closed,
    /// No answer came in time; the request may have arrived.
    #[error("no answer in time")]
    TimedOut,
    /// The other side does not speak the protocol.
    #[error("the server sent something that is not an answer: {0}")]
    Protocol(String),
    /// The call cannot mean anything; nothing was sent.
    #[error("{0}")]
    Misuse(&'static str),
    /// The request is larger than any frame may be; it was not sent.
    #[error("the request has {bytes} bytes, a frame holds {max}")]
    TooLarge {
        /// Bytes it has.
        bytes: usize,
        /// Bytes allowed.
        max: usize,
    },
}

impl Error {
    /// What the failed request may have left behind.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Refused(reason) => reason.effect(),
            Self::Unconnected(_) | Self::Tls(_) | Self::Misuse(_) | Self::TooLarge { .. } => Effect::None,
            Self::RefusedUnknown(_)
            | Self::InDoubt(_)
            | Self::Network(_)
            | Self::Closed
            | Self::TimedOut
            | Self::Protocol(_) => Effect::Unknown,
        }
    }

    /// The broker's reason, when it gave one that this build knows.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Refused(reason) => Some(*reason),
            Self::InDoubt(last) => last.reason(),
            Self::RefusedUnknown(_)
            | Self::Network(_)
            | Self::Unconnected(_)
            | Self::Tls(_)
            | Self::Closed
            | Self::TimedOut
            | Self::Protocol(_)
            | Self::Misuse(_)
            | Self::TooLarge { .. } => None,
        }
    }

    /// Whether it is about reaching the broker rather than about what was asked.
    #[must_use]
    pub fn is_network(&self) -> bool {
        match self {
            Self::Network(_) | Self::Unconnected(_) | Self::Closed => true,
            Self::InDoubt(last) => last.is_network(),
            Self::Refused(_)
            | Self::RefusedUnknown(_)
            | Self::Tls(_)
            | Self::TimedOut
            | Self::Protocol(_)
            | Self::Misuse(_)
            | Self::TooLarge { .. } => false,
        }
    }

    /// Whether what failed is the connection and not what was asked: a request that does no harm when it
    /// happens twice may be sent again on a new one.
    #[must_use]
    pub fn lost_connection(&self) -> bool {
        match self {
            Self::Network(_) | Self::Unconnected(_) | Self::Closed | Self::TimedOut => true,
            Self::Refused(reason) => *reason == Reason::ServerShutdown,
            Self::InDoubt(last) => last.lost_connection(),
            Self::RefusedUnknown(_)
            | Self::Tls(_)
            | Self::Protocol(_)
            | Self::Misuse(_)
            | Self::TooLarge { .. } => false,
        }
    }
}
