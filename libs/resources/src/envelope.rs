//! The JSON around a spec (metadata, file): decodes and checks request bodies, and makes response bodies.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use drover_service::extract::undecodable;
use drover_service::{Problem, codes};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::kind::{Checked, DocumentKind, Echo, Invalid, Place, UploadedFile, is_name, readable};
use crate::{Document, Metadata, ResourceError};

/// A decoded request body.
pub(crate) struct Incoming {
    pub metadata: Metadata,
    pub spec: Option<Value>,
    pub file: Option<Bytes>,
    pub ignored: Vec<String>,
}

#[derive(Deserialize)]
struct Envelope {
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Value>,
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    files: Option<Vec<UploadedFile>>,
}

/// Decodes the JSON of a body; `upload` is the file of a multipart body.
pub(crate) fn decode(kind: &DocumentKind, json: &[u8], upload: Option<Bytes>) -> Result<Incoming, Problem> {
    if json.is_empty() {
        return Err(codes::EMPTY_BODY.problem("Empty body"));
    }
    let mut ignored = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let envelope: Envelope = serde_ignored::deserialize(&mut deserializer, |path| ignored.push(readable(&path.to_string())))
        .and_then(|envelope| deserializer.end().map(|()| envelope))
        .map_err(|error| undecodable(&error))?;
    let inline = match envelope.file {
        Some(_) if kind.file.is_none() => {
            ignored.push("file".to_owned());
            None
        }
        Some(text) => Some(
            STANDARD
                .decode(text.split_ascii_whitespace().collect::<String>())
                .map_err(|error| codes::MALFORMED_UPLOAD.problem(format!("Unable to process file: `file` is not base64: {error}")))?,
        ),
        None => None,
    };
    let many = match envelope.files {
        Some(_) if !kind.file.is_some_and(|file| file.many) => {
            ignored.push("files".to_owned());
            None
        }
        Some(files) => Some(one(&files)?),
        None => None,
    };
    let file = upload.or(inline.map(Bytes::from)).or(many);
    Ok(Incoming { metadata: envelope.metadata, spec: envelope.spec, file, ignored })
}

/// Several files as they are stored.
pub(crate) fn one(files: &[UploadedFile]) -> Result<Bytes, Problem> {
    for file in files {
        STANDARD.decode(&file.content).map_err(|error| {
            codes::MALFORMED_UPLOAD.problem(format!("Unable to process file: the content of {} is not base64: {error}", file.name))
        })?;
    }
    serde_json::to_vec(files).map(Bytes::from).map_err(Problem::internal)
}

/// Checks metadata and spec, and returns the spec as it is to be stored.
pub(crate) fn check(kind: &DocumentKind, incoming: &Incoming, at: &Place<'_>) -> Result<Checked, ResourceError> {
    let Metadata { name, description, user_data1, user_data2 } = &incoming.metadata;
    let mut reasons = Vec::new();
    if !is_name(name) {
        reasons.push(format!("metadata.name: {name:?} does not match ^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$ or is longer than 128"));
    }
    for (field, value, limit) in [("description", description, 1024), ("userData1", user_data1, 512), ("userData2", user_data2, 512)] {
        if value.chars().count() > limit {
            reasons.push(format!("metadata.{field}: longer than {limit} characters"));
        }
    }
    if incoming.spec.as_ref().is_some_and(has_nul) || [description, user_data1, user_data2].iter().any(|text| text.contains('\0')) {
        reasons.push("text must not contain the character NUL, which the database cannot hold".to_owned());
    }
    Invalid::unless_empty(reasons)?;
    let sent = incoming.spec.as_ref().is_some_and(|spec| !spec.is_null());
    let mut checked = (kind.check)(name, incoming.spec.clone(), at)?;
    if kind.echo == Echo::Never || (kind.echo == Echo::IfSent && !sent) {
        checked.spec = Value::Null;
    }
    if kind.echo == Echo::Never && sent {
        checked.ignored = vec!["spec".to_owned()];
    }
    Ok(checked)
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The JSON of a document for clients.
pub fn output(kind: &DocumentKind, document: &Document) -> Value {
    let mut metadata = json!(document.metadata);
    if kind.lean_metadata
        && let Some(fields) = metadata.as_object_mut()
    {
        fields.retain(|key, value| key == "name" || value != "");
    }
    let mut output = Map::from_iter([("metadata".to_owned(), metadata)]);
    if !document.spec.is_null() {
        output.insert("spec".to_owned(), document.spec.clone());
    }
    Value::Object(output)
}
