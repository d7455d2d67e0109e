//! The addresses there are.

use crate::app::App;
use crate::{functions, ingest, operations, problem::Problem, read, topics};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post, put};
use std::sync::Arc;

/// One method of one address, for the router's table of contents.
pub(crate) struct Operation {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) summary: &'static str,
    /// Query parameters.
    pub(crate) query: &'static [&'static str],
    /// Headers that change what is done.
    pub(crate) headers: &'static [&'static str],
    /// Content types of the body.
    pub(crate) body: &'static [&'static str],
    /// Content types of a successful answer.
    pub(crate) answer: &'static [&'static str],
}

const fn operation(
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    query: &'static [&'static str],
    body: &'static [&'static str],
    answer: &'static [&'static str],
) -> Operation {
    Operation {
        method,
        path,
        summary,
        query,
        headers: NOTHING,
        body,
        answer,
    }
}

const JSON: &[&str] = &["application/json"];
const TEXT: &[&str] = &["text/plain"];
const NOTHING: &[&str] = &[];

/// Everything that can be asked; `/v1/openapi.json` is made of it.
pub(crate) const OPERATIONS: &[Operation] = &[
    operation("get", "/v1/topics", "Lists topics.", NOTHING, NOTHING, JSON),
    operation(
        "get",
        "/v1/topics/{topic}",
        "A topic's settings and what its partitions hold.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    operation(
        "put",
        "/v1/topics/{topic}",
        "Creates a topic.",
        NOTHING,
        JSON,
        JSON,
    ),
    operation(
        "patch",
        "/v1/topics/{topic}",
        "Changes a topic's retention, or adds columns to its schema.",
        NOTHING,
        JSON,
        JSON,
    ),
    operation(
        "delete",
        "/v1/topics/{topic}",
        "Deletes a topic with its events.",
        topics::DELETE_QUERY,
        NOTHING,
        NOTHING,
    ),
    operation(
        "get",
        "/v1/topics/{topic}/stats",
        "How much a topic holds and where, what comes in, how well it is compressed.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    Operation {
        headers: ingest::HEADERS,
        ..operation(
            "post",
            ingest::ROUTE,
            "Appends events; answers when they are durable.",
            ingest::QUERY,
            ingest::TYPES,
            JSON,
        )
    },
    operation(
        "delete",
        "/v1/topics/{topic}/events",
        "Takes away a partition's events below an offset.",
        topics::TRUNCATE_QUERY,
        NOTHING,
        JSON,
    ),
    operation(
        "get",
        "/v1/topics/{topic}/events",
        "Reads events.",
        read::QUERY,
        NOTHING,
        read::TYPES,
    ),
    operation(
        "get",
        "/v1/functions",
        "Lists functions.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    operation(
        "get",
        "/v1/functions/{function}",
        "A function, its tasks and counts.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    operation(
        "put",
        "/v1/functions/{function}",
        "Deploys a function.",
        functions::PUT_QUERY,
        functions::PUT_TYPES,
        JSON,
    ),
    operation(
        "delete",
        "/v1/functions/{function}",
        "Deletes a function.",
        functions::DELETE_QUERY,
        NOTHING,
        NOTHING,
    ),
    operation(
        "post",
        "/v1/functions/{function}/pause",
        "Pauses a function at a transaction border.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    operation(
        "post",
        "/v1/functions/{function}/resume",
        "Lets a function go on.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    operation(
        "post",
        "/v1/functions/{function}/rollback",
        "Goes back to an earlier version.",
        functions::ROLLBACK_QUERY,
        JSON,
        JSON,
    ),
    operation(
        "get",
        "/v1/functions/{function}/versions",
        "The versions of a function that are kept.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    operation(
        "get",
        "/v1/functions/{function}/shadow",
        "The version that runs beside the one in force.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    operation(
        "delete",
        "/v1/functions/{function}/shadow",
        "Ends the version that runs beside the one in force.",
        NOTHING,
        NOTHING,
        NOTHING,
    ),
    operation(
        "post",
        "/v1/functions/{function}/shadow/promote",
        "Puts the version that ran beside in force.",
        functions::PROMOTE_QUERY,
        NOTHING,
        JSON,
    ),
    operation(
        "post",
        "/v1/functions/{function}/shadow/diff",
        "Begins to compare the version that runs beside with the one in force.",
        NOTHING,
        JSON,
        JSON,
    ),
    operation(
        "post",
        "/v1/functions/{function}/invoke",
        "What a function would do with events; nothing is written.",
        functions::INVOKE_QUERY,
        ingest::TYPES,
        JSON,
    ),
    operation(
        "post",
        "/v1/functions/{function}/replay",
        "Begins to run a function over stored events once more.",
        NOTHING,
        JSON,
        functions::LOGS_TYPES,
    ),
    operation(
        "get",
        "/v1/functions/{function}/replay/{id}",
        "How far a replay is, and what it came to.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    operation(
        "delete",
        "/v1/functions/{function}/replay/{id}",
        "Asks a replay to stop.",
        NOTHING,
        NOTHING,
        NOTHING,
    ),
    operation(
        "get",
        "/v1/functions/{function}/state",
        "State of one key, or the entries of a slot.",
        functions::STATE_QUERY,
        NOTHING,
        JSON,
    ),
    operation(
        "get",
        "/v1/functions/{function}/logs",
        "Log lines of a function.",
        functions::LOGS_QUERY,
        NOTHING,
        functions::LOGS_TYPES,
    ),
    operation(
        "get",
        "/v1/functions/{function}/dead-letters",
        "Dead letters of a function.",
        functions::LETTERS_QUERY,
        NOTHING,
        JSON,
    ),
    operation(
        "get",
        "/v1/functions/{function}/dead-letters/{letter}",
        "One dead letter, by partition:offset.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    operation(
        "post",
        "/v1/functions/{function}/dead-letters/redrive",
        "Puts dead letters back to the function, each once.",
        NOTHING,
        JSON,
        JSON,
    ),
    operation(
        "post",
        "/v1/functions/{function}/dead-letters/discard",
        "Says of dead letters that nothing will be done with them.",
        NOTHING,
        JSON,
        JSON,
    ),
    operation(
        "get",
        "/v1/errors",
        "Lists the error codes.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    operation(
        "get",
        "/v1/errors/{code}",
        "Explains an error code.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    operation(
        "get",
        "/v1/openapi.json",
        "This document.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    operation(
        "get",
        "/livez",
        "Whether the process answers.",
        NOTHING,
        NOTHING,
        TEXT,
    ),
    operation(
        "get",
        "/readyz",
        "Whether requests will be served.",
        NOTHING,
        NOTHING,
        JSON,
    ),
    operation(
        "get",
        "/metrics",
        "Metrics in the OpenMetrics text format.",
        NOTHING,
        NOTHING,
        TEXT,
    ),
];

