//! Mutual TLS between nodes: the same files serve for answering and for dialling.
//!
//! Both sides show a certificate of the same authority, and whoever dials checks that it is of the name it dialled.
//! Each channel has a value that no other channel has, which the proof of the secret is tied to.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::tls::files::{self, Files};

/// What a channel's own value is derived under.
const LABEL: &[u8] = b"EXPORTER-malachi-peer";
/// Bytes of it.
const BINDING_BYTES: usize = 32;

/// The files, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// This node's certificate and its chain. It needs the names it is dialled by.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities whose certificates are nodes of this cluster.
    pub authorities: PathBuf,
}

/// The files do not serve; one line for a person, naming the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(String);

/// Both ends of mutual TLS.
#[derive(Clone)]
pub struct Tls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Fails when a file cannot be read or does not hold what it should, or the key is another certificate's.
    pub fn open(settings: &TlsFiles) -> Result<Self, Unusable> {
        let unusable =
            |error: &dyn std::fmt::Display| Unusable(format!("{}: {error}", settings.certificate.display()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let read = || Files::read(&settings.certificate, &settings.key);
        let Files { chain, key } = read().map_err(|error| Unusable(error.to_string()))?;
        let roots = files::roots(&settings.authorities).map_err(|error| Unusable(error.to_string()))?;
        let roots = Arc::new(roots);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| Unusable(format!("{}: {error}", settings.authorities.display())))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| unusable(&error))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| unusable(&error))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| unusable(&error))?;
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }

    /// Whether a handshake failed over certificates: a node that somebody set up wrongly, and not a stranger who
    /// knows nothing of TLS.
    pub(super) fn is_about_certificates(error: &io::Error) -> bool {
        use rustls::{AlertDescription as Alert, Error};
        let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
        error.is_some_and(|error| {
            let of_theirs = matches!(error, Error::InvalidCertificate(_) | Error::NoCertificatesPresented);
            // The last is of an authority of the same name and another key.
            let of_ours = [
                Alert::BadCertificate,
                Alert::UnsupportedCertificate,
                Alert::CertificateExpired,
                Alert::CertificateUnknown,
                Alert::CertificateRequired,
                Alert::UnknownCA,
                Alert::DecryptError,
            ];
            of_theirs || of_ours.into_iter().any(|alert| *error == Error::AlertReceived(alert))
        })
    }

    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(server::TlsStream<TcpStream>, Bytes)> {
        let stream = TlsAcceptor::from(Arc::clone(&self.server)).accept(stream).await?;
        let binding = stream.get_ref().1.export_keying_material([0; BINDING_BYTES], LABEL, None);
        let binding = binding.map_err(io::Error::other)?;
        Ok((stream, Bytes::copy_from_slice(&binding)))
    }

    /// `host` is a name or a number, and has to be in the other side's certificate.
    pub(super) async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<(client::TlsStream<TcpStream>, Bytes)> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(&self.client)).connect(name, stream).await?;
        let binding = stream.get_ref().1.export_keying_material([0; BINDING_BYTES], LABEL, None);
        let binding = binding.map_err(io::Error::other)?;
        Ok((stream, Bytes::copy_from_slice(&binding)))
    }
}
