//! A function that keeps what its events ask it to, in slots of every kind and in timers, and says what it
//! sees. Events and timers carry a list of requests, which are done in order.

use serde::{Deserialize, Serialize};
use tidemill::prelude::*;

/// One request.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Set a slot: `value`, `brief` (60 ms in event time) or `fleeting` (60 ms in processing time).
    Set(String, i64),
    /// Clear it.
    Clear(String),
    /// Say what is in it.
    Get(String),
    /// Count, and say how many.
    Count(i64),
    /// Begin to count anew.
    CountAnew,
    /// Append to the list, and say what is in it.
    Push(i64),
    /// Take from the list's front, and say what it was.
    Pop,
    /// Set an entry of a map: `map` or `briefs` (60 ms in event time).
    Put(String, String, i64),
    /// Remove it.
    Remove(String, String),
    /// Say what it is.
    Look(String, String),
    /// Say all entries whose keys begin so.
    Scan(String, String),
    /// Say all entries from one key on and before another.
    Range(String, String, String),
    /// Say all entries, removing each and putting it behind all others once.
    Churn(String),
    /// Set a timer: tag, ms since 1970 in event time, what to do then.
    Timer(String, i64, Vec<Ask>),
    /// Set a timer so many ms of processing time from now.
    TimerIn(String, u64, Vec<Ask>),
    /// Cancel it.
    Cancel(String),
    /// Say the watermark in ms.
    Watermark,
    /// Give up: `skip`, `dead`, `retry`, `trap`, `fatal`.
    Then(String),
    /// Put a value of so many bytes into a map.
    Large(usize),
}

/// What it saw.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub struct Said {
    /// The request, or the tag of the timer.
    pub of: String,
    /// What there was.
    pub is: Value,
}

/// Everything it has.
struct Kept<'a> {
    value: State<'a, i64>,
    brief: State<'a, i64>,
    fleeting: State<'a, i64>,
    count: Counter<'a>,
    list: StateList<'a, i64>,
    map: StateMap<'a, String, i64>,
    briefs: StateMap<'a, String, i64>,
    blobs: StateMap<'a, u64, String>,
    timers: Timers<'a>,
    ctx: Context<'a>,
    out: Output<'a, Said>,
}

/// Keeps what it is asked to.
#[expect(clippy::too_many_arguments, reason = "it has a slot of every kind")]
#[tidemill::function(
    input = "in",
    start = "earliest",
    output = "out",
    ttl(brief = "60ms", briefs = "60ms", fleeting = "60ms processing"),
    on_timer = due
)]
pub fn keeper(
    asks: Event<Vec<Ask>>,
    value: State<i64>,
    brief: State<i64>,
    fleeting: State<i64>,
    count: Counter,
    list: StateList<i64>,
    map: StateMap<String, i64>,
    briefs: StateMap<String, i64>,
    blobs: StateMap<u64, String>,
    timers: Timers,
    ctx: Context,
    out: Output<Said>,
) -> Result<()> {
    let kept = Kept {
        value,
        brief,
        fleeting,
        count,
        list,
        map,
        briefs,
        blobs,
        timers,
        ctx,
        out,
    };
    kept.perform(asks.key_str().unwrap_or_default(), &asks.value)
}

/// Does what the timer was set with.
#[expect(clippy::too_many_arguments, reason = "it has a slot of every kind")]
#[tidemill::on_timer]
fn due(
    timer: Timer<Vec<Ask>>,
    out: Output<Said>,
    value: State<i64>,
    brief: State<i64>,
    fleeting: State<i64>,
    count: Counter,
    list: StateList<i64>,
    map: StateMap<String, i64>,
    briefs: StateMap<String, i64>,
    blobs: StateMap<u64, String>,
    timers: Timers,
    ctx: Context,
) -> Result<()> {
    let kept = Kept {
        value,
        brief,
        fleeting,
        count,
        list,
        map,
        briefs,
        blobs,
        timers,
        ctx,
        out,
    };
    let key = timer.key_str().unwrap_or_default();
    kept.say(key, timer.tag, json!(timer.time.micros() / 1000))?;
    kept.perform(key, &timer.payload)
}

