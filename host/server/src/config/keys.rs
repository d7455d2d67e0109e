//! The table of settings.

use super::{Config, LogFormat};
use std::fmt::Write;
use std::time::Duration;
use tidemill_types::{ByteSize, format_duration, parse_duration};

/// One setting.
pub(super) struct Key {
    /// `section.key`, or `key` at the top.
    pub(super) name: &'static str,
    doc: &'static str,
    /// Reads it from text; an error says what would be right.
    pub(super) read: fn(&mut Config, &str) -> Result<(), String>,
    show: fn(&Config) -> String,
}

fn bytes(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|e: tidemill_types::Error| e.detail)
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|e| e.detail)
}

fn whole<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "write a whole number".to_owned())
}

fn quoted(value: impl std::fmt::Display) -> String {
    toml::Value::String(value.to_string()).to_string()
}

macro_rules! keys {
    ($($name:literal, $doc:literal, $($field:ident).+, $read:expr, $show:expr;)*) => {
        /// Every setting, in the order of the reference configuration.
        pub(super) const KEYS: &[Key] = &[$(Key {
            name: $name,
            doc: $doc,
            read: |config, text| { config.$($field).+ = $read(text)?; Ok(()) },
            show: |config| $show(&config.$($field).+),
        }),*];
    };
}

