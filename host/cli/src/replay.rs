//! `tidemill replay`: a function over stored events once more.

use crate::args::{Shape, Show};
use crate::client::Client;
use crate::failure::{Failure, Result};
use crate::print::{self, cell};
use crate::progress;
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// How often a replay is asked how far it is.
const PACE: Duration = Duration::from_millis(100);

/// Run a function over stored events once more, with state of its own.
///
/// What it emits goes into a side topic, is compared with what another version emits, or with what was
/// committed. The function itself goes on as it is. Exits with 1 where something differs.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill replay carrier-delays --verify\n  tidemill replay carrier-delays@3 --diff 2 --from earliest\n  tidemill replay carrier-delays --into what-if"
)]
pub(crate) struct ReplayArgs {
    /// Name of the function, perhaps with a version: `carrier-delays@2`.
    #[arg(value_name = "FUNCTION[@VERSION]")]
    function: String,
    /// Where to begin: `earliest`, an offset or a time.
    #[arg(long, value_name = "WHERE")]
    from: Option<String>,
    /// Where to end: `latest`, an offset or a time.
    #[arg(long, value_name = "WHERE")]
    to: Option<String>,
    /// Put what it emits into this topic.
    #[arg(long, value_name = "TOPIC", group = "mode")]
    into: Option<String>,
    /// Compare with this version, which is the left one.
    #[arg(long, value_name = "VERSION", group = "mode")]
    diff: Option<u32>,
    /// Execute again what was committed, and compare.
    #[arg(long, group = "mode", conflicts_with_all = ["from", "to"])]
    verify: bool,
    #[command(flatten)]
    show: Show,
}

pub(crate) async fn perform(host: &str, args: &ReplayArgs) -> Result<()> {
    let client = Client::new(host)?;
    let (name, version) = split(&args.function)?;
    let mut asked = serde_json::Map::new();
    let places = [("from", &args.from), ("to", &args.to)];
    for (member, place) in places {
        if let Some(place) = place {
            let offset = place.parse::<u64>().map(Value::from);
            asked.insert(member.into(), offset.unwrap_or_else(|_| json!(place)));
        }
    }
    let members = [
        ("version", version.map(Value::from)),
        ("into", args.into.as_ref().map(|topic| json!(topic))),
        ("diff", args.diff.map(Value::from)),
        ("verify", args.verify.then_some(Value::Bool(true))),
    ];
    asked.extend(
        members
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?))),
    );
    let path = ["v1", "functions", name, "replay"];
    let request = client.request(Method::POST, &path, &[]);
    let mut report = client.json(request.json(&Value::from(asked))).await?;
    let id = cell(&report["id"]);
    while report["status"] == "running" {
        progress::pause(PACE).await;
        let path = ["v1", "functions", name, "replay", &id];
        report = client.get(&path, &[]).await?;
    }
    if report["status"] == "failed" {
        let (code, detail) = (&report["result"]["code"], &report["result"]["detail"]);
        let code = code.as_str().unwrap_or("replay-failed").to_owned();
        return Err(Failure::failed(&code, cell(detail)));
    }
    match args.show.output {
        Shape::Table => print::line(&words(&report))?,
        shape => print::answer(shape, &report, None, |_| print::Table::new(&[]))?,
    }
    if report["result"]["equal"] == false {
        return Err(Failure::failed(
            "replay-differs",
            "the replay found differences",
        ));
    }
    Ok(())
}

fn split(text: &str) -> Result<(&str, Option<u32>)> {
    let Some((name, version)) = text.rsplit_once('@') else {
        return Ok((text, None));
    };
    let number = version.parse().map_err(|_| {
        Failure::usage(
            "invalid-version",
            format!("{version:?} is not a version's number"),
        )
    })?;
    Ok((name, Some(number)))
}

/// What a replay came to, in words.
fn words(report: &Value) -> String {
    let result = &report["result"];
    let number = |value: &Value| print::count(value.as_u64().unwrap_or(0));
    let state = &result["state"];
    let state = format!(
        "state: {} the same, {} different, {} only left, {} only right",
        number(&state["same"]),
        number(&state["different"]),
        number(&state["only_left"]),
        number(&state["only_right"])
    );
    let mut lines = Vec::new();
    if result["into"].is_string() {
        lines.push(format!(
            "{} events emitted into {}",
            number(&result["emitted"]),
            cell(&result["into"])
        ));
    } else if result["found"].is_u64() {
        lines.push(format!(
            "{} events executed again; of what they emitted {} found, {} missing, {} not looked for",
            number(&result["events"]),
            number(&result["found"]),
            number(&result["missing"]),
            number(&result["unsought"])
        ));
        lines.push(format!("{state} (left: as it is, right: the replay's)"));
        for total in result["totals"].as_array().into_iter().flatten() {
            lines.push(format!(
                "partition {}: the totals differ",
                cell(&total["partition"])
            ));
        }
        for (topic, events) in result["gone"].as_object().into_iter().flatten() {
            lines.push(format!(
                "{topic}: {} events not compared, for the topic no longer has everything",
                number(events)
            ));
        }
        lines.push(
            if result["equal"] == true {
                "everything is as it was committed"
            } else {
                "it is not as it was committed"
            }
            .into(),
        );
    } else {
        lines.push(format!(
            "{} events: {} the same, {} different (left: version {}, right: version {})",
            number(&result["events"]),
            number(&result["same"]),
            number(&result["different"]),
            cell(&result["left"]["version"]),
            cell(&result["right"]["version"])
        ));
        lines.push(state);
    }
    for example in result["examples"].as_array().into_iter().flatten() {
        lines.push(format!("  {example}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_may_stand_behind_the_name() {
        assert_eq!(split("f").expect("a name"), ("f", None));
        assert_eq!(split("f@2").expect("both"), ("f", Some(2)));
        assert!(split("f@two").is_err());
    }
}
