//! Whom the client believes, and what it shows of itself.
//!
//! Owns the files and the handshake. Without an authority of the caller's own, the system's are believed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Error;

/// Where it says whom to believe and what to show. The default is the system's authorities and nothing to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities, PEM: believed instead of the system's.
    pub authorities: Option<PathBuf>,
    /// Certificate chain and private key of the client, PEM; for brokers that ask for them.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Believe whoever answers. What is said stays secret from those who only listen, and from nobody else.
    pub insecure: bool,
}

/// Why TLS cannot be spoken: one line for a person, naming the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsUnusable(String);

/// TLS, ready to be spoken. Cheap to clone.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Fails when a file cannot be read or does not hold what it should, when the key is another certificate's, and
    /// when the system has no authorities and none are given.
    pub fn open(files: &TlsFiles) -> Result<Self, TlsUnusable> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsUnusable(format!("TLS versions: {error}")))?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier(files, provider)?);
        let config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let private = PrivateKeyDer::from_pem_file(key);
                let private = private.map_err(|error| unusable(key, &error))?;
                builder
                    .with_client_auth_cert(chain, private)
                    .map_err(|error| unusable(certificate, &error))?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// Shakes hands with whoever answers at `host:port`.
    pub(super) async fn connect(
        &self,
        address: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Error> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host);
        let name = name.map_err(|_| Error::Misuse("the address has no name a certificate could have"))?;
        TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await.map_err(|error| {
            let of_tls = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
            let error = Arc::new(error);
            if of_tls { Error::Tls(error) } else { Error::Unconnected(error) }
        })
    }
}

fn verifier(
    files: &TlsFiles,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsUnusable> {
    if files.insecure {
        return Ok(Arc::new(Anybody(provider)));
    }
    let roots = match &files.authorities {
        Some(path) => given_roots(path)?,
        None => system_roots()?,
    };
    let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(built.map_err(|error| TlsUnusable(format!("authorities: {error}")))?)
}

fn given_roots(path: &Path) -> Result<RootCertStore, TlsUnusable> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unusable(path, &error))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TlsUnusable> {
    let mut roots = RootCertStore::empty();
    // Systems carry certificates that nobody can use any more; those that can be used count.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(TlsUnusable("this system has no certificate authorities: name one".to_owned()));
    }
    Ok(roots)
}

/// The certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsUnusable> {
    let chain = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, &error))?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(|error| unusable(path, &error))?;
    if chain.is_empty() { Err(unusable(path, &"no certificate in PEM")) } else { Ok(chain) }
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> TlsUnusable {
    TlsUnusable(format!("{}: {why}", path.display()))
}

/// Believes everybody. That the other side has the key of the certificate it shows is still looked at.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
