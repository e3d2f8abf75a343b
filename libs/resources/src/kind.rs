//! The description of a kind of documents.

use drover_service::{Code, codes};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

/// A kind of documents, declared as a `static` by [`DocumentKind::of`].
#[derive(Clone, Copy)]
pub struct DocumentKind {
    /// The name in the database and in operation ids, which must not change: `cluster-provider`.
    pub name: &'static str,
    /// The name in messages and of the schema: `ClusterProvider`. The schema of the spec is `ClusterProviderSpec`.
    pub title: &'static str,
    pub parent: Parent,
    /// The collection in the path: `cluster-providers`.
    pub segment: &'static str,
    /// The path parameters of a document. The first is `metadata.name`, the others are fields of the spec.
    pub key: &'static [&'static str],
    pub put: Put,
    pub echo: Echo,
    /// Whether empty strings are left out of the metadata in the output, as in EMCO's app intents.
    pub lean_metadata: bool,
    /// The query parameters of the list, each with the field of the spec that must have its value. With `metadata.name` a value that no
    /// document has is answered with 404.
    pub filters: &'static [(&'static str, &'static str)],
    /// Whether documents have a file, and which.
    pub file: Option<File>,
    /// Whether the service has a handler of its own for the list.
    pub own_list: bool,
    /// Whether the service has a handler of its own for reading a document.
    pub own_get: bool,
    /// The tag of the operations in the OpenAPI document.
    pub tag: &'static str,
    /// For kinds that are only stored: what Drover does not do with them. A response to a write says so in a `Warning` header.
    pub kept: Option<&'static str>,
    /// The fields of the spec of which the texts are sealed, as paths in the spec; `*` is each item of a list, the empty path the whole spec.
    pub sealed: &'static [&'static [&'static str]],
    pub(crate) check: fn(&str, Option<Value>, &Place<'_>) -> Result<Checked, Invalid>,
    pub(crate) spec_schema: fn() -> RefOr<Schema>,
    pub(crate) schemas: fn(&mut Vec<(String, RefOr<Schema>)>),
}

/// What the documents of a kind are below.
#[derive(Clone, Copy)]
pub enum Parent {
    /// `/v2`.
    Root,
    /// A document of the same service.
    Local(&'static DocumentKind),
    /// A document of another service.
    Foreign(Foreign),
}

/// A parent in another service, found by [`crate::Hooks::foreign_parent`].
#[derive(Clone, Copy)]
pub struct Foreign {
    /// The title of its kind, for messages.
    pub title: &'static str,
    /// The template of its path: `/v2/projects/{project}`.
    pub path: &'static str,
}

/// What PUT of a document does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// There is no PUT.
    None,
    /// Replaces a document and answers 201, as EMCO does for some kinds.
    Created201,
    /// Replaces a document and answers 200.
    Ok200,
    /// Creates a document (201) or replaces it (200).
    Upsert,
}

/// When a document in a response has a spec.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Echo {
    /// Always, with the defaults.
    Always,
    /// If the client has sent one.
    IfSent,
    /// Never, because the kind has no spec.
    Never,
}

/// The file of a document (multipart field `file`, or base64 in the field `file` of the JSON).
#[derive(Clone, Copy)]
pub struct File {
    /// Whether a document cannot be created without a file. A PUT without one keeps the old file.
    pub required: bool,
    /// Whether a document has any number of files (multipart fields `files`, or the field `files` of the JSON). They are stored as one: see
    /// [`UploadedFile`].
    pub many: bool,
    pub keep: Keep,
    /// The maximum size. A larger file is refused.
    pub max_bytes: usize,
    /// The content type with which the file is returned.
    pub content_type: &'static str,
    /// Checks the content of the file.
    pub check: fn(&[u8]) -> Result<(), Invalid>,
}

/// One of several files of a document. The stored file of such a document is a JSON list of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadedFile {
    pub name: String,
    /// In base64.
    pub content: String,
}

/// Where the file of a document is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// In the table `file`. It is returned to clients that accept `application/octet-stream` or `multipart/form-data`.
    Table,
    /// Passed to [`crate::Hooks::written`] and never returned to clients, because it is a secret.
    Hook,
}

