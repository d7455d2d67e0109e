//! Versions of a function, and going back to one.

use crate::args::Show;
use crate::client::Client;
use crate::deploy::plan;
use crate::failure::Result;
use crate::print::{self, Table, cell};
use clap::Args;
use reqwest::Method;
use serde_json::json;

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
#[command(after_help = "Example:\n  tidemill functions rollback carrier-delays 1 --dry-run")]
pub(crate) struct Rollback {
    /// Name of the function.
    name: String,
    /// Number of the version.
    version: u32,
    /// What becomes of the state.
    #[arg(long, value_parser = ["keep", "reset"], default_value = "keep")]
    state: String,
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
    let dry_run: &[(&str, &str)] = match args.dry_run {
        true => &[("dry_run", "true")],
        false => &[],
    };
    let path = ["v1", "functions", &args.name, "rollback"];
    let request = client.request(Method::POST, &path, dry_run);
    let asked = json!({"version": args.version, "state": args.state});
    let answer = client.json(request.json(&asked)).await?;
    plan::show(args.show.output, &answer)
}
