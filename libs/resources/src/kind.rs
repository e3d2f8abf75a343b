//! What a document is, as a value.

use drover_service::{Code, codes};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

/// A kind of document. Make one with [`Kind::of`] in a `static`.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Stable name in the database and in operation ids: `cluster-provider`.
    pub name: &'static str,
    /// Name in messages and of the schema: `ClusterProvider`; the spec's is `ClusterProviderSpec`.
    pub title: &'static str,
    /// Above it.
    pub parent: Parent,
    /// Its collection in the path: `cluster-providers`.
    pub segment: &'static str,
    /// Path parameters of one document; the first is `metadata.name`, the others are fields of the spec.
    pub key: &'static [&'static str],
    /// What PUT does.
    pub put: Put,
    /// When the output has a spec.
    pub echo: Echo,
    /// Empty strings are left out of the output's metadata (EMCO's app intents).
    pub lean_metadata: bool,
    /// Query parameters of the list and the field of the spec that each must equal.
    pub filters: &'static [(&'static str, &'static str)],
    /// It comes with a file.
    pub file: Option<File>,
    /// The list is the service's own handler.
    pub own_list: bool,
    /// Reading one is the service's own handler.
    pub own_get: bool,
    /// Group in the API's description.
    pub tag: &'static str,
    pub(crate) check: fn(&str, Option<Value>, &Place<'_>) -> Result<Checked, Invalid>,
    pub(crate) spec_schema: fn() -> RefOr<Schema>,
    pub(crate) schemas: fn(&mut Vec<(String, RefOr<Schema>)>),
}

/// Above a document.
#[derive(Clone, Copy)]
pub enum Parent {
    /// Nothing.
    Root,
    /// A document of the same service.
    Local(&'static Kind),
    /// A document of another service.
    Foreign(Foreign),
}

/// A parent in another service, found by [`crate::Hooks::foreign_parent`].
#[derive(Clone, Copy)]
pub struct Foreign {
    /// Its kind's title, for messages.
    pub title: &'static str,
    /// Its path, `/v2/projects/{project}`.
    pub path: &'static str,
}

/// What PUT does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// There is none.
    None,
    /// Replaces, 201 (as EMCO does in places).
    Created201,
    /// Replaces, 200.
    Ok200,
    /// Creates with 201 or replaces with 200.
    Upsert,
}

/// When the output has a spec.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Echo {
    /// Always, with defaults filled in.
    Always,
    /// If the client sent one.
    IfSent,
    /// Never: the kind has none.
    Never,
}

/// A file that comes with a document (multipart field `file`, or base64 in the JSON's `file`).
#[derive(Clone, Copy)]
pub struct File {
    /// A document cannot be made without one (a PUT without one keeps the old).
    pub required: bool,
    /// What becomes of it.
    pub keep: Keep,
    /// The largest that is taken.
    pub max_bytes: usize,
    /// Content type it is given out with.
    pub content_type: &'static str,
    /// Is it what it should be?
    pub check: fn(&[u8]) -> Result<(), Invalid>,
}

/// What becomes of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Kept in the table `file`, given out to who asks for `application/octet-stream` or `multipart/form-data`.
    Table,
    /// Handed to [`crate::Hooks::written`] and never given out (secrets).
    Hook,
}

/// The spec of a kind. No `#[serde(flatten)]` and no `deny_unknown_fields`: unknown keys are named, not refused.
pub trait Spec: Serialize + DeserializeOwned + ToSchema + Send + Sync + 'static {
    /// Rules that types cannot say; `name` is the document's.
    fn validate(&self, name: &str) -> Result<(), Invalid> {
        let _ = name;
        Ok(())
    }
    /// Documents of the same service that must exist as long as this one does.
    fn references(&self, at: &Place<'_>) -> Vec<Reference> {
        let _ = at;
        Vec::new()
    }
}

/// The spec of kinds that have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NoSpec {}

impl Spec for NoSpec {}

/// Where a document is.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its own path.
    pub path: &'a str,
    /// Its parent's path (`/v2` for roots).
    pub parent: &'a str,
}

/// A document that another refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Field that names it.
    pub field: &'static str,
    /// Its path.
    pub path: String,
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid Input: {}", reasons.join("; "))]
pub struct Invalid {
    /// Code of the answer.
    pub code: Code,
    /// Each broken rule.
    pub reasons: Vec<String>,
}

