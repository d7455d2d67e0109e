//! `tidemill dead-letters`: events that functions couldn't handle, and what to do with them.

use crate::args::{Shape, Show};
use crate::client::Client;
use crate::failure::{Exit, Failure, Result};
use crate::print::{self, Table, cell, count};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

/// List dead letters of a function, look at them, put them back or discard them.
#[derive(Subcommand, Debug)]
#[command(after_help = "Example:\n  tidemill dead-letters list carrier-delays")]
pub(crate) enum Letters {
    List(List),
    Show(Look),
    Redrive(Redrive),
    Discard(Discard),
}

/// What is wanted of dead letters.
#[derive(Args, Clone, Debug)]
pub(crate) struct Wanted {
    /// Only of this reason: guest, trap, deadline, memory, output-limit or decode.
    #[arg(long, value_name = "WORD")]
    reason: Option<String>,
    /// Only of events of this topic.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only those that became dead letters at this time or later.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only those that became dead letters before this time.
    #[arg(long, value_name = "TIME")]
    before: Option<String>,
}

impl Wanted {
    fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("reason", &self.reason),
            ("topic", &self.topic),
            ("since", &self.since),
            ("before", &self.before),
        ];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }
}

/// List dead letters with which nothing was done yet.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  tidemill dead-letters list carrier-delays --reason trap --since 2026-11-01T00:00:00Z -o json"
)]
pub(crate) struct List {
    /// Name of the function.
    function: String,
    #[command(flatten)]
    wanted: Wanted,
    /// Those that were put back or discarded, too.
    #[arg(long)]
    all: bool,
    /// Most letters to list.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    show: Show,
}

/// Show a dead letter: the event as it was, and what happened to it.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  tidemill dead-letters show carrier-delays 0:12")]
pub(crate) struct Look {
    /// Name of the function.
    function: String,
    /// The letter, as partition:offset.
    letter: String,
}

/// Which letters something is done with.
#[derive(Args, Debug)]
pub(crate) struct Which {
    /// Name of the function.
    function: String,
    /// The letters, as partition:offset.
    #[arg(required_unless_present = "all", conflicts_with_all = ["all", "reason", "topic", "since", "before"])]
    letters: Vec<String>,
    /// All there are now, or those that are wanted of them.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    show: Show,
}

/// Put dead letters back: the function, and no other, handles their events again, each once.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  tidemill dead-letters redrive carrier-delays 0:12 0:13\n  tidemill dead-letters redrive carrier-delays --all --reason trap"
)]
pub(crate) struct Redrive {
    #[command(flatten)]
    which: Which,
}

/// Discard dead letters: they stay in their topic, but aren't open any more.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  tidemill dead-letters discard carrier-delays 0:12\n  tidemill dead-letters discard carrier-delays --all --before 2026-11-01T00:00:00Z"
)]
pub(crate) struct Discard {
    #[command(flatten)]
    which: Which,
}

/// Most letters of one request.
const PAGE: usize = 1000;

pub(crate) async fn perform(host: &str, command: Letters) -> Result<()> {
    let client = Client::new(host)?;
    match command {
        Letters::List(args) => list(&client, &args).await,
        Letters::Show(args) => {
            let path = [
                "v1",
                "functions",
                &args.function,
                "dead-letters",
                &args.letter,
            ];
            let letter = client.get(&path, &[]).await?;
            print::answer(Shape::Json, &letter, None, |_| Table::new(&[]))
        }
        Letters::Redrive(args) => deal(&client, &args.which, "redrive", "redriven").await,
        Letters::Discard(args) => deal(&client, &args.which, "discard", "discarded").await,
    }
}

