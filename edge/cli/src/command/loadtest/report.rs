//! What a run says at its end.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::baseline::Baseline;
use super::stats::{Summary, Tally};
use super::verify::Verified;
use super::{Run, Scenario};
use crate::print;

/// All that is known about a run.
pub(super) struct Report<'a> {
    pub(super) run: &'a Run,
    pub(super) tally: Tally,
    pub(super) verified: Option<Verified>,
    pub(super) baseline: Option<Baseline>,
}

impl Report<'_> {
    fn mode(&self) -> &'static str {
        match self.run.args.scenario {
            Scenario::Stream => "stream",
            Scenario::Produce | Scenario::Fetch | Scenario::Mixed | Scenario::Tail => {
                if self.is_open() {
                    "open-loop"
                } else {
                    "closed-loop"
                }
            }
        }
    }

    fn is_open(&self) -> bool {
        self.run.args.rate > 0 && self.run.args.scenario != Scenario::Stream
    }

    /// Failed when the broker did not keep its word, or when more failed than was allowed.
    pub(super) fn status(&self) -> ExitCode {
        let broken = self.verified.is_some_and(|verified| !verified.is_good());
        let errors = self.run.args.max_errors.is_some_and(|max| self.tally.error_count() > max);
        if broken || errors { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    pub(super) fn print(&self) -> std::io::Result<()> {
        if self.run.args.json { print::line(&self.json()) } else { self.text() }
    }

    fn per_s(&self, count: u64) -> f64 {
        count as f64 / self.run.args.duration as f64
    }

    fn json(&self) -> Value {
        let args = &self.run.args;
        let latency = match self.run.latencies.summary() {
            Summary { count: 0, .. } => Value::Null,
            summary => {
                let mut latency = milliseconds(&summary);
                latency["coordinated_omission_corrected"] = self.is_open().into();
                latency
            }
        };
        let open = self.is_open();
        json!({
            "scenario": clap::ValueEnum::to_possible_value(&args.scenario).map(|value| value.get_name().to_owned()),
            "mode": self.mode(),
            "connections": args.connections,
            "duration_s": args.duration,
            "topic": self.run.topic,
            "target_rate_per_s": open.then_some(args.rate),
            "saturated": open.then(|| self.run.saturated.load(Ordering::Relaxed)),
            "operations": self.tally.operations,
            "ops_per_s": self.per_s(self.tally.operations),
            "records": self.tally.records,
            "records_per_s": self.per_s(self.tally.records),
            "bytes": self.tally.bytes,
            "mb_per_s": self.per_s(self.tally.bytes) / 1e6,
            "errors": self.tally.error_count(),
            "errors_by_reason": self.tally.errors,
            "latency_ms": latency,
            "verified": self.verified.map(|verified| verified_json(&verified)),
            "baseline": self.baseline.map(|baseline| baseline_json(&baseline)),
        })
    }

    fn text(&self) -> std::io::Result<()> {
        let args = &self.run.args;
        let heading = format!("{:?}, {}", args.scenario, self.mode()).to_lowercase();
        print::line(&print::Style::Heading.on_stdout(&heading))?;
        print::line(&format_args!("  topic        {}", self.run.topic))?;
        print::line(&format_args!("  load         {} connections, {} s", args.connections, args.duration))?;
        if self.is_open() {
            let saturated = self.run.saturated.load(Ordering::Relaxed);
            let saturated = if saturated { ", saturated" } else { "" };
            print::line(&format_args!("  target       {} requests/s{saturated}", args.rate))?;
        }
        let (operations, records) = (self.tally.operations, self.tally.records);
        print::line(&format_args!("  operations   {operations}  ({:.0}/s)", self.per_s(operations)))?;
        print::line(&format_args!("  records      {records}  ({:.0}/s)", self.per_s(records)))?;
        let megabytes = self.tally.bytes as f64 / 1e6;
        let per_s = self.per_s(self.tally.bytes) / 1e6;
        print::line(&format_args!("  values       {megabytes:.1} MB  ({per_s:.1} MB/s)"))?;
        print::line(&format_args!("  errors       {}", self.tally.error_count()))?;
        for (error, count) in &self.tally.errors {
            print::line(&format_args!("    {count} x {}", print::printable(error)))?;
        }
        let latency = self.run.latencies.summary();
        if latency.count > 0 {
            print::line(&format_args!("  latency      {}", in_words(&latency)))?;
        }
        if let Some(verified) = &self.verified {
            verified_text(verified)?;
        }
        if let Some(baseline) = &self.baseline {
            self.baseline_text(baseline, &latency)?;
        }
        Ok(())
    }

    fn baseline_text(&self, baseline: &Baseline, latency: &Summary) -> std::io::Result<()> {
        let Baseline { block_bytes, sync, disk_bytes_per_s, loopback, loopback_per_s } = baseline;
        print::line(&format_args!("without a broker, blocks of {block_bytes} bytes"))?;
        print::line(&format_args!("  disk sync    {}", in_words(sync)))?;
        print::line(&format_args!(
            "  disk         {:.1} MB/s, synced each mebibyte",
            *disk_bytes_per_s as f64 / 1e6
        ))?;
        print::line(&format_args!("  loopback     {}  ({loopback_per_s}/s)", in_words(loopback)))?;
        if latency.count > 0 && sync.p50 > 0 {
            let times = latency.p50 as f64 / sync.p50 as f64;
            print::line(&format_args!("  median       {times:.2} times that of a sync"))?;
        }
        Ok(())
    }
}

fn ms(nanos: u64) -> f64 {
    // Whole microseconds: more digits would only look exact.
    (nanos as f64 / 1e3).round() / 1e3
}

fn milliseconds(summary: &Summary) -> Value {
    json!({
        "min": ms(summary.min),
        "mean": ms(summary.mean),
        "p50": ms(summary.p50),
        "p90": ms(summary.p90),
        "p95": ms(summary.p95),
        "p99": ms(summary.p99),
        "p999": ms(summary.p999),
        "max": ms(summary.max),
        "samples": summary.samples,
    })
}

fn in_words(summary: &Summary) -> String {
    let Summary { p50, p90, p99, p999, max, .. } = *summary;
    let [p50, p90, p99, p999, max] = [p50, p90, p99, p999, max].map(ms);
    format!("p50 {p50:.3}  p90 {p90:.3}  p99 {p99:.3}  p99.9 {p999:.3}  max {max:.3} ms")
}

fn verified_json(verified: &Verified) -> Value {
    json!({
        "ok": verified.is_good(),
        "acknowledged": verified.acknowledged,
        "found": verified.found,
        "missing": verified.missing,
        "damaged": verified.damaged,
        "repeated": verified.repeated,
        "out_of_order": verified.out_of_order,
        "unacknowledged": verified.unacknowledged,
        "by_content": verified.marked,
        "elapsed_ms": u64::try_from(verified.elapsed.as_millis()).unwrap_or(u64::MAX),
        "mb_per_s": verified.bytes as f64 / 1e6 / verified.elapsed.as_secs_f64(),
    })
}

fn verified_text(verified: &Verified) -> std::io::Result<()> {
    let Verified { acknowledged, found, missing, damaged, repeated, out_of_order, .. } = verified;
    let word = if verified.is_good() {
        print::Style::Good.on_stdout("good")
    } else {
        print::Style::Bad.on_stdout("NOT GOOD")
    };
    print::line(&format_args!(
        "  read back    {word}: {acknowledged} acknowledged, {found} found, {missing} missing, {damaged} damaged, \
         {repeated} repeated, {out_of_order} out of order"
    ))?;
    let per_s = verified.bytes as f64 / 1e6 / verified.elapsed.as_secs_f64();
    print::line(&format_args!("               at {per_s:.1} MB/s"))
}

fn baseline_json(baseline: &Baseline) -> Value {
    json!({
        "block_bytes": baseline.block_bytes,
        "disk_sync_ms": milliseconds(&baseline.sync),
        "disk_mb_per_s": baseline.disk_bytes_per_s as f64 / 1e6,
        "loopback_ms": milliseconds(&baseline.loopback),
        "loopback_per_s": baseline.loopback_per_s,
    })
}
