//! The metrics page over HTTP, and pictures of where the time went.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use cuzk_core::timeline::{Recorded, svg, trace_json};

use super::service::State;

/// The text format of Prometheus.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `/metrics`; `/trace` and `/timeline.svg` with the spans that are kept. Nothing else.
pub(super) fn router(state: Arc<State>) -> Router {
    let metrics = Arc::clone(&state);
    let metrics = move || {
        let state = Arc::clone(&metrics);
        async move { ([(CONTENT_TYPE, TEXT_FORMAT)], state.metrics()).into_response() }
    };
    let picture = |content_type, draw: fn(&Recorded) -> String| {
        let state = Arc::clone(&state);
        move || drawn(Arc::clone(&state), content_type, draw)
    };
    let waterfall = |recorded: &Recorded| svg("cuzk serve", recorded);
    Router::new()
        .route("/metrics", get(metrics))
        .route("/trace", get(picture("application/json", trace_json)))
        .route("/timeline.svg", get(picture("image/svg+xml", waterfall)))
}

/// A picture of the spans there are. It may take a moment, so the event loop goes on.
async fn drawn(
    state: Arc<State>,
    content_type: &'static str,
    draw: fn(&Recorded) -> String,
) -> Response {
    let drawing = tokio::task::spawn_blocking(move || draw(&state.engine.recorded()));
    match drawing.await {
        Ok(text) => ([(CONTENT_TYPE, content_type)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "drawing the spans panicked");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
