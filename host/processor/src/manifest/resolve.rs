//! From a manifest's JSON to the checked [`Manifest`], every default filled in.

use super::fields::{Table, refuse};
use super::grants::grants;
use super::{
    Exhausted, InputSpec, Limits, Manifest, Order, OutputSpec, Retry, SlotKind, SlotSpec, Start,
    Time,
};
use serde_json::Value;
use std::time::Duration;
use tidemill_log::Format;
use tidemill_types::{ByteSize, FunctionName, Result, limits, parse_duration};
use tidemill_wasm::Clock;

const SECTIONS: [&str; 10] = [
    "function", "input", "output", "state", "time", "batch", "limits", "retry", "grants", "config",
];
const DAY: Duration = Duration::from_secs(86_400);
const ZERO: Duration = Duration::ZERO;

pub(super) fn resolve(source: Value, name: &FunctionName) -> Result<Manifest> {
    let root = Table::root(&source)?.known(&SECTIONS)?;
    let function = root.table("function")?.known(&[
        "name",
        "description",
        "outputs_order",
        "slots_order",
        "timers",
    ])?;
    function.parsed("name", |name| name.parse::<FunctionName>())?;
    let batch = root.table("batch")?.known(&["events", "bytes", "wait"])?;
    let kib = |n: u64| ByteSize(n << 10);
    Ok(Manifest {
        name: name.clone(),
        description: function.text("description")?.unwrap_or_default().into(),
        inputs: inputs(&root)?,
        outputs: outputs(&root, &function)?,
        slots: slots(&root, &function)?,
        timers: function.flag("timers")?.unwrap_or(false),
        time: time(&root)?,
        batch_events: batch.whole("events", 1..=10_000)?.unwrap_or(256) as usize,
        batch_bytes: batch.size("bytes", kib(256), kib(1)..=ByteSize::mib(4))?,
        batch_wait: batch.duration("wait", ZERO, ZERO..=Duration::from_secs(60))?,
        limits: bounds(&root)?,
        retry: retry(&root)?,
        grants: grants(&root)?,
        config: config(&root)?,
        source,
    })
}

fn bounds(root: &Table<'_>) -> Result<Limits> {
    let table = root.table("limits")?.known(&[
        "memory",
        "deadline",
        "output_bytes",
        "output_events",
        "state_value_bytes",
        "state_bytes",
        "log_lines",
        "log_bytes",
        "concurrency",
    ])?;
    let (kib, mib) = (|n: u64| ByteSize(n << 10), ByteSize::mib);
    let value = ByteSize(limits::STATE_VALUE_BYTES as u64);
    Ok(Limits {
        memory: table.size("memory", Limits::MEMORY, mib(1)..=mib(4096))?,
        deadline: table.duration(
            "deadline",
            Duration::from_secs(1),
            Duration::from_millis(1)..=Duration::from_secs(60),
        )?,
        output_bytes: table.size("output_bytes", mib(8), kib(1)..=mib(32))?,
        output_events: table
            .whole("output_events", 1..=1_000_000)?
            .unwrap_or(100_000),
        state_value_bytes: table.size("state_value_bytes", value, ByteSize(1)..=value)?,
        state_bytes: table.size("state_bytes", mib(1 << 10), kib(1)..=mib(16 << 20))?,
        log_lines: table.whole("log_lines", 0..=100_000)?.unwrap_or(200),
        log_bytes: table.size("log_bytes", kib(64), ByteSize(0)..=mib(64))?,
        concurrency: table.whole("concurrency", 1..=1024)?,
    })
}

fn inputs(root: &Table<'_>) -> Result<Vec<InputSpec>> {
    let tables = root.tables("input")?;
    match tables.len() {
        0 => {
            return Err(refuse(
                "input",
                "a function needs an input: [[input]] with a topic",
            ));
        }
        1..=limits::INPUTS => {}
        more => {
            return Err(refuse(
                "input",
                format!(
                    "{more} inputs are given, but a function reads at most {} topics",
                    limits::INPUTS
                ),
            ));
        }
    }
    let inputs: Vec<InputSpec> = tables.into_iter().map(input).collect::<Result<_>>()?;
    for (at, input) in inputs.iter().enumerate() {
        if let Some(other) = inputs[..at].iter().position(|o| o.topic == input.topic) {
            return Err(refuse(
                &format!("input[{at}].topic"),
                format!(
                    "{:?} is input[{other}]'s topic already; each input is another topic",
                    input.topic.as_str()
                ),
            ));
        }
    }
    Ok(inputs)
}

