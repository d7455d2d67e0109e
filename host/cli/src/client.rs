//! The host's HTTP API as the commands need it: addresses, answers, and refusals as failures.

use crate::failure::{Failure, Problem, Result};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde_json::Value;
use std::time::Duration;

/// How long to try to connect.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a host may say nothing; longer than the longest poll, and than compiling a component.
const SILENCE: Duration = Duration::from_secs(180);

/// A client of one host. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Client {
    host: Url,
    http: reqwest::Client,
}

impl Client {
    /// For a host such as `http://127.0.0.1:7070` or `127.0.0.1:7070`.
    pub(crate) fn new(host: &str) -> Result<Self> {
        let host = address(host)?;
        // Fails only if there is a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .user_agent(concat!("tidemill/", env!("CARGO_PKG_VERSION")));
        if is_loopback(&host) {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| {
            Failure::failed(
                "no-client",
                format!("cannot speak HTTP: {}", causes(&error)),
            )
        })?;
        Ok(Self { host, http })
    }

    /// The address of a resource; segments and query values are escaped.
    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.host.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    /// A request, to be completed and given to [`Client::send`].
    pub(crate) fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> RequestBuilder {
        self.http.request(method, self.url(path, query))
    }

    /// Sends a request; anything but success is a failure.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response> {
        let response = request.send().await.map_err(|error| self.lost(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(Failure::refused(problem(response).await))
    }

    /// Sends a request and reads the JSON of its answer; `null` if the answer has no body.
    pub(crate) async fn json(&self, request: RequestBuilder) -> Result<Value> {
        let body = self.body(self.send(request).await?).await?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|error| {
            Failure::failed(
                "strange-answer",
                format!("{} answers no JSON: {error}", self.host),
            )
        })
    }

    /// Reads the body of an answer.
    pub(crate) async fn body(&self, response: Response) -> Result<Vec<u8>> {
        Ok(response
            .bytes()
            .await
            .map_err(|error| self.lost(&error))?
            .into())
    }

    /// `GET` of a JSON document.
    pub(crate) async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value> {
        self.json(self.request(Method::GET, path, query)).await
    }

    /// A request that never got to the host is told apart from one whose outcome is unknown.
    fn lost(&self, error: &reqwest::Error) -> Failure {
        let host = self.host.as_str().trim_end_matches('/');
        if error.is_connect() {
            return Failure::unreachable(host, causes(error));
        }
        Failure {
            exit: crate::failure::Exit::Unreachable,
            ..Failure::failed(
                "connection-lost",
                format!("the connection to {host} broke: {}", causes(error)),
            )
        }
        .hint("whether the request took effect is not known")
    }
}

/// The address of a host as people write it.
fn address(text: &str) -> Result<Url> {
    let full = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    match full.parse::<Url>() {
        Ok(url) if url.has_host() && matches!(url.scheme(), "http" | "https") => Ok(url),
        _ => Err(Failure::usage(
            "invalid-host",
            format!("{text:?} is not the address of a host"),
        )
        .hint("write it as http://127.0.0.1:7070")),
    }
}

/// This machine, which no proxy stands before.
fn is_loopback(host: &Url) -> bool {
    match host.host_str() {
        Some("localhost" | "[::1]") => true,
        Some(address) => address
            .parse::<std::net::Ipv4Addr>()
            .is_ok_and(|address| address.is_loopback()),
        None => false,
    }
}

/// What the host says about a refusal; made up from the status if it says nothing.
async fn problem(response: Response) -> Problem {
    let status = response.status();
    let retry_after = response
        .headers()
        .get("retry-after")
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let body = response.bytes().await.unwrap_or_default();
    let mut problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
    problem.status = status.as_u16();
    problem.retry_after = retry_after;
    if problem.code.is_empty() {
        problem.code = format!("http-{}", status.as_u16());
    }
    if problem.title.is_empty() {
        problem.title = format!("the host answers {status}");
    }
    problem
}

/// The innermost reason, which says most.
fn causes(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;
    use crate::stub;

    #[test]
    fn addresses_are_escaped() {
        let client = Client::new("localhost:7070").expect("client");
        let url = client.url(&["v1", "functions", "a b/c", "state"], &[("key", "ä&b=c")]);
        assert_eq!(
            url.as_str(),
            "http://localhost:7070/v1/functions/a%20b%2Fc/state?key=%C3%A4%26b%3Dc"
        );
        let client = Client::new("https://example/mill/").expect("client");
        assert_eq!(
            client.url(&["livez"], &[]).as_str(),
            "https://example/mill/livez"
        );
    }

    #[test]
    fn this_machine_is_known() {
        for (host, loopback) in [
            ("127.0.0.1:1", true),
            ("localhost", true),
            ("http://[::1]:7", true),
            ("https://example", false),
        ] {
            assert_eq!(is_loopback(&address(host).expect(host)), loopback, "{host}");
        }
    }

    #[test]
    fn a_bad_address_is_a_usage_error() {
        for bad in ["", "ftp://x", "http://", "a b"] {
            assert_eq!(
                Client::new(bad).err().map(|failure| failure.exit),
                Some(Exit::Usage),
                "{bad:?}"
            );
        }
    }

    #[tokio::test]
    async fn nobody_listening_is_unreachable() {
        // A port that was free a moment ago and that nobody listens on.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .expect("binds")
            .local_addr()
            .expect("address")
            .port();
        let client = Client::new(&format!("127.0.0.1:{port}")).expect("client");
        let failure = client
            .get(&["livez"], &[])
            .await
            .expect_err("nobody listens");
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(failure.hint.expect("hint").contains("tidemill serve"));
    }

    #[tokio::test]
    async fn a_problem_becomes_a_failure_with_the_hosts_words() {
        let body = r#"{"status": 404, "code": "topic-not-found", "detail": "There is no topic \"flight\".", "no_side_effects": true}"#;
        let answers = vec![
            stub::answer(
                "404 Not Found",
                "content-type: application/problem+json\r\n",
                body,
            ),
            stub::answer("502 Bad Gateway", "retry-after: 3\r\n", "<html>"),
            stub::answer("204 No Content", "", ""),
        ];
        let (address, requests) = stub::host(answers).await;
        let client = Client::new(&address).expect("client");
        let failure = client
            .get(&["v1", "topics", "flight"], &[])
            .await
            .expect_err("refused");
        assert_eq!(
            (failure.exit, failure.code.as_str()),
            (Exit::NotFound, "topic-not-found")
        );
        assert!(failure.message.contains("flight") && failure.hint.is_some());
        let failure = client
            .get(&["x"], &[])
            .await
            .expect_err("refused by something else");
        let problem = failure.problem.expect("problem");
        assert_eq!(
            (problem.status, problem.retry_after, problem.no_side_effects),
            (502, Some(3), false)
        );
        assert_eq!(client.get(&["x"], &[]).await.expect("nothing"), Value::Null);
        assert!(
            requests.await.expect("requests")[0].starts_with("GET /v1/topics/flight HTTP/1.1\r\n")
        );
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_no_proof_of_anything() {
        let cut = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 10\r\n\r\n{".to_owned();
        let (address, _requests) = stub::host(vec![cut]).await;
        let failure = Client::new(&address)
            .expect("client")
            .get(&["x"], &[])
            .await
            .expect_err("cut");
        assert_eq!(
            (failure.exit, failure.code.as_str()),
            (Exit::Unreachable, "connection-lost")
        );
    }
}
