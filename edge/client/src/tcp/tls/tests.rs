use std::time::Duration;

use bytes::BytesMut;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use wire::Effect;

use super::*;
use crate::{Options, Transport};

const DEADLINE: Duration = Duration::from_secs(20);

/// An authority, a broker's certificate and a client's.
struct Pki {
    dir: tempfile::TempDir,
    server: Arc<ServerConfig>,
}

impl Pki {
    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn files(&self) -> TlsFiles {
        TlsFiles { authorities: Some(self.file("ca.pem")), ..TlsFiles::default() }
    }

    fn files_with_identity(&self) -> TlsFiles {
        TlsFiles { identity: Some((self.file("client.pem"), self.file("client.key"))), ..self.files() }
    }
}

/// `asks`: whether the broker wants a client's certificate.
fn pki(asks: bool) -> Pki {
    let dir = tempfile::tempdir().unwrap();
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let signed = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &issuer).unwrap(), key)
    };
    let ((server, server_key), (client, client_key)) = (signed("localhost"), signed("client"));
    std::fs::write(dir.path().join("ca.pem"), authority.pem()).unwrap();
    std::fs::write(dir.path().join("client.pem"), client.pem()).unwrap();
    std::fs::write(dir.path().join("client.key"), client_key.serialize_pem()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = if asks {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivateKeyDer::try_from(server_key.serialize_der()).unwrap();
    let server = builder.with_single_cert(vec![server.der().clone()], key).unwrap();
    Pki { dir, server: Arc::new(server) }
}

/// A port on which one connection is echoed.
async fn echo(pki: &Pki) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::clone(&pki.server));
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        // A client that is not content leaves.
        let Ok(stream) = acceptor.accept(stream).await else { return };
        let (mut read, mut write) = tokio::io::split(stream);
        let _ = tokio::io::copy(&mut read, &mut write).await;
    });
    port
}

fn options(port: u16, files: &TlsFiles) -> Options {
    // A name, because the certificate is for one.
    let tls = Some(Tls::open(files).unwrap());
    Options { tls, ..Options::new(format!("localhost:{port}"), "u", "p") }
}

async fn open(port: u16, files: &TlsFiles) -> Result<Transport, Error> {
    timeout(DEADLINE, Transport::open(&options(port, files))).await.unwrap()
}

/// Sends so much and waits until it came back.
async fn through(transport: &mut Transport, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
    let (mut outgoing, mut incoming) = (BytesMut::from(&sent[..]), BytesMut::new());
    let work = async {
        while incoming.len() < bytes {
            assert_ne!(transport.transfer(&mut outgoing, &mut incoming).await.unwrap(), Some(0));
        }
    };
    timeout(DEADLINE, work).await.unwrap();
    assert!(outgoing.is_empty() && incoming == sent);
}

#[tokio::test]
async fn both_ways_go_on_side_by_side() {
    let pki = pki(false);
    let mut transport = open(echo(&pki).await, &pki.files()).await.unwrap();
    // Far more than sockets and TLS keep: whoever only sent would wait for ever.
    for bytes in [1, 100, 32 * 1024 * 1024, 3] {
        through(&mut transport, bytes).await;
    }
}

/// TLS takes more than the socket does: the rest leaves without another byte to send.
#[tokio::test]
async fn what_was_taken_leaves_by_itself() {
    let pki = pki(false);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::clone(&pki.server));
    let (tell, told) = tokio::sync::oneshot::channel::<usize>();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        let mut received = vec![0; told.await.unwrap()];
        stream.read_exact(&mut received).await.unwrap();
        stream.write_all(&[1]).await.unwrap();
        stream.flush().await.unwrap();
    });
    let mut transport = open(port, &pki.files()).await.unwrap();
    let (mut outgoing, mut incoming) = (BytesMut::new(), BytesMut::new());
    let mut taken = 0;
    // Until neither the socket nor TLS takes more.
    loop {
        outgoing.resize(16 * 1024, 7);
        if timeout(Duration::from_millis(500), transport.transfer(&mut outgoing, &mut incoming))
            .await
            .is_err()
        {
            break;
        }
        taken += 16 * 1024 - outgoing.len();
    }
    outgoing.clear();
    tell.send(taken).unwrap();
    let work = async {
        while incoming.is_empty() {
            assert_ne!(transport.transfer(&mut outgoing, &mut incoming).await.unwrap(), Some(0));
        }
    };
    timeout(DEADLINE, work).await.unwrap();
}

#[tokio::test]
async fn an_authority_nobody_named_is_not_believed_unless_one_asks_for_that() {
    let (pki, other) = (pki(false), self::pki(false));
    let error = open(echo(&pki).await, &other.files()).await.unwrap_err();
    assert!(matches!(error, Error::Tls(_)) && error.effect() == Effect::None, "{error}");
    let insecure = TlsFiles { insecure: true, ..TlsFiles::default() };
    through(&mut open(echo(&pki).await, &insecure).await.unwrap(), 10).await;
}

#[tokio::test]
async fn a_certificate_is_for_the_name_that_was_asked_for() {
    let pki = pki(false);
    let port = echo(&pki).await;
    let tls = Some(Tls::open(&pki.files()).unwrap());
    let by_address = Options { tls, ..Options::new(format!("127.0.0.1:{port}"), "u", "p") };
    let error = timeout(DEADLINE, Transport::open(&by_address)).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Tls(_)), "{error}");
}

#[tokio::test]
async fn a_broker_that_asks_is_shown_who_it_is() {
    let pki = pki(true);
    through(&mut open(echo(&pki).await, &pki.files_with_identity()).await.unwrap(), 10).await;
    // Whether the refusal comes with the handshake or after it is the version's to say.
    let told = async {
        let mut transport = open(echo(&pki).await, &pki.files()).await?;
        let mut answer = [0];
        let read = transport.read_exact(&mut answer).await;
        read.map(drop).map_err(|error| Error::Tls(Arc::new(error)))
    };
    assert!(told.await.is_err());
}

#[tokio::test]
async fn plaintext_is_told_from_a_bad_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&[0, 0, 0, 9, 0, 0, 0, 0, 0, 1, 1]).await.unwrap();
        // Until the client has read it.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        // The next one is closed without a word.
        drop(listener.accept().await);
    });
    let pki = pki(false);
    let error = open(port, &pki.files()).await.unwrap_err();
    assert!(matches!(error, Error::Tls(_)), "{error}");
    let error = open(port, &pki.files()).await.unwrap_err();
    assert!(matches!(error, Error::Unconnected(_)), "{error}");
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let pki = pki(false);
    let empty = pki.file("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    let (missing, client) = (pki.file("missing.pem"), pki.file("client.pem"));
    for (files, named) in [
        (TlsFiles { authorities: Some(missing.clone()), ..TlsFiles::default() }, &missing),
        (TlsFiles { authorities: Some(empty.clone()), ..TlsFiles::default() }, &empty),
        (TlsFiles { identity: Some((client.clone(), missing.clone())), ..pki.files() }, &missing),
        (TlsFiles { identity: Some((client.clone(), empty.clone())), ..pki.files() }, &empty),
    ] {
        let error = Tls::open(&files).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: ", named.display())), "{error}");
    }
}
