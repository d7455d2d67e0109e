//! A host for tests that answers what it was told to, one connection after the other.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Starts one; gives its address and, once it has given all its answers, the requests it got.
pub(crate) async fn host(answers: Vec<String>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let address = listener.local_addr().expect("address").to_string();
    let requests = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.expect("accepts");
            let mut request = Vec::new();
            while !whole(&request) {
                assert_ne!(
                    stream.read_buf(&mut request).await.expect("reads"),
                    0,
                    "the request ends early"
                );
            }
            stream.write_all(answer.as_bytes()).await.expect("writes");
            requests.push(String::from_utf8(request).expect("text"));
        }
        requests
    });
    (address, requests)
}

/// An answer, after which the connection ends.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

fn whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0)
}
