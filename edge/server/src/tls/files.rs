//! The PEM files.

use std::fs;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Unusable;

/// More is no certificate.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What the server shows and proves.
pub(crate) struct Files {
    /// The server's certificate first.
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Files {
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, Unusable> {
        let chain = certificates(certificate)?;
        let unusable = |error| Unusable(format!("{}: no private key in PEM: {error}", key.display()));
        let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(unusable)?;
        Ok(Self { chain, key })
    }
}

/// The certificates of a file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let unusable = |why: &str| Unusable(format!("{}: {why}", path.display()));
    let content = read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let chain = chain.map_err(|error| unusable(&error.to_string()))?;
    if chain.is_empty() { Err(unusable("no certificate in PEM")) } else { Ok(chain) }
}

/// The authorities of a file.
pub(crate) fn roots(path: &Path) -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| Unusable(format!("{}: {error}", path.display())))?;
    }
    Ok(roots)
}

fn read(path: &Path) -> Result<Vec<u8>, Unusable> {
    let unusable = |why: String| Unusable(format!("{}: {why}", path.display()));
    let metadata = fs::metadata(path).map_err(|error| unusable(error.to_string()))?;
    if !metadata.is_file() {
        return Err(unusable("not a file".to_owned()));
    }
    match metadata.len() {
        0 => Err(unusable("empty".to_owned())),
        len if len > FILE_BYTES_MAX => Err(unusable(format!("more than {FILE_BYTES_MAX} bytes"))),
        _ => fs::read(path).map_err(|error| unusable(error.to_string())),
    }
}
