//! How figures of one run compare: with the disk by itself, and with peers.

use super::reader::figure;
use serde_json::{Map, Value, json};

/// How much longer than a write and sync of the disk an acknowledgement may take in one of a hundred cases,
/// beside the way over HTTP.
const ALLOWED: f64 = 1.5;

/// Adds to the rows of a run how they compare, where there is something to compare with.
pub(super) fn add(answer: &mut Map<String, Value>) {
    let disk = rows(answer, "disk").to_vec();
    let best = disk
        .iter()
        .map(|row| figure(row, "mb_per_second"))
        .fold(0.0, f64::max);
    for row in rows_mut(answer, "ingest") {
        set(row, "of_disk", figure(row, "mb_per_second"), best);
    }
    for row in rows_mut(answer, "single") {
        let synced = figure(row, "disk_p99_us");
        let allowed = ALLOWED * synced + figure(row, "bare_p99_us");
        if synced > 0.0 {
            set(row, "p99_of_allowed", figure(row, "p99_us"), allowed);
        }
    }
    beside_functions(answer);
    let ours: Vec<Value> = [rows(answer, "ingest"), rows(answer, "single")].concat();
    for peer in rows_mut(answer, "peers") {
        for our in &ours {
            if !same_load(our, peer) {
                continue;
            }
            // What is sent to peers isn't looked at; lines of JSON are.
            let name = if our["form"] == "ndjson" {
                "times_ndjson"
            } else {
                "times"
            };
            let wall = [our, &*peer].map(|row| figure(row, "events_per_second"));
            let cpu = [our, &*peer].map(|row| figure(row, "events_per_cpu_second"));
            set(peer, name, wall[0], wall[1]);
            set(peer, &format!("{name}_per_cpu"), cpu[0], cpu[1]);
        }
    }
}

/// Counts per key by others, beside the one that leaves values unparsed, as they do, and the one that parses.
fn beside_functions(answer: &mut Map<String, Value>) {
    let ours = rows(answer, "functions").to_vec();
    for peer in rows_mut(answer, "peer-functions") {
        for (function, name) in [("bench-keys", "times"), ("bench-count", "times_parsed")] {
            let Some(our) = ours.iter().find(|row| row["function"] == function) else {
                continue;
            };
            let wall = [our, &*peer].map(|row| figure(row, "events_per_second"));
            let cpu = [our, &*peer].map(|row| figure(row, "events_per_cpu_second"));
            set(peer, name, wall[0], wall[1]);
            set(peer, &format!("{name}_per_cpu"), cpu[0], cpu[1]);
        }
    }
}

fn rows<'a>(answer: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    let rows = answer.get(name).and_then(Value::as_array);
    rows.map_or(&[], Vec::as_slice)
}

fn rows_mut<'a>(answer: &'a mut Map<String, Value>, name: &str) -> &'a mut [Value] {
    let rows = answer.get_mut(name).and_then(Value::as_array_mut);
    rows.map_or(&mut [], Vec::as_mut_slice)
}

fn same_load(one: &Value, other: &Value) -> bool {
    let fields = ["size", "batch", "connections"];
    fields.into_iter().all(|field| one[field] == other[field])
}

fn set(row: &mut Value, name: &str, number: f64, of: f64) {
    if of > 0.0 {
        row[name] = json!(number / of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(value: Value) -> Map<String, Value> {
        let Value::Object(answer) = value else {
            panic!("an object");
        };
        answer
    }

    #[test]
    fn rows_are_compared_with_the_disk_and_with_peers_under_the_same_load() {
        let row = |form: &str, batch: u32, events: u32| {
            json!({"form": form, "size": 200, "batch": batch, "connections": 8, "mb_per_second": 300,
                "events_per_second": events, "events_per_cpu_second": events / 2, "p99_us": 500, "bare_p99_us": 50, "disk_p99_us": 300})
        };
        let mut answer = answer(json!({
            "disk": [{"mb_per_second": 10, "p99_us": 300}, {"mb_per_second": 600, "p99_us": 4000}],
            "ingest": [row("ndjson", 500, 1000), row("packed", 500, 4000)],
            "single": [row("json", 1, 90)],
            "peers": [row("", 500, 2000), row("", 1, 30), row("", 7, 1)],
        }));
        add(&mut answer);
        assert_eq!(answer["ingest"][0]["of_disk"], 0.5);
        assert_eq!(answer["single"][0]["p99_of_allowed"], 1.0);
        let peers = &answer["peers"];
        assert_eq!(
            (&peers[0]["times"], &peers[0]["times_ndjson"]),
            (&json!(2.0), &json!(0.5))
        );
        assert_eq!(peers[0]["times_per_cpu"], 2.0);
        assert_eq!(
            (&peers[1]["times"], &peers[2]["times"]),
            (&json!(3.0), &Value::Null)
        );
    }

    #[test]
    fn counts_are_compared_with_those_of_others() {
        let row = |name: &str, events: u32| json!({"function": name, "events_per_second": events, "events_per_cpu_second": events / 2});
        let mut answer = answer(json!({
            "functions": [row("bench-filter", 9), row("bench-keys", 600), row("bench-count", 300)],
            "peer-functions": [{"events_per_second": 200, "events_per_cpu_second": 50}, {"failed": "x"}],
        }));
        add(&mut answer);
        let peer = &answer["peer-functions"][0];
        assert_eq!(
            (&peer["times"], &peer["times_per_cpu"]),
            (&json!(3.0), &json!(6.0))
        );
        assert_eq!(
            (&peer["times_parsed"], &peer["times_parsed_per_cpu"]),
            (&json!(1.5), &json!(3.0))
        );
        assert_eq!(answer["peer-functions"][1].get("times"), None);
    }

    #[test]
    fn what_was_not_measured_is_not_compared() {
        let mut answer = answer(json!({"single": [{"p99_us": 1, "bare_p99_us": 1}]}));
        add(&mut answer);
        assert_eq!(answer["single"][0].get("p99_of_allowed"), None);
    }
}
