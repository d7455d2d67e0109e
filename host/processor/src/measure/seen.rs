//! Figures of functions that are looked up when somebody asks: how far behind they are, what they keep.

use super::{Labels, Named};
use crate::function::Function;
use crate::instances::PAGE;
use crate::{FunctionReport, FunctionStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_env::metrics::{Family, Gauge, Metrics};

type Gauges = Family<Labels, Gauge>;

/// The gauges. Those of functions that are gone go with the next look.
pub(crate) struct Seen {
    named: Arc<Named>,
    all: Mutex<All>,
}

struct All {
    lag: Gauges,
    lag_seconds: Family<Labels, Gauge<f64, AtomicU64>>,
    state: Gauges,
    memory: Gauges,
    running: Gauges,
}

impl Seen {
    /// Adds them to the host's metrics.
    pub(crate) fn new(metrics: &Metrics, named: Arc<Named>) -> Self {
        let gauges = |name: &str, help: &str| {
            metrics.add(&format!("function_{name}"), help, Gauges::default())
        };
        Self {
            named,
            all: Mutex::new(All {
                lag: gauges("lag_events", "Events not read yet, over all partitions."),
                lag_seconds: metrics.add(
                    "function_lag_seconds",
                    "Age of the oldest event not read yet; 0 without lag.",
                    Family::default(),
                ),
                state: gauges("state_bytes", "Keys and values kept, over all partitions."),
                memory: gauges(
                    "memory_bytes",
                    "Most linear memory that an instance of the version in force used.",
                ),
                running: gauges(
                    "running",
                    "1 while it is at work, waits for events or tries one again; 0: paused or stopped.",
                ),
            }),
        }
    }

    /// Takes over what was seen of all functions.
    pub(crate) fn set<'f>(&self, functions: impl Iterator<Item = (FunctionReport, &'f Function)>) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        for gauges in [&all.lag, &all.state, &all.memory, &all.running] {
            gauges.clear();
        }
        all.lag_seconds.clear();
        for (report, function) in functions {
            let labels = super::labels_of(&self.named.shown(&report.name));
            // Several functions may have the same label.
            let add = |gauges: &Gauges, value: u64| {
                let value = i64::try_from(value).unwrap_or(i64::MAX);
                gauges.get_or_create(&labels).inc_by(value);
            };
            add(&all.lag, report.tasks.iter().map(|task| task.lag).sum());
            let oldest = report.tasks.iter().map(|task| task.lag_seconds);
            let oldest = oldest.fold(0.0, f64::max);
            let seconds = all.lag_seconds.get_or_create(&labels);
            seconds.set(oldest.max(seconds.get()));
            let running = match report.status {
                FunctionStatus::Running | FunctionStatus::Retrying => 1,
                FunctionStatus::Paused | FunctionStatus::Stopped => 0,
            };
            add(&all.running, running);
            if let Some(deployment) = &function.deployment {
                add(&all.state, deployment.usage.total());
                let pages = u64::from(deployment.pages.load(Ordering::Relaxed));
                let bytes = i64::try_from(pages * PAGE).unwrap_or(i64::MAX);
                let memory = all.memory.get_or_create(&labels);
                memory.set(bytes.max(memory.get()));
            }
        }
    }
}
