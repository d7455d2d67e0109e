//! What a function sees of state and time, by the cases that the host is tested by too.

use crate::prelude::*;
use proptest::prelude::*;
use std::time::Duration;

#[path = "../../../../tests/guests/keeper/src/lib.rs"]
#[expect(unreachable_pub, reason = "it is a crate of its own, too")]
mod keeper;

use keeper::{Ask, Said, keeper};

const CASES: &str = include_str!("../../../../tests/cases/state_and_time.json");

#[derive(Deserialize)]
struct Case {
    id: String,
    title: String,
    /// Key, event time in ms, requests.
    steps: Vec<(String, i64, Vec<Ask>)>,
    /// Key, what it is about, what it is.
    expect: Vec<(String, String, Value)>,
}

fn driver() -> Driver {
    Driver::of(keeper).with_disorder(Duration::ZERO)
}

fn send(t: &mut Driver, (key, time, asks): &(String, i64, Vec<Ask>)) {
    let event = Given::json(asks)
        .key(key)
        .time(Time::from_micros(time * 1000));
    t.send_event(event);
}

#[test]
fn cases_of_state_and_time() {
    let cases: Vec<Case> = serde_json::from_str(CASES).unwrap();
    for case in cases {
        for seed in 0..8 {
            let mut t = driver().with_seed(seed);
            for step in &case.steps {
                send(&mut t, step);
            }
            let said = t.output::<Said>("out");
            let said: Vec<_> = said
                .iter()
                .map(|event| {
                    let key = event.key_str().unwrap().to_owned();
                    (key, event.value.of.clone(), event.value.is.clone())
                })
                .collect();
            assert_eq!(said, case.expect, "{}: {}", case.id, case.title);
        }
    }
}

#[test]
fn timers_in_processing_time_follow_receipt_and_then_the_clock() {
    let mut t = driver();
    let at = |ms: i64| Time::from_micros(1_000_000_000_000_000 + ms * 1000);
    let ask = |t: &mut Driver, ms: i64, asks: Value| {
        t.send_event(Given::json(asks).key("A").time(at(ms)));
    };
    ask(
        &mut t,
        0,
        json!([{"set": ["fleeting", 1]}, {"timer-in": ["x", 50, [{"get": "fleeting"}]]}]),
    );
    ask(
        &mut t,
        10,
        json!([{"timer-in": ["y", 50, [{"get": "fleeting"}]]}, {"timer-in": ["z", 1000, []]}]),
    );
    ask(&mut t, 40, json!([{"count": 1}]));
    ask(&mut t, 59, json!([{"count": 1}]));
    t.advance_time(at(100));
    let said = t.output::<Said>("out");
    let said: Vec<_> = said.iter().map(|event| event.value.of.as_str()).collect();
    assert_eq!(said, ["count", "x", "fleeting", "count", "y", "fleeting"]);
    let values: Vec<_> = t
        .output::<Said>("out")
        .into_iter()
        .map(|event| event.value.is)
        .collect();
    assert_eq!((&values[2], &values[5]), (&json!(1), &json!(null)));
    let pending = t.timers();
    assert_eq!(pending.len(), 1);
    assert_eq!(
        (pending[0].tag.as_str(), pending[0].processing),
        ("z", true)
    );
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let entry = || prop::sample::select(vec!["a", "aa", "ab", "b", "~a"]).prop_map(str::to_owned);
    let map = || prop::sample::select(vec!["map", "briefs"]).prop_map(str::to_owned);
    let slot = || prop::sample::select(vec!["value", "brief", "fleeting"]).prop_map(str::to_owned);
    let tag = || prop::sample::select(vec!["t", "u"]).prop_map(str::to_owned);
    let ask = prop_oneof![
        (slot(), 0..9_i64).prop_map(|(slot, to)| Ask::Set(slot, to)),
        slot().prop_map(Ask::Clear),
        slot().prop_map(Ask::Get),
        (-3..9_i64).prop_map(Ask::Count),
        Just(Ask::CountAnew),
        (0..9_i64).prop_map(Ask::Push),
        Just(Ask::Pop),
        (map(), entry(), 0..9_i64).prop_map(|(map, entry, to)| Ask::Put(map, entry, to)),
        (map(), entry()).prop_map(|(map, entry)| Ask::Remove(map, entry)),
        (map(), entry()).prop_map(|(map, entry)| Ask::Look(map, entry)),
        (map(), prop::sample::select(vec!["", "a"])).prop_map(|(map, p)| Ask::Scan(map, p.into())),
        (map(), entry(), entry()).prop_map(|(map, from, to)| Ask::Range(map, from, to)),
        map().prop_map(Ask::Churn),
        tag().prop_map(Ask::Cancel),
        Just(Ask::Watermark),
        prop::sample::select(vec!["skip", "dead", "retry"]).prop_map(|then| Ask::Then(then.into())),
    ];
    let timer = (
        tag(),
        0..200_i64,
        any::<bool>(),
        prop::collection::vec(ask.clone(), 0..3),
    );
    let inner = timer
        .clone()
        .prop_map(|(tag, at, _, asks)| Ask::Timer(tag, at, asks));
    let timers =
        (timer, prop::option::of(inner)).prop_map(|((tag, at, event, mut asks), inner)| {
            asks.splice(0..0, inner);
            match event {
                true => Ask::Timer(tag, at, asks),
                false => Ask::TimerIn(tag, at.unsigned_abs(), asks),
            }
        });
    prop::collection::vec(prop_oneof![4 => ask, 1 => timers], 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// One by one, in any batches with a crash, or all at once: everything comes to the same.
    #[test]
    fn batch_borders_make_no_difference_to_state_and_time(
        steps in prop::collection::vec((prop::sample::select(vec!["A", "B"]), 0..200_i64, asks()), 0..20),
        times in prop::collection::vec((0..20_usize, 0..300_i64), 0..3),
        seed in any::<u64>(),
    ) {
        let mut t = driver().with_seed(seed);
        for (number, (key, time, asks)) in steps.into_iter().enumerate() {
            for (_, time) in times.iter().filter(|(at, _)| *at == number) {
                t.advance_time(Time::from_micros(time * 1000));
            }
            send(&mut t, &(key.to_owned(), time, asks));
        }
        t.advance_time(Time::from_micros(1_000_000));
        t.output::<Said>("out");
    }
}
