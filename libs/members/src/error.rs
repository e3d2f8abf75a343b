//! What can go wrong with a request to a member: what was answered, and what that says about the member or about an object.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::object_id::ObjectId;
use crate::{removed, untyped};

/// How long one request may take.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// The member does not answer, or asks to try again later.
    #[error("{0}")]
    Unreachable(String),
    /// The credential is refused or lacks rights.
    #[error("{0}")]
    Unauthorized(String),
    /// The member serves no such kind.
    #[error("the member serves no kind {kind} in {api_version}{}", removed::instead(api_version, kind))]
    UnknownKind {
        /// API version asked for.
        api_version: String,
        /// Kind asked for.
        kind: String,
    },
    /// An object of that name exists and belongs to somebody else.
    #[error("{id} exists in the member and is not this app's ({whose})")]
    Foreign {
        /// The object.
        id: Box<ObjectId>,
        /// To whom it seems to belong.
        whose: String,
    },
    /// The account as which it is written lacks the right, or Drover's own may not act as it.
    #[error("{id}: {}: {reason}", whose_fault(account, verb))]
    NotPermitted {
        /// The object.
        id: Box<ObjectId>,
        /// The service account, as `namespace/name`.
        account: Arc<str>,
        /// What it may not do: `patch`, `create`, `delete`; or `impersonate`.
        verb: String,
        /// The member's message.
        reason: String,
    },
    /// The object was changed by somebody else at the same time; worth another attempt.
    #[error("{0} changed meanwhile")]
    Conflict(Box<ObjectId>),
    /// The member refused the object.
    #[error("{id}: {reason}")]
    Refused {
        /// The object.
        id: Box<ObjectId>,
        /// The member's message.
        reason: String,
        /// It depends on what is in this member: a quota, an admission rule, a right. Otherwise the object itself is wrong.
        here: bool,
    },
}

impl MemberError {
    /// Stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Unauthorized(_) => "unauthorized",
            Self::UnknownKind { .. } => "unknown_kind",
            Self::Foreign { .. } => "foreign_object",
            Self::NotPermitted { .. } => "account_refused",
            Self::Conflict(_) => "conflict",
            Self::Refused { .. } => "refused",
        }
    }
    /// Whether the fault concerns the whole member and not one object.
    pub fn is_member(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Unauthorized(_))
    }
    /// Whether the fault concerns the object or its kind: a preflight reports these.
    pub fn is_object(&self) -> bool {
        matches!(self, Self::UnknownKind { .. } | Self::Foreign { .. } | Self::Refused { .. } | Self::NotPermitted { .. })
    }
    /// Whether another member may accept the object: the fault is in what this one has, not in the object.
    pub fn is_of_this_member(&self) -> bool {
        match self {
            Self::Refused { here, .. } => *here,
            error => error.is_object(),
        }
    }
    /// Whether the fault may end although nobody changes the object or the member's rules: when other apps leave, or when the member answers
    /// again.
    pub fn may_end(&self) -> bool {
        match self {
            Self::Refused { reason, .. } => TAKEN.iter().any(|taken| reason.contains(taken)),
            Self::Foreign { .. } | Self::Unreachable(_) | Self::Conflict(_) => true,
            _ => false,
        }
    }
    /// What of these faults does not end so.
    pub fn lasting(errors: &[Self]) -> Vec<String> {
        errors.iter().filter(|error| !error.may_end()).map(ToString::to_string).collect()
    }
    /// Its own code if the rights of an account are at fault, else the general one for what was tried.
    pub fn code_or(&self, general: &'static str) -> &'static str {
        if matches!(self, Self::NotPermitted { .. }) { self.code() } else { general }
    }
}

fn whose_fault(account: &str, verb: &str) -> String {
    match verb {
        "impersonate" => format!("Drover may not act as the account {account} of the logical cloud in this cluster"),
        verb => format!("the account {account} of the logical cloud may not {verb} it in this cluster"),
    }
}

