//! The main job: the demo's figures against values computed independently from the raw file.

use serde_json::Value;
use std::process::Command;
use tidemill_tests::{duckdb, program, repository};

#[test]
fn the_demo_counts_the_flights_of_january() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(program())
        .args(["demo", "-o", "json", "--dir"])
        .arg(dir.path())
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected =
        std::fs::read(repository().join("functions/data/expected-2013-01.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    let raw = independent_count();

    let counts = |function: &str| report["functions"][function]["counts"].clone();
    assert_eq!(counts("parse-flights")["in"], raw.rows);
    assert_eq!(counts("carrier-delays")["skipped"], raw.without_delay);
    assert_eq!(counts("delayed-flights")["emitted"], raw.late);
    assert_eq!(expected["rows"], raw.rows);
    assert_eq!(counts("route-alerts")["emitted"], expected["route_alerts"]);
    for (carrier, figures) in expected["carriers"].as_object().unwrap() {
        let reported = &report["carriers"][carrier];
        for field in ["flights", "minutes", "worst"] {
            assert_eq!(
                reported[field].as_f64(),
                figures[field].as_f64(),
                "{carrier}: {field}"
            );
        }
    }

    let flights = format!(
        "{}/objects/topics/flights/**/*.parquet",
        dir.path().display()
    );
    let rows = duckdb(&format!(
        "select count(*), count(distinct key) from read_parquet('{flights}', hive_partitioning = false)"
    ));
    assert_eq!(rows[0][0], raw.rows);
    assert_eq!(rows[0][1], expected["carriers"].as_object().unwrap().len());
}

struct Raw {
    rows: u64,
    without_delay: u64,
    late: u64,
}

/// Straight from the compressed file, without any code of ours.
fn independent_count() -> Raw {
    let file =
        std::fs::File::open(repository().join("functions/data/flights-2013-01.csv.gz")).unwrap();
    let mut reader = csv::Reader::from_reader(flate2::read::GzDecoder::new(file));
    let column = reader
        .headers()
        .unwrap()
        .iter()
        .position(|h| h == "dep_delay")
        .unwrap();
    let mut raw = Raw {
        rows: 0,
        without_delay: 0,
        late: 0,
    };
    for record in reader.records() {
        let record = record.unwrap();
        raw.rows += 1;
        match record[column].parse::<f64>() {
            Ok(delay) if delay >= 15.0 => raw.late += 1,
            Ok(_) => {}
            Err(_) => raw.without_delay += 1,
        }
    }
    raw
}
