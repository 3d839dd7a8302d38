//! The broker under test: a process with a directory and ports of its own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{Client, Error};

/// Longest wait for a start.
const START_MAX: Duration = Duration::from_secs(120);

pub(crate) struct Broker {
    program: String,
    dir: PathBuf,
    ports: [u16; 2],
    child: Option<Child>,
}

impl Broker {
    pub(crate) fn new(program: &str) -> Self {
        let ports = [0; 2].map(|_| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
            // Held until both are known, so that they differ.
            (listener.local_addr().expect("it is bound").port(), listener)
        });
        let ports = ports.map(|(port, _)| port);
        let dir = std::env::temp_dir().join(format!("malachi-scale-{}", std::process::id()));
        Self { program: program.to_owned(), dir, ports, child: None }
    }

    /// Starts it on what is in its directory and waits until it serves.
    pub(crate) async fn start(&mut self) -> Client {
        std::fs::create_dir_all(&self.dir).expect("the directory can be made");
        let log = std::fs::File::options().create(true).append(true).open(self.dir.join("output"));
        let child = Command::new(&self.program)
            .arg("server")
            .env("MALACHI_CONFIG_ENV", "dev")
            .env("MALACHI_TCP_PORT", self.ports[0].to_string())
            .env("MALACHI_DASHBOARD_PORT", self.ports[1].to_string())
            .env("MALACHI_LOG_DATA_DIR", self.dir.join("log"))
            .env("MALACHI_RA_DATA_DIR", self.dir.join("raft"))
            .env("MALACHI_MAX_CONN_PER_IP", "5000")
            .env("MALACHI_AUTH_RATE_LIMIT", "100000")
            .stdin(Stdio::null())
            .stderr(log.expect("the broker's output has a place"))
            .spawn();
        self.child = Some(child.expect("the program can be started"));
        let started = Instant::now();
        loop {
            match self.client().await {
                Ok(client) => return client,
                Err(error) => assert!(started.elapsed() < START_MAX, "it does not serve: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn pid(&self) -> String {
        self.child.as_ref().map(|child| child.id().to_string()).unwrap_or_default()
    }

    pub(crate) async fn client(&self) -> Result<Client, Error> {
        Client::connect(&format!("127.0.0.1:{}", self.ports[0]), "admin", "admin123").await
    }

    /// Without any warning.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().and_then(|()| child.wait()).expect("it is ours and runs");
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill().and_then(|()| child.wait()));
        }
        drop(std::fs::remove_dir_all(&self.dir));
    }
}
