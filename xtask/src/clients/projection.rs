//! From the OpenAPI 3.1 that services describe themselves with to the 3.0 that progenitor reads, peer operations only.
//!
//! Schemas of components are left empty: each of them stands for a type of libs/api, so nobody looks inside.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};

/// Services ask each other operations with this tag.
const TAG: &str = "peer";

/// The projected document and the names of the schemas that its operations use.
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

/// The `default` answer is the problem. progenitor would take it for one of success too.
fn name_errors(operation: &mut Value) {
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    if let Some(problem) = responses.remove("default") {
        responses.insert("4XX".to_owned(), problem.clone());
        responses.insert("5XX".to_owned(), problem);
    }
}

/// Everything below `value` in the words of 3.0, and which schemas it refers to.
fn simplify(value: &mut Value, schemas: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            if let Some(name) = object.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/components/schemas/")) {
                schemas.insert(name.to_owned());
            }
            // An error of an unknown media type would be a stream of bytes.
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

/// `type: [T, null]` and `oneOf: [null, T]` are 3.1's `nullable: true`.
fn nullable(object: &mut Map<String, Value>) {
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

/// utoipa says `minimum: 0` of unsigned numbers, progenitor knows them by their format.
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
