//! Metrics of functions.

mod named;
mod seen;

pub(crate) use named::Named;
pub(crate) use seen::Seen;

use crate::Counts;
use crate::dead_letter::Reason;
use std::sync::Arc;
use std::time::Duration;
use tidemill_env::metrics::{Counter, Family, Gauge, Histogram, Metrics, exponential_buckets};
use tidemill_types::FunctionName;

type Labels = Vec<(String, String)>;
type Counters = Family<Labels, Counter>;

/// All metrics of all functions.
#[derive(Clone)]
pub(crate) struct FunctionMetrics {
    named: Arc<Named>,
    events_in: Counters,
    events_out: Counters,
    filtered: Counters,
    skipped: Counters,
    dead_letters: Counters,
    cut_off: Counters,
    future: Counters,
    timers: Counters,
    timer_dead_letters: Counters,
    errors: Counters,
    restarts: Counters,
    invocations: Counters,
    seconds: Family<Labels, Histogram>,
    outcomes: Counters,
    waiting: Family<Labels, Gauge>,
}

/// Those of one function.
pub(crate) struct Meter {
    function: String,
    errors: Counters,
    events_in: Counter,
    events_out: Counter,
    filtered: Counter,
    skipped: Counter,
    dead_letters: Counter,
    cut_off: Counter,
    future: Counter,
    timers: Counter,
    timer_dead_letters: Counter,
    restarts: Counter,
    invocations: Counter,
    seconds: Histogram,
    outcomes: Outcomes,
    waiting: Waiting,
}

/// Events of one task that wait to be tried again; none once it stands.
struct Waiting {
    gauge: Gauge,
    events: i64,
}

impl Waiting {
    fn set(&mut self, events: u64) {
        let events = i64::try_from(events).unwrap_or(i64::MAX);
        self.gauge.inc_by(events - self.events);
        self.events = events;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.gauge.dec_by(self.events);
    }
}

/// What became of the events that one version took up.
struct Outcomes {
    taken: Counter,
    effective: Counter,
    filtered: Counter,
    skipped: Counter,
    dead_lettered: Counter,
    late: Counter,
}

/// What may become of events, and that they are taken up.
const OUTCOMES: [&str; 6] = [
    "in",
    "effective",
    "filtered",
    "skipped",
    "dead-lettered",
    "late",
];

fn with_outcome(of_version: &Labels, outcome: &str) -> Labels {
    let outcome = ("outcome".to_owned(), outcome.to_owned());
    of_version.iter().cloned().chain([outcome]).collect()
}

fn labels_of(label: &str) -> Labels {
    vec![("function".to_owned(), label.to_owned())]
}

/// The versions of those that are counted together aren't told apart.
fn labels_of_version(label: &str, version: u32) -> Labels {
    let version = match label {
        named::OTHERS => "_".to_owned(),
        _ => version.to_string(),
    };
    let mut labels = labels_of(label);
    labels.push(("version".to_owned(), version));
    labels
}

impl Outcomes {
    fn of(family: &Counters, of_version: &Labels) -> Self {
        let counter = |outcome| {
            let labels = with_outcome(of_version, outcome);
            family.get_or_create(&labels).clone()
        };
        let [taken, effective, filtered, skipped, dead_lettered, late] = OUTCOMES.map(counter);
        Self {
            taken,
            effective,
            filtered,
            skipped,
            dead_lettered,
            late,
        }
    }

    fn committed(&self, before: &Counts, after: &Counts) {
        self.taken.inc_by(after.events_in - before.events_in);
        self.effective.inc_by(after.effective - before.effective);
        self.filtered.inc_by(after.filtered - before.filtered);
        self.skipped.inc_by(after.skipped - before.skipped);
        self.dead_lettered
            .inc_by(after.dead_lettered - before.dead_lettered);
        self.late.inc_by(after.late - before.late);
    }
}

impl FunctionMetrics {
    /// Adds them to the host's metrics.
    pub(crate) fn new(metrics: &Metrics, named: Arc<Named>) -> Self {
        let counters = |name: &str, help: &str| {
            metrics.add(&format!("function_{name}"), help, Counters::default())
        };
        let histogram = || Histogram::new(exponential_buckets(0.000_01, 4.0, 10));
        Self {
            named,
            events_in: counters("events_in", "Events read and committed."),
            events_out: counters("events_out", "Events emitted."),
            filtered: counters("filtered", "Events without effect."),
            skipped: counters("skipped", "Events passed over."),
            dead_letters: counters("dead_letters", "Events that became dead letters."),
            cut_off: counters(
                "cut_off",
                "Offsets taken away before the function read them.",
            ),
            future: counters(
                "future_events",
                "Events from so far in the future that they don't move time.",
            ),
            timers: counters("timers", "Timers that had their turn."),
            timer_dead_letters: counters("timer_dead_letters", "Timers that became dead letters."),
            errors: counters("errors", "Failed tries, by kind."),
            restarts: counters(
                "restarts",
                "Instances thrown away because a call failed in them.",
            ),
            invocations: counters("invocations", "Calls of the function."),
            seconds: metrics.add(
                "function_invocation_seconds",
                "Duration of a call.",
                Family::new_with_constructor(histogram as fn() -> Histogram),
            ),
            outcomes: counters(
                "events",
                "Events taken up (in), and what became of them, by version; the rest waits.",
            ),
            waiting: metrics.add(
                "function_events_retrying",
                "Events that wait to be tried again, or behind one of their key that does.",
                Family::default(),
            ),
        }
    }

