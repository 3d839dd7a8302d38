//! What an operator meets: settings that are refused, the password that is shown once, the metrics.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use process::Place;
use process::raw::{Raw, auth, create, frame, produce, subscribe};
use wire::{ApiKey, Payload, Response};

#[test]
fn a_configuration_that_is_wrong_is_refused_with_everything_that_is() {
    let place = Place::new();
    let file = place.dir.path().join("settings.toml");
    process::write(&file, "tcp_prot = 4040\nsegment_max_bytes = \"64MB\"\n");
    let place = place.with("MALACHI_CONFIG_FILE", file.to_str().unwrap());
    let output = place.command_of(&["server"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains("tcp_prot is not a setting; the nearest is tcp_port"), "{text}");
    assert!(lines[1].starts_with("MALACHI_SEGMENT_MAX_BYTES: \"64MB\" from "), "{text}");
    assert!(!place.log_dir().exists(), "nothing was touched");

    let checked = place.command_of(&["config", "check"]).output().unwrap();
    assert_eq!(checked.status.code(), Some(1));
    assert_eq!(String::from_utf8(checked.stdout).unwrap(), text, "the same as a start says");
}

#[test]
fn settings_come_from_a_file_and_show_says_so() {
    let place = Place::new();
    let file = place.dir.path().join("settings.toml");
    process::write(&file, "admin_pass = \"from-the-file\"\nmax_conn_per_ip = 7\n");
    let place = place.with("MALACHI_CONFIG_FILE", file.to_str().unwrap());
    let _broker = place.start();
    let mut raw = Raw::open(&place);
    raw.request(1, &auth("admin", "from-the-file"));
    assert!(raw.reply().ok);
    let shown = place.command_of(&["config", "show"]).output().unwrap();
    assert!(shown.status.success());
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("MALACHI_MAX_CONN_PER_IP\t7\tfile\n"), "{shown}");
    assert!(shown.contains("MALACHI_ADMIN_PASS\t***\tfile\n") && !shown.contains("from-the-file"), "{shown}");
    assert!(shown.contains(&format!("MALACHI_TCP_PORT\t{}\tenvironment\n", place.port)), "{shown}");
    let checked = place.command_of(&["config", "check"]).output().unwrap();
    assert!(checked.status.success());
}

#[test]
fn production_refuses_known_passwords_and_makes_one_up_that_it_shows_once() {
    let production = || Place::new().with("MALACHI_CONFIG_ENV", "prod").with("MALACHI_REQUIRE_TLS", "false");
    let (code, line) = production().with("MALACHI_ADMIN_PASS", "admin123").refused();
    assert!(code == Some(1) && line.contains("\"admin\"") && line.contains("everybody knows"), "{line}");
    assert!(!line.contains("admin123"), "{line}");
    let (code, line) = production()
        .with("MALACHI_REQUIRE_STRONG_PASSWORDS", "true")
        .with("MALACHI_APP_PASS", "short")
        .refused();
    assert!(code == Some(1) && line.contains("5 characters"), "{line}");

    let place = production();
    let mut broker = place.start();
    broker.expect("administrator created");
    let said = broker.output();
    let passwords: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("password: ")).collect();
    assert_eq!(passwords.len(), 1, "{said}");
    let password = passwords[0].to_owned();
    assert!(password.len() == 32 && said.lines().any(|line| line == "username: admin"), "{said}");
    assert_eq!(said.matches(&password).count(), 1, "{said}");
    let mut raw = Raw::open(&place);
    raw.request(1, &auth("admin", &password));
    assert!(raw.reply().ok);
    for known in ["admin123", "producer123"] {
        let mut raw = Raw::open(&place);
        raw.request(1, &auth("producer", known));
        assert!(!raw.reply().ok);
    }
    assert!(broker.stop().success());

    let mut again = place.start();
    again.expect("administrator created");
    let mut raw = Raw::open(&place);
    raw.request(1, &auth("admin", &password));
    assert!(raw.reply().ok, "the password stays");
    let said = again.output();
    assert_eq!(said.matches("password: ").count(), 1, "the second start shows none: {said}");
    assert!(again.stop().success());
}

