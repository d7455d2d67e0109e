//! What can be typed.

use crate::{
    bench, build, consume, demo, deploy, functions, letters, log, produce, replay, scaffold, serve,
    state, topic,
};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Serverless functions over streams of events.
#[derive(Parser, Debug)]
#[command(
    name = "tidemill",
    version,
    after_help = "Example:\n  tidemill serve --dir ./tidemill\n\nExit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 not allowed, 5 conflict, 6 host not reachable."
)]
pub(crate) struct Cli {
    /// Address of the host.
    #[arg(
        long,
        global = true,
        env = "TIDEMILL_HOST",
        default_value = "http://127.0.0.1:7070",
        value_name = "URL"
    )]
    pub(crate) host: String,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Serve(serve::Serve),
    New(scaffold::New),
    Build(build::Build),
    Test(build::Test),
    Deploy(deploy::Deploy),
    #[command(subcommand)]
    Topic(topic::Topic),
    Produce(produce::Produce),
    Consume(consume::Consume),
    #[command(subcommand)]
    Functions(functions::Functions),
    Replay(replay::ReplayArgs),
    #[command(subcommand)]
    State(state::State),
    #[command(subcommand)]
    DeadLetters(letters::Letters),
    #[command(subcommand)]
    Log(log::Log),
    Demo(demo::Demo),
    Bench(bench::Bench),
}

/// How data is printed.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Show {
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = Shape::Table, value_name = "SHAPE")]
    pub(crate) output: Shape,
}

/// Shapes of printed data.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// Columns for people.
    Table,
    /// The answer as one JSON document.
    Json,
    /// One JSON document a line.
    Ndjson,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn each_command(
        command: &clap::Command,
        path: &str,
        check: &mut impl FnMut(&clap::Command, &str),
    ) {
        let path = format!("{path} {}", command.get_name());
        check(command, path.trim());
        for inner in command.get_subcommands() {
            each_command(inner, &path, check);
        }
    }

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_says_what_it_does_and_has_an_example_that_parses() {
        let mut seen = 0;
        each_command(&Cli::command(), "", &mut |command, path| {
            seen += 1;
            assert!(command.get_about().is_some(), "{path}: no description");
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let mut examples = help
                .lines()
                .filter_map(|line| line.trim().strip_prefix("tidemill "))
                .peekable();
            assert!(examples.peek().is_some(), "{path}: no example");
            for example in examples {
                let words = words(example);
                Cli::try_parse_from(
                    std::iter::once("tidemill").chain(words.iter().map(String::as_str)),
                )
                .unwrap_or_else(|error| {
                    panic!("{path}: the example {example:?} does not parse: {error}")
                });
            }
        });
        assert!(seen > 15, "only {seen} commands seen");
    }

    /// Splits as a shell would, with single quotes only, up to a pipe or redirection.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        let mut word = String::new();
        let (mut quoted, mut started) = (false, false);
        for c in line.chars() {
            match c {
                '\'' => (quoted, started) = (!quoted, true),
                '|' | '>' | '<' if !quoted => break,
                ' ' if !quoted => {
                    if started {
                        words.push(std::mem::take(&mut word));
                    }
                    started = false;
                }
                _ => {
                    word.push(c);
                    started = true;
                }
            }
        }
        if started {
            words.push(word);
        }
        words
    }

    #[test]
    fn the_host_comes_from_the_flag() {
        let cli = Cli::try_parse_from(["tidemill", "topic", "list", "--host", "http://example:1"])
            .expect("parses");
        assert_eq!(cli.host, "http://example:1");
    }

    #[test]
    fn wrong_usage_exits_with_two() {
        for line in [
            "tidemill",
            "tidemill produce",
            "tidemill topic list -o yaml",
            "tidemill nonsense",
        ] {
            let error = Cli::try_parse_from(line.split(' ')).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
