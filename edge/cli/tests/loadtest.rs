//! `malachi loadtest` as a shell sees it, against a scripted broker: each scenario runs, counts, and finds what a
//! broker did wrong.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

mod shell;

use serde_json::Value;
use shell::fake::{Fake, Verdict};
use shell::{run, text};
use wire::{Reason, Request};

fn loadtest(fake: &Fake, args: &[&str]) -> (Option<i32>, Value) {
    let connections: &[&str] = if args.contains(&"--connections") { &[] } else { &["--connections", "4"] };
    let args = [&["loadtest", "--duration", "1", "--json"], connections, args].concat();
    let output = run(fake, &args, None);
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    (output.status.code(), report)
}

#[track_caller]
fn assert_good(status: Option<i32>, report: &Value) {
    assert_eq!(status, Some(0), "{report:#}");
    assert_eq!(report["errors"], 0, "{report:#}");
    assert!(report["operations"].as_u64().unwrap() > 0, "{report:#}");
    assert!(report["records"].as_u64() >= report["operations"].as_u64(), "{report:#}");
}

#[track_caller]
fn assert_verified(report: &Value) {
    let verified = &report["verified"];
    assert_eq!((&verified["ok"], &verified["missing"]), (&true.into(), &0.into()), "{report:#}");
    assert!(verified["found"].as_u64() >= verified["acknowledged"].as_u64(), "{report:#}");
}

#[test]
fn appends_are_counted_and_read_back() {
    for more in [&[][..], &["--checksums"], &["--record-size", "10"]] {
        let fake = Fake::start();
        let args = [&["--batch", "7", "--keys", "5", "--warmup", "1"], more].concat();
        let (status, report) = loadtest(&fake, &args);
        assert_good(status, &report);
        assert_verified(&report);
        assert_eq!((&report["scenario"], &report["mode"]), (&"produce".into(), &"closed-loop".into()));
        assert_eq!(report["target_rate_per_s"], Value::Null);
        let latency = &report["latency_ms"];
        assert!(latency["min"].as_f64() <= latency["p50"].as_f64(), "{report:#}");
        assert!(latency["p50"].as_f64() <= latency["p99"].as_f64(), "{report:#}");
        assert!(latency["samples"].as_u64() <= report["operations"].as_u64(), "{report:#}");
    }
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let fake = Fake::start();
    let (status, report) = loadtest(&fake, &["--rate", "400"]);
    assert_good(status, &report);
    assert_verified(&report);
    let operations = report["operations"].as_u64().unwrap();
    assert!((380..=401).contains(&operations), "{report:#}");
    assert_eq!((&report["mode"], &report["saturated"]), (&"open-loop".into(), &false.into()));
    assert_eq!(report["latency_ms"]["coordinated_omission_corrected"], true);
}

