//! CustomResourceDefinitions of other projects in a member.

use std::time::Duration;

use drover_testkit::eventually;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::{Backend, Member};

const PATIENCE: Duration = Duration::from_secs(180);

/// Makes kinds known: in a real API server as the Go module `module` defines them, in a simulated one these (group, version and kind), without a
/// schema.
pub async fn define(member: &Member, backend: Backend, module: &str, kinds: &[[&str; 3]]) {
    let definitions = match backend {
        Backend::Real => drover_testkit::crds(module),
        Backend::Simulated => kinds.iter().map(|[group, version, kind]| loose(group, version, kind)).collect(),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition"));
    let api: Api<DynamicObject> = Api::all_with(member.client.clone(), &resource);
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let made = api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(&definition)).await;
        made.expect("the member accepts the definition");
        let is_true = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
        eventually(PATIENCE, async || {
            let found = api.get(name).await.ok()?;
            found.data["status"]["conditions"].as_array()?.iter().any(is_true).then_some(())
        })
        .await;
    }
}

fn loose(group: &str, version: &str, kind: &str) -> Value {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": version, "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")}, "versions": [version]}})
}
