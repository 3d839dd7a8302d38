//! `malachi consume`: reads records and writes them out.
//!
//! A position is committed only after every record before it was written out and flushed, so whatever is
//! killed when, a group never skips a record: at worst it gets some again.

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use client::backoff::Backoff;
use client::{Client, Error, Fetch, Options, Page};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::output::{self, Output};
use crate::connect::{self, Connect};
use crate::interrupt::Interrupt;
use crate::print;

/// One long poll of `--follow`.
const WAIT_MS: u32 = 5000;
/// While records keep coming, positions are committed this often: each commit is a durable write.
const COMMIT_EVERY: Duration = Duration::from_millis(200);
/// A member that leaves does not wait longer for the answer.
const LEAVE_WAIT: Duration = Duration::from_secs(1);

/// What to read.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Topic
    #[arg(env = "MALACHI_TOPIC", default_value = "events")]
    topic: String,
    /// Resume where this group is, and commit what was written out
    #[arg(long)]
    group: Option<String>,
    /// Consume this member's share of the group
    #[arg(long)]
    member: Option<String>,
    /// Wait for more records until interrupted
    #[arg(long)]
    follow: bool,
    /// Records in one fetch, 1 to 1000
    #[arg(long, default_value_t = types::limits::FETCH_RECORDS_MAX)]
    max: u32,
    /// Stop after so many records
    #[arg(long)]
    limit: Option<u64>,
    /// Start with the first record there is; the default without a group
    #[arg(long, conflicts_with_all = ["group", "member"])]
    from_beginning: bool,
    /// Start with the first record appended at this time or later, milliseconds since 1970
    #[arg(long, value_name = "MS", conflicts_with_all = ["member", "from_beginning"])]
    from_time: Option<u64>,
    /// Skip what is there and start with what comes
    #[arg(long, conflicts_with_all = ["member", "from_beginning", "from_time"])]
    from_end: bool,
    #[command(flatten)]
    output: output::Choice,
    #[command(flatten)]
    connect: Connect,
}

impl Args {
    /// The time to start at, when one is named.
    fn start_ms(&self) -> Option<u64> {
        if self.from_end { Some(u64::MAX) } else { self.from_time }
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.member.is_some() && args.group.is_none() {
        anyhow::bail!("--member requires --group (a member belongs to a consumer group)");
    }
    let format = args.output.format();
    let options = args.connect.options(connect::CONSUMER)?;
    let client = args.connect.open_with(options.clone()).await?;
    let mut reader = Reader::new(&args, client, Interrupt::listen(), Backoff::new(options.seed));
    let mut output = Output::new(format, io::stdout().lock());
    let group = args.group.as_ref().map_or_else(String::new, |group| format!("  group={group}"));
    let (address, topic) = (args.connect.address(), &args.topic);
    let heading = output.heading(&format_args!("consume  host={address}  topic={topic}{group}"));
    let result = match heading {
        Ok(()) => reader.run(&mut output).await,
        Err(error) => Err(error.into()),
    };
    reader.leave(options).await;
    match result {
        Ok(End::Done) => output.end(&format_args!("Done. consumed={}", output.written()))?,
        Ok(End::Interrupted) => output.end(&format_args!("Stopped. consumed={}", output.written()))?,
        Err(error) if output::is_closed_pipe(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(ExitCode::SUCCESS)
}

/// How reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    Interrupted,
}

/// Where the reader of a topic is.
struct Reader<'a> {
    args: &'a Args,
    client: Client,
    interrupt: Interrupt,
    cursor: Option<Bytes>,
    /// The position after what was written out, until it is committed.
    uncommitted: Option<Bytes>,
    committed_at: Instant,
    /// The next page, asked for while the last one is written out.
    ahead: Option<JoinHandle<Result<Page, Error>>>,
    backoff: Backoff,
}

impl<'a> Reader<'a> {
    fn new(args: &'a Args, client: Client, interrupt: Interrupt, backoff: Backoff) -> Self {
        let committed_at = Instant::now();
        Self { args, client, interrupt, cursor: None, uncommitted: None, committed_at, ahead: None, backoff }
    }

    async fn run(&mut self, output: &mut Output<impl io::Write>) -> anyhow::Result<End> {
        let read = self.read(output).await;
        // What was read before a failure is still written out, and still counts as read.
        let flushed = output.flush().map_err(anyhow::Error::from);
        let committed = match flushed {
            Ok(()) => self.commit().await,
            Err(error) => Err(error),
        };
        read.and_then(|end| committed.map(|()| end))
    }

