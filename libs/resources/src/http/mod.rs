//! Documents over HTTP: one function per verb, and [`mount`], which adds the routes of a kind to a router.

mod read;
mod upload;
mod write;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{FromRef, RawPathParams, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use drover_service::{BodyLimit, Problem, Query, codes};
use drover_store::Store;
use http::HeaderMap;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

pub use read::{get_one, list};
pub use upload::check_body;
pub use write::{create, delete, replace};

use crate::kind::{DocumentKind, Put};
use crate::{Hooks, openapi};

/// The state of the handlers, a part of the service's state (`impl FromRef<App> for Documents`).
#[derive(Clone)]
pub struct Documents {
    /// The store of the service, with the tables of [`crate::migrations`].
    pub store: Store,
    pub hooks: Arc<dyn Hooks>,
}

impl Documents {
    /// Documents in `store`, with the hooks of the service.
    pub fn new(store: Store, hooks: impl Hooks) -> Self {
        Self { store, hooks: Arc::new(hooks) }
    }

    /// The uuid of the document of another service that the path is below; a problem if it does not exist.
    async fn foreign(&self, kind: &DocumentKind, params: &PathParams) -> Result<Option<Uuid>, Problem> {
        match (self.foreign_if_there(kind, params).await?, kind.foreign()) {
            (None, Some(foreign)) => Err(crate::ResourceError::ParentNotFound { path: params.fill(foreign.path)? }.into()),
            (found, _) => Ok(found.flatten()),
        }
    }

    /// The same; the outer `None` if that document does not exist.
    async fn foreign_if_there(&self, kind: &DocumentKind, params: &PathParams) -> Result<Option<Option<Uuid>>, Problem> {
        let Some(foreign) = kind.foreign() else { return Ok(Some(None)) };
        let found = self.hooks.foreign_parent(&foreign, &params.fill(foreign.path)?).await?;
        Ok(found.map(Some))
    }
}

/// Path parameters by name.
#[derive(Clone, Debug, Default)]
pub struct PathParams(pub Vec<(String, String)>);

impl From<&RawPathParams> for PathParams {
    fn from(raw: &RawPathParams) -> Self {
        Self(raw.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }
}

impl PathParams {
    /// The value of a parameter, if the path has it.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Fills the parameters into a template such as `/v2/projects/{project}`.
    ///
    /// # Errors
    /// A value is not a name, so that there can be no such document (404).
    pub fn fill(&self, template: &str) -> Result<String, Problem> {
        let mut path = String::new();
        for part in template.split('/').skip(1) {
            path.push('/');
            let Some(key) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) else {
                path.push_str(part);
                continue;
            };
            let value = self.get(key).unwrap_or_default();
            // There is no document whose name is not allowed; and a slash in a value must not lead to another path.
            if !crate::is_name(value) {
                return Err(codes::NOT_FOUND.problem(format!("There is no {key} called {value:?}")));
            }
            path.push_str(value);
        }
        Ok(path)
    }
}

/// Query parameters by name.
pub(crate) type Params = Vec<(String, String)>;

/// Adds the routes of all kinds to a router.
///
/// # Panics
/// As [`mount`].
pub fn mount_all<S>(router: OpenApiRouter<S>, kinds: &[&'static DocumentKind]) -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Documents: FromRef<S>,
{
    kinds.iter().fold(router, |router, kind| mount(router, kind))
}

/// Adds the routes of a kind to a router and their description to its OpenAPI document.
///
/// # Panics
/// Another schema has the same name.
pub fn mount<S>(mut router: OpenApiRouter<S>, kind: &'static DocumentKind) -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Documents: FromRef<S>,
{
    openapi::describe(router.get_openapi_mut(), kind);
    let mut collection: MethodRouter<S> =
        post(move |State(documents): State<Documents>, raw: RawPathParams, Query(query): Query<Params>, request: Request| async move {
            create(&documents, kind, &(&raw).into(), &query, request).await
        });
    if !kind.own_list {
        collection =
            collection.get(move |State(documents): State<Documents>, raw: RawPathParams, Query(query): Query<Params>| async move {
                list(&documents, kind, &(&raw).into(), &query).await
            });
    }
    let mut item: MethodRouter<S> = MethodRouter::new();
    if !kind.own_get {
        item = item.get(move |State(documents): State<Documents>, raw: RawPathParams, headers: HeaderMap| async move {
            get_one(&documents, kind, &(&raw).into(), &headers).await
        });
    }
    item = item.delete(
        move |State(documents): State<Documents>, raw: RawPathParams, Query(query): Query<Params>, headers: HeaderMap| async move {
            delete(&documents, kind, &(&raw).into(), &query, &headers).await
        },
    );
    if kind.put != Put::None {
        item = item.put(
            move |State(documents): State<Documents>, raw: RawPathParams, Query(query): Query<Params>, request: Request| async move {
                replace(&documents, kind, &(&raw).into(), &query, request).await
            },
        );
    }
    if let Some(file) = kind.file {
        // In base64 a file is a third larger; the rest is for the document around it.
        let limit = BodyLimit(file.max_bytes / 3 * 4 + (1 << 20));
        collection = collection.layer(Extension(limit));
        item = item.layer(Extension(limit));
    }
    for path in [kind.collection_path(), kind.item_path()] {
        let method_router = if path == kind.collection_path() { collection.clone() } else { item.clone() };
        let paths = openapi::paths(kind, &path);
        router = router.routes((Vec::new(), paths, method_router));
    }
    router
}

/// The value of a query parameter.
pub(crate) fn param<'a>(query: &'a Params, key: &str) -> Option<&'a str> {
    query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

/// A JSON response with the ETag of the document.
fn document_response(status: http::StatusCode, kind: &DocumentKind, document: &crate::Document) -> Response {
    let etag = document.etag();
    (status, [(http::header::ETAG, etag)], axum::Json(crate::output(kind, document))).into_response()
}
