//! Runs seeds and says what it did; a failure prints the one line that replays it.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a judge names what it knows; everything else meets the same verdict"
)]

use std::fmt::Display;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use malachi_sim::{broker, cluster, consensus, membership, raft, raft_log, scale, store, upkeep};

/// Runs the deterministic simulator.
#[derive(Debug, Parser)]
struct Arguments {
    /// Which simulated world.
    #[arg(long, value_enum, default_value_t = Kind::Store)]
    world: Kind,
    /// Replay this one seed and print everything that happens.
    #[arg(long)]
    seed: Option<u64>,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Stop after this many seconds, whatever is left.
    #[arg(long)]
    seconds: Option<u64>,
    /// Go on after a failure, and print only the failures.
    #[arg(long)]
    keep_going: bool,
    /// Put a bug in (its name as in the world's list of bugs).
    #[arg(long)]
    bug: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Segment copies on a bad disk.
    Store,
    /// The log of the metadata groups on a bad disk.
    RaftLog,
    /// One Raft group on several nodes.
    Raft,
    /// Every Raft group of several nodes, on bad disks.
    Consensus,
    /// Many groups of three nodes that do nothing: figures.
    ConsensusIdle,
    /// A hundred nodes, 1,024 vnodes and 100,000 topics: figures.
    Scale,
    /// Who is alive, on a bad network.
    Membership,
    /// Fifty members on a network that only loses packets: figures.
    MembershipLoss,
    /// One node and its clients.
    Broker,
    /// One node whose records expire and whose copies rot.
    Upkeep,
    /// Whole nodes that form one cluster.
    Cluster,
    /// The same with records.
    Records,
    /// The same with consumers that read as groups.
    Groups,
    /// One of the stories of records: a copy lags, and another is deleted.
    RecordsStory,
    /// The same, and the power goes while it is made anew.
    RecordsStoryAnew,
}

#[expect(clippy::print_stdout, reason = "a command for people")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.world {
        Kind::Store => run_store(&arguments),
        Kind::RaftLog => run_raft_log(&arguments),
        Kind::Raft => run_raft(&arguments),
        Kind::Consensus => run_consensus(&arguments),
        Kind::ConsensusIdle => measure_idle(&arguments),
        Kind::Scale => measure_scale(&arguments),
        Kind::Membership => run_membership(&arguments),
        Kind::MembershipLoss => measure_membership(&arguments),
        Kind::Broker => run_broker(&arguments),
        Kind::Upkeep => run_upkeep(&arguments),
        Kind::Cluster => run_cluster(&arguments),
        Kind::Records => run_records(&arguments, "records", cluster::records::run),
        Kind::Groups => run_records(&arguments, "groups", cluster::records::run_groups),
        Kind::RecordsStory => {
            run_records(&arguments, "records-story", cluster::records::stories::one_lags_one_is_deleted)
        }
        Kind::RecordsStoryAnew => {
            run_records(&arguments, "records-story", cluster::records::stories::one_lags_one_is_made_anew)
        }
    };
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(no_such_bug) => {
            println!("{no_such_bug}");
            ExitCode::FAILURE
        }
    }
}

/// How many seeds ran, how many failed, and how long it took.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    runs: u64,
    failures: u64,
    seconds: f64,
}

impl Tally {
    /// Says what it came to. `micros` is the virtual time, in worlds that have any. Returns how many failed.
    #[expect(clippy::print_stdout, reason = "a command for people")]
    fn tell(self, world: &str, what: &str, micros: Option<u64>, trace: u64) -> u64 {
        let Self { runs, failures, seconds } = self;
        let hours = micros.map(|micros| {
            let hours = micros as f64 / 3.6e9;
            format!("{hours:.1} virtual hours ({:.0} in an hour), ", hours * 3600.0 / seconds.max(0.001))
        });
        let hours = hours.unwrap_or_default();
        println!(
            "{world}: {runs} seeds, {what}, {hours}{failures} failures, trace {trace:016x}, {seconds:.1} s"
        );
        failures
    }
}

/// Runs the seeds that were asked for.
#[expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a command for people, which times itself"
)]
fn run_seeds<F: Display>(arguments: &Arguments, mut run: impl FnMut(u64) -> Result<(), F>) -> Tally {
    let (first, count) = arguments.seed.map_or((arguments.from, arguments.seeds), |seed| (seed, 1));
    let started = Instant::now();
    let limit = arguments.seconds.map(Duration::from_secs);
    let mut tally = Tally::default();
    for seed in first..first.saturating_add(count) {
        if limit.is_some_and(|limit| started.elapsed() >= limit) {
            break;
        }
        tally.runs += 1;
        if let Err(failure) = run(seed) {
            println!("{failure}");
            tally.failures += 1;
            if !arguments.keep_going {
                break;
            }
        }
    }
    tally.seconds = started.elapsed().as_secs_f64();
    tally
}

