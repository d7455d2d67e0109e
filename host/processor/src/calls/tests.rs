//! Decisions about calls, their keys and their records.

use super::*;
use bytes::Bytes;
use tidemill_env::outside::CallErrorKind;

fn answered(status: u16) -> Outcome {
    Ok(Answer {
        status,
        headers: vec![("a".into(), b"1".to_vec())],
        body: Bytes::from_static(b"yes"),
    })
}

fn failed() -> Outcome {
    Err(CallError {
        kind: CallErrorKind::Timeout,
        message: "oh".into(),
    })
}

fn recorded(outcome: Outcome) -> Recorded {
    Recorded {
        version: 3,
        failures: 1,
        digest: [7; 32],
        outcome,
    }
}

#[test]
fn records_have_golden_bytes() {
    let subject = Subject {
        kind: Kind::Event,
        topic: 7,
        number: 258,
    };
    assert_eq!(
        key_of(subject, 3),
        [0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1, 2, 0, 3]
    );
    let head = |code: u8, status: u8, headers: u8| {
        let numbers = [1, code, status, 0, 3, 0, 0, 0, 1, 0, 0, 0, headers, 0, 0, 0];
        [&numbers[..], &[7; 32]].concat()
    };
    let answer = [&head(0, 200, 8)[..], b"\x01\0\x01\0\0\0a1yes"].concat();
    let error = [&head(3, 0, 0)[..], b"oh"].concat();
    for (outcome, golden) in [(answered(200), answer), (failed(), error)] {
        let written = stored::write(&outcome, ([7; 32], 1, 3)).expect("it fits");
        assert_eq!(written, golden);
        assert_eq!(Recorded::of(&golden).expect("its own"), recorded(outcome));
        for (at, byte) in [(0, 2), (1, 6), (12, 200)] {
            let mut wrong = golden.clone();
            wrong[at] = byte;
            assert!(Recorded::of(&wrong).is_err(), "byte {at}");
        }
        assert!(Recorded::of(&golden[..47]).is_err());
    }
}

#[test]
fn what_is_on_record_counts() {
    let asked = ([7; 32], 1, 3);
    assert!(matches!(next(None, true, asked), Next::Make));
    for outcome in [answered(200), answered(503), failed()] {
        let known = next(Some(recorded(outcome.clone())), true, asked);
        assert!(
            matches!(known, Next::Known(known) if known == outcome),
            "{outcome:?}"
        );
    }
}

#[test]
fn what_may_pass_is_asked_again_once_the_event_failed_with_it() {
    for failures in [0, 2] {
        let asked = ([7; 32], failures, 3);
        for outcome in [answered(503), answered(429), failed()] {
            let again = next(Some(recorded(outcome.clone())), true, asked);
            assert!(matches!(again, Next::Make), "{outcome:?}");
            // It went on to another call, so it has dealt with this outcome.
            let dealt = next(Some(recorded(outcome.clone())), false, asked);
            assert!(matches!(dealt, Next::Known(_)), "{outcome:?}");
        }
        for status in [200, 302, 400, 404, 501] {
            let known = next(Some(recorded(answered(status))), true, asked);
            assert!(matches!(known, Next::Known(_)), "{status}");
        }
    }
}

#[test]
fn another_request_in_the_same_place_is_told() {
    let other = |version| next(Some(recorded(answered(200))), true, ([8; 32], 1, version));
    assert!(matches!(other(3), Next::Differs));
    assert!(
        matches!(other(4), Next::Make),
        "another version may ask for something else"
    );
}

#[test]
fn keys_tell_calls_apart_and_stay_the_same() {
    let owner = Owner {
        seed: b"seed".to_vec(),
        function: FunctionId(7),
    };
    let calling = |kind, number, origin| Calling {
        subject: Subject {
            kind,
            topic: 5,
            number,
        },
        origin,
        failures: 0,
    };
    let first = calling(Kind::Event, 9, (2, 0, 9));
    let key = idempotency_key(&owner, &first, 0);
    assert_eq!(
        key, "c31bfb0272333b72f0baab07b924d039",
        "golden: far sides remember keys over releases"
    );
    // Put back, it is the same event; tried again, too.
    let again = Calling {
        failures: 3,
        ..calling(Kind::Redriven, 1, (2, 0, 9))
    };
    assert_eq!(idempotency_key(&owner, &again, 0), key);
    let other = Owner {
        seed: b"other".to_vec(),
        ..owner.clone()
    };
    let mut keys = vec![
        key,
        idempotency_key(&owner, &first, 1),
        idempotency_key(&owner, &calling(Kind::Event, 9, (2, 1, 9)), 0),
        idempotency_key(&owner, &calling(Kind::Event, 9, (2, 0, 8)), 0),
        idempotency_key(&owner, &calling(Kind::Timer, 9, (2, 0, 9)), 0),
        idempotency_key(&owner, &calling(Kind::Event, 9, (3, 0, 9)), 0),
        idempotency_key(&other, &first, 0),
    ];
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 7);
}

#[test]
fn a_request_is_told_by_all_its_parts() {
    let request = |method: &str, url: &str, value: &[u8], body: &[u8]| {
        let headers = [("a".to_owned(), value.to_vec())];
        digest(&Request::new(method, url, &headers, body.to_vec()).expect("a request"))
    };
    let mut digests = vec![
        request("GET", "https://a.example/", b"1", b""),
        request("PUT", "https://a.example/", b"1", b""),
        request("GET", "https://a.example/x", b"1", b""),
        request("GET", "https://a.example/", b"", b"1"),
        request("GET", "https://a.example/", b"2", b""),
    ];
    assert_eq!(digests[0], request("GET", "https://a.example", b"1", b""));
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 5);
}
