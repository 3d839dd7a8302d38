//! What the process counts, and every series it is shown as.
//!
//! Owns names, units and help texts. Counting costs an atomic or two and no lock; what the core and the disks keep
//! for themselves is asked for when somebody looks (`observed`).

#[cfg(test)]
mod docs;
mod observed;
mod process;
mod series;
mod upkeep;

use std::time::Duration;

use broker::{Cause, Reply, Volume};
use prometheus::{
    Counter, Encoder, Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};
use wire::{ApiKey, Reason};

use crate::audit::Kind;

pub(crate) use observed::{Observed, Seen};
pub(crate) use upkeep::UpkeepSeries;

/// Content type of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// One more than the largest number of an operation.
const OPERATIONS: usize = ApiKey::ALL[ApiKey::ALL.len() - 1].number() as usize + 1;

/// Everything that is counted where it happens.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) input_bytes: IntCounter,
    pub(crate) output_bytes: IntCounter,
    connections: IntGaugeVec,
    pub(crate) connections_refused: IntCounter,
    /// By the operation's number.
    requests: Vec<IntCounter>,
    answers_ok: Vec<IntCounter>,
    answers: IntCounterVec,
    produce_seconds: Histogram,
    records_produced: IntCounter,
    bytes_produced: IntCounter,
    records_consumed: IntCounter,
    bytes_consumed: IntCounter,
    auth_ok: IntCounter,
    auth_error: IntCounter,
    failed_auth: IntCounter,
    pub(crate) lockouts: IntCounter,
    rate_limited: IntCounterVec,
    dashboard_auth: IntCounterVec,
    handshakes: IntCounterVec,
    tls_enabled: IntGauge,
    pub(crate) core_busy: Counter,
    pub(crate) core_bursts: IntCounter,
    notices: IntCounterVec,
    audited: IntCounterVec,
    sealed: IntCounterVec,
    /// Retention, orphans, scrub.
    pub(crate) upkeep: UpkeepSeries,
    paused_seconds: Histogram,
    seen: Seen,
    /// Every series there is.
    #[cfg(test)]
    described: Vec<docs::Described>,
}

/// What a connection is doing, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nobody has logged in on it.
    Welcome,
    /// It serves requests.
    Serving,
    /// It has an open stream.
    Streaming,
}

/// One of a gauge, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Held(IntGauge);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Makes series and registers them.
struct Maker<'a> {
    registry: &'a Registry,
    #[cfg(test)]
    described: std::cell::RefCell<Vec<docs::Described>>,
}

const DISTINCT: &str = "every name is registered once, and is a name";

