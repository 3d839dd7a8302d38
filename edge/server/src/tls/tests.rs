use std::sync::Arc;
use std::time::SystemTime;

use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::*;

/// An authority, and what it signed.
struct Pki {
    dir: tempfile::TempDir,
    authority: CertificateDer<'static>,
    client: (CertificateDer<'static>, PrivateKeyDer<'static>),
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Certificates valid for so many days from yesterday on.
fn pki(days: u32) -> Pki {
    let dir = tempfile::tempdir().unwrap();
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let signed = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let start = SystemTime::now() - DAY;
        (params.not_before, params.not_after) = (start.into(), (start + days * DAY).into());
        (params.signed_by(&key, &issuer).unwrap(), key)
    };
    let (server, server_key) = signed("localhost");
    let (client, client_key) = signed("client");
    std::fs::write(dir.path().join("cert.pem"), server.pem()).unwrap();
    std::fs::write(dir.path().join("key.pem"), server_key.serialize_pem()).unwrap();
    std::fs::write(dir.path().join("ca.pem"), authority.pem()).unwrap();
    let client_key = PrivateKeyDer::try_from(client_key.serialize_der()).unwrap();
    Pki { dir, authority: authority.der().clone(), client: (client.der().clone(), client_key) }
}

fn settings(pki: &Pki, required: Option<bool>) -> Settings {
    let file = |name: &str| pki.dir.path().join(name);
    let clients = required.map(|required| Clients { authorities: file("ca.pem"), required });
    let versions = vec![Version::Tls13, Version::Tls12];
    Settings { certificate: file("cert.pem"), key: file("key.pem"), clients, versions }
}

/// Connects and sends a word through; what the server read.
async fn through(tls: &Tls, pki: &Pki, with_certificate: bool) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(pki.authority.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let config = if with_certificate {
        let (certificate, key) = &pki.client;
        builder.with_client_auth_cert(vec![certificate.clone()], key.clone_key()).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = async move {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        stream.write_all(b"hello").await?;
        stream.shutdown().await
    };
    let server = async {
        let (stream, _) = listener.accept().await?;
        let mut stream = tls.accept(stream).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    };
    let (_, served) = tokio::join!(client, server);
    served
}

#[tokio::test]
async fn a_client_that_trusts_the_authority_gets_through() {
    let pki = pki(365);
    let tls = Tls::open(settings(&pki, None)).unwrap();
    assert_eq!(through(&tls, &pki, false).await.unwrap(), "hello");
    for version in [Version::Tls12, Version::Tls13] {
        let tls = Tls::open(Settings { versions: vec![version], ..settings(&pki, None) }).unwrap();
        assert_eq!(through(&tls, &pki, false).await.unwrap(), "hello", "{version:?}");
    }
}

#[tokio::test]
async fn a_client_certificate_is_needed_when_it_is_said_so() {
    let pki = pki(365);
    let required = Tls::open(settings(&pki, Some(true))).unwrap();
    assert!(through(&required, &pki, false).await.is_err());
    assert_eq!(through(&required, &pki, true).await.unwrap(), "hello");
    let optional = Tls::open(settings(&pki, Some(false))).unwrap();
    assert_eq!(through(&optional, &pki, false).await.unwrap(), "hello");
}

#[tokio::test]
async fn a_reload_takes_new_files_and_keeps_the_old_ones_when_it_fails() {
    let (old, new) = (pki(365), pki(365));
    let tls = Tls::open(settings(&old, None)).unwrap();
    std::fs::write(old.dir.path().join("key.pem"), "garbage").unwrap();
    assert!(tls.reload().unwrap_err().to_string().contains("key.pem"));
    assert!(through(&tls, &old, false).await.is_ok());
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(new.dir.path().join(name), old.dir.path().join(name)).unwrap();
    }
    tls.reload().unwrap();
    assert!(through(&tls, &old, false).await.is_err(), "another authority signed it");
    assert!(through(&tls, &new, false).await.is_ok());
}

#[test]
fn what_cannot_be_served_names_the_file() {
    let (one, other) = (pki(365), pki(365));
    let good = settings(&one, Some(true));
    let elsewhere = |name: &str| other.dir.path().join(name);
    std::fs::write(elsewhere("empty.pem"), "").unwrap();
    for (bad, part) in [
        (Settings { certificate: elsewhere("none.pem"), ..good.clone() }, "none.pem"),
        (Settings { certificate: elsewhere("empty.pem"), ..good.clone() }, "empty"),
        (Settings { certificate: elsewhere("key.pem"), ..good.clone() }, "no certificate"),
        (Settings { key: elsewhere("cert.pem"), ..good.clone() }, "no private key"),
        (Settings { key: elsewhere("key.pem"), ..good.clone() }, "cert.pem"),
        (
            Settings {
                clients: Some(Clients { authorities: elsewhere("key.pem"), required: true }),
                ..good.clone()
            },
            "no certificate",
        ),
    ] {
        let error = check(&bad, SystemTime::now()).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn the_certificate_must_be_of_today_and_the_key_of_nobody_else() {
    let (pki, now) = (pki(100), SystemTime::now());
    let settings = settings(&pki, None);
    let key = pki.dir.path().join("key.pem");
    let set_mode = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&key, permissions).unwrap();
    };
    set_mode(0o600);
    let worst = |now| check(&settings, now).unwrap().first().map(|(severity, _)| *severity);
    assert_eq!(worst(now), None);
    assert_eq!(worst(now - 2 * DAY), Some(Severity::Stop), "not valid yet");
    assert_eq!(worst(now + 80 * DAY), Some(Severity::Warn));
    assert_eq!(worst(now + 95 * DAY), Some(Severity::Error));
    assert_eq!(worst(now + 101 * DAY), Some(Severity::Stop), "expired");
    set_mode(0o644);
    let found = check(&settings, now).unwrap();
    assert!(found[0].0 == Severity::Warn && found[0].1.contains("mode 644"), "{found:?}");
}