fn input(table: Table<'_>) -> Result<InputSpec> {
    let table = table.known(&["topic", "start", "key"])?;
    let topic = table.needed("topic")?;
    let topic = topic
        .parse()
        .map_err(|wrong: tidemill_types::Error| refuse(&table.place_of("topic"), wrong.detail))?;
    let start = match table.text("start")? {
        None | Some("latest") => Start::Latest,
        Some("earliest") => Start::Earliest,
        Some(time) => Start::At(time.parse().map_err(|_| {
            refuse(
                &table.place_of("start"),
                format!("{time:?} is neither \"earliest\", \"latest\" nor an RFC 3339 time such as \"2013-01-01T10:15:00Z\""),
            )
        })?),
    };
    let key = table.text("key")?;
    if let Some(pointer) = key
        && !pointer.starts_with('/')
    {
        return Err(refuse(
            &table.place_of("key"),
            format!("{pointer:?} is not a JSON pointer: it starts with \"/\", as in \"/carrier\""),
        ));
    }
    Ok(InputSpec {
        topic,
        start,
        key: key.map(Into::into),
    })
}

fn outputs(root: &Table<'_>, function: &Table<'_>) -> Result<Vec<OutputSpec>> {
    let tables = root.table("output")?;
    in_order(&tables, function, "outputs_order", usize::from(u16::MAX))?
        .into_iter()
        .map(|name| {
            let table = tables
                .table(name)?
                .known(&["topic", "partitions", "format"])?;
            let topic =
                table
                    .needed("topic")?
                    .parse()
                    .map_err(|wrong: tidemill_types::Error| {
                        refuse(&table.place_of("topic"), wrong.detail)
                    })?;
            let partitions = table.whole("partitions", 1..=limits::PARTITIONS)?;
            let format = match table.text("format")? {
                None | Some("json") => Format::Json,
                Some("bytes") => Format::Bytes,
                Some(other) => {
                    let place = table.place_of("format");
                    return Err(refuse(
                        &place,
                        format!("{other:?} is not \"json\" or \"bytes\""),
                    ));
                }
            };
            Ok(OutputSpec {
                name: name.into(),
                topic,
                partitions,
                format,
            })
        })
        .collect()
}

fn slots(root: &Table<'_>, function: &Table<'_>) -> Result<Vec<SlotSpec>> {
    let tables = root.table("state")?;
    in_order(&tables, function, "slots_order", limits::SLOTS)?
        .into_iter()
        .map(|name| {
            let table = tables.table(name)?.known(&["kind", "ttl", "ttl_time"])?;
            Ok(SlotSpec {
                name: name.into(),
                kind: slot_kind(&table)?,
                ttl: ttl(&table)?,
                ttl_time: ttl_time(&table)?,
            })
        })
        .collect()
}

fn slot_kind(table: &Table<'_>) -> Result<SlotKind> {
    let kind = table.text("kind")?.unwrap_or("value");
    let known = SlotKind::ALL
        .into_iter()
        .find(|known| known.as_str() == kind);
    known.ok_or_else(|| {
        let kinds = SlotKind::ALL.map(SlotKind::as_str).join(", ");
        refuse(
            &table.place_of("kind"),
            format!("{kind:?} is not one of {kinds}"),
        )
    })
}

fn ttl(table: &Table<'_>) -> Result<Option<Duration>> {
    if table.text("ttl")?.is_none() {
        return Ok(None);
    }
    let bounds = Duration::from_millis(1)..=36_500 * DAY;
    table.duration("ttl", DAY, bounds).map(Some)
}

