//! What the broker's process holds and uses.

use std::io::Write;
use std::time::Instant;

/// Ticks of processor time in a second, on every Linux there is.
const TICKS: f64 = 100.0;

pub(crate) fn say(line: &str) {
    // Nobody is left to tell when standard output is gone.
    drop(writeln!(std::io::stdout(), "{line}"));
}

pub(crate) struct Probe {
    pid: String,
    since: Instant,
    ticks: u64,
}

impl Probe {
    pub(crate) fn of(pid: impl Into<String>) -> Self {
        let mut probe = Self { pid: pid.into(), since: Instant::now(), ticks: 0 };
        probe.ticks = probe.ticks();
        probe
    }

    pub(crate) fn is_now(&mut self, pid: String) {
        self.pid = pid;
    }

    /// Time and processor time since the last look, memory and descriptors now.
    pub(crate) fn look(&mut self, what: &str) {
        let status = self.file("status");
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: u64 = kib.and_then(|kib| kib.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.pid)).map_or(0, Iterator::count);
        let (seconds, ticks) = (self.since.elapsed().as_secs_f64(), self.ticks());
        let processor = (ticks - self.ticks) as f64 / TICKS;
        say(&format!(
            "{what:<42} {seconds:>7.1} s {processor:>7.2} s of processor {:>5} MiB {open:>6} descriptors",
            kib / 1024
        ));
        (self.since, self.ticks) = (Instant::now(), ticks);
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.pid)).unwrap_or_default()
    }

    fn ticks(&self) -> u64 {
        let stat = self.file("stat");
        // After the name, which is in brackets: state is the first field, the times are the 12th and 13th.
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
        fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
    }
}