/// The bug of that name, if one was asked for.
fn find_bug<B: Copy + std::fmt::Debug>(arguments: &Arguments, all: &[B]) -> Result<Option<B>, String> {
    let Some(name) = &arguments.bug else { return Ok(None) };
    let found = all.iter().find(|bug| format!("{bug:?}") == *name);
    found.copied().map(Some).ok_or_else(|| format!("no such bug; there are {all:?}"))
}

fn run_store(arguments: &Arguments) -> Result<u64, String> {
    let bug = find_bug(arguments, &storage::planted::Bug::ALL)?;
    let options = store::Options { bug, verbose: arguments.seed.is_some() };
    let mut total = store::Summary::default();
    let tally = run_seeds(arguments, |seed| {
        store::run(seed, options).map(|summary| {
            total.cycles += summary.cycles;
            total.replies += summary.replies;
            total.batches_checked += summary.batches_checked;
            total.flips += summary.flips;
            total.trace = total.trace.rotate_left(1) ^ summary.trace;
        })
    });
    let told = format!(
        "{} crash-recover cycles, {} replies judged, {} batches read back, {} bits flipped",
        total.cycles, total.replies, total.batches_checked, total.flips,
    );
    Ok(tally.tell("store", &told, None, total.trace))
}

fn run_raft_log(arguments: &Arguments) -> Result<u64, String> {
    find_bug::<&str>(arguments, &[])?;
    let options = raft_log::Options { verbose: arguments.seed.is_some(), ..Default::default() };
    let mut total = raft_log::Summary::default();
    let tally = run_seeds(arguments, |seed| {
        raft_log::run(seed, options).map(|summary| {
            total.cycles += summary.cycles;
            total.replies += summary.replies;
            total.flips += summary.flips;
            total.damaged += summary.damaged;
            total.digest = total.digest.rotate_left(1) ^ summary.digest;
        })
    });
    let told = format!(
        "{} starts, {} replies judged, {} bits flipped, {} groups found damaged",
        total.cycles, total.replies, total.flips, total.damaged,
    );
    Ok(tally.tell("raft-log", &told, None, total.digest))
}

fn run_raft(arguments: &Arguments) -> Result<u64, String> {
    let bug = find_bug(arguments, &::raft::planted::Bug::ALL)?;
    let options = raft::Options { bug, verbose: arguments.seed.is_some() };
    let mut total = raft::Summary::default();
    let tally = run_seeds(arguments, |seed| raft::run(seed, options).map(|summary| total.add(summary)));
    let told = format!(
        "{} lifetimes, {} elections, {} proposals acknowledged, {} unknown, {} reads, {} changes of members, {} snapshots installed, {} messages",
        total.lives,
        total.elections,
        total.acknowledged,
        total.unknown,
        total.reads,
        total.changes,
        total.installed,
        total.messages,
    );
    Ok(tally.tell("raft", &told, Some(total.micros), total.trace))
}

fn run_consensus(arguments: &Arguments) -> Result<u64, String> {
    let bug = find_bug(arguments, &::consensus::planted::Bug::ALL)?;
    let options = consensus::Options { bug, verbose: arguments.seed.is_some() };
    let mut total = consensus::Summary::default();
    let tally = run_seeds(arguments, |seed| consensus::run(seed, options).map(|summary| total.add(summary)));
    let told = format!(
        "{} lifetimes, {} groups ({} doubtful), {} elections, {} proposals acknowledged, {} unknown, {} reads, {} changes of members, {} snapshots installed, {} replicas left, {} lost, {} nodes replaced, {} bits flipped, {} letters",
        total.lives,
        total.groups,
        total.doubtful,
        total.elections,
        total.acknowledged,
        total.unknown,
        total.reads,
        total.changes,
        total.installed,
        total.left,
        total.lost,
        total.wiped,
        total.flips,
        total.letters,
    );
    Ok(tally.tell("consensus", &told, Some(total.micros), total.trace))
}

