//! Columns that a schema names, as DuckDB sees them over segments old, new and merged.

use serde_json::{Value, json};
use tidemill_tests::{Host, duckdb};

const QUICK: [(&str, &str); 2] = [
    ("TIDEMILL_LOG__SEGMENT_AGE", "200ms"),
    ("TIDEMILL_LOG__COMPACTION_INTERVAL", "200ms"),
];

fn schema(more: bool) -> Value {
    let mut properties = json!({
        "carrier": {"type": "string"},
        "dep_delay": {"type": ["number", "null"]},
        "flight": {"type": "integer"},
        "time_hour": {"type": "string", "format": "date-time"},
        "tags": {"type": "array"}
    });
    if more {
        properties["late"] = json!({"type": "boolean"});
    }
    json!({"json": {"type": "object", "properties": properties, "required": ["carrier"]}})
}

fn files(dir: &std::path::Path) -> usize {
    let folder = dir.join("objects/topics/flights/p=00000");
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[test]
fn typed_columns_are_one_table_over_old_and_new_segments() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path(), &QUICK);
    host.topic(
        "flights",
        &json!({"schema": schema(false), "bloom": true, "key": "/carrier"}),
    );
    let sealed = |end: u64| {
        host.until("it is sealed", || {
            let (_, topic) = host.get("/v1/topics/flights");
            topic["ranges"][0]["archived_end"] == end
        });
    };
    let old = json!({"carrier": "UA", "dep_delay": 2.5, "flight": 1545, "time_hour": "2013-01-01T05:00:00-05:00", "tags": ["a", 1], "late": true});
    host.append(
        "flights",
        &[old.clone(), json!({"carrier": "AA", "dep_delay": null})],
    );
    sealed(2);
    let body = json!({"schema": schema(true)}).to_string();
    let (status, answer) = host.send("PATCH", "/v1/topics/flights", "application/json", body);
    assert_eq!(status, 200, "{answer}");
    host.append("flights", &[json!({"carrier": "B6", "late": false})]);
    sealed(3);

    let table = format!(
        "read_parquet('{}/objects/topics/flights/**/*.parquet', union_by_name = true, hive_partitioning = false)",
        dir.path().display()
    );
    let columns = "carrier, dep_delay, flight, epoch(time_hour), tags, late";
    let rows = || {
        duckdb(&format!(
            "select {columns} from {table} order by \"offset\""
        ))
    };
    let old_row = vec![
        json!("UA"),
        json!(2.5),
        json!(1545),
        json!(1_357_034_400.0),
        json!("[\"a\",1]"),
        Value::Null,
    ];
    let mut expected = vec![
        old_row,
        vec![
            json!("AA"),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
        ],
        vec![
            json!("B6"),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            json!(false),
        ],
    ];
    assert_eq!(rows(), expected);
    let values = || duckdb(&format!("select value from {table} where \"offset\" = 0"));
    assert_eq!(values(), [[json!(old.to_string())]], "byte for byte");

    // Merged segments take their columns from the values again, by the schema of now.
    for n in 3..8_u64 {
        host.append(
            "flights",
            &[json!({"carrier": "DL", "flight": n, "late": true})],
        );
        sealed(n + 1);
        expected.push(vec![
            json!("DL"),
            Value::Null,
            json!(n),
            Value::Null,
            Value::Null,
            json!(true),
        ]);
    }
    host.until("they are merged", || files(dir.path()) < 4);
    expected[0][5] = json!(true);
    assert_eq!(rows(), expected);
    assert_eq!(values(), [[json!(old.to_string())]]);
    let types = duckdb(&format!(
        "select column_name, column_type from (describe select carrier, flight, time_hour, dep_delay, late from {table})"
    ));
    let types: Vec<&str> = types.iter().map(|row| row[1].as_str().unwrap()).collect();
    assert_eq!(
        types,
        [
            "VARCHAR",
            "BIGINT",
            "TIMESTAMP WITH TIME ZONE",
            "DOUBLE",
            "BOOLEAN"
        ]
    );
    let found = duckdb(&format!(
        "select count(*) from {table} where key = 'B6'::blob"
    ));
    assert_eq!(found, [[json!(1)]]);
}
