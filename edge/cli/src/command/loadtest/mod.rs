//! `malachi loadtest`: puts load on a broker, measures it, and checks that what was acknowledged is there.
//!
//! Owns what a run is and in which order its parts happen: baseline, topic, records in advance, warm-up,
//! measurement, reading back. Closed loop means that each connection sends, waits and sends again; open loop
//! that requests leave at their time whatever happened to the ones before, so that a stall shows in every
//! request it delayed.

mod baseline;
mod mark;
mod pacer;
mod report;
mod stats;
mod stream;
mod verify;
mod wire;
mod work;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use client::{Batch, Client, Error, Options, Payload, Reason, Request};
use tokio::task::JoinSet;

use self::mark::{Mark, Marks};
use self::report::Report;
use self::stats::{Latencies, Tally};
use self::work::Work;
use crate::connect::{self, Connect};
use crate::input::batcher::now;
use crate::print;

/// Records in one request that fills a topic in advance.
const FILL_RECORDS: u64 = 1000;

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Scenario {
    /// Append
    Produce,
    /// Read from the beginning, over and over
    Fetch,
    /// Have everything pushed, over and over
    Stream,
    /// Even connections append, odd ones read
    Mixed,
    /// Even connections append, odd ones have it pushed: latency is from the append's time to the arrival
    Tail,
}

/// What load, and how it is judged.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What a run does
    #[arg(long, value_enum, default_value_t = Scenario::Produce)]
    scenario: Scenario,
    /// Requests a second, over all connections; 0 lets each connection go as fast as it can
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// With --rate: requests under way at which sending stops
    #[arg(long, default_value_t = 100_000)]
    max_inflight: usize,
    /// Connections
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Seconds measured
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    duration: u64,
    /// Seconds of load before that
    #[arg(long, default_value_t = 0)]
    warmup: u64,
    /// Topic, made when it does not exist; a new one unless named
    #[arg(long)]
    topic: Option<String>,
    /// Records in one produce request
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Bytes of a record's value
    #[arg(long, default_value_t = 128)]
    record_size: usize,
    /// Different keys
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Records in one fetch or push
    #[arg(long, default_value_t = 100)]
    max: u32,
    /// Records that may be on their way in a stream
    #[arg(long, default_value_t = 100)]
    window: u32,
    /// Records written in advance; 10000 for fetch, stream and mixed unless given, else none
    #[arg(long)]
    prepopulate: Option<u64>,
    /// Latencies kept for percentiles
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// Send requests without stamps, as clients that do not repeat themselves do
    #[arg(long)]
    no_idempotence: bool,
    /// Use the operations that carry checksums
    #[arg(long)]
    checksums: bool,
    /// Do not read back what was acknowledged
    #[arg(long)]
    no_verify: bool,
    /// Before the load, measure this directory's disk with blocks as large as a request, and the loopback;
    /// name the volume of the broker's data
    #[arg(long, value_name = "DIR")]
    baseline_dir: Option<PathBuf>,
    /// Fail when more requests than this failed
    #[arg(long)]
    max_errors: Option<u64>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Args {
    /// Whether connection number `n` appends.
    fn appends(&self, n: u32) -> bool {
        match self.scenario {
            Scenario::Produce => true,
            Scenario::Fetch | Scenario::Stream => false,
            Scenario::Mixed | Scenario::Tail => n.is_multiple_of(2),
        }
    }

    /// Whether connection number `n` has records pushed.
    fn streams(&self, n: u32) -> bool {
        match self.scenario {
            Scenario::Produce | Scenario::Fetch | Scenario::Mixed => false,
            Scenario::Stream => true,
            Scenario::Tail => n % 2 == 1,
        }
    }

    fn prepopulate(&self) -> u64 {
        self.prepopulate.unwrap_or(match self.scenario {
            Scenario::Produce | Scenario::Tail => 0,
            Scenario::Fetch | Scenario::Stream | Scenario::Mixed => 10_000,
        })
    }

    /// Bytes of one produce request's values, as blocks of the baseline.
    fn block_bytes(&self) -> usize {
        self.record_size.saturating_mul(self.batch as usize).max(1)
    }
}

/// What all connections of a run share.
struct Run {
    args: Args,
    options: Options,
    topic: String,
    /// Tells this run's records from others in the topic.
    id: u32,
    /// Records written in advance.
    filled: u64,
    /// From which marks in records count time.
    epoch: Instant,
    /// Requests under way, with `--rate`.
    in_flight: AtomicUsize,
    saturated: AtomicBool,
    latencies: Latencies,
}

