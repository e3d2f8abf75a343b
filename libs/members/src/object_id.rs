//! The address of an object in a member.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The address of an object in a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// `v1`, `apps/v1`, …
    pub api_version: String,
    pub kind: String,
    /// Namespace; empty for cluster-wide kinds.
    pub namespace: String,
    pub name: String,
}

impl ObjectId {
    /// API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
    /// API version without its group.
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&self.api_version, |(_, version)| version)
    }
    /// Whether several apps may contain this object: it is cluster-scoped, or of a namespaced kind without pods, addresses or storage of
    /// its own.
    pub fn is_shareable(&self) -> bool {
        self.namespace.is_empty()
            || matches!(
                (self.group(), self.kind.as_str()),
                ("", "ConfigMap" | "Secret" | "ServiceAccount" | "LimitRange" | "ResourceQuota")
                    | ("rbac.authorization.k8s.io", "Role" | "RoleBinding")
                    | ("networking.k8s.io", "NetworkPolicy")
            )
    }
    /// Whether other objects are deleted with this one.
    pub fn takes_others_along(&self) -> bool {
        matches!((self.group(), self.kind.as_str()), ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition"))
    }
    /// Whether this object would be deleted with `container`, as far as the addresses tell.
    pub fn goes_with(&self, container: &Self) -> bool {
        match (container.group(), container.kind.as_str()) {
            ("", "Namespace") => self.namespace == container.name,
            // The name of a definition is `plural.group`.
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                container.name.split_once('.').is_some_and(|(_, group)| group == self.group())
            }
            _ => false,
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, .. } = self;
        if namespace.is_empty() { write!(f, "{kind}/{name}") } else { write!(f, "{kind}/{namespace}/{name}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_services_and_claims_are_not_shareable() {
        let id = |api_version: &str, kind: &str, namespace: &str| ObjectId {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: "x".into(),
        };
        assert!(id("storage.k8s.io/v1", "StorageClass", "").is_shareable());
        assert!(id("example.com/v1", "Fence", "").is_shareable());
        assert!(id("v1", "ConfigMap", "shop").is_shareable());
        for (api_version, kind) in
            [("apps/v1", "Deployment"), ("v1", "Service"), ("v1", "PersistentVolumeClaim"), ("example.com/v1", "Cache")]
        {
            assert!(!id(api_version, kind, "shop").is_shareable(), "{kind}");
        }
    }

    #[test]
    fn objects_go_with_their_namespace_and_with_the_definition_of_their_group() {
        let id = |api_version: &str, kind: &str, namespace: &str, name: &str| ObjectId {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        let thing = id("example.com/v1", "Thing", "shop", "x");
        for (container, goes) in [
            (id("v1", "Namespace", "", "shop"), true),
            (id("v1", "Namespace", "", "blog"), false),
            (id("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "things.example.com"), true),
            (id("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "things.example.org"), false),
            (id("v1", "ConfigMap", "shop", "shop"), false),
        ] {
            assert_eq!(thing.goes_with(&container), goes, "{container}");
        }
    }
}
