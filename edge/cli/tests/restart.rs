//! A real broker, killed and started again: what was acknowledged is there, in order, and refusals say why.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used)]

mod process;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use client::{Batch, Client, Fetch, Options};
use process::Place;

async fn connect(place: &Place, user: &str, password: &str) -> Client {
    // A broker that is killed is not waited for.
    let retry_for = Duration::from_secs(1);
    let options = Options { retry_for, ..Options::new(place.address(), user, password) };
    Client::connect_with(options).await.unwrap()
}

async fn admin(place: &Place) -> Client {
    connect(place, "admin", "admin123").await
}

/// Every value of a topic from `fetch`'s start, and the last cursor.
async fn read_all(client: &Client, fetch: Fetch) -> (Vec<String>, Bytes) {
    let mut values = Vec::new();
    let mut fetch = Fetch { max: 1000, ..fetch };
    loop {
        let page = client.fetch(fetch.clone()).await.unwrap();
        let cursor = page.next_cursor.clone();
        if page.count == 0 {
            return (values, cursor);
        }
        let records = page.decode_records().unwrap();
        values.extend(records.into_iter().map(|record| String::from_utf8(record.value.to_vec()).unwrap()));
        fetch.cursor = Some(cursor);
    }
}

fn topic(name: &'static str) -> Fetch {
    Fetch { topic: Some(Bytes::from_static(name.as_bytes())), ..Fetch::default() }
}

