//! Validation of objects: names, pod templates, selectors, immutable fields. A real server checks far more.

use serde_json::Value;

use crate::error::ApiError;
use crate::kinds::ServedKind;
use crate::object::{self, list, map, text};
use crate::selectors::Labels;

/// Checks an object that is about to be written.
///
/// # Errors
/// 400 or 422, as a real server answers.
pub fn object(kind: &ServedKind, object: &Value) -> Result<(), ApiError> {
    let name = object::name(object);
    let invalid = |field: &str, why: String| Err(ApiError::invalid(&kind.kind, name, field, why));
    if name.is_empty() {
        return invalid("metadata.name", "Required value: name or generateName is required".into());
    }
    if let Some(why) = bad_name(kind, name) {
        return invalid("metadata.name", format!("Invalid value: \"{name}\": {why}"));
    }
    for (key, value) in map(object, "/metadata/labels").into_iter().flatten() {
        if !value.as_str().is_some_and(label_value) {
            return invalid(
                "metadata.labels",
                format!(
                    "Invalid value: {value}: a valid label must be an empty string or consist of \
                alphanumeric characters, '-', '_' or '.' (key {key})"
                ),
            );
        }
    }
    match &*kind.resource {
        "pods" => pod_spec(kind, name, &object["spec"], "spec"),
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "daemonsets.apps" => {
            selector(kind, object)?;
            pod_spec(kind, name, &object["spec"]["template"]["spec"], "spec.template.spec")
        }
        "jobs.batch" => {
            pod_spec(kind, name, &object["spec"]["template"]["spec"], "spec.template.spec")?;
            match text(object, "/spec/template/spec/restartPolicy") {
                "OnFailure" | "Never" => Ok(()),
                other => invalid(
                    "spec.template.spec.restartPolicy",
                    format!("Required value: valid values: \"OnFailure\", \"Never\" (got \"{other}\")"),
                ),
            }
        }
        "services"
            if list(object, "/spec/ports").is_empty()
                && object["spec"]["type"] != "ExternalName"
                && object["spec"]["clusterIP"] != "None" =>
        {
            invalid("spec.ports", "Required value".into())
        }
        "customresourcedefinitions.apiextensions.k8s.io" => definition(kind, object),
        _ => Ok(()),
    }
}

/// Checks that immutable fields do not change.
///
/// # Errors
/// 422 with the field.
pub fn change(kind: &ServedKind, old: &Value, new: &Value) -> Result<(), ApiError> {
    let fixed: &[&str] = match &*kind.resource {
        "deployments.apps" | "replicasets.apps" | "daemonsets.apps" => &["/spec/selector"],
        "statefulsets.apps" => &["/spec/selector", "/spec/serviceName", "/spec/volumeClaimTemplates", "/spec/podManagementPolicy"],
        "jobs.batch" => &["/spec/selector", "/spec/template", "/spec/completions"],
        "pods" => &["/spec/nodeName", "/spec/nodeSelector", "/spec/volumes", "/spec/affinity", "/spec/restartPolicy"],
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => &["/roleRef"],
        "configmaps" | "secrets" if old["immutable"] == true => &["/data", "/binaryData", "/immutable"],
        "secrets" => &["/type"],
        _ => &[],
    };
    for pointer in fixed {
        if old.pointer(pointer) != new.pointer(pointer) {
            let field = pointer[1..].replace('/', ".");
            return Err(ApiError::invalid(&kind.kind, object::name(new), &field, "Invalid value: field is immutable"));
        }
    }
    Ok(())
}

fn pod_spec(kind: &ServedKind, name: &str, spec: &Value, at: &str) -> Result<(), ApiError> {
    let invalid = |field: &str, why: String| Err(ApiError::invalid(&kind.kind, name, &format!("{at}.{field}"), why));
    let containers = list(spec, "/containers");
    if containers.is_empty() {
        return invalid("containers", "Required value".into());
    }
    let mut names = Vec::new();
    for (at, container) in containers.iter().enumerate() {
        let container_name = text(container, "/name");
        if !dns_label(container_name) {
            return invalid(&format!("containers[{at}].name"), format!("Invalid value: \"{container_name}\": {LABEL}"));
        }
        if names.contains(&container_name) {
            return invalid(&format!("containers[{at}].name"), format!("Duplicate value: \"{container_name}\""));
        }
        if kind.kind != "Pod" && text(container, "/image").is_empty() {
            return invalid(&format!("containers[{at}].image"), "Required value".into());
        }
        names.push(container_name);
        for list in ["requests", "limits"] {
            for (resource, amount) in map(container, &format!("/resources/{list}")).into_iter().flatten() {
                if amount.as_str().is_some_and(|a| crate::quantity::milli(a).is_none()) {
                    return Err(ApiError::bad_request(format!(
                        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$' ({resource}: {amount})"
                    )));
                }
            }
        }
    }
    Ok(())
}

fn selector(kind: &ServedKind, object: &Value) -> Result<(), ApiError> {
    let labels = Labels::of(&object["spec"]["selector"]);
    let invalid = |field: &str, why: &str| Err(ApiError::invalid(&kind.kind, object::name(object), field, why));
    if labels.is_empty() {
        return invalid("spec.selector", "Required value");
    }
    if !labels.matches(&object["spec"]["template"]) {
        return invalid("spec.template.metadata.labels", "Invalid value: `selector` does not match template `labels`");
    }
    Ok(())
}

fn definition(kind: &ServedKind, object: &Value) -> Result<(), ApiError> {
    let want = format!("{}.{}", text(object, "/spec/names/plural"), text(object, "/spec/group"));
    let invalid = |field: &str, why: String| Err(ApiError::invalid(&kind.kind, object::name(object), field, why));
    if object::name(object) != want {
        return invalid(
            "metadata.name",
            format!("Invalid value: \"{}\": must be spec.names.plural+\".\"+spec.group", object::name(object)),
        );
    }
    if list(object, "/spec/versions").is_empty() {
        return invalid("spec.versions", "Required value".into());
    }
    Ok(())
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
    end with an alphanumeric character";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
    start and end with an alphanumeric character";

fn bad_name(kind: &ServedKind, name: &str) -> Option<&'static str> {
    match &*kind.resource {
        // RBAC names are path segments.
        r if r.ends_with("rbac.authorization.k8s.io") => {
            (name.contains('/') || matches!(name, "." | "..")).then_some("may not contain '/'")
        }
        "namespaces" | "services" => (!dns_label(name)).then_some(LABEL),
        _ => (name.len() > 253 || !name.split('.').all(|part| dns_label_of(part, 253))).then_some(SUBDOMAIN),
    }
}

/// Whether the name is a DNS label of RFC 1123, with at most 63 characters.
pub fn dns_label(name: &str) -> bool {
    dns_label_of(name, 63)
}

fn dns_label_of(name: &str, limit: usize) -> bool {
    !name.is_empty()
        && name.len() <= limit
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn label_value(value: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let edge = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    bytes.len() <= 63 && bytes.iter().all(|b| inner(*b)) && edge(bytes.first()) && edge(bytes.last())
}
