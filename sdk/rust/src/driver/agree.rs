//! Three runs over the same events that must come to the same end.

use super::Described;
use super::given::{Raw, Step};
use super::outside::Outside;
use super::run::{Plan, Run, Sizes, below, run};
use crate::{Key, Time};
use std::fmt::{Debug, Write};

/// Runs the events one by one; in batches of any size, with a crash; all at once. Gives the first run.
///
/// # Errors
/// Where two runs differ, with both sides.
pub(super) fn three_runs(
    function: &Described,
    config: &str,
    steps: &[Step],
    disorder: i64,
    seed: u64,
    outside: &Outside,
) -> Result<Run, String> {
    let mut random = seed ^ (steps.len() as u64).rotate_left(32) ^ 0x5eed;
    let most = 1 + below(&mut random, 7);
    let crash = below(&mut random, steps.len() / most.div_ceil(2) + 1);
    let alone = run(
        function,
        config,
        steps,
        disorder,
        seed,
        outside,
        Plan {
            sizes: Sizes::Fixed(1),
            crash: None,
        },
    )?;
    let sizes = Sizes::Random {
        state: random,
        most,
    };
    let crashed = run(
        function,
        config,
        steps,
        disorder,
        seed,
        outside,
        Plan {
            sizes,
            crash: Some(crash),
        },
    )?;
    let together = run(
        function,
        config,
        steps,
        disorder,
        seed,
        outside,
        Plan {
            sizes: Sizes::Fixed(usize::MAX),
            crash: None,
        },
    )?;
    let crash = format!("with a crash in batch {crash}");
    for (how, other) in [(crash.as_str(), &crashed), ("all at once", &together)] {
        if let Some(difference) = difference(function, &alone, how, other) {
            return Err(difference);
        }
    }
    Ok(alone)
}

/// The first difference in words.
fn difference(function: &Described, alone: &Run, how: &str, other: &Run) -> Option<String> {
    let outcome = |run: &Run, event: usize| {
        run.outcomes
            .get(event)
            .map(|(outcome, reason)| format!("{outcome:?} {reason}"))
    };
    let emitted =
        |run: &Run, number: usize| run.emitted.get(number).map(|raw| shown(function, raw));
    let letter = |run: &Run, number: usize| {
        run.dead_letters
            .get(number)
            .map(|letter| format!("{letter:?}"))
    };
    let most = alone.outcomes.len().max(other.outcomes.len());
    let (what, left, right) = first(
        most,
        |event| ("outcome of event", event),
        |run, i| outcome(run, i),
        alone,
        other,
    )
    .or_else(|| {
        let most = alone.emitted.len().max(other.emitted.len());
        first(
            most,
            |number| ("output", number),
            |run, i| emitted(run, i),
            alone,
            other,
        )
    })
    .or_else(|| {
        let most = alone.dead_letters.len().max(other.dead_letters.len());
        first(
            most,
            |number| ("dead letter", number),
            |run, i| letter(run, i),
            alone,
            other,
        )
    })
    .or_else(|| state(function, alone, other))
    .or_else(|| {
        (alone.stopped != other.stopped).then(|| {
            (
                "stop".to_owned(),
                debug(&alone.stopped),
                debug(&other.stopped),
            )
        })
    })?;
    let mut text = format!(
        "`{}` came to different results over the same events.\n",
        function.name
    );
    let width = how.len().max(10);
    let _ = write!(
        text,
        "{what}\n  {:width$}  {left}\n  {how:width$}  {right}\n",
        "one by one"
    );
    text.push_str(
        "A result may depend on the events and the state only: not on a static, on the order of a HashMap, \
         on fields that aren't stored (#[serde(skip)]), or on NaN.",
    );
    Some(text)
}

type Difference = (String, String, String);

fn first(
    most: usize,
    name: impl Fn(usize) -> (&'static str, usize),
    show: impl Fn(&Run, usize) -> Option<String>,
    alone: &Run,
    other: &Run,
) -> Option<Difference> {
    (0..most).find_map(|number| {
        let (left, right) = (show(alone, number), show(other, number));
        let (what, number) = name(number);
        (left != right).then(|| (format!("{what} {number}"), nothing(left), nothing(right)))
    })
}

fn state(function: &Described, alone: &Run, other: &Run) -> Option<Difference> {
    let (left, right) = (&alone.model, &other.model);
    let places = left.state.keys().chain(right.state.keys());
    let differs = places
        .clone()
        .find(|place| left.state.get(*place) != right.state.get(*place));
    if let Some(place) = differs {
        let show = |run: &Run| run.model.state.get(place).map(super::model::Stored::shown);
        let slot = function.slots.get(place.1).map_or("", |slot| slot.name);
        let key = String::from_utf8_lossy(&place.0);
        let entry = place.2.as_deref().map(String::from_utf8_lossy);
        let entry = entry.map_or_else(String::new, |entry| format!(", entry {entry:?}"));
        let what = format!("state {slot} of {key:?}{entry}");
        return Some((what, nothing(show(alone)), nothing(show(other))));
    }
    (alone.fired != other.fired || left.timers != right.timers).then(|| {
        let show = |run: &Run| {
            format!(
                "{} had their turn, set are {:?}",
                run.fired,
                run.model.pending()
            )
        };
        ("timers".to_owned(), show(alone), show(other))
    })
}

fn nothing(shown: Option<String>) -> String {
    shown.unwrap_or_else(|| "nothing".to_owned())
}

fn debug(value: &impl Debug) -> String {
    format!("{value:?}")
}

fn shown(function: &Described, raw: &Raw) -> String {
    let topic = function
        .outputs
        .get(raw.output)
        .map(|(_, topic)| *topic)
        .unwrap_or_default();
    let key = raw.key.as_deref().map_or(Key::NULL, Key::of);
    let value = raw
        .value
        .as_deref()
        .map_or("(tombstone)".into(), String::from_utf8_lossy);
    let headers = String::from_utf8_lossy(&raw.headers);
    format!(
        "to {topic} from event {}: {key:?} {value} at {} {headers}",
        raw.event,
        Time::from_micros(raw.time)
    )
}