impl Run {
    /// Whether latency is that of answers, and not that of records on their way to a reader.
    fn times_answers(&self) -> bool {
        self.args.scenario != Scenario::Tail
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.scenario == Scenario::Tail && args.record_size < mark::BYTES {
        anyhow::bail!("--scenario tail needs a --record-size of {} or more", mark::BYTES);
    }
    let mut progress = print::Progress::start(!args.json);
    let baseline = match &args.baseline_dir {
        None => None,
        Some(dir) => {
            progress.say(&"measuring the disk and the loopback alone");
            Some(baseline::measure(dir, args.block_bytes(), args.connections).await?)
        }
    };
    let options = args.connect.options(connect::APP)?;
    let client = args.connect.open_with(options.clone()).await?;
    let mut run = prepare(args, options, &client).await?;
    progress.say(&"writing records in advance");
    run.filled = fill(&run, &client).await.map_err(|error| run.args.connect.explain(error))?;
    let run = Arc::new(run);

    let mut works: Vec<Work> = (0..run.args.connections).map(|n| Work::new(&run, n)).collect();
    let stamps = !run.args.no_idempotence
        && client.server().is_some_and(|server| server.features & client::features::ONCE != 0);
    for work in works.iter_mut().filter(|work| stamps && work.appends()) {
        let asked = client.call(Request::NewProducer { topic: Some(run.topic.clone().into()) }).await;
        if let Payload::Producer { id, now_ms } = asked.map_err(|error| run.args.connect.explain(error))? {
            work.name(id, now_ms);
        }
    }
    if run.args.warmup > 0 {
        progress.say(&"warming up");
        works = load(&run, works, Duration::from_secs(run.args.warmup)).await?.0;
        run.latencies.clear();
        run.saturated.store(false, std::sync::atomic::Ordering::Relaxed);
    }
    progress.say(&"measuring");
    let (works, tally) = load(&run, works, Duration::from_secs(run.args.duration)).await?;
    let verified = if run.args.no_verify || !(0..run.args.connections).any(|n| run.args.appends(n)) {
        None
    } else {
        progress.say(&"reading back");
        let marks: Vec<Marks> = works.into_iter().filter_map(Work::into_marks).collect();
        Some(verify::read_back(&run, &client, marks).await?)
    };
    progress.finish();
    let report = Report { run: &run, tally, verified, baseline };
    report.print()?;
    Ok(report.status())
}

async fn prepare(args: Args, options: Options, client: &Client) -> anyhow::Result<Run> {
    let topic = args.topic.clone().unwrap_or_else(|| format!("loadtest_{}", now()));
    match client.create_topic(&topic, 0).await {
        // Whether it can be used shows soon enough.
        Ok(()) | Err(Error::Refused(Reason::AlreadyExists | Reason::PermissionDenied)) => {}
        Err(error) => return Err(args.connect.explain(error)),
    }
    Ok(Run {
        latencies: Latencies::new(args.samples as usize, options.seed),
        id: u32::try_from(options.seed >> 32).unwrap_or_default(),
        args,
        options,
        topic,
        filled: 0,
        epoch: Instant::now(),
        in_flight: AtomicUsize::new(0),
        saturated: AtomicBool::new(false),
    })
}

/// Writes records in advance; gives how many.
async fn fill(run: &Run, client: &Client) -> Result<u64, Error> {
    let count = run.args.prepopulate();
    let mut producer = client.producer(&run.topic, 4);
    let mut value = vec![0; run.args.record_size];
    let mut next = 0;
    while next < count {
        let end = (next + FILL_RECORDS).min(count);
        let mut batch = Batch::default();
        for sequence in next..end {
            // Not of any connection: reading back passes them over.
            Mark { run: !run.id, connection: 0, sequence, nanos: 0 }.write(&mut value);
            batch.push_parts(Some(mark::key(sequence, run.args.keys).as_bytes()), &value, now());
        }
        producer.send(batch).await?;
        next = end;
    }
    producer.flush().await?;
    Ok(count)
}

/// All connections at work for a time; each begins with a new socket.
async fn load(run: &Arc<Run>, works: Vec<Work>, time: Duration) -> anyhow::Result<(Vec<Work>, Tally)> {
    let sockets = worker::connect_all(run, &works).await.map_err(|error| run.args.connect.explain(error))?;
    let begin = Instant::now();
    let until = begin + time;
    let pacer = (run.args.rate > 0).then(|| pacer::Pacer::start(run, &works, begin, until));
    let mut tasks = JoinSet::new();
    for (n, (work, socket)) in works.into_iter().zip(sockets).enumerate() {
        let run = Arc::clone(run);
        match (socket, pacer.as_ref().and_then(|pacer| pacer.beat(n))) {
            (None, _) => tasks.spawn(stream::run(run, work, until)),
            (Some(socket), None) => tasks.spawn(worker::closed_loop(run, work, socket, until)),
            (Some(socket), Some(beat)) => tasks.spawn(worker::open_loop(run, work, socket, beat, until)),
        };
    }
    let (mut works, mut tally) = (Vec::new(), Tally::default());
    while let Some(done) = tasks.join_next().await {
        let (work, part) = done?;
        works.push(work);
        tally.add(part);
    }
    works.sort_by_key(Work::connection);
    Ok((works, tally))
}
