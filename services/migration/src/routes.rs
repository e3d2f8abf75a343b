//! The table of contents; the OpenAPI document falls out of it.

use axum::Extension;
use drover_resources::mount_all;
use drover_service::BodyLimit;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::http::{plans, policy_tests};
use crate::resources::KINDS;

/// An order carries whole groups of apps with their demands.
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
        .layer(Extension(BodyLimit(BODY)));
    mount_all(OpenApiRouter::new(), &KINDS).merge(verbs)
}

/// The service's OpenAPI document.
pub fn openapi() -> utoipa::openapi::OpenApi {
    drover_service::openapi::document("migration", routes())
}
