//! The built-in algorithms and parameters, stored once as ordinary documents.
//!
//! An operator may change them, and delete those without references. A deleted one is not made again by a restart or a new version.

use axum::body::Body;
use axum::extract::Request;
use drover_resources::{DocumentKind, Documents, PathParams, create};
use drover_scheduling::{builtin_algorithms, builtin_parameters};
use drover_service::Problem;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::algorithm::{ALGORITHM, AlgorithmSpec};
use super::parameter::{PARAMETER, ParameterSpec};
use crate::store::side;

/// Makes the documents that were never made before. Parameters come first, because expressions refer to them.
///
/// # Errors
/// A document cannot be stored.
pub async fn make(documents: &Documents) -> Result<(), Problem> {
    for (name, parameter) in builtin_parameters() {
        once(documents, &PARAMETER, &name, ParameterSpec::from(parameter)).await?;
    }
    for (name, algorithm) in builtin_algorithms() {
        once(documents, &ALGORITHM, &name, AlgorithmSpec::from(algorithm)).await?;
    }
    Ok(())
}

async fn once(documents: &Documents, kind: &'static DocumentKind, name: &str, spec: impl Serialize) -> Result<(), Problem> {
    let path = format!("{}/{name}", kind.collection_path());
    if side::is_made(&documents.store, &path).await? {
        return Ok(());
    }
    let mut spec = serde_json::to_value(spec).map_err(Problem::internal)?;
    spec.as_object_mut().map(without_nulls);
    let body = json!({"metadata": {"name": name, "description": "built in"}, "spec": spec});
    let request = Request::new(Body::from(body.to_string()));
    match create(documents, kind, &PathParams::default(), &Default::default(), request).await {
        Ok(_) => {}
        // Another process made it at the same time, or an operator made one with this name.
        Err(problem) if problem.code() == drover_service::codes::ALREADY_EXISTS => {}
        Err(problem) => return Err(problem),
    }
    Ok(side::note_made(&documents.store, &path).await?)
}

fn without_nulls(spec: &mut Map<String, Value>) {
    spec.retain(|_, value| !value.is_null());
}
