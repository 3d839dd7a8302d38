//! `malachi-bench`: measures the storage engine on this machine and verifies what it wrote.
//!
//! Exit statuses: 0 measured and verified; 1 anything that was acknowledged was not read back as written, or
//! the machine failed; 2 wrong flags. Goals that were missed change nothing: they are numbers, and this
//! machine may be busy.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use bench::{Case, Plan};
use clap::Parser;

/// Measures the storage engine against the machine, and reads back everything it wrote.
#[derive(Debug, Parser)]
#[command(name = "malachi-bench", version)]
struct Cli {
    /// Directory to measure in; what is made there is removed again.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// A tiny run that shows that everything works; its numbers mean nothing.
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Rounds of each measurement, raw and ours in turns.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Only these cases.
    #[arg(long = "case", value_parser = parse_case)]
    cases: Vec<Case>,
}

fn parse_case(text: &str) -> Result<Case, String> {
    Case::ALL.into_iter().find(|case| case.name() == text).ok_or_else(|| {
        let names = Case::ALL.map(Case::name).join(", ");
        format!("one of {names}")
    })
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("Error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let cases = if cli.cases.is_empty() { Case::ALL.to_vec() } else { cli.cases.clone() };
    let rounds = if cli.quick { cli.rounds.min(2) } else { cli.rounds };
    let plan = Plan { dir: cli.dir.clone(), quick: cli.quick, rounds, cases };
    let report = bench::run(&plan, &mut |case| note(&format!("measuring {case}")))?;
    let mut out = io::stdout().lock();
    if cli.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(())
}

/// A line on standard error; a failure to say it is nothing more to say.
fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
