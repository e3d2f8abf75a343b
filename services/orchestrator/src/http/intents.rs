//! Two lists whose shape is EMCO's: group intents, and app intents filtered by app.

use axum::extract::{RawPathParams, State};
use axum::response::{IntoResponse, Response};
use drover_resources::{NoSpec, PathParams, TypedDocument};
use drover_service::{Json, Problem, Query, codes};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::app::{App, Error};
use crate::resources::app_intent::AppIntentSpec;
use crate::resources::group_intent::GroupIntentSpec;
use crate::resources::{APP_INTENT, DIG, GENERIC_PLACEMENT_INTENT, GROUP_INTENT};

/// Query of the list of group intents.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct GroupIntentQuery {
    /// Only the group intent of this name.
    pub intent: Option<String>,
}

/// EMCO's list of group intents.
#[derive(Debug, Serialize, ToSchema)]
pub struct GroupIntents {
    /// The map of each group intent.
    pub intent: Vec<std::collections::BTreeMap<String, String>>,
}

/// Group intents of a group.
#[utoipa::path(get, operation_id = "group-intent_list", tag = "intents",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/intents",
    params(crate::app::GroupPath, GroupIntentQuery), responses((status = 200, description = "The maps of all group intents, or only that of `intent`", body = GroupIntents)))]
pub async fn group_intents(
    State(app): State<App>,
    raw: RawPathParams,
    Query(query): Query<GroupIntentQuery>,
) -> Result<Json<GroupIntents>, Problem> {
    let path = PathParams::from(&raw).fill(&DIG.item_path())?;
    let mut tx = app.store.begin().await?;
    let parent: TypedDocument<Value> = drover_resources::get(&mut tx, &DIG, &path).await?.ok_or_else(|| Error::NotFound { what: path })?;
    let intents = drover_resources::children::<GroupIntentSpec>(&mut tx, &GROUP_INTENT, parent.id).await?;
    let wanted = |name: &str| query.intent.as_deref().is_none_or(|wanted| wanted == name);
    let shown: Vec<_> = intents.into_iter().filter(|intent| wanted(&intent.name)).map(|intent| intent.spec.intent).collect();
    match query.intent {
        Some(name) if shown.is_empty() => Err(Error::NotFound { what: format!("group intent {name}") }.into()),
        _ => Ok(Json(GroupIntents { intent: shown })),
    }
}

/// Query of the list of app intents.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AppIntentQuery {
    /// Return only the spec of this app's intent.
    #[allow(dead_code, reason = "for the OpenAPI document; the handler reads the raw query, which may also have the keys of the list")]
    pub app: Option<String>,
}

/// EMCO's address of the intent of one app, with a slash before the query. Without `app` there is nothing at this address.
pub async fn app_intents_of_app(state: State<App>, raw: RawPathParams, query: Query<Vec<(String, String)>>) -> Result<Response, Problem> {
    if !query.0.iter().any(|(key, _)| key == "app") {
        return Err(codes::NOT_FOUND.problem("404 page not found: name an app with ?app=, or leave out the slash for the list"));
    }
    app_intents(state, raw, query).await
}

/// App intents of a generic placement intent; with `?app=` only the spec of that app's intent.
#[utoipa::path(get, operation_id = "app-intent_list", tag = "intents",
    path = "/v2/projects/{project}/composite-apps/{compositeApp}/{compositeAppVersion}/deployment-intent-groups/{deploymentIntentGroup}/generic-placement-intents/{genericPlacementIntent}/app-intents",
    params(crate::app::GroupPath, ("genericPlacementIntent" = String, Path), AppIntentQuery),
    responses((status = 200, description = "A list of documents, or one spec", body = Value)))]
pub async fn app_intents(
    State(app): State<App>,
    raw: RawPathParams,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Response, Problem> {
    let params = PathParams::from(&raw);
    let Some((_, wanted)) = query.iter().find(|(key, _)| key == "app") else {
        return drover_resources::list(&app.documents, &APP_INTENT, &params, &query).await.map(IntoResponse::into_response);
    };
    let path = params.fill(&GENERIC_PLACEMENT_INTENT.item_path())?;
    let mut tx = app.store.begin().await?;
    let parent: TypedDocument<NoSpec> =
        drover_resources::get(&mut tx, &GENERIC_PLACEMENT_INTENT, &path).await?.ok_or_else(|| Error::NotFound { what: path })?;
    let intents = drover_resources::children::<AppIntentSpec>(&mut tx, &APP_INTENT, parent.id).await?;
    let found = intents
        .into_iter()
        .find(|intent| intent.spec.app == *wanted)
        .ok_or_else(|| Error::NotFound { what: format!("an app intent of the app {wanted}") })?;
    Ok(Json(found.spec).into_response())
}
