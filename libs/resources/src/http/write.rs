//! Creates, replaces and deletes documents, each in one transaction together with the hooks of the service.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use drover_service::{Problem, asks_dry_run, codes};
use drover_store::{StoreError, Tx};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use uuid::Uuid;

use super::{Documents, Params, PathParams, document_response, param, upload};
use crate::envelope::{self, Incoming};
use crate::kind::{Checked, DocumentKind, Keep, Place, Put};
use crate::{Change, Document, ResourceError, Verb, sealed, store};

/// `POST` to a collection: 201 and the document.
///
/// # Errors
/// The request is invalid, the document exists, its parent or a reference does not, or a hook refuses.
pub async fn create(
    documents: &Documents,
    kind: &'static DocumentKind,
    params: &PathParams,
    query: &Params,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let incoming = upload::read(kind, &parts, body).await?;
    let parent = params.fill(&kind.parent_template())?;
    let path = path_of(kind, &parent, &incoming)?;
    let foreign = documents.foreign(kind, params).await?;
    let allowed = documents.hooks.before(kind, &path, false).await;
    let writing = Writing { documents, kind, parent: &parent, path: &path, foreign, query, dry_run: asks_dry_run(param(query, "dryRun"))? };
    let mut tx = documents.store.begin().await?;
    let (document, ignored) = writing.create(&mut tx, incoming).await?;
    allowed?;
    writing.end(tx, Verb::Create, None, &document.0, document.1.as_ref()).await?;
    let mut response = document_response(StatusCode::CREATED, kind, &document.0);
    if let Ok(location) = HeaderValue::from_str(&path) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(warned(kind, response, ignored))
}

/// `PUT` of a document, with the status that the kind says.
///
/// # Errors
/// The request is invalid, `If-Match` names another version, the document does not exist (unless the kind allows PUT to create it), or a
/// hook refuses.
pub async fn replace(
    documents: &Documents,
    kind: &'static DocumentKind,
    params: &PathParams,
    query: &Params,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let incoming = upload::read(kind, &parts, body).await?;
    let path = params.fill(&kind.item_path())?;
    let parent = params.fill(&kind.parent_template())?;
    if path_of(kind, &parent, &incoming)? != path {
        return Err(ResourceError::MismatchedName.into());
    }
    let foreign = documents.foreign(kind, params).await?;
    let allowed = documents.hooks.before(kind, &path, false).await;
    let writing = Writing { documents, kind, parent: &parent, path: &path, foreign, query, dry_run: asks_dry_run(param(query, "dryRun"))? };
    let mut tx = documents.store.begin().await?;
    let found = store::lock(&mut tx, kind, &path).await?;
    // A document below an earlier parent of the same name does not count.
    let before = found.filter(|document| document.foreign_parent == foreign);
    let Some(before) = before else {
        if kind.put != Put::Upsert {
            return Err(ResourceError::NotFound { title: kind.title, path }.into());
        }
        matches_version(&parts.headers, None)?;
        let (document, ignored) = writing.create(&mut tx, incoming).await?;
        allowed?;
        writing.end(tx, Verb::Create, None, &document.0, document.1.as_ref()).await?;
        return Ok(warned(kind, document_response(StatusCode::CREATED, kind, &document.0), ignored));
    };
    let before = sealed::open(&documents.store, kind, before)?;
    matches_version(&parts.headers, Some(&before))?;
    allowed?;
    let (document, ignored) = writing.replace(&mut tx, &before, incoming).await?;
    writing.end(tx, Verb::Replace, Some(&before), &document.0, document.1.as_ref()).await?;
    let status = if kind.put == Put::Created201 { StatusCode::CREATED } else { StatusCode::OK };
    Ok(warned(kind, document_response(status, kind, &document.0), ignored))
}