fn numbered(numbers: std::ops::Range<u64>) -> Batch {
    let mut batch = Batch::default();
    for n in numbers {
        batch.push_parts(Some(b"key"), n.to_string().as_bytes(), n);
    }
    batch
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn killed_in_the_middle_of_producing_it_has_everything_it_acknowledged() {
    const BATCH: u64 = 7;
    // Small segments, so that some of the kills meet one being ended or opened.
    let place = Place::new().with("MALACHI_SEGMENT_MAX_BYTES", "20000");
    let broker = place.start();
    let runtime = runtime();
    runtime.block_on(async { admin(&place).await.create_topic("t", 0).await.unwrap() });
    let mut broker = Some(broker);
    let mut written = 0;
    for round in 1..=5 {
        let mut running = broker.take().unwrap_or_else(|| place.start());
        running.expect("segment copy missing, sealed empty");
        let acknowledged = runtime.block_on(async {
            let mut producer = admin(&place).await.producer("t", 64);
            let start = written;
            let mut next = start;
            let kill_at = 700 * round;
            let mut running = Some(running);
            loop {
                let sent = producer.send(numbered(next..next + BATCH)).await;
                next += BATCH;
                if producer.progress().stored_in_front >= kill_at
                    && let Some(running) = running.take()
                {
                    running.kill();
                }
                if sent.is_err() {
                    return start + producer.progress().stored_in_front;
                }
            }
        });
        assert!(acknowledged >= written + 700 * round, "round {round}");
        let mut running = place.start();
        running.expect("segment copy missing, sealed empty");
        let (values, _) = runtime.block_on(async { read_all(&admin(&place).await, topic("t")).await });
        let found = values.len() as u64;
        assert!(found >= acknowledged, "round {round}: {found} of {acknowledged} acknowledged records");
        assert_eq!(found % BATCH, 0, "round {round}: a batch is there whole or not at all");
        let expected: Vec<String> = (0..found).map(|n| n.to_string()).collect();
        assert!(values == expected, "round {round}: another order, a gap or a repeat");
        written = found;
        broker = Some(running);
    }
}

#[test]
fn positions_of_groups_survive() {
    let place = Place::new();
    let broker = place.start();
    let runtime = runtime();
    runtime.block_on(async {
        let client = admin(&place).await;
        client.create_topic("t", 0).await.unwrap();
        client.produce_batch("t", numbered(0..10)).await.unwrap();
        let page = client.fetch(Fetch { max: 4, group: Some("g".into()), ..topic("t") }).await.unwrap();
        client.commit("t", b"g", page.next_cursor).await.unwrap();
    });
    broker.kill();
    let broker = place.start();
    runtime.block_on(async {
        let client = connect(&place, "consumer", "consumer123").await;
        let (values, cursor) = read_all(&client, Fetch { group: Some("g".into()), ..topic("t") }).await;
        assert_eq!(values, ["4", "5", "6", "7", "8", "9"]);
        client.commit("t", b"g", cursor).await.unwrap();
        let client = connect(&place, "producer", "producer123").await;
        client.produce_batch("t", numbered(10..12)).await.unwrap();
    });
    assert!(broker.stop().success());
    let _broker = place.start();
    runtime.block_on(async {
        let client = admin(&place).await;
        let (values, _) = read_all(&client, Fetch { group: Some("g".into()), ..topic("t") }).await;
        assert_eq!(values, ["10", "11"]);
        assert_eq!(read_all(&client, topic("t")).await.0.len(), 12);
    });
}

#[test]
fn asked_to_stop_it_finishes_what_is_in_work_and_ends_well() {
    let place = Place::new();
    let mut broker = place.start();
    let runtime = runtime();
    let acknowledged = runtime.block_on(async {
        let client = admin(&place).await;
        client.create_topic("t", 0).await.unwrap();
        let waiting = client.clone();
        // A long poll must not hold the shutdown up.
        let poll =
            tokio::spawn(async move { waiting.fetch(Fetch { wait_ms: 30_000, ..topic("none") }).await });
        let mut producer = admin(&place).await.producer("t", 64);
        let (mut next, mut asked) = (0, false);
        loop {
            let sent = producer.send(numbered(next..next + 1)).await;
            next += 1;
            if producer.progress().stored_in_front >= 100 && !asked {
                asked = true;
                broker.terminate();
            }
            if sent.is_err() {
                assert!(poll.await.unwrap().is_err());
                return producer.progress().stored_in_front;
            }
        }
    });
    assert_eq!(broker.wait().code(), Some(0));
    let _broker = place.start();
    let (values, _) = runtime.block_on(async { read_all(&admin(&place).await, topic("t")).await });
    assert!(values.len() as u64 >= acknowledged);
}

#[test]
fn what_cannot_be_served_is_refused_in_one_line() {
    let place = Place::new();
    let broker = place.start();
    let same_port = Place { port: place.port, ..Place::new() };
    let (code, line) = same_port.refused();
    assert!(
        code == Some(1) && line.contains(&place.port.to_string()) && line.contains("MALACHI_TCP_PORT"),
        "{line}"
    );
    assert!(!same_port.log_dir().exists(), "nothing was touched");

    let same_dirs = Place::new()
        .with("MALACHI_LOG_DATA_DIR", place.log_dir().to_str().unwrap())
        .with("MALACHI_RA_DATA_DIR", place.raft_dir().to_str().unwrap());
    let (code, line) = same_dirs.refused();
    assert!(code == Some(1) && line.contains("in use by another process"), "{line}");

    let a_file = Place::new();
    process::write(&a_file.log_dir(), "not a directory");
    let (code, line) = a_file.refused();
    assert!(code == Some(1) && line.contains(a_file.log_dir().to_str().unwrap()), "{line}");

    let (code, line) = Place::new().with("MALACHI_TCP_PORT", "99999").refused();
    assert!(code == Some(1) && line.contains("MALACHI_TCP_PORT") && line.contains("99999"), "{line}");
    assert!(broker.stop().success());
}

#[test]
fn data_that_is_not_ours_to_touch_is_refused_with_78() {
    let place = Place::new();
    let broker = place.start();
    runtime().block_on(async {
        let client = admin(&place).await;
        client.create_topic("t", 0).await.unwrap();
        client.produce_batch("t", numbered(0..3)).await.unwrap();
    });
    assert!(broker.stop().success());

    let marker = place.log_dir().join("malachi.format");
    let original = std::fs::read_to_string(&marker).unwrap();
    for (content, part) in
        [(original.replace("malachi 1", "malachi 9"), "format 9"), ("?".to_owned(), "not a marker")]
    {
        process::write(&marker, &content);
        let (code, line) = place.refused();
        assert!(code == Some(78) && line.starts_with("REFUSING TO START (exit 78): "), "{line}");
        assert!(line.contains(part), "{line}");
    }
    process::write(&marker, &original);

    let _broker = place.start();
    let (values, _) = runtime().block_on(async { read_all(&admin(&place).await, topic("t")).await });
    assert_eq!(values, ["0", "1", "2"]);
}

/// Every file and directory below `dir`, with its bytes.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let bytes = (!path.is_dir()).then(|| std::fs::read(&path).unwrap());
            if bytes.is_none() {
                waiting.push(path.clone());
            }
            found.insert(path, bytes);
        }
    }
    found
}