/// How much of a core groups take that do nothing, with `--seeds` of them.
#[expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a command for people, which times itself"
)]
fn measure_idle(arguments: &Arguments) -> Result<u64, String> {
    const TICKS: u64 = 300;
    let mut idle = consensus::idle::Idle::new(arguments.seeds);
    idle.ticks(100);
    let (letters, bytes) = (idle.letters, idle.bytes);
    let started = Instant::now();
    idle.ticks(TICKS);
    let seconds = started.elapsed().as_secs_f64();
    let virtual_seconds = TICKS as f64 / 10.0;
    println!(
        "consensus-idle: {} groups on 3 nodes, a tick of 100 ms: {:.2} % of a core per node, {:.0} letters and {:.0} bytes sent per node and second",
        arguments.seeds,
        100.0 * seconds / virtual_seconds / 3.0,
        (idle.letters - letters) as f64 / virtual_seconds / 3.0,
        (idle.bytes - bytes) as f64 / virtual_seconds / 3.0,
    );
    Ok(0)
}

/// What a large cluster costs and how soon a death is over.
#[expect(clippy::print_stdout, reason = "a command for people")]
fn measure_scale(arguments: &Arguments) -> Result<u64, String> {
    find_bug::<&str>(arguments, &[])?;
    let setup = scale::Setup::usual();
    println!("scale: {} nodes, {} vnodes, {} topics", setup.nodes, setup.vnodes, setup.topics);
    let empty = resident_bytes();
    let tables = scale::tables(setup);
    let bytes = resident_bytes().saturating_sub(empty);
    println!(
        "tables: {:.0} MiB on each node, {} bytes for a topic",
        bytes as f64 / 1_048_576.0,
        bytes / setup.topics
    );
    drop(tables);
    let quiet = membership::loss::Setup {
        count: setup.nodes,
        loss: 0.0,
        seconds: 300,
        ..membership::loss::Setup::usual()
    };
    for loss in [0.0, 0.05] {
        let figures = membership::loss::measure(arguments.from, membership::loss::Setup { loss, ..quiet });
        println!(
            "gossip, {:.0} % of packets lost: {:.0} bytes per node and second; a death is noticed after {:.1} s and known to all after {:.1} s; {} false deaths",
            loss * 100.0,
            figures.bytes_per_second,
            figures.noticed,
            figures.known,
            figures.false_deaths,
        );
    }
    let figures = scale::measure(setup);
    println!(
        "groups: all led {:.1} s after the first start; idle, {:.0} letters and {:.0} bytes per node and second",
        figures.led, figures.letters, figures.bytes
    );
    println!(
        "death of a node that led {}: half of them are led again after {:.1} s, all after {:.1} s, {} others changed their leader",
        figures.orphaned, figures.half_again, figures.all_again, figures.disturbed
    );
    Ok(0)
}

/// What this process takes of the memory, bytes; 0 where that is not told.
#[expect(clippy::disallowed_methods, reason = "a command for people, which looks at itself")]
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn run_membership(arguments: &Arguments) -> Result<u64, String> {
    let bug = find_bug(arguments, &::membership::planted::Bug::ALL)?;
    let options = membership::Options { bug, verbose: arguments.seed.is_some() };
    let mut total = membership::Summary::default();
    let tally = run_seeds(arguments, |seed| membership::run(seed, options).map(|summary| total.add(summary)));
    let told = format!(
        "{} lifetimes, {} packets, {} attacks, {} changes told, {} wrong deaths, {} renewals, healed within {:.1} s",
        total.lives,
        total.packets,
        total.attacks,
        total.changes,
        total.wrong_deaths,
        total.renewals,
        total.healing as f64 / 1e6,
    );
    Ok(tally.tell("membership", &told, Some(total.micros), total.trace))
}

#[expect(clippy::print_stdout, reason = "a command for people")]
fn measure_membership(arguments: &Arguments) -> Result<u64, String> {
    find_bug::<&str>(arguments, &[])?;
    let mut runs_with_false_deaths = 0;
    let Tally { runs, seconds, .. } = run_seeds(arguments, |seed| -> Result<(), String> {
        let figures = membership::loss::measure(seed, membership::loss::Setup::usual());
        runs_with_false_deaths += u64::from(figures.false_deaths > 0);
        println!(
            "{seed}: {} false deaths, {} suspicions; a death is noticed after {:.1} s and known to all after {:.1} s; joined in {:.1} s; {:.0} bytes per node and second",
            figures.false_deaths,
            figures.suspicions,
            figures.noticed,
            figures.known,
            figures.joined,
            figures.bytes_per_second,
        );
        Ok(())
    });
    println!("membership-loss: {runs} runs, {runs_with_false_deaths} with a false death, {seconds:.1} s");
    Ok(0)
}

