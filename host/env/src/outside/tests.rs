//! Calls to a small server of the test's own.

use super::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

/// Answers one connection after the other with these bytes; what came is sent on.
fn server(answers: Vec<&'static [u8]>) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (came, all) = mpsc::channel();
    std::thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            let mut request = Vec::new();
            let mut part = [0; 4096];
            // The requests of these tests end with their head or with a body of "!".
            while !request.ends_with(b"\r\n\r\n") && !request.ends_with(b"!") {
                match stream.read(&mut part) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => request.extend_from_slice(&part[..n]),
                }
            }
            let _ = came.send(String::from_utf8_lossy(&request).into_owned());
            let _ = stream.write_all(answer);
            if answer.is_empty() {
                // Silent until the other end goes.
                let _ = stream.read(&mut part);
            }
        }
    });
    (format!("http://{address}"), all)
}

fn outside() -> Outside {
    let own = "127.0.0.1".parse::<Network>().expect("a network");
    Outside::open([own].into_iter().collect()).expect("a client")
}

fn request(method: &str, url: &str, body: &[u8]) -> Request {
    let headers = [("x-one".to_owned(), b"1".to_vec())];
    Request::new(method, url, &headers, body.to_vec()).expect("a request")
}

const USUAL: (Duration, ByteSize) = (Duration::from_secs(30), ByteSize(1000));

#[tokio::test]
async fn a_call_is_made_as_it_was_asked_for() {
    let answer =
        b"HTTP/1.1 201 Created\r\nX-Two: 2\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    let (url, came) = server(vec![answer]);
    let request = request("POST", &format!("{url}/v1/x?q=1"), b"body!");
    let answer = outside()
        .call(&request, "key-1", USUAL)
        .await
        .expect("an answer");
    assert_eq!((answer.status, &answer.body[..]), (201, &b"hello"[..]));
    assert!(answer.headers.contains(&("x-two".into(), b"2".to_vec())));
    let came = came.recv().expect("a request").to_lowercase();
    assert!(came.starts_with("post /v1/x?q=1 http/1.1\r\n"), "{came}");
    for line in [
        "x-one: 1\r\n",
        "idempotency-key: key-1\r\n",
        "\r\n\r\nbody!",
    ] {
        assert!(came.contains(line), "{came}");
    }
}

#[tokio::test]
async fn redirects_are_answers() {
    let answer =
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    let (url, _came) = server(vec![answer]);
    let answer = outside()
        .call(&request("GET", &url, b""), "k", USUAL)
        .await
        .expect("an answer");
    assert_eq!(answer.status, 302);
}

#[tokio::test]
async fn failures_are_told_apart() {
    let large = b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n";
    let large: &'static [u8] = Box::leak([&large[..], &[b'x'; 2000]].concat().into_boxed_slice());
    let (url, _came) = server(vec![large, b"no HTTP\r\n\r\n"]);
    let (silent, _came) = server(vec![b""]);
    let silent = request("GET", &format!("{silent}/x?token=hush"), b"");
    let outside = outside();
    let asked = request("GET", &format!("{url}/x?token=hush"), b"");
    let brief = (Duration::from_millis(50), USUAL.1);
    let closed = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("an address");
    let nobody = request("GET", &format!("http://{closed}/"), b"");
    for (request, bounds, kind) in [
        (&asked, USUAL, CallErrorKind::TooLarge),
        (&silent, brief, CallErrorKind::Timeout),
        (&asked, USUAL, CallErrorKind::Broken),
        (&nobody, USUAL, CallErrorKind::Connect),
    ] {
        let failed = outside
            .call(request, "k", bounds)
            .await
            .expect_err("no answer");
        assert_eq!(failed.kind, kind, "{failed:?}");
        assert!(!failed.message.contains("hush"), "{failed:?}");
    }
}

#[tokio::test]
async fn what_lies_behind_the_host_is_denied() {
    let (url, came) = server(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]);
    let outside = Outside::open(Networks::default()).expect("a client");
    let by_name = url.replace("127.0.0.1", "localhost");
    for url in [
        url,
        by_name,
        "http://169.254.169.254/latest".into(),
        "http://[::1]/".into(),
    ] {
        let denied = outside
            .call(&request("GET", &url, b""), "k", USUAL)
            .await
            .expect_err("denied");
        assert_eq!(denied.kind, CallErrorKind::Denied, "{denied:?}");
        assert!(denied.message.contains("grants.addresses"), "{denied:?}");
    }
    assert!(came.try_recv().is_err(), "nothing was sent");
}

#[test]
fn what_is_the_hosts_to_say_is_denied() {
    let header = |name: &str, value: &[u8]| {
        Request::new(
            "GET",
            "https://a.example/",
            &[(name.into(), value.to_vec())],
            Vec::new(),
        )
    };
    for name in [
        "Host",
        "Idempotency-Key",
        "content-length",
        "Transfer-Encoding",
        "bad name",
        "",
    ] {
        let denied = header(name, b"x").expect_err(name);
        assert_eq!(denied.kind, CallErrorKind::Denied);
    }
    let denied = header("x", b"hush\r\nhost: evil").expect_err("two lines");
    assert!(!denied.message.contains("hush"), "{denied:?}");
    for method in ["CONNECT", "TRACE", "get", "G T", ""] {
        assert!(
            Request::new(method, "https://a.example/", &[], Vec::new()).is_err(),
            "{method}"
        );
    }
    let many: Vec<_> = (0..65).map(|n| (format!("x-{n}"), Vec::new())).collect();
    assert!(Request::new("GET", "https://a.example/", &many, Vec::new()).is_err());
}
