//! `openapi/drover.json`: all public operations of all services in one OpenAPI document, as the gateway serves it, and
//! `openapi/drover-3.0.json`: the same in OpenAPI 3.0, for generators that do not read 3.1.
//!
//! Made from the services' documents in openapi/, so that it can be made while no service compiles. Operations below `/internal` are left
//! out, and so are schemas that only they use.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};

use crate::clients::projection::nullable;
use crate::{File, examples, root};

const SERVICES: [&str; 6] = ["gateway", "orchestrator", "migration", "placement", "cluster-manager", "resource-synchronizer"];

/// Tag of operations that services request from each other too.
const PEER: &str = "peer";

/// Schemas in a document, by name.
const SCHEMAS: &str = "#/components/schemas/";

const DESCRIPTION: &str = "Drover runs applications on many Kubernetes clusters, fills the preferred cloud first, and makes room there by \
     moving movable applications. Errors are `application/problem+json`; each code has a page below /docs/errors. Work that takes long is \
     answered 202 with the path of an operation in `Location`.";

/// The tags in the order in which a newcomer meets them, with what their operations are about.
const TAGS: &[(&str, &str)] = &[
    ("cluster-providers", "Clouds, and how early each is filled"),
    ("clusters", "Clusters (members): registration, checks, cordons, room"),
    ("projects", "Projects, and the defaults of their applications"),
    ("logical-clouds", "The clusters that the apps of a project may use, and what they may write there"),
    ("cluster-references", "Clusters of a logical cloud"),
    ("composite-apps", "Composite apps and their versions"),
    ("apps", "Apps of a composite app, with their charts or manifests"),
    ("composite-profiles", "Sets of profiles"),
    ("profiles", "Changes of charts for one use"),
    ("dependency", "Apps that wait for other apps"),
    ("deployment-intent-groups", "Deployment intent groups: what is instantiated"),
    ("generic-placement-intents", "Sets of placement intents"),
    ("app-intents", "Where an app may run"),
    ("migration-intents", "Whether and how readily apps may be moved"),
    ("intents", "The intents that a deployment intent group uses"),
    ("call-graphs", "Which apps call each other, and how much"),
    ("lifecycle", "Approve, instantiate, update, roll back, migrate, stop and terminate groups, and their status"),
    ("routes", "Addresses at which users reach apps wherever they run"),
    ("operations", "Work that takes long: follow and cancel it"),
    ("plans", "What would have to move, before anything happens"),
    ("decisions", "Where apps run, and why there and not elsewhere"),
    ("migration-policies", "By what victims are chosen"),
    ("migration-algorithms", "Ways to choose victims"),
    ("migration-parameters", "Values that policies read, which operators add"),
    ("generic-k8s-intents", "EMCO's generic action controller: additional objects and changes of objects"),
    ("traffic-intents", "EMCO's traffic controller: who may reach an app"),
    ("hpa-intents", "EMCO's hardware placement: what nodes must have"),
    ("user-permissions", "What the user of a logical cloud may do"),
    ("cluster-quotas", "Quotas of a logical cloud"),
    ("controllers", "EMCO's placement and action controllers"),
    ("clm-controllers", "EMCO's controllers of clusters"),
    ("dtc-controllers", "EMCO's controllers of traffic"),
    ("kept", "EMCO's documents that are stored and not carried out"),
    ("agents", "Drover's own agents: which clusters run them, and how far that is"),
    ("access", "Who may do what: tokens, role bindings, the audit log, signing browsers in"),
];

/// Both documents.
///
/// # Errors
/// A service's document cannot be read, or the documents do not fit together.
pub fn files() -> anyhow::Result<Vec<File>> {
    let read = |service: &str| -> anyhow::Result<Value> {
        let path = root().join("openapi").join(format!("{service}.json"));
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(serde_json::from_str(&text)?)
    };
    let documents = SERVICES.into_iter().map(|service| Ok((service, read(service)?))).collect::<anyhow::Result<Vec<_>>>()?;
    let mut public = merge(&documents)?;
    // The document in 3.0 is for generators, which do not use examples.
    let generators = in_3_0(public.clone());
    let recorded = std::fs::read_to_string(root().join("tests/contract/examples.json")).context("cannot read the examples")?;
    let recorded: Map<String, Value> = serde_json::from_str(&recorded)?;
    examples::add(&mut public, recorded)?;
    let file = |name: &str, document: &Value| Ok(File { path: root().join("openapi").join(name), text: text(document)? });
    [file("drover.json", &public), file("drover-3.0.json", &generators)].into_iter().collect()
}

