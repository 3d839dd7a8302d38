//! One file for each command.

mod acl;
mod cluster;
mod completions;
#[cfg(feature = "server")]
mod config;
mod consume;
mod explain;
mod flag;
mod group;
mod loadtest;
mod output;
mod policy;
mod produce;
mod range;
mod rebalance;
mod reshard;
mod ring;
mod segment;
#[cfg(feature = "server")]
mod server;
mod subscribe;
mod topic;
mod user;

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
    /// Have records pushed as they come
    Subscribe(subscribe::Args),
    /// Manage topics
    #[command(subcommand)]
    Topic(topic::Command),
    /// Look at, split and merge the ranges of a topic
    #[command(subcommand)]
    Range(range::Command),
    /// Look at the segments of a topic and how their copies are
    #[command(subcommand)]
    Segment(segment::Command),
    /// Say why something does or does not move, and what happens next
    #[command(subcommand)]
    Explain(explain::Command),
    /// Manage how long topics keep their records, and where their copies lie
    #[command(subcommand)]
    Policy(policy::Command),
    /// Look at consumer groups
    #[command(subcommand)]
    Group(group::Command),
    /// Manage users
    #[command(subcommand)]
    User(user::Command),
    /// Manage what users may do with which topics
    #[command(subcommand)]
    Acl(acl::Command),
    /// Look at the cluster, and let nodes come and go
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Look at the shards of the metadata and who has them
    Ring(ring::Args),
    /// Give the metadata another number of shards
    Reshard(reshard::Args),
    /// Bring the shards of the metadata to the nodes that should have them now
    Rebalance(rebalance::Args),
    /// Look at the switches of the cluster, and put one on
    #[command(subcommand)]
    Flag(flag::Command),
    /// Put load on a broker, and check that what it acknowledged is there
    Loadtest(Box<loadtest::Args>),
    /// Check and show a broker's settings
    #[cfg(feature = "server")]
    #[command(subcommand)]
    Config(config::Command),
    /// Print a script that completes commands in a shell
    Completions(completions::Args),
}

impl Command {
    /// Runs the command to its end.
    pub(crate) fn run(self) -> ExitCode {
        match self {
            #[cfg(feature = "server")]
            Self::Server(args) => server::run(args),
            Self::Produce(args) => client_command(produce::run(args)),
            Self::Consume(args) => client_command(consume::run(args)),
            Self::Subscribe(args) => client_command(subscribe::run(args)),
            Self::Topic(command) => client_command(topic::run(command)),
            Self::Range(command) => client_command(range::run(command)),
            Self::Segment(command) => client_command(segment::run(command)),
            Self::Explain(command) => client_command(explain::run(command)),
            Self::Policy(command) => client_command(policy::run(command)),
            Self::Group(command) => client_command(group::run(command)),
            Self::User(command) => client_command(user::run(command)),
            Self::Acl(command) => client_command(acl::run(command)),
            Self::Cluster(command) => client_command(cluster::run(command)),
            Self::Ring(args) => client_command(ring::run(args)),
            Self::Reshard(args) => client_command(reshard::run(args)),
            Self::Rebalance(args) => client_command(rebalance::run(args)),
            Self::Flag(command) => client_command(flag::run(command)),
            Self::Loadtest(args) => client_command(loadtest::run(*args)),
            #[cfg(feature = "server")]
            Self::Config(command) => finish(config::run(command)),
            Self::Completions(args) => finish(completions::run(&args)),
        }
    }
}

fn client_command(command: impl Future<Output = anyhow::Result<ExitCode>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    finish(match runtime {
        Ok(runtime) => runtime.block_on(command),
        Err(error) => Err(error.into()),
    })
}

fn finish(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        crate::print::error(&error);
        ExitCode::FAILURE
    })
}