/// One that was refused once must not have made the next start think that all is well.
#[test]
fn records_without_their_metadata_are_refused_at_every_start() {
    let place = Place::new();
    let broker = place.start();
    runtime().block_on(async {
        let client = admin(&place).await;
        client.create_topic("t", 0).await.unwrap();
        client.produce_batch("t", numbered(0..3)).await.unwrap();
    });
    assert!(broker.stop().success());
    let hidden = place.dir.path().join("hidden");
    std::fs::rename(place.raft_dir(), &hidden).unwrap();
    let log = contents(&place.log_dir());
    assert!(log.keys().any(|path| path.extension().is_some_and(|extension| extension == "log")));

    let (marker, raft) = (place.log_dir().join("malachi.format"), place.raft_dir());
    let cases: [(&str, &dyn Fn()); 4] = [
        ("no Raft directory", &|| {}),
        ("an empty one", &|| std::fs::create_dir(&raft).unwrap()),
        ("one with a marker only", &|| {
            std::fs::copy(&marker, raft.join("malachi.format")).unwrap();
        }),
        // Without a marker in either, the log directory looks new but for what it holds.
        ("no markers", &|| {
            std::fs::remove_file(&marker).unwrap();
            std::fs::remove_file(raft.join("malachi.format")).unwrap();
        }),
    ];
    for (case, prepare) in cases {
        prepare();
        let before = (contents(&place.log_dir()), raft.exists().then(|| contents(&raft)));
        for start in 1..=2 {
            let (code, line) = place.refused();
            assert_eq!(code, Some(78), "{case}, start {start}: {line}");
            let shown = place.log_dir().display().to_string();
            assert!(line.starts_with("REFUSING TO START (exit 78): ") && line.contains(&shown), "{line}");
            assert!(line.contains("knows nothing"), "{case}, start {start}: {line}");
            let after = (contents(&place.log_dir()), raft.exists().then(|| contents(&raft)));
            assert!(after == before, "{case}, start {start}: a refusal changes nothing");
        }
    }

    std::fs::write(&marker, log[&marker].as_ref().unwrap()).unwrap();
    // A Raft log whose group began elsewhere and never decided anything: it says itself which cluster it is of.
    let other = Place::new();
    assert!(other.start().stop().success());
    std::fs::remove_dir_all(&raft).unwrap();
    std::fs::rename(other.raft_dir(), &raft).unwrap();
    std::fs::copy(&marker, raft.join("malachi.format")).unwrap();
    for start in 1..=2 {
        let (code, line) = place.refused();
        assert!(code == Some(78) && line.contains("belongs to cluster"), "start {start}: {line}");
        assert!(contents(&place.log_dir()) == log, "start {start}: a refusal changes no record");
    }

    std::fs::remove_dir_all(&raft).unwrap();
    std::fs::rename(&hidden, &raft).unwrap();
    assert!(contents(&place.log_dir()) == log);
    let broker = place.start();
    runtime().block_on(async {
        let client = admin(&place).await;
        assert_eq!(read_all(&client, topic("t")).await.0, ["0", "1", "2"]);
        client.produce_batch("t", numbered(3..5)).await.unwrap();
        assert_eq!(read_all(&client, topic("t")).await.0, ["0", "1", "2", "3", "4"]);
    });
    assert!(broker.stop().success());
}