fn ttl_time(table: &Table<'_>) -> Result<Clock> {
    match table.text("ttl_time")? {
        None | Some("event") => Ok(Clock::Event),
        Some("processing") => Ok(Clock::Processing),
        Some(other) => Err(refuse(
            &table.place_of("ttl_time"),
            format!("{other:?} is not \"event\" or \"processing\""),
        )),
    }
}

/// The names of a table of tables in the order in which the guest numbers them.
fn in_order<'a>(
    tables: &Table<'a>,
    function: &Table<'a>,
    key: &str,
    most: usize,
) -> Result<Vec<&'a str>> {
    let names: Vec<&str> = tables.keys().collect();
    let place = function.place_of(key);
    if names.len() > most {
        return Err(refuse(
            &place,
            format!("{} are declared, at most {most} may be", names.len()),
        ));
    }
    let Some(order) = function.texts(key)? else {
        return match names.len() {
            0 | 1 => Ok(names),
            _ => Err(refuse(
                &place,
                format!(
                    "with more than one of {}, this list must give their order",
                    names.join(", ")
                ),
            )),
        };
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted != names {
        return Err(refuse(
            &place,
            format!(
                "this must name each of {} once",
                if names.is_empty() {
                    "nothing".into()
                } else {
                    names.join(", ")
                }
            ),
        ));
    }
    Ok(order)
}

fn time(root: &Table<'_>) -> Result<Time> {
    let table = root
        .table("time")?
        .known(&["disorder", "idle", "max_future"])?;
    let most = 3650 * DAY;
    Ok(Time {
        disorder: table.duration("disorder", Duration::from_secs(300), ZERO..=most)?,
        idle: table.duration("idle", Duration::from_secs(60), ZERO..=most)?,
        max_future: table.duration("max_future", Duration::from_secs(600), ZERO..=most)?,
    })
}

fn retry(root: &Table<'_>) -> Result<Retry> {
    let table = root
        .table("retry")?
        .known(&["attempts", "backoff", "exhausted", "order"])?;
    let exhausted = match table.text("exhausted")? {
        None | Some("dead-letter") => Exhausted::DeadLetter,
        Some("skip") => Exhausted::Skip,
        Some("stop") => Exhausted::Stop,
        Some(other) => {
            return Err(refuse(
                &table.place_of("exhausted"),
                format!("{other:?} is not \"dead-letter\", \"skip\" or \"stop\""),
            ));
        }
    };
    let order = match table.text("order")? {
        None | Some("partition") => Order::Partition,
        Some("key") => Order::Key,
        Some(other) => {
            let place = table.place_of("order");
            return Err(refuse(
                &place,
                format!("{other:?} is not \"partition\" or \"key\""),
            ));
        }
    };
    let (backoff_least, backoff_most) = backoff(&table)?;
    let attempts = table.whole("attempts", 1..=1000)?.unwrap_or(5);
    Ok(Retry {
        attempts,
        backoff_least,
        backoff_most,
        exhausted,
        order,
    })
}

/// `100ms..30s`: the first pause and the longest one.
fn backoff(table: &Table<'_>) -> Result<(Duration, Duration)> {
    let text = table.text("backoff")?.unwrap_or("100ms..30s");
    let pair = text.split_once("..").and_then(|(least, most)| {
        let read = |text: &str| parse_duration(text.trim()).ok();
        Some((read(least)?, read(most)?))
    });
    match pair {
        Some((least, most)) if !least.is_zero() && least <= most && most <= DAY => {
            Ok((least, most))
        }
        _ => Err(refuse(
            &table.place_of("backoff"),
            format!(
                "{text:?} is not a range of pauses, shortest first and at most a day, such as \"100ms..30s\""
            ),
        )),
    }
}

fn config(root: &Table<'_>) -> Result<String> {
    root.table("config")?;
    let text = root
        .get("config")
        .map_or_else(|| "{}".into(), Value::to_string);
    if text.len() > limits::CONFIG_BYTES {
        return Err(refuse(
            "config",
            format!(
                "{} bytes as JSON are more than a configuration may have ({})",
                text.len(),
                ByteSize(limits::CONFIG_BYTES as u64)
            ),
        ));
    }
    Ok(text)
}
