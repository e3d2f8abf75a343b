//! The OpenAPI description of a kind's routes, made from the same value as the routes themselves.

use serde_json::{Value, json};
use utoipa::openapi::path::{Operation, PathItem, Paths, PathsBuilder};
use utoipa::openapi::{HttpMethod, OpenApi, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::Metadata;
use crate::kind::{DocumentKind, Echo, Keep, Put};

/// Adds the schemas of a kind. It panics if another schema has the same name, because utoipa would silently keep one of them.
pub(crate) fn describe(document: &mut OpenApi, kind: &DocumentKind) {
    let mut schemas = vec![(Metadata::name().into_owned(), Metadata::schema())];
    let spec_name = format!("{}Spec", kind.title);
    let mut properties = json!({"metadata": {"$ref": "#/components/schemas/Metadata"}});
    let mut required = vec!["metadata"];
    if kind.echo != Echo::Never {
        schemas.push((spec_name.clone(), (kind.spec_schema)()));
        (kind.schemas)(&mut schemas);
        properties["spec"] = json!({"$ref": format!("#/components/schemas/{spec_name}")});
    }
    if kind.echo == Echo::Always {
        required.push("spec");
    }
    schemas.push((kind.title.to_owned(), schema(json!({"type": "object", "properties": properties, "required": required}))));
    if kind.file.is_some() {
        let mut input = properties.clone();
        input["file"] = json!({"type": "string", "contentEncoding": "base64"});
        schemas.push((format!("{}Upload", kind.title), schema(json!({"type": "object", "properties": input, "required": ["metadata"]}))));
    }
    let known = &mut document.components.get_or_insert_default().schemas;
    for (name, schema) in schemas {
        let before = known.insert(name.clone(), schema.clone());
        assert!(before.is_none_or(|before| before == schema), "{}: the schema name {name} is taken by another schema", kind.name);
    }
}

fn schema(value: Value) -> RefOr<Schema> {
    serde_json::from_value(value).expect("the literal above is a schema")
}

/// The operations at one of the kind's two paths.
pub(crate) fn paths(kind: &DocumentKind, path: &str) -> Paths {
    let operations = if path == kind.collection_path() { collection(kind) } else { item(kind) };
    let parameters: Vec<Value> = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    let mut item: Option<PathItem> = None;
    for (method, mut operation) in operations {
        let all = parameters.iter().cloned().chain(operation["parameters"].as_array().cloned().unwrap_or_default()).collect();
        operation["parameters"] = Value::Array(all);
        operation["tags"] = json!([kind.tag]);
        let operation: Operation = serde_json::from_value(operation).expect("the literals below are operations");
        let one = PathItem::new(method, operation);
        match &mut item {
            Some(item) => item.merge_operations(one),
            None => item = Some(one),
        }
    }
    PathsBuilder::new().path(path, item.expect("there is always at least one operation")).build()
}

fn collection(kind: &DocumentKind) -> Vec<(HttpMethod, Value)> {
    let id = kind.name.replace('-', "_");
    let create = json!({
        "operationId": format!("{id}_create"), "summary": format!("Create a {}", kind.title), "parameters": write_parameters(),
        "requestBody": body(kind), "responses": {"201": answer(kind, "The document as it was stored")},
    });
    if kind.own_list {
        return vec![(HttpMethod::Post, create)];
    }
    let mut parameters = vec![
        query("limit", "The maximum number of documents in the response", json!({"type": "integer", "minimum": 1, "maximum": 10000})),
        query(
            "after",
            "The response starts after this document: a name, or the value in the header `Link` of the page before",
            json!({"type": "string"}),
        ),
    ];
    for (name, field) in kind.filters {
        parameters.push(query(name, &format!("Only documents whose spec.{field} has this value"), json!({"type": "string"})));
    }
    let schema = json!({"type": "array", "items": {"$ref": reference(kind)}});
    let list = json!({
        "operationId": format!("{id}_list"), "summary": format!("List all {}", kind.segment), "parameters": parameters,
        "responses": {"200": {"description": "The documents in the order of their creation; a Link header names the next page", "content": {"application/json": {"schema": schema}}}},
    });
    vec![(HttpMethod::Get, list), (HttpMethod::Post, create)]
}

fn item(kind: &DocumentKind) -> Vec<(HttpMethod, Value)> {
    let id = kind.name.replace('-', "_");
    let mut found = answer(kind, "The document");
    if let Some(file) = kind.file.filter(|file| file.keep == Keep::Table) {
        found["content"][file.content_type] = json!({"schema": {"type": "string", "format": "binary"}});
        found["content"]["multipart/form-data"] = json!({"schema": {"type": "object"}});
    }
    let if_match = json!({"name": "If-Match", "in": "header", "required": false, "description": "The ETag that must be the document's current one", "schema": {"type": "string"}});
    let get = json!({"operationId": format!("{id}_get"), "summary": format!("Read a {}", kind.title), "responses": {"200": found}});
    let mut operations = vec![
        (HttpMethod::Get, get),
        (
            HttpMethod::Delete,
            json!({"operationId": format!("{id}_delete"), "summary": format!("Delete a {}", kind.title), "parameters": [if_match.clone(), dry_run()],
            "responses": {"204": {"description": "The document was deleted"}}}),
        ),
    ];
    if kind.own_get {
        operations.remove(0);
    }
    let responses = match kind.put {
        Put::None => return operations,
        Put::Created201 => json!({"201": answer(kind, "The document as it was stored")}),
        Put::Ok200 => json!({"200": answer(kind, "The document as it was stored")}),
        Put::Upsert => json!({"200": answer(kind, "The document was replaced"), "201": answer(kind, "The document was created")}),
    };
    let mut parameters = write_parameters();
    parameters.push(if_match);
    operations.push((
        HttpMethod::Put,
        json!({"operationId": format!("{id}_put"), "summary": format!("Replace a {}", kind.title),
        "parameters": parameters, "requestBody": body(kind), "responses": responses}),
    ));
    operations
}

fn reference(kind: &DocumentKind) -> String {
    format!("#/components/schemas/{}", kind.title)
}

/// An answer with a document of this kind, and its version in the header `ETag`.
fn answer(kind: &DocumentKind, description: &str) -> Value {
    json!({"description": description, "content": {"application/json": {"schema": {"$ref": reference(kind)}}},
        "headers": {"ETag": {"description": "The version of the document", "schema": {"type": "string"}}}})
}

fn body(kind: &DocumentKind) -> Value {
    if kind.file.is_none() {
        return json!({"required": true, "content": {"application/json": {"schema": {"$ref": reference(kind)}}}});
    }
    let upload = format!("{}Upload", reference(kind));
    let form = json!({"type": "object", "required": ["metadata"], "properties": {
        "metadata": {"$ref": upload}, "file": {"type": "string", "format": "binary"}}});
    json!({"required": true, "content": {
        "application/json": {"schema": {"$ref": upload}},
        "multipart/form-data": {"schema": form},
    }})
}

fn write_parameters() -> Vec<Value> {
    vec![
        query(
            "fieldValidation",
            "Unknown keys: Warn (default) names them in a Warning header, Strict refuses the request, Ignore drops them",
            json!({"type": "string", "enum": ["Strict", "Warn", "Ignore"]}),
        ),
        dry_run(),
    ]
}

fn dry_run() -> Value {
    query("dryRun", "All: the request is checked in full and nothing is written", json!({"type": "string", "enum": ["All"]}))
}

fn query(name: &str, description: &str, schema: Value) -> Value {
    json!({"name": name, "in": "query", "required": false, "description": description, "schema": schema})
}
