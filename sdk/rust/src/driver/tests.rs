//! The driver itself: what it reports, and that it notices results that depend on the run.

use crate::prelude::*;
use std::cell::Cell;

/// Counts per key; an odd value is late, a negative one is hopeless.
#[tidemill::function(input = "numbers", outputs(counts = "counts", late = "late"))]
fn counts(
    number: Event<i64>,
    seen: State<u64>,
    counts: Output<u64>,
    late: Output<i64>,
) -> Result<()> {
    match number.value {
        0 => Ok(()),
        13 => fatal("not that one"),
        n if n < -100 => Err("x".parse::<u8>().unwrap_err().into()),
        n if n < 0 => {
            crate::warn!("{n} is negative");
            dead_letter("negative")
        }
        n => {
            let count = seen.update(|seen| *seen += 1)?;
            if n % 2 == 1 {
                late.emit(number.key, n)?;
                late.tombstone("odd")?;
            }
            counts.emit(number.key, count)
        }
    }
}

#[test]
fn everything_is_reported() {
    let mut t = Driver::of(counts);
    for number in [2, 0, -1, 3, -1000] {
        t.send("a", number);
    }
    t.send_event(Given::json(5));
    t.send_event(Given::raw("five").key("a"));
    t.send_event(Given::json(4).key("b").time("2013-01-01T00:00:00Z"));
    let of_counts = t.output::<u64>("counts");
    let shown: Vec<_> = of_counts
        .iter()
        .map(|event| (event.key_str().unwrap(), event.value))
        .collect();
    assert_eq!(shown, [("a", 1), ("a", 2), ("b", 1)]);
    assert_eq!(of_counts[2].time.to_string(), "2013-01-01T00:00:00Z");
    let late = t.output::<Option<i64>>("late");
    assert_eq!(
        late.iter()
            .map(|event| (event.key_str().unwrap(), event.value))
            .collect::<Vec<_>>(),
        [("a", Some(3)), ("odd", None)]
    );
    assert_eq!((t.filtered(), t.skipped()), (1, 1));
    let letters = t.dead_letters();
    let shown: Vec<_> = letters
        .iter()
        .map(|letter| (letter.event, letter.reason, letter.attempts))
        .collect();
    assert_eq!(shown, [(2, "guest", 1), (4, "guest", 5), (6, "decode", 1)]);
    assert_eq!(letters[1].error, "invalid digit found in string");
    assert_eq!(
        (
            t.state("seen", "a"),
            t.state("seen", "b"),
            t.state::<u64>("seen", "c")
        ),
        (Some(2_u64), Some(1_u64), None)
    );
    assert_eq!(t.stopped(), None);
    let logs = t.logs();
    assert_eq!(
        logs,
        [crate::LogLine {
            level: crate::Level::Warn,
            event: 2,
            message: "-1 is negative".into()
        }]
    );
}

#[test]
fn a_fatal_event_stops_everything_behind_it() {
    let mut t = Driver::of(counts);
    for number in [2, 13, 4] {
        t.send("a", number);
    }
    assert_eq!(t.stopped().as_deref(), Some("not that one"));
    assert_eq!(t.output::<u64>("counts").len(), 1);
}

#[test]
fn events_may_be_sent_after_looking() {
    let mut t = Driver::of(counts);
    t.send("a", 2);
    assert_eq!(t.output::<u64>("counts").len(), 1);
    t.send("a", 2);
    assert_eq!(t.output::<u64>("counts").len(), 2);
}

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Counts in a static instead of a slot.
#[tidemill::function(input = "numbers", output = "counts")]
fn forgetful(number: Event<i64>, out: Output<u64>) -> Result<()> {
    CALLS.with(|calls| calls.set(calls.get() + 1));
    out.emit(number.key, CALLS.with(Cell::get))
}

#[test]
#[should_panic(
    expected = "`forgetful` came to different results over the same events.\noutput 0\n  one by one"
)]
fn a_result_that_depends_on_the_run_is_noticed() {
    let mut t = Driver::of(forgetful);
    t.send("a", 1);
    t.output::<u64>("counts");
}

/// Sums fractions in a value whose stored form loses a field.
#[derive(Default, Serialize, Deserialize)]
struct Lossy {
    sum: u64,
    #[serde(skip)]
    hidden: u64,
}

#[tidemill::function(input = "numbers", output = "sums")]
fn lossy(number: Event<u64>, sum: State<Lossy>, out: Output<u64>) -> Result<()> {
    let sum = sum.update(|sum| {
        sum.hidden += number.value;
        sum.sum = sum.hidden;
    })?;
    out.emit(number.key, sum.sum)
}

#[test]
#[should_panic(expected = "`lossy` came to different results")]
fn state_that_does_not_read_back_the_same_is_noticed() {
    let mut t = Driver::of(lossy);
    for number in 1..20_u64 {
        t.send("a", number);
    }
    t.output::<u64>("sums");
}

/// Sums fractions, which must read back to the last bit.
#[tidemill::function(input = "numbers", output = "sums")]
fn fractions(number: Event<f64>, sum: State<f64>, out: Output<f64>) -> Result<()> {
    let sum = sum.update(|sum| *sum = (*sum + number.value) / 3.0)?;
    out.emit(number.key, sum)
}

