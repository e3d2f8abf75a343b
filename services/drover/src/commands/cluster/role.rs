//! `drover cluster role`: the least rights in a cluster with which the apps of one logical cloud can be written there.
//!
//! Made from the cloud's document, so that the cluster itself holds the same limits as Drover's grants: a service account with a Role in each
//! namespace of the cloud, and a ClusterRole for what has no namespace.

use anyhow::{Context, Result, bail};
use clap::Args;
use drover_api::grants::Grants;
use serde_json::{Value, json};

use super::account::{MANAGE, NAMESPACE, entrances, managed, readings};
use crate::hub::segment;
use crate::session::Session;

/// `drover cluster role`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover cluster role --for shop --project shop | kubectl --context private-a apply -f -
  drover cluster role --for shop --project shop --also cert-manager.io/certificates

Prints: Namespace drover-system with a ServiceAccount for the cloud, a Role and a RoleBinding in each of its namespaces, and a ClusterRole with
its binding. A kubeconfig with that account's token, or one that acts as it (`as: system:serviceaccount:drover-system:…`), can then write
the apps of this cloud and nothing else. It can read objects of the same kinds, Secrets too, in the whole cluster, because Drover
watches each kind in all namespaces.")]
pub struct RoleArgs {
    /// Logical cloud, of the project that --project names.
    #[arg(long = "for", value_name = "CLOUD")]
    cloud: String,
    /// Another kind that its applications contain, as GROUP/RESOURCE, for example cert-manager.io/certificates; may be repeated.
    #[arg(long, value_name = "GROUP/RESOURCE")]
    also: Vec<String>,
}

/// Prints the objects as YAML.
///
/// # Errors
/// There is no such logical cloud, or it may write everything, for which no least role exists.
pub async fn run(session: &Session, args: &RoleArgs) -> Result<()> {
    let path = format!("/v2/projects/{}/logical-clouds/{}", segment(&session.project), segment(&args.cloud));
    let cloud: Value = session.client.get(&path).await?;
    let documents: Vec<String> =
        objects(&session.project, &args.cloud, &cloud["spec"], &args.also)?.iter().map(serde_yaml::to_string).collect::<Result<_, _>>()?;
    crate::output::write_stdout(&documents.join("---\n"))
}

fn objects(project: &str, cloud: &str, spec: &Value, also: &[String]) -> Result<Vec<Value>> {
    let grants: Grants = serde_json::from_value(spec["grants"].clone()).or_else(|error| match spec["grants"] {
        Value::Null => Ok(Grants::default()),
        _ => Err(error),
    })?;
    let own = spec["namespace"].as_str().filter(|name| !name.is_empty()).unwrap_or("default");
    // The admin's cloud needs no grant: see docs/errors/not_granted.md.
    if grants.everything || (own == "default" && spec["grants"].is_null()) {
        bail!("the apps of {cloud} may write everything; `drover cluster kubeconfig --admin` makes an account for that");
    }
    let name = format!("drover-{project}-{cloud}");
    let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE});
    let rbac = "rbac.authorization.k8s.io/v1";
    let binding = |kind: &str, role: &str, namespace: Option<&str>| {
        let mut made = json!({"apiVersion": rbac, "kind": kind, "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name}, "subjects": [subject]});
        if let Some(namespace) = namespace {
            made["metadata"]["namespace"] = namespace.into();
        }
        made
    };
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let mut namespaces: Vec<&str> = std::iter::once(own).chain(grants.namespaces.iter().map(String::as_str)).collect();
    namespaces.dedup();
    let mut objects = vec![
        namespace(NAMESPACE),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}),
    ];
    let kinds: Vec<Value> = managed(also)?
        .into_iter()
        .filter(|(_, resources)| resources.as_slice() != ["namespaces"])
        .map(|(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": MANAGE}))
        .chain(entrances())
        .collect();
    for own in &namespaces {
        objects.push(namespace(own));
        objects.push(json!({"apiVersion": rbac, "kind": "Role", "metadata": {"name": name, "namespace": own}, "rules": kinds}));
        objects.push(binding("RoleBinding", "Role", Some(own)));
    }
    // Capacity is read everywhere: room is what others leave. The objects of apps are watched by kind, not by namespace.
    let mut everywhere = readings();
    everywhere.extend(
        managed(also)?
            .into_iter()
            .map(|(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": ["get", "list", "watch"]})),
    );
    for kind in &grants.cluster_scoped {
        let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
        let resource = plural(kind).with_context(|| format!("spec.grants.clusterScoped names {kind:?}, which is no kind"))?;
        everywhere.push(json!({"apiGroups": [group], "resources": [resource], "verbs": MANAGE}));
    }
    objects.push(json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": name}, "rules": everywhere}));
    objects.push(binding("ClusterRoleBinding", "ClusterRole", None));
    Ok(objects)
}

/// The resource of a kind, as Kubernetes names its own: `StorageClass` is `storageclasses`, `NetworkPolicy` `networkpolicies`.
fn plural(kind: &str) -> Option<String> {
    let kind = kind.to_ascii_lowercase();
    let last = kind.chars().last()?;
    Some(match last {
        's' | 'x' => format!("{kind}es"),
        'y' if !kind.ends_with("ay") => format!("{}ies", &kind[..kind.len() - 1]),
        _ => format!("{kind}s"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_is_of_the_namespaces_and_kinds_of_the_cloud_only() {
        let spec = json!({"namespace": "shop", "level": "0", "grants": {"namespaces": ["shop-cache"], "clusterScoped": ["StorageClass.storage.k8s.io"]}});
        let made = objects("team", "shop", &spec, &[]).unwrap();
        let roles: Vec<&str> =
            made.iter().filter(|object| object["kind"] == "Role").filter_map(|object| object["metadata"]["namespace"].as_str()).collect();
        assert_eq!(roles, ["shop", "shop-cache"]);
        let wide = made.iter().find(|object| object["kind"] == "ClusterRole").unwrap().to_string();
        assert!(wide.contains(r#"["storage.k8s.io"],"resources":["storageclasses"]"#) && !wide.contains('*'), "{wide}");
        assert!(objects("team", "all", &json!({"namespace": "default", "level": "0"}), &[]).is_err(), "the admin's cloud");
        assert!(objects("team", "all", &json!({"namespace": "shop", "grants": {"everything": true}}), &[]).is_err());
    }
}
