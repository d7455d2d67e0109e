//! What the demo found, for people and as JSON.

use crate::client::Client;
use crate::failure::Result;
use crate::print::{self, Table, cell, count};
use crate::state;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What was measured and what the host said.
pub(super) struct Figures {
    /// Events streamed in.
    pub(super) events: u64,
    /// How long that took.
    pub(super) streamed: Duration,
    /// Until all functions had caught up, from the first event on.
    pub(super) settled: Duration,
    /// The host's report of each function.
    pub(super) functions: Vec<Value>,
    /// State of `carrier-delays` by carrier.
    pub(super) carriers: Map<String, Value>,
}

pub(super) struct Report {
    pub(super) host: String,
    pub(super) dir: PathBuf,
    pub(super) figures: Figures,
}

/// What `carrier-delays` remembers, by carrier.
pub(super) async fn carriers(client: &Client) -> Result<Map<String, Value>> {
    let query = [("slot", Some("total")), ("limit", Some("1000"))];
    let answer = state::list(client, "carrier-delays", &query).await?;
    Ok(state::entries(&answer)
        .iter()
        .filter_map(|entry| Some((entry["key"].as_str()?.to_owned(), entry["value"].clone())))
        .collect())
}

impl Report {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn rate(&self) -> f64 {
        self.figures.events as f64 / self.figures.streamed.as_secs_f64().max(1e-9)
    }

    pub(super) fn json(&self) -> Value {
        let figures = &self.figures;
        let name = |function: &Value| function["name"].as_str().unwrap_or_default().to_owned();
        let functions: Map<String, Value> = figures
            .functions
            .iter()
            .map(|function| (name(function), function.clone()))
            .collect();
        json!({
            "events": figures.events,
            "streamed_seconds": figures.streamed.as_secs_f64(),
            "settled_seconds": figures.settled.as_secs_f64(),
            "events_per_second": self.rate(),
            "functions": functions,
            "carriers": figures.carriers,
            "host": self.host,
            "directory": self.dir,
            "parquet": self.glob("*"),
            "query": self.query(),
        })
    }

    /// Where the Parquet files of a topic lie.
    fn glob(&self, topic: &str) -> String {
        format!(
            "{}/**/*.parquet",
            self.dir.join("objects/topics").join(topic).display()
        )
    }

    fn query(&self) -> String {
        format!(
            "select decode(key) carrier, count(*) flights, round(avg((value::json->>'dep_delay')::double), 1) delay \
             from read_parquet('{}', hive_partitioning = false) group by 1 order by 3 desc",
            self.glob("flights")
        )
    }

    pub(super) fn print(&self, goes_on: bool) -> Result<()> {
        let figures = &self.figures;
        let mut out = print::stdout();
        writeln!(
            out,
            "{} flights streamed in over HTTP in {:.2} s ({} events/s); all functions had caught up after {:.2} s.\n",
            count(figures.events),
            figures.streamed.as_secs_f64(),
            print::whole(self.rate()),
            figures.settled.as_secs_f64(),
        )?;
        self.functions().write(&mut out)?;
        writeln!(out)?;
        self.carriers().write(&mut out)?;
        let (files, bytes) = parquet(&self.dir.join("objects/topics"));
        writeln!(
            out,
            "\nParquet: {} files, {}, {}",
            count(files),
            print::bytes(bytes),
            self.glob("*")
        )?;
        writeln!(
            out,
            "Ask them with DuckDB:\n  python3 -m pip install duckdb\n  python3 -c \"{}\"",
            self.python()
        )?;
        if goes_on {
            writeln!(
                out,
                "\nHost: {host}\n  tidemill --host {host} consume route-alerts --from earliest --follow",
                host = self.host
            )?;
        }
        Ok(out.flush()?)
    }

    fn python(&self) -> String {
        format!("import duckdb; print(duckdb.sql('''{}'''))", self.query())
    }