#[test]
fn fractions_read_back_to_the_last_bit() {
    let mut t = Driver::of(fractions);
    for number in 0..2000 {
        t.send("a", f64::from(number) * 0.1);
    }
    assert_eq!(t.output::<f64>("sums").len(), 2000);
}

/// Keyed by what the value points to.
#[tidemill::function(input = "flights", key = "/route", output = "counts")]
fn by_route(flight: Event<Value>, seen: State<u64>, out: Output<u64>) -> Result<()> {
    let count = seen.update(|seen| *seen += 1)?;
    out.emit(flight.key, count)
}

#[test]
fn a_key_pointer_takes_the_place_of_the_key() {
    let mut t = Driver::of(by_route);
    for route in ["\"JFK-LAX\"", "7.50", "null", "\"JFK\\u002dLAX\""] {
        t.send_event(Given::raw(format!("{{\"route\":{route}}}")).key("ignored"));
    }
    let counts = t.output::<u64>("counts");
    assert_eq!(
        counts
            .iter()
            .map(|event| (event.key_str().unwrap(), event.value))
            .collect::<Vec<_>>(),
        [("JFK-LAX", 1), ("7.50", 1), ("JFK-LAX", 2)]
    );
    assert_eq!(t.skipped(), 1, "an event without a key");
}

#[test]
#[should_panic(expected = "has no output to \"count\"; its outputs are [\"counts\", \"late\"]")]
fn an_unknown_output_is_named() {
    Driver::of(counts).output::<u64>("count");
}

/// Delays per carrier,
/// kept up to date.
///
/// More words.
#[tidemill::function(
    input = "flights",
    start = "earliest",
    key = "/route",
    name = "other-name",
    outputs(b = "topic-b", a = "topic-a")
)]
fn named(
    _flight: Event<Value>,
    z: State<u64>,
    a: Output<u64>,
    y: State<u64>,
    b: Output<Bytes>,
) -> Result<()> {
    let _ = (z.get()?, y.get()?);
    a.emit("k", 1)?;
    b.emit("k", Bytes(b"2"))
}

#[test]
fn the_manifest_says_what_the_signature_says() {
    use crate::Function;
    fn manifest<F: Function>(_: impl FnOnce() -> F) -> &'static str {
        F::MANIFEST
    }
    assert_eq!(
        manifest(named),
        "{\"function\":{\"name\":\"other-name\",\"description\":\"Delays per carrier, kept up to date.\",\
         \"outputs_order\":[\"a\",\"b\"],\"slots_order\":[\"z\",\"y\"]},\
         \"input\":[{\"topic\":\"flights\",\"start\":\"earliest\",\"key\":\"/route\"}],\
         \"output\":{\"a\":{\"topic\":\"topic-a\"},\"b\":{\"topic\":\"topic-b\",\"format\":\"bytes\"}},\
         \"state\":{\"z\":{\"kind\":\"value\"},\"y\":{\"kind\":\"value\"}}}"
    );
    let counted: Value = manifest(counts).parse().unwrap();
    assert_eq!(counted["function"]["name"], "counts");
}

/// What an order still owes: orders and payments meet by their key.
#[tidemill::function(inputs("orders", "payments"), output = "owed", start = "earliest")]
fn owed(
    event: Event<i64>,
    owes: State<i64>,
    ctx: Context,
    owed: Output<(String, u64, i64)>,
) -> Result<()> {
    let sign = if event.topic == "orders" { 1 } else { -1 };
    let _ = ctx.random();
    let owes = *owes.update(|owes| *owes += sign * event.value)?;
    owed.emit(event.key, (event.topic.to_owned(), event.offset, owes))
}

#[test]
fn events_of_several_topics_come_in_the_order_in_which_they_are_sent() {
    use crate::Function;
    fn manifest<F: Function>(_: impl FnOnce() -> F) -> &'static str {
        F::MANIFEST
    }
    let mut t = Driver::of(owed);
    t.send_to("payments", "a", 3);
    t.send("a", 10);
    t.send_to("orders", "b", 5);
    t.send_event(Given::json(4).key("a").topic("payments"));
    let told: Vec<_> = t.output::<(String, u64, i64)>("owed");
    let told: Vec<_> = told
        .iter()
        .map(|e| {
            (
                e.key_str().unwrap(),
                e.value.0.as_str(),
                e.value.1,
                e.value.2,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("a", "payments", 0, -3),
            ("a", "orders", 0, 7),
            ("b", "orders", 1, 5),
            ("a", "payments", 1, 3),
        ]
    );
    assert!(manifest(owed).contains(
        "\"input\":[{\"topic\":\"orders\",\"start\":\"earliest\"},{\"topic\":\"payments\",\"start\":\"earliest\"}]"
    ));
}

#[test]
#[should_panic(expected = "`owed` doesn't read \"refunds\"; it reads [\"orders\", \"payments\"]")]
fn a_topic_that_is_not_read_is_told() {
    Driver::of(owed).send_to("refunds", "a", 1);
}
