//! The flags every client command has, and what a failure to reach the broker looks like.

use std::io::BufRead;
use std::path::PathBuf;

use anyhow::{Context, bail};
use client::{Client, Error, Options, Reason, Tls, TlsFiles};

use crate::print;

/// User and password of development brokers; production has no default ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Login {
    user: &'static str,
    password: &'static str,
}

/// For commands that append.
pub(crate) const PRODUCER: Login = Login { user: "producer", password: "producer123" };
/// For commands that read.
pub(crate) const CONSUMER: Login = Login { user: "consumer", password: "consumer123" };

/// For commands that manage.
pub(crate) const ADMIN: Login = Login { user: "admin", password: "admin123" };
/// For commands that do both.
pub(crate) const APP: Login = Login { user: "app", password: "app123" };

/// Which broker, and as whom.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connect {
    /// Broker's host
    #[arg(long, env = "MALACHI_HOST", default_value = "localhost")]
    host: String,
    /// Broker's port
    #[arg(long, env = "MALACHI_PORT", default_value_t = 4040, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Further brokers of the same cluster, host:port, asked when that one does not answer
    #[arg(long = "other", env = "MALACHI_OTHERS", value_name = "HOST:PORT", value_delimiter = ',')]
    others: Vec<String>,
    /// User, its password in MALACHI_PASS; without it the command's user of development brokers
    #[arg(long, env = "MALACHI_USER")]
    user: Option<String>,
    /// Take the password from the first line of standard input instead
    #[arg(long)]
    pub(crate) password_stdin: bool,
    #[command(flatten)]
    tls: TlsFlags,
}

/// How to speak TLS; each of them turns it on.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
struct TlsFlags {
    /// Speak TLS; so does each of the flags below
    #[arg(long)]
    tls: bool,
    /// Authorities to believe, PEM; without it the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Certificate to show to the broker, PEM
    #[arg(long, value_name = "FILE", requires = "cert_key")]
    cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    cert_key: Option<PathBuf>,
    /// Believe whoever answers
    #[arg(long)]
    insecure: bool,
}

impl TlsFlags {
    fn wanted(&self) -> bool {
        self.tls || self.ca.is_some() || self.cert.is_some() || self.insecure
    }

    fn open(&self) -> anyhow::Result<Option<Tls>> {
        if !self.wanted() {
            return Ok(None);
        }
        let files = TlsFiles {
            authorities: self.ca.clone(),
            identity: self.cert.clone().zip(self.cert_key.clone()),
            insecure: self.insecure,
        };
        if self.insecure {
            print::note(&"warning: --insecure believes whoever answers, and sends them the password");
        }
        Ok(Some(Tls::open(&files).context("TLS")?))
    }
}

impl Connect {
    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        // An IPv6 address has colons of its own.
        if self.host.contains(':') && !self.host.starts_with('[') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The user that will log in.
    pub(crate) fn user(&self, default: Login) -> &str {
        self.user.as_deref().unwrap_or(default.user)
    }

    /// Where to connect and as whom, with the password read.
    pub(crate) fn options(&self, default: Login) -> anyhow::Result<Options> {
        let tls = self.tls.open()?;
        let password = match std::env::var("MALACHI_PASS") {
            _ if self.password_stdin => password_from_stdin()?,
            Ok(password) => password,
            Err(std::env::VarError::NotPresent) => default.password.to_owned(),
            Err(std::env::VarError::NotUnicode(_)) => bail!("MALACHI_PASS is not UTF-8"),
        };
        let others = self.others.clone();
        Ok(Options { tls, others, ..Options::new(self.address(), self.user(default), password) })
    }

    /// Connects and authenticates.
    pub(crate) async fn open(&self, default: Login) -> anyhow::Result<Client> {
        self.open_with(self.options(default)?).await
    }

    /// The same with options made before.
    pub(crate) async fn open_with(&self, options: Options) -> anyhow::Result<Client> {
        Client::connect_with(options).await.map_err(|error| self.explain(error))
    }

    /// Says so when there is no topic of that name: to whoever reads, it looks like an empty one.
    ///
    /// Only a note, because a topic may be made after its readers have come; what else goes wrong is left to
    /// the reading.
    pub(crate) async fn note_missing(&self, client: &Client, topic: &str) {
        let found = client.describe_topic(topic, 0, 1).await;
        if found.is_err_and(|error| error.reason() == Some(Reason::NoSuchTopic)) {
            let made = "see `malachi topic list`; `malachi topic create` makes one";
            print::note(&format_args!("Note: there is no topic {topic:?} yet ({made})"));
        }
    }

