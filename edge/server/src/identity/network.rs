//! Networks as CIDR: an address and how many bits of it count.

use std::net::IpAddr;
use std::str::FromStr;

/// One network; a bare address is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// Whether the address, in canonical form, is in it.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let (one, other, width) = match (self.address, address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                (u128::from(one.to_bits()), u128::from(other.to_bits()), 32)
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits(), other.to_bits(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        // No bit counts in a network of everything, and a shift by the whole width is none.
        (one ^ other).checked_shr(width - self.bits).is_none_or(|difference| difference == 0)
    }
}

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(drop)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => bits.parse().map_err(drop)?,
            Some(_) => return Err(()),
            None => width,
        };
        if bits > width { Err(()) } else { Ok(Self { address, bits }) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_that_count_decide() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("192.0.2.4/31", "192.0.2.5", "192.0.2.6"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "ffff::1", "1.2.3.4"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{network:?} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{network:?} {outside}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in
            ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/+8", "host/8", "1.2.3.4/8/8"]
        {
            assert_eq!(bad.parse::<Network>(), Err(()), "{bad}");
        }
    }
}