    async fn read(&mut self, output: &mut Output<impl io::Write>) -> anyhow::Result<End> {
        let (mut wait_ms, mut waited) = (0, false);
        if let Some(at_ms) = self.args.start_ms() {
            let sought = self.client.seek_time(&self.args.topic, at_ms).await;
            self.cursor = Some(sought.map_err(|error| self.args.connect.explain(error))?);
        }
        loop {
            let Some(max) = self.wanted(output.written()) else { return Ok(End::Done) };
            let Some(page) = self.next(max, wait_ms).await? else { return Ok(End::Interrupted) };
            // A page may be empty and still move on, past records that belong to other ranges.
            let moved = self.args.member.is_none() && self.cursor.as_ref() != Some(&page.next_cursor);
            self.cursor = Some(page.next_cursor.clone());
            if page.count == 0 {
                output.flush()?;
                self.commit().await?;
                if !moved && !std::mem::replace(&mut waited, true) && output.written() == 0 {
                    self.args.connect.note_missing(&self.client, &self.args.topic).await;
                }
                if !moved && !self.args.follow {
                    return Ok(End::Done);
                }
                if !moved {
                    // Only now, with nothing left to commit, may a long poll hold the connection.
                    wait_ms = WAIT_MS;
                    output.idle()?;
                }
                continue;
            }
            wait_ms = 0;
            self.read_ahead(output.written() + u64::from(page.count));
            output.page(&page)?;
            self.uncommitted = self.args.group.is_some().then_some(page.next_cursor);
            if self.commit_is_due() {
                output.flush()?;
                self.commit().await?;
            }
            if self.interrupt.is_set() {
                return Ok(End::Interrupted);
            }
        }
    }

    /// Records to ask for; `None` when the limit is reached.
    fn wanted(&self, written: u64) -> Option<u32> {
        let max = self.args.max.clamp(1, types::limits::FETCH_RECORDS_MAX);
        match self.args.limit {
            None => Some(max),
            Some(limit) => match limit.saturating_sub(written) {
                0 => None,
                left => Some(u32::try_from(left).unwrap_or(max).min(max)),
            },
        }
    }

    /// A member reads from where its group committed, so what was written out has to be committed first.
    fn commit_is_due(&self) -> bool {
        self.args.member.is_some() || self.committed_at.elapsed() >= COMMIT_EVERY
    }

    fn read_ahead(&mut self, written: u64) {
        if self.args.member.is_some() {
            return;
        }
        if let Some(max) = self.wanted(written) {
            let (client, fetch) = (self.client.clone(), self.fetch(max, 0));
            self.ahead = Some(tokio::spawn(async move { client.read(fetch).await }));
        }
    }

    fn fetch(&self, max: u32, wait_ms: u32) -> Fetch {
        let string = |text: &Option<String>| text.clone().map(Bytes::from);
        Fetch {
            topic: Some(Bytes::copy_from_slice(self.args.topic.as_bytes())),
            cursor: self.cursor.clone(),
            group: string(&self.args.group),
            member: string(&self.args.member),
            max,
            wait_ms,
        }
    }

    /// The next page; `None` when the user asked to stop.
    async fn next(&mut self, max: u32, wait_ms: u32) -> anyhow::Result<Option<Page>> {
        loop {
            let ahead = self.ahead.take();
            let asked = async {
                match ahead {
                    Some(page) => page.await.unwrap_or(Err(Error::Closed)),
                    None => self.client.read(self.fetch(max, wait_ms)).await,
                }
            };
            let mut interrupt = self.interrupt.clone();
            let page = tokio::select! {
                page = asked => page,
                () = interrupt.wait() => return Ok(None),
            };
            match page {
                Ok(page) => {
                    self.backoff.reset();
                    return Ok(Some(page));
                }
                Err(error) => self.pause(error).await?,
            }
        }
    }

    /// Commits the position after what was written out. Flush first.
    async fn commit(&mut self) -> anyhow::Result<()> {
        let args = self.args;
        let (Some(cursor), Some(group)) = (self.uncommitted.clone(), &args.group) else { return Ok(()) };
        loop {
            match self.client.commit(&self.args.topic, group.as_bytes(), cursor.clone()).await {
                Ok(()) => break,
                Err(error) => {
                    if let Err(error) = self.pause(error).await {
                        self.uncommitted = None;
                        return Err(error).context("cannot commit");
                    }
                }
            }
        }
        self.backoff.reset();
        self.uncommitted = None;
        self.committed_at = Instant::now();
        Ok(())
    }

    /// Waits before another try of what passes by itself; everything else comes back as people see it.
    async fn pause(&mut self, error: Error) -> anyhow::Result<()> {
        let Some(pause) = error.reason().and_then(|reason| self.backoff.pause_after(reason)) else {
            return Err(self.args.connect.explain(error));
        };
        print::note(&"~");
        sleep(pause).await;
        Ok(())
    }

    /// Takes the member out of its group, if there is one; a failure only means that the group waits for
    /// the member to time out.
    async fn leave(self, options: Options) {
        let (Some(group), Some(member)) = (&self.args.group, &self.args.member) else { return };
        // On a connection of its own: a long poll may still hold the other one.
        drop(self.client);
        let leave = async {
            let client = Client::connect_with(options).await.ok()?;
            client.leave_group(&self.args.topic, group.as_bytes(), member.as_bytes()).await.ok()
        };
        let _ = timeout(LEAVE_WAIT, leave).await;
    }
}