/// The spec of a kind. It must use neither `#[serde(flatten)]` nor `deny_unknown_fields`: unknown keys lead to a warning, not to an error.
pub trait Spec: Serialize + DeserializeOwned + ToSchema + Send + Sync + 'static {
    /// Checks rules that the types do not express; `name` is the name of the document.
    ///
    /// # Errors
    /// A rule is violated.
    fn validate(&self, name: &str) -> Result<(), Invalid> {
        let _ = name;
        Ok(())
    }
    /// The documents of the same service that this one refers to: they must exist as long as it does.
    fn references(&self, at: &Place<'_>) -> Vec<Reference> {
        let _ = at;
        Vec::new()
    }
}

/// The spec of kinds without a spec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NoSpec {}

impl Spec for NoSpec {}

/// A spec with any fields, for kinds that are only stored. It is returned as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub struct AnySpec(pub serde_json::Map<String, Value>);

impl Spec for AnySpec {}

/// The path of a document and of its parent.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub path: &'a str,
    /// The path of the parent; `/v2` for a root.
    pub parent: &'a str,
}

/// A reference of one document to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The field that names the other document.
    pub field: &'static str,
    /// The path of the other document.
    pub path: String,
}

/// One or more violated rules of a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid Input: {}", reasons.join("; "))]
pub struct Invalid {
    /// The error code of the response.
    pub code: Code,
    /// A sentence for each violated rule.
    pub reasons: Vec<String>,
}

impl Invalid {
    /// A violated rule.
    pub fn rule(reason: impl Into<String>) -> Self {
        Self::with(codes::INVALID, reason)
    }
    /// A violated rule with an error code of its own.
    pub fn with(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reasons: vec![reason.into()] }
    }
    /// Fails if there are reasons.
    ///
    /// # Errors
    /// There is at least one reason.
    pub fn unless_empty(reasons: Vec<String>) -> Result<(), Self> {
        if reasons.is_empty() { Ok(()) } else { Err(Self { code: codes::INVALID, reasons }) }
    }
}

/// The result of a check without errors.
pub struct Checked {
    /// The spec with its defaults, or null.
    pub spec: Value,
    /// The unknown keys of the request.
    pub ignored: Vec<String>,
    pub references: Vec<Reference>,
}

