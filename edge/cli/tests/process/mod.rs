//! A real broker process on ports and directories of its own.

#![allow(dead_code)]

pub(crate) mod hosts;
pub(crate) mod node;
pub(crate) mod ports;
pub(crate) mod raw;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for anything.
const DEADLINE: Duration = Duration::from_secs(30);

/// Of a broker's output, when a test fails.
const SHOWN_LINES: usize = 60;

/// Where a broker keeps its data and listens; outlives the processes that serve it.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) port: u16,
    pub(crate) dashboard: u16,
    /// Where the test reaches it, as a number; IPv6 without brackets.
    pub(crate) reached_at: String,
    /// What the program is started by, in front of it.
    pub(crate) within: Vec<String>,
    /// Further variables.
    pub(crate) env: Vec<(String, String)>,
}

/// A running broker.
pub(crate) struct Broker {
    child: Child,
    log: PathBuf,
    /// Lines of WARN or ERROR that are no failure of the test.
    expected: Vec<&'static str>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let [port, dashboard] = ports::free();
        Self {
            dir: tempfile::tempdir().unwrap(),
            port,
            dashboard,
            reached_at: "127.0.0.1".to_owned(),
            within: Vec::new(),
            env: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn log_dir(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    pub(crate) fn raft_dir(&self) -> PathBuf {
        self.dir.path().join("raft")
    }

    pub(crate) fn address(&self) -> String {
        let host = &self.reached_at;
        if host.contains(':') { format!("[{host}]:{}", self.port) } else { format!("{host}:{}", self.port) }
    }

    fn command(&self) -> Command {
        self.command_of(&["server"])
    }

    /// The program with this place's settings in its environment.
    pub(crate) fn command_of(&self, arguments: &[&str]) -> Command {
        let mut words = self.within.iter().map(String::as_str).chain([env!("CARGO_BIN_EXE_malachi")]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).args(arguments).stdin(Stdio::null());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MALACHI_")) {
            command.env_remove(name);
        }
        command
            .env_remove("RUST_LOG")
            .env("MALACHI_CONFIG_ENV", "test")
            // A test logs in more often than people do.
            .env("MALACHI_AUTH_RATE_LIMIT", "100000")
            .env("MALACHI_TCP_PORT", self.port.to_string())
            .env("MALACHI_DASHBOARD_PORT", self.dashboard.to_string())
            .env("MALACHI_LOG_DATA_DIR", self.log_dir())
            .env("MALACHI_RA_DATA_DIR", self.raft_dir())
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts a broker and waits until it serves.
    pub(crate) fn start(&self) -> Broker {
        let mut broker = self.spawn();
        wait_for("the broker to be ready", || {
            if let Some(status) = broker.child.try_wait().unwrap() {
                panic!("the broker ended with {status}:\n{}", broker.output());
            }
            self.http("/ready").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
        });
        broker
    }

    /// Starts a broker and waits for nothing.
    pub(crate) fn spawn(&self) -> Broker {
        let log = self.dir.path().join(format!("output-{}", std::process::id()));
        let file = std::fs::File::options().create(true).append(true).open(&log).unwrap();
        let child = self.command().stdout(Stdio::null()).stderr(file).spawn().unwrap();
        Broker { child, log, expected: Vec::new() }
    }

    /// Starts a broker that must not serve; gives its exit status and the last line it said.
    pub(crate) fn refused(&self) -> (Option<i32>, String) {
        let output = self.command().output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), text.lines().last().unwrap_or_default().to_owned())
    }

    /// The whole answer to a GET on the dashboard's port.
    pub(crate) fn http(&self, path: &str) -> Option<String> {
        self.http_with(path, "")
    }

    /// The same with further headers, a line each.
    pub(crate) fn http_with(&self, path: &str, headers: &str) -> Option<String> {
        let mut stream = TcpStream::connect((self.reached_at.as_str(), self.dashboard)).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n")
            .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Broker {
    pub(crate) fn expect(&mut self, part: &'static str) {
        self.expected.push(part);
    }

    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What a power loss does to a process.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop and waits for that.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.terminate();
        self.wait()
    }

    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        wait_for("the broker to end", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        let output = self.output();
        if std::thread::panicking() {
            // Every look at a broker leaves a line that somebody was let in.
            let lines: Vec<&str> = output.lines().filter(|line| !line.contains(" audit: ")).collect();
            let from = lines.len().saturating_sub(SHOWN_LINES);
            let (log, last) = (self.log.display(), lines[from..].join("\n"));
            drop(writeln!(std::io::stderr(), "{log} said last:\n{last}"));
            return;
        }
        let loud =
            |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ") || line.contains("panicked");
        let unexpected: Vec<&str> = output
            .lines()
            .filter(loud)
            .filter(|line| !self.expected.iter().any(|part| line.contains(part)))
            .collect();
        assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
    }
}

/// Looks again and again until `condition` holds; panics when it takes too long.
#[track_caller]
pub(crate) fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    assert!(wait_until(condition), "waited too long for {what}");
}

/// The same; `false` when it takes too long.
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    true
}

/// Makes a file of this content.
pub(crate) fn write(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap();
}