keys! {
    "dir", "The data directory; one host per directory.", dir, |t: &str| Ok::<_, String>(t.into()), |v: &std::path::PathBuf| quoted(v.display());
    "listen", "Address to listen on; loopback only, as long as there is no authentication.", listen,
        |t: &str| t.parse().map_err(|_| "write an address and a port, as in \"127.0.0.1:7070\"".to_owned()), quoted;

    "memory.limit", "Memory the host plans with; 0B: a quarter of the machine's. Where the settings of memory below aren't given, each takes at most a share of it.",
        memory_limit, bytes, quoted;

    "http.body_bytes", "Largest body that is appended as a whole, before and after decompression; streamed NDJSON may be longer.",
        http.body_bytes, body_bytes, quoted;
    "http.event_bytes", "Largest event: key, value and headers together.", http.event_bytes, bytes, quoted;
    "http.busy_wait", "How long an append waits for room before it is refused as busy.", http.busy_wait, duration, |v: &Duration| quoted(format_duration(*v));
    "http.header_timeout", "How long a request's head may take, and how long an idle connection is kept.",
        http.header_timeout, duration, |v: &Duration| quoted(format_duration(*v));
    "http.body_timeout", "How long a request's body may take; for streamed NDJSON, how long a pause in it may be.",
        http.body_timeout, duration, |v: &Duration| quoted(format_duration(*v));
    "http.stop_timeout", "How long requests may go on after the host was asked to stop.", http.stop_timeout, duration, |v: &Duration| quoted(format_duration(*v));
    "http.connections", "Most connections at a time; more wait to be accepted.", http.connections, connections, usize::to_string;

    "http.memory_bytes", "Memory for the bodies of requests that arrive, and as much again for events that are read; beyond it they wait and are refused as busy.",
        http.memory_bytes, bytes, quoted;

    "storage.url", "Where objects are kept: a folder, s3://bucket/prefix, gs://… or az://…; empty: \"objects\" in the data directory. Further options go into [storage.options] (aws_endpoint, aws_region, …).",
        storage.url, |t: &str| Ok::<_, String>(t.to_owned()), quoted;
    "storage.request_timeout", "How long one request to object storage may take before it counts as failed; a server may let one wait for 6s that lost a race.",
        storage.request_timeout, request_time, |v: &Duration| quoted(format_duration(*v));
    "storage.attempts", "How often a request to object storage is made before its failure is told; pauses between grow, by lot, from 100ms to 5s.",
        storage.attempts, attempts, u32::to_string;
    "storage.cache_bytes", "Local disk, in the data directory, for what is read of segments when storage isn't a folder. 0B: none.", storage.cache_bytes, bytes, quoted;

    "log.journal_file_bytes", "Size of one journal file.", log.journal_file_bytes, bytes, quoted;
    "log.tail_bytes", "Events kept in memory for readers.", log.tail_bytes, bytes, quoted;
    "log.in_flight_bytes", "Bytes that may be appended and not yet durable; beyond it appends wait.", log.in_flight_bytes, bytes, quoted;
    "log.segment_bytes", "A partition with this much unsealed is sealed into a segment.", log.segment_bytes, bytes, quoted;
    "log.segment_age", "A partition whose oldest unsealed event is this old is sealed.", log.segment_age, duration, |v: &Duration| quoted(format_duration(*v));
    "log.snapshot_bytes", "Bytes of journal after which a snapshot of the state is taken.", log.snapshot_bytes, bytes, quoted;
    "log.merge_bytes", "Small segments are merged, in topics that aren't compacted, until they have this much or a UTC day; of a topic's retention at most a quarter. 0B: never.",
        log.merge_bytes, bytes, quoted;
    "log.compaction_interval", "How often compaction and merging look for something to do.",
        log.compaction_interval, pause, |v: &Duration| quoted(format_duration(*v));
    "log.compaction_percent", "A partition of a compacted topic is compacted when this part of its segments' bytes, in percent, came since the last time.",
        log.compaction_percent, percent, u32::to_string;
    "log.compaction_bytes", "Memory for the keys of one compaction; what doesn't fit is left for the next.", log.compaction_bytes, bytes, quoted;
    "log.journal_bytes", "With this much journal that can't be cut, because object storage is away, appends are refused; 0B: only the disk bounds it.",
        log.journal_bytes, bytes, quoted;
    "log.reading_bytes", "Memory for footers and decoded events of segments, for those who read on or read the same.", log.reading_bytes, bytes, quoted;
    "log.sealing_bytes", "Memory for row groups of segments that are written side by side.", log.sealing_bytes, bytes, quoted;
    "log.reuse_bytes", "Memory that is kept to be used again: buffers of frames, what was read of the journal, and what the disk reads into and writes from.", log.reuse_bytes, bytes, quoted;
    "log.reserve_bytes", "Disk space that must stay free; below it appends are refused.", log.reserve_bytes, bytes, quoted;

    "log.producer_bytes", "Memory for the last steps of producers; beyond it those that were silent longest are forgotten.", log.producer_bytes, bytes, quoted;
    "log.producer_idle", "A producer that was silent for less than this is never forgotten; when all are like that, new ones are refused.",
        log.producer_idle, duration, |v: &Duration| quoted(format_duration(*v));
    "log.idempotency_bytes", "Memory for idempotency keys, about 300 bytes each; beyond it requests with new ones are refused.", log.idempotency_bytes, bytes, quoted;
    "log.idempotency_window", "How long an idempotency key counts, from its first acceptance.",
        log.idempotency_window, duration, |v: &Duration| quoted(format_duration(*v));

    "state.memory_bytes", "Live values of functions kept in memory.", state.memory_bytes, bytes, quoted;
    "state.dirty_bytes", "Changed values that may wait to be written back; those that are being written are in memory once more.", state.dirty_bytes, bytes, quoted;
    "state.store_bytes", "Memory of the state store on disk: blocks that it read, and what isn't in its files yet.", state.store_bytes, bytes, quoted;
    "state.snapshot_memory", "Memory of snapshots of the state: which keys changed since the last one (where they are too many, the next one has everything), and objects on their way to storage.", state.snapshot_memory, bytes, quoted;

    "functions.threads", "Threads that run functions; 0: as many as cores.", functions.threads, whole, usize::to_string;
    "functions.instances", "Instances that addresses are reserved for; those beyond it take longer to make.", functions.instances, whole, u32::to_string;
    "functions.memory_bytes", "Linear memory of all instances: beyond it those go that weren't used for longest, and then tasks wait for their turn.",
        functions.memory_bytes, bytes, quoted;
    "functions.idle", "How long an instance is kept that isn't used.", functions.idle, pause, |v: &Duration| quoted(format_duration(*v));
    "functions.cache_bytes", "Disk, in the data directory, for compiled components; those that weren't used for longest go first.",
        functions.cache_bytes, bytes, quoted;
    "functions.compile_time", "How long compiling a component may take; one that takes longer is refused.",
        functions.compile_time, pause, |v: &Duration| quoted(format_duration(*v));
    "functions.max_component", "Largest component that is taken; 64MiB at most.", functions.maxima.component, component, quoted;
    "functions.max_memory", "Most memory that a function may give its instances (limits.memory); never more than functions.memory_bytes.", functions.maxima.memory, bytes, quoted;
    "functions.max_deadline", "Longest time that a function may give its calls (limits.deadline).",
        functions.maxima.deadline, pause, |v: &Duration| quoted(format_duration(*v));
    "functions.max_state", "Most state that a function may keep, over all partitions (limits.state_bytes).", functions.maxima.state, bytes, quoted;
    "functions.max_log", "Most bytes of log lines that a function may write a second (limits.log_bytes).", functions.maxima.log, bytes, quoted;
    "functions.log_retention", "How long the lines that a function logged are kept in its topic <function>.logs, which is made with its first line.",
        functions.log_retention.age, pause, |v: &Duration| quoted(format_duration(*v));
    "functions.log_retention_bytes", "How much of them is kept.", functions.log_retention.bytes, bytes, quoted;
    "functions.replay_bytes", "Memory of replays, of all that run at once: four of them, fewer where each would have less than 16MiB. A replay that finds no place is refused as busy.", functions.replay_bytes, bytes, quoted;
    "functions.restores", "Of so many versions of a function, those that were left last, state and positions are kept as they were then, so that \"rollback --state restore\" can go back to that; 0: of none, 50 at most. Each may take as much room as the function's state.",
        functions.restores, restores, usize::to_string;
    "functions.restore_age", "How long they are kept.", functions.restore_age, pause, |v: &Duration| quoted(format_duration(*v));
    "functions.metrics", "Functions that have metrics of their own, about 40 lines each; those of all others are added up as function _other.", functions.metrics, whole, usize::to_string;

    "grants.functions", "Functions that may be granted something, by name; \"*\": all. What isn't listed below is granted to nobody.",
        grants.functions, list, |v: &Vec<String>| shown_list(v);
    "grants.secrets", "Folder of the secrets that functions may be granted, a file for each, which only its owner may read; empty: there are none. A file is read whenever it is asked for.",
        grants.secrets, |t: &str| Ok::<_, String>((!t.is_empty()).then(|| t.into())), |v: &Option<std::path::PathBuf>| quoted(v.as_deref().unwrap_or(std::path::Path::new("")).display());
    "grants.http", "Where functions may be granted to call, with all that lies below, as in [\"https://api.example.com/v1/\"]; empty: nowhere.",
        grants.http, parsed_list, |v: &Vec<tidemill_env::outside::Reach>| shown_list(v);
    "grants.addresses", "Addresses and networks that may be called although they aren't public, as in [\"10.1.0.0/16\"].",
        grants.addresses, parsed_list, |v: &Vec<tidemill_env::outside::Network>| shown_list(v);
    "grants.timeout", "Longest time that a function may give a call (grants.http.timeout).", grants.timeout, pause, |v: &Duration| quoted(format_duration(*v));
    "grants.request_bytes", "Most bytes of a call's request.", grants.request_bytes, call_bytes, quoted;
    "grants.answer_bytes", "Most bytes of a call's answer, which is on record until its event has its fate.", grants.answer_bytes, call_bytes, quoted;
    "grants.calls", "Most calls that one event may make.", grants.calls, some, u16::to_string;
    "grants.concurrency", "Most calls at a time; more wait.", grants.concurrency, room, usize::to_string;
    "grants.function_concurrency", "Most calls of one function at a time.", grants.function_concurrency, room, usize::to_string;

    "telemetry.level", "Least level of the host's own log lines: error, warn, info, debug, trace, or a filter such as \"info,tidemill_log=debug\".",
        telemetry.level, level, quoted;
    "telemetry.format", "How log lines look: text or json.", telemetry.format, format, show_format;
}

