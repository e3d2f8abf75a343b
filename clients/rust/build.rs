//! Generates the client from the OpenAPI document: `openapi.json` in a package, `openapi/drover-3.0.json` in the repository.
//!
//! progenitor reads OpenAPI 3.0 and wants one form of each body and of each success, so the document is simplified first.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use progenitor_impl::{GenerationSettings, Generator};
use serde_json::{Map, Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let packaged = here.join("openapi.json");
    let path = if packaged.exists() { packaged } else { here.join("../../openapi/drover-3.0.json") };
    println!("cargo::rerun-if-changed={}", path.display());
    println!("cargo::rerun-if-changed=build.rs");
    let mut document: Value = serde_json::from_slice(&std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?)?;
    let operations = operations(&document);
    for operation in
        document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut).flat_map(Map::values_mut)
    {
        plain_parameters(operation);
        no_key(operation);
        one_body(operation);
        one_success(operation);
        name_errors(operation);
    }
    simplify(&mut document);
    let mut settings = GenerationSettings::default();
    settings.with_derive("PartialEq");
    let tokens = Generator::new(&settings).generate_tokens(&serde_json::from_value(document)?)?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    write(&out.join("client.rs"), &tokens.to_string())?;
    write(&out.join("operations.rs"), &operations)
}

fn write(path: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    Ok(std::fs::write(path, text)?)
}

/// All operations, for requests that are not typed.
fn operations(document: &Value) -> String {
    let mut text = "&[\n".to_owned();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let id = operation["operationId"].as_str().unwrap_or_default();
            let _ = writeln!(text, "Operation {{ id: {id:?}, method: {:?}, path: {path:?} }},", method.to_uppercase());
        }
    }
    text + "]\n"
}

/// Query parameters with a few words are text: a type for each of them and each operation helps nobody.
fn plain_parameters(operation: &mut Value) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten().filter(|parameter| parameter["in"] == "query") {
        if let Some(schema) = parameter.get_mut("schema").and_then(Value::as_object_mut) {
            schema.remove("enum");
        }
    }
}

/// The client makes the keys of requests itself, in `src/lib.rs`.
fn no_key(operation: &mut Value) {
    if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
        parameters.retain(|parameter| parameter["name"] != "Idempotency-Key");
    }
}

/// Of several forms of a request the JSON; files are in it as base64.
fn one_body(operation: &mut Value) {
    if let Some(content) = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut) {
        content.retain(|kind, _| kind == "application/json");
    }
}

/// Of several forms of an answer the JSON. An operation that answers differently (with `dryRun=All`, say) answers with any JSON.
fn one_success(operation: &mut Value) {
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    let mut schemas = BTreeSet::new();
    for (_, response) in responses.iter_mut().filter(|(status, _)| status.starts_with('2')) {
        if let Some(content) = response.get_mut("content").and_then(Value::as_object_mut)
            && content.contains_key("application/json")
        {
            content.retain(|kind, _| kind == "application/json");
        }
        schemas.insert(response["content"].to_string());
    }
    if schemas.len() > 1 {
        let empty = schemas.contains("null");
        for (_, response) in
            responses.iter_mut().filter(|(status, _)| status.starts_with('2')).filter_map(|(s, r)| Some((s, r.as_object_mut()?)))
        {
            if empty {
                response.remove("content");
            } else {
                response.insert("content".to_owned(), json!({"application/json": {"schema": {}}}));
            }
        }
    }
}

/// Replaces the `default` response, which is the error, by `4XX` and `5XX`: progenitor would treat it as a success as well.
fn name_errors(operation: &mut Value) {
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    if let Some(problem) = responses.remove("default") {
        responses.insert("4XX".to_owned(), problem.clone());
        responses.insert("5XX".to_owned(), problem);
    }
}

/// What progenitor does not know: the media type of problems, unsigned numbers as utoipa writes them, examples. Patterns would
/// need a crate for regular expressions; the service checks them.
fn simplify(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(problem) = object.remove("application/problem+json") {
                object.insert("application/json".to_owned(), problem);
            }
            if object.get("minimum") == Some(&json!(0)) {
                let format = match object.get("format").and_then(Value::as_str) {
                    Some("int32") => Some("uint32"),
                    Some("int64") => Some("uint64"),
                    _ => None,
                };
                if let Some(format) = format {
                    object.insert("format".to_owned(), json!(format));
                }
            }
            if object.get("pattern").is_some_and(Value::is_string) {
                object.remove("pattern");
            }
            for name in ["examples", "example", "contentEncoding"] {
                if !object.get(name).is_some_and(|inner| inner.get("type").is_some() || inner.get("$ref").is_some()) {
                    object.remove(name);
                }
            }
            object.values_mut().for_each(simplify);
        }
        Value::Array(array) => array.iter_mut().for_each(simplify),
        _ => {}
    }
}
