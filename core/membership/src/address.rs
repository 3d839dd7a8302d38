//! Where a node says it can be reached.

use std::fmt;
use std::sync::Arc;

use types::limits;

/// Text that is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address is 1 to {max} bytes of printable ASCII without spaces", max = limits::NODE_ADDRESS_BYTES_MAX)]
pub struct InvalidAddress;

/// A host, by name or number, and a port, as text: `name:port`, `1.2.3.4:port`, `[::1]:port`. Opaque here; whoever
/// sends resolves it, anew each time. Cheap to copy.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(Arc<str>);

impl Address {
    /// Checks and takes an address that came from outside.
    pub fn new(text: &[u8]) -> Result<Self, InvalidAddress> {
        let fits = !text.is_empty() && text.len() <= limits::NODE_ADDRESS_BYTES_MAX;
        if !fits || !text.iter().all(u8::is_ascii_graphic) {
            return Err(InvalidAddress);
        }
        let text = std::str::from_utf8(text).map_err(|_| InvalidAddress)?;
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_short_printable_text() {
        for good in ["a:1", "10.0.0.1:4043", "[2001:db8::1]:4043", "node-1.example:4043", &"x".repeat(262)] {
            assert_eq!(Address::new(good.as_bytes()).unwrap().as_str(), good);
        }
        for bad in ["", "a b:1", "a\n:1", "\u{e9}:1", &"x".repeat(263)] {
            assert_eq!(Address::new(bad.as_bytes()), Err(InvalidAddress), "{bad}");
        }
    }
}
