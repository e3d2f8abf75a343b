//! Reads documents: one, its file, or a page of a list.

use axum::response::{IntoResponse, Response};
use drover_service::{Problem, codes};
use drover_store::StoreError;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Documents, Params, PathParams, document_response, param};
use crate::kind::{DocumentKind, Keep, Parent};
use crate::{ResourceError, output, sealed, store};

/// The largest page, which is also the size without `?limit=`, because EMCO's clients expect all documents in one list.
const MAX_PAGE: i64 = 10_000;

/// `GET` of a document; the response is its file if the client accepts only that.
///
/// # Errors
/// There is no such document (404), it has no file (406), or the database cannot be reached.
pub async fn get_one(
    documents: &Documents,
    kind: &'static DocumentKind,
    params: &PathParams,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let path = params.fill(&kind.item_path())?;
    let foreign = documents.foreign_if_there(kind, params).await?;
    let mut db = documents.store.acquire().await?;
    // A document below an earlier parent of the same name does not count.
    let found = store::find(&mut db, kind, &path).await?.filter(|document| Some(document.foreign_parent) == foreign);
    let document = sealed::open(&documents.store, kind, found.ok_or(ResourceError::NotFound { title: kind.title, path })?)?;
    match wanted(headers) {
        Wanted::Json => Ok(document_response(StatusCode::OK, kind, &document)),
        form => {
            let file = kind.file.filter(|file| file.keep == Keep::Table);
            let digest = document.file_digest.as_deref();
            let bytes = match (file, digest) {
                (Some(_), Some(digest)) => store::file(&mut db, &documents.store, digest).await?,
                _ => None,
            };
            let (Some(file), Some(bytes)) = (file, bytes) else {
                return Err(
                    codes::NOT_ACCEPTABLE.problem(format!("This {} has no file that is given out; accept application/json", kind.title))
                );
            };
            if matches!(form, Wanted::File) {
                return Ok(([(header::CONTENT_TYPE, file.content_type), (header::ETAG, document.etag().as_str())], bytes).into_response());
            }
            Ok(multipart(&output(kind, &document), file.content_type, &bytes))
        }
    }
}

enum Wanted {
    Json,
    File,
    Both,
}

/// What the client accepts. EMCO requires `Accept` for documents with files; here its absence and `*/*` mean JSON.
fn wanted(headers: &HeaderMap) -> Wanted {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.is_empty() || accept.contains("json") || accept.contains("*/*") {
        Wanted::Json
    } else if accept.contains("octet-stream") {
        Wanted::File
    } else if accept.contains("multipart/form-data") {
        Wanted::Both
    } else {
        Wanted::Json
    }
}

fn multipart(document: &Value, content_type: &str, bytes: &[u8]) -> Response {
    let boundary = format!("drover-{}", Uuid::new_v4().simple());
    let mut body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"metadata\"\r\nContent-Type: application/json\r\n\r\n{document}\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\nContent-Type: {content_type}\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(bytes);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    ([(header::CONTENT_TYPE, format!("multipart/form-data; boundary={boundary}"))], body).into_response()
}

/// `GET` of a collection in the order of creation: all documents, or a page of at most `limit` after the document `after` (a name, or the
/// value in the `Link` header, which names the next page and stays valid when documents are deleted).
///
/// # Errors
/// A query parameter is invalid (400), the parent does not exist (404), or the database or the parent's service cannot be reached.
pub async fn list(documents: &Documents, kind: &'static DocumentKind, params: &PathParams, query: &Params) -> Result<Response, Problem> {
    let parent = params.fill(&kind.parent_template())?;
    if query.iter().any(|(_, value)| value.contains('\0')) {
        return Err(codes::INVALID.problem("Invalid query: it contains the character NUL"));
    }
    let limit = match param(query, "limit") {
        None => MAX_PAGE,
        Some(text) => text
            .parse()
            .ok()
            .filter(|limit| (1..=MAX_PAGE).contains(limit))
            .ok_or_else(|| codes::INVALID.problem(format!("limit={text}: a number from 1 to {MAX_PAGE} is expected")))?,
    };
    let (mut filters, mut by_name) = (Map::new(), None);
    for (name, field) in kind.filters {
        match param(query, name) {
            Some(value) if *field == "metadata.name" => by_name = Some(value),
            Some(value) => drop(filters.insert((*field).to_owned(), value.into())),
            None => {}
        }
    }
    let foreign = documents.foreign(kind, params).await?;
    let mut db = documents.store.acquire().await?;
    if let Parent::Local(above) = kind.parent
        && store::find(&mut db, above, &parent).await?.is_none()
    {
        return Err(ResourceError::ParentNotFound { path: parent }.into());
    }
    let after = match param(query, "after").filter(|after| !after.is_empty()) {
        None => None,
        Some(after) => Some(position(&mut db, kind, &parent, after).await?),
    };
    let page = store::Page { parent: &parent, foreign, after, name: by_name, filters: Value::Object(filters), limit: limit + 1 };
    let mut found = store::page(&mut db, kind, page).await?;
    if let (true, Some(name)) = (found.is_empty(), by_name) {
        return Err(ResourceError::NotFound { title: kind.title, path: format!("{parent}/{}/{name}", kind.segment) }.into());
    }
    let more = found.len() > usize::try_from(limit).unwrap_or(usize::MAX);
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let last = found.last().map(|document| document.id);
    let opened = found.into_iter().map(|document| Ok(output(kind, &sealed::open(&documents.store, kind, document)?)));
    let body = opened.collect::<Result<Vec<Value>, StoreError>>()?;
    let mut response = axum::Json(body).into_response();
    if let Some(last) = last.filter(|_| more) {
        let collection = format!("{parent}/{}", kind.segment);
        let link = format!("<{collection}?limit={limit}&after={last}>; rel=\"next\"");
        if let Ok(link) = HeaderValue::from_str(&link) {
            response.headers_mut().insert(header::LINK, link);
        }
    }
    Ok(response)
}

/// The id of the document after which a page begins: ids are ordered by the time of creation.
async fn position(db: &mut sqlx::PgConnection, kind: &DocumentKind, parent: &str, after: &str) -> Result<Uuid, Problem> {
    let path = format!("{parent}/{}/{after}", kind.segment);
    match (store::find(db, kind, &path).await?, after.parse()) {
        (Some(document), _) => Ok(document.id),
        (None, Ok(id)) => Ok(id),
        (None, Err(_)) => {
            Err(codes::INVALID.problem(format!("after={after}: there is no such document; use the address in the header Link")))
        }
    }
}
