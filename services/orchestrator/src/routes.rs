//! All routes. The OpenAPI document is generated from them.

use axum::Extension;
use axum::routing::get;
use drover_api::traffic::RouteTable;
use drover_service::{BodyLimit, FeedHub, openapi};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use crate::app::App;
use crate::http::routes as route_list;
use crate::http::{agents, apps, explain, intents, internal, lifecycle, logical_clouds, operations, plans, status, traces};
use crate::resources::controllers::kept::KEPT;
use crate::resources::{APP_INTENT, GROUP_INTENT, KINDS};

/// Every route of orchestrator; with the feed of users' routes.
pub fn routes(feed: &FeedHub<RouteTable>) -> OpenApiRouter<App> {
    let documents = drover_resources::mount_all(OpenApiRouter::new(), &KINDS);
    drover_resources::mount_all(documents, &KEPT)
        .routes(routes!(intents::group_intents))
        .routes(routes!(intents::app_intents))
        // EMCO's clients request these with a trailing slash.
        .route(&format!("{}/", GROUP_INTENT.collection_path()), get(intents::group_intents))
        .route(&format!("{}/", APP_INTENT.collection_path()), get(intents::app_intents_of_app))
        .routes(routes!(logical_clouds::instantiate))
        .routes(routes!(logical_clouds::terminate))
        .routes(routes!(logical_clouds::update))
        .routes(routes!(logical_clouds::stop))
        .routes(routes!(logical_clouds::status))
        .routes(routes!(logical_clouds::kubeconfig))
        .routes(routes!(lifecycle::approve))
        .routes(routes!(lifecycle::instantiate))
        .routes(routes!(lifecycle::terminate))
        .routes(routes!(lifecycle::update))
        .routes(routes!(lifecycle::rollback))
        .routes(routes!(lifecycle::stop))
        .routes(routes!(lifecycle::migrate))
        .routes(routes!(lifecycle::revisions))
        .routes(routes!(lifecycle::diff))
        .routes(routes!(lifecycle::callers))
        .routes(routes!(lifecycle::notes))
        .routes(routes!(lifecycle::test))
        .routes(routes!(lifecycle::tests))
        .routes(routes!(status::events))
        .routes(routes!(status::status))
        .routes(routes!(operations::list))
        .routes(routes!(operations::get))
        .routes(routes!(operations::cancel))
        .routes(routes!(operations::force_fence))
        .routes(routes!(operations::events))
        .routes(routes!(traces::take).layer(Extension(BodyLimit(traces::MAX_BYTES))))
        .routes(routes!(traces::measured))
        .routes(routes!(apps::list))
        .routes(routes!(explain::get))
        .routes(routes!(route_list::list))
        .routes(routes!(agents::list))
        .routes(routes!(plans::apply))
        .routes(routes!(internal::dig))
        .routes(routes!(internal::document))
        .routes(routes!(internal::holds))
        .routes(feed.route("/internal/feeds/routes", "routes_feed"))
}

/// The OpenAPI document.
pub fn openapi() -> utoipa::openapi::OpenApi {
    openapi::document("orchestrator", routes(&FeedHub::new()))
}