    /// The error as people see it: what it is, and what to do about it where that is known.
    pub(crate) fn explain(&self, error: Error) -> anyhow::Error {
        let (address, tls) = (self.address(), self.tls.wanted());
        match &error {
            Error::Tls(_) => {
                let hint = "The broker's certificate must be for the host's name, and of an authority that is believed: \
                            name one with --ca. A broker that speaks plaintext needs no --tls.";
                return anyhow::anyhow!("{error}\n{hint}");
            }
            // What a TLS port says to plaintext, or leaves unsaid.
            Error::Protocol(_) | Error::Closed if !tls => {
                return anyhow::anyhow!(
                    "{error}\nIs the server running at {address}? If it speaks TLS, use --tls."
                );
            }
            Error::Network(_) | Error::Unconnected(_) | Error::Closed => {
                return anyhow::anyhow!("{error}\nIs the server running at {address}?");
            }
            Error::Refused(_)
            | Error::RefusedUnknown(_)
            | Error::InDoubt(_)
            | Error::TimedOut
            | Error::Protocol(_)
            | Error::Misuse(_)
            | Error::TooLarge { .. } => {}
        }
        match error.reason().and_then(hint) {
            Some(hint) => anyhow::anyhow!("{error}\n{hint}"),
            None => error.into(),
        }
    }
}

/// What to do about a refusal, where the word alone leaves one wondering.
fn hint(reason: Reason) -> Option<&'static str> {
    // A list of what is worth a line; most reasons say it themselves.
    let hints = [
        (
            Reason::InvalidCredentials,
            "Set MALACHI_USER and MALACHI_PASS, or use --user and --password-stdin.",
        ),
        (
            Reason::PermissionDenied,
            "Log in as another user with --user, or ask an administrator for the right.",
        ),
        (Reason::NoSuchTopic, "See `malachi topic list`; `malachi topic create` makes one."),
        (Reason::NoSuchRange, "See `malachi range list` for the active ranges."),
        (Reason::Sealed, "See `malachi range list` for the ranges that took its place."),
        (Reason::NotBuddies, "Only two neighbours of one size that a split could have made are merged."),
        (Reason::InvalidTopicName, "A name is 1 to 200 of A-Z a-z 0-9 . _ - and neither . nor .."),
        (Reason::InvalidPermissions, "invalid permissions (allowed: admin, produce, consume)"),
        (Reason::InvalidRole, "invalid role (allowed: viewer, operator, admin, none)"),
        (Reason::InvalidUsername, "A name is 1 to 128 of A-Z a-z 0-9 . _ @ : / + -"),
        (
            Reason::InvalidPassword,
            "It is empty, too short or well known; see MALACHI_REQUIRE_STRONG_PASSWORDS of the broker.",
        ),
        (Reason::InvalidAcl, "A pattern is a topic's name, or the beginning of one and *; put it in quotes."),
        (
            Reason::Storage,
            "A disk of the broker is full, fails, or holds damaged bytes: the broker's log says which and where.",
        ),
        (Reason::UserNotFound, "See `malachi user list`."),
        (Reason::NoSuchNode, "See `malachi cluster status` for the nodes there are."),
        (
            Reason::NodeNotDrained,
            "Run `malachi cluster drain NODE --wait` first. --force is for a node that is gone for good: what only it \
             holds is lost.",
        ),
        (Reason::LastNode, "No other node is active; `malachi cluster add` says how to add one."),
        (Reason::InvalidVnodeCount, "A ring has 1 to 4096 vnodes."),
        (Reason::NoRing, "The cluster is being formed: try again."),
        (
            Reason::NotLeaseHolder,
            "No node is known to lead the cluster group now, or it cannot be reached: try again, or ask another node.",
        ),
        (Reason::UserExists, "`malachi user passwd` sets another password."),
        (
            Reason::Unsupported,
            "The broker cannot do that: it may be an older version, or the answer does not fit a frame.",
        ),
        (Reason::InvalidOperation, "invalid operation (allowed: produce, consume)"),
        (Reason::UpgradePending, "Finish the rolling upgrade, then run this again."),
        (Reason::UnknownApiKey, "The broker does not have this operation: it may be an older version."),
        (Reason::RateLimitExceeded, "Too many logins from this address: wait a minute."),
        (
            Reason::AccountLocked,
            "Too many failed logins: wait until the lock ends, or have an administrator run `malachi user unlock`.",
        ),
    ];
    hints.iter().find(|(of, _)| *of == reason).map(|(_, hint)| *hint)
}

/// A secret given as an argument: `-` reads it from the first line of standard input, anything else is taken
/// with a warning, because every user of the host can see it.
pub(crate) fn secret(argument: &str) -> anyhow::Result<String> {
    if argument == "-" {
        return password_from_stdin();
    }
    print::note(
        &"warning: other users of this host can see a password among the arguments; - reads it from \
                 standard input",
    );
    Ok(argument.to_owned())
}

fn password_from_stdin() -> anyhow::Result<String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("cannot read the password")?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
