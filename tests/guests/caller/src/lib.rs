//! A function that calls the outside as its events say, to test what a host makes of it.

use serde::Deserialize;
use tidemill::prelude::*;

/// What an event asks for.
#[derive(Deserialize)]
pub struct Ask {
    /// Its number.
    pub n: u64,
    /// What to call, one after the other: whole addresses.
    #[serde(default)]
    pub calls: Vec<String>,
    /// What becomes of it: `any`: whatever the calls come to is emitted; `again`: it asks for another try;
    /// `differ`: it calls something else on each try, and asks for another; `leak`: it tries to tell the
    /// secret; `trap`, `stop`: the same in passing; anything else: calls must succeed.
    #[serde(default)]
    pub then: String,
}

/// Calls, and emits what the calls came to.
#[tidemill::function(
    input = "in",
    output = "out",
    secrets("token"),
    http("http://127.0.0.1/")
)]
pub fn caller(ask: Event<Ask>, seen: Counter, out: Output<Value>, ctx: Context) -> Result<()> {
    let token = ctx.secret("token")?;
    let mut came = Vec::new();
    for url in &ask.value.calls {
        let url = match ask.value.then.as_str() {
            "differ" => format!("{url}?attempt={}", ctx.attempt()),
            _ => url.clone(),
        };
        let sent = ctx
            .http()
            .post(url)
            .bearer(&token)
            .json(&json!({"n": ask.value.n}))
            .send();
        came.push(match (ask.value.then.as_str(), sent) {
            ("any", Ok(answer)) => {
                json!({"status": answer.status, "body": String::from_utf8_lossy(&answer.body)})
            }
            ("any", Err(error)) => {
                json!({"kind": format!("{:?}", error.kind), "message": error.message})
            }
            (_, sent) => json!(String::from_utf8_lossy(&sent?.ok()?.body)),
        });
    }
    let word = token.as_str()?;
    match ask.value.then.as_str() {
        "again" | "differ" => return Err(tidemill::Error::retry("asked to")),
        "leak" => {
            tidemill::info!("the token is {word}");
            return dead_letter(format!("the token is {word}"));
        }
        "trap" => panic!("the token is {word}"),
        "stop" => return fatal(format!("the token is {word}")),
        _ => {}
    }
    seen.add(1)?;
    out.emit(ask.key, json!({"n": ask.value.n, "came": came}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill::{HttpError, HttpErrorKind};

    fn driver() -> Driver {
        Driver::of(caller).with_secret("token", "hush")
    }

    #[test]
    fn calls_are_answered_by_the_test() {
        let mut t = driver().with_http(|asked, _| {
            assert_eq!(asked.header("authorization"), Some("Bearer hush"));
            Ok(HttpAnswer::new(200, format!("to {}", asked.url)))
        });
        t.send("a", json!({"n": 1, "calls": ["http://x/1", "http://x/2"]}));
        let out = t.output::<Value>("out");
        assert_eq!(
            out[0].value,
            json!({"n": 1, "came": ["to http://x/1", "to http://x/2"]})
        );
        assert_eq!(t.calls().len(), 2);
    }

    #[test]
    fn what_may_pass_is_asked_again_and_what_was_answered_is_not() {
        let mut t = driver().with_http(|asked, made| match (asked.url.as_str(), made) {
            ("http://x/busy", 0) => Ok(HttpAnswer::new(503, "busy")),
            ("http://x/busy", 1) => Err(HttpError::new(HttpErrorKind::Timeout, "slow")),
            _ => Ok(HttpAnswer::new(200, "fine")),
        });
        t.send(
            "a",
            json!({"n": 1, "calls": ["http://x/first", "http://x/busy"]}),
        );
        let urls: Vec<_> = t.calls().into_iter().map(|asked| asked.url).collect();
        assert_eq!(
            urls,
            [
                "http://x/first",
                "http://x/busy",
                "http://x/busy",
                "http://x/busy"
            ]
        );
        assert_eq!(t.output::<Value>("out").len(), 1);
    }

    #[test]
    fn a_test_without_answers_is_told() {
        let mut t = driver();
        t.send("a", json!({"n": 1, "calls": ["http://x/1"]}));
        assert!(t.dead_letters()[0].error.contains("with_http"));
    }

    #[test]
    #[should_panic(expected = "on an earlier try")]
    fn another_call_on_another_try_is_told() {
        let mut t = driver().with_http(|_, _| Ok(HttpAnswer::new(200, "fine")));
        t.send(
            "a",
            json!({"n": 1, "calls": ["http://x/1"], "then": "differ"}),
        );
        t.dead_letters();
    }
}
