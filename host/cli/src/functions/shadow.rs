//! The version that runs beside the one in force.

use crate::args::Show;
use crate::client::Client;
use crate::deploy::plan;
use crate::failure::Result;
use crate::print;
use crate::replay;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::json;

/// Deal with the version that `deploy --shadow` runs beside the one in force.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill deploy carrier-delays --shadow\n  tidemill functions shadow carrier-delays diff\n  tidemill functions shadow carrier-delays promote"
)]
pub(crate) struct Shadow {
    /// Name of the function it runs beside.
    name: String,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    Show(Look),
    Diff(Diff),
    Promote(Promote),
    Stop(Stop),
}

/// Show it: status and why, position and lag of every task, counts.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill functions shadow carrier-delays show")]
struct Look {
    #[command(flatten)]
    show: Show,
}

/// Compare it with the version in force, event by event, since it began. Exits with 1 where something differs.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill functions shadow carrier-delays diff --examples 3")]
struct Diff {
    /// Most examples of events for which they emit something else.
    #[arg(long, value_name = "N", default_value_t = 10)]
    examples: usize,
    #[command(flatten)]
    show: Show,
}

/// Put it in force: an ordinary deployment, with the function's own state; the shadow ends.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill functions shadow carrier-delays promote --dry-run")]
struct Promote {
    /// What becomes of the function's state.
    #[arg(long, value_parser = ["keep", "reset"], default_value = "keep")]
    state: String,
    /// Check everything, show what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    show: Show,
}

/// End it; its state and what it emitted go.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill functions shadow carrier-delays stop")]
struct Stop {}

pub(super) async fn perform(client: &Client, args: &Shadow) -> Result<()> {
    let path = ["v1", "functions", &args.name, "shadow"];
    match &args.what {
        What::Show(look) => {
            let answer = client.get(&path, &[]).await?;
            super::described(look.show.output, &answer)
        }
        What::Diff(diff) => {
            let path = [&path[..], &["diff"]].concat();
            let request = client.request(Method::POST, &path, &[]);
            let asked = json!({"examples": diff.examples});
            let report = client.json(request.json(&asked)).await?;
            replay::follow(client, &args.name, report, diff.show.output).await
        }
        What::Promote(promote) => {
            let path = [&path[..], &["promote"]].concat();
            let mut query = vec![("state", promote.state.as_str())];
            if promote.dry_run {
                query.push(("dry_run", "true"));
            }
            let answer = client.json(client.request(Method::POST, &path, &query));
            plan::show(promote.show.output, &answer.await?)
        }
        What::Stop(Stop {}) => {
            client
                .send(client.request(Method::DELETE, &path, &[]))
                .await?;
            print::note(&format!("the shadow of {} is stopped", args.name));
            Ok(())
        }
    }
}
