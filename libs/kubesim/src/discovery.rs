//! Which groups, versions and kinds there are.

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::state::ClusterState;

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// `/version`
pub fn version() -> Value {
    json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3+kubesim", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64"})
}

/// `/api`
pub fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// (group, versions), in the order they were declared.
fn groups_of(state: &ClusterState) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    let kinds = state.kinds().map(|kind| (kind.group.as_str(), kind.version.as_str()));
    let virtual_ones = [("authentication.k8s.io", "v1"), ("authorization.k8s.io", "v1")];
    let metrics = state.settings.metrics.then_some(("metrics.k8s.io", "v1beta1"));
    for (group, version) in kinds.chain(virtual_ones).chain(metrics).filter(|(group, _)| !group.is_empty()) {
        match groups.iter_mut().find(|(have, _)| have == group) {
            Some((_, versions)) if versions.iter().any(|v| v == version) => {}
            Some((_, versions)) => versions.push(version.into()),
            None => groups.push((group.into(), vec![version.into()])),
        }
    }
    groups
}

fn group_object((group, versions): &(String, Vec<String>)) -> Value {
    let versions: Vec<Value> = versions.iter().map(|v| json!({"groupVersion": format!("{group}/{v}"), "version": v})).collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions[0]})
}

/// `/apis`
pub fn groups(state: &ClusterState) -> Value {
    let groups: Vec<Value> = groups_of(state).iter().map(group_object).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`
///
/// # Errors
/// 404 when no kind of the group is served.
pub fn group(state: &ClusterState, name: &str) -> Result<Value, ApiError> {
    let found = groups_of(state).into_iter().find(|(group, _)| group == name).ok_or_else(ApiError::no_such_resource)?;
    let mut object = group_object(&found);
    object["kind"] = json!("APIGroup");
    object["apiVersion"] = json!("v1");
    Ok(object)
}

/// `/api/v1`, `/apis/<group>/<version>`
///
/// # Errors
/// 404 when no kind of the version is served.
pub fn resources(state: &ClusterState, group: &str, version: &str) -> Result<Value, ApiError> {
    let mut resources = Vec::new();
    for kind in state.kinds().filter(|kind| kind.group == group && kind.version == version) {
        let mut resource = json!({"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": VERBS, "storageVersionHash": ""});
        if !kind.short.is_empty() {
            resource["shortNames"] = json!(kind.short);
        }
        resources.push(resource);
        for (has, sub) in [(kind.status, "status"), (kind.scale, "scale")] {
            if has {
                let mut resource = json!({"name": format!("{}/{sub}", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                    "kind": kind.kind, "verbs": ["get", "patch", "update"]});
                if sub == "scale" {
                    (resource["kind"], resource["group"], resource["version"]) = (json!("Scale"), json!("autoscaling"), json!("v1"));
                }
                resources.push(resource);
            }
        }
        if &*kind.resource == "pods" {
            resources.push(json!({"name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy", "version": "v1",
                "kind": "Eviction", "verbs": ["create"]}));
        }
    }
    match (group, version) {
        ("metrics.k8s.io", "v1beta1") if state.settings.metrics => {
            for (name, kind, namespaced) in [("nodes", "NodeMetrics", false), ("pods", "PodMetrics", true)] {
                resources.push(json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]}));
            }
        }
        ("authorization.k8s.io", "v1") => resources
            .push(json!({"name": "selfsubjectaccessreviews", "singularName": "selfsubjectaccessreview",
            "namespaced": false, "kind": "SelfSubjectAccessReview", "verbs": ["create"]})),
        ("authentication.k8s.io", "v1") => resources.push(json!({"name": "selfsubjectreviews", "singularName": "selfsubjectreview",
            "namespaced": false, "kind": "SelfSubjectReview", "verbs": ["create"]})),
        _ => {}
    }
    if resources.is_empty() {
        return Err(ApiError::no_such_resource());
    }
    let group_version = if group.is_empty() { version.to_string() } else { format!("{group}/{version}") };
    Ok(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}))
}

/// What kubectl asks before it applies: that patches of a kind take `fieldValidation`, so that it need not validate them itself.
/// No schemas: what is unknown in an object is kept as it is.
pub fn openapi(state: &ClusterState, of: Option<&(String, String)>) -> Value {
    let below = |group: &str, version: &str| match group {
        "" => format!("api/{version}"),
        group => format!("apis/{group}/{version}"),
    };
    let mut paths = serde_json::Map::new();
    for kind in state.kinds() {
        let at = below(&kind.group, &kind.version);
        match of {
            None => {
                paths.insert(at.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{at}")}));
            }
            Some((group, version)) if *group == kind.group && *version == kind.version => {
                let scope = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
                let patch = json!({"responses": {}, "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                    "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind}});
                paths.insert(format!("/{at}/{scope}{}/{{name}}", kind.plural), json!({"patch": patch}));
            }
            Some(_) => {}
        }
    }
    match of {
        None => json!({"paths": paths}),
        Some(_) => json!({"openapi": "3.0.0", "info": {"title": "kubesim", "version": "v1"}, "paths": paths}),
    }
}
