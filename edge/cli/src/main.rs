//! `malachi`: the broker and everything one does with it from a shell.
//!
//! Owns flags, what is printed, and exit statuses (0 done, 1 refused or failed, 78 the server's refusal to
//! run over what it found). Does nothing to a broker that the client could not.

mod command;
mod connect;
mod input;
mod interrupt;
mod json;
mod print;

use std::process::ExitCode;

use clap::Parser;

use command::Command;

/// A durable, replicated log broker.
#[derive(Debug, Parser)]
#[command(name = "malachi", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => cli.command.run(),
        Err(error) => {
            // Nobody reads what could not be printed.
            let _ = error.print();
            ExitCode::from(u8::from(error.use_stderr()))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_command_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