    /// The counters of one function.
    pub(crate) fn of(&self, function: &FunctionName, version: u32) -> Meter {
        let label = self.named.label(function);
        for old in self.named.version(function, version) {
            self.forget_version(function, old);
        }
        let labels = labels_of(&label);
        let of_version = labels_of_version(&label, version);
        let counter = |family: &Counters| family.get_or_create(&labels).clone();
        Meter {
            function: label,
            errors: self.errors.clone(),
            events_in: counter(&self.events_in),
            events_out: counter(&self.events_out),
            filtered: counter(&self.filtered),
            skipped: counter(&self.skipped),
            dead_letters: counter(&self.dead_letters),
            cut_off: counter(&self.cut_off),
            future: counter(&self.future),
            timers: counter(&self.timers),
            timer_dead_letters: counter(&self.timer_dead_letters),
            restarts: counter(&self.restarts),
            invocations: counter(&self.invocations),
            seconds: self.seconds.get_or_create(&labels).clone(),
            outcomes: Outcomes::of(&self.outcomes, &of_version),
            waiting: Waiting {
                gauge: self.waiting.get_or_create(&of_version).clone(),
                events: 0,
            },
        }
    }

    /// A function is gone, and with it what was counted of it.
    pub(crate) fn forget(&self, function: &FunctionName) {
        let Some(versions) = self.named.forget(function) else {
            return;
        };
        for version in versions {
            self.forget_version(function, version);
        }
        let labels = labels_of(function.as_str());
        for family in [
            &self.events_in,
            &self.events_out,
            &self.filtered,
            &self.skipped,
            &self.dead_letters,
            &self.cut_off,
            &self.future,
            &self.timers,
            &self.timer_dead_letters,
            &self.restarts,
            &self.invocations,
        ] {
            family.remove(&labels);
        }
        self.seconds.remove(&labels);
        for reason in Reason::ALL {
            self.errors.remove(&with_kind(function.as_str(), reason));
        }
    }

    fn forget_version(&self, function: &FunctionName, version: u32) {
        let of_version = labels_of_version(function.as_str(), version);
        self.waiting.remove(&of_version);
        for outcome in OUTCOMES {
            self.outcomes.remove(&with_outcome(&of_version, outcome));
        }
    }
}

fn with_kind(label: &str, reason: Reason) -> Labels {
    let mut labels = labels_of(label);
    labels.push(("kind".to_owned(), reason.as_str().to_owned()));
    labels
}

impl Meter {
    /// Counts what a transaction did: `after` less `before`.
    pub(crate) fn committed(&self, before: &Counts, after: &Counts) {
        self.outcomes.committed(before, after);
        self.events_in.inc_by(after.events_in - before.events_in);
        self.events_out.inc_by(after.emitted - before.emitted);
        self.filtered.inc_by(after.filtered - before.filtered);
        self.skipped.inc_by(after.skipped - before.skipped);
        self.dead_letters
            .inc_by(after.dead_lettered - before.dead_lettered);
        self.timers.inc_by(after.timers - before.timers);
        self.timer_dead_letters
            .inc_by(after.timers_dead_lettered - before.timers_dead_lettered);
    }

    /// Says how many events wait.
    pub(crate) fn waiting(&mut self, events: u64) {
        self.waiting.set(events);
    }

    /// Counts what was taken away before it was read.
    pub(crate) fn cut_off(&self, missed: u64) {
        self.cut_off.inc_by(missed);
    }

    /// Counts events from too far in the future.
    pub(crate) fn future(&self, events: u64) {
        if events > 0 {
            self.future.inc_by(events);
        }
    }

    /// Counts a call.
    pub(crate) fn called(&self, took: Duration) {
        self.invocations.inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Counts an instance that was thrown away.
    pub(crate) fn restarted(&self) {
        self.restarts.inc();
    }

    /// Counts a failed try.
    pub(crate) fn failed(&self, reason: Reason) {
        let labels = with_kind(&self.function, reason);
        self.errors.get_or_create(&labels).inc();
    }
}
