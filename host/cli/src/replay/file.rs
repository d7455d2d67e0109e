//! What a replay emits, into a file.

use crate::client::Client;
use crate::failure::{Failure, Result};
use crate::print::{self, cell, count};
use crate::progress;
use futures::StreamExt;
use reqwest::RequestBuilder;
use serde_json::Value;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes the events of a replay's answer to a file, one a line; `-` is standard output. The file has its
/// name only once it is complete.
pub(super) async fn write(client: &Client, request: RequestBuilder, file: &Path) -> Result<()> {
    let response = client.send(request).await?;
    let mut target = Target::create(file)?;
    let bar = progress::bar(None);
    let mut lines = Lines::default();
    let mut parts = response.bytes_stream();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| cut(&error.to_string()))?;
        let events = lines.take(&part, &mut target)?;
        bar.set_message(format!("{} events emitted", count(events)));
        bar.tick();
    }
    bar.finish_and_clear();
    let Some(done) = lines.done else {
        return Err(cut("its last line is missing"));
    };
    target.finish()?;
    let emitted = done["emitted"].as_u64().unwrap_or(0);
    print::note(&format!("{} events emitted", count(emitted)));
    let stopped = done["stopped"].as_array().into_iter().flatten();
    let stopped: Vec<String> = stopped
        .map(|end| {
            format!(
                "partition {}: {}",
                cell(&end["partition"]),
                cell(&end["why"])
            )
        })
        .collect();
    match stopped.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed(
            "replay-stopped",
            format!(
                "the function stopped before the end; {}",
                stopped.join("; ")
            ),
        )),
    }
}

fn cut(why: &str) -> Failure {
    Failure::failed(
        "connection-lost",
        format!("the replay broke off before its end: {why}"),
    )
    .hint("what came is not all; run it again")
}

/// Takes the answer's lines apart: events are passed on, what is said of all of them is kept.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
    events: u64,
    done: Option<Value>,
}

impl Lines {
    fn take(&mut self, part: &[u8], out: &mut impl Write) -> Result<u64> {
        self.rest.extend_from_slice(part);
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n');
        let rest = self.rest.split_off(whole.map_or(0, |at| at + 1));
        let whole = std::mem::replace(&mut self.rest, rest);
        for line in whole.split_inclusive(|byte| *byte == b'\n') {
            self.line(line, out)?;
        }
        Ok(self.events)
    }

    fn line(&mut self, line: &[u8], out: &mut impl Write) -> Result<()> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        if line.starts_with(b"{\"topic\":") {
            self.events += 1;
            return Ok(out.write_all(line)?);
        }
        let said: Value = serde_json::from_slice(line).map_err(|error| {
            Failure::failed("strange-answer", format!("a line of it is wrong: {error}"))
        })?;
        if let Some(error) = said.get("error") {
            let code = error["code"].as_str().unwrap_or("replay-failed");
            return Err(Failure::failed(code, cell(&error["detail"])));
        }
        self.done = said.get("done").cloned();
        Ok(())
    }
}

/// Where the events go.
enum Target {
    Out(BufWriter<std::io::Stdout>),
    File {
        writer: BufWriter<File>,
        partial: PathBuf,
        name: PathBuf,
    },
}

impl Target {
    fn create(file: &Path) -> Result<Self> {
        if file == Path::new("-") {
            return Ok(Self::Out(BufWriter::new(std::io::stdout())));
        }
        let mut partial = file.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let made = File::create(&partial).map_err(|error| {
            let detail = format!("cannot write {}: {error}", partial.display());
            Failure::failed("io", detail)
        })?;
        Ok(Self::File {
            writer: BufWriter::new(made),
            partial,
            name: file.to_owned(),
        })
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Out(mut out) => Ok(out.flush()?),
            Self::File {
                mut writer,
                partial,
                name,
            } => {
                writer.flush()?;
                Ok(std::fs::rename(partial, name)?)
            }
        }
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Out(out) => out.write(bytes),
            Self::File { writer, .. } => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Out(out) => out.flush(),
            Self::File { writer, .. } => writer.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub;

    const EVENTS: &str = "{\"topic\":\"out\",\"partition\":0,\"key\":null,\"value\":1}\n\n{\"topic\":\"out\",\"partition\":1,\"key\":null,\"value\":2}\n";

    async fn written(body: &str, file: &Path) -> Result<()> {
        let answer = stub::answer("200 OK", "content-type: application/x-ndjson\r\n", body);
        let (address, _requests) = stub::host(vec![answer]).await;
        let client = Client::new(&address).expect("client");
        let request = client.request(reqwest::Method::POST, &["x"], &[]);
        write(&client, request, file).await
    }

    #[tokio::test]
    async fn the_file_is_there_once_it_is_complete() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("out.ndjson");
        let failure = written(EVENTS, &file).await.expect_err("cut");
        assert_eq!(failure.code, "connection-lost");
        let error = r#"{"error":{"code":"unavailable","detail":"x"}}"#;
        let failure = written(&format!("{EVENTS}{error}\n"), &file).await;
        assert_eq!(failure.expect_err("refused").code, "unavailable");
        assert!(!file.exists());
        let done = r#"{"done":{"emitted":2,"stopped":[]}}"#;
        written(&format!("{EVENTS}{done}\n"), &file)
            .await
            .expect("complete");
        let text = std::fs::read_to_string(&file).expect("is there");
        assert_eq!(text, EVENTS.replace("\n\n", "\n"));
        assert!(!dir.path().join("out.ndjson.partial").exists());
        let stopped = r#"{"done":{"emitted":2,"stopped":[{"partition":1,"why":"enough"}]}}"#;
        let failure = written(&format!("{EVENTS}{stopped}\n"), &file).await;
        let failure = failure.expect_err("stopped");
        assert_eq!(failure.code, "replay-stopped");
        assert!(failure.message.contains("partition 1: enough"));
    }

    #[test]
    fn lines_may_come_in_any_parts() {
        let mut lines = Lines::default();
        let mut out = Vec::new();
        let all = format!("{EVENTS}{{\"done\":{{\"emitted\":2}}}}\n");
        for byte in all.as_bytes() {
            lines.take(&[*byte], &mut out).expect("takes");
        }
        assert_eq!((lines.events, out.len()), (2, EVENTS.len() - 1));
        assert_eq!(lines.done.expect("the last")["emitted"], 2);
    }
}
