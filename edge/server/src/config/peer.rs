//! How this node meets the others: its port, where it can be reached, and how nodes prove themselves.
//!
//! Nodes of a cluster know a secret, or show certificates, or both. Production takes no cluster without either.

use std::path::PathBuf;

use peer::Secret;
use types::limits;

use super::{Environment, Values, cluster};
use crate::peer::{Tls, TlsFiles};

/// The peer port and its protection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) port: u16,
    /// Where others reach it, as `host:port`, when the operator says so.
    pub(crate) address: Option<String>,
    /// What all nodes know.
    pub(crate) secret: Option<Secret>,
    /// Mutual TLS, if it is on.
    pub(crate) tls: Option<Tls>,
}

/// The files of mutual TLS, in the order they are asked for.
const FILES: [&str; 3] = ["PEER_TLS_CERTFILE", "PEER_TLS_KEYFILE", "PEER_TLS_CACERTFILE"];

pub(super) fn peer(values: &mut Values, environment: Environment) -> Peer {
    let port = u16::try_from(values.number("PEER_PORT")).expect("a port has 16 bits");
    for name in ["TCP_PORT", "DASHBOARD_PORT"] {
        if values.number(name) == u64::from(port) {
            let blamed = if values.is_set("PEER_PORT") { "PEER_PORT" } else { name };
            let other = if blamed == name { "PEER_PORT" } else { name };
            values.refuse(blamed, &format!("is the port of MALACHI_{other} too"));
        }
    }
    let peer = Peer { port, address: address(values, port), secret: secret(values), tls: tls(values) };
    if cluster::meets(values) && peer.secret.is_none() && peer.tls.is_none() {
        let problem = "is not set, and nodes do not prove themselves by certificates (MALACHI_DIST_TLS) either: \
                       whoever reaches the peer port would be believed";
        if environment == Environment::Production {
            values.refuse("CLUSTER_SECRET", problem);
        } else {
            values.warnings.push(format!("MALACHI_CLUSTER_SECRET {problem}"));
        }
    }
    peer
}

