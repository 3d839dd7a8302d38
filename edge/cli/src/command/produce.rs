//! `malachi produce`: appends records from a file, from standard input, or made up.
//!
//! Says at the end exactly how many records are stored, and after a failure which ones certainly are.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use client::{Batch, Client, Error, Producer};
use tokio::time::timeout;
use types::limits;

use crate::connect::{self, Connect};
use crate::input::batcher::{Batcher, Config, Format, now};
use crate::input::{self, sample};
use crate::interrupt::Interrupt;
use crate::print;

/// A batch that was begun is sent when no more input came for this long.
const LINGER: Duration = Duration::from_millis(5);
/// Between two records of `--continuous`.
const CONTINUOUS_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a produce request beside its records and its topic's name: envelope, stamp, string head, flags,
/// checksum, count.
const OVERHEAD_BYTES: usize = 6 + 28 + 5 + 1 + 4 + 4;

/// What to append.
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Append records. With --file, or when standard input is not a terminal and no count is \
                  given, one record a line is read; otherwise <count> records are made up."
)]
pub(crate) struct Args {
    /// Topic
    #[arg(env = "MALACHI_TOPIC", default_value = "events")]
    topic: String,
    /// Records to make up, 10 unless given
    count: Option<u64>,
    /// Read records from this file; - is standard input
    #[arg(long, short, value_name = "PATH", conflicts_with_all = ["count", "continuous"])]
    file: Option<PathBuf>,
    /// What a line of the input is
    #[arg(long, value_enum, default_value_t = Format::Lines)]
    format: Format,
    /// Key of every record, where the input names none
    #[arg(long)]
    key: Option<String>,
    /// Make the topic first; it is an error if it exists
    #[arg(long)]
    create: bool,
    /// Append one made-up record a second until interrupted
    #[arg(long, conflicts_with = "count")]
    continuous: bool,
    /// Requests under way at once; with 1 a refusal cannot change the order of records
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    in_flight: u16,
    /// Bytes of records in one request
    #[arg(long, default_value_t = 1024 * 1024)]
    batch_bytes: usize,
    /// Largest request to send; what the broker says it takes (its MALACHI_MAX_FRAME_SIZE) unless given
    #[arg(long, value_parser = clap::builder::ValueParser::new(frame_bytes))]
    frame_bytes: Option<usize>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

fn frame_bytes(text: &str) -> Result<usize, String> {
    let range = limits::FRAME_BYTES_MIN..=limits::FRAME_BYTES_MAX;
    let bytes = text.parse().map_err(|_| "not a number".to_owned())?;
    if range.contains(&bytes) { Ok(bytes) } else { Err(format!("not in {range:?}")) }
}

/// Where the records come from.
enum Source {
    Input(PathBuf),
    Samples(u64),
    Continuous,
}

impl Args {
    fn source(&self) -> anyhow::Result<Source> {
        let piped = !std::io::stdin().is_terminal() && !self.connect.password_stdin;
        let source = match (&self.file, self.count) {
            _ if self.continuous => Source::Continuous,
            (Some(path), _) => Source::Input(path.clone()),
            (None, Some(count)) => Source::Samples(if count == 0 { DEFAULT_COUNT } else { count }),
            (None, None) if piped => Source::Input("-".into()),
            (None, None) => Source::Samples(DEFAULT_COUNT),
        };
        if matches!(&source, Source::Input(path) if path == Path::new("-")) && self.connect.password_stdin {
            bail!("standard input cannot hold both the password and the records");
        }
        Ok(source)
    }

    /// `server_bytes` is what the broker said it takes, when it said.
    fn batcher(&self, server_bytes: Option<usize>) -> Batcher {
        Batcher::new(Config {
            format: self.format,
            key: self.key(),
            batch_bytes: self.batch_bytes,
            frame_bytes: self.frame_bytes.or(server_bytes).unwrap_or(limits::FRAME_BYTES_DEFAULT),
            overhead_bytes: OVERHEAD_BYTES + self.topic.len(),
        })
    }

    fn key(&self) -> Option<Bytes> {
        self.key.clone().map(Bytes::from)
    }
}

const DEFAULT_COUNT: u64 = 10;

/// How sending ended.
enum End {
    Done,
    Interrupted,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let source = args.source()?;
    let chunks = match &source {
        Source::Input(path) => Some(input::open(path).with_context(|| path.display().to_string())?),
        Source::Samples(_) | Source::Continuous => None,
    };
    let talkative = chunks.is_none() && !args.json;
    if talkative {
        heading(&args, &source)?;
    }
    let client = args.connect.open(connect::PRODUCER).await?;
    if talkative {
        print::line(&format_args!("Connected (authenticated as {})", args.connect.user(connect::PRODUCER)))?;
    }
    if args.create {
        client.create_topic(&args.topic, 0).await.map_err(|error| args.connect.explain(error))?;
        if !args.json {
            print::line(&format_args!("Topic \"{}\" created", args.topic))?;
        }
    }
    let interrupt = Interrupt::listen();
    if matches!(source, Source::Continuous) {
        return continuous(&args, &client, interrupt).await;
    }

