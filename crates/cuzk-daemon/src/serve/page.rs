//! The metrics page over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;

use super::service::State;

/// The text format of Prometheus.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `/metrics`, and nothing else.
pub(super) fn router(state: Arc<State>) -> Router {
    let metrics = move || {
        let state = Arc::clone(&state);
        async move { ([(CONTENT_TYPE, TEXT_FORMAT)], state.metrics()).into_response() }
    };
    Router::new().route("/metrics", get(metrics))
}
