//! What a deployment changes, in words, and whether it is meant.

use crate::args::Shape;
use crate::failure::Result;
use crate::print::{self, cell};
use serde_json::Value;
use std::io::{IsTerminal, Write};

/// Whether somebody is there to be asked.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Shows what would change and asks whether it is meant.
pub(crate) fn confirmed(answer: &Value) -> Result<bool> {
    let mut err = std::io::stderr().lock();
    write!(err, "{}\nDeploy? [y/N] ", words(answer))?;
    err.flush()?;
    let mut said = String::new();
    std::io::stdin().read_line(&mut said)?;
    let meant = matches!(said.trim(), "y" | "Y" | "yes");
    if !meant {
        writeln!(err, "nothing was changed")?;
    }
    Ok(meant)
}

/// Prints what a deployment came to, or would.
pub(crate) fn show(shape: Shape, answer: &Value) -> Result<()> {
    match shape {
        Shape::Table => print::line(&words(answer)),
        _ => print::answer(shape, answer, None, |_| print::Table::new(&[])),
    }
}

fn words(answer: &Value) -> String {
    let dry_run = answer["dry_run"] == true;
    let mut text = summary(answer, dry_run);
    for line in changes(answer) {
        text.push_str("\n  ");
        text.push_str(&line);
    }
    text
}

/// What changes, a line each: `+` is added, `-` removed, `~` becomes something else.
fn changes(answer: &Value) -> Vec<String> {
    let plan = &answer["plan"];
    let mut lines = Vec::new();
    if answer["changed"] == false {
        lines.push("nothing changes: this is the version in force".to_owned());
        return lines;
    }
    let first = plan["from"].is_null();
    for change in plan["changes"].as_array().into_iter().flatten() {
        let (what, before, after) = (cell(&change["what"]), &change["before"], &change["after"]);
        let line = match (before.is_null(), after.is_null()) {
            _ if first && what == "component" => continue,
            (true, _) => format!("+ {what}: {}", cell(after)),
            (_, true) => {
                let stays = match what.starts_with("state.") && plan["state"] == "keep" {
                    true => " (its values stay, and are found by a version that has it again)",
                    false => "",
                };
                format!("- {what}: {}{stays}", cell(before))
            }
            _ => format!("~ {what}: {} -> {}", cell(before), cell(after)),
        };
        lines.push(line);
    }
    if plan["state"] == "reset" {
        lines.push("all state is forgotten".to_owned());
    }
    lines.extend(again(&plan["again"]));
    lines.extend(start(plan));
    lines
}

/// What going back to where a version was left comes to.
fn again(again: &Value) -> Vec<String> {
    if again.is_null() {
        return Vec::new();
    }
    let many = |what: &str| again[what].as_u64().unwrap_or(0);
    let mut lines = vec![
        format!(
            "state and positions are again what they were when version {} was left, at {}",
            cell(&again["version"]),
            cell(&again["left"])
        ),
        format!(
            "{} events that were handled since are handled again",
            many("events")
        ),
        format!(
            "{} events emitted and {} dead letters written since stand, and may come again",
            many("emitted"),
            many("dead_lettered")
        ),
    ];
    if many("passed_over") > 0 {
        lines.push(format!(
            "{} events are passed over, for that version had handled them",
            many("passed_over")
        ));
    }
    lines
}

/// Where it reads on.
fn start(plan: &Value) -> Option<String> {
    let places = plan["start"]
        .as_array()
        .filter(|places| !places.is_empty())?;
    let several = places
        .iter()
        .any(|place| place["topic"] != places[0]["topic"]);
    let place = |place: &Value| {
        let offset = place["offset"].as_u64().unwrap_or(0);
        let behind = place["end"].as_u64().unwrap_or(0).saturating_sub(offset);
        // Which topic it is goes without saying where there is one.
        let topic = match several {
            true => format!("{} ", cell(&place["topic"])),
            false => String::new(),
        };
        let partition = cell(&place["partition"]);
        format!("{topic}{partition}:{offset} ({behind} to read)")
    };
    let most = 8;
    let mut shown: Vec<String> = places.iter().take(most).map(place).collect();
    if places.len() > most {
        shown.push(format!("and {} more partitions", places.len() - most));
    }
    let word = match (plan["moves"] == true, plan["from"].is_null()) {
        (true, _) => "moves to",
        (_, true) => "starts at",
        _ => "goes on at",
    };
    Some(format!("{word} {}", shown.join(", ")))
}