impl DocumentKind {
    /// A root kind with the spec `T`, whose PUT replaces and answers 201, without a file, and with the spec always in the output.
    pub const fn of<T: Spec>(name: &'static str, title: &'static str, segment: &'static str, key: &'static [&'static str]) -> Self {
        Self {
            name,
            title,
            segment,
            key,
            parent: Parent::Root,
            put: Put::Created201,
            echo: Echo::Always,
            lean_metadata: false,
            filters: &[],
            file: None,
            own_list: false,
            own_get: false,
            tag: segment,
            kept: None,
            sealed: &[],
            check: check::<T>,
            spec_schema: <T as utoipa::PartialSchema>::schema,
            schemas: <T as ToSchema>::schemas,
        }
    }
    /// Puts the kind below a kind of this service.
    pub const fn below(mut self, parent: &'static DocumentKind) -> Self {
        self.parent = Parent::Local(parent);
        self
    }
    /// Puts the kind below a kind of another service.
    pub const fn below_foreign(mut self, title: &'static str, path: &'static str) -> Self {
        self.parent = Parent::Foreign(Foreign { title, path });
        self
    }
    /// Sets what PUT does.
    pub const fn put(mut self, put: Put) -> Self {
        self.put = put;
        self
    }
    /// Sets when the output has a spec.
    pub const fn echo(mut self, echo: Echo) -> Self {
        self.echo = echo;
        self
    }
    /// Sets the query parameters of the list, each with the field of the spec that must have its value.
    pub const fn filters(mut self, filters: &'static [(&'static str, &'static str)]) -> Self {
        self.filters = filters;
        self
    }
    /// Gives documents a file.
    pub const fn file(mut self, file: File) -> Self {
        self.file = Some(file);
        self
    }
    /// Leaves empty strings out of the metadata in the output.
    pub const fn lean_metadata(mut self) -> Self {
        self.lean_metadata = true;
        self
    }
    /// Leaves the list to a handler of the service, which may call [`crate::list`].
    pub const fn own_list(mut self) -> Self {
        self.own_list = true;
        self
    }
    /// Leaves the reading of a document to a handler of the service, which may call [`crate::get_one`].
    pub const fn own_get(mut self) -> Self {
        self.own_get = true;
        self
    }
    /// Says that documents are only stored, and what Drover does not do with them.
    pub const fn kept(mut self, what: &'static str) -> Self {
        self.kept = Some(what);
        self
    }
    /// A kind below another whose documents are only stored, as they were sent; `why` is what Drover does not do with them. The whole spec is
    /// sealed, because nobody knows what is in it.
    pub const fn stored(
        name: &'static str,
        title: &'static str,
        segment: &'static str,
        key: &'static [&'static str],
        parent: &'static DocumentKind,
        why: &'static str,
    ) -> Self {
        Self::of::<AnySpec>(name, title, segment, key)
            .below(parent)
            .put(Put::Upsert)
            .echo(Echo::IfSent)
            .tag("kept")
            .sealed(&[&[]])
            .kept(why)
    }
    /// Seals the texts in these fields of the spec where they are stored, because they may be secrets. A service reads them with
    /// [`crate::opened`].
    pub const fn sealed(mut self, fields: &'static [&'static [&'static str]]) -> Self {
        self.sealed = fields;
        self
    }
    /// Sets the tag of the operations in the OpenAPI document. The default is the segment.
    pub const fn tag(mut self, tag: &'static str) -> Self {
        self.tag = tag;
        self
    }

    /// The template of the collection's path: `/v2/cluster-providers/{clusterProvider}/clusters`.
    pub fn collection_path(&self) -> String {
        format!("{}/{}", self.parent_template(), self.segment)
    }
    /// The template of a document's path: `/v2/cluster-providers/{clusterProvider}/clusters/{cluster}`.
    pub fn item_path(&self) -> String {
        self.key.iter().fold(self.collection_path(), |path, key| format!("{path}/{{{key}}}"))
    }
    pub(crate) fn parent_template(&self) -> String {
        match self.parent {
            Parent::Root => "/v2".to_owned(),
            Parent::Local(parent) => parent.item_path(),
            Parent::Foreign(foreign) => foreign.path.to_owned(),
        }
    }
    /// The kind of another service that this kind or an ancestor of it is below.
    pub fn foreign(&self) -> Option<Foreign> {
        match self.parent {
            Parent::Root => None,
            Parent::Local(parent) => parent.foreign(),
            Parent::Foreign(foreign) => Some(foreign),
        }
    }
    /// The path of the document of this kind that is at or above `path`: `DIG.within(intent_path)`.
    pub fn within<'a>(&self, path: &'a str) -> Option<&'a str> {
        prefix(&self.item_path(), path)
    }
}

/// The prefix of `path` that matches the template.
pub(crate) fn prefix<'a>(template: &str, path: &'a str) -> Option<&'a str> {
    let mut rest = path.split('/');
    let mut length = 0;
    for wanted in template.split('/') {
        let found = rest.next()?;
        if !wanted.starts_with('{') && wanted != found {
            return None;
        }
        length += found.len() + 1;
    }
    path.get(..length - 1)
}

fn check<T: Spec>(name: &str, spec: Option<Value>, at: &Place<'_>) -> Result<Checked, Invalid> {
    let given = match spec {
        None | Some(Value::Null) => Value::Object(serde_json::Map::new()),
        Some(spec) => spec,
    };
    let mut ignored = Vec::new();
    let spec: T =
        serde_ignored::deserialize(given, |path| ignored.push(format!("spec.{}", readable(&path.to_string())))).map_err(|error| {
            let message = error.to_string();
            // A missing field or an unknown value violates EMCO's schema (400); an unexpected JSON type cannot be decoded (422).
            let code = if message.starts_with("invalid type") { codes::MALFORMED_JSON } else { codes::INVALID };
            Invalid::with(code, format!("spec: {message}"))
        })?;
    spec.validate(name)?;
    let references = spec.references(at);
    let spec = serde_json::to_value(&spec).map_err(|error| Invalid::rule(error.to_string()))?;
    Ok(Checked { spec, ignored, references })
}

/// Removes the `?` that serde_ignored writes for the inside of an Option.
pub(crate) fn readable(path: &str) -> String {
    path.split('.').filter(|part| *part != "?").collect::<Vec<_>>().join(".")
}

/// Whether EMCO allows the name: at most 128 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
pub fn is_name(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 128
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Whether Kubernetes allows the name for most objects: at most 63 small letters, digits and `-`, with a letter or digit at both ends.
pub fn is_dns_label(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = name.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}
