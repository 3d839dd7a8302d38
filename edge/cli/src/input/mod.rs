//! Records on their way in: a file or standard input, cut into batches.
//!
//! Reading is done by a thread of its own, so that a slow terminal or a slow disk holds nothing else up. It
//! runs a few chunks ahead and no further.

pub(crate) mod batcher;
pub(crate) mod sample;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

/// Bytes read at once.
const CHUNK_BYTES: usize = 512 * 1024;
/// Chunks read ahead.
const CHUNKS_AHEAD: usize = 4;

/// Starts reading a file; `-` is standard input.
pub(crate) fn open(path: &Path) -> io::Result<mpsc::Receiver<io::Result<Bytes>>> {
    if path == Path::new("-") { Ok(read(io::stdin())) } else { Ok(read(File::open(path)?)) }
}

fn read(mut source: impl Read + Send + 'static) -> mpsc::Receiver<io::Result<Bytes>> {
    let (chunks, receiver) = mpsc::channel(CHUNKS_AHEAD);
    // Not tokio's own thread for blocking work: the runtime would wait for a read of a terminal to end.
    std::thread::spawn(move || {
        let mut buffer = BytesMut::new();
        loop {
            buffer.resize(CHUNK_BYTES, 0);
            let chunk = match source.read(&mut buffer) {
                Ok(0) => return,
                Ok(len) => Ok(buffer.split_to(len).freeze()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let ends = chunk.is_err();
            if chunks.blocking_send(chunk).is_err() || ends {
                return;
            }
        }
    });
    receiver
}
