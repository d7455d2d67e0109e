//! Where reading starts and ends, and what is printed.

use super::*;
use crate::args::{Cli, Command};
use crate::failure::Exit;
use clap::Parser;

fn args(line: &str) -> Consume {
    match Cli::parse_from(line.split(' ')).command {
        Command::Consume(args) => args,
        other => panic!("{other:?}"),
    }
}

fn two_partitions() -> Layout {
    layout(&json!({"format": "json", "ranges": [
        {"partition": 0, "start": 5, "end": 10}, {"partition": 1, "start": 0, "end": 3}]}))
}

fn started(line: &str) -> String {
    let place = start(&args(line), &two_partitions()).expect(line);
    place
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect::<Vec<_>>()
        .join("&")
}

#[test]
fn starts_where_it_was_told() {
    assert_eq!(started("tidemill consume t"), "from=earliest");
    assert_eq!(started("tidemill consume t --follow"), "from=latest");
    assert_eq!(
        started("tidemill consume t --follow --from earliest"),
        "from=earliest"
    );
    assert_eq!(
        started("tidemill consume t --partition 0"),
        "partition=0&offset=5"
    );
    assert_eq!(
        started("tidemill consume t --partition 1 --follow"),
        "partition=1&offset=3"
    );
    assert_eq!(
        started("tidemill consume t --partition 0 --from 7"),
        "partition=0&offset=7"
    );
    assert_eq!(
        started("tidemill consume t --time 2013-01-01T00:00:00Z --partition 1"),
        "time=2013-01-01T00:00:00Z&partition=1"
    );
}

#[test]
fn impossible_starts_are_refused() {
    let exit = |line: &str| start(&args(line), &two_partitions()).expect_err(line).exit;
    assert_eq!(exit("tidemill consume t --from 7"), Exit::Usage);
    assert_eq!(
        exit("tidemill consume t --partition 0 --from soon"),
        Exit::Usage
    );
    assert_eq!(exit("tidemill consume t --partition 2"), Exit::NotFound);
}

#[test]
fn the_end_is_where_the_topic_ended_at_the_beginning() {
    let ends: BTreeMap<u32, u64> = [(0, 10), (1, 3)].into();
    assert!(reached(
        &positions("0:10,1:4").expect("cursor"),
        &ends,
        None
    ));
    assert!(!reached(
        &positions("0:10,1:2").expect("cursor"),
        &ends,
        None
    ));
    assert!(!reached(&positions("0:10").expect("cursor"), &ends, None));
    assert!(reached(&positions("0:10").expect("cursor"), &ends, Some(0)));
    assert!(positions("0:x").is_err());
}

fn printed(line: &str, page: &str, ends: Option<&BTreeMap<u32, u64>>) -> String {
    let args = args(line);
    let mut printer = Printer {
        args: &args,
        bytes: false,
        out: Vec::new(),
        printed: 0,
    };
    printer.open().expect("opens");
    printer.page(page.as_bytes(), ends).expect("prints");
    printer.close().expect("closes");
    String::from_utf8(printer.out).expect("text")
}

#[test]
fn prints_lines_arrays_and_no_more_than_wanted() {
    let page = "{\"partition\":0,\"offset\":0,\"value\":1}\n{\"partition\":0,\"offset\":1,\"value\":{\"a\":  2}}\n";
    assert_eq!(printed("tidemill consume t", page, None), page);
    assert_eq!(
        printed("tidemill consume t --limit 1", page, None)
            .lines()
            .count(),
        1
    );
    assert_eq!(
        printed("tidemill consume t", page, Some(&[(0, 1)].into()))
            .lines()
            .count(),
        1
    );
    let array: Value =
        serde_json::from_str(&printed("tidemill consume t -o json", page, None)).expect("json");
    assert_eq!(array[1]["value"]["a"], 2);
    assert_eq!(printed("tidemill consume t -o json", "", None), "[\n]\n");
    assert_eq!(
        printed("tidemill consume t -f %o,%v;", page, None),
        "0,1;1,{\"a\":  2};"
    );
}