/// `DELETE` of a document: 204.
///
/// # Errors
/// There is no such document, `If-Match` names another version, other documents are below it or refer to it, or a hook refuses.
pub async fn delete(
    documents: &Documents,
    kind: &'static DocumentKind,
    params: &PathParams,
    query: &Params,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let path = params.fill(&kind.item_path())?;
    let dry_run = asks_dry_run(param(query, "dryRun"))?;
    let foreign = documents.foreign_if_there(kind, params).await?;
    let allowed = documents.hooks.before(kind, &path, true).await;
    let mut tx = documents.store.begin().await?;
    let Some(document) = store::lock(&mut tx, kind, &path).await?.filter(|document| Some(document.foreign_parent) == foreign) else {
        return Err(codes::NOT_FOUND.problem("The requested resource not found").reason(path));
    };
    let document = sealed::open(&documents.store, kind, document)?;
    matches_version(headers, Some(&document))?;
    allowed?;
    let change = Change { kind, verb: Verb::Delete, path: &path, before: Some(&document), after: None, file: None, dry_run };
    documents.hooks.guard(&mut tx, &change).await?;
    let paths = store::referrers(&mut tx, document.id).await?;
    if !paths.is_empty() {
        return Err(ResourceError::HasReferences { paths }.into());
    }
    store::delete(&mut tx, &document).await?;
    documents.hooks.written(&mut tx, &change).await?;
    if dry_run {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    tx.commit().await.map_err(StoreError::from)?;
    drop_file(documents, document.file_digest.as_deref()).await;
    documents.hooks.committed(&change).await;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A written document, and the file of the request.
type Written = (Document, Option<bytes::Bytes>);

struct Writing<'a> {
    documents: &'a Documents,
    kind: &'static DocumentKind,
    parent: &'a str,
    path: &'a str,
    foreign: Option<Uuid>,
    query: &'a Params,
    dry_run: bool,
}

impl Writing<'_> {
    async fn create(&self, tx: &mut Tx, incoming: Incoming) -> Result<(Written, Vec<String>), Problem> {
        if let Some(current) = self.foreign
            && let Some(orphan) = store::orphaned(tx, self.path, current).await?
        {
            store::purge_foreign(tx, orphan).await?;
        }
        let checked = self.check(&incoming)?;
        let ignored = self.ignored(&incoming, &checked)?;
        if let Some(rules) = &self.kind.file
            && rules.required
            && incoming.file.is_none()
        {
            return Err(codes::MALFORMED_UPLOAD.problem(format!("Unable to process file: a {} needs one", self.kind.title)));
        }
        let digest = self.keep(tx, &incoming).await?;
        let name = incoming.metadata.name.clone();
        let mut document = Document::draft(Uuid::now_v7(), self.path.to_owned(), name, incoming.metadata, checked.spec, digest);
        let change = self.change(Verb::Create, None, &document, incoming.file.as_ref());
        self.documents.hooks.guard(tx, &change).await?;
        store::insert(tx, &self.documents.store, self.kind, &mut document, self.parent, self.foreign).await?;
        store::set_references(tx, document.id, &checked.references).await?;
        Ok(((document, incoming.file), ignored))
    }

    async fn replace(&self, tx: &mut Tx, before: &Document, incoming: Incoming) -> Result<(Written, Vec<String>), Problem> {
        let checked = self.check(&incoming)?;
        let ignored = self.ignored(&incoming, &checked)?;
        let digest = self.keep(tx, &incoming).await?;
        let mut document = Document {
            metadata: incoming.metadata,
            spec: checked.spec,
            file_digest: digest.or_else(|| before.file_digest.clone()),
            ..before.clone()
        };
        let change = self.change(Verb::Replace, Some(before), &document, incoming.file.as_ref());
        self.documents.hooks.guard(tx, &change).await?;
        store::update(tx, &self.documents.store, self.kind, &mut document).await?;
        store::set_references(tx, document.id, &checked.references).await?;
        Ok(((document, incoming.file), ignored))
    }

    /// Calls the hooks around the commit, and commits unless it is a dry run.
    async fn end(
        &self,
        mut tx: Tx,
        verb: Verb,
        before: Option<&Document>,
        after: &Document,
        file: Option<&bytes::Bytes>,
    ) -> Result<(), Problem> {
        let change = self.change(verb, before, after, file);
        self.documents.hooks.written(&mut tx, &change).await?;
        if self.dry_run {
            return Ok(());
        }
        tx.commit().await.map_err(StoreError::from)?;
        let old = before.and_then(|before| before.file_digest.as_deref());
        drop_file(self.documents, old.filter(|old| after.file_digest.as_deref() != Some(*old))).await;
        self.documents.hooks.committed(&change).await;
        Ok(())
    }

    fn change<'b>(&'b self, verb: Verb, before: Option<&'b Document>, after: &'b Document, file: Option<&'b bytes::Bytes>) -> Change<'b> {
        Change { kind: self.kind, verb, path: self.path, before, after: Some(after), file, dry_run: self.dry_run }
    }

    fn check(&self, incoming: &Incoming) -> Result<Checked, ResourceError> {
        envelope::check(self.kind, incoming, &Place { path: self.path, parent: self.parent })
    }

    async fn keep(&self, tx: &mut Tx, incoming: &Incoming) -> Result<Option<Vec<u8>>, ResourceError> {
        match (&self.kind.file, &incoming.file) {
            (Some(rules), Some(bytes)) if rules.keep == Keep::Table => store::put_file(tx, &self.documents.store, bytes).await.map(Some),
            _ => Ok(None),
        }
    }

    /// The unknown keys that are to be named in a header; refused or dropped if `?fieldValidation=` says so.
    fn ignored(&self, incoming: &Incoming, checked: &Checked) -> Result<Vec<String>, Problem> {
        let ignored: Vec<String> = incoming.ignored.iter().chain(&checked.ignored).cloned().collect();
        match param(self.query, "fieldValidation").unwrap_or("Warn") {
            "Strict" if !ignored.is_empty() => Err(codes::INVALID
                .problem("Invalid Input: unknown fields")
                .reasons(ignored.into_iter().map(|field| format!("unknown field {field}")))),
            "Ignore" => Ok(Vec::new()),
            "Strict" | "Warn" => Ok(ignored),
            other => Err(codes::INVALID.problem(format!("fieldValidation={other}: Strict, Warn or Ignore is expected"))),
        }
    }
}

