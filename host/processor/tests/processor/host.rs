//! A host in one process: log, state, sandbox and processor over a folder.

use crate::component;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tidemill_env::files::{Disk, Files};
use tidemill_env::metrics::Metrics;
use tidemill_env::objects::Objects;
use tidemill_env::{Clock, Random};
use tidemill_log::{Draft, Format, Log, ReadLimit, TopicSettings};
use tidemill_processor::{
    Deploy, Deployed, Fault, FunctionLogLine, FunctionReport, KeepState, LogQuery, Processor,
    Settings, StateRecovery,
};
use tidemill_state::Store;
use tidemill_types::{ByteSize, ErrorKind, PackedRows, PartitionId, Result, Timestamp};
use tidemill_wasm::Sandbox;

/// The component of `scripted.wat`.
pub(crate) fn scripted() -> Vec<u8> {
    static BUILT: OnceLock<Vec<u8>> = OnceLock::new();
    BUILT
        .get_or_init(|| component::guest("", include_str!("scripted.wat")))
        .clone()
}

/// One engine for all tests, as in a process.
pub(crate) fn sandbox() -> Sandbox {
    static ENGINE: OnceLock<Sandbox> = OnceLock::new();
    let settings = tidemill_wasm::Settings {
        cache_dir: None,
        cache_bytes: ByteSize(0),
        instances: 100,
    };
    ENGINE
        .get_or_init(|| Sandbox::new(settings).expect("the engine starts"))
        .clone()
}

/// The usual settings of the processor.
pub(crate) fn usual() -> Settings {
    Settings {
        threads: 2,
        ..Settings::default()
    }
}

/// What a host stands on.
pub(crate) struct Ground {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) objects: Objects,
    pub(crate) random: Random,
    /// For state, half of it waiting to be written back.
    pub(crate) memory: ByteSize,
    /// A promise that functions' tasks break.
    pub(crate) fault: Option<Fault>,
}

pub(crate) struct Host {
    pub(crate) log: Log,
    pub(crate) state: Store,
    pub(crate) processor: Processor,
    pub(crate) objects: Objects,
    pub(crate) metrics: Metrics,
}

/// An event as tests compare it.
/// Does something as a process that ends without closing anything: what still runs is cut off.
pub(crate) fn process(work: impl FnOnce(&tokio::runtime::Runtime)) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    work(&runtime);
    runtime.shutdown_background();
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    pub(crate) key: Option<String>,
    pub(crate) value: Vec<u8>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) time: i64,
}

impl Host {
    pub(crate) async fn open(dir: &Path) -> Self {
        Self::try_open(dir).await.expect("the host opens")
    }

    pub(crate) async fn try_open(dir: &Path) -> Result<Self> {
        Self::open_with(dir, |_| {}).await
    }

    /// With other settings of the log.
    pub(crate) async fn open_with(
        dir: &Path,
        change: impl FnOnce(&mut tidemill_log::Settings),
    ) -> Result<Self> {
        Self::open_small(dir, ByteSize::mib(16), change).await
    }

    /// With so much memory for state, half of it waiting to be written back, and other settings of the log.
    pub(crate) async fn open_small(
        dir: &Path,
        memory: ByteSize,
        change: impl FnOnce(&mut tidemill_log::Settings),
    ) -> Result<Self> {
        Self::open_as(dir, memory, usual(), change).await
    }

    /// With other settings of the processor.
    pub(crate) async fn open_as(
        dir: &Path,
        memory: ByteSize,
        functions: Settings,
        change: impl FnOnce(&mut tidemill_log::Settings),
    ) -> Result<Self> {
        let folder = dir.join("objects");
        std::fs::create_dir_all(&folder).expect("a folder for objects");
        let ground = Ground {
            files: Arc::new(Disk::default()),
            objects: Objects::open(folder.to_str().expect("UTF-8"), &[])?,
            random: Random::seeded(7),
            memory,
            fault: None,
        };
        Self::open_on(dir, ground, functions, change).await
    }

