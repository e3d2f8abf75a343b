//! One kv-pair document of a cluster, or the value of one of its keys (`?key=`).

use axum::extract::{RawPathParams, State};
use axum::response::{IntoResponse, Response};
use drover_resources::{Metadata, PathParams};
use drover_service::{Json, Problem, Query, codes};
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::resources::kv_pair::{KV_PAIR, KvPairSpec};

/// Selects one key.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct KvPairQuery {
    /// Return only the value of this key.
    pub key: Option<String>,
}

/// The value of one key, or the whole document.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "the document is built by libs/resources; this type only describes it")]
pub enum Found {
    /// With `?key=`.
    Value { value: String },
    /// Otherwise.
    Document { metadata: Metadata, spec: KvPairSpec },
}

/// Returns a kv-pair document of a cluster, or the value of one key.
#[utoipa::path(get, path = "/v2/cluster-providers/{clusterProvider}/clusters/{cluster}/kv-pairs/{clusterKv}", operation_id = "cluster_kv_pair_get",
    tag = "clusters", params(("clusterProvider" = String, Path), ("cluster" = String, Path), ("clusterKv" = String, Path), KvPairQuery),
    responses((status = 200, description = "The document, or the value", body = Found)))]
pub async fn get(state: State<App>, raw: RawPathParams, query: Query<KvPairQuery>, headers: HeaderMap) -> Result<Response, Problem> {
    let (app, params) = (state.0, PathParams::from(&raw));
    let Some(key) = query.0.key else {
        return drover_resources::get_one(&app.documents, &KV_PAIR, &params, &headers).await;
    };
    let path = params.fill(&KV_PAIR.item_path())?;
    let document = app.document::<KvPairSpec>(&KV_PAIR, &path).await?;
    let pairs = drover_resources::opened(&app.store, &KV_PAIR, &document)?.kv;
    let value = pairs.into_iter().find_map(|mut pair| pair.remove(&key));
    let value = value.ok_or_else(|| codes::NOT_FOUND.problem(format!("{path} has no key {key}")))?;
    Ok(Json(Found::Value { value }).into_response())
}
