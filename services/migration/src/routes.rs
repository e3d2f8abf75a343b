//! The routes of the service and the OpenAPI document made from them.

use axum::Extension;
use drover_resources::mount_all;
use drover_service::BodyLimit;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::{plans, policy_tests};
use crate::resources::KINDS;

/// Limit on request bodies in bytes: an order contains whole groups of apps with their demands.
const BODY: usize = 16 << 20;

/// Every route of the service.
pub(crate) fn routes() -> OpenApiRouter<App> {
    let verbs = OpenApiRouter::new()
        .routes(routes!(plans::put))
        .routes(routes!(plans::input))
        .routes(routes!(plans::accept))
        .routes(routes!(plans::post, plans::list))
        .routes(routes!(plans::get, plans::delete))
        .routes(routes!(policy_tests::post))
        .routes(routes!(plans::reliefs))
        .layer(Extension(BodyLimit(BODY)));
    mount_all(OpenApiRouter::new(), &KINDS).merge(verbs)
}

/// The service's OpenAPI document.
pub fn openapi() -> utoipa::openapi::OpenApi {
    drover_service::openapi::document("migration", routes())
}