    /// On another disk and another object storage; `dir` is where state lies.
    pub(crate) async fn open_on(
        dir: &Path,
        ground: Ground,
        functions: Settings,
        change: impl FnOnce(&mut tidemill_log::Settings),
    ) -> Result<Self> {
        let Ground {
            files,
            objects,
            random,
            memory,
            fault,
        } = ground;
        let (metrics, clock) = (Metrics::default(), Clock::system());
        let state = tidemill_state::Settings {
            dir: dir.join("state"),
            memory_bytes: memory,
            dirty_bytes: ByteSize(memory.0 / 2),
            store_bytes: ByteSize::mib(8),
            snapshot_memory: ByteSize::mib(8),
        };
        let state = Store::open(state, &metrics)?;
        let mut settings = tidemill_log::Settings {
            dir: dir.to_owned(),
            journal_file_bytes: ByteSize::mib(64),
            reserve_bytes: ByteSize(0),
            ..tidemill_log::Settings::default()
        };
        change(&mut settings);
        let mut recovery = StateRecovery::new(state.clone(), objects.clone());
        let log = Log::open(
            settings,
            files,
            objects.clone(),
            clock.clone(),
            random.clone(),
            &metrics,
            &mut recovery,
        )
        .await?;
        let functions = Settings {
            replay_dir: dir.join("replay"),
            ..functions
        };
        let (its_log, its_state, its_objects) = (log.clone(), state.clone(), objects.clone());
        let sandbox = sandbox();
        let processor = match fault {
            None => {
                Processor::open(
                    functions,
                    its_log,
                    its_state,
                    sandbox,
                    its_objects,
                    clock,
                    random,
                    &metrics,
                )
                .await?
            }
            Some(fault) => {
                Processor::open_broken(
                    functions,
                    its_log,
                    its_state,
                    sandbox,
                    its_objects,
                    clock,
                    random,
                    &metrics,
                    fault,
                )
                .await?
            }
        };
        Ok(Self {
            log,
            state,
            processor,
            objects,
            metrics,
        })
    }

    /// Stops in order, as a host does.
    pub(crate) async fn close(self) {
        self.processor.stop().await;
        self.log.close().await.expect("the log closes");
        self.state.close();
    }

    pub(crate) async fn topic(&self, name: &str, partitions: u32, format: Format) {
        let settings = TopicSettings {
            partitions,
            format,
            ..TopicSettings::default()
        };
        let name = name.parse().expect("a name");
        self.log
            .create_topic(&name, settings)
            .await
            .expect("the topic is made");
    }

    /// Sends events to a partition; durable when it returns.
    pub(crate) async fn send(&self, topic: &str, partition: u32, events: &[(Option<&str>, &str)]) {
        let topic = self.log.topic(topic).expect("the topic exists");
        let mut rows = PackedRows::default();
        for (number, (key, value)) in (0..).zip(events) {
            let headers = [("n", b"1".as_slice())];
            let time = Timestamp::from_micros(1_000_000 + number);
            let key = key.map(str::as_bytes);
            rows.push(time, key, Some(value.as_bytes()), headers)
                .expect("it fits");
        }
        let mut draft = Draft::new();
        draft
            .append(topic.id, &rows, &vec![partition; rows.len()])
            .expect("it fits");
        self.commit(draft).await;
    }

    /// Sends events with keys and times (in µs) to a partition; durable when it returns.
    pub(crate) async fn send_at(
        &self,
        topic: &str,
        partition: u32,
        events: &[(&str, i64, String)],
    ) {
        let topic = self.log.topic(topic).expect("the topic exists");
        let mut rows = PackedRows::default();
        for (key, time, value) in events {
            let (key, time) = (Some(key.as_bytes()), Timestamp::from_micros(*time));
            rows.push(time, key, Some(value.as_bytes()), [])
                .expect("it fits");
        }
        let mut draft = Draft::new();
        draft
            .append(topic.id, &rows, &vec![partition; rows.len()])
            .expect("it fits");
        self.commit(draft).await;
    }

    /// Sends a tombstone to partition 0; durable when it returns.
    pub(crate) async fn tombstone(&self, topic: &str, key: &str) {
        let topic = self.log.topic(topic).expect("the topic exists");
        let mut rows = PackedRows::default();
        rows.push(Timestamp::from_micros(0), Some(key.as_bytes()), None, [])
            .expect("it fits");
        let mut draft = Draft::new();
        draft.append(topic.id, &rows, &[0]).expect("it fits");
        self.commit(draft).await;
    }

    /// Everything in a topic.
    pub(crate) async fn read(&self, topic: &str) -> Vec<Seen> {
        let topic = self.log.topic(topic).expect("the topic exists");
        let mut seen = Vec::new();
        for range in self.log.ranges(topic.id).expect("the topic exists") {
            let at = PartitionId {
                topic: topic.id,
                partition: range.partition,
            };
            let mut next = range.start;
            while next < range.end {
                let limit = ReadLimit {
                    events: 1000,
                    bytes: 1 << 20,
                };
                let read = self
                    .log
                    .read(at, next, limit)
                    .await
                    .expect("it can be read");
                for event in read.batches.iter().flat_map(tidemill_types::Batch::iter) {
                    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
                    seen.push(Seen {
                        partition: range.partition,
                        offset: event.offset,
                        key: event.row.key.map(text),
                        value: event.row.value.unwrap_or_default().to_vec(),
                        headers: event
                            .row
                            .headers
                            .map(|(name, value)| {
                                // Where an event of an internal topic came from isn't text.
                                (name.to_owned(), String::from_utf8_lossy(value).into_owned())
                            })
                            .collect(),
                        time: event.row.time.micros(),
                    });
                }
                next = read.next;
            }
        }
        seen
    }

