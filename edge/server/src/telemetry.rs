//! Log set-up: constant messages with fields, on stderr.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::config::LogFormat;

/// Starts logging. A second call in one process changes nothing.
pub(crate) fn start(format: LogFormat) {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal);
    // An embedding test may have set one already.
    match format {
        LogFormat::Text => drop(subscriber.try_init()),
        LogFormat::Json => drop(subscriber.json().flatten_event(true).try_init()),
    }
}
