//! Reads for other services, answered from own tables without calling another service.

use axum::extract::State;
use drover_api::digs::{DigHold, DigHolds, DigTerms, DocumentRef};
use drover_service::{Json, Problem, Query};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::{App, Error, GroupPath, lookup};
use crate::store::hold;

/// Names of a deployment intent group.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DigQuery {
    pub project: String,
    /// Composite app.
    #[serde(rename = "compositeApp")]
    pub composite_app: String,
    /// Its version.
    pub version: String,
    /// Deployment intent group.
    pub dig: String,
}

/// An approved group with its apps' demands and terms.
#[utoipa::path(get, path = "/internal/digs/lookup", operation_id = "dig_lookup", tag = "peer", params(DigQuery),
    responses((status = 200, description = "The group", body = DigTerms)))]
pub async fn dig(State(app): State<App>, Query(query): Query<DigQuery>) -> Result<Json<DigTerms>, Problem> {
    let DigQuery { project, composite_app, version, dig } = query;
    let path = GroupPath { project, composite_app, composite_app_version: version, deployment_intent_group: dig };
    Ok(Json(app.dig_terms(&path).await?))
}

/// Path of a document.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DocumentQuery {
    /// Its path, from `/v2`.
    pub path: String,
}

/// The uuid of a document.
#[utoipa::path(get, path = "/internal/documents/lookup", operation_id = "document_lookup", tag = "peer", params(DocumentQuery),
    responses((status = 200, description = "The document", body = DocumentRef)))]
pub async fn document(State(app): State<App>, Query(query): Query<DocumentQuery>) -> Result<Json<DocumentRef>, Problem> {
    let mut tx = app.store.begin().await?;
    let found = lookup::document(&mut tx, &query.path).await?;
    Ok(Json(found.ok_or_else(|| Error::NotFound { what: query.path })?))
}

/// Groups that operations work on.
#[utoipa::path(get, path = "/internal/holds", operation_id = "hold_list", tag = "peer",
    responses((status = 200, description = "The holds", body = DigHolds)))]
pub async fn holds(State(app): State<App>) -> Result<Json<DigHolds>, Problem> {
    let mut tx = app.store.begin().await?;
    let held = hold::all_named(&mut tx).await?;
    let items = held.into_iter().map(|(dig, path, operation)| DigHold { dig, path, operation }).collect();
    Ok(Json(DigHolds { items }))
}
