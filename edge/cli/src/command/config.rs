//! `malachi config`: a broker's settings as it would take them, without starting one.

use std::path::PathBuf;
use std::process::ExitCode;

/// What to do with the settings.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Check the settings as at a start and print every problem
    Check(File),
    /// Print every setting, its value and where it comes from
    Show(Show),
}

/// Where settings come from besides the environment.
#[derive(Debug, clap::Args)]
pub(crate) struct File {
    /// Settings file; the environment wins over it
    #[arg(long = "config", value_name = "FILE")]
    config_file: Option<PathBuf>,
}

/// How they are shown.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    file: File,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let ended = match command {
        Command::Check(file) => server::config::check(file.config_file.as_deref(), &mut out),
        Command::Show(show) => server::config::show(show.file.config_file.as_deref(), show.json, &mut out),
    };
    match ended {
        // A reader that has enough closes the pipe.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        other => Ok(other?),
    }
}
