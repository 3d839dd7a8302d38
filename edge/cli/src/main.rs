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

/// What one thread allocates and another frees is the common case here, which the allocator of the C library pays
/// for with locks and system calls.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What a newcomer types.
const FIRST_STEPS: &str = "\
First steps, with a broker running (`malachi server`):
  malachi topic create orders
  echo hello | malachi produce orders --file -
  malachi consume orders";

/// A durable, replicated log broker.
#[derive(Debug, Parser)]
#[command(name = "malachi", version, propagate_version = true, after_help = FIRST_STEPS)]
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
