//! Where reading starts and ends, and what is printed.

use super::*;
use crate::args::{Cli, Command};
use crate::failure::Exit;
use crate::stub;
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
    let lines = Body::Lines(page.as_bytes().to_vec());
    printer.page(&lines, ends).expect("prints");
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

/// Two events of partition 0, as rows and as lines.
fn rows() -> String {
    let numbers = |numbers: &[u32]| -> Vec<u8> {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        bytes.collect()
    };
    let head = |time: u32, value_at: u32, value_len: u32| {
        numbers(&[time, 0, 0, 1, value_at, value_len, 0, 1])
    };
    let parts = [
        numbers(&[1, 2, 4, 1]),
        head(1, 1, 1),
        head(2, 2, 2),
        b"k1[]".to_vec(),
        numbers(&[0, 2, 4, 0, 9, 0]),
    ];
    String::from_utf8(parts.concat()).expect("all of it is ASCII")
}

const ROWS_AS_LINES: &str = concat!(
    r#"{"partition":0,"offset":4,"key":"k","value":1,"headers":[],"time":"1970-01-01T00:00:00.000001Z","ingest_time":"1970-01-01T00:00:00.000009Z"}"#,
    "\n",
    r#"{"partition":0,"offset":5,"key":"k","value":[],"headers":[],"time":"1970-01-01T00:00:00.000002Z","ingest_time":"1970-01-01T00:00:00.000009Z"}"#,
    "\n"
);

#[test]
fn rows_are_printed_as_lines_are() {
    for (line, end) in [
        ("tidemill consume t", None),
        ("tidemill consume t -o json", None),
        ("tidemill consume t --limit 1", None),
        ("tidemill consume t", Some(5)),
        ("tidemill consume t -f %p,%o,%k,%v,%h,%t,%i;", None),
    ] {
        let ends = end.map(|end| [(0, end)].into());
        let args = args(line);
        let mut printer = Printer {
            args: &args,
            bytes: false,
            out: Vec::new(),
            printed: 0,
        };
        printer.open().expect("opens");
        let page = Body::Rows(rows().into_bytes());
        printer.page(&page, ends.as_ref()).expect("prints");
        printer.close().expect("closes");
        let expected = printed(line, ROWS_AS_LINES, ends.as_ref());
        assert_eq!(String::from_utf8(printer.out).expect("text"), expected);
        assert!(!page.is_empty() && !expected.is_empty());
    }
}

#[tokio::test]
async fn a_host_that_has_no_rows_is_asked_for_lines() {
    let page = |form: &str, body: &str| {
        let headers = format!("content-type: {form}\r\ntidemill-next: 0:6\r\n");
        stub::answer("200 OK", &headers, body)
    };
    for (refusal, body) in [
        (None, rows()),
        (Some("406 Not Acceptable"), ROWS_AS_LINES.to_owned()),
        (Some("415 Unsupported Media Type"), ROWS_AS_LINES.to_owned()),
    ] {
        let form = if refusal.is_some() { LINES } else { ROWS };
        let refusals = refusal.map(|status| stub::answer(status, "", ""));
        let both = [page(form, &body), page(form, &body)];
        let (host, requests) = stub::host(refusals.into_iter().chain(both).collect()).await;
        let args = args("tidemill consume t");
        let mut source = Source {
            client: Client::new(&host).expect("client"),
            args: &args,
            form: ROWS,
        };
        for _ in 0..2 {
            let page = source.page(&[("from", "earliest".into())], 9).await;
            let page = page.expect("a page");
            let is_rows = matches!(page.body, Body::Rows(_));
            assert_eq!((page.next.as_str(), is_rows), ("0:6", refusal.is_none()));
        }
        let requests = requests.await.expect("all asked");
        let asked = |request: &String, form| request.contains(&format!("accept: {form}"));
        assert!(asked(&requests[0], ROWS));
        assert!(requests[1..].iter().all(|request| asked(request, form)));
    }
    let busy = stub::answer("503 Service Unavailable", "", "");
    let (host, _) = stub::host(vec![busy]).await;
    let args = args("tidemill consume t");
    let mut source = Source {
        client: Client::new(&host).expect("client"),
        args: &args,
        form: ROWS,
    };
    let refused = source.page(&[], 9).await.err().expect("busy");
    assert!(!refused.is_about_form());
}