impl Invalid {
    /// A broken rule.
    pub fn rule(reason: impl Into<String>) -> Self {
        Self::with(codes::INVALID, reason)
    }
    /// A broken rule with a code of its own.
    pub fn with(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reasons: vec![reason.into()] }
    }
    /// Fails with all reasons, if there are any.
    pub fn unless_empty(reasons: Vec<String>) -> Result<(), Self> {
        if reasons.is_empty() { Ok(()) } else { Err(Self { code: codes::INVALID, reasons }) }
    }
}

/// A spec that passed.
pub struct Checked {
    /// Normalised, or null.
    pub spec: Value,
    /// Keys that mean nothing here.
    pub ignored: Vec<String>,
    /// What it refers to.
    pub references: Vec<Reference>,
}

impl Kind {
    /// A kind with the spec `T`: below nothing, PUT answers 201, no file, the spec always in the output.
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
            check: check::<T>,
            spec_schema: <T as utoipa::PartialSchema>::schema,
            schemas: <T as ToSchema>::schemas,
        }
    }
    /// Below a document of this service.
    pub const fn below(mut self, parent: &'static Kind) -> Self {
        self.parent = Parent::Local(parent);
        self
    }
    /// Below a document of another service.
    pub const fn below_foreign(mut self, title: &'static str, path: &'static str) -> Self {
        self.parent = Parent::Foreign(Foreign { title, path });
        self
    }
    /// What PUT does.
    pub const fn put(mut self, put: Put) -> Self {
        self.put = put;
        self
    }
    /// When the output has a spec.
    pub const fn echo(mut self, echo: Echo) -> Self {
        self.echo = echo;
        self
    }
    /// Query parameters of the list and the field of the spec that each must equal.
    pub const fn filters(mut self, filters: &'static [(&'static str, &'static str)]) -> Self {
        self.filters = filters;
        self
    }
    /// It comes with a file.
    pub const fn file(mut self, file: File) -> Self {
        self.file = Some(file);
        self
    }
    /// Empty strings are left out of the output's metadata.
    pub const fn lean_metadata(mut self) -> Self {
        self.lean_metadata = true;
        self
    }
    /// The list is the service's own handler (which may call [`crate::list`]).
    pub const fn own_list(mut self) -> Self {
        self.own_list = true;
        self
    }
    /// Reading one is the service's own handler (which may call [`crate::get_one`]).
    pub const fn own_get(mut self) -> Self {
        self.own_get = true;
        self
    }
    /// Group in the API's description (default: the segment).
    pub const fn tag(mut self, tag: &'static str) -> Self {
        self.tag = tag;
        self
    }

    /// `/v2/cluster-providers/{clusterProvider}/clusters`
    pub fn collection_path(&self) -> String {
        format!("{}/{}", self.parent_template(), self.segment)
    }
    /// `/v2/cluster-providers/{clusterProvider}/clusters/{cluster}`
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
    /// The document of another service that this one or an ancestor hangs under.
    pub fn foreign(&self) -> Option<Foreign> {
        match self.parent {
            Parent::Root => None,
            Parent::Local(parent) => parent.foreign(),
            Parent::Foreign(foreign) => Some(foreign),
        }
    }
    /// The part of `path` (of a document at or below this kind) that is this kind's: `DIG.within(intent_path)`.
    pub fn within<'a>(&self, path: &'a str) -> Option<&'a str> {
        prefix(&self.item_path(), path)
    }
}

/// The prefix of `path` that fits the template.
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
            // A missing or unknown word breaks EMCO's schema (400); another JSON type than expected cannot be decoded (422).
            let code = if message.starts_with("invalid type") { codes::MALFORMED_JSON } else { codes::INVALID };
            Invalid::with(code, format!("spec: {message}"))
        })?;
    spec.validate(name)?;
    let references = spec.references(at);
    let spec = serde_json::to_value(&spec).map_err(|error| Invalid::rule(error.to_string()))?;
    Ok(Checked { spec, ignored, references })
}

/// serde_ignored writes `?` for the inside of an Option.
pub(crate) fn readable(path: &str) -> String {
    path.split('.').filter(|part| *part != "?").collect::<Vec<_>>().join(".")
}

/// EMCO's rule for names: letters, digits, `-`, `_`, `.`, ending and beginning with a letter or digit, at most 128.
pub fn is_name(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 128
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Kubernetes' rule for most names: small letters, digits, `-` inside, at most 63.
pub fn is_dns_label(name: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = name.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}