/// The answer in words.
fn summary(answer: &Value, dry_run: bool) -> String {
    let list = |value: &Value| match value {
        Value::Array(items) if !items.is_empty() => {
            items.iter().map(cell).collect::<Vec<_>>().join(", ")
        }
        Value::Object(items) if !items.is_empty() => items
            .iter()
            .map(|(name, value)| format!("{name} ({})", cell(value)))
            .collect::<Vec<_>>()
            .join(", "),
        _ => "nothing".into(),
    };
    let mut head = match dry_run {
        true => "would be deployed".to_owned(),
        false => "deployed".to_owned(),
    };
    if let Some(of) = answer["shadow_of"].as_str() {
        head.push_str(&format!(" beside {of}"));
    }
    let status = answer["status"]
        .as_str()
        .map(|status| format!(", {status}"))
        .unwrap_or_default();
    let compiled = answer["compile_ms"]
        .as_f64()
        .map(|ms| format!(", compiled in {ms:.0} ms"))
        .unwrap_or_default();
    let deterministic = if answer["deterministic"] == false {
        "\n  not deterministic"
    } else {
        ""
    };
    format!(
        "{} version {} {head}{status}\n  reads {}, writes {}, remembers {}\n  {}, {}{compiled}{deterministic}",
        cell(&answer["name"]),
        cell(&answer["version"]),
        list(&answer["inputs"]),
        list(&answer["outputs"]),
        list(&answer["state"]),
        print::bytes(answer["bytes"].as_u64().unwrap_or(0)),
        cell(&answer["digest"]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_answer_is_said_in_words() {
        let answer = json!({"name": "carrier-delays", "version": 2, "digest": "sha256:ab", "bytes": 151_234, "inputs": ["flights"],
            "outputs": {"out": "carrier-delays"}, "state": {"total": "value"}, "imports": [], "deterministic": true,
            "compile_ms": 97, "status": "running"});
        assert_eq!(
            summary(&answer, false),
            "carrier-delays version 2 deployed, running\n  reads flights, writes out (carrier-delays), remembers total (value)\n  147.6 KiB, sha256:ab, compiled in 97 ms"
        );
        assert!(summary(&answer, true).contains("would be deployed"));
        let mut beside = answer;
        beside["shadow_of"] = json!("f");
        assert!(summary(&beside, false).contains("version 2 deployed beside f, running"));
    }

    #[test]
    fn what_changes_is_said_line_by_line() {
        let answer = json!({"changed": true, "plan": {"from": 1, "state": "keep", "moves": false, "changes": [
            {"what": "component", "before": "sha256:a", "after": "sha256:b"},
            {"what": "state.new", "before": null, "after": "map"},
            {"what": "state.old", "before": "value", "after": null}],
            "start": [{"partition": 0, "offset": 3, "end": 5}]}});
        assert_eq!(
            changes(&answer),
            [
                "~ component: sha256:a -> sha256:b",
                "+ state.new: map",
                "- state.old: value (its values stay, and are found by a version that has it again)",
                "goes on at 0:3 (2 to read)"
            ]
        );
        let places = json!([{"topic": "a", "partition": 0, "offset": 3, "end": 5}, {"topic": "b", "partition": 0, "offset": 0, "end": 0}]);
        let several = json!({"changed": true, "plan": {"from": 1, "state": "keep", "moves": false, "start": places}});
        assert_eq!(
            changes(&several).last().map(String::as_str),
            Some("goes on at a 0:3 (2 to read), b 0:0 (0 to read)")
        );
        let back = json!({"changed": true, "plan": {"from": 2, "state": "restore", "moves": true, "changes": [],
            "start": [{"partition": 0, "offset": 3, "end": 5}],
            "again": {"version": 1, "left": "2026-01-01T00:00:00Z", "events": 2, "emitted": 3, "dead_lettered": 0,
                "passed_over": 1}}});
        assert_eq!(
            changes(&back),
            [
                "state and positions are again what they were when version 1 was left, at 2026-01-01T00:00:00Z",
                "2 events that were handled since are handled again",
                "3 events emitted and 0 dead letters written since stand, and may come again",
                "1 events are passed over, for that version had handled them",
                "moves to 0:3 (2 to read)"
            ]
        );
        let same = json!({"changed": false, "plan": {"from": 1}});
        assert_eq!(changes(&same).len(), 1);
    }
}
