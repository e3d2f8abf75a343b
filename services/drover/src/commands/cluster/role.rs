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
watches each kind in all namespaces.

If the cloud has `spec.actAs`, the apps are written as the ServiceAccount that it names, in the cloud's own namespace: that one gets the
rights to write, and Drover's account the right to act as it, so that it writes no app by itself.")]
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
    let hub = json!({"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE});
    let mut namespaces: Vec<&str> = std::iter::once(own).chain(grants.namespaces.iter().map(String::as_str)).collect();
    namespaces.dedup();
    let managed = managed(also)?;
    let to_write: Vec<Value> = managed
        .iter()
        .filter(|(_, resources)| resources.as_slice() != ["namespaces"])
        .map(|(group, resources)| rule(group, resources, &MANAGE))
        .collect();
    // Capacity is read everywhere: room is what others leave. The objects of apps are watched by kind, not by namespace.
    let mut everywhere = readings();
    everywhere.extend(managed.iter().map(|(group, resources)| rule(group, resources, &READ)));
    let mut wide = Vec::new();
    for kind in &grants.cluster_scoped {
        let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
        let resource = plural(kind).with_context(|| format!("spec.grants.clusterScoped names {kind:?}, which is no kind"))?;
        wide.push((group, resource));
    }
    let wide_rules = |verbs: &[&str]| wide.iter().map(|(group, resource)| rule(group, &[resource.as_str()], verbs)).collect::<Vec<_>>();

    let mut objects = vec![namespace(NAMESPACE), account(NAMESPACE, &name)];
    objects.extend(namespaces.iter().map(|namespace_name| namespace(namespace_name)));
    let Some(acts_as) = spec["actAs"]["serviceAccount"].as_str() else {
        for own in namespaces {
            objects.extend(role(&name, Some(own), &[&to_write[..], &entrances()].concat(), &hub));
        }
        everywhere.extend(wide_rules(&MANAGE));
        objects.extend(role(&name, None, &everywhere, &hub));
        return Ok(objects);
    };
    // Drover's own account reads, and acts as the account that writes.
    let writer = json!({"kind": "ServiceAccount", "name": acts_as, "namespace": own});
    objects.push(account(own, acts_as));
    for namespace_name in namespaces {
        objects.extend(role(&format!("{name}-apps"), Some(namespace_name), &to_write, &writer));
        let mut rules = entrances().to_vec();
        if namespace_name == own {
            rules.push(json!({"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"], "resourceNames": [acts_as]}));
        }
        objects.extend(role(&name, Some(namespace_name), &rules, &hub));
    }
    if !wide.is_empty() {
        objects.extend(role(&format!("{name}-apps"), None, &wide_rules(&MANAGE), &writer));
    }
    everywhere.extend(wide_rules(&READ));
    objects.extend(role(&name, None, &everywhere, &hub));
    Ok(objects)
}

/// What Drover does with what it only watches.
const READ: [&str; 3] = ["get", "list", "watch"];
const RBAC: &str = "rbac.authorization.k8s.io";

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn account(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}})
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// A role in a namespace (`None`: in the whole cluster), and its binding to an account.
fn role(name: &str, namespace: Option<&str>, rules: &[Value], subject: &Value) -> [Value; 2] {
    let prefix = if namespace.is_some() { "" } else { "Cluster" };
    let metadata = namespace.map_or_else(|| json!({"name": name}), |namespace| json!({"name": name, "namespace": namespace}));
    let api_version = format!("{RBAC}/v1");
    let kind = format!("{prefix}Role");
    [
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": rules}),
        json!({"apiVersion": api_version, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name}, "subjects": [subject]}),
    ]
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

    #[test]
    fn drover_itself_writes_no_app_of_a_cloud_that_names_an_account() {
        let spec = json!({"namespace": "shop", "level": "0", "grants": {"namespaces": ["shop-cache"], "clusterScoped": ["StorageClass.storage.k8s.io"]},
            "actAs": {"serviceAccount": "deployer"}});
        let made = objects("team", "shop", &spec, &[]).unwrap();
        let writing = |rule: &Value| rule["verbs"].to_string().contains("patch");
        let mut writers = Vec::new();
        for binding in made.iter().filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding"))) {
            let of = &binding["roleRef"];
            let role = made.iter().find(|object| {
                object["kind"] == of["kind"] && object["metadata"] == binding["metadata"] && object["metadata"]["name"] == of["name"]
            });
            if role.unwrap()["rules"].as_array().unwrap().iter().any(writing) {
                writers.push((binding["subjects"][0]["name"].as_str().unwrap(), binding["metadata"]["namespace"].as_str()));
            }
        }
        assert_eq!(writers, [("deployer", Some("shop")), ("deployer", Some("shop-cache")), ("deployer", None)]);
        let acting: Vec<&Value> = made.iter().filter(|object| object.to_string().contains("impersonate")).collect();
        assert_eq!((acting.len(), &acting[0]["metadata"]["namespace"]), (1, &json!("shop")), "{acting:?}");
        assert!(acting[0].to_string().contains(r#""resourceNames":["deployer"]"#), "{acting:?}");
    }
}
