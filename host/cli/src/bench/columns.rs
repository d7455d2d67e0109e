//! What tables of measurements show.

/// Columns of a measurement: its field, its head, how it is shown.
pub(super) type Columns = &'static [(&'static str, &'static str, Look)];

/// How a figure is shown.
#[derive(Clone, Copy)]
pub(super) enum Look {
    Text,
    Whole,
    Hundredths,
    Bytes,
}

const DISK: Columns = &[
    ("bytes", "raw write of", Look::Bytes),
    ("syncs_per_second", "syncs/s", Look::Whole),
    ("mb_per_second", "MB/s", Look::Whole),
    ("p50_us", "p50 µs", Look::Whole),
    ("p99_us", "p99 µs", Look::Whole),
    ("p999_us", "p99.9 µs", Look::Whole),
];
const INGEST: Columns = &[
    ("form", "form", Look::Text),
    ("size", "bytes", Look::Whole),
    ("batch", "events/request", Look::Whole),
    ("connections", "connections", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("mb_per_second", "MB/s", Look::Whole),
    ("of_disk", "of the disk's", Look::Hundredths),
    ("p50_us", "ack p50 µs", Look::Whole),
    ("p99_us", "p99 µs", Look::Whole),
    ("p999_us", "p99.9 µs", Look::Whole),
    ("refused", "refused", Look::Whole),
    (
        "cpu_seconds_per_million",
        "CPU s/M events",
        Look::Hundredths,
    ),
    ("memory", "memory", Look::Bytes),
];
const SINGLE: Columns = &[
    ("size", "bytes", Look::Whole),
    ("connections", "connections", Look::Whole),
    ("requests_per_second", "requests/s", Look::Whole),
    ("p50_us", "ack p50 µs", Look::Whole),
    ("p99_us", "p99 µs", Look::Whole),
    ("p999_us", "p99.9 µs", Look::Whole),
    ("bare_requests_per_second", "bare requests/s", Look::Whole),
    ("bare_p99_us", "bare p99 µs", Look::Whole),
    ("disk_p99_us", "disk p99 µs", Look::Whole),
    (
        "p99_of_allowed",
        "p99 / (1.5 disk + bare)",
        Look::Hundredths,
    ),
    (
        "cpu_seconds_per_million",
        "CPU s/M events",
        Look::Hundredths,
    ),
    ("memory", "memory", Look::Bytes),
];
const TAIL: Columns = &[
    ("load", "load", Look::Text),
    ("readers", "readers", Look::Whole),
    ("events_per_second", "events/s in", Look::Whole),
    ("delivered_per_second", "events/s out", Look::Whole),
    ("delivered_per_cpu_second", "out/CPU s", Look::Whole),
    ("behind_ms", "behind ms", Look::Whole),
    ("ack_p50_us", "ack p50 µs", Look::Whole),
    ("all_p50_us", "seen by all p50 µs", Look::Whole),
    ("all_p99_us", "p99 µs", Look::Whole),
    ("all_p999_us", "p99.9 µs", Look::Whole),
    ("memory", "memory", Look::Bytes),
];
const CATCH_UP: Columns = &[
    ("form", "form", Look::Text),
    ("size", "bytes", Look::Whole),
    ("readers", "readers", Look::Whole),
    ("events", "events", Look::Whole),
    ("in_segments", "in segments", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("mb_per_second", "MB/s", Look::Whole),
    ("events_per_cpu_second", "events/CPU s", Look::Whole),
    ("mb_per_cpu_second", "MB/CPU s", Look::Whole),
    ("memory", "memory", Look::Bytes),
];
const SEALING: Columns = &[
    ("what", "what", Look::Text),
    ("events", "events", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("events_per_cpu_second", "events/CPU s", Look::Whole),
    ("lost_percent", "lost %", Look::Hundredths),
];
const PARTITIONS: Columns = &[
    ("partitions", "partitions", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("rate_percent", "% of one's", Look::Whole),
    ("p99_us", "ack p99 µs", Look::Whole),
    ("start_ms", "start ms", Look::Whole),
    ("first_ack_ms", "first ack ms", Look::Whole),
    ("idle_memory", "idle memory", Look::Bytes),
];
const RESTART: Columns = &[
    ("what", "what", Look::Text),
    ("journal_bytes", "journal", Look::Bytes),
    ("keys", "keys", Look::Whole),
    ("answer_ms", "start ms", Look::Whole),
    ("first_ack_ms", "first ack ms", Look::Whole),
    ("first_output_ms", "first step ms", Look::Whole),
    ("cpu_seconds", "CPU s", Look::Hundredths),
    ("memory", "memory", Look::Bytes),
];
const LATENCY: Columns = &[
    ("functions", "functions", Look::Whole),
    ("events", "events", Look::Whole),
    ("ack_p50_us", "ack p50 µs", Look::Whole),
    ("ack_p99_us", "p99 µs", Look::Whole),
    ("visible_p50_us", "output visible p50 µs", Look::Whole),
    ("visible_p99_us", "p99 µs", Look::Whole),
];
pub(super) const FUNCTIONS: Columns = &[
    ("function", "function", Look::Text),
    ("events", "events", Look::Whole),
    ("emitted", "emitted", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("events_per_cpu_second", "events/CPU s", Look::Whole),
    ("events_per_engine_second", "/engine CPU s", Look::Whole),
    ("memory", "memory", Look::Bytes),
];
const MANY: Columns = &[
    ("functions", "functions", Look::Whole),
    ("deploy_ms", "deploy ms each", Look::Hundredths),
    ("start_ms", "start ms", Look::Whole),
    ("first_output_ms", "first output ms", Look::Whole),
    ("all_outputs_ms", "output of all ms", Look::Whole),
    ("idle_memory", "idle memory", Look::Bytes),
    ("idle_instances", "instances", Look::Whole),
    ("threads", "threads", Look::Whole),
    ("idle_cpu_percent", "CPU %", Look::Hundredths),
    ("metrics_bytes", "/metrics", Look::Bytes),
    ("metrics_ms", "ms", Look::Hundredths),
];
const MANY_LATENCY: Columns = &[
    ("beside", "one event at a time", Look::Text),
    ("events", "events", Look::Whole),
    ("ack_p50_us", "ack p50 µs", Look::Whole),
    ("ack_p99_us", "p99 µs", Look::Whole),
    ("visible_p50_us", "output visible p50 µs", Look::Whole),
    ("visible_p99_us", "p99 µs", Look::Whole),
    ("instances", "instances", Look::Whole),
    ("hot_events_per_second", "hot events/s", Look::Whole),
    ("memory", "memory", Look::Bytes),
];
const DEPLOY: Columns = &[
    ("component", "component", Look::Text),
    ("bytes", "size", Look::Bytes),
    ("deployments", "deployments", Look::Whole),
    ("answer_p50_ms", "answer p50 ms", Look::Whole),
    ("first_output_p50_ms", "first output p50 ms", Look::Whole),
    ("first_output_most_ms", "at most ms", Look::Whole),
];
const INSTANCES: Columns = &[
    ("instance", "instance", Look::Text),
    ("functions", "functions", Look::Whole),
    ("events", "events", Look::Whole),
    ("ack_p50_us", "ack p50 µs", Look::Whole),
    ("visible_p50_us", "output visible p50 µs", Look::Whole),
    ("visible_p99_us", "p99 µs", Look::Whole),
];
const REPLAY: Columns = &[
    ("function", "function", Look::Text),
    ("what", "what", Look::Text),
    ("events", "events", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("of_alone_percent", "% of the sandbox's", Look::Whole),
    ("equal", "equal", Look::Text),
];
const SNAPSHOTS: Columns = &[
    ("what", "what", Look::Text),
    ("events_per_second", "events/s", Look::Whole),
    ("taken", "taken", Look::Text),
    ("lost_percent", "lost %", Look::Hundredths),
];
const STATE: Columns = &[
    ("what", "what", Look::Text),
    ("state_bytes", "state", Look::Bytes),
    ("events", "events", Look::Whole),
    ("seconds", "seconds", Look::Hundredths),
    ("events_per_second", "events/s", Look::Whole),
    ("events_per_engine_second", "/engine CPU s", Look::Whole),
    ("visible_p50_us", "another's p50 µs", Look::Whole),
    ("visible_p99_us", "p99 µs", Look::Whole),
    ("visible_most_us", "most µs", Look::Whole),
    ("start_ms", "start ms", Look::Whole),
    ("first_output_ms", "first output ms", Look::Whole),
    ("memory", "memory", Look::Bytes),
];
const PEERS: Columns = &[
    ("peer", "peer", Look::Text),
    ("flush", "flush", Look::Text),
    ("way", "way", Look::Text),
    ("size", "bytes", Look::Whole),
    ("batch", "events/batch", Look::Whole),
    ("connections", "connections", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("p50_us", "ack p50 µs", Look::Whole),
    ("p99_us", "p99 µs", Look::Whole),
    ("events_per_cpu_second", "events/CPU s", Look::Whole),
    ("times", "here: times", Look::Hundredths),
    ("times_per_cpu", "per CPU s", Look::Hundredths),
    ("times_ndjson", "as NDJSON: times", Look::Hundredths),
    ("times_ndjson_per_cpu", "per CPU s", Look::Hundredths),
    ("memory", "memory", Look::Bytes),
    ("failed", "failed", Look::Text),
];

const PEER_FUNCTIONS: Columns = &[
    ("peer", "count per key by", Look::Text),
    ("with", "flush or state", Look::Text),
    ("events", "events", Look::Whole),
    ("events_per_second", "events/s", Look::Whole),
    ("events_per_cpu_second", "events/CPU s", Look::Whole),
    ("events_per_engine_second", "/engine CPU s", Look::Whole),
    ("times", "bench-keys: times", Look::Hundredths),
    ("times_per_cpu", "per CPU s", Look::Hundredths),
    ("times_parsed", "bench-count: times", Look::Hundredths),
    ("times_parsed_per_cpu", "per CPU s", Look::Hundredths),
    ("memory", "memory", Look::Bytes),
    ("broker_memory", "broker's", Look::Bytes),
    ("failed", "failed", Look::Text),
];

/// Measurements and parts of them (`many/latency`), in the order in which they are printed.
pub(super) const KINDS: [(&str, Columns); 19] = [
    ("disk", DISK),
    ("ingest", INGEST),
    ("single", SINGLE),
    ("tail", TAIL),
    ("catch-up", CATCH_UP),
    ("sealing", SEALING),
    ("partitions", PARTITIONS),
    ("restart", RESTART),
    ("latency", LATENCY),
    ("functions", FUNCTIONS),
    ("many/host", MANY),
    ("many/latency", MANY_LATENCY),
    ("deploy/first-output", DEPLOY),
    ("deploy/instances", INSTANCES),
    ("deploy/replay", REPLAY),
    ("deploy/snapshots", SNAPSHOTS),
    ("state", STATE),
    ("peers", PEERS),
    ("peer-functions", PEER_FUNCTIONS),
];
