//! Connections at work, in a closed or an open loop.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use client::Error;
use tokio::time::{sleep, timeout, timeout_at};

use super::Run;
use super::pacer::Beat;
use super::stats::{Recorder, Tally};
use super::wire::Wire;
use super::work::{Ticket, Work};

/// A closed loop's pause after a refusal.
const AFTER_ERROR: Duration = Duration::from_millis(5);
/// How long the answers to what was sent last are waited for.
const LAST_ANSWERS: Duration = Duration::from_secs(30);

/// A socket for each connection that sends requests, opened a few at a time.
pub(super) async fn connect_all(run: &Run, works: &[Work]) -> Result<Vec<Option<Wire<Ticket>>>, Error> {
    let mut sockets = Vec::with_capacity(works.len());
    for work in works {
        sockets.push(if work.streams() { None } else { Some(Wire::open(&run.options).await?) });
    }
    Ok(sockets)
}

/// Sends, waits for the answer, and sends again. Answers that come after the time are not counted, but what
/// they acknowledge is.
pub(super) async fn closed_loop(
    run: Arc<Run>,
    mut work: Work,
    mut wire: Wire<Ticket>,
    until: Instant,
) -> (Work, Tally) {
    let (mut tally, mut late) = (Tally::default(), Tally::default());
    let mut recorder = Recorder::new(&run.latencies);
    while Instant::now() < until {
        let (request, ticket) = work.request(Instant::now());
        wire.send(&request, ticket);
        let exchange = async {
            wire.flush().await?;
            wire.answer().await
        };
        let (answered, response) = match timeout(LAST_ANSWERS, exchange).await.unwrap_or(Err(Error::TimedOut))
        {
            Ok((Some(ticket), response)) => (ticket, response),
            Ok((None, _)) => continue,
            Err(error) => {
                tally.fail(error.to_string());
                break;
            }
        };
        let end = Instant::now();
        let counted = if end <= until { &mut tally } else { &mut late };
        let ok = work.settle(answered, response, counted);
        if ok && end <= until && run.times_answers() {
            recorder.add(end - answered.at);
        }
        if !ok {
            sleep(AFTER_ERROR).await;
        }
    }
    drop(recorder);
    (work, tally)
}

/// Sends when it is time to, whatever was answered. Latency counts from the time a request was due.
pub(super) async fn open_loop(
    run: Arc<Run>,
    mut work: Work,
    mut wire: Wire<Ticket>,
    beat: Beat,
    until: Instant,
) -> (Work, Tally) {
    let mut tally = Tally::default();
    let mut recorder = Recorder::new(&run.latencies);
    let mut due = beat.first;
    // Reaching the bound on what is under way ends the sending: what came after would measure only us.
    let mut sending = true;
    let failed = loop {
        let now = Instant::now();
        if now >= until {
            break None;
        }
        while sending && due <= now {
            if run.in_flight.load(Ordering::Relaxed) >= run.args.max_inflight {
                run.saturated.store(true, Ordering::Relaxed);
                sending = false;
                break;
            }
            let (request, ticket) = work.request(due);
            wire.send(&request, ticket);
            run.in_flight.fetch_add(1, Ordering::Relaxed);
            due += beat.every;
        }
        let moved = tokio::select! {
            () = beat.due.notified() => Ok(()),
            moved = wire.transfer() => moved,
        };
        if let Err(error) = settle(&run, &mut work, &mut wire, &mut tally, &mut recorder).and(moved) {
            break Some(error);
        }
    };
    let failed = match failed {
        Some(error) => Some(error),
        None => last_answers(&run, &mut work, &mut wire, &mut tally, &mut recorder).await.err(),
    };
    if let Some(error) = failed {
        for _ in 0..wire.in_flight().max(1) {
            tally.fail(error.to_string());
        }
        run.in_flight.fetch_sub(wire.in_flight(), Ordering::Relaxed);
    }
    drop(recorder);
    (work, tally)
}

/// Takes in what has arrived.
fn settle(
    run: &Run,
    work: &mut Work,
    wire: &mut Wire<Ticket>,
    tally: &mut Tally,
    recorder: &mut Recorder<'_>,
) -> Result<(), Error> {
    while let Some((ticket, response)) = wire.ready()? {
        let Some(ticket) = ticket else { continue };
        run.in_flight.fetch_sub(1, Ordering::Relaxed);
        if work.settle(ticket, response, tally) && run.times_answers() {
            recorder.add(ticket.at.elapsed());
        }
    }
    Ok(())
}

/// What was sent in time counts whenever it is answered: leaving it out would leave out the slowest.
async fn last_answers(
    run: &Run,
    work: &mut Work,
    wire: &mut Wire<Ticket>,
    tally: &mut Tally,
    recorder: &mut Recorder<'_>,
) -> Result<(), Error> {
    let deadline = tokio::time::Instant::now() + LAST_ANSWERS;
    while wire.in_flight() > 0 {
        let moved = timeout_at(deadline, wire.transfer()).await.unwrap_or(Err(Error::TimedOut));
        settle(run, work, wire, tally, recorder)?;
        moved?;
    }
    Ok(())
}
