//! What is looked at before TLS is served: that the files can be used at all, that the certificate is of today, that
//! nobody else reads the key.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;

use super::{Settings, Unusable, files, server_config};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Fewer can be factored.
const RSA_BITS_MIN: usize = 2048;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Somebody should look at it.
    Warn,
    /// Somebody must look at it.
    Error,
    /// Production does not start with it.
    Stop,
}

/// Everything that is wrong, worst first, each in one line that names the file. What comes with [`Unusable`] cannot
/// be served anywhere.
pub(crate) fn check(settings: &Settings, now: SystemTime) -> Result<Vec<(Severity, String)>, Unusable> {
    server_config(settings)?;
    let mut found = Vec::new();
    found.extend(expiry(&settings.certificate, now));
    found.extend(weak_key(&settings.certificate));
    found.extend(readable_key(&settings.key));
    found.sort_by_key(|(severity, _)| std::cmp::Reverse(*severity));
    Ok(found)
}

/// Whether the certificate is of another time than now, or will be soon.
pub(super) fn expiry(path: &Path, now: SystemTime) -> Option<(Severity, String)> {
    let chain = files::certificates(path).ok()?;
    let (_, certificate) = X509Certificate::from_der(chain.first()?).ok()?;
    let shown = path.display();
    let validity = certificate.validity();
    let seconds = i64::try_from(now.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()?;
    if seconds < validity.not_before.timestamp() {
        return Some((Severity::Stop, format!("{shown}: the certificate is not valid yet")));
    }
    let left = validity.not_after.timestamp() - seconds;
    if left < 0 {
        return Some((Severity::Stop, format!("{shown}: the certificate has expired")));
    }
    let left = Duration::from_secs(left.unsigned_abs());
    let days = left.as_secs() / DAY.as_secs();
    let detail = format!("{shown}: the certificate expires in {days} days");
    if left <= 7 * DAY {
        Some((Severity::Error, detail))
    } else if left <= 30 * DAY {
        Some((Severity::Warn, detail))
    } else {
        None
    }
}

fn weak_key(path: &Path) -> Option<(Severity, String)> {
    let chain = files::certificates(path).ok()?;
    let (_, certificate) = X509Certificate::from_der(chain.first()?).ok()?;
    let PublicKey::RSA(key) = certificate.public_key().parsed().ok()? else { return None };
    let bits = key.key_size();
    let detail = format!("{}: an RSA key of {bits} bits, fewer than {RSA_BITS_MIN}", path.display());
    (bits < RSA_BITS_MIN).then_some((Severity::Stop, detail))
}

fn readable_key(path: &Path) -> Option<(Severity, String)> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let detail = format!("{}: others can read the key (mode {mode:o}), 600 is enough", path.display());
    (mode & 0o077 != 0).then_some((Severity::Warn, detail))
}
