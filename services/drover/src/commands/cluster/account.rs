//! `drover cluster kubeconfig`: a service account in a cluster with the rights that Drover needs, and a kubeconfig for it.
//!
//! Talks to the cluster directly, with a context of the user's own kubeconfig, which may use `exec` plugins; the kubeconfig that is
//! printed needs no plugin. Everything is applied by name, so the command can be repeated.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine;
use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

pub(super) const NAMESPACE: &str = "drover-system";
const NAME: &str = "drover";
/// For how long the cluster may take to issue the token.
const ISSUED: Duration = Duration::from_secs(30);

/// `drover cluster kubeconfig`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  drover cluster kubeconfig --from my-eks > eks.kubeconfig
  drover cluster add eks --provider aws --kubeconfig eks.kubeconfig
  drover cluster kubeconfig --from my-eks --also cert-manager.io/certificates --print-role    show what would be made
  drover cluster kubeconfig --from my-eks --agents > eks.kubeconfig                           Drover's agents are to run there

Makes in the cluster: Namespace drover-system, ServiceAccount drover, ClusterRole and ClusterRoleBinding drover, and a Secret with a token
that does not expire. Delete the Namespace to take the access back.")]
pub struct AccountArgs {
    /// Context of your kubeconfig (`kubectl config get-contexts`) that leads to the cluster, with the right to make these objects.
    #[arg(long, value_name = "CONTEXT")]
    from: String,
    /// Your kubeconfig [default: the one that kubectl uses].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Another kind that your applications contain, as GROUP/RESOURCE, for example cert-manager.io/certificates; may be repeated.
    #[arg(long, value_name = "GROUP/RESOURCE")]
    also: Vec<String>,
    /// Also give the rights to run Drover's agents there (`drover agents set`): to define ScalingPolicies, and to give the agents, and
    /// nobody else, their rights.
    #[arg(long)]
    agents: bool,
    /// Let applications take their volumes along when they are moved: the right to make PersistentVolumes, and so to make directories of nodes
    /// readable to pods.
    #[arg(long)]
    volumes: bool,
    /// Bind cluster-admin instead: applications may then contain anything, also roles and custom resource definitions.
    #[arg(long, conflicts_with_all = ["also", "volumes"])]
    admin: bool,
    /// Write the kubeconfig to this file, readable only by you, instead of to stdout.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the objects as YAML, and make nothing.
    #[arg(long)]
    print_role: bool,
}

/// Makes the account in the cluster and prints or writes its kubeconfig; with `--print-role` only prints the objects.
///
/// # Errors
/// The given kubeconfig cannot be used, the cluster refuses an object or issues no token, or the file cannot be written.
pub async fn run(args: &AccountArgs) -> Result<()> {
    let objects = objects(&args.also, args.agents, args.volumes, args.admin)?;
    if args.print_role {
        let documents: Vec<String> = objects.iter().map(serde_yaml::to_string).collect::<Result<_, _>>()?;
        return crate::output::write_stdout(&documents.join("---\n"));
    }
    let file = match &args.kubeconfig {
        Some(path) => Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?,
        None => Kubeconfig::read().context("no kubeconfig; give --kubeconfig")?,
    };
    let options = KubeConfigOptions { context: Some(args.from.clone()), ..Default::default() };
    let config = kube::Config::from_custom_kubeconfig(file, &options).await;
    let config = config.with_context(|| format!("the context {} cannot be used", args.from))?;
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config)?;
    for object in &objects {
        apply(&client, object).await?;
    }
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let issued = async {
        loop {
            let data = secrets.get(NAME).await?.data.unwrap_or_default();
            if let (Some(token), Some(ca)) = (data.get("token"), data.get("ca.crt")) {
                return anyhow::Ok((String::from_utf8(token.0.clone())?, ca.0.clone()));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let Ok(issued) = tokio::time::timeout(ISSUED, issued).await else {
        bail!("the cluster has issued no token within {} s; does its controller manager run?", ISSUED.as_secs());
    };
    let (token, authority) = issued?;
    let text = kubeconfig(&args.from, &server, &authority, &token)?;
    match &args.out {
        None => crate::output::write_stdout(&text),
        Some(path) => write_private(path, &text).with_context(|| format!("cannot write {}", path.display())),
    }
}

pub(super) fn write_private(path: &std::path::Path, text: &str) -> Result<()> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // The mode given above has no effect on a file that exists.
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    Ok(file.write_all(text.as_bytes())?)
}

async fn apply(client: &Client, object: &Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let types = object.types.clone().unwrap_or_default();
    let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(types.clone())?);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    };
    let name = object.metadata.name.clone().unwrap_or_default();
    let applied = api.patch(&name, &PatchParams::apply("drover-cli"), &Patch::Apply(&object)).await;
    applied.with_context(|| format!("cannot make {} {name}", types.kind)).map(drop)
}

/// A kubeconfig with everything inline.
fn kubeconfig(cluster: &str, server: &str, authority: &[u8], token: &str) -> Result<String> {
    let authority = base64::engine::general_purpose::STANDARD.encode(authority);
    Ok(serde_yaml::to_string(&json!({
        "apiVersion": "v1", "kind": "Config", "current-context": cluster,
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": NAME}}],
    }))?)
}

/// Everything that is made in the cluster, in this order.
fn objects(also: &[String], agents: bool, volumes: bool, admin: bool) -> Result<Vec<Value>> {
    let subject = json!({"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE});
    let of_account = json!({"kubernetes.io/service-account.name": NAME});
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": NAMESPACE}}),
    ];
    if !admin {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": rules(also, agents, volumes)?});
        objects.push(role);
    }
    let role = if admin { "cluster-admin" } else { NAME };
    objects.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": [subject]}));
    objects.push(json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "annotations": of_account}}));
    Ok(objects)
}

