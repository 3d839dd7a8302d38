//! The whole benchmark in its tiny form: it must run, verify, and leave nothing behind. Never times.

#![allow(clippy::unwrap_used)]

use std::process::Command;

#[test]
fn a_quick_run_measures_every_case_and_reads_everything_back() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_malachi-bench"))
        .args(["--quick", "--json", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for case in ["idle", "append", "group", "many", "scan"] {
        let rows = report["rows"].as_array().unwrap().iter().filter(|row| row["case"] == case).count();
        assert!(rows > 0, "no row of {case}");
    }
    // 20 sealed, 20 active with 2 each; 3 sizes, 2 rounds, 3 files, 3 flushes; 2 rounds of 3 and 192; 6 copies, 1 + 4 + 2 + 2 appends,
    // 4 times 6 to one and 2 behind idle ones; twice the scanned files.
    let scanned = 2 * (262_144 / 1096 + 262_144 / 65_608);
    let appended = 20 + 20 * 2 + 3 * 2 * 3 * 3 + 2 * (3 + 3 * 64) + 6 * 9 + 4 * 6 + 2;
    assert_eq!(report["verified_batches"], scanned + appended);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "left behind");
}

#[test]
fn wrong_flags_are_refused() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_malachi-bench")).args(["--case", "nonsense"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("idle, append, group, many, scan"));
}