fn body_bytes(text: &str) -> Result<ByteSize, String> {
    let most = ByteSize(tidemill_types::limits::FRAME_BYTES as u64 / 4 * 3);
    let size = bytes(text)?;
    if size > most {
        Err(format!(
            "one request is one frame, so it may be {most} at most"
        ))
    } else {
        Ok(size)
    }
}

/// `["a", "b"]`, or `a, b` as variables have it.
fn list(text: &str) -> Result<Vec<String>, String> {
    let wrong = || "write a list of texts, as in [\"one\", \"other\"]".to_owned();
    if text.trim_start().starts_with('[') {
        let table: toml::Table = format!("list = {text}").parse().map_err(|_| wrong())?;
        let list = table.get("list").and_then(toml::Value::as_array);
        let texts = list.into_iter().flatten().map(toml::Value::as_str);
        let texts = texts.map(|text| text.map(str::to_owned).ok_or_else(wrong));
        return texts.collect();
    }
    let parts = text.split(',').map(str::trim);
    Ok(parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect())
}

fn parsed_list<T>(text: &str) -> Result<Vec<T>, String>
where
    T: std::str::FromStr<Err = tidemill_types::Error>,
{
    let parse = |text: String| text.parse().map_err(|wrong: T::Err| wrong.detail);
    list(text)?.into_iter().map(parse).collect()
}

