//! TLS on the client port: which files, which versions, whose certificates.
//!
//! Owns the acceptor and its reload: files are read at the start and again when asked, connections under way keep
//! what they began with. What the files must be like is checked before anything starts (`checks`).

mod checks;
pub(crate) mod files;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub(crate) use checks::{Severity, check};
use files::Files;

/// From accept to the end of the handshake.
const HANDSHAKE: Duration = Duration::from_millis(5000);
/// How often certificates are looked at for their end.
const LOOK_EVERY: Duration = Duration::from_secs(24 * 3600);

/// What TLS is served with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// Whose client certificates are believed, and whether one is needed; `None` asks for none.
    pub(crate) clients: Option<Clients>,
    pub(crate) versions: Vec<Version>,
}

/// Client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clients {
    pub(crate) authorities: PathBuf,
    pub(crate) required: bool,
}

/// A version that may be spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Tls12,
    Tls13,
}

/// Why TLS cannot be served; one line for a person, naming the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unusable(pub(crate) String);

/// Turns connections into TLS connections.
#[derive(Debug)]
pub(crate) struct Tls {
    settings: Settings,
    current: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Fails when a file cannot be read or does not hold what it should, or the key is another certificate's.
    pub(crate) fn open(settings: Settings) -> Result<Self, Unusable> {
        let config = server_config(&settings)?;
        Ok(Self { settings, current: RwLock::new(Arc::new(config)) })
    }

    /// Reads the files again, for connections that come from now on. A failure changes nothing.
    pub(crate) fn reload(&self) -> Result<(), Unusable> {
        let config = Arc::new(server_config(&self.settings)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Shakes hands, in bounded time.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let config = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await?
    }

    /// Reloads whenever the process gets a hangup, and tells daily when the certificate is about to expire.
    pub(crate) async fn watch(&self, mut hangup: tokio::signal::unix::Signal) {
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                received = hangup.recv() => {
                    if received.is_none() {
                        return;
                    }
                    match self.reload() {
                        Ok(()) => tracing::info!("certificates reloaded"),
                        Err(error) => tracing::error!(reason = %error, "certificates not reloaded"),
                    }
                    self.tell_expiry();
                }
                _ = look.tick() => self.tell_expiry(),
            }
        }
    }

    fn tell_expiry(&self) {
        match checks::expiry(&self.settings.certificate, SystemTime::now()) {
            None => {}
            Some((Severity::Warn, detail)) => tracing::warn!(detail, "certificate expires"),
            Some((Severity::Error | Severity::Stop, detail)) => {
                tracing::error!(detail, "certificate expires")
            }
        }
    }
}

fn server_config(settings: &Settings) -> Result<ServerConfig, Unusable> {
    let Files { chain, key } = Files::read(&settings.certificate, &settings.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = settings.versions.iter().map(|version| match version {
        Version::Tls12 => &TLS12,
        Version::Tls13 => &TLS13,
    });
    let versions: Vec<_> = versions.collect();
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|error| Unusable(format!("TLS versions: {error}")))?;
    let builder = match &settings.clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let roots = Arc::new(files::roots(&clients.authorities)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier = if clients.required { verifier } else { verifier.allow_unauthenticated() };
            let verifier = verifier.build().map_err(|error| unusable(&clients.authorities, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config =
        builder.with_single_cert(chain, key).map_err(|error| unusable(&settings.certificate, &error))?;
    // The order of the server's suites wins.
    config.ignore_client_order = true;
    Ok(config)
}

fn unusable(path: &Path, why: &dyn std::fmt::Display) -> Unusable {
    Unusable(format!("{}: {why}", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