impl Maker<'_> {
    fn keep<C: prometheus::core::Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let made = made.expect(DISTINCT);
        #[cfg(test)]
        self.described.borrow_mut().extend(made.desc().into_iter().map(docs::Described::of));
        self.registry.register(Box::new(made.clone())).expect(DISTINCT);
        made
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.keep(IntCounter::new(name, help))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.keep(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn seconds_counter(&self, name: &str, help: &str) -> Counter {
        self.keep(Counter::new(name, help))
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.keep(IntGauge::new(name, help))
    }

    fn fraction(&self, name: &str, help: &str) -> Gauge {
        self.keep(Gauge::new(name, help))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.keep(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    /// Doubling every second bound from 64 microseconds to half a minute.
    fn seconds(&self, name: &str, help: &str) -> Histogram {
        let bounds = (0..39).map(|k| 64e-6 * 2_f64.powf(f64::from(k) / 2.0)).collect();
        self.keep(Histogram::with_opts(HistogramOpts::new(name, help).buckets(bounds)))
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let make = Maker {
            registry: &registry,
            #[cfg(test)]
            described: std::cell::RefCell::default(),
        };
        let io = make.counters("malachi_io_bytes_total", "Bytes over client connections", &["direction"]);
        let requests = make.counters("malachi_requests_total", "Requests decoded", &["operation"]);
        let answers = make.counters(
            "malachi_answers_total",
            "Requests answered, by ok or the reason of the refusal",
            &["operation", "result"],
        );
        let auth = make.counters("malachi_auth_attempts_total", "Logins on the client port", &["result"]);
        make.gauge("malachi_up", "Always 1").set(1);
        make.gauges("malachi_build_info", "Always 1", &["version"])
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1);
        let metrics = Self {
            input_bytes: io.with_label_values(&["input"]),
            output_bytes: io.with_label_values(&["output"]),
            connections: make.gauges("malachi_connections", "Client connections", &["state"]),
            connections_refused: make.counter(
                "malachi_connection_limit_blocked_total",
                "Connections refused because there were as many as may be",
            ),
            requests: by_operation(|name| requests.with_label_values(&[name])),
            answers_ok: by_operation(|name| answers.with_label_values(&[name, "ok"])),
            answers,
            produce_seconds: make.seconds(
                "malachi_produce_duration_seconds",
                "From the arrival of a produce request to its answer, when records were stored",
            ),
            records_produced: make.counter("malachi_records_produced_total", "Records stored"),
            bytes_produced: make.counter("malachi_bytes_produced_total", "Their bytes as encoded"),
            records_consumed: make.counter("malachi_records_consumed_total", "Records fetched or pushed"),
            bytes_consumed: make.counter("malachi_bytes_consumed_total", "Their bytes as encoded"),
            auth_ok: auth.with_label_values(&["ok"]),
            auth_error: auth.with_label_values(&["error"]),
            failed_auth: make.counter("malachi_failed_auth_total", "Failed logins that count towards a lock"),
            lockouts: make.counter("malachi_account_lockouts_total", "Locks after failed logins"),
            rate_limited: make.counters(
                "malachi_rate_limit_blocked_total",
                "Attempts refused by a rate limit",
                &["action"],
            ),
            dashboard_auth: make.counters("malachi_dashboard_auth_total", "Logins over HTTP", &["outcome"]),
            handshakes: make.counters(
                "malachi_tls_handshakes_total",
                "TLS handshakes of clients",
                &["outcome"],
            ),
            tls_enabled: make.gauge("malachi_tls_enabled", "Whether the client port speaks TLS"),
            core_busy: make.seconds_counter(
                "malachi_core_busy_seconds_total",
                "Time the core thread has worked; its share of a second is the core's load",
            ),
            core_bursts: make.counter("malachi_core_bursts_total", "Times the core thread took up work"),
            notices: make.counters(
                "malachi_notices_total",
                "Changes of state and failures the node has told of, by kind",
                &["kind"],
            ),
            audited: make.counters(
                "malachi_audit_events_total",
                "Lines of the audit log, by what happened",
                &["event_type"],
            ),
            sealed: make.counters("malachi_segments_sealed_total", "Segments sealed, by cause", &["cause"]),
            paused_seconds: make.seconds(
                "malachi_range_pause_seconds",
                "How long producers to a range that came of a split or merge had to wait",
            ),
            upkeep: UpkeepSeries::new(&make),
            seen: Seen::new(&make),
            #[cfg(test)]
            described: make.described.take(),
            registry,
        };
        // A series that appears with the first failure cannot be watched for it.
        for kind in Kind::ALL {
            metrics.audited.with_label_values(&[kind.as_str()]).reset();
        }
        for doing in [Doing::Welcome, Doing::Serving, Doing::Streaming] {
            metrics.state(doing).set(0);
        }
        metrics
    }

    /// Counts a connection in this state until the guard is dropped.
    pub(crate) fn hold(&self, doing: Doing) -> Held {
        let gauge = self.state(doing);
        gauge.inc();
        Held(gauge)
    }

    fn state(&self, doing: Doing) -> IntGauge {
        let label = match doing {
            Doing::Welcome => "welcome",
            Doing::Serving => "serving",
            Doing::Streaming => "streaming",
        };
        self.connections.with_label_values(&[label])
    }

    /// A request was understood.
    pub(crate) fn requested(&self, operation: ApiKey) {
        self.requests[usize::from(operation.number())].inc();
    }

    /// A request was refused, by whomever.
    pub(crate) fn refused(&self, operation: ApiKey, reason: Reason) {
        self.answers.with_label_values(&[operation.name(), reason.as_str()]).inc();
    }

    /// The core has answered, after so long.
    pub(crate) fn answered(&self, operation: ApiKey, reply: &Reply, after: Duration) {
        if let Reply::Failed(reason) = reply {
            return self.refused(operation, *reason);
        }
        self.answers_ok[usize::from(operation.number())].inc();
        match reply {
            Reply::Stored(count) => {
                self.records_produced.inc_by(u64::from(*count));
                self.produce_seconds.observe(after.as_secs_f64());
            }
            Reply::Fetched(fetched) => self.gave(fetched),
            Reply::Created
            | Reply::Committed
            | Reply::Left
            | Reply::Subscribed
            | Reply::Acked
            | Reply::Done
            | Reply::Topics(..)
            | Reply::Topic(..)
            | Reply::Split { .. }
            | Reply::Merged { .. }
            | Reply::Producer { .. }
            | Reply::Sought(_)
            | Reply::Groups(..)
            | Reply::Group(_)
            | Reply::GroupMoved { .. }
            | Reply::Credentials(_)
            | Reply::Welcome(_)
            | Reply::Users(_)
            | Reply::UsersAndRoles(_)
            | Reply::UserPage(..)
            | Reply::Unlocked(_)
            | Reply::Rights(_)
            | Reply::Policy(_)
            | Reply::Policies(_)
            | Reply::ClusterStatus(_)
            | Reply::NodeChanged(_)
            | Reply::Ring(_)
            | Reply::Resharding(_)
            | Reply::Rebalancing(_)
            | Reply::Flags(_)
            | Reply::FlagEnabled(_)
            | Reply::Segments(_)
            | Reply::Explained(_)
            | Reply::Failed(_) => {}
        }
    }

    /// So many bytes of records were stored.
    pub(crate) fn stored_bytes(&self, bytes: usize) {
        self.bytes_produced.inc_by(bytes as u64);
    }

    /// Records were given to a reader.
    pub(crate) fn gave(&self, fetched: &broker::Fetched) {
        let bytes: usize = fetched.runs.iter().map(|run| run.records.len()).sum();
        self.records_consumed.inc_by(u64::from(fetched.count));
        self.bytes_consumed.inc_by(bytes as u64);
    }

    /// A login on the client port ended; the error is what it was told.
    pub(crate) fn login(&self, result: Result<(), Reason>) {
        match result {
            Ok(()) => self.auth_ok.inc(),
            Err(reason) => {
                self.auth_error.inc();
                self.login_failed("auth", reason);
            }
        }
    }

    /// The same over HTTP.
    pub(crate) fn http_login(&self, result: Result<(), Reason>) {
        let outcome = match result {
            Ok(()) => "success",
            Err(Reason::RateLimitExceeded) => "blocked",
            Err(_) => "failed",
        };
        self.dashboard_auth.with_label_values(&[outcome]).inc();
        if let Err(reason) = result {
            self.login_failed("dashboard_auth", reason);
        }
    }

    fn login_failed(&self, action: &str, reason: Reason) {
        if reason == Reason::InvalidCredentials {
            self.failed_auth.inc();
        } else if reason == Reason::RateLimitExceeded {
            self.blocked(action);
        }
    }

    /// Whether the client port speaks TLS.
    pub(crate) fn serves_tls(&self, enabled: bool) {
        self.tls_enabled.set(i64::from(enabled));
    }

    /// A TLS handshake ended.
    pub(crate) fn handshake(&self, succeeded: bool) {
        let outcome = if succeeded { "success" } else { "failed" };
        self.handshakes.with_label_values(&[outcome]).inc();
    }

    /// A rate limit refused.
    pub(crate) fn blocked(&self, action: &str) {
        self.rate_limited.with_label_values(&[action]).inc();
    }

    /// The node told of something.
    pub(crate) fn notice(&self, kind: &str) {
        self.notices.with_label_values(&[kind]).inc();
    }

    /// The audit log has a line more.
    pub(crate) fn audited(&self, kind: Kind) {
        self.audited.with_label_values(&[kind.as_str()]).inc();
    }

    /// A segment takes records; producers waited so long.
    pub(crate) fn opened(&self, paused: Option<Duration>) {
        if let Some(paused) = paused {
            self.paused_seconds.observe(paused.as_secs_f64());
        }
    }

    /// A segment ended.
    pub(crate) fn sealed(&self, cause: Cause) {
        let label = match cause {
            Cause::Size => "size",
            Cause::Restart => "restart",
            Cause::Failure => "failure",
            Cause::Age => "age",
            Cause::Replaced => "replaced",
            Cause::Moved => "moved",
            Cause::Lost => "lost",
        };
        self.sealed.with_label_values(&[label]).inc();
    }

    /// Everything as text, with what was seen of the core just now or last.
    pub(crate) fn text(&self, observed: Option<Observed>, sessions: usize) -> String {
        let mut families = self.seen.update(observed, sessions);
        families.extend(self.registry.gather());
        families.sort_by(|a, b| a.name().cmp(b.name()));
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&families, &mut text) {
            tracing::error!(reason = %error, "metrics not encoded");
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn by_operation(counter: impl Fn(&str) -> IntCounter) -> Vec<IntCounter> {
    let name = |number| u16::try_from(number).ok().and_then(ApiKey::from_number).map(ApiKey::name);
    (0..OPERATIONS)
        .map(|number| {
            // Numbers between operations are never asked for; a series for each would only be noise.
            name(number).map_or_else(|| IntCounter::new("unused", "unused").expect("it is a name"), &counter)
        })
        .collect()
}

/// A data directory as a label.
fn volume(volume: Volume) -> &'static str {
    match volume {
        Volume::Log => "log",
        Volume::Raft => "raft",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_place() {
        assert!(ApiKey::ALL.iter().all(|key| usize::from(key.number()) < OPERATIONS));
    }

    #[test]
    fn what_is_counted_is_shown_with_one_help_and_one_type_line() {
        let metrics = Metrics::new();
        metrics.requested(ApiKey::Produce);
        metrics.answered(ApiKey::Produce, &Reply::Stored(3), Duration::from_millis(2));
        metrics.answered(ApiKey::Produce, &Reply::Failed(Reason::Overloaded), Duration::ZERO);
        metrics.login(Err(Reason::InvalidCredentials));
        metrics.sealed(Cause::Age);
        let held = metrics.hold(Doing::Streaming);
        let text = metrics.text(None, 5);
        for line in [
            r#"malachi_requests_total{operation="produce"} 1"#,
            r#"malachi_answers_total{operation="produce",result="ok"} 1"#,
            r#"malachi_answers_total{operation="produce",result="overloaded"} 1"#,
            r#"malachi_auth_attempts_total{result="error"} 1"#,
            r#"malachi_connections{state="streaming"} 1"#,
            r#"malachi_connections{state="serving"} 0"#,
            r#"malachi_segments_sealed_total{cause="age"} 1"#,
            "malachi_records_produced_total 3",
            "malachi_produce_duration_seconds_count 1",
            "malachi_active_sessions 5",
            "malachi_failed_auth_total 1",
            "malachi_up 1",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
        for mark in ["# HELP ", "# TYPE "] {
            let mut names: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix(mark))
                .filter_map(|line| line.split(' ').next())
                .collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{text}");
        }
        drop(held);
        assert!(metrics.text(None, 0).contains(r#"malachi_connections{state="streaming"} 0"#));
    }
}