/// A line per value, without indentation: changes can be reviewed, and the gateway, which contains both texts, stays small.
fn text(document: &Value) -> anyhow::Result<String> {
    let mut text = Vec::new();
    document.serialize(&mut Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b"")))?;
    text.push(b'\n');
    Ok(String::from_utf8(text)?)
}

/// The public operations of all documents in one.
fn merge(documents: &[(&str, Value)]) -> anyhow::Result<Value> {
    let (mut paths, mut schemas, mut ids) = (Map::new(), Map::new(), BTreeSet::new());
    for (service, document) in documents {
        for (path, item) in document["paths"].as_object().into_iter().flatten().filter(|(path, _)| !path.starts_with("/internal")) {
            for (method, operation) in item.as_object().into_iter().flatten() {
                let mut operation = operation.clone();
                if let Some(tags) = operation["tags"].as_array_mut() {
                    tags.retain(|tag| tag != PEER);
                }
                describe(&mut operation);
                if method == "post" {
                    repeatable(&mut operation);
                }
                let id = operation["operationId"].as_str().with_context(|| format!("{method} {path} has no operationId"))?;
                ensure!(ids.insert(id.to_owned()), "two operations have the id {id}");
                let there = paths.entry(path.as_str()).or_insert_with(|| json!({})).as_object_mut().context("a path is not an object")?;
                used(&operation, &document["components"]["schemas"], service, &mut schemas)?;
                ensure!(there.insert(method.clone(), operation).is_none(), "two services serve {method} {path}");
            }
        }
    }
    for (name, schema) in &schemas {
        camel_case(schema).with_context(|| format!("in the schema {name}"))?;
    }
    let tags = tags(&paths)?;
    Ok(json!({
        "openapi": "3.1.0",
        "info": {"title": "Drover", "version": env!("CARGO_PKG_VERSION"), "description": DESCRIPTION,
            "contact": {"name": "Drover"},
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "servers": [{"url": "/", "description": "The gateway that serves this document"}],
        "security": [{"token": []}],
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "The API token; see docs/security.md"}},
        },
    }))
}

/// Makes the first sentence of an operation's text its summary, and the whole text its description: handlers have one text.
fn describe(operation: &mut Value) {
    let summary = operation["summary"].as_str().unwrap_or_default().replace('\n', " ");
    let rest = operation["description"].as_str().map(|rest| format!(" {}", rest.replace('\n', " "))).unwrap_or_default();
    let whole = format!("{}{rest}", summary.trim_end_matches('.').to_owned() + ".");
    let first = whole.split_once(". ").map_or(whole.as_str(), |(first, _)| first).trim_end_matches('.');
    operation["summary"] = first.into();
    operation["description"] = whole.into();
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten();
    for parameter in parameters.filter(|parameter| parameter["description"].is_null()) {
        let name = parameter["name"].as_str().unwrap_or_default();
        parameter["description"] = if name == "id" { "Its id".into() } else { format!("Name of the {}", words(name)).into() };
    }
}

/// The header that the gateway understands at each POST.
fn repeatable(operation: &mut Value) {
    let key = json!({"name": "Idempotency-Key", "in": "header", "required": false, "schema": {"type": "string", "minLength": 1, "maxLength": 200},
        "description": "A new value for each request, for example a UUID. The request can be repeated with it when its answer was lost: it is \
            carried out once, and answered as it was the first time, for 24 hours"});
    match operation.get_mut("parameters").and_then(Value::as_array_mut) {
        Some(parameters) => parameters.push(key),
        None => operation["parameters"] = json!([key]),
    }
}

/// `clusterProvider` as words.
fn words(name: &str) -> String {
    let word = |c: char| if c.is_uppercase() { format!(" {}", c.to_lowercase()) } else { c.to_string() };
    name.chars().map(word).collect()
}

/// Adds the schemas that `value` refers to, and those that they refer to.
fn used(value: &Value, known: &Value, service: &str, schemas: &mut Map<String, Value>) -> anyhow::Result<()> {
    match value {
        Value::Object(object) => {
            if let Some(name) = object.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix(SCHEMAS)) {
                let schema = known.get(name).with_context(|| format!("{service} has no schema {name}"))?;
                if let Some(other) = schemas.get(name) {
                    ensure!(other == schema, "{service} has another schema {name} than a service before it; rename one of them");
                } else {
                    schemas.insert(name.to_owned(), schema.clone());
                    used(schema, known, service, schemas)?;
                }
            }
            object.values().try_for_each(|inner| used(inner, known, service, schemas))
        }
        Value::Array(array) => array.iter().try_for_each(|inner| used(inner, known, service, schemas)),
        _ => Ok(()),
    }
}

