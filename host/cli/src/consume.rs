//! `tidemill consume`: events of a topic, to the end or as they come.

mod template;
#[cfg(test)]
mod tests;

use crate::client::Client;
use crate::failure::{Failure, Result};
use crate::print;
use clap::Args;
use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use template::Template;
use tidemill_server::PackedPage;

/// Most events of one answer.
const PAGE: u64 = 5_000;
/// How pages may come: as rows, of which lines are made here, or as the host's own lines.
const ROWS: &str = "application/vnd.tidemill.batch";
const LINES: &str = "application/x-ndjson";
/// How long the host may hold a poll while there is nothing.
const WAIT: &str = "20s";

/// Read events of a topic.
///
/// Those that are there now, or with `--follow` also those to come. Without a format each event is one
/// line of JSON with its place, key, headers and times.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  tidemill consume flights --limit 3\n  tidemill consume alerts --follow -f '%p %o %k %v\\n'\n\nFormat: %p partition, %o offset, %k key, %v value, %h headers, %t event time, %i ingest time, %% percent, \\n newline, \\t tab, \\\\ backslash."
)]
pub(crate) struct Consume {
    /// The topic.
    topic: String,
    /// Go on with events as they come.
    #[arg(long)]
    follow: bool,
    /// Where to start: `earliest`, `latest` or, with --partition, an offset. Follows from the latest
    /// and reads from the earliest if not said.
    #[arg(long, value_name = "WHERE")]
    from: Option<String>,
    /// Only this partition.
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Start with the first event of at least this event time.
    #[arg(long, value_name = "RFC3339", conflicts_with = "from")]
    time: Option<String>,
    /// Stop after so many events.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// How to print an event.
    #[arg(short, long, value_name = "TEMPLATE", conflicts_with = "output")]
    format: Option<Template>,
    /// `ndjson`: one event a line; `json`: one array.
    #[arg(short, long, value_parser = ["ndjson", "json"], default_value = "ndjson")]
    output: String,
}

/// An event as the host writes it.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
struct Event<'a> {
    partition: u32,
    offset: u64,
    key: Option<String>,
    key_base64: Option<String>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    value_base64: Option<String>,
    headers: Vec<(String, Value)>,
    time: String,
    ingest_time: String,
    tombstone: bool,
}

/// What the topic looks like when reading starts.
struct Layout {
    /// Values are bytes, and JSON texts in answers only stand for them.
    bytes: bool,
    /// Start and end of each partition.
    ranges: BTreeMap<u32, (u64, u64)>,
}

pub(crate) async fn perform(host: &str, args: &Consume) -> Result<()> {
    let client = Client::new(host)?;
    let layout = layout(&client.get(&["v1", "topics", &args.topic], &[]).await?);
    let mut place = start(args, &layout)?;
    let mut printer = Printer {
        args,
        bytes: layout.bytes,
        out: print::stdout(),
        printed: 0,
    };
    printer.open()?;
    // Without --follow the topic is read up to where it ended at the beginning.
    let ends = (!args.follow).then(|| {
        layout
            .ranges
            .iter()
            .map(|(&partition, &(_, end))| (partition, end))
            .collect()
    });
    let mut source = Source {
        client,
        args,
        form: ROWS,
    };
    while printer.wanted() > 0 {
        let page = source.page(&place, printer.wanted().min(PAGE)).await?;
        printer.page(&page.body, ends.as_ref())?;
        let next = positions(&page.next)?;
        if ends
            .as_ref()
            .is_some_and(|ends| page.body.is_empty() || reached(&next, ends, args.partition))
        {
            break;
        }
        place = follow_on(&next, page.next, args.partition);
    }
    printer.close()
}

/// Where pages come from.
struct Source<'a> {
    client: Client,
    args: &'a Consume,
    /// How they are asked for.
    form: &'static str,
}

/// Some events, and where to go on.
struct Page {
    body: Body,
    next: String,
}

/// Events as they came.
enum Body {
    Lines(Vec<u8>),
    Rows(Vec<u8>),
}

impl Body {
    /// Whether there are no events.
    fn is_empty(&self) -> bool {
        match self {
            Self::Lines(lines) => lines.is_empty(),
            // What can't be read is told by who prints it.
            Self::Rows(body) => PackedPage::read(body).is_ok_and(|page| page.is_empty()),
        }
    }
}

