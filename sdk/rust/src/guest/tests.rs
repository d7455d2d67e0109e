//! Batches through the code of a component: rollback, two events of one key, canonical state.

use super::{Call, Instance, MapPage, Surroundings, on_batch};
use crate::abi::{PackedEvent, Reply, ReplyCommand, ReplyStop, outcome, pack};
use crate::log;
use crate::prelude::*;
use proptest::prelude::*;

struct Nowhere;

impl Surroundings for Nowhere {
    fn config(&self) -> String {
        "{\"limit\": 3}".into()
    }

    fn input_topic(&self, input: u32) -> String {
        format!("topic-{input}")
    }

    fn map_get(&self, _: u32, _: &[u8], _: &[u8]) -> Vec<u8> {
        Vec::new()
    }

    fn map_scan(&self, _: u32, _: &[u8], _: &MapPage<'_>) -> Vec<u8> {
        Vec::new()
    }

    fn secret(&self, name: &str) -> std::result::Result<Vec<u8>, String> {
        Err(format!("there is no {name}"))
    }

    fn http(
        &self,
        event: u32,
        request: &crate::HttpRequest,
    ) -> std::result::Result<HttpAnswer, crate::HttpError> {
        Ok(HttpAnswer::new(200, format!("{event} {}", request.url)))
    }
}

const CALL: Call = Call {
    input: 2,
    partition: 5,
    attempt: 0,
    watermark: i64::MIN,
    seed: 7,
};

pub(super) fn events(list: &[(&str, Value)]) -> Vec<PackedEvent> {
    (0..)
        .zip(list)
        .map(|(offset, (key, value))| PackedEvent {
            time: 1000 + i64::try_from(offset).unwrap(),
            key: Some(key.as_bytes().to_vec()),
            value: Some(value.to_string().into_bytes()),
            headers: Vec::new(),
            offset,
            ingest_time: 0,
        })
        .collect()
}

pub(super) fn answer<F: crate::Function>(
    _: impl FnOnce() -> F,
    events: &[PackedEvent],
    stored: Option<&str>,
) -> Vec<u8> {
    let packed = pack(events, F::SLOTS.len(), |_, slot| {
        stored.filter(|_| slot == 0).map(str::as_bytes)
    });
    on_batch::<F>(&Instance::new(Box::new(Nowhere)), CALL, &packed).unwrap()
}

#[derive(Deserialize)]
struct Step {
    add: i64,
    then: String,
}

/// Adds, emits, logs, and then goes through or doesn't.
#[tidemill::function(input = "steps", output = "sums")]
fn sums(
    step: Event<Step>,
    total: State<Vec<i64>>,
    marks: State<u64>,
    out: Output<i64>,
) -> Result<()> {
    let sum = total.update(|all| all.push(step.value.add))?;
    out.emit(step.key, sum.iter().sum::<i64>())?;
    tidemill::info!("added {}", step.value.add);
    match step.value.then.as_str() {
        "go" => Ok(()),
        "mark" => marks.set(step.offset),
        "forget" => total.clear(),
        "replace" => total.set(vec![100]),
        "skip" => skip("asked to"),
        "letter" => dead_letter("asked to"),
        "fatal" => fatal("asked to"),
        "replace, skip" => {
            total.set(vec![100])?;
            marks.set(9)?;
            skip("asked to")
        }
        other => Err(crate::Error::retry(format!("no {other}"))),
    }
}

pub(super) fn step(key: &'static str, add: i64, then: &str) -> (&'static str, Value) {
    (key, json!({"add": add, "then": then}))
}

