//! All routes of the service; the OpenAPI document is generated from them.

use axum::Extension;
use drover_api::ledger::FleetItem;
use drover_service::{BodyLimit, FeedHub};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::{claims, clusters, decisions, explain, transactions};

/// Maximum body: requests carry whole groups of apps with their demands.
const BODY: usize = 16 << 20;

/// Every route of the service.
pub(crate) fn routes(fleet: &FeedHub<FleetItem>) -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(decisions::put))
        .routes(routes!(decisions::dry_run))
        .routes(routes!(decisions::get))
        .routes(routes!(transactions::dry_run))
        .routes(routes!(transactions::put))
        .routes(routes!(claims::list))
        .routes(routes!(claims::heads))
        .routes(routes!(explain::post))
        .routes(routes!(clusters::list))
        .routes(fleet.route("/internal/feeds/fleet", "fleet_feed"))
        .layer(Extension(BodyLimit(BODY)))
}

/// The service's OpenAPI document.
pub fn openapi() -> utoipa::openapi::OpenApi {
    drover_service::openapi::document("placement", routes(&FeedHub::new()))
}
