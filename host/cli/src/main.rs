//! The `tidemill` program: a host, and everything people type to work with one.
//!
//! It knows the host only by its HTTP API and by `tidemill-server`'s `run`; each family of commands
//! is a module.

mod args;
mod failure;
mod print;
mod progress;

mod client;
#[cfg(test)]
mod stub;

mod allocator;
mod serve;

mod consume;
mod log;
mod produce;
mod topic;

mod build;
mod deploy;
mod functions;
mod letters;
mod replay;
mod scaffold;
mod state;

mod bench;
mod demo;

use args::{Cli, Command};
use clap::Parser;
use failure::{Failure, Result};
use std::process::ExitCode;

fn main() -> ExitCode {
    match start(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print::failure(&failure);
            ExitCode::from(failure.exit.code())
        }
    }
}

fn start(cli: Cli) -> Result<()> {
    if matches!(cli.command, Command::Serve(_)) {
        allocator::settle();
    }
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed("no-runtime", format!("cannot start threads: {error}")))?
        .block_on(perform(cli))
}

async fn perform(cli: Cli) -> Result<()> {
    let host = &cli.host;
    match cli.command {
        Command::Serve(args) => serve::perform(args).await,
        Command::New(args) => scaffold::perform(&args),
        Command::Build(args) => build::perform(&args),
        Command::Test(args) => build::test(&args),
        Command::Deploy(args) => deploy::perform(host, &args).await,
        Command::Log(command) => log::perform(command).await,
        Command::Topic(command) => topic::perform(host, command).await,
        Command::Produce(args) => produce::perform(host, &args).await,
        Command::Consume(args) => consume::perform(host, &args).await,
        Command::Functions(command) => functions::perform(host, command).await,
        Command::Replay(args) => replay::perform(host, &args).await,
        Command::State(command) => state::perform(host, command).await,
        Command::DeadLetters(command) => letters::perform(host, command).await,
        Command::Demo(args) => demo::perform(&args).await,
        Command::Bench(args) => bench::perform(&args).await,
    }
}