fn shown_list(list: &[impl std::fmt::Display]) -> String {
    let texts = list
        .iter()
        .map(|item| toml::Value::String(item.to_string()));
    toml::Value::Array(texts.collect()).to_string()
}

fn call_bytes(text: &str) -> Result<ByteSize, String> {
    let most = ByteSize::mib(16);
    match bytes(text)? {
        size if size > most => Err(format!("a call may have {most} at most")),
        size => Ok(size),
    }
}

fn some(text: &str) -> Result<u16, String> {
    match whole(text)? {
        calls if (1..=1000).contains(&calls) => Ok(calls),
        _ => Err("write a number from 1 to 1000".into()),
    }
}

fn room(text: &str) -> Result<usize, String> {
    match whole(text)? {
        room if (1..=100_000).contains(&room) => Ok(room),
        _ => Err("write a number from 1 to 100000".into()),
    }
}

fn component(text: &str) -> Result<ByteSize, String> {
    let most = ByteSize(tidemill_types::limits::COMPONENT_BYTES as u64);
    match bytes(text)? {
        size if size > most => Err(format!("an upload may have {most} at most")),
        size => Ok(size),
    }
}

fn pause(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        pause if pause < Duration::from_millis(10) => Err("at least 10ms are needed".into()),
        pause => Ok(pause),
    }
}

fn restores(text: &str) -> Result<usize, String> {
    match whole(text)? {
        many if many <= 50 => Ok(many),
        _ => Err("write a number from 0 to 50".into()),
    }
}

fn percent(text: &str) -> Result<u32, String> {
    match whole(text)? {
        percent if percent <= 100 => Ok(percent),
        _ => Err("write a number from 0 to 100".into()),
    }
}

fn request_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time < Duration::from_millis(100) => Err("at least 100ms are needed".into()),
        time => Ok(time),
    }
}

fn attempts(text: &str) -> Result<u32, String> {
    match whole(text)? {
        attempts if (1..=20).contains(&attempts) => Ok(attempts),
        _ => Err("write a number from 1 to 20".into()),
    }
}

fn connections(text: &str) -> Result<usize, String> {
    match whole(text)? {
        0 => Err("at least one connection is needed".into()),
        n => Ok(n),
    }
}

fn level(text: &str) -> Result<String, String> {
    text.parse::<tracing_subscriber::filter::Targets>()
        .map(|_| text.to_owned())
        .map_err(|_| {
            "write error, warn, info, debug, trace or a filter such as \"info,tidemill_log=debug\""
                .into()
        })
}

fn format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("write \"text\" or \"json\"".into()),
    }
}

fn show_format(format: &LogFormat) -> String {
    quoted(match format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    })
}

/// All settings as a file.
pub(super) fn write(config: &Config) -> String {
    let mut out = String::from(
        "# Every setting of Tidemill with its default. Each can also be given as a variable, as in\n\
         # TIDEMILL_LOG__SEGMENT_BYTES=64MiB, and overridden by flags.\n\n",
    );
    let mut section = "";
    for key in KEYS {
        let (in_section, name) = key.name.rsplit_once('.').unwrap_or(("", key.name));
        if in_section != section {
            section = in_section;
            let _ = write!(out, "\n[{section}]\n");
        }
        let _ = write!(out, "# {}\n{name} = {}\n", key.doc, (key.show)(config));
    }
    if !config.storage.options.is_empty() {
        out.push_str("\n[storage.options]\n");
        for (name, value) in &config.storage.options {
            let _ = writeln!(out, "{} = {}", quoted(name), quoted(value));
        }
    }
    out
}