/// The router over all of them.
pub(crate) fn router(app: Arc<App>) -> Router {
    let topic_events = post(ingest::post).get(read::get).delete(topics::truncate);
    Router::new()
        .route("/v1/topics", get(topics::list))
        .route(
            "/v1/topics/{topic}",
            get(topics::describe)
                .put(topics::create)
                .patch(topics::alter)
                .delete(topics::remove),
        )
        .route("/v1/topics/{topic}/stats", get(topics::stats))
        .route(ingest::ROUTE, topic_events)
        .route("/v1/functions", get(functions::list))
        .route(
            "/v1/functions/{function}",
            put(functions::deploy)
                .layer(DefaultBodyLimit::disable())
                .get(functions::describe)
                .delete(functions::remove),
        )
        .route("/v1/functions/{function}/pause", post(functions::pause))
        .route("/v1/functions/{function}/resume", post(functions::resume))
        .route(
            "/v1/functions/{function}/rollback",
            post(functions::rollback),
        )
        .route(
            "/v1/functions/{function}/versions",
            get(functions::versions),
        )
        .route(
            "/v1/functions/{function}/shadow",
            get(functions::shadow).delete(functions::stop_shadow),
        )
        .route(
            "/v1/functions/{function}/shadow/promote",
            post(functions::promote_shadow),
        )
        .route(
            "/v1/functions/{function}/shadow/diff",
            post(functions::diff_shadow),
        )
        .route("/v1/functions/{function}/invoke", post(functions::invoke))
        .route("/v1/functions/{function}/replay", post(functions::replay))
        .route(
            "/v1/functions/{function}/replay/{id}",
            get(functions::describe_replay).delete(functions::cancel_replay),
        )
        .route("/v1/functions/{function}/state", get(functions::state))
        .route("/v1/functions/{function}/logs", get(functions::logs))
        .route(
            "/v1/functions/{function}/dead-letters",
            get(functions::dead_letters),
        )
        .route(
            "/v1/functions/{function}/dead-letters/{letter}",
            get(functions::dead_letter),
        )
        .route(
            "/v1/functions/{function}/dead-letters/redrive",
            post(functions::redrive_dead_letters),
        )
        .route(
            "/v1/functions/{function}/dead-letters/discard",
            post(functions::discard_dead_letters),
        )
        .route("/v1/errors", get(operations::errors))
        .route("/v1/errors/{code}", get(operations::error))
        .route("/v1/openapi.json", get(operations::openapi))
        .route("/livez", get(operations::livez))
        .route("/readyz", get(operations::readyz))
        .route("/metrics", get(operations::metrics))
        .fallback(|| async {
            Err::<(), _>(Problem::because(
                "path-not-found",
                "Nothing answers at this path; /v1/openapi.json lists what there is.",
            ))
        })
        .with_state(app)
}

