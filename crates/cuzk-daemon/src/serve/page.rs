//! The metrics page over HTTP, and pictures of where the time went.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use cuzk_core::timeline::{Recorded, svg, trace_json};
use tokio::sync::Semaphore;

use super::service::State;

/// The text format of Prometheus.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Pictures that are drawn at the same time: each begins with a copy of all spans.
const DRAWN_MAX: usize = 1;

/// `/metrics`; `/trace` and `/timeline.svg` with the spans that are kept. Nothing else.
pub(super) fn router(state: Arc<State>) -> Router {
    let metrics = Arc::clone(&state);
    let metrics = move || {
        let state = Arc::clone(&metrics);
        async move { ([(CONTENT_TYPE, TEXT_FORMAT)], state.metrics()).into_response() }
    };
    let turns = Arc::new(Semaphore::new(DRAWN_MAX));
    let picture = |content_type, draw: fn(&Recorded) -> String| {
        let (state, turns) = (Arc::clone(&state), Arc::clone(&turns));
        move || {
            let state = Arc::clone(&state);
            let draw = move || draw(&state.engine.recorded());
            drawn(Arc::clone(&turns), content_type, draw)
        }
    };
    let waterfall = |recorded: &Recorded| svg("cuzk serve", recorded);
    Router::new()
        .route("/metrics", get(metrics))
        .route("/trace", get(picture("application/json", trace_json)))
        .route("/timeline.svg", get(picture("image/svg+xml", waterfall)))
}

/// A picture, if it has its turn now. It may take a moment, so the event loop goes on.
async fn drawn(
    turns: Arc<Semaphore>,
    content_type: &'static str,
    draw: impl FnOnce() -> String + Send + 'static,
) -> Response {
    let Ok(turn) = turns.try_acquire_owned() else {
        let reason = format!("{DRAWN_MAX} picture is being drawn, as many as may be; ask again\n");
        return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
    };
    let drawing = tokio::task::spawn_blocking(move || {
        // Until it is drawn, whether or not anybody still waits for it.
        let _turn = turn;
        draw()
    });
    match drawing.await {
        Ok(text) => ([(CONTENT_TYPE, content_type)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "drawing the spans panicked");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn one_picture_is_drawn_at_a_time() {
        let turns = Arc::new(Semaphore::new(DRAWN_MAX));
        let ask = |draw: Box<dyn FnOnce() -> String + Send>| {
            tokio::spawn(drawn(Arc::clone(&turns), "image/svg+xml", draw))
        };
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let first = ask(Box::new(move || {
            begun.send(()).expect("the test waits");
            may_go_on.recv().expect("the test sends");
            "first".to_owned()
        }));
        has_begun.await.expect("it is drawn");

        let second = ask(Box::new(|| panic!("drawn beside another")));
        let second = second.await.expect("an answer");
        assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body = axum::body::to_bytes(second.into_body(), 1 << 10).await;
        let want = "1 picture is being drawn, as many as may be; ask again\n";
        assert_eq!(body.expect("a reason"), want);

        // Nobody waits for it any more, and it is drawn all the same.
        first.abort();
        let third = ask(Box::new(|| panic!("drawn beside another")));
        let third = third.await.expect("an answer").status();
        assert_eq!(third, StatusCode::SERVICE_UNAVAILABLE);

        go_on.send(()).expect("it waits");
        drop(turns.acquire().await.expect("never closed"));
        for _ in 0..2 {
            // One that fails gives its turn back too.
            let failed = ask(Box::new(|| panic!("a picture that fails")));
            let failed = failed.await.expect("an answer").status();
            assert_eq!(failed, StatusCode::INTERNAL_SERVER_ERROR);
        }
        let last = ask(Box::new(|| "last".to_owned()));
        assert_eq!(last.await.expect("an answer").status(), StatusCode::OK);
    }
}
