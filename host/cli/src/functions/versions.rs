//! Versions of a function, and going back to one.

use crate::args::Show;
use crate::client::Client;
use crate::deploy::plan;
use crate::failure::Result;
use crate::print::{self, Table, cell};
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

/// List the versions of a function that are kept, the newest first.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill functions versions carrier-delays")]
pub(crate) struct Versions {
    /// Name of the function.
    name: String,
    #[command(flatten)]
    show: Show,
}

/// Go back to an earlier version: what it was becomes a new version, from where the function stands.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  tidemill functions rollback carrier-delays 1 --dry-run\n  tidemill functions rollback carrier-delays 1 --state restore"
)]
pub(crate) struct Rollback {
    /// Name of the function.
    name: String,
    /// Number of the version.
    version: u32,
    /// What becomes of the state. With `restore` state and positions are again what they were when that version was
    /// left: events since then are handled again, and what was emitted for them is there twice.
    #[arg(long, value_parser = ["keep", "reset", "restore"], default_value = "keep")]
    state: String,
    /// With `--state restore`: that events are handled again is meant; don't ask.
    #[arg(short, long)]
    yes: bool,
    /// Check everything, show what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    show: Show,
}

pub(super) async fn list(client: &Client, args: &Versions) -> Result<()> {
    let path = ["v1", "functions", &args.name, "versions"];
    let answer = client.get(&path, &[]).await?;
    print::answer(args.show.output, &answer, Some("versions"), |answer| {
        let mut table = Table::new(&["version", "deployed", "in force", "size", "digest", "notes"]);
        for version in answer["versions"].as_array().into_iter().flatten() {
            let mut notes = Vec::new();
            if let Some(of) = version["rollback_of"].as_u64() {
                notes.push(format!("back to {of}"));
            }
            if version["state_reset"] == true {
                notes.push("state reset".to_owned());
            }
            if let Some(of) = version["restored"].as_u64() {
                notes.push(format!("with what {of} had left"));
            }
            if version["left"]["ready"] == true {
                notes.push("can be restored".to_owned());
            }
            table.row(vec![
                cell(&version["version"]),
                cell(&version["deployed"]),
                if version["in_force"] == true {
                    "yes"
                } else {
                    "-"
                }
                .to_owned(),
                print::bytes(version["bytes"].as_u64().unwrap_or(0)),
                cell(&version["digest"]),
                notes.join(", "),
            ]);
        }
        table
    })
}

pub(super) async fn rollback(client: &Client, args: &Rollback) -> Result<()> {
    let mut again = args.yes;
    if args.state == "restore" && !args.dry_run && !again && plan::can_ask() {
        let answer = sent(client, args, (true, false)).await?;
        if !plan::confirmed(&answer)? {
            return Ok(());
        }
        again = true;
    }
    let answer = sent(client, args, (args.dry_run, again)).await?;
    plan::show(args.show.output, &answer)
}

async fn sent(client: &Client, args: &Rollback, (dry_run, again): (bool, bool)) -> Result<Value> {
    let query: &[(&str, &str)] = match dry_run {
        true => &[("dry_run", "true")],
        false => &[],
    };
    let path = ["v1", "functions", &args.name, "rollback"];
    let request = client.request(Method::POST, &path, query);
    let asked = json!({"version": args.version, "state": args.state, "again": again});
    client.json(request.json(&asked)).await
}