    let mut progress = print::Progress::start(chunks.is_some() && !args.json);
    let mut producer = client.producer(&args.topic, args.in_flight.into());
    producer.on_retry(|_| print::note(&"~"));
    let sent = match (chunks, &source) {
        (Some(chunks), _) => {
            let server_bytes = client.server().map(|server| server.frame_bytes_max as usize);
            let batcher = args.batcher(server_bytes);
            send_input(&args, chunks, batcher, &mut producer, &mut progress, interrupt).await
        }
        (None, Source::Samples(count)) => send_samples(&args, *count, &mut producer, interrupt).await,
        (None, Source::Input(_) | Source::Continuous) => Ok(End::Done),
    };
    // What is under way is settled whatever happened, so that the count is exact.
    let flushed = producer.flush().await.map_err(|error| args.connect.explain(error));
    let elapsed = progress.finish();
    report(&args, &producer, sent.and_then(|end| flushed.map(|()| end)), elapsed)
}

fn heading(args: &Args, source: &Source) -> std::io::Result<()> {
    let (address, user) = (args.connect.address(), args.connect.user(connect::PRODUCER));
    let count = match source {
        Source::Samples(count) => format!("  count={count}"),
        Source::Continuous | Source::Input(_) => String::new(),
    };
    let key = args.key.as_ref().map_or_else(String::new, |key| format!("  key={key}"));
    print::line(&format_args!("produce  host={address}  user={user}  topic={}{count}{key}", args.topic))
}

async fn send_input(
    args: &Args,
    mut chunks: Chunks,
    mut batcher: Batcher,
    producer: &mut Producer,
    progress: &mut print::Progress,
    mut interrupt: Interrupt,
) -> anyhow::Result<End> {
    loop {
        let next = async {
            if batcher.is_empty() {
                return Some(chunks.recv().await);
            }
            timeout(LINGER, chunks.recv()).await.ok()
        };
        let next = tokio::select! {
            next = next => next,
            () = interrupt.wait() => return Ok(End::Interrupted),
        };
        match next {
            // Whoever writes the input is waiting: so does nobody for the batch.
            None => send(args, producer, batcher.take()).await?,
            Some(Some(chunk)) => {
                let mut chunk = chunk.context("cannot read the input")?;
                while let Some(batch) = batcher.fill(&mut chunk)? {
                    send(args, producer, batch).await?;
                    progress.show(producer.progress().stored);
                    if interrupt.is_set() {
                        return Ok(End::Interrupted);
                    }
                }
            }
            Some(None) => break,
        }
    }
    for batch in batcher.finish()? {
        send(args, producer, batch).await?;
    }
    Ok(End::Done)
}

type Chunks = tokio::sync::mpsc::Receiver<std::io::Result<Bytes>>;

async fn send_samples(
    args: &Args,
    count: u64,
    producer: &mut Producer,
    interrupt: Interrupt,
) -> anyhow::Result<End> {
    let key = args.key();
    let mut batch = Batch::default();
    for n in 1..=count {
        let record = sample::record(n, key.as_ref());
        if !batch.is_empty() && batch.bytes() + record.encoded_len() > args.batch_bytes {
            send(args, producer, std::mem::take(&mut batch)).await?;
            if interrupt.is_set() {
                return Ok(End::Interrupted);
            }
        }
        batch.push(&record);
    }
    send(args, producer, batch).await?;
    Ok(End::Done)
}

async fn send(args: &Args, producer: &mut Producer, batch: Batch) -> anyhow::Result<()> {
    producer.send(batch).await.map_err(|error| args.connect.explain(error))
}

/// The end of a batch run: exact counts, and an error when there was one.
fn report(
    args: &Args,
    producer: &Producer,
    end: anyhow::Result<End>,
    elapsed: Duration,
) -> anyhow::Result<ExitCode> {
    let counts = producer.progress();
    if counts.overtaken > 0 {
        print::note(&format_args!(
            "note: {} record(s) were stored before earlier ones that the broker had no room for at first; \
             --in-flight 1 keeps the order",
            counts.overtaken
        ));
    }
    let rate = print::per_second(counts.stored, elapsed);
    if args.json {
        print::line(&serde_json::json!({
            "topic": args.topic,
            "stored": counts.stored,
            "stored_in_front": counts.stored_in_front,
            "unknown": counts.unknown,
            "elapsed_ms": u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            "records_per_s": rate,
            "complete": matches!(end, Ok(End::Done)),
        }))?;
    } else if matches!(end, Ok(End::Done)) {
        print::line(&format_args!("Appended {} record(s)", counts.stored))?;
        print::line(&format_args!("time: {}ms   rate: {rate} rec/s", elapsed.as_millis()))?;
    }
    match end {
        Ok(End::Done) => Ok(ExitCode::SUCCESS),
        Ok(End::Interrupted) => {
            print::note(&format_args!("Stopped. appended={}", counts.stored));
            Ok(ExitCode::FAILURE)
        }
        Err(error) => {
            print::error(&error);
            print::note(&format_args!(
                "certainly stored: {} record(s), among them the first {} of the input; {} more may or may \
                 not be stored",
                counts.stored, counts.stored_in_front, counts.unknown
            ));
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn continuous(args: &Args, client: &Client, mut interrupt: Interrupt) -> anyhow::Result<ExitCode> {
    let (mut appended, mut errors) = (0_u64, 0_u64);
    let key = args.key();
    for n in 1_u64.. {
        let record = [sample::record(n, key.as_ref())];
        let produced: Result<u32, Error> = tokio::select! {
            produced = client.produce(&args.topic, &record) => produced,
            () = interrupt.wait() => break,
        };
        match produced {
            Ok(_) => {
                appended += 1;
                let mark = print::Style::Good.on_stdout("✓");
                print::line(&format_args!("{mark} [{n}]  {}", sample::iso_8601(now())))?;
            }
            Err(error) => {
                errors += 1;
                let mark = print::Style::Bad.on_stdout("✗");
                print::line(&format_args!("{mark} [{n}] {error}"))?;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(CONTINUOUS_PAUSE) => {}
            () = interrupt.wait() => break,
        }
    }
    print::line(&format_args!("Stopped. appended={appended} errors={errors}"))?;
    Ok(ExitCode::SUCCESS)
}
