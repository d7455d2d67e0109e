//! Connections: accepted up to a bound, served with HTTP/1.1, ended gently.

use crate::app::App;
use crate::edge;
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tidemill_env::Shutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// Serves until `shutdown`, then lets requests finish within `http.stop_timeout`.
pub(crate) async fn serve(app: Arc<App>, listener: TcpListener, shutdown: Shutdown) {
    let router = crate::routes::router(app.clone());
    let open = TaskTracker::new();
    let places = Arc::new(Semaphore::new(app.http.connections));
    loop {
        let place = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            place = places.clone().acquire_owned() => place,
        };
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (app, router) = (app.clone(), router.clone());
                open.spawn(async move {
                    connection(app, router, stream).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "no connection could be accepted; trying again");
                app.clock.sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    app.stopping.cancel();
    open.close();
    tokio::select! {
        () = open.wait() => {}
        () = app.clock.sleep(app.http.stop_timeout) => {
            tracing::warn!(connections = open.len(), "stopping although requests are still going on");
        }
    }
}

async fn connection(app: Arc<App>, router: Router, stream: TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY can't be set");
    }
    let stopping = app.stopping.clone();
    let header_timeout = app.http.header_timeout;
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (app, router) = (app.clone(), router.clone());
        async move { Ok::<_, Infallible>(edge::respond(app, router, request.map(Body::new)).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout);
    let served = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    let ended = tokio::select! {
        biased;
        ended = served.as_mut() => ended,
        () = stopping.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
