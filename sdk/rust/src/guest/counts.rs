//! What counters write: by how much they differ from what came with the batch, whatever happened between.

use super::tests::{answer, events, step};
use crate::abi::{Reply, ReplyCommand, outcome};
use crate::prelude::*;

#[derive(Deserialize)]
struct Step {
    add: i64,
    then: String,
}

#[tidemill::function(input = "steps", output = "counts")]
fn counts(step: Event<Step>, count: Counter, out: Output<i64>) -> Result<()> {
    if step.value.then == "anew" {
        count.clear()?;
    }
    out.emit(step.key, count.add(step.value.add)?)?;
    match step.value.then.as_str() {
        "skip" => skip("asked to"),
        "forget" => count.clear(),
        _ => Ok(()),
    }
}

/// Outcomes, what was emitted, and what the counter's changes are.
fn told(list: &[(&str, Value)], stored: Option<&str>) -> (Vec<u8>, Vec<String>, Vec<String>) {
    let bytes = answer(counts, &events(list), stored);
    let reply = Reply::parse(&bytes, list.len()).unwrap();
    let (mut emitted, mut changes) = (Vec::new(), Vec::new());
    for (event, command) in &reply.commands {
        match command {
            ReplyCommand::Emit { value, .. } => {
                emitted.push(String::from_utf8_lossy(value.unwrap()).into_owned());
            }
            ReplyCommand::Add { by, .. } => changes.push(format!("{event} add {by}")),
            ReplyCommand::Delete { .. } => changes.push(format!("{event} delete")),
            ReplyCommand::Set { value, .. } => {
                let value = String::from_utf8_lossy(value);
                changes.push(format!("{event} set {value}"));
            }
            _ => {}
        }
    }
    (reply.outcomes.to_vec(), emitted, changes)
}

#[test]
fn a_count_is_told_by_how_much_it_differs() {
    for (list, stored, emitted, changes) in [
        (
            vec![step("a", 2, "go"), step("a", 3, "go")],
            Some("40"),
            vec!["42", "45"],
            vec!["1 add 5"],
        ),
        // What didn't go through left nothing, first, in between and last.
        (
            vec![
                step("a", 100, "skip"),
                step("a", 2, "go"),
                step("a", 100, "skip"),
                step("a", 3, "go"),
                step("a", 100, "skip"),
            ],
            Some("40"),
            vec!["42", "45"],
            vec!["3 add 5"],
        ),
        (vec![step("a", 100, "skip")], Some("40"), vec![], vec![]),
        (
            vec![step("a", 2, "forget"), step("a", 3, "go")],
            Some("40"),
            vec!["42", "3"],
            vec!["1 add -37"],
        ),
        (
            vec![step("a", 2, "go"), step("a", 3, "forget")],
            Some("40"),
            vec!["42", "45"],
            vec!["1 delete"],
        ),
        // What is no number isn't added to: it is replaced.
        (
            vec![step("a", 2, "anew"), step("a", 3, "go")],
            Some("\"x\""),
            vec!["2", "5"],
            vec!["1 set 5"],
        ),
        // A difference that 64 bits don't hold.
        (
            vec![step("a", i64::MAX, "anew")],
            Some("-2"),
            vec!["9223372036854775807"],
            vec!["0 set 9223372036854775807"],
        ),
        (
            vec![step("a", 1, "go"), step("b", 2, "go")],
            None,
            vec!["1", "2"],
            vec!["0 add 1", "1 add 2"],
        ),
    ] {
        let (_, said, changed) = told(&list, stored);
        assert_eq!(
            (said, changed),
            (strings(&emitted), strings(&changes)),
            "{list:?}"
        );
    }
}

#[test]
fn a_count_that_would_overflow_is_a_dead_letter_and_stays() {
    let list = [step("a", 1, "go"), step("a", -1, "go")];
    let stored = i64::MAX.to_string();
    let (outcomes, emitted, changes) = told(&list, Some(&stored));
    assert_eq!(outcomes, [outcome::DEAD_LETTER, outcome::EFFECT]);
    assert_eq!(emitted, [(i64::MAX - 1).to_string()]);
    assert_eq!(changes, ["1 add -1"]);
}

#[test]
fn a_stored_value_that_is_no_number_is_told() {
    let bytes = answer(counts, &events(&[step("a", 1, "go")]), Some("\"x\""));
    let reply = Reply::parse(&bytes, 1).unwrap();
    let said = format!("{:?}", reply.stop);
    assert!(
        said.contains("the stored state doesn't read as i64"),
        "{said}"
    );
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}
