//! Puts what tests/contract/tour.py recorded (`tests/contract/examples.json`) into the public document: for each operation an example of its
//! parameters, its body, each success and each error code. They are requests and answers of a running Drover, so they are true.

use anyhow::Context;
use serde_json::{Map, Value, json};

const PROBLEM: &str = "application/problem+json";

/// The key of problems that every operation can answer.
const EVERY: &str = "every operation";

/// Problems of every operation that are about the header `Idempotency-Key`, so that only a POST has them.
const OF_KEYS: [&str; 3] = ["answer_not_kept", "idempotency_key_in_use", "idempotency_key_reused"];

/// The problem of every operation that only writes can answer.
const OF_WRITES: &str = "origin_refused";

/// Problems of bodies: an operation answers those for which it has an exchange of its own, which may be empty.
const OF_BODIES: [&str; 3] = ["empty_body", "malformed_json", "unsupported_media_type"];

/// Adds the examples to a document.
///
/// # Errors
/// An operation has no examples, or the examples are of an operation that does not exist.
pub fn add(document: &mut Value, mut recorded: Map<String, Value>) -> anyhow::Result<()> {
    let general = recorded.remove(EVERY);
    let general: Vec<(&String, &Value)> = general.iter().flat_map(|codes| codes.as_object()).flatten().collect();
    let shared: Map<String, Value> = general.iter().map(|(code, exchange)| ((*code).clone(), problem(exchange))).collect();
    if !shared.is_empty() {
        document["components"]["examples"] = Value::Object(shared);
    }
    let paths = document["paths"].as_object_mut().context("the document has no paths")?;
    for (path, item) in paths.iter_mut() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
            let exchanges = recorded.remove(&id);
            let exchanges =
                exchanges.with_context(|| format!("{id} has no example; record them again (tests/tests/clients/contract.rs says how)"))?;
            for (key, exchange) in exchanges.as_object().into_iter().flatten().filter(|(_, exchange)| **exchange != json!({})) {
                add_exchange(operation, path, key, exchange);
            }
            let concerns = |code: &str| match code {
                OF_WRITES => method != "get",
                code if OF_BODIES.contains(&code) => exchanges.get(code).is_some(),
                code => method == "post" || !OF_KEYS.contains(&code),
            };
            for (code, _) in general.iter().filter(|(code, _)| concerns(code)) {
                if let Some(examples) = problems(operation) {
                    examples.entry(code.as_str()).or_insert_with(|| json!({"$ref": format!("#/components/examples/{code}")}));
                }
            }
        }
    }
    anyhow::ensure!(recorded.is_empty(), "examples of operations that do not exist: {:?}", recorded.keys().collect::<Vec<_>>());
    Ok(())
}

/// The examples of an operation's problems, by code.
fn problems(operation: &mut Value) -> Option<&mut Map<String, Value>> {
    let media = operation.pointer_mut("/responses/default/content/application~1problem+json")?.as_object_mut()?;
    media.entry("examples").or_insert_with(|| json!({})).as_object_mut()
}

/// A document as the parts of a form.
fn in_parts(body: &Value) -> Value {
    let mut document = body.clone();
    let file = document.as_object_mut().and_then(|document| document.remove("file"));
    let mut parts = json!({"metadata": document});
    if file.is_some() {
        parts["file"] = "(the bytes of the file)".into();
    }
    parts
}

/// The example of a problem.
fn problem(exchange: &Value) -> Value {
    json!({"summary": exchange["answer"]["title"], "value": exchange["answer"]})
}

/// Adds an exchange: `key` is the status of a success, or the code of a problem.
fn add_exchange(operation: &mut Value, template: &str, key: &str, exchange: &Value) {
    let kind = exchange["type"].as_str().unwrap_or_default();
    let media = |place: String| format!("{place}/content/{}", kind.replace('/', "~1"));
    if kind == PROBLEM {
        if let Some(examples) = problems(operation) {
            examples.insert(key.to_owned(), problem(exchange));
        }
        return;
    }
    if let Some(Value::Object(media)) = operation.pointer_mut(&media(format!("/responses/{key}"))) {
        media.insert("example".to_owned(), exchange["answer"].clone());
    }
    if let Some(body) = exchange.get("body") {
        let mut give = |kind: &str, example: Value| {
            if let Some(Value::Object(media)) = operation.pointer_mut(&format!("/requestBody/content/{kind}")) {
                media.entry("example").or_insert(example);
            }
        };
        give("application~1json", body.clone());
        give("multipart~1form-data", in_parts(body));
    }
    parameters(operation, template, exchange["request"].as_str().unwrap_or_default());
}

/// Gives the parameters in the path the values that they had in `METHOD path?query`.
fn parameters(operation: &mut Value, template: &str, request: &str) {
    let path = request.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
    for (name, value) in template.split('/').zip(path.split('/')) {
        let Some(name) = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')) else { continue };
        let known = operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten();
        for parameter in known.filter(|parameter| parameter["in"] == "path" && parameter["name"] == name) {
            if let Some(parameter) = parameter.as_object_mut() {
                parameter.entry("example").or_insert_with(|| value.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Value {
        let json = |schema: Value| json!({"application/json": {"schema": schema}});
        let operation = json!({
            "operationId": "app_put", "parameters": [{"name": "app", "in": "path"}], "requestBody": {"content": json(json!({}))},
            "responses": {"200": {"content": json(json!({}))}, "default": {"content": {"application/problem+json": {}}}},
        });
        json!({"paths": {"/v2/apps/{app}": {"put": operation}}, "components": {}})
    }

    #[test]
    fn examples_of_request_answer_and_problem_are_added() {
        let success = json!({"request": "PUT /v2/apps/web?dryRun=All", "body": {"a": 1}, "status": 200, "type": "application/json", "answer": {"b": 2}});
        let problem = json!({"request": "PUT /v2/apps/web", "type": "application/problem+json", "answer": {"title": "Not found"}});
        let every = json!({"forbidden": problem, "not_found": {}, "idempotency_key_reused": {}, "empty_body": {}, "malformed_json": {}});
        let mut document = document();
        let recorded = json!({"app_put": {"200": success, "not_found": problem, "empty_body": {}}, EVERY: every});
        add(&mut document, recorded.as_object().cloned().unwrap()).unwrap();
        let operation = &document["paths"]["/v2/apps/{app}"]["put"];
        assert_eq!(operation["parameters"][0]["example"], "web");
        assert_eq!(operation["requestBody"]["content"]["application/json"]["example"], json!({"a": 1}));
        assert_eq!(operation["responses"]["200"]["content"]["application/json"]["example"], json!({"b": 2}));
        let examples = &operation["responses"]["default"]["content"]["application/problem+json"]["examples"];
        assert_eq!(examples["not_found"]["summary"], "Not found");
        assert_eq!(examples["forbidden"], json!({"$ref": "#/components/examples/forbidden"}));
        assert_eq!(document["components"]["examples"]["forbidden"]["summary"], "Not found");
        assert!(examples.get("idempotency_key_reused").is_none(), "only a POST has a key");
        assert_eq!(examples["empty_body"], json!({"$ref": "#/components/examples/empty_body"}));
        assert!(examples.get("malformed_json").is_none(), "this operation does not answer it");
    }

    #[test]
    fn operations_without_examples_and_examples_without_operation_are_errors() {
        assert!(add(&mut document(), Map::new()).unwrap_err().to_string().starts_with("app_put has no example"));
        let other = json!({"app_put": {}, "gone": {}}).as_object().cloned().unwrap();
        assert!(add(&mut document(), other).unwrap_err().to_string().contains("gone"));
    }
}
