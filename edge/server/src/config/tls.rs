//! Whether the client port speaks TLS, and with what.
//!
//! Production speaks it unless told not to; elsewhere it is switched on. What production refuses, development warns
//! about, as long as it can be served at all.

use std::path::PathBuf;
use std::time::SystemTime;

use super::{Environment, Values};
use crate::tls::{Clients, Settings, Severity, Version, check};

/// Versions that were, once.
const OUTDATED: [&str; 4] = ["tlsv1.1", "tlsv1", "sslv3", "sslv2"];

/// `None` is plaintext.
pub(super) fn tls(values: &mut Values, environment: Environment) -> Option<Settings> {
    let production = environment == Environment::Production;
    let (required, enabled) = (values.flag("REQUIRE_TLS"), values.flag("ENABLE_TLS"));
    if !(if production { required } else { enabled }) {
        if required {
            let warning = "MALACHI_REQUIRE_TLS: without MALACHI_ENABLE_TLS=true the client port is plaintext";
            values.warnings.push(warning.to_owned());
        }
        return None;
    }
    let versions = versions(values, production);
    let clients = clients(values);
    let [certificate, key] = ["TLS_CERTFILE", "TLS_KEYFILE"].map(|name| path(values, name));
    for (name, path) in [("TLS_CERTFILE", &certificate), ("TLS_KEYFILE", &key)] {
        if path.is_none() {
            values.refuse(name, "is not set, and TLS is on; MALACHI_REQUIRE_TLS=false serves plaintext");
        }
    }
    let settings = Settings { certificate: certificate?, key: key?, clients: clients?, versions: versions? };
    match check(&settings, SystemTime::now()) {
        Ok(found) => {
            for (severity, detail) in found {
                if production && severity == Severity::Stop {
                    values.refuse("TLS_CERTFILE", &format!("cannot be served: {detail}"));
                } else {
                    values.warnings.push(format!("TLS: {detail}"));
                }
            }
        }
        Err(unusable) => values.refuse("TLS_CERTFILE", &format!("cannot be served: {unusable}")),
    }
    Some(settings)
}

fn versions(values: &mut Values, production: bool) -> Option<Vec<Version>> {
    let mut versions = Vec::new();
    for item in values.list("TLS_VERSIONS").to_vec() {
        match item.as_str() {
            "tlsv1.3" => versions.push(Version::Tls13),
            "tlsv1.2" => versions.push(Version::Tls12),
            outdated if OUTDATED.contains(&outdated) && !production => {
                values.warnings.push(format!("MALACHI_TLS_VERSIONS: {outdated} is not spoken"));
            }
            _ => {
                let problem = format!("names {item:?}; spoken are tlsv1.3 and tlsv1.2");
                values.refuse("TLS_VERSIONS", &problem);
                return None;
            }
        }
    }
    if versions.is_empty() {
        values.refuse("TLS_VERSIONS", "leaves no version that is spoken: tlsv1.3, tlsv1.2");
        return None;
    }
    Some(versions)
}

/// The outer `None` when it was refused, the inner one when clients are not asked.
#[expect(clippy::option_option, reason = "refused, not asked, asked")]
fn clients(values: &mut Values) -> Option<Option<Clients>> {
    let required = values.flag("TLS_FAIL_IF_NO_PEER_CERT");
    if values.text("TLS_VERIFY") != Some("verify_peer") {
        if required {
            let warning =
                "MALACHI_TLS_FAIL_IF_NO_PEER_CERT: without MALACHI_TLS_VERIFY=verify_peer nobody is asked";
            values.warnings.push(warning.to_owned());
        }
        return Some(None);
    }
    let Some(authorities) = path(values, "TLS_CACERTFILE") else {
        values.refuse("TLS_VERIFY", "needs MALACHI_TLS_CACERTFILE");
        return None;
    };
    Some(Some(Clients { authorities, required }))
}

fn path(values: &Values, name: &str) -> Option<PathBuf> {
    values.text(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}