#[test]
fn metrics_are_for_administrators_and_count_what_happened() {
    let place = Place::new();
    let _broker = place.start();
    let refused = |headers: &str, status: &str, reason: &str| {
        let answer = place.http_with("/metrics", headers).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(reason), "{answer}");
    };
    refused("", "401", "authentication_required");
    refused("Authorization: Bearer x\r\n", "403", "invalid_session");
    // producer:producer123, admin:wrong
    refused("Authorization: Basic cHJvZHVjZXI6cHJvZHVjZXIxMjM=\r\n", "403", "insufficient_permissions");
    refused("Authorization: Basic YWRtaW46d3Jvbmc=\r\n", "403", "invalid_credentials");

    let mut admin = Raw::open(&place);
    admin.request(1, &auth("admin", "admin123"));
    let Ok(Response::Ok(Payload::Token(token))) = admin.reply().decode(ApiKey::Auth) else {
        panic!("a token")
    };
    let token = String::from_utf8(token.to_vec()).unwrap();
    admin.request(2, &create("t"));
    assert!(admin.reply().ok);
    admin.request(3, &produce("t", &["a", "b"]));
    assert!(admin.reply().ok);
    admin.request(4, &produce("unknown", &["a"]));
    assert!(!admin.reply().ok);
    let mut stream = Raw::logged_in(&place, "consumer");
    stream.request(5, &subscribe("t", "g", 0));
    assert!(stream.reply().ok);

    // admin:admin123
    for credentials in [format!("Bearer {token}"), "Basic YWRtaW46YWRtaW4xMjM=".to_owned()] {
        let text = place.http_with("/metrics", &format!("Authorization: {credentials}\r\n")).unwrap();
        assert!(text.contains("content-type: text/plain; version=0.0.4"), "{text}");
        for line in [
            r#"malachi_answers_total{operation="produce",result="ok"} 1"#,
            r#"malachi_answers_total{operation="produce",result="no_such_topic"} 1"#,
            r#"malachi_connections{state="streaming"} 1"#,
            r#"malachi_connections{state="serving"} 1"#,
            r#"malachi_notices_total{kind="topic_created"} 1"#,
            "malachi_records_produced_total 2",
            "malachi_records_consumed_total 2",
            "malachi_produce_duration_seconds_count 1",
            "malachi_failed_auth_total 1",
            "malachi_streams 1",
            "malachi_topics 1",
            "malachi_open_segments 1",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
        let syncs = text.lines().find_map(|line| {
            line.strip_prefix(r#"malachi_disk_sync_duration_seconds_count{volume="log"} "#)?
                .parse::<u64>()
                .ok()
        });
        assert!(syncs.is_some_and(|syncs| syncs > 0), "{text}");
    }
    let open = Place::new().with("MALACHI_DASHBOARD_AUTH_ENABLED", "false");
    let _broker = open.start();
    assert!(open.http("/metrics").unwrap().contains("malachi_up 1\n"));
}

#[test]
fn failed_logins_over_http_are_limited_and_good_tokens_are_not() {
    let place = Place::new().with("MALACHI_DASHBOARD_AUTH_RATE_LIMIT", "2");
    let _broker = place.start();
    let good = "Authorization: Basic YWRtaW46YWRtaW4xMjM=\r\n";
    for _ in 0..5 {
        assert!(place.http_with("/metrics", good).unwrap().starts_with("HTTP/1.1 200"));
    }
    for _ in 0..2 {
        let answer = place.http_with("/metrics", "Authorization: Bearer x\r\n").unwrap();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
    let answer = place.http_with("/metrics", good).unwrap();
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("retry_after_ms"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("retry-after: "), "{answer}");
}

#[test]
fn an_http_connection_is_for_one_request_of_bounded_size() {
    let place = Place::new().with("MALACHI_DASHBOARD_MAX_HEADER_COUNT", "20");
    let broker = place.start();
    let health = place.http("/health").unwrap();
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    let many: String = (0..30).map(|n| format!("X-{n}: x\r\n")).collect();
    let answer = place.http_with("/health", &many).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let long = format!("X: {}\r\n", "x".repeat(100_000));
    // It may be closed while the request is still on its way.
    if let Some(answer) = place.http_with("/health", &long) {
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    // Without being told to, the broker closes after the answer; and one that says nothing delays no shutdown.
    let mut stream = TcpStream::connect(("127.0.0.1", place.dashboard)).unwrap();
    stream.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with(r#"{"status":"ready"}"#), "{answer}");
    let _silent = TcpStream::connect(("127.0.0.1", place.dashboard)).unwrap();
    let asked = Instant::now();
    assert!(broker.stop().success());
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
}

#[test]
fn log_lines_can_be_json() {
    let place = Place::new().with("MALACHI_LOG_FORMAT", "json");
    let broker = place.start();
    let said = broker.output();
    let ready = said.lines().find(|line| line.contains("\"ready\"")).unwrap();
    let line: serde_json::Value = serde_json::from_str(ready).unwrap();
    assert_eq!((line["message"].as_str(), line["level"].as_str()), (Some("ready"), Some("INFO")));
    assert_eq!(line["port"], place.port);
}

/// What a broker needs to serve TLS, and what a client needs to believe it.
fn certificate(dir: &std::path::Path) -> rustls::RootCertStore {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    process::write(&dir.join("cert.pem"), &certificate.pem());
    let key_file = dir.join("key.pem");
    process::write(&key_file, &key.serialize_pem());
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key_file, private).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    roots
}

#[test]
fn production_serves_tls_and_nothing_else_on_the_client_port() {
    let place = Place::new();
    let roots = certificate(place.dir.path());
    let file = |name: &str| place.dir.path().join(name).to_str().unwrap().to_owned();
    let (cert, key) = (file("cert.pem"), file("key.pem"));
    let place = place
        .with("MALACHI_CONFIG_ENV", "prod")
        .with("MALACHI_ADMIN_PASS", "a-long-passphrase")
        .with("MALACHI_TLS_CERTFILE", &cert)
        .with("MALACHI_TLS_KEYFILE", &key);
    let broker = place.start();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = std::sync::Arc::new(config);
    let log_in = || {
        let name = "localhost".try_into().unwrap();
        let connection = rustls::ClientConnection::new(config.clone(), name).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, Raw::open(&place).0);
        stream.write_all(&frame(1, &auth("admin", "a-long-passphrase"))).unwrap();
        let mut answer = [0; 4 + 6 + 5 + 43];
        stream.read_exact(&mut answer).unwrap();
        answer[8..10] == [0, 0]
    };
    assert!(log_in());
    let malachi = |args: &[&str]| {
        let mut command = place.command_of(&[&["topic", "list"], args].concat());
        command.env("MALACHI_HOST", "localhost").env("MALACHI_PORT", place.port.to_string());
        let output =
            command.env("MALACHI_USER", "admin").env("MALACHI_PASS", "a-long-passphrase").output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(malachi(&["--ca", &cert]), (true, String::new()));
    assert!(malachi(&["--insecure"]).0);
    for (args, hint) in [(&["--tls"][..], "--ca"), (&[], "--tls"), (&["--ca", &key], "key.pem")] {
        let (worked, said) = malachi(args);
        assert!(!worked && said.contains(hint), "{args:?}: {said}");
    }
    // Plaintext is no handshake: an alert or nothing, and the end.
    let mut plain = Raw::open(&place);
    plain.send(&frame(1, &auth("admin", "a-long-passphrase")));
    let mut rest = Vec::new();
    // A connection that is reset is an end too.
    let _ = plain.0.read_to_end(&mut rest);
    assert!(rest.len() < 32, "{rest:?}");
    // Certificates are read again on a hangup, and the broker goes on.
    broker.signal("-HUP");
    process::wait_for("the reload", || broker.output().contains("certificates reloaded"));
    assert!(log_in());
    assert!(broker.stop().success());
}
