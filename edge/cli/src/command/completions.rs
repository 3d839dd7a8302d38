//! `malachi completions`: a script that completes commands and flags.

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{Cli, print};

/// For which shell.
#[derive(Debug, clap::Args)]
#[command(long_about = "Print a script that completes commands in a shell, for example:\n\n    \
                  malachi completions bash > ~/.local/share/bash-completion/completions/malachi")]
pub(crate) struct Args {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "malachi", &mut script);
    print::quiet_when_closed(std::io::stdout().lock().write_all(&script))?;
    Ok(ExitCode::SUCCESS)
}