/// The path of the document that the body names.
fn path_of(kind: &DocumentKind, parent: &str, incoming: &Incoming) -> Result<String, Problem> {
    let mut path = format!("{parent}/{}", kind.segment);
    for (index, key) in kind.key.iter().enumerate() {
        let value = if index == 0 {
            Some(incoming.metadata.name.as_str())
        } else {
            incoming.spec.as_ref().and_then(|spec| spec.get(key)).and_then(serde_json::Value::as_str)
        };
        let value = value.filter(|value| crate::is_name(value)).ok_or_else(|| {
            let field = if index == 0 { "metadata.name".to_owned() } else { format!("spec.{key}") };
            codes::INVALID.problem(format!(
                "Invalid Input: {field} must match ^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$ and have at most 128 characters"
            ))
        })?;
        path = format!("{path}/{value}");
    }
    Ok(path)
}

/// Checks that `If-Match`, if it is sent, names the current version, or is `*`. What is no text names no version.
fn matches_version(headers: &HeaderMap, current: Option<&Document>) -> Result<(), ResourceError> {
    if !headers.contains_key(header::IF_MATCH) {
        return Ok(());
    }
    let etag = current.map(Document::etag);
    let wanted = headers.get_all(header::IF_MATCH).iter().filter_map(|value| value.to_str().ok());
    let fits = wanted.flat_map(|value| value.split(',')).map(str::trim).any(|wanted| match &etag {
        Some(etag) => wanted == "*" || wanted.trim_start_matches("W/") == etag,
        None => false,
    });
    if fits { Ok(()) } else { Err(ResourceError::Changed { current: etag.unwrap_or_else(|| "none".to_owned()) }) }
}

/// Adds a `Warning` header for each thing that the client should know about a document that was written.
fn warned(kind: &DocumentKind, mut response: Response, ignored: Vec<String>) -> Response {
    let kept = kind.kept.map(|what| format!("kept, not carried out: {what}"));
    for warning in ignored.into_iter().map(|field| format!("unknown field {field}")).chain(kept) {
        if let Ok(value) = HeaderValue::from_str(&format!("299 drover \"{}\"", warning.replace(['"', '\\'], "'"))) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// Deletes a file that is no longer used, in a transaction of its own: if another request stores the same file now, it stays, and no request
/// waits for that.
async fn drop_file(documents: &Documents, digest: Option<&[u8]>) {
    let Some(digest) = digest else { return };
    let outcome = async {
        let mut db = documents.store.acquire().await?;
        store::drop_file(&mut db, digest).await
    };
    if let Err(error) = outcome.await {
        tracing::warn!(%error, "an unused file could not be deleted; it stays in the table");
    }
}