impl<'a> Kept<'a> {
    fn say(&self, key: &str, of: &str, is: Value) -> Result<()> {
        let of = of.to_owned();
        self.out.emit(key, Said { of, is })
    }

    fn slot(&self, name: &str) -> &State<'a, i64> {
        match name {
            "brief" => &self.brief,
            "fleeting" => &self.fleeting,
            _ => &self.value,
        }
    }

    fn map(&self, name: &str) -> &StateMap<'a, String, i64> {
        if name == "briefs" {
            &self.briefs
        } else {
            &self.map
        }
    }

    fn perform(&self, key: &str, asks: &[Ask]) -> Result<()> {
        asks.iter().try_for_each(|ask| self.one(key, ask))
    }

    fn one(&self, key: &str, ask: &Ask) -> Result<()> {
        match ask {
            Ask::Set(slot, to) => self.slot(slot).set(*to),
            Ask::Clear(slot) => self.slot(slot).clear(),
            Ask::Get(slot) => {
                self.say(key, slot, json!(self.slot(slot).get()?.map(|value| *value)))
            }
            Ask::Count(by) => self.say(key, "count", json!(self.count.add(*by)?)),
            Ask::CountAnew => self.count.clear(),
            Ask::Push(element) => {
                self.list.push(*element)?;
                self.say(key, "list", json!(*self.list.all()?))
            }
            Ask::Pop => self.say(key, "pop", json!(self.list.pop_front()?)),
            Ask::Put(map, entry, to) => self.map(map).insert(entry, *to),
            Ask::Remove(map, entry) => self.map(map).remove(entry),
            Ask::Look(map, entry) => self.say(key, map, json!(self.map(map).get(entry)?)),
            Ask::Scan(map, prefix) => self.scan(key, map, self.map(map).prefix(prefix)),
            Ask::Range(map, from, to) => {
                self.scan(key, map, self.map(map).range(from.clone()..to.clone()))
            }
            Ask::Churn(map) => self.churn(key, map),
            Ask::Timer(tag, at, asks) => {
                self.timers
                    .set_with(tag, Time::from_micros(at * 1000), asks)
            }
            Ask::TimerIn(tag, after, asks) => {
                let at = self.ctx.processing_time() + std::time::Duration::from_millis(*after);
                self.timers.set_with(tag, When::processing(at), asks)
            }
            Ask::Cancel(tag) => self.timers.cancel(tag),
            Ask::Watermark => {
                let watermark = self.ctx.watermark().map(|time| time.micros() / 1000);
                self.say(key, "watermark", json!(watermark))
            }
            Ask::Then(what) => match what.as_str() {
                "skip" => skip("asked to"),
                "dead" => dead_letter("asked to"),
                "fatal" => fatal("asked to"),
                "trap" => panic!("asked to"),
                other => Err(tidemill::Error::retry(format!("{other}: asked to"))),
            },
            Ask::Large(bytes) => self.blobs.insert(*bytes as u64, "x".repeat(*bytes)),
        }
    }

    fn scan(
        &self,
        key: &str,
        map: &str,
        entries: impl Iterator<Item = Result<(String, i64)>>,
    ) -> Result<()> {
        let entries: Result<Vec<_>> = entries.collect();
        self.say(key, map, json!(entries?))
    }

    fn churn(&self, key: &str, name: &str) -> Result<()> {
        let map = self.map(name);
        let mut seen = Vec::new();
        for entry in map.iter() {
            let (entry, value) = entry?;
            map.remove(&entry)?;
            if !entry.starts_with('~') {
                map.insert(format!("~{entry}"), value)?;
            }
            seen.push(entry);
        }
        self.say(key, name, json!(seen))
    }
}
