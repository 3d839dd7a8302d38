//! `malachi server`: runs a broker until it is told to stop.

use std::path::PathBuf;
use std::process::ExitCode;

/// Settings come from the environment.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Settings file; the environment wins over it
    #[arg(long = "config", value_name = "FILE")]
    config_file: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> ExitCode {
    server::run(server::Options { config_file: args.config_file })
}