    fn functions(&self) -> Table {
        let mut table = Table::new(&[
            "function",
            "events in",
            "events out",
            "filtered",
            "skipped",
            "dead letters",
            "state",
            "reads",
            "writes",
        ]);
        for function in &self.figures.functions {
            let number = |name: &str| count(function["counts"][name].as_u64().unwrap_or(0));
            let names = |value: &Value| match value {
                Value::Object(named) => named.values().map(cell).collect::<Vec<_>>().join(", "),
                Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(", "),
                _ => String::new(),
            };
            let slots = function["state"]
                .as_object()
                .map(|slots| slots.keys().cloned().collect::<Vec<_>>().join(", "));
            table.row(vec![
                cell(&function["name"]),
                number("in"),
                number("emitted"),
                number("filtered"),
                number("skipped"),
                number("dead_lettered"),
                cell(&slots.unwrap_or_default().into()),
                names(&function["inputs"]),
                names(&function["outputs"]),
            ]);
        }
        table
    }

    /// Carriers by their mean delay, the latest first.
    fn carriers(&self) -> Table {
        let mut rows: Vec<(f64, Vec<String>)> = (self.figures.carriers.iter())
            .map(|(carrier, delays)| {
                let number = |name: &str| delays[name].as_f64().unwrap_or(0.0);
                let mean = number("minutes") / number("flights").max(1.0);
                let worst = number("worst");
                let flights = count(delays["flights"].as_u64().unwrap_or(0));
                (
                    mean,
                    vec![
                        carrier.clone(),
                        flights,
                        format!("{mean:.1}"),
                        format!("{worst:.0}"),
                    ],
                )
            })
            .collect();
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut table = Table::new(&["carrier", "departures", "mean delay (min)", "worst (min)"]);
        rows.into_iter().for_each(|(_, row)| table.row(row));
        table
    }
}

/// Number and size of the Parquet files below a directory.
fn parquet(dir: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let (more_files, more_bytes) = if path.is_dir() {
            parquet(&path)
        } else if path
            .extension()
            .is_some_and(|extension| extension == "parquet")
        {
            (1, entry.metadata().map_or(0, |metadata| metadata.len()))
        } else {
            (0, 0)
        };
        files += more_files;
        bytes += more_bytes;
    }
    (files, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let function = json!({"name": "carrier-delays", "counts": {"in": 27_004, "emitted": 26_483, "skipped": 521},
            "inputs": ["flights"], "outputs": {"out": "carrier-delays"}, "state": {"total": "value"}});
        let carriers = json!({"UA": {"flights": 10, "minutes": 25.0, "worst": 12.0}, "AA": {"flights": 2, "minutes": 30.0, "worst": 29.0}});
        let figures = Figures {
            events: 27_004,
            streamed: Duration::from_millis(500),
            settled: Duration::from_millis(700),
            functions: vec![function],
            carriers: carriers.as_object().cloned().expect("object"),
        };
        Report {
            host: "http://127.0.0.1:1".into(),
            dir: "/d".into(),
            figures,
        }
    }

    fn text(table: &Table) -> String {
        let mut out = Vec::new();
        table.write(&mut out).expect("writes");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_report_names_functions_and_carriers() {
        let json = report().json();
        assert_eq!(json["functions"]["carrier-delays"]["counts"]["in"], 27_004);
        assert_eq!(json["carriers"]["UA"]["worst"], 12.0);
        assert_eq!(json["events_per_second"], 54_008.0);
        assert_eq!(json["parquet"], "/d/objects/topics/*/**/*.parquet");
    }

    #[test]
    fn the_latest_carrier_comes_first() {
        let shown = text(&report().carriers());
        let rows: Vec<Vec<&str>> = shown
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows, [["AA", "2", "15.0", "29"], ["UA", "10", "2.5", "12"]]);
        assert!(text(&report().functions()).contains("27,004"));
    }

    #[test]
    fn parquet_files_are_found_at_any_depth() {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::create_dir_all(dir.path().join("t/p=00000")).expect("made");
        std::fs::write(dir.path().join("t/p=00000/1.parquet"), "12345").expect("written");
        std::fs::write(dir.path().join("t/other"), "1").expect("written");
        assert_eq!(parquet(dir.path()), (1, 5));
        assert_eq!(parquet(&dir.path().join("missing")), (0, 0));
    }
}