/// With the node's own port when it names none.
fn address(values: &mut Values, port: u16) -> Option<String> {
    let address = values.text("PEER_ADDRESS").unwrap_or_default().trim().to_owned();
    if address.is_empty() {
        return None;
    }
    // An IPv6 number has colons of its own, so it needs its brackets.
    let has_port = address.rsplit_once(':').is_some_and(|(host, port)| {
        let is_host = host.ends_with(']') || !host.contains(':');
        !host.is_empty() && is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    let is_host = !address.contains(':') || (address.starts_with('[') && address.ends_with(']'));
    let whole = if has_port { address.clone() } else { format!("{address}:{port}") };
    let is_short = whole.len() <= limits::NODE_ADDRESS_BYTES_MAX;
    if !(has_port || is_host) || !is_short || !whole.bytes().all(|byte| byte.is_ascii_graphic()) {
        values.refuse("PEER_ADDRESS", "is no host and no host:port; IPv6 numbers stand in brackets");
        return None;
    }
    Some(whole)
}

fn secret(values: &mut Values) -> Option<Secret> {
    let secret = values.text("CLUSTER_SECRET").unwrap_or_default().to_owned();
    if secret.is_empty() {
        return None;
    }
    match Secret::new(secret.as_bytes()) {
        Ok(secret) => Some(secret),
        Err(too_short) => {
            values.refuse("CLUSTER_SECRET", &format!("is too short: {too_short}"));
            None
        }
    }
}

fn tls(values: &mut Values) -> Option<Tls> {
    let files = FILES.map(|name| values.text(name).filter(|path| !path.is_empty()).map(PathBuf::from));
    if !values.flag("DIST_TLS") {
        // What looks protected and is not would be worse than plaintext.
        if let Some((name, _)) = FILES.iter().zip(&files).find(|(_, file)| file.is_some()) {
            values.refuse(name, "is set, and MALACHI_DIST_TLS is not `true`");
        }
        return None;
    }
    for (name, file) in FILES.iter().zip(&files) {
        if file.is_none() {
            values.refuse(name, "is not set, and MALACHI_DIST_TLS=true needs it");
        }
    }
    let [Some(certificate), Some(key), Some(authorities)] = files else { return None };
    match Tls::open(&TlsFiles { certificate, key, authorities }) {
        Ok(tls) => Some(tls),
        Err(unusable) => {
            values.refuse("PEER_TLS_CERTFILE", &format!("cannot be used: {unusable}"));
            None
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::sources::Sources;
    use super::super::{Loaded, load_from};
    use super::*;

    fn load(environment: &str, pairs: &[(&str, &str)]) -> Result<Loaded, Vec<String>> {
        let plain = [("CONFIG_ENV", environment), ("REQUIRE_TLS", "false")];
        let pairs = plain.iter().chain(pairs);
        let pairs = pairs.map(|(name, text)| (format!("MALACHI_{name}"), (*text).to_owned()));
        let loaded = load_from(Sources::read(pairs, None));
        loaded.map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    fn refused(pairs: &[(&str, &str)]) -> String {
        load("dev", pairs).unwrap_err().join("\n")
    }

    #[test]
    fn nothing_set_is_a_node_of_its_own() {
        let peer = load("prod", &[]).unwrap().config.peer;
        assert_eq!((peer.port, peer.address, peer.secret), (4043, None, None));
        assert!(peer.tls.is_none());
    }

    #[test]
    fn production_takes_no_cluster_whose_nodes_prove_nothing() {
        let cluster = ("CLUSTER_STRATEGY", "gossip");
        let lines = load("prod", &[cluster]).unwrap_err();
        assert!(lines.len() == 1 && lines[0].contains("MALACHI_CLUSTER_SECRET"), "{lines:?}");
        let warnings = load("dev", &[cluster]).unwrap().warnings;
        assert!(warnings.iter().any(|line| line.contains("MALACHI_CLUSTER_SECRET")), "{warnings:?}");
        let secret = ("CLUSTER_SECRET", "0123456789abcdef");
        let loaded = load("prod", &[cluster, secret]).unwrap();
        assert_eq!(loaded.config.peer.secret, Some(Secret::new(b"0123456789abcdef").unwrap()));
        let line = refused(&[("CLUSTER_SECRET", "short")]);
        assert!(line.contains("at least 16 bytes") && !line.contains("short\""), "{line}");
    }

    #[test]
    fn an_address_is_a_host_with_or_without_a_port() {
        let address =
            |text: &str| load("dev", &[("PEER_ADDRESS", text)]).map(|loaded| loaded.config.peer.address);
        for (text, whole) in [
            ("h.example", "h.example:4043"),
            ("h.example:5", "h.example:5"),
            ("10.0.0.1", "10.0.0.1:4043"),
            ("[::1]", "[::1]:4043"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(address(text), Ok(Some(whole.to_owned())));
        }
        assert_eq!(address(" "), Ok(None));
        for bad in ["::1", "h:0", "h:x", ":5", "a b", &"h".repeat(300)] {
            assert!(address(bad).unwrap_err()[0].contains("MALACHI_PEER_ADDRESS"), "{bad}");
        }
    }

    #[test]
    fn ports_differ_and_tls_is_whole_or_not_at_all() {
        assert!(refused(&[("PEER_PORT", "4040")]).contains("MALACHI_PEER_PORT"));
        assert!(refused(&[("TCP_PORT", "4043")]).contains("MALACHI_TCP_PORT"));
        assert!(refused(&[("PEER_TLS_KEYFILE", "k.pem")]).contains("MALACHI_DIST_TLS"));
        assert_eq!(load("dev", &[("DIST_TLS", "true")]).unwrap_err().len(), 3);
        let files = [
            ("DIST_TLS", "true"),
            ("PEER_TLS_CERTFILE", "none.pem"),
            ("PEER_TLS_KEYFILE", "none.pem"),
            ("PEER_TLS_CACERTFILE", "none.pem"),
        ];
        assert!(refused(&files).contains("none.pem"));
    }
}
