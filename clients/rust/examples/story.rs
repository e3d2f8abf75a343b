//! Three clusters, an application that moves for a newcomer, and a cluster that is drained: the flagship story in Rust.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drover_client::types::{self, Operation, OperationState, PlanWish};
use drover_client::{Answer, Client, connect};
use serde_json::{Value, from_value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const CLUSTERS: [(&str, u8, &str); 3] = [("onprem", 1, "private-a"), ("onprem", 1, "private-b"), ("aws", 5, "public-c")];
const MANIFEST: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: 2
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      containers: [{name: c, image: registry.example/app, resources: {requests: {cpu: 1500m, memory: 64Mi}}}]
";

/// The answer, unless the request was refused.
fn done<T>(answer: Answer<T>) -> Result<T> {
    answer.map(drover_client::ResponseValue::into_inner).map_err(|error| match error {
        drover_client::Error::ErrorResponse(problem) => {
            format!("{}: {}", problem.code.as_deref().unwrap_or_default(), problem.detail.as_deref().unwrap_or_default()).into()
        }
        other => other.to_string().into(),
    })
}

fn named(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Waits until the operation has ended, and returns its moves.
async fn finished(api: &Client, mut operation: Operation) -> Result<Vec<String>> {
    while matches!(operation.state, OperationState::Running | OperationState::Undoing) {
        operation = done(api.operation_get(&operation.id, Some("30s")).await)?;
    }
    if operation.state != OperationState::Succeeded {
        return Err(format!("{}: {}", operation.kind, operation.message).into());
    }
    Ok(operation.moves.iter().map(|one| format!("{} to {}", one.app, one.to)).collect())
}

/// Registers the clusters, and waits until Drover knows their room.
async fn register(api: &Client) -> Result<()> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(std::env::var("DROVER_KUBECONFIGS")?)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "kubeconfig"));
    files.sort();
    for (provider, priority, _) in [CLUSTERS[0], CLUSTERS[2]] {
        done(api.cluster_provider_create(None, None, &from_value(named(provider, &json!({"priority": priority})))?).await)?;
    }
    for ((provider, _, name), file) in CLUSTERS.iter().zip(files) {
        let upload = from_value(json!({"metadata": {"name": name}, "file": STANDARD.encode(std::fs::read(file)?)}))?;
        done(api.cluster_create(provider, None, None, &upload).await)?;
    }
    for _ in 0..240 {
        let clusters = done(api.cluster_capacity_list(Some("capacity")).await)?;
        if clusters.iter().filter(|cluster| cluster.state == types::MemberState::Ready && !cluster.nodes.is_empty()).count()
            == CLUSTERS.len()
        {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    Err("the clusters did not become ready".into())
}

/// Deploys an application of two pods of 1.5 CPUs each, and returns the moves that made room for it.
async fn deploy(api: &Client, name: &str, at: &[&str], movable: bool) -> Result<Vec<String>> {
    let (p, v, run) = ("shop", "v1", "run");
    let upload = json!({"metadata": {"name": name}, "file": STANDARD.encode(MANIFEST.replace("NAME", name))});
    let profile = json!({"metadata": {"name": "profile"}});
    let group = json!({"compositeProfile": "profile", "version": name, "logicalCloud": "all", "overrideValues": []});
    let any_of: Vec<Value> = CLUSTERS
        .iter()
        .filter(|(.., cluster)| at.contains(cluster))
        .map(|(provider, _, cluster)| json!({"clusterProvider": provider, "cluster": cluster}))
        .collect();
    let intent = json!({"app": name, "intent": {"anyOf": any_of}});
    let moves = json!({"app": name, "migration": movable, "priority": if movable { 1 } else { 10 }});
    let used = json!({"intent": {"genericPlacementIntent": "placement"}});
    let only = |name: &str| json!({"metadata": {"name": name}});
    done(api.composite_app_create(p, None, None, &from_value(named(name, &json!({"compositeAppVersion": v})))?).await)?;
    done(api.app_create(p, name, v, None, None, &from_value(upload)?).await)?;
    done(api.composite_profile_create(p, name, v, None, None, &from_value(profile)?).await)?;
    done(api.deployment_intent_group_create(p, name, v, None, None, &from_value(named(run, &group))?).await)?;
    done(api.generic_placement_intent_create(p, name, v, run, None, None, &from_value(only("placement"))?).await)?;
    done(api.app_intent_create(p, name, v, run, "placement", None, None, &from_value(named(name, &intent))?).await)?;
    done(api.group_intent_create(p, name, v, run, None, None, &from_value(named("used", &used))?).await)?;
    done(api.migration_intent_create(p, name, v, run, None, None, &from_value(only("migration"))?).await)?;
    done(api.migration_app_intent_create(p, name, v, run, "migration", None, None, &from_value(named(name, &moves))?).await)?;
    done(api.approve(p, name, v, run, None, None).await)?;
    let started = done(api.instantiate(p, name, v, run, None, None, None, &from_value(json!({}))?).await)?;
    finished(api, from_value(started)?).await
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("DROVER_URL").unwrap_or_else(|_| "http://127.0.0.1:7070".to_owned());
    let api = connect(&url, std::env::var("DROVER_TOKEN").ok().as_deref(), &[])?;
    register(&api).await?;
    done(api.project_create(None, None, &from_value(json!({"metadata": {"name": "shop"}}))?).await)?;
    done(api.logical_cloud_create("shop", None, None, &from_value(named("all", &json!({"level": "0"})))?).await)?;
    for (provider, _, cluster) in CLUSTERS {
        let reference = from_value(named(cluster, &json!({"clusterProvider": provider, "cluster": cluster})))?;
        done(api.cluster_reference_create("shop", "all", None, None, &reference).await)?;
    }
    done(api.logical_cloud_instantiate("shop", "all", None).await)?;

    deploy(&api, "cart", &["private-a", "private-b", "public-c"], true).await?;
    let moves = deploy(&api, "ledger", &["private-a"], false).await?;
    println!("the newcomer made room: {moves:?}");
    assert_eq!(moves, ["cart/cart to onprem+private-b"]);

    let wish = PlanWish::Drain { cluster_provider: "onprem".to_owned(), cluster: "private-b".to_owned() };
    let plan = done(api.plan_create(None, None, None, &wish).await)?;
    let moves = finished(&api, from_value(done(api.plan_apply(&plan.id, None, None).await)?)?).await?;
    println!("private-b is drained: {moves:?}");
    assert_eq!(moves, ["cart/cart to aws+public-c"]);

    for name in ["cart", "ledger"] {
        let started = done(api.terminate("shop", name, "v1", "run", None, None, None).await)?;
        finished(&api, from_value(started)?).await?;
    }
    println!("done");
    Ok(())
}
