//! Which network addresses may be called.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;
use tidemill_types::{Error, Result};

/// A run of addresses: `10.1.2.3`, `10.0.0.0/8`, `fd00::/8`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    first: IpAddr,
    /// Leading bits that are the same.
    bits: u8,
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(
                "invalid-config",
                format!(
                    "{text:?} is neither an address nor a network; write 10.1.2.3, 10.0.0.0/8 or fd00::/8"
                ),
            )
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().map_err(|_| wrong())?,
        };
        if bits > most {
            return Err(wrong());
        }
        Ok(Self { first, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

impl Network {
    /// Whether an address is one of it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let differ = u32::from(first) ^ u32::from(address);
                differ.leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let differ = u128::from(first) ^ u128::from(address);
                differ.leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }
}

/// Addresses that may be called beside public ones. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Networks(Arc<[Network]>);

impl FromIterator<Network> for Networks {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

impl Networks {
    /// Whether an address may be called; if not, why, in words.
    ///
    /// # Errors
    /// When it may not.
    pub fn check(&self, address: IpAddr) -> Result<(), String> {
        let address = address.to_canonical();
        if is_public(address) || self.0.iter().any(|network| network.contains(address)) {
            return Ok(());
        }
        Err(format!(
            "{address}, which isn't a public address; the host's operator may allow it by grants.addresses"
        ))
    }
}

/// Whether an address is one of the internet's at large: whatever is special (loopback, private, link-local,
/// shared, documentation, multicast, tunnels to any of them) isn't. After the registries of special addresses,
/// RFC 6890.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || a == 0
        || (a == 100 && b & 0xc0 == 64)
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && b & 0xfe == 18)
        // Multicast, reserved, broadcast.
        || a >= 224;
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let global = a & 0xe000 == 0x2000;
    // Protocols (Teredo among them), 6to4, documentation.
    let special = (a == 0x2001 && b < 0x200)
        || a == 0x2002
        || (a == 0x2001 && b == 0xdb8)
        || (a == 0x3fff && b & 0xf000 == 0);
    global && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn what_is_special_is_not_public() {
        let special = [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::",
            "3fff::1",
        ];
        let none = Networks::default();
        for text in special {
            let refused = none.check(address(text)).expect_err(text);
            assert!(refused.contains("grants.addresses"), "{refused}");
        }
        for text in [
            "1.1.1.1",
            "100.128.0.1",
            "172.32.0.1",
            "198.20.0.1",
            "::ffff:1.1.1.1",
            "2606:4700::1111",
        ] {
            assert_eq!(none.check(address(text)), Ok(()), "{text}");
        }
    }

    #[test]
    fn networks_are_what_their_leading_bits_say() {
        let some: Networks = ["127.0.0.1", "10.1.0.0/16", "fd00::/8"]
            .iter()
            .map(|text| text.parse().expect("a network"))
            .collect();
        for text in ["127.0.0.1", "10.1.255.255", "fd12::1", "::ffff:10.1.0.1"] {
            assert_eq!(some.check(address(text)), Ok(()), "{text}");
        }
        for text in ["127.0.0.2", "10.2.0.0", "fc00::1"] {
            assert!(some.check(address(text)).is_err(), "{text}");
        }
        let all: Network = "0.0.0.0/0".parse().expect("a network");
        assert!(all.contains(address("192.168.0.1")) && !all.contains(address("::1")));
        assert_eq!(all.to_string(), "0.0.0.0/0");
        for wrong in [
            "",
            "10.0.0",
            "10.0.0.0/33",
            "::/129",
            "localhost",
            "10.0.0.0/x",
        ] {
            let refused = wrong.parse::<Network>().expect_err(wrong);
            assert!(refused.detail.contains("10.0.0.0/8"), "{refused}");
        }
    }
}
