//! One file for each command.

mod consume;
mod produce;
#[cfg(feature = "server")]
mod server;
mod topic;

use std::process::ExitCode;

use clap::Subcommand;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a broker in the foreground
    #[cfg(feature = "server")]
    Server(server::Args),
    /// Append records from a file, from standard input or made up
    Produce(produce::Args),
    /// Read records
    Consume(consume::Args),
    /// Manage topics
    #[command(subcommand)]
    Topic(topic::Command),
}

impl Command {
    /// Runs the command to its end.
    pub(crate) fn run(self) -> ExitCode {
        match self {
            #[cfg(feature = "server")]
            Self::Server(args) => server::run(args),
            Self::Produce(args) => client_command(produce::run(args)),
            Self::Consume(args) => client_command(consume::run(args)),
            Self::Topic(command) => client_command(topic::run(command)),
        }
    }
}

fn client_command(command: impl Future<Output = anyhow::Result<ExitCode>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(command),
        Err(error) => Err(error.into()),
    };
    result.unwrap_or_else(|error| {
        crate::print::error(&error);
        ExitCode::FAILURE
    })
}