/// The roles of the agents. Drover may give the rights in them without having them itself, and only these.
const ROLES: [&str; 5] =
    ["drover-autoscaler", "drover-autoscaler-path", "drover-autoscaler-tables", "drover-activator", "drover-memory-guard"];
const RBAC: &str = "rbac.authorization.k8s.io";

/// What may be done with the kinds of applications.
pub(super) const MANAGE: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// The kinds that applications usually contain, by group, and these.
///
/// # Errors
/// One of `also` has not the form GROUP/RESOURCE.
pub(super) fn managed(also: &[String]) -> Result<Vec<(&str, Vec<&str>)>> {
    let mut managed = vec![
        (
            "",
            vec![
                "configmaps",
                "persistentvolumeclaims",
                "pods",
                "replicationcontrollers",
                "secrets",
                "serviceaccounts",
                "services",
                "limitranges",
                "resourcequotas",
                "endpoints",
            ],
        ),
        ("apps", vec!["daemonsets", "deployments", "replicasets", "statefulsets"]),
        ("batch", vec!["cronjobs", "jobs"]),
        ("autoscaling", vec!["horizontalpodautoscalers"]),
        ("networking.k8s.io", vec!["ingresses", "networkpolicies"]),
        ("policy", vec!["poddisruptionbudgets"]),
        // So that the names of Services lead to where their app runs.
        ("discovery.k8s.io", vec!["endpointslices"]),
        // So that a gateway gives the copies of an app their shares of users' requests.
        ("gateway.networking.k8s.io", vec!["httproutes"]),
        // So that the Services that an app exports are imported in other clusters.
        ("multicluster.x-k8s.io", vec!["serviceexports", "serviceexports/status", "serviceimports", "serviceimports/status"]),
        ("", vec!["namespaces"]),
    ];
    for kind in also {
        let Some((group, resource)) = kind.split_once('/').filter(|(group, resource)| !group.is_empty() && !resource.is_empty()) else {
            bail!("--also {kind}: give GROUP/RESOURCE, for example cert-manager.io/certificates");
        };
        managed.push((group, vec![resource]));
    }
    Ok(managed)
}

/// The rights to read nodes, events, logs and usage, for capacity and readiness.
pub(super) fn readings() -> Vec<Value> {
    vec![
        json!({"apiGroups": [""], "resources": ["nodes", "events", "pods/log"], "verbs": ["get", "list", "watch"]}),
        json!({"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["get", "list"]}),
        json!({"apiGroups": ["storage.k8s.io"], "resources": ["csidrivers", "storageclasses"], "verbs": ["get", "list"]}),
        json!({"apiGroups": ["metrics.k8s.io"], "resources": ["nodes", "pods"], "verbs": ["get", "list"]}),
    ]
}

/// The rights to reach what runs: a command in a pod, and a request that says whether an application serves.
pub(super) fn entrances() -> [Value; 2] {
    [
        json!({"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]}),
        json!({"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]}),
    ]
}

/// The rights: to read for capacity and readiness, to manage the kinds that applications usually contain, and those for the agents.
fn rules(also: &[String], agents: bool, volumes: bool) -> Result<Vec<Value>> {
    let mut rules = readings();
    rules.extend(entrances());
    let mut managed = managed(also)?;
    if agents {
        rules.push(
            json!({"apiGroups": [RBAC], "resources": ["roles", "clusterroles"], "verbs": ["escalate", "bind"], "resourceNames": ROLES}),
        );
        rules.push(json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list"]}));
        managed.push(("apiextensions.k8s.io", vec!["customresourcedefinitions"]));
        managed.push(("drover.io", vec!["scalingpolicies"]));
        managed.push((RBAC, vec!["roles", "rolebindings", "clusterroles", "clusterrolebindings"]));
    }
    if volumes {
        managed.push(("", vec!["persistentvolumes"]));
    }
    rules.extend(managed.into_iter().map(|(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": MANAGE})));
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_make_volumes(role: &Value) -> bool {
        let grants =
            |rule: &Value| rule["resources"].to_string().contains("persistentvolumes\"") && rule["verbs"].to_string().contains("create");
        role["rules"].as_array().unwrap().iter().any(grants)
    }

    #[test]
    fn role_has_no_wildcard_and_kinds_that_were_added() {
        let made = objects(&["cert-manager.io/certificates".to_owned()], true, false, false).unwrap();
        let role = made.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
        assert!(!role.to_string().contains('*'), "{role}");
        assert!(role.to_string().contains(r#"["cert-manager.io"],"resources":["certificates"]"#), "{role}");
        assert!(objects(&["certificates".to_owned()], false, false, false).is_err());
        let plain = objects(&[], false, false, false).unwrap();
        assert!(!format!("{plain:?}").contains("escalate"), "only with --agents");
        assert!(!may_make_volumes(role), "{role}");
        let with_volumes = objects(&[], false, true, false).unwrap();
        assert!(may_make_volumes(with_volumes.iter().find(|object| object["kind"] == "ClusterRole").unwrap()));
    }

    #[test]
    fn kubeconfig_has_a_token_and_names_no_plugin_and_no_file() {
        let text = kubeconfig("eks", "https://10.0.0.1:6443/", b"-----BEGIN CERTIFICATE-----\n", "abc").unwrap();
        let parsed: Value = serde_yaml::from_str(&text).unwrap();
        assert_eq!(parsed["users"][0]["user"], json!({"token": "abc"}), "no plugin and no file");
        assert_eq!(parsed["contexts"][0]["name"], parsed["current-context"]);
    }
}
