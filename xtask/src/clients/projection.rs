//! Converts a service's OpenAPI 3.1 document to the 3.0 that progenitor reads, with the peer operations only.
//!
//! Schemas of components are left empty, because each of them is replaced by a type of libs/api.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};

/// Tag of the operations that services request from each other.
const TAG: &str = "peer";

/// The converted document, and the names of the schemas that its operations use.
///
/// # Errors
/// The document has no paths, or no operation with the tag `peer`.
pub fn project(document: &Value) -> anyhow::Result<(Value, BTreeSet<String>)> {
    let mut paths = document["paths"].as_object().context("a document without paths")?.clone();
    for item in paths.values_mut() {
        let item = item.as_object_mut().context("a path without operations")?;
        item.retain(|_, operation| operation["tags"].as_array().is_some_and(|tags| tags.contains(&json!(TAG))));
        item.values_mut().for_each(name_errors);
    }
    paths.retain(|_, item| item.as_object().is_some_and(|item| !item.is_empty()));
    ensure!(!paths.is_empty(), "no operation is tagged {TAG:?}");
    let mut paths = Value::Object(paths);
    let mut schemas = BTreeSet::new();
    simplify(&mut paths, &mut schemas);
    let components: BTreeMap<_, _> = schemas.iter().map(|name| (name, json!({"type": "object"}))).collect();
    let info = json!({"title": document["info"]["title"], "version": document["info"]["version"]});
    Ok((json!({"openapi": "3.0.3", "info": info, "paths": paths, "components": {"schemas": components}}), schemas))
}

/// Replaces the `default` response, which is the error, by `4XX` and `5XX`: progenitor would treat it as a success as well.
fn name_errors(operation: &mut Value) {
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    if let Some(problem) = responses.remove("default") {
        responses.insert("4XX".to_owned(), problem.clone());
        responses.insert("5XX".to_owned(), problem);
    }
}

/// Converts everything below `value` to OpenAPI 3.0, and collects the schemas that it refers to.
fn simplify(value: &mut Value, schemas: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            if let Some(name) = object.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/components/schemas/")) {
                schemas.insert(name.to_owned());
            }
            // progenitor treats media types that it does not know as streams of bytes.
            if let Some(problem) = object.remove("application/problem+json") {
                object.insert("application/json".to_owned(), problem);
            }
            nullable(object);
            unsigned(object);
            object.values_mut().for_each(|inner| simplify(inner, schemas));
        }
        Value::Array(array) => array.iter_mut().for_each(|inner| simplify(inner, schemas)),
        _ => {}
    }
}

/// Converts `type: [T, null]` and `oneOf: [null, T]` of 3.1 to `nullable: true`.
pub fn nullable(object: &mut Map<String, Value>) {
    let null = json!("null");
    if let Some(kinds) = object.get_mut("type").and_then(Value::as_array_mut) {
        kinds.retain(|kind| *kind != null);
        if let [kind] = kinds.as_slice() {
            let kind = kind.clone();
            object.insert("type".to_owned(), kind);
            object.insert("nullable".to_owned(), json!(true));
        }
    }
    if let Some(choices) = object.get_mut("oneOf").and_then(Value::as_array_mut) {
        choices.retain(|choice| choice["type"] != null);
        if let [choice] = choices.as_slice() {
            let choice = choice.clone();
            object.remove("oneOf");
            object.insert("allOf".to_owned(), json!([choice]));
            object.insert("nullable".to_owned(), json!(true));
        }
    }
}

/// utoipa marks unsigned numbers by `minimum: 0`; progenitor recognises them by their format.
fn unsigned(object: &mut Map<String, Value>) {
    if object.get("minimum") == Some(&json!(0)) {
        let format = match object.get("format").and_then(Value::as_str) {
            Some("int32") => "uint32",
            Some("int64") => "uint64",
            _ => return,
        };
        object.insert("format".to_owned(), json!(format));
    }
}