/// What a member's message contains if one of its own rules refuses an object, with whatever status.
const ADMISSION: [&str; 2] = ["admission webhook ", "ValidatingAdmissionPolicy "];
/// What it contains if others use what the object needs: the rest of a quota; a port of the nodes or an address.
const TAKEN: [&str; 2] = ["exceeded quota", "already allocated"];

pub(crate) enum RequestError {
    Api(u16, String),
    Transport(String),
}

pub(crate) async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, RequestError> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => Err(RequestError::Api(status.code, status.message)),
        Ok(Err(error)) => Err(RequestError::Transport(chain(&error))),
        Err(_) => Err(RequestError::Transport(format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}

/// The error with its causes, because kube's own text ends at "ServiceError".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

impl RequestError {
    /// For a request about no particular object: a refusal concerns the credential.
    pub(crate) fn of_member(self) -> MemberError {
        match self {
            Self::Api(401 | 403, message) => MemberError::Unauthorized(message),
            Self::Api(code, message) => MemberError::Unreachable(format!("answered {code}: {message}")),
            Self::Transport(text) => MemberError::Unreachable(text),
        }
    }
    /// For a request about an object: 403 may come from a quota or an admission plugin as well as from missing rights; the message says which.
    pub(crate) fn of_object(self, id: &ObjectId) -> MemberError {
        match self {
            Self::Api(401, message) => MemberError::Unauthorized(message),
            Self::Api(409, _) => MemberError::Conflict(Box::new(id.clone())),
            Self::Api(500, reason) if reason.starts_with(untyped::NOT_TYPED) => {
                MemberError::Refused { id: Box::new(id.clone()), reason, here: false }
            }
            Self::Api(code @ (429 | 500..), message) => MemberError::Unreachable(format!("answered {code}: {message}")),
            Self::Api(code, reason) => {
                let here = matches!(code, 403 | 404) || ADMISSION.iter().chain(&TAKEN).any(|rule| reason.contains(rule));
                MemberError::Refused { id: Box::new(id.clone()), reason, here }
            }
            Self::Transport(text) => MemberError::Unreachable(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ObjectId {
        ObjectId { api_version: "v1".into(), kind: "Service".into(), namespace: "n".into(), name: "web".into() }
    }

    #[test]
    fn what_others_have_taken_may_be_free_elsewhere_and_later() {
        let answers = [
            (403, "services \"web\" is forbidden: exceeded quota: small, requested: services=1, used: services=1, limited: services=1"),
            (422, "Service \"web\" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"),
            (
                422,
                "Service \"web\" is invalid: spec.clusterIPs: Invalid value: [\"10.0.0.9\"]: failed to allocate IP 10.0.0.9: provided IP is already allocated",
            ),
        ];
        for (code, message) in answers {
            let error = RequestError::Api(code, message.to_owned()).of_object(&id());
            assert!(error.is_of_this_member() && error.may_end(), "{error}");
        }
        let foreign = MemberError::Foreign { id: Box::new(id()), whose: "another app's".into() };
        assert!(foreign.may_end() && MemberError::Unreachable("no answer".into()).may_end());
        let unknown = MemberError::UnknownKind { api_version: "a.io/v1".into(), kind: "Thing".into() };
        assert_eq!(MemberError::lasting(&[foreign, unknown.clone()]), [unknown.to_string()]);
    }

    #[test]
    fn rules_rights_and_wrong_objects_do_not_end_by_themselves() {
        let answers = [
            (403, "admission webhook \"rules\" denied the request: no such image", true),
            (403, "services is forbidden: User \"drover\" cannot create resource", true),
            (422, "Service \"web\" is invalid: spec.ports[0].port: Invalid value: 0: must be between 1 and 65535", false),
        ];
        for (code, message, here) in answers {
            let error = RequestError::Api(code, message.to_owned()).of_object(&id());
            assert_eq!((error.is_of_this_member(), error.may_end()), (here, false), "{error}");
        }
        assert!(!MemberError::UnknownKind { api_version: "a.io/v1".into(), kind: "Thing".into() }.may_end());
    }
}
