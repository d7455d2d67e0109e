use super::*;
use proptest::prelude::*;

fn place(key: Option<&'static str>, attempts: u32, due: i64) -> Place {
    Place {
        key: key.map(Bytes::from),
        attempts,
        due,
        floor: Floor::new(due, Timestamp::from_micros(0)),
        bytes: 10,
    }
}

fn set(number: u64, place: Place) -> ParkedChange {
    ParkedChange {
        number,
        place: Some(place),
    }
}

fn gone(number: u64) -> ParkedChange {
    ParkedChange {
        number,
        place: None,
    }
}

const ALL: (usize, usize) = (100, 1000);

#[test]
fn only_the_first_of_a_key_is_due_and_the_others_follow_it() {
    let mut parked = Parked::default();
    assert_eq!((parked.next(), parked.first_due()), (0, None));
    for change in [
        set(0, place(Some("a"), 1, 50)),
        set(1, place(Some("b"), 1, 40)),
        set(2, place(Some("a"), 0, i64::MIN)),
        set(3, place(None, 0, 0)),
        set(4, place(None, 0, 0)),
    ] {
        parked.apply(change);
    }
    assert_eq!((parked.next(), parked.len()), (5, 5));
    assert!(parked.holds(Some(b"a")) && !parked.holds(Some(b"c")) && !parked.holds(None));
    assert_eq!(parked.due(0, false, ALL), [3, 4]);
    assert_eq!(parked.due(50, false, ALL), [3, 4, 1, 0, 2]);
    assert_eq!(parked.due(50, true, ALL), [3, 4, 1, 0]);
    assert_eq!(parked.due(50, false, (3, 1000)), [3, 4, 1]);
    assert_eq!(parked.due(50, false, (100, 25)), [3, 4]);
    assert_eq!(parked.due(50, false, (100, 5)), [3], "one at least");
    // A failure puts the first off, and those behind it.
    parked.apply(set(0, place(Some("a"), 2, 90)));
    assert_eq!(parked.due(60, false, ALL), [3, 4, 1]);
    parked.apply(gone(0));
    assert_eq!(parked.due(60, false, ALL), [2, 3, 4, 1]);
    parked.apply(gone(2));
    assert!(!parked.holds(Some(b"a")));
    for number in [1, 3, 4] {
        parked.apply(gone(number));
    }
    assert_eq!(
        (parked.len(), parked.bytes, parked.first_due()),
        (0, 0, None)
    );
}

#[test]
fn how_far_back_they_look_is_told_before_it_is_so() {
    let mut parked = Parked::default();
    parked.apply(set(3, place(Some("a"), 0, 30)));
    parked.apply(set(5, place(Some("a"), 0, 50)));
    let after = |changes: &[ParkedChange]| {
        let floor = parked.floor_after(changes);
        floor.map(|floor| floor.watermark)
    };
    assert_eq!(after(&[]), Some(30));
    assert_eq!(after(&[gone(3)]), Some(50));
    assert_eq!(after(&[gone(3), gone(5)]), None);
    assert_eq!(
        after(&[gone(3), gone(5), set(6, place(None, 0, 7))]),
        Some(7)
    );
    assert_eq!(after(&[set(3, place(Some("a"), 1, 31)), gone(5)]), Some(31));
}

#[test]
fn they_are_rebuilt_from_what_is_stored_and_another_version_tries_at_once() {
    let mut changes = tidemill_state::Changes::new(tidemill_state::Scope {
        function: tidemill_types::FunctionId(1),
        partition: 0,
    });
    let event = ParkedEvent {
        topic: None,
        attempts: 2,
        version: 4,
        redriven: 0,
        due: 70,
        first: Timestamp::from_micros(0),
        floor: Floor::new(1, Timestamp::from_micros(0)),
        time: Timestamp::from_micros(0),
        offset: 9,
        key: Some(b"k"),
        value: Some(b"v"),
        headers: tidemill_types::Headers(b""),
        cause: None,
    };
    event.write(8, &mut changes);
    let section = tidemill_state::ChangesReader::new(changes.as_bytes()).expect("changes");
    let stored: Vec<_> = section
        .filter_map(|change| match change {
            tidemill_state::Change::Set { key, value, .. } => {
                Some((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)))
            }
            _ => None,
        })
        .collect();
    let same = Parked::load(&stored, 4).expect("its own");
    assert_eq!((same.first_due(), same.attempts(8)), (Some(70), 2));
    let other = Parked::load(&stored, 5).expect("its own");
    assert_eq!((other.first_due(), other.attempts(8)), (Some(i64::MIN), 0));
    assert!(Parked::load(&[("x".into(), "y".into())], 4).is_err());
}

proptest! {
    #[test]
    fn its_parts_never_contradict_each_other(
        steps in prop::collection::vec((0..12_u64, 0..4_usize, 0..100_i64), 0..80)
    ) {
        let mut parked = Parked::default();
        for (number, what, due) in steps {
            let change = match what {
                0 => gone(number),
                // A number keeps its key.
                _ => {
                    let key = [None, Some("a"), Some("b")][usize::try_from(number % 3).expect("small")];
                    set(number, place(key, 0, due))
                }
            };
            parked.apply(change);
            let mut firsts = BTreeMap::new();
            for (number, place) in parked.places.iter().rev() {
                let queue = place.key.clone().unwrap_or_else(|| number.to_string().into());
                firsts.insert(queue, (place.due, *number));
            }
            let expected: BTreeSet<_> = firsts.into_values().collect();
            prop_assert_eq!(&parked.due, &expected);
            let bytes: u64 = parked.places.values().map(|place| place.bytes).sum();
            prop_assert_eq!(parked.bytes, bytes);
            let mut all = parked.due(i64::MAX, false, (100, 10_000));
            all.sort_unstable();
            prop_assert_eq!(all, parked.places.keys().copied().collect::<Vec<_>>());
        }
    }
}
