//! Reads request bodies: JSON, or EMCO's multipart form with the fields `metadata` and `file`.

use axum::body::Body;
use axum::extract::{FromRequest, Multipart, Request};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use drover_service::{Problem, codes, extract};
use http::request::Parts;
use http::{HeaderValue, header};

use crate::envelope::{Incoming, decode, one};
use crate::kind::{DocumentKind, UploadedFile};

/// Reads and decodes a body of a kind.
pub(super) async fn read(kind: &DocumentKind, parts: &Parts, body: Body) -> Result<Incoming, Problem> {
    let bytes = extract::read(parts, body).await?;
    if bytes.is_empty() {
        return Err(codes::EMPTY_BODY.problem("Empty body"));
    }
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let incoming = if content_type.to_ascii_lowercase().starts_with("multipart/form-data") {
        let many = kind.file.is_some_and(|file| file.many);
        let (json, file) = form(parts, bytes, many).await?;
        decode(kind, &json, file)?
    } else {
        extract::expect_json(&parts.headers)?;
        decode(kind, &bytes, None)?
    };
    if let (Some(rules), Some(file)) = (&kind.file, &incoming.file) {
        if file.len() > rules.max_bytes {
            return Err(codes::TOO_LARGE.problem(format!("The file is larger than {} bytes", rules.max_bytes)));
        }
        // Unpacking an archive and reading YAML takes up to a second.
        let (check, file) = (rules.check, file.clone());
        let checked = tokio::task::spawn_blocking(move || check(&file)).await;
        checked.map_err(|error| codes::INTERNAL.problem(error.to_string()))?.map_err(crate::ResourceError::from)?;
    }
    Ok(incoming)
}

/// Whether a body can be read as a document of this kind: what a request does before it needs the store.
///
/// # Errors
/// As the answer to the request would be.
pub async fn check_body(kind: &DocumentKind, content_type: HeaderValue, body: Bytes) -> Result<(), Problem> {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.headers.insert(header::CONTENT_TYPE, content_type);
    read(kind, &parts, Body::from(body)).await.map(drop)
}

async fn form(parts: &Parts, bytes: Bytes, many: bool) -> Result<(Bytes, Option<Bytes>), Problem> {
    let broken = |error: &dyn std::fmt::Display| codes::MALFORMED_UPLOAD.problem(format!("The form cannot be read: {error}"));
    // The extensions of the request lift axum's own limit; the body was already read within the limit of the route.
    let request = Request::from_parts(parts.clone(), Body::from(bytes));
    let mut form = Multipart::from_request(request, &()).await.map_err(|error| broken(&error))?;
    let (mut metadata, mut file, mut files) = (None, None, Vec::new());
    while let Some(field) = form.next_field().await.map_err(|error| broken(&error))? {
        let name = field.name().unwrap_or_default().to_owned();
        let file_name = field.file_name().unwrap_or_default().to_owned();
        let bytes = field.bytes().await.map_err(|error| broken(&error))?;
        match name.as_str() {
            "metadata" => metadata = Some(bytes),
            "file" | "files" if many => files.push(UploadedFile { name: file_name, content: STANDARD.encode(bytes) }),
            "file" => file = Some(bytes),
            _ => {}
        }
    }
    let metadata = metadata.ok_or_else(|| codes::EMPTY_BODY.problem("Empty body: the form has no field `metadata`"))?;
    let files = (!files.is_empty()).then(|| one(&files)).transpose()?;
    Ok((metadata, file.or(files)))
}