/// The route a path belongs to, as a label of metrics: bounded in number whatever is asked for.
pub(crate) fn route_of(path: &str) -> &'static str {
    let fits = |pattern: &str| {
        let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
        loop {
            match (pattern.next(), path.next()) {
                (None, None) => return true,
                (Some(want), Some(got)) if want == got || want.starts_with('{') => {}
                _ => return false,
            }
        }
    };
    OPERATIONS
        .iter()
        .map(|operation| operation.path)
        .find(|pattern| fits(pattern))
        .unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_is_told_from_its_path() {
        let ask = |method: &str, path: &str| {
            let request = axum::http::Request::builder().method(method).uri(path);
            let request = request.body(axum::body::Body::empty()).unwrap();
            ingest::topic_of_append(&request).map(str::to_owned)
        };
        for (path, topic) in [
            ("/v1/topics/orders/events", Some("orders")),
            ("/v1/topics/orders/events?key=a/b", Some("orders")),
            ("/v1/topics/events/events", Some("events")),
            ("/v1/topics/or%64ers/events", None),
            ("/v1/topics/a/b/events", None),
            ("/v1/topics//events", None),
            ("/v1/topics/events", None),
            ("/v1/topics/orders/events/", None),
            ("/v1/topics/orders/stats", None),
        ] {
            assert_eq!(ask("POST", path).as_deref(), topic, "{path:?}");
            assert_eq!(ask("GET", path), None, "{path:?}");
            let path = path.split('?').next().unwrap_or_default();
            assert!(
                topic.is_none() || route_of(path) == ingest::ROUTE,
                "{path:?}"
            );
        }
    }

    #[test]
    fn paths_have_bounded_labels() {
        assert_eq!(
            route_of("/v1/topics/orders/events"),
            "/v1/topics/{topic}/events"
        );
        assert_eq!(route_of("/v1/topics"), "/v1/topics");
        assert_eq!(route_of("/v1/errors/x"), "/v1/errors/{code}");
        for other in ["/", "/v1/topics/a/b/c", "", "/v1/topics/orders/events/"] {
            assert_eq!(route_of(other), "other", "{other:?}");
        }
    }
}