impl Source<'_> {
    async fn page(&mut self, place: &[(&'static str, String)], limit: u64) -> Result<Page> {
        let answer = match self.ask(place, limit).await {
            // A host that knows only lines, or something before it that does.
            Err(failure) if self.form == ROWS && failure.is_about_form() => {
                self.form = LINES;
                self.ask(place, limit).await?
            }
            answer => answer?,
        };
        let header = |name: &str| {
            let value = answer.headers().get(name);
            value
                .and_then(|value| value.to_str().ok())
                .map(String::from)
        };
        let next = header("tidemill-next").ok_or_else(|| {
            Failure::failed("strange-answer", "the host does not say where to go on")
        })?;
        let is_rows = header("content-type").is_some_and(|form| form == ROWS);
        let body = self.client.body(answer).await?;
        let body = if is_rows {
            Body::Rows(body)
        } else {
            Body::Lines(body)
        };
        Ok(Page { body, next })
    }

    async fn ask(&self, place: &[(&'static str, String)], limit: u64) -> Result<reqwest::Response> {
        let limit = limit.to_string();
        let place = place.iter().map(|(name, value)| (*name, value.as_str()));
        let mut query: Vec<_> = place.chain([("limit", limit.as_str())]).collect();
        if self.args.follow {
            query.push(("wait", WAIT));
        }
        let path = ["v1", "topics", &self.args.topic, "events"];
        let request = self.client.request(Method::GET, &path, &query);
        self.client.send(request.header("accept", self.form)).await
    }
}

fn layout(topic: &Value) -> Layout {
    let ranges = topic["ranges"].as_array().into_iter().flatten();
    let field = |range: &Value, name: &str| range[name].as_u64().unwrap_or(0);
    Layout {
        bytes: topic["format"] == "bytes",
        ranges: ranges
            .filter_map(|range| {
                let partition = u32::try_from(range["partition"].as_u64()?).ok()?;
                Some((partition, (field(range, "start"), field(range, "end"))))
            })
            .collect(),
    }
}

/// Where the first page starts, as query parameters.
fn start(args: &Consume, layout: &Layout) -> Result<Vec<(&'static str, String)>> {
    let mut place = Vec::new();
    if let Some(time) = &args.time {
        place.push(("time", time.clone()));
        place.extend(
            args.partition
                .map(|partition| ("partition", partition.to_string())),
        );
        return Ok(place);
    }
    let from = args
        .from
        .as_deref()
        .unwrap_or(if args.follow { "latest" } else { "earliest" });
    let Some(partition) = args.partition else {
        return match from {
            "earliest" | "latest" => Ok(vec![("from", from.into())]),
            _ => Err(Failure::usage(
                "invalid-start",
                format!("--from {from:?} is neither earliest nor latest"),
            )
            .hint("an offset needs --partition; a time goes into --time")),
        };
    };
    let (first, end) = *layout.ranges.get(&partition).ok_or_else(|| {
        let partitions = layout.ranges.len();
        Failure::not_found(
            "partition-not-found",
            format!("{} has {partitions} partitions, counted from 0", args.topic),
        )
    })?;
    let offset = match from {
        "earliest" => first,
        "latest" => end,
        offset => offset.parse().map_err(|_| {
            Failure::usage(
                "invalid-start",
                format!("--from {from:?} is neither earliest, latest nor an offset"),
            )
        })?,
    };
    Ok(vec![
        ("partition", partition.to_string()),
        ("offset", offset.to_string()),
    ])
}

/// Where the next page starts.
fn follow_on(
    next: &BTreeMap<u32, u64>,
    cursor: String,
    partition: Option<u32>,
) -> Vec<(&'static str, String)> {
    match partition.and_then(|partition| Some((partition, next.get(&partition)?))) {
        Some((partition, offset)) => vec![
            ("partition", partition.to_string()),
            ("offset", offset.to_string()),
        ],
        None => vec![("cursor", cursor)],
    }
}

/// Reads a cursor, `0:13,1:5`.
fn positions(cursor: &str) -> Result<BTreeMap<u32, u64>> {
    let pair = |pair: &str| {
        let (partition, offset) = pair.split_once(':')?;
        Some((partition.trim().parse().ok()?, offset.trim().parse().ok()?))
    };
    let positions: Option<BTreeMap<u32, u64>> = cursor
        .split(',')
        .filter(|part| !part.is_empty())
        .map(pair)
        .collect();
    positions.ok_or_else(|| {
        Failure::failed(
            "strange-answer",
            format!("the host goes on at {cursor:?}, which is no cursor"),
        )
    })
}

/// Every partition that is read has been read to its end.
fn reached(next: &BTreeMap<u32, u64>, ends: &BTreeMap<u32, u64>, only: Option<u32>) -> bool {
    ends.iter()
        .filter(|(partition, _)| only.is_none_or(|only| only == **partition))
        .all(|(partition, end)| next.get(partition).is_some_and(|next| next >= end))
}

/// Prints pages.
struct Printer<'a, W: Write> {
    args: &'a Consume,
    bytes: bool,
    out: W,
    printed: u64,
}

impl<W: Write> Printer<'_, W> {
    /// Events still to be printed.
    fn wanted(&self) -> u64 {
        self.args
            .limit
            .map_or(u64::MAX, |limit| limit.saturating_sub(self.printed))
    }

    fn array(&self) -> bool {
        self.args.output == "json"
    }

    fn open(&mut self) -> Result<()> {
        if self.array() {
            self.out.write_all(b"[")?;
        }
        Ok(())
    }

    fn page(&mut self, page: &Body, ends: Option<&BTreeMap<u32, u64>>) -> Result<()> {
        match page {
            Body::Lines(lines) => self.lines(lines, ends)?,
            Body::Rows(body) => self.rows(body, ends)?,
        }
        Ok(self.out.flush()?)
    }

    fn lines(&mut self, lines: &[u8], ends: Option<&BTreeMap<u32, u64>>) -> Result<()> {
        for line in lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            if self.wanted() == 0 {
                break;
            }
            let event = read(line)?;
            if !is_behind(ends, event.partition, event.offset) {
                self.event(line, Some(event))?;
            }
        }
        Ok(())
    }

    /// Lines as the host would have written them, by the same code.
    fn rows(&mut self, body: &[u8], ends: Option<&BTreeMap<u32, u64>>) -> Result<()> {
        let page = PackedPage::read(body)
            .map_err(|error| Failure::failed(error.code, error.detail.clone()))?;
        let mut line = Vec::new();
        for event in page.events() {
            if self.wanted() == 0 {
                break;
            }
            if !is_behind(ends, event.partition(), event.offset()) {
                line.clear();
                event.write_line(!self.bytes, &mut line);
                self.event(&line, None)?;
            }
        }
        Ok(())
    }

    /// Prints a line, or what the format makes of it; `event` is the line taken apart, if somebody did already.
    fn event(&mut self, line: &[u8], event: Option<Event<'_>>) -> Result<()> {
        match &self.args.format {
            Some(template) => {
                let event = event.map_or_else(|| read(line), Ok)?;
                template.write(&event, self.bytes, &mut self.out)?;
            }
            None if self.array() => {
                self.out
                    .write_all(if self.printed == 0 { b"\n" } else { b",\n" })?;
                self.out.write_all(line)?;
            }
            None => {
                self.out.write_all(line)?;
                self.out.write_all(b"\n")?;
            }
        }
        self.printed += 1;
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if self.array() {
            self.out.write_all(b"\n]\n")?;
        }
        Ok(self.out.flush()?)
    }
}

/// What came in after the beginning is left for the next time.
fn is_behind(ends: Option<&BTreeMap<u32, u64>>, partition: u32, offset: u64) -> bool {
    let end = ends.and_then(|ends| ends.get(&partition));
    end.is_some_and(|end| offset >= *end)
}

fn read(line: &[u8]) -> Result<Event<'_>> {
    serde_json::from_slice(line).map_err(|error| {
        Failure::failed(
            "strange-answer",
            format!("an event of the answer is wrong: {error}"),
        )
    })
}

/// Headers as JSON, in their order.
fn headers(headers: &[(String, Value)]) -> String {
    json!(headers).to_string()
}