/// Refuses properties with names in snake_case: clients meet one spelling.
fn camel_case(schema: &Value) -> anyhow::Result<()> {
    for name in schema["properties"].as_object().into_iter().flat_map(Map::keys) {
        ensure!(!name.contains('_'), "the name {name} is not camelCase; see #[serde(rename_all)]");
    }
    match schema {
        Value::Object(object) => object.values().try_for_each(camel_case),
        Value::Array(array) => array.iter().try_for_each(camel_case),
        _ => Ok(()),
    }
}

/// [`TAGS`] for the document. Every tag of an operation must be among them.
fn tags(paths: &Map<String, Value>) -> anyhow::Result<Vec<Value>> {
    let mut seen = BTreeSet::new();
    for operation in paths.values().flat_map(|item| item.as_object().into_iter().flat_map(Map::values)) {
        seen.extend(operation["tags"].as_array().into_iter().flatten().filter_map(Value::as_str));
    }
    let known: BTreeSet<&str> = TAGS.iter().map(|(tag, _)| *tag).collect();
    ensure!(seen == known, "tags without a description or without operations: {:?}", seen.symmetric_difference(&known));
    Ok(TAGS.iter().map(|(name, description)| json!({"name": name, "description": description})).collect())
}

/// The document in OpenAPI 3.0. Restrictions of the names of properties are lost, which 3.0 cannot express.
fn in_3_0(mut document: Value) -> Value {
    fn convert(value: &mut Value) {
        match value {
            Value::Object(object) => {
                nullable(object);
                object.remove("propertyNames");
                object.values_mut().for_each(convert);
            }
            Value::Array(array) => array.iter_mut().for_each(convert),
            _ => {}
        }
    }
    convert(&mut document);
    document["openapi"] = "3.0.3".into();
    document["info"]["license"] = json!({"name": "Apache-2.0"});
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(path: &str, operation: Value, schemas: Value) -> Value {
        json!({"paths": {path: {"get": operation}}, "components": {"schemas": schemas}})
    }

    #[test]
    fn public_documents_are_up_to_date() {
        crate::settle(&files().unwrap(), true).expect("run `cargo run -p xtask -- public`");
    }

    #[test]
    fn merge_refuses_schemas_of_one_name_that_differ() {
        let operation = |id: &str| json!({"operationId": id, "summary": "One", "tags": ["apps"], "responses": {"200": {"$ref": "#/components/schemas/App"}}});
        let one = document("/v2/a", operation("a"), json!({"App": {"type": "object"}}));
        let other = document("/v2/b", operation("b"), json!({"App": {"type": "string"}}));
        let error = merge(&[("one", one), ("other", other)]).unwrap_err().to_string();
        assert!(error.starts_with("other has another schema App"), "{error}");
    }

    #[test]
    fn merge_refuses_names_in_snake_case() {
        let operation = json!({"operationId": "a", "tags": ["apps"], "responses": {"200": {"$ref": "#/components/schemas/App"}}});
        let app = json!({"App": {"allOf": [{"type": "object", "properties": {"created_at": {"type": "string"}}}]}});
        let error = format!("{:#}", merge(&[("one", document("/v2/a", operation, app))]).unwrap_err());
        assert!(error.contains("schema App") && error.contains("created_at"), "{error}");
    }

    #[test]
    fn merge_refuses_tags_that_are_not_described() {
        let unknown = document("/v2/a", json!({"operationId": "a", "tags": ["odd"]}), json!({}));
        let error = merge(&[("one", unknown)]).unwrap_err().to_string();
        assert!(error.contains("\"odd\""), "{error}");
    }

    #[test]
    fn document_has_no_internal_operation_and_no_unused_schema() {
        let files = files().unwrap();
        let document: Value = serde_json::from_str(&files[0].text).unwrap();
        let (paths, schemas) = (document["paths"].as_object().unwrap(), document["components"]["schemas"].as_object().unwrap());
        assert!(paths.len() > 100 && paths.keys().all(|path| path.starts_with("/v2/")), "{:?}", paths.keys());
        for name in schemas.keys() {
            let reference = format!("\"{SCHEMAS}{name}\"");
            assert!(files[0].text.contains(&reference), "nothing uses {name}");
        }
        assert!(!files[1].text.contains("\"null\""), "OpenAPI 3.0 has no type null");
    }
}
