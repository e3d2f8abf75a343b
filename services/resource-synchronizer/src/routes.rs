//! All routes; the OpenAPI document is generated from them.

use axum::Extension;
use drover_api::bindings::BindingStatus;
use drover_api::traffic::{CopyEndpoints, RouteReport};
use drover_service::{BodyLimit, FeedHub};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::bindings;

/// Largest body in bytes. A rendered chart with many CRDs has megabytes; Kubernetes itself accepts 3 MiB per object.
const BODY: usize = 64 << 20;

/// Every route of the service.
pub(crate) fn routes(
    statuses: &FeedHub<BindingStatus>,
    endpoints: &FeedHub<CopyEndpoints>,
    gateways: &FeedHub<RouteReport>,
) -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(bindings::put))
        .routes(routes!(bindings::get, bindings::delete))
        .routes(routes!(bindings::put_test, bindings::test))
        .routes(routes!(bindings::put_bounds))
        .routes(routes!(bindings::preflight))
        .routes(routes!(bindings::volumes))
        .routes(statuses.route("/internal/feeds/bindings", "bindings_feed"))
        .routes(endpoints.route("/internal/feeds/endpoints", "endpoints_feed"))
        .routes(gateways.route("/internal/feeds/traffic", "traffic_feed"))
        .layer(Extension(BodyLimit(BODY)))
}

/// The service's OpenAPI document.
pub fn openapi() -> utoipa::openapi::OpenApi {
    drover_service::openapi::document("resource-synchronizer", routes(&FeedHub::new(), &FeedHub::new(), &FeedHub::new()))
}
