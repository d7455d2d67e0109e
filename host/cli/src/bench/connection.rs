//! A client that costs next to nothing: one keep-alive connection, requests built beforehand, answers
//! read as far as needed.

use crate::failure::{Failure, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One HTTP/1.1 connection.
pub(super) struct Connection {
    stream: TcpStream,
    /// The last answer: head and body.
    answer: Vec<u8>,
}

/// The end of a head.
const BLANK: &[u8] = b"\r\n\r\n";

impl Connection {
    pub(super) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            answer: Vec::with_capacity(16 << 10),
        })
    }

    /// Sends a whole request and reads the whole answer; gives its status.
    pub(super) async fn call(&mut self, request: &[u8]) -> Result<u16> {
        self.stream.write_all(request).await?;
        self.answer.clear();
        let mut whole = None;
        while whole.is_none_or(|whole| self.answer.len() < whole) {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err(strange("closed the connection in the middle of an answer"));
            }
            if whole.is_none() {
                whole = length(&self.answer)?;
            }
        }
        let status = self
            .answer
            .get(9..12)
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        status.ok_or_else(|| strange("answers no HTTP"))
    }

    /// The body of the last answer.
    pub(super) fn body(&self) -> &[u8] {
        find(&self.answer, BLANK).map_or(&[], |at| &self.answer[at + BLANK.len()..])
    }

    /// A header of the last answer; its name in small letters.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        let head = &self.answer[..find(&self.answer, BLANK)?];
        header(head, name).map(|value| String::from_utf8_lossy(value).into_owned())
    }
}

fn strange(what: &str) -> Failure {
    Failure::failed("strange-answer", format!("the host {what}"))
}

/// Length of head and body, as soon as the head is there.
fn length(answer: &[u8]) -> Result<Option<usize>> {
    let Some(at) = find(answer, BLANK) else {
        return Ok(None);
    };
    let body = header(&answer[..at], "content-length")
        .and_then(|value| std::str::from_utf8(value).ok()?.parse::<usize>().ok());
    body.map(|body| Some(at + BLANK.len() + body))
        .ok_or_else(|| strange("sends an answer without its length"))
}

fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon]
            .eq_ignore_ascii_case(name.as_bytes())
            .then(|| line[colon + 1..].trim_ascii())
    })
}

fn find(within: &[u8], what: &[u8]) -> Option<usize> {
    within.windows(what.len()).position(|window| window == what)
}

/// A `POST` with its body, ready to send.
pub(super) fn post(path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: tidemill\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A `GET` of lines, ready to send.
pub(super) fn get(path: &str) -> Vec<u8> {
    get_as(path, "application/x-ndjson")
}

/// A `GET` of another content type.
pub(super) fn get_as(path: &str, kind: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: tidemill\r\naccept: {kind}\r\n\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_length_says_so() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello";
        assert_eq!(length(answer).expect("head"), Some(answer.len()));
        assert_eq!(length(&answer[..20]).expect("no head yet"), None);
        assert!(length(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert_eq!(header(answer, "x"), Some(&b"y"[..]));
    }

    #[tokio::test]
    async fn answers_are_read_one_after_the_other() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("listens");
        let address = listener.local_addr().expect("address").to_string();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepts");
            let mut request = [0; 1024];
            for answer in [
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
                "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n",
            ] {
                let read = stream.read(&mut request).await.expect("reads");
                assert!(request[..read].starts_with(b"POST /x HTTP/1.1\r\n"));
                // In two parts, as a network may deliver it.
                let (first, second) = answer.as_bytes().split_at(12);
                stream.write_all(first).await.expect("writes");
                stream.flush().await.expect("flushes");
                stream.write_all(second).await.expect("writes");
            }
        });
        let mut connection = Connection::open(&address).await.expect("opens");
        let request = post("/x", "application/json", b"1");
        assert_eq!(connection.call(&request).await.expect("answer"), 200);
        assert_eq!(connection.body(), b"ok");
        assert_eq!(connection.call(&request).await.expect("answer"), 503);
        server.await.expect("server");
    }
}
