//! Finds what the path of a request names.

use std::sync::Arc;

use crate::api::Target;
use crate::kinds::ServedKind;
use crate::state::ClusterState;

/// What a path names.
#[derive(Debug)]
pub enum Route {
    Version,
    Health,
    CoreVersions,
    Groups,
    Group(String),
    Resources {
        group: String,
        version: String,
    },
    Metrics(Vec<String>),
    /// `/openapi/v3`, or the document of a group version below it.
    OpenApi(Option<(String, String)>),
    /// An access review, answered yes.
    Review {
        api_version: String,
        kind: &'static str,
    },
    Object(Target),
    Nowhere,
}

/// Finds the route of a path that starts below the cluster's prefix.
pub fn find(state: &ClusterState, path: &str) -> Route {
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    match segments.as_slice() {
        ["version"] => Route::Version,
        ["healthz" | "livez" | "readyz", ..] => Route::Health,
        ["api"] => Route::CoreVersions,
        ["apis"] => Route::Groups,
        ["apis", group] => Route::Group((*group).into()),
        ["api", version] => Route::Resources { group: String::new(), version: (*version).into() },
        ["apis", group, version] => Route::Resources { group: (*group).into(), version: (*version).into() },
        ["openapi", "v3"] => Route::OpenApi(None),
        ["openapi", "v3", "api", version] => Route::OpenApi(Some((String::new(), (*version).into()))),
        ["openapi", "v3", "apis", group, version] => Route::OpenApi(Some(((*group).into(), (*version).into()))),
        ["apis", "metrics.k8s.io", "v1beta1", rest @ ..] => Route::Metrics(rest.iter().map(ToString::to_string).collect()),
        ["apis", group @ ("authorization.k8s.io" | "authentication.k8s.io"), "v1", review] => match *review {
            "selfsubjectaccessreviews" => Route::Review { api_version: format!("{group}/v1"), kind: "SelfSubjectAccessReview" },
            "selfsubjectreviews" => Route::Review { api_version: format!("{group}/v1"), kind: "SelfSubjectReview" },
            _ => Route::Nowhere,
        },
        ["api", version, rest @ ..] => object(state, "", version, rest),
        ["apis", group, version, rest @ ..] => object(state, group, version, rest),
        _ => Route::Nowhere,
    }
}

fn object(state: &ClusterState, group: &str, version: &str, rest: &[&str]) -> Route {
    let (namespace, rest) = match rest {
        // `/namespaces/x/status` is a namespace's own subresource.
        ["namespaces", namespace, inner, tail @ ..] if !matches!(*inner, "status" | "finalize") || !tail.is_empty() => {
            (*namespace, [&[*inner], tail].concat())
        }
        rest => ("", rest.to_vec()),
    };
    let (plural, name, sub) = match rest.as_slice() {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, sub] => (*plural, *name, *sub),
        _ => return Route::Nowhere,
    };
    match state.kind(group, version, plural) {
        Some(kind) if fits(kind, namespace, name) && serves(kind, sub) => {
            Route::Object(Target { kind: Arc::clone(kind), namespace: namespace.into(), name: name.into(), sub: sub.into() })
        }
        _ => Route::Nowhere,
    }
}

fn fits(kind: &ServedKind, namespace: &str, name: &str) -> bool {
    // Without a namespace, a namespaced kind can only be listed.
    if kind.namespaced { !namespace.is_empty() || name.is_empty() } else { namespace.is_empty() }
}

fn serves(kind: &ServedKind, sub: &str) -> bool {
    match sub {
        "" => true,
        "status" => kind.status,
        "scale" => kind.scale,
        "eviction" => &*kind.resource == "pods",
        _ => false,
    }
}
