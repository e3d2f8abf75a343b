//! The errors of an API server: the `Status` objects of Kubernetes.
//!
//! Not an error type for callers of the simulator: each becomes an HTTP answer.

use serde_json::{Value, json};

/// An error in the words of Kubernetes.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// HTTP status.
    pub code: u16,
    /// Machine-readable reason, e.g. `NotFound`.
    pub reason: &'static str,
    /// Message for people.
    pub message: String,
    /// `details` of the Status object.
    pub details: Value,
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null }
    }

    /// 400: the request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401: the caller is not known.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: the request is not allowed, for the reason `why`.
    pub fn forbidden(resource: &str, name: &str, why: impl std::fmt::Display) -> Self {
        Self::new(403, "Forbidden", format!("{resource} \"{name}\" is forbidden: {why}"))
    }

    /// 404 for an object.
    pub fn not_found(resource: &str, name: &str) -> Self {
        let mut e = Self::new(404, "NotFound", format!("{resource} \"{name}\" not found"));
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        e.details = json!({"name": name, "kind": plural});
        if !group.is_empty() {
            e.details["group"] = group.into();
        }
        e
    }

    /// 404 for a path that is not served (an unknown kind).
    pub fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// 405: the resource has no such verb.
    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    /// 409 for a name that exists.
    pub fn already_exists(resource: &str, name: &str) -> Self {
        let mut e = Self::new(409, "AlreadyExists", format!("{resource} \"{name}\" already exists"));
        e.details = json!({"name": name, "kind": resource.split('.').next()});
        e
    }

    /// 409 for an object that was changed since the caller read it, or that cannot be changed now; `why` says which.
    pub fn conflict(resource: &str, name: &str, why: &str) -> Self {
        let mut e = Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}"));
        e.details = json!({"name": name, "kind": resource.split('.').next()});
        e
    }

    /// 409 of server-side apply, one cause per field: (manager, field).
    pub fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|(manager, field)| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with \"{manager}\""), "field": field})
            })
            .collect();
        let s = if causes.len() == 1 { "" } else { "s" };
        let list: Vec<String> = conflicts.iter().map(|(m, f)| format!("conflict with \"{m}\": {f}")).collect();
        let mut e = Self::new(409, "Conflict", format!("Apply failed with {} conflict{s}: {}", causes.len(), list.join(", ")));
        e.details = json!({"causes": causes});
        e
    }

    /// 410: the revision asked for is older than the log.
    pub fn gone(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// 415: the body has a format that the verb does not take.
    pub fn unsupported_media_type(what: &str) -> Self {
        Self::new(415, "UnsupportedMediaType", format!("the body of the request was in an unknown format - {what}"))
    }

    /// 422 with the invalid field.
    pub fn invalid(kind: &str, name: &str, field: &str, why: impl std::fmt::Display) -> Self {
        let mut e = Self::new(422, "Invalid", format!("{kind} \"{name}\" is invalid: {field}: {why}"));
        e.details = json!({"name": name, "kind": kind,
            "causes": [{"reason": "FieldValueInvalid", "message": why.to_string(), "field": field}]});
        e
    }

    /// 500 of server-side apply for an object that the schema does not allow.
    pub fn untyped(object: &Value, errors: &[String]) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
        let (namespace, name, kind) = (text("/metadata/namespace"), text("/metadata/name"), text("/kind"));
        let lines: String = errors.iter().map(|error| format!("\n  {error}")).collect();
        Self::new(
            500,
            "",
            format!("failed to create typed patch object ({namespace}/{name}; {group}/{version}, Kind={kind}): errors:{lines}"),
        )
    }

    /// Any other code, as a fault asks for.
    pub fn other(code: u16) -> Self {
        match code {
            429 => Self::new(429, "TooManyRequests", "the server has received too many requests, please try again later"),
            503 => Self::new(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
            504 => Self::new(504, "Timeout", "the server was unable to return a response in time"),
            code => Self::new(code, "InternalError", "an error on the server has prevented the request from succeeding"),
        }
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code});
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}
