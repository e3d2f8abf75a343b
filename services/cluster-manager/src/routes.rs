//! All routes of the service; the OpenAPI document is generated from them.

use axum::extract::FromRef;
use drover_resources::{Documents, mount_all};
use drover_service::openapi::document;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, Fleet};
use crate::http::{agents, checks, clusters, cordon, kv_pairs, labels, links, members, networks, pods};
use crate::resources::KINDS;

impl FromRef<App> for Documents {
    fn from_ref(app: &App) -> Self {
        app.documents.clone()
    }
}

pub(crate) fn routes(fleet: &Fleet) -> OpenApiRouter<App> {
    mount_all(OpenApiRouter::default(), KINDS)
        .routes(routes!(clusters::list))
        .routes(routes!(clusters::status))
        .routes(routes!(checks::check))
        .routes(routes!(cordon::put, cordon::delete))
        .routes(routes!(kv_pairs::get))
        .routes(routes!(labels::list, labels::create))
        .routes(routes!(labels::get, labels::put, labels::delete))
        .routes(routes!(links::get, links::revoke))
        .routes(routes!(links::invite))
        .routes(routes!(links::accept))
        .routes(routes!(links::stream))
        .routes(routes!(pods::pods))
        .routes(routes!(pods::events))
        .routes(routes!(pods::log))
        .routes(routes!(pods::exec))
        .routes(routes!(networks::apply))
        .routes(routes!(networks::terminate))
        .routes(routes!(networks::stop))
        .routes(routes!(members::kubeconfig))
        .routes(routes!(members::put_user, members::delete_user))
        .routes(routes!(members::user_kubeconfig))
        .routes(routes!(agents::orders))
        .routes(fleet.members.route("/internal/feeds/members", "members_feed"))
        .routes(fleet.capacity.route("/internal/feeds/capacity", "capacity_feed"))
}

/// The service's OpenAPI document.
pub fn openapi() -> utoipa::openapi::OpenApi {
    document("cluster-manager", routes(&Fleet::default()))
}