#[test]
fn an_event_that_fails_leaves_nothing_and_its_neighbours_stay() {
    let list = [
        step("a", 1, "go"),
        step("a", 10, "skip"),
        step("b", 5, "letter"),
        step("a", 100, "mark"),
        step("a", 7, "replace, skip"),
    ];
    let bytes = answer(sums, &events(&list), None);
    let reply = Reply::parse(&bytes, 5).unwrap();
    assert_eq!(
        reply.outcomes,
        [
            outcome::EFFECT,
            outcome::SKIP,
            outcome::DEAD_LETTER,
            outcome::EFFECT,
            outcome::SKIP
        ]
    );
    let shown: Vec<_> = reply
        .commands
        .iter()
        .map(|(event, command)| match command {
            ReplyCommand::Emit { value, .. } => {
                format!("{event} emit {}", String::from_utf8_lossy(value.unwrap()))
            }
            ReplyCommand::Set { slot, value } => {
                format!("{event} set {slot} {}", String::from_utf8_lossy(value))
            }
            ReplyCommand::Delete { slot } => format!("{event} delete {slot}"),
            ReplyCommand::Reason(reason) => format!("{event} {reason}"),
            other => format!("{event} {other:?}"),
        })
        .collect();
    let expected = [
        "0 emit 1",
        "1 asked to",
        "2 asked to",
        "3 emit 101",
        "3 set 0 [1,100]",
        "3 set 1 3",
        "4 asked to",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_second_pass_repeats_no_log_line() {
    log::keep_lines();
    answer(
        sums,
        &events(&[step("a", 1, "go"), step("a", 2, "skip"), step("a", 3, "go")]),
        Some("[4]"),
    );
    let lines = log::take_lines();
    assert_eq!(
        lines
            .iter()
            .map(|line| (line.event, line.message.as_str()))
            .collect::<Vec<_>>(),
        [(0, "added 1"), (1, "added 2"), (2, "added 3")]
    );
}

#[test]
fn retry_and_fatal_stop_the_batch_before_the_event() {
    for (then, stop) in [
        ("nothing", ReplyStop::Retry("no nothing")),
        ("fatal", ReplyStop::Fatal("asked to")),
    ] {
        let bytes = answer(
            sums,
            &events(&[step("a", 1, "go"), step("a", 2, then), step("a", 3, "go")]),
            None,
        );
        let reply = Reply::parse(&bytes, 3).unwrap();
        assert_eq!(
            (reply.outcomes, reply.stop),
            ([outcome::EFFECT].as_slice(), Some(stop))
        );
        assert_eq!(
            reply.commands.last(),
            Some(&(
                0,
                ReplyCommand::Set {
                    slot: 0,
                    value: b"[1]"
                }
            ))
        );
    }
}

#[test]
fn what_does_not_parse_says_where() {
    let mut list = events(&[step("a", 1, "go"), step("a", 1, "go"), step("a", 1, "go")]);
    list[0].value = Some(b"{\"add\": \"x\"}".to_vec());
    list[1].value = None;
    let bytes = answer(sums, &list, None);
    let reply = Reply::parse(&bytes, 3).unwrap();
    assert_eq!(
        reply.outcomes,
        [outcome::UNDECODABLE, outcome::UNDECODABLE, outcome::EFFECT]
    );
    let reasons: Vec<_> = reply
        .commands
        .iter()
        .filter_map(|(_, c)| {
            if let ReplyCommand::Reason(why) = c {
                Some(*why)
            } else {
                None
            }
        })
        .collect();
    assert!(
        reasons[0].starts_with("invalid type: string \"x\", expected i64 at line 1 column 11"),
        "{}",
        reasons[0]
    );
    assert!(reasons[1].contains("tombstone"), "{}", reasons[1]);
}

#[test]
fn state_without_a_key_and_state_of_another_shape_are_said_clearly() {
    let mut list = events(&[step("a", 1, "go")]);
    list[0].key = None;
    let bytes = answer(sums, &list, None);
    let reply = Reply::parse(&bytes, 1).unwrap();
    assert!(
        matches!(reply.commands[..], [(0, ReplyCommand::Reason(why))] if why.contains("no key"))
    );
    let bytes = answer(sums, &events(&[step("a", 1, "go")]), Some("{\"old\": 1}"));
    let reply = Reply::parse(&bytes, 1).unwrap();
    assert!(
        matches!(reply.stop, Some(ReplyStop::Retry(why)) if why.contains("stored state doesn't read")),
        "{:?}",
        reply.stop
    );
}

/// Looks at everything it is given.
#[tidemill::function(input = "things", output = "seen")]
fn looks(thing: Event<Bytes>, ctx: Context, out: Output<Value>) -> Result<()> {
    #[derive(Deserialize)]
    struct Config {
        limit: u32,
    }
    let random = (ctx.random(), ctx.random());
    out.emit_with(thing.key, json!({
        "topic": thing.topic, "partition": thing.partition, "offset": thing.offset, "time": thing.time,
        "now": ctx.now().micros(), "limit": ctx.config::<Config>()?.limit, "len": thing.value.len(),
        "tombstone": thing.is_tombstone(), "random": [random.0, random.1], "key": thing.key_str(),
        "header": thing.headers.get_str("a"), "headers": thing.headers.iter().count(), "watermark": ctx.watermark(),
    }))
    .header("a", "2")
    .time(Time::from_micros(77))
    .send()
}

#[test]
fn a_handler_sees_its_surroundings() {
    let mut list = events(&[("k", json!("é")), ("k", json!(null))]);
    list[1] = PackedEvent {
        key: None,
        value: None,
        ..list[1].clone()
    };
    for (name, value) in [("a", b"0".as_slice()), ("b", b"\xff"), ("a", b"1")] {
        crate::abi::encode_header(&mut list[0].headers, name, value).unwrap();
    }
    let bytes = answer(looks, &list, None);
    let reply = Reply::parse(&bytes, 2).unwrap();
    let values: Vec<Value> = reply
        .commands
        .iter()
        .map(|(_, command)| match command {
            ReplyCommand::Emit {
                output: 0,
                value: Some(value),
                time: Some(77),
                headers,
                ..
            } if headers.count() == 1 => serde_json::from_slice(value).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    let expect = json!({
        "topic": "topic-2", "partition": 5, "offset": 0, "time": "1970-01-01T00:00:00.001Z", "now": 1000, "limit": 3,
        "len": 4, "tombstone": false, "key": "k", "header": "1", "headers": 3, "watermark": null, "random": values[0]["random"],
    });
    assert_eq!(values[0], expect);
    assert_eq!(
        (&values[1]["tombstone"], &values[1]["key"]),
        (&json!(true), &Value::Null)
    );
    assert_ne!(values[0]["random"], values[1]["random"]);
    assert_ne!(values[0]["random"][0], values[0]["random"][1]);
    assert_eq!(
        answer(looks, &list, None),
        bytes,
        "the same call gives the same bytes"
    );
}

/// A slot of each kind of use, read and changed in the wrong order.
#[tidemill::function(input = "steps")]
fn holds_on(step: Event<Value>, total: State<Vec<u32>>) -> Result<()> {
    let before = total.get_or_default()?;
    let first = total.update(|all| all.push(1))?;
    let second = total.update(|all| all.push(2))?;
    let inside = total.update(|_| assert!(total.get().is_err(), "in use"))?;
    assert_eq!(
        (
            before.len(),
            first.len() - before.len(),
            second.len() - before.len()
        ),
        (before.len(), 1, 2)
    );
    assert_eq!(*inside, *second);
    if step.value == json!("fail") {
        skip("asked to")
    } else {
        Ok(())
    }
}

#[test]
fn values_that_are_held_stay_as_they_were() {
    let bytes = answer(
        holds_on,
        &events(&[("a", json!(1)), ("a", json!("fail")), ("a", json!(1))]),
        Some("[0]"),
    );
    let reply = Reply::parse(&bytes, 3).unwrap();
    assert_eq!(
        reply.commands.last(),
        Some(&(
            2,
            ReplyCommand::Set {
                slot: 0,
                value: b"[0,1,2,1,2]"
            }
        ))
    );
}

fn any_step() -> impl Strategy<Value = (&'static str, Value)> {
    let then = prop::sample::select(vec![
        "go",
        "mark",
        "forget",
        "replace",
        "skip",
        "letter",
        "replace, skip",
    ]);
    (prop::sample::select(vec!["a", "b"]), -5_i64..5, then)
        .prop_map(|(key, add, then)| step(key, add, then))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Results depend neither on where batches end nor on a crash, whatever fails in between: the driver
    /// compares its three runs and panics otherwise.
    #[test]
    fn batch_borders_make_no_difference(steps in prop::collection::vec(any_step(), 0..30), seed in any::<u64>()) {
        let mut t = Driver::of(sums).with_seed(seed);
        for (key, value) in &steps {
            t.send(key, value);
        }
        let mut model = std::collections::BTreeMap::<&str, Vec<i64>>::new();
        let mut through = 0;
        for (key, value) in &steps {
            let all = model.entry(key).or_default();
            match value["then"].as_str().unwrap() {
                "go" | "mark" => all.push(value["add"].as_i64().unwrap()),
                "forget" => all.clear(),
                "replace" => *all = vec![100],
                _ => continue,
            }
            through += 1;
        }
        prop_assert_eq!(t.output::<i64>("sums").len(), through);
        for (key, all) in model {
            prop_assert_eq!(t.state::<Vec<i64>>("total", key).unwrap_or_default(), all);
        }
    }
}

/// The same as `sums`, handed whole batches.
#[tidemill::function(input = "steps", output = "sums")]
fn sums_of_batches(
    steps: Batch<Step>,
    total: State<Vec<i64>>,
    marks: State<u64>,
    out: Output<i64>,
) -> Result<()> {
    let all: Vec<i64> = steps.iter().map(|step| step.value.add).collect();
    assert_eq!(all.len(), steps.len());
    steps.each(|step| {
        let sum = total.update(|all| all.push(step.value.add))?;
        out.emit(step.key, sum.iter().sum::<i64>())?;
        match step.value.then.as_str() {
            "go" => Ok(()),
            "mark" => marks.set(step.offset),
            "forget" => total.clear(),
            "replace" => total.set(vec![100]),
            "skip" => skip("asked to"),
            "letter" => dead_letter("asked to"),
            "fatal" => fatal("asked to"),
            "replace, skip" => {
                total.set(vec![100])?;
                marks.set(9)?;
                skip("asked to")
            }
            other => Err(crate::Error::retry(format!("no {other}"))),
        }
    })
}

/// Says one thing of all events, and tries to use an output without an event.
#[tidemill::function(input = "steps", output = "sums")]
fn as_one(steps: Batch<Value>, out: Output<i64>, ctx: Context) -> Result<()> {
    assert_eq!(ctx.now().micros(), 1000);
    assert!(out.emit("k", 1).is_err(), "no event to emit for");
    match steps.iter().next().and_then(|step| step.value.as_str()) {
        Some("skip") => skip("all of them"),
        Some("retry") => Err(crate::Error::retry("not now")),
        _ => Ok(()),
    }
}

#[test]
fn a_batch_without_each_has_one_outcome_for_all() {
    let list = events(&[("a", json!("skip")), ("a", json!(2)), ("b", json!(3))]);
    let mut damaged = list.clone();
    damaged[1].value = Some(b"{".to_vec());
    for (list, expect) in [
        (&list, [outcome::SKIP; 3]),
        (
            &damaged,
            [outcome::SKIP, outcome::UNDECODABLE, outcome::SKIP],
        ),
    ] {
        let bytes = answer(as_one, list, None);
        assert_eq!(Reply::parse(&bytes, 3).unwrap().outcomes, expect);
    }
    let bytes = answer(
        as_one,
        &events(&[("a", json!("retry")), ("a", json!(2))]),
        None,
    );
    let reply = Reply::parse(&bytes, 2).unwrap();
    assert_eq!(
        (reply.outcomes.len(), reply.stop),
        (0, Some(ReplyStop::Retry("not now")))
    );
    let bytes = answer(as_one, &events(&[("a", json!(1)), ("a", json!(2))]), None);
    assert_eq!(
        Reply::parse(&bytes, 2).unwrap().outcomes,
        [outcome::FILTERED; 2]
    );
}

#[test]
fn an_event_of_a_batch_that_does_not_parse_is_a_dead_letter_in_its_place() {
    let mut list = events(&[
        step("a", 1, "go"),
        step("a", 2, "go"),
        step("a", 3, "nothing"),
    ]);
    list[1].value = Some(b"{}".to_vec());
    let bytes = answer(sums_of_batches, &list, None);
    let reply = Reply::parse(&bytes, 3).unwrap();
    assert_eq!(reply.outcomes, [outcome::EFFECT, outcome::UNDECODABLE]);
    assert_eq!(reply.stop, Some(ReplyStop::Retry("no nothing")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A function over batches and one over events come to the same bytes.
    #[test]
    fn whole_batches_answer_as_single_events_do(
        steps in prop::collection::vec(any_step(), 0..20),
        stop in prop::option::of((0_usize..20, prop::sample::select(vec!["fatal", "nothing"]))),
    ) {
        let mut list = steps;
        if let Some((at, then)) = stop {
            list.insert(at.min(list.len()), step("a", 1, then));
        }
        let list = events(&list);
        prop_assert_eq!(answer(sums_of_batches, &list, Some("[4]")), answer(sums, &list, Some("[4]")));
        let mut t = Driver::of(sums_of_batches);
        for event in &list {
            t.send_event(Given::raw(event.value.clone().unwrap()).key(event.key.clone().unwrap()));
        }
        t.filtered();
    }
}