    /// Values of a topic's events as text.
    /// What a function logged, and its host about it.
    pub(crate) async fn lines(&self, name: &str) -> Vec<FunctionLogLine> {
        let query = LogQuery {
            limit: 100,
            ..LogQuery::default()
        };
        let mut reader = self.processor.logs(name, query).expect("it is there");
        reader.last().await.expect("lines are read")
    }

    pub(crate) async fn values(&self, topic: &str) -> Vec<String> {
        let text = |seen: Seen| String::from_utf8(seen.value).expect("text");
        self.read(topic).await.into_iter().map(text).collect()
    }

    pub(crate) async fn deploy(&self, name: &str, manifest: Value) -> Deployed {
        self.try_deploy(name, manifest, KeepState::Keep)
            .await
            .expect("it deploys")
    }

    pub(crate) async fn try_deploy(
        &self,
        name: &str,
        manifest: Value,
        state: KeepState,
    ) -> Result<Deployed> {
        self.deploy_guest(name, scripted(), manifest, state).await
    }

    pub(crate) async fn deploy_guest(
        &self,
        name: &str,
        component: Vec<u8>,
        manifest: Value,
        state: KeepState,
    ) -> Result<Deployed> {
        self.processor
            .deploy(Deploy {
                name: name.parse().expect("a name"),
                component: component.into(),
                manifest: Some(manifest),
                start: None,
                state,
                dry_run: false,
            })
            .await
    }

    /// Waits until what a function reports is as wanted.
    pub(crate) async fn until(
        &self,
        name: &str,
        wanted: impl Fn(&FunctionReport) -> bool,
    ) -> FunctionReport {
        let clock = Clock::system();
        for _ in 0..20_000 {
            let report = self
                .processor
                .describe(name)
                .await
                .expect("the function exists");
            if wanted(&report) {
                return report;
            }
            clock.sleep(Duration::from_millis(1)).await;
        }
        panic!("never as wanted: {:?}", self.processor.describe(name).await);
    }

    /// Waits until a function has read everything.
    pub(crate) async fn caught_up(&self, name: &str) -> FunctionReport {
        let report = self
            .until(name, |report| report.tasks.iter().all(|task| task.lag == 0))
            .await;
        assert!(conserved(&report), "{:?}", report.counts);
        report
    }

    async fn commit(&self, mut draft: Draft) {
        let ticket = loop {
            draft = match self.log.commit(draft) {
                Ok(ticket) => break ticket,
                Err((error, draft)) if error.kind == ErrorKind::Busy => draft,
                Err((error, _)) => panic!("{error}"),
            };
            self.log.room().await;
        };
        ticket.durable().await.expect("it is durable");
    }

    /// A count kept by `scripted.wat`.
    pub(crate) async fn count(&self, name: &str, key: &str) -> Option<u64> {
        match self
            .processor
            .state_get(name, "count", key.as_bytes(), None)
            .await
        {
            Ok(entry) => Some(number(&entry.value)),
            Err(error) => {
                assert_eq!(error.code, "key-not-found");
                None
            }
        }
    }
}

pub(crate) fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

pub(crate) fn conserved(report: &FunctionReport) -> bool {
    [report.counts, report.version_counts]
        .into_iter()
        .all(|counts| {
            let fates = counts.filtered + counts.skipped + counts.dead_lettered + counts.late;
            counts.events_in == fates + counts.effective + counts.retrying
        })
}

/// A manifest from `in` to `out` with some changes.
pub(crate) fn manifest(changes: Value) -> Value {
    let mut manifest = json!({
        "input": [{"topic": "in", "start": "earliest"}],
        "output": {"out": {"topic": "out", "format": "bytes"}},
        "retry": {"attempts": 3, "backoff": "1ms..2ms"},
        "limits": {"deadline": "200ms"},
    });
    for (key, value) in changes.as_object().expect("a table") {
        manifest[key] = value.clone();
    }
    manifest
}

/// The same with the slot `count`.
pub(crate) fn counting(changes: Value) -> Value {
    let mut manifest = manifest(changes);
    manifest["state"] = json!({"count": {"kind": "value"}});
    manifest
}
