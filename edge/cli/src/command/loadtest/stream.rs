//! Connections that have records pushed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Client, Error, Subscription};
use types::record::Walk;

use super::mark::Mark;
use super::stats::{Recorder, Tally};
use super::work::Work;
use super::{Run, Scenario};

/// Receives until the time is over. A stream that has had everything written in advance is begun again for
/// another group; one that follows appends tells how old each record is when it comes.
pub(super) async fn run(run: Arc<Run>, work: Work, until: Instant) -> (Work, Tally) {
    let mut tally = Tally::default();
    if let Err(error) = receive(&run, work.connection(), until, &mut tally).await {
        tally.fail(error.to_string());
    }
    (work, tally)
}

async fn receive(run: &Run, connection: u32, until: Instant, tally: &mut Tally) -> Result<(), Error> {
    let client = Client::connect_with(run.options.clone()).await?;
    let mut recorder = Recorder::new(&run.latencies);
    let follows = run.args.scenario == Scenario::Tail;
    for round in 0_u64.. {
        // A group of its own each time: nothing is committed yet.
        let group =
            format!("loadtest-{:08x}-{connection}-{round}-{}", run.id, run.epoch.elapsed().as_nanos());
        let builder = client.subscription(&run.topic, group.as_bytes());
        let mut subscription = builder.window(run.args.window).max(run.args.max).open();
        let mut received = 0;
        while follows || received < run.filled.max(1) {
            let Some(push) = next(&mut subscription, until).await? else {
                subscription.close().await;
                return Ok(());
            };
            received += u64::from(push.count);
            tally.operations += 1;
            tally.records += u64::from(push.count);
            tally.bytes += super::work::value_bytes(&push.records);
            if follows {
                ages(run, &push.records, &mut recorder);
            }
        }
        subscription.close().await;
    }
    Ok(())
}

/// The next push; `None` when the time is over.
async fn next(subscription: &mut Subscription, until: Instant) -> Result<Option<client::Push>, Error> {
    let left = until.saturating_duration_since(Instant::now());
    if left == Duration::ZERO {
        return Ok(None);
    }
    tokio::time::timeout(left, subscription.next()).await.ok().transpose()
}

/// How long this run's records were on their way.
fn ages(run: &Run, records: &[bytes::Bytes], recorder: &mut Recorder<'_>) {
    let now = run.epoch.elapsed();
    for slice in records {
        for span in Walk::new(slice).flatten() {
            let value = span.start + span.key.map_or(1, |key| 5 + key.len()) + 4;
            let Some(mark) = Mark::read(&slice[value..value + span.value_bytes]) else { continue };
            if mark.run == run.id {
                recorder.add(now.saturating_sub(Duration::from_nanos(mark.nanos)));
            }
        }
    }
}