async fn list(client: &Client, args: &List) -> Result<()> {
    let path = ["v1", "functions", &args.function, "dead-letters"];
    let mut all: Vec<Value> = Vec::new();
    let (mut cursor, mut ends): (Option<String>, Option<String>) = (None, None);
    loop {
        let limit = (args.limit - all.len()).min(PAGE).to_string();
        let mut query: Vec<(&str, &str)> = args.wanted.given().collect();
        query.push(("limit", &limit));
        query.extend(args.all.then_some(("all", "true")));
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        query.extend(ends.as_deref().map(|ends| ("ends", ends)));
        let mut page = client.get(&path, &query).await?;
        if let Some(letters) = page["dead_letters"].as_array_mut() {
            all.append(letters);
        }
        (cursor, ends) = (text(&page["next"]), text(&page["ends"]));
        if cursor.is_none() || all.len() >= args.limit {
            break;
        }
    }
    let answer = json!({"dead_letters": all, "next": cursor});
    print::answer(args.show.output, &answer, Some("dead_letters"), table)?;
    if cursor.is_some() {
        print::note("there are more: raise --limit");
    }
    Ok(())
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn table(answer: &Value) -> Table {
    let mut table = Table::new(&[
        "letter", "state", "since", "reason", "tries", "version", "event", "key", "error",
    ]);
    for letter in answer["dead_letters"].as_array().into_iter().flatten() {
        let field = |name: &str| cell(&letter[name]);
        let event = format!(
            "{} {}:{}",
            field("topic"),
            field("partition"),
            field("offset")
        );
        let key = letter.get("key").or_else(|| letter.get("key_base64"));
        table.row(vec![
            field("letter"),
            field("state"),
            field("since"),
            field("reason"),
            field("attempts"),
            field("version"),
            event,
            key.map(cell).unwrap_or_default(),
            field("error"),
        ]);
    }
    table
}

/// Goes on until everything is dealt with; the letters there are at the first request count.
async fn deal(client: &Client, which: &Which, verb: &str, what: &str) -> Result<()> {
    let path = ["v1", "functions", &which.function, "dead-letters", verb];
    let (mut dealt, mut already, mut refused) = (0, Vec::new(), Vec::new());
    let mut request = match which.all {
        true => json!({"all": true}),
        false => json!({"letters": which.letters}),
    };
    for (name, value) in which.wanted.given() {
        request[name] = value.into();
    }
    loop {
        let post = client.request(Method::POST, &path, &[]).json(&request);
        let answer = match client.json(post).await {
            Ok(answer) => answer,
            Err(failure) if dealt > 0 => {
                let hint = format!(
                    "{} were {what} before; type it again to go on",
                    count(dealt)
                );
                return Err(failure.hint(&hint));
            }
            Err(failure) => return Err(failure),
        };
        dealt += answer[what].as_u64().unwrap_or(0);
        already.extend(answer["already"].as_array().cloned().unwrap_or_default());
        refused.extend(answer["refused"].as_array().cloned().unwrap_or_default());
        if answer["next"].is_null() {
            break;
        }
        print::note(&format!("{} {what} so far", count(dealt)));
        request["cursor"] = answer["next"].clone();
        request["ends"] = answer["ends"].clone();
    }
    let mut summary = json!({"already": already, "refused": refused});
    summary[what] = dealt.into();
    if which.show.output == Shape::Table {
        print::line(&format!("{} {what}", count(dealt)))?;
        if !already.is_empty() {
            print::line(&format!("{} had been dealt with before", already.len()))?;
        }
        for refusal in &refused {
            let (letter, why) = (cell(&refusal["letter"]), cell(&refusal["why"]));
            print::line(&format!("{letter} stays: {why}"))?;
        }
    } else {
        print::answer(which.show.output, &summary, None, |_| Table::new(&[]))?;
    }
    if refused.is_empty() {
        return Ok(());
    }
    let detail = format!("{} dead letters can't be {what}", refused.len());
    Err(Failure {
        exit: Exit::Conflict,
        ..Failure::failed("refused", detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub;

    #[tokio::test]
    async fn all_are_dealt_with_page_by_page_up_to_where_the_first_looked() {
        let json = |body: &str| stub::answer("200 OK", "content-type: application/json\r\n", body);
        let answers = vec![
            json(
                r#"{"redriven": 1000, "already": [], "refused": [], "next": "0:7", "ends": "0:9,1:4"}"#,
            ),
            json(
                r#"{"redriven": 2, "already": [], "refused": [], "next": null, "ends": "0:9,1:4"}"#,
            ),
        ];
        let (address, requests) = stub::host(answers).await;
        let which = Which {
            function: "f".into(),
            letters: Vec::new(),
            all: true,
            wanted: Wanted {
                reason: Some("trap".into()),
                topic: None,
                since: None,
                before: None,
            },
            show: Show {
                output: Shape::Ndjson,
            },
        };
        let client = Client::new(&address).expect("client");
        deal(&client, &which, "redrive", "redriven")
            .await
            .expect("redrives");
        let requests = requests.await.expect("requests");
        assert!(requests[0].contains("/v1/functions/f/dead-letters/redrive"));
        assert!(
            requests[0].contains(r#"{"all":true,"reason":"trap"}"#),
            "{}",
            requests[0]
        );
        let second = r#"{"all":true,"cursor":"0:7","ends":"0:9,1:4","reason":"trap"}"#;
        assert!(requests[1].contains(second), "{}", requests[1]);
    }

    #[test]
    fn letters_stand_in_rows() {
        let answer = json!({"dead_letters": [{"letter": "0:3", "state": "open", "since": "T",
            "reason": "trap", "attempts": 5, "version": 2, "topic": "in", "partition": 1, "offset": 9,
            "key": "UA", "error": "unreachable"}]});
        let mut out = Vec::new();
        table(&answer).write(&mut out).expect("writes");
        let text = String::from_utf8(out).expect("text");
        let row: Vec<&str> = text
            .lines()
            .nth(1)
            .expect("row")
            .split_whitespace()
            .collect();
        assert_eq!(
            row,
            [
                "0:3",
                "open",
                "T",
                "trap",
                "5",
                "2",
                "in",
                "1:9",
                "UA",
                "unreachable"
            ]
        );
    }
}
