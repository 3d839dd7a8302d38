//! Whom this node dials, and when again.
//!
//! One task for each target: it looks the name up at every attempt, tries each address, and rests longer after every
//! failure. While there is a connection to the node that answered there last, by whichever side, it waits.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peer::{Error, Link, Refusal};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use types::limits;

use super::backoff::Backoff;
use super::connection::{self, Channel};
use super::{Cause, Shared, Target, log_panic, stopped};
use crate::tcp::socket;

/// For one address to answer.
const CONNECT: Duration = Duration::from_secs(2);
/// For the TLS handshake.
const HANDSHAKE: Duration = Duration::from_millis(limits::PEER_HANDSHAKE_MS);
/// For a name to be looked up.
const LOOK_UP: Duration = Duration::from_secs(5);
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// Keeps one task for each target until `stop` says so, then waits until the last one is done.
pub(super) async fn keep(
    shared: Arc<Shared>,
    mut targets: watch::Receiver<Vec<Target>>,
    mut stop: watch::Receiver<bool>,
) {
    let mut tasks = JoinSet::new();
    // A task whose sender is dropped dials no more; the connection it may have stays.
    let mut dialled: BTreeMap<Target, watch::Sender<bool>> = BTreeMap::new();
    loop {
        let wanted = targets.borrow_and_update().clone();
        dialled.retain(|target, _| wanted.contains(target));
        for target in wanted {
            dialled.entry(target.clone()).or_insert_with(|| {
                let (wanted, unwanted) = watch::channel(false);
                tasks.spawn(keep_dialled(target, Arc::clone(&shared), unwanted, stop.clone()));
                wanted
            });
        }
        tokio::select! {
            changed = targets.changed() => if changed.is_err() { break },
            Some(ended) = tasks.join_next() => log_panic(ended),
            () = stopped(&mut stop) => break,
        }
    }
    drop(dialled);
    while let Some(ended) = tasks.join_next().await {
        log_panic(ended);
    }
}

async fn keep_dialled(
    target: Target,
    shared: Arc<Shared>,
    mut unwanted: watch::Receiver<bool>,
    mut stop: watch::Receiver<bool>,
) {
    let mut backoff = Backoff::new(seed());
    let mut known = target.node;
    let mut told = None;
    loop {
        let next = async {
            if let Some(node) = known {
                shared.table.gone(node).await;
            }
            open(&target, &shared).await
        };
        let opened = tokio::select! {
            opened = next => opened,
            () = stopped(&mut unwanted) => return,
            () = stopped(&mut stop) => return,
        };
        let (counted, cause) = match opened {
            Err(error) => (false, error.into()),
            Ok((link, channel)) => {
                let (shared, stop, own) = (Arc::clone(&shared), stop.clone(), shared.claim().node);
                let ended = connection::run(link, channel, Some(own), None, shared, stop).await;
                known = target.node.or(ended.node).or(known);
                // The other side may prove itself before it refuses.
                (ended.counted && !is_refused(&ended.cause), ended.cause)
            }
        };
        let pause = if counted {
            told = None;
            backoff.reset();
            backoff.pause()
        } else {
            tell(&target, &cause, &mut told, &shared);
            if needs_somebody(&cause) { backoff.pause_refused() } else { backoff.pause() }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = stopped(&mut unwanted) => return,
            () = stopped(&mut stop) => return,
        }
    }
}

/// One line for each change of what is wrong.
fn tell(target: &Target, cause: &Cause, told: &mut Option<Cause>, shared: &Shared) {
    if told.as_ref() != Some(cause) {
        if passes(cause) {
            tracing::info!(address = target.address, reason = %cause, "node not reached");
        } else {
            tracing::warn!(address = target.address, reason = %cause, "node not reached");
        }
        *told = Some(cause.clone());
    }
    shared.refused(&target.address, cause);
}

/// Whether this node was told that there shall be no connection, other than by one that ends itself.
fn is_refused(cause: &Cause) -> bool {
    matches!(cause, Cause::Protocol(Error::RefusedBy(refusal)) if *refusal != Refusal::Closing)
}

/// Whether it is about a connection that there is, or will be, without anybody doing anything.
fn passes(cause: &Cause) -> bool {
    match cause {
        Cause::Protocol(Error::Refuses { refusal, .. } | Error::RefusedBy(refusal)) => refusal.passes(),
        Cause::Protocol(Error::RefusedByLater(_) | Error::Unproved | Error::Silent | Error::Malformed(_))
        | Cause::Channel(_)
        | Cause::Ending => false,
    }
}

/// Whether nothing changes until somebody does something.
fn needs_somebody(cause: &Cause) -> bool {
    match cause {
        Cause::Protocol(Error::Refuses { refusal, .. } | Error::RefusedBy(refusal)) => !refusal.passes(),
        Cause::Protocol(Error::RefusedByLater(_) | Error::Unproved | Error::Silent | Error::Malformed(_))
        | Cause::Channel(_)
        | Cause::Ending => false,
    }
}

async fn open(target: &Target, shared: &Shared) -> io::Result<(Link, Box<dyn Channel>)> {
    let stream = connect(&target.address).await?;
    socket::prepare(&stream);
    let (channel, binding): (Box<dyn Channel>, _) = match &shared.tls {
        None => (Box::new(stream), Bytes::new()),
        Some(tls) => {
            let host = host(&target.address);
            let (stream, binding) = timeout(HANDSHAKE, tls.connect(host, stream)).await??;
            (Box::new(stream), binding)
        }
    };
    let link = Link::dial(shared.setup(binding)?, target.node, shared.clock.now());
    Ok((link, channel))
}

/// The first address of the name that answers.
async fn connect(address: &str) -> io::Result<TcpStream> {
    let addresses = timeout(LOOK_UP, lookup_host(address)).await??;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses.take(ADDRESSES_MAX) {
        match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(elapsed) => last = elapsed.into(),
        }
    }
    Err(last)
}

/// The name or number in front of the port, without the brackets of IPv6.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn seed() -> u64 {
    let mut seed = [0; 8];
    // Without randomness the pauses are those of every node; that is no reason not to dial.
    let _ = getrandom::fill(&mut seed);
    u64::from_be_bytes(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_is_a_name_or_a_number() {
        for (address, expected) in
            [("h.example:4043", "h.example"), ("10.0.0.1:1", "10.0.0.1"), ("[::1]:2", "::1")]
        {
            assert_eq!(host(address), expected);
        }
    }
}
