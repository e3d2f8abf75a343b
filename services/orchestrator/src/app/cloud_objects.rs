//! What a logical cloud of level 1 is in each of its clusters, as objects. Pure.

use drover_resources::TypedDocument;
use serde_json::{Value, json};

use crate::resources::logical_cloud::LogicalCloudSpec;
use crate::resources::logical_cloud_parts::{ClusterQuotaSpec, UserPermissionSpec};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// The documents of a logical cloud of level 1.
pub struct CloudParts<'a> {
    pub project: &'a str,
    pub cloud: &'a TypedDocument<LogicalCloudSpec>,
    pub permissions: &'a [TypedDocument<UserPermissionSpec>],
    pub quotas: &'a [TypedDocument<ClusterQuotaSpec>],
}

impl CloudParts<'_> {
    /// The name of the user in the clusters. It has the names of project and cloud, so that equal names of two tenants are two users, and
    /// that no name is one that a cluster already gives rights to, such as `system:kube-scheduler`.
    pub fn user(&self) -> String {
        match self.cloud.spec.user.user_name.as_str() {
            "" => String::new(),
            name => format!("drover:{}:{}:{name}", self.project, self.cloud.name),
        }
    }

    /// The objects in each cluster.
    pub fn objects(&self) -> Vec<Value> {
        let (spec, name) = (&self.cloud.spec, &self.cloud.name);
        let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": spec.namespace}});
        if let Some(labels) = spec.labels.as_ref().filter(|labels| !labels.is_empty()) {
            namespace["metadata"]["labels"] = json!(labels);
        }
        let mut objects = vec![namespace];
        for quota in self.quotas {
            objects.push(json!({"apiVersion": "v1", "kind": "ResourceQuota",
                "metadata": {"name": quota.name, "namespace": spec.namespace}, "spec": {"hard": quota.spec.0}}));
        }
        let user = self.user();
        let named = self.permissions.iter().enumerate().filter(|_| !user.is_empty());
        for (at, UserPermissionSpec { namespace, api_groups, resources, verbs }) in named.map(|(at, one)| (at, &one.spec)) {
            // As in EMCO; those of the cluster are named by the project too.
            let (role, role_name, binding, binding_name) = match namespace.is_empty() {
                true => {
                    let of = format!("{}-{name}", self.project);
                    ("ClusterRole", format!("{of}-clusterRole{at}"), "ClusterRoleBinding", format!("{of}-clusterRoleBinding{at}"))
                }
                false => ("Role", format!("{name}-role{at}"), "RoleBinding", format!("{name}-roleBinding{at}")),
            };
            let metadata = |name: &str| match namespace.is_empty() {
                true => json!({"name": name}),
                false => json!({"name": name, "namespace": namespace}),
            };
            objects.push(json!({"apiVersion": RBAC, "kind": role, "metadata": metadata(&role_name),
                "rules": [{"apiGroups": api_groups, "resources": resources, "verbs": verbs}]}));
            objects.push(json!({"apiVersion": RBAC, "kind": binding, "metadata": metadata(&binding_name),
                "subjects": [{"kind": "User", "apiGroup": RBAC_GROUP, "name": user}],
                "roleRef": {"kind": role, "apiGroup": RBAC_GROUP, "name": role_name}}));
        }
        objects
    }

    /// Whether the user may do anything in the cloud's own namespace.
    pub fn permits_own_namespace(&self) -> bool {
        self.permissions.iter().any(|permission| permission.spec.namespace == self.cloud.spec.namespace)
    }
}

#[cfg(test)]
mod tests {
    use drover_resources::Metadata;
    use uuid::Uuid;

    use super::*;

    fn document<T>(name: &str, spec: T) -> TypedDocument<T> {
        TypedDocument {
            id: Uuid::nil(),
            path: name.to_owned(),
            name: name.to_owned(),
            parent_id: None,
            foreign_parent: None,
            version: 1,
            metadata: Metadata::default(),
            spec,
            file_digest: None,
        }
    }

    #[test]
    fn cloud_is_a_namespace_with_quotas_and_the_rights_of_its_user() {
        let spec = json!({"namespace": "ns1", "level": "1", "labels": {"a": "b"}, "user": {"userName": "ann", "type": "certificate"}});
        let cloud = document("lc", serde_json::from_value(spec).unwrap());
        let permission = |namespace: &str| {
            let spec = json!({"namespace": namespace, "apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
            document("p", serde_json::from_value(spec).unwrap())
        };
        let permissions = [permission("ns1"), permission("")];
        let quotas = [document("q", ClusterQuotaSpec([("pods".to_owned(), "5".to_owned())].into()))];
        let parts = CloudParts { project: "proj", cloud: &cloud, permissions: &permissions, quotas: &quotas };
        let objects = parts.objects();
        let names: Vec<String> = objects
            .iter()
            .map(|object| {
                let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
            })
            .collect();
        assert_eq!(
            names,
            [
                "Namespace /ns1",
                "ResourceQuota ns1/q",
                "Role ns1/lc-role0",
                "RoleBinding ns1/lc-roleBinding0",
                "ClusterRole /proj-lc-clusterRole1",
                "ClusterRoleBinding /proj-lc-clusterRoleBinding1"
            ]
        );
        assert_eq!(objects[1]["spec"]["hard"], json!({"pods": "5"}));
        assert_eq!(objects[3]["subjects"][0]["name"], "drover:proj:lc:ann");
        assert_eq!(objects[3]["roleRef"]["name"], objects[2]["metadata"]["name"]);
        assert!(parts.permits_own_namespace());
    }
}