fn run_broker(arguments: &Arguments) -> Result<u64, String> {
    let bug = find_bug(arguments, &::broker::planted::Bug::ALL)?;
    let options = broker::Options { bug, verbose: arguments.seed.is_some() };
    let mut total = broker::Summary::default();
    let tally = run_seeds(arguments, |seed| broker::run(seed, options).map(|summary| total.add(summary)));
    let told = format!(
        "{} lifetimes, {} replies judged, {} records acknowledged, {} delivered, {} commits, {} splits and merges, {} requests beside a range that cannot end, {} orphans found, lifetimes cut in a topic's birth {}, a roll {}, a split or merge {} (before its parent ended {})",
        total.lives,
        total.replies,
        total.acknowledged,
        total.delivered,
        total.commits,
        total.changes,
        total.unrelated,
        total.orphans,
        total.cuts.in_birth,
        total.cuts.in_roll,
        total.cuts.in_split,
        total.cuts.in_handover,
    );
    Ok(tally.tell("broker", &told, Some(total.micros), total.trace))
}

fn run_upkeep(arguments: &Arguments) -> Result<u64, String> {
    let bug = find_bug(arguments, &::broker::planted::Bug::ALL)?;
    let options = upkeep::Options { bug, verbose: arguments.seed.is_some() };
    let mut total = upkeep::Summary::default();
    let tally = run_seeds(arguments, |seed| upkeep::run(seed, options).map(|summary| total.add(summary)));
    let told = format!(
        "{} lifetimes, {} segments expired, {} orphans swept, {} offsets skipped, {} copies verified, {} rotten copies found, {} records read",
        total.lives, total.expired, total.orphans, total.skipped, total.verified, total.found, total.read,
    );
    Ok(tally.tell("upkeep", &told, Some(total.micros), total.trace))
}

/// A bug of the store of copies is one of the cluster's, too.
fn cluster_options(arguments: &Arguments) -> Result<cluster::Options, String> {
    let verbose = arguments.seed.is_some();
    let store_bug = find_bug(arguments, &storage::planted::Bug::ALL).ok().flatten();
    let bug = if store_bug.is_some() { None } else { find_bug(arguments, &::broker::planted::Bug::ALL)? };
    Ok(cluster::Options { bug, store_bug, verbose })
}

fn run_cluster(arguments: &Arguments) -> Result<u64, String> {
    let options = cluster_options(arguments)?;
    let mut total = cluster::Summary::default();
    let tally = run_seeds(arguments, |seed| cluster::run(seed, options).map(|summary| total.add(summary)));
    let told = format!(
        "{} nodes, {} lifetimes, {} power cuts, {} partitions, {} elections, {} changes acknowledged, {} unknown, {} refused, {} reads, {} nodes removed, {} lost, {} changes of the ring, {} tables compared, {} messages, healed within {:.1} s",
        total.nodes,
        total.lives,
        total.cuts,
        total.partitions,
        total.elections,
        total.acknowledged,
        total.unknown,
        total.refused,
        total.reads,
        total.removed,
        total.wiped,
        total.ring_changes,
        total.compared,
        total.messages,
        total.healing as f64 / 1e6,
    );
    Ok(tally.tell("cluster", &told, Some(total.micros), total.trace))
}

fn run_records(
    arguments: &Arguments,
    world: &str,
    run: fn(u64, cluster::Options) -> Result<cluster::Summary, cluster::Failure>,
) -> Result<u64, String> {
    let options = cluster_options(arguments)?;
    let mut total = cluster::Summary::default();
    let tally = run_seeds(arguments, |seed| run(seed, options).map(|summary| total.add(summary)));
    let told = format!(
        "{} nodes, {} lifetimes, {} power cuts, {} partitions, {} records acknowledged, {} unknown, {} refused, {} requests repeated, {} forgotten, {} due, {} read, {} reads failed, {} given to groups ({} again), {} commits, {} members left, {} consumers refused, {} looks at disks, {} copies damaged, {} splits and merges by load, {} nodes removed, {} lost, healed within {:.1} s",
        total.nodes,
        total.lives,
        total.cuts,
        total.partitions,
        total.records_acknowledged,
        total.records_unknown,
        total.records_refused,
        total.repeated,
        total.forgotten,
        total.records_due,
        total.records_read,
        total.reads_failed,
        total.given,
        total.given_again,
        total.commits,
        total.left,
        total.consumers_failed,
        total.audits,
        total.damaged,
        total.resized,
        total.removed,
        total.wiped,
        total.healing as f64 / 1e6,
    );
    Ok(tally.tell(world, &told, Some(total.micros), total.trace))
}
