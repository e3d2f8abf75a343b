//! What the apps of a logical cloud may write into the members. Without grants: namespaced objects in the cloud's own namespace.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// What the apps of a logical cloud may write besides namespaced objects in its own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grants {
    /// Every object that Drover itself may write.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everything: bool,
    /// Other namespaces, which they may also create.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Cluster-scoped kinds as `Kind` or `Kind.group`: `PersistentVolume`, `StorageClass.storage.k8s.io`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_scoped: Vec<String>,
    /// Roles that may give rights away (`bind`, `escalate`, `impersonate`), and RoleBindings to other ClusterRoles than `admin`, `edit`
    /// and `view`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escalation: bool,
}

/// An object that is to be written, and where its kind lives.
#[derive(Clone, Copy, Debug)]
pub struct ObjectToWrite<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    pub kind: &'a str,
    /// `None`: the kind is cluster-scoped.
    pub namespace: Option<&'a str>,
    pub name: &'a str,
    /// The whole object.
    pub object: &'a Value,
}

const RBAC: &str = "rbac.authorization.k8s.io";

impl Grants {
    /// Why an app of a cloud with the namespace `own` may not write this object, with the grant that would allow it. `None`: it may.
    pub fn refusal(&self, own: &str, written: ObjectToWrite<'_>) -> Option<String> {
        if self.everything {
            return None;
        }
        let ObjectToWrite { group, kind, namespace, name, .. } = written;
        let mine = |namespace: &str| namespace == own || self.namespaces.iter().any(|granted| granted == namespace);
        let place = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let refused = |why: String| Some(format!("{kind} {place}{name} {why}"));
        match namespace {
            None if (group, kind) == ("", "Namespace") && mine(name) => None,
            None if (group, kind) == ("", "Namespace") => {
                refused(format!("is not a namespace of the logical cloud (grant: spec.grants.namespaces [{name:?}])"))
            }
            None => {
                let full = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
                let granted = self.cluster_scoped.contains(&full);
                if granted { None } else { refused(format!("is cluster-scoped (grant: spec.grants.clusterScoped [{full:?}])")) }
            }
            Some(namespace) if !mine(namespace) => {
                refused(format!("is outside of the namespace {own:?} of the logical cloud (grant: spec.grants.namespaces [{namespace:?}])"))
            }
            Some(_) if group == RBAC && !self.escalation => {
                let why = escalates(kind, written.object)?;
                refused(format!("{why} (grant: spec.grants.escalation true)"))
            }
            Some(_) => None,
        }
    }
}

/// How a Role or a RoleBinding could give more rights than the built-in ClusterRole `admin` has in a namespace.
fn escalates(kind: &str, object: &Value) -> Option<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    match kind {
        "RoleBinding" if text("/roleRef/kind") == "ClusterRole" && !matches!(text("/roleRef/name"), "admin" | "edit" | "view") => {
            Some(format!("gives the rights of the ClusterRole {:?}", text("/roleRef/name")))
        }
        "Role" => object.pointer("/rules").and_then(Value::as_array).into_iter().flatten().find_map(|rule| {
            let has = |list: &str, any: &[&str]| {
                let values = rule.pointer(list).and_then(Value::as_array).into_iter().flatten();
                values.filter_map(Value::as_str).find(|value| *value == "*" || any.contains(value)).map(str::to_owned)
            };
            let over_rights = has("/apiGroups", &[RBAC]).and_then(|_| has("/resources", &["roles", "rolebindings"]));
            let verb = match over_rights {
                Some(_) => has("/verbs", &["bind", "escalate"]),
                None => None,
            };
            let as_others = has("/resources", &["serviceaccounts"]).and_then(|_| has("/verbs", &["impersonate"]));
            verb.or(as_others).map(|verb| format!("has a rule with the verb {verb:?}, which gives rights away"))
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Why a cloud with the namespace `shop` and these grants refuses the object.
    fn refusal(grants: &Grants, object: &Value) -> Option<String> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let group = text("/apiVersion").unwrap().rsplit_once('/').map_or("", |(group, _)| group);
        let (kind, name) = (text("/kind").unwrap(), text("/metadata/name").unwrap());
        grants.refusal("shop", ObjectToWrite { group, kind, namespace: text("/metadata/namespace"), name, object })
    }

    fn object(api_version: &str, kind: &str, namespace: Option<&str>) -> Value {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = namespace.into();
        }
        object
    }

    #[test]
    fn cloud_without_grants_writes_into_its_own_namespace_only() {
        let none = Grants::default();
        assert_eq!(refusal(&none, &object("apps/v1", "Deployment", Some("shop"))), None);
        assert_eq!(refusal(&none, &object("example.com/v1", "Widget", Some("shop"))), None);
        let foreign = refusal(&none, &object("v1", "ConfigMap", Some("kube-system"))).unwrap();
        assert_eq!(
            foreign,
            r#"ConfigMap kube-system/x is outside of the namespace "shop" of the logical cloud (grant: spec.grants.namespaces ["kube-system"])"#
        );
        let cluster_scoped = refusal(&none, &object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", None)).unwrap();
        assert!(
            cluster_scoped.contains(r#"spec.grants.clusterScoped ["ClusterRoleBinding.rbac.authorization.k8s.io"]"#),
            "{cluster_scoped}"
        );
        assert!(refusal(&none, &object("v1", "Namespace", None)).is_some());
        let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        assert_eq!(refusal(&none, &own), None);
    }

    #[test]
    fn grant_allows_what_its_refusal_names() {
        let grants = Grants {
            namespaces: vec!["x".into(), "kube-system".into()],
            cluster_scoped: vec!["StorageClass.storage.k8s.io".into(), "PersistentVolume".into()],
            ..Grants::default()
        };
        for granted in [
            object("v1", "ConfigMap", Some("kube-system")),
            object("v1", "Namespace", None),
            object("storage.k8s.io/v1", "StorageClass", None),
            object("v1", "PersistentVolume", None),
        ] {
            assert_eq!(refusal(&grants, &granted), None);
        }
        assert!(refusal(&grants, &object("evil.example/v1", "StorageClass", None)).is_some(), "the same kind of another group");
        let everything = Grants { everything: true, ..Grants::default() };
        assert_eq!(refusal(&everything, &object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", None)), None);
    }

    #[test]
    fn role_that_gives_rights_away_needs_a_grant() {
        let role = |group: &str, resource: &str, verb: &str| {
            let mut role = object("rbac.authorization.k8s.io/v1", "Role", Some("shop"));
            role["rules"] = json!([{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]);
            role
        };
        let binding = |kind: &str, name: &str| {
            let mut binding = object("rbac.authorization.k8s.io/v1", "RoleBinding", Some("shop"));
            binding["roleRef"] = json!({"apiGroup": RBAC, "kind": kind, "name": name});
            binding
        };
        let none = Grants::default();
        for allowed in [role("", "pods", "*"), role("apps", "*", "get"), binding("Role", "own"), binding("ClusterRole", "edit")] {
            assert_eq!(refusal(&none, &allowed), None, "{allowed}");
        }
        let escalating = [
            role("*", "*", "*"),
            role(RBAC, "roles", "escalate"),
            role("", "serviceaccounts", "impersonate"),
            binding("ClusterRole", "cluster-admin"),
        ];
        for refused in escalating {
            assert!(refusal(&none, &refused).unwrap().contains("spec.grants.escalation"), "{refused}");
            assert_eq!(refusal(&Grants { escalation: true, ..Grants::default() }, &refused), None);
        }
    }
}
