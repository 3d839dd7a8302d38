//! What goes to the terminal. The one place that prints, so that a closed pipe is handled once.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// A line on standard output.
pub(crate) fn line(text: &dyn Display) -> io::Result<()> {
    quiet_when_closed(writeln!(io::stdout().lock(), "{text}"))
}

/// A line on standard error; a failure to say it is nothing more to say.
pub(crate) fn note(text: &dyn Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// `Error: ...` on standard error.
pub(crate) fn error(error: &anyhow::Error) {
    note(&format_args!("Error: {error:#}"));
}

/// A reader that has enough closes the pipe; that is no failure of ours.
pub(crate) fn quiet_when_closed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// A running count on standard error, when that is a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    shown: Option<Instant>,
    on: bool,
}

impl Progress {
    const EVERY: Duration = Duration::from_millis(200);

    /// Starts the clock; silent when `wanted` is false or nobody watches.
    pub(crate) fn start(wanted: bool) -> Self {
        Self { start: Instant::now(), shown: None, on: wanted && io::stderr().is_terminal() }
    }

    /// Shows a count, not too often.
    pub(crate) fn show(&mut self, records: u64) {
        let due = self.shown.is_none_or(|shown| shown.elapsed() >= Self::EVERY);
        if self.on && due {
            self.shown = Some(Instant::now());
            let rate = per_second(records, self.start.elapsed());
            let _ = write!(io::stderr().lock(), "\r\x1b[K{records} records   {rate} rec/s");
        }
    }

    /// Takes the count off the screen; gives the time since the start.
    pub(crate) fn finish(&mut self) -> Duration {
        if self.on && self.shown.take().is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
        self.start.elapsed()
    }
}

/// Whole records a second.
pub(crate) fn per_second(records: u64, elapsed: Duration) -> u64 {
    let micros = elapsed.as_micros().max(1);
    u64::try_from(u128::from(records) * 1_000_000 / micros).unwrap_or(u64::MAX)
}
