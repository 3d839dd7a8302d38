//! What the machine does without a broker: the disk, appending and syncing one block after the other, and the
//! loopback, carrying a request there and a short answer back.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::stats::{Latencies, Recorder, Summary};

/// Time spent on each measurement.
const TIME: Duration = Duration::from_secs(2);
/// The file is written over when it has this many bytes, or one block.
const FILE_BYTES: usize = 64 * 1024 * 1024;
/// Blocks of the measurement of throughput.
const LARGE_BYTES: usize = 1024 * 1024;
/// Bytes of an answer: that of a produce request.
const ANSWER_BYTES: usize = 14;
const SAMPLES: usize = 100_000;

/// What the machine does by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Baseline {
    /// Bytes of a block.
    pub(super) block_bytes: usize,
    /// A block written and synced, one after the other.
    pub(super) sync: Summary,
    /// Bytes a second when blocks of a mebibyte are written and synced.
    pub(super) disk_bytes_per_s: u64,
    /// A block sent and an answer received, on as many connections as the run has.
    pub(super) loopback: Summary,
    /// How many of those a second.
    pub(super) loopback_per_s: u64,
}

pub(super) async fn measure(dir: &Path, block_bytes: usize, connections: u32) -> anyhow::Result<Baseline> {
    let path = dir.join(format!("malachi-baseline-{}", std::process::id()));
    let disk = {
        let path = path.clone();
        tokio::task::spawn_blocking(move || disk(&path, block_bytes)).await?
    };
    // Whether it was measured or not, nothing stays.
    let removed = std::fs::remove_file(&path);
    let (sync, disk_bytes_per_s) = disk.with_context(|| path.display().to_string())?;
    removed.with_context(|| path.display().to_string())?;
    let (loopback, loopback_per_s) = loopback(block_bytes, connections).await?;
    Ok(Baseline { block_bytes, sync, disk_bytes_per_s, loopback, loopback_per_s })
}

fn disk(path: &Path, block_bytes: usize) -> io::Result<(Summary, u64)> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    let mut end = 0;
    // Written in advance, as the broker writes its logs: growing a file costs a second write for its size.
    while end < FILE_BYTES.max(block_bytes) {
        file.write_all_at(&vec![0; LARGE_BYTES], end as u64)?;
        end += LARGE_BYTES;
    }
    file.sync_all()?;
    let latencies = Latencies::new(SAMPLES, 1);
    append(&file, block_bytes, end, |latency, recorder| recorder.add(latency), &latencies)?;
    let large = Latencies::new(1, 1);
    let begin = Instant::now();
    let written = append(&file, LARGE_BYTES, end, |_, _| {}, &large)?;
    let per_s = written as f64 / begin.elapsed().as_secs_f64();
    Ok((latencies.summary(), per_s as u64))
}

/// Writes and syncs for a time; gives the bytes.
fn append(
    file: &File,
    block_bytes: usize,
    end: usize,
    mut tell: impl FnMut(Duration, &mut Recorder<'_>),
    latencies: &Latencies,
) -> io::Result<u64> {
    let block = vec![0xa5; block_bytes];
    let mut recorder = Recorder::new(latencies);
    let (begin, mut at, mut written) = (Instant::now(), 0, 0);
    while begin.elapsed() < TIME {
        if at + block_bytes > end {
            at = 0;
        }
        let start = Instant::now();
        file.write_all_at(&block, at as u64)?;
        file.sync_data()?;
        tell(start.elapsed(), &mut recorder);
        at += block_bytes;
        written += block_bytes as u64;
    }
    Ok(written)
}

async fn loopback(block_bytes: usize, connections: u32) -> io::Result<(Summary, u64)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move {
        let mut tasks = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            tasks.spawn(echo(stream, block_bytes));
        }
    });
    let latencies = std::sync::Arc::new(Latencies::new(SAMPLES, 1));
    let mut tasks = JoinSet::new();
    let begin = Instant::now();
    for _ in 0..connections {
        let latencies = std::sync::Arc::clone(&latencies);
        tasks.spawn(
            async move { exchange(TcpStream::connect(address).await?, block_bytes, &latencies).await },
        );
    }
    let mut result = Ok(());
    while let Some(done) = tasks.join_next().await {
        result = result.and(done.unwrap_or_else(|error| Err(io::Error::other(error))));
    }
    server.abort();
    result?;
    let summary = latencies.summary();
    Ok((summary, (summary.count as f64 / begin.elapsed().as_secs_f64()) as u64))
}

async fn echo(mut stream: TcpStream, block_bytes: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut block = vec![0; block_bytes];
    loop {
        stream.read_exact(&mut block).await?;
        stream.write_all(&[0; ANSWER_BYTES]).await?;
    }
}

async fn exchange(mut stream: TcpStream, block_bytes: usize, latencies: &Latencies) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (block, mut answer) = (vec![0; block_bytes], [0; ANSWER_BYTES]);
    let begin = Instant::now();
    let mut recorder = Recorder::new(latencies);
    while begin.elapsed() < TIME {
        let start = Instant::now();
        stream.write_all(&block).await?;
        stream.read_exact(&mut answer).await?;
        recorder.add(start.elapsed());
    }
    Ok(())
}