#[test]
fn an_open_loop_stops_when_too_much_is_under_way() {
    let fake = Fake::scripted(|request| match request {
        Request::Produce(_) => Verdict::Ignore,
        _ => Verdict::Serve,
    });
    let args = ["--rate", "400", "--max-inflight", "20", "--no-verify", "--connections", "1"];
    // The answers never come, so the wait for the last ones would be long: it is enough to see it saturated.
    let mut child =
        shell::malachi(&fake, &[&["loadtest", "--duration", "1"], &args[..]].concat()).spawn().unwrap();
    fake.wait_until(|state| state.seen.iter().filter(|key| **key == wire::ApiKey::Produce).count() == 20);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn reads_streams_and_mixtures_run() {
    for scenario in ["fetch", "stream", "mixed"] {
        let fake = Fake::start();
        let (status, report) = loadtest(&fake, &["--scenario", scenario, "--prepopulate", "2000"]);
        assert_good(status, &report);
        let bytes = report["bytes"].as_u64().unwrap();
        assert_eq!(bytes, report["records"].as_u64().unwrap() * 128, "{report:#}");
        assert_eq!(report["latency_ms"].is_null(), scenario == "stream", "{report:#}");
        assert_eq!(report["verified"].is_null(), scenario != "mixed", "{report:#}");
    }
}

#[test]
fn the_age_of_pushed_records_is_measured() {
    let fake = Fake::start();
    let (status, report) = loadtest(&fake, &["--scenario", "tail", "--rate", "200"]);
    assert_good(status, &report);
    assert_verified(&report);
    let samples = report["latency_ms"]["samples"].as_u64().unwrap();
    assert!((200..=404).contains(&samples), "two readers of two hundred records: {report:#}");
    let output = run(&fake, &["loadtest", "--scenario", "tail", "--record-size", "8"], None);
    assert!(text(&output.stderr).contains("--record-size of 24 or more"), "{output:?}");
}

#[test]
fn a_broker_that_loses_or_repeats_is_found_out() {
    // Acknowledges without storing, now and then.
    let mut count = 0;
    let loses = Fake::scripted(move |request| match request {
        Request::Produce(produce) => {
            count += 1;
            if count % 50 == 0 { lie(produce.count) } else { Verdict::Serve }
        }
        _ => Verdict::Serve,
    });
    let (status, report) = loadtest(&loses, &["--connections", "1"]);
    assert_eq!(status, Some(1), "{report:#}");
    assert!(report["verified"]["missing"].as_u64().unwrap() > 0, "{report:#}");
    assert_eq!(report["verified"]["ok"], false);

    let repeats = Fake::scripted(|_| Verdict::Serve);
    let state = std::sync::Arc::clone(&repeats.state);
    let meddler = std::thread::spawn(move || {
        loop {
            let mut state = state.lock().unwrap();
            let Some(records) = state.topics.values_mut().next().filter(|records| records.len() > 20) else {
                continue;
            };
            let again = records[3].clone();
            records.push(again);
            // And one that comes too early.
            records.swap(10, 15);
            return;
        }
    });
    let (status, report) = loadtest(&repeats, &["--connections", "1", "--keys", "1"]);
    meddler.join().unwrap();
    assert_eq!(status, Some(1), "{report:#}");
    let verified = &report["verified"];
    assert_eq!((&verified["repeated"], &verified["missing"]), (&1.into(), &0.into()), "{report:#}");
    assert!(verified["out_of_order"].as_u64().unwrap() > 0, "{report:#}");
}

/// An acknowledgement of what was not stored, for the only request under way on its connection. Ids count
/// from the password's.
fn lie(count: u32) -> Verdict {
    let id = LIES.fetch_add(50, std::sync::atomic::Ordering::Relaxed);
    let mut out = wire::Gather::new();
    wire::Response::Ok(wire::Payload::Stored(count)).encode(id, &mut out);
    let bytes = bytes::Buf::copy_to_bytes(&mut out, 14);
    Verdict::Raw(bytes.to_vec())
}

static LIES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(51);

#[test]
fn errors_are_told_and_fail_only_when_asked() {
    let script = || {
        Fake::scripted(|request| match request {
            Request::Produce(_) => Verdict::Refuse(Reason::RateLimited),
            _ => Verdict::Serve,
        })
    };
    let (status, report) = loadtest(&script(), &[]);
    assert_eq!((status, &report["operations"]), (Some(0), &0.into()), "{report:#}");
    assert!(report["errors_by_reason"]["rate_limited"].as_u64().unwrap() > 10, "{report:#}");
    assert_eq!(report["latency_ms"], Value::Null);
    let (status, _) = loadtest(&script(), &["--max-errors", "10"]);
    assert_eq!(status, Some(1));
}

#[test]
fn the_machine_alone_is_measured_and_nothing_stays() {
    let fake = Fake::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let (status, report) = loadtest(&fake, &["--baseline-dir", path, "--batch", "3"]);
    assert_good(status, &report);
    let baseline = &report["baseline"];
    assert_eq!(baseline["block_bytes"], 3 * 128);
    assert!(baseline["disk_sync_ms"]["p50"].as_f64().unwrap() > 0.0, "{report:#}");
    assert!(baseline["loopback_per_s"].as_u64().unwrap() > 0, "{report:#}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let text_report = run(&fake, &["loadtest", "--duration", "1", "--connections", "2"], None);
    let text_report = text(&text_report.stdout);
    assert!(text_report.starts_with("produce, closed-loop\n") && text_report.contains("read back    good"));
}
