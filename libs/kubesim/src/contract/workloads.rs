//! Workloads: those effects of controllers, scheduler, kubelet and metrics that Drover reads.

use std::time::Duration;

use futures::StreamExt;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use super::{Broken, Fixture, Outcome, PATIENCE, condition, eventually, must, of, table, typed, until};

table!(
    metrics_are_served,
    deployments_get_ready,
    rollouts_keep_pods_ready,
    rollouts_replace_the_old_set,
    unschedulable_pods_say_so,
    room_that_appears_is_used,
    taints_keep_pods_away,
    deleting_a_deployment_takes_its_pods,
    quota_fails_the_replica_set,
    daemon_sets_cover_nodes,
    daemon_sets_without_a_node_want_no_pod,
    jobs_complete,
    pods_start_late,
    crashed_pods_are_replaced,
    pods_can_be_selected_by_node,
);

fn ready(object: Option<&DynamicObject>, replicas: u32) -> bool {
    object.is_some_and(|o| {
        of(o, "/status/observedGeneration").as_i64() == o.metadata.generation
            && ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"].iter().all(|f| o.data["status"][*f] == replicas)
    })
}

async fn deployments_get_ready(f: Fixture) -> Outcome {
    let api = f.deployments();
    api.create(&PostParams::default(), &typed(f.deployment("web", 2, "10m"))).await?;
    let complete = |d: Option<&DynamicObject>| {
        ready(d, 2)
            && d.is_some_and(|d| {
                let reasons = of(d, "/status/conditions").to_string();
                condition(d, "Available") == "True" && condition(d, "Progressing") == "True" && reasons.contains("NewReplicaSetAvailable")
            })
    };
    let done = until(&api, "web", complete, "the deployment is complete").await?;
    let done = done.ok_or_else(|| Broken::Expectation("it vanished".into()))?;
    must!(of(&done, "/status/unavailableReplicas").is_null(), "zeros are left out: {}", done.data["status"]);
    let pods = f.pods().list(&ListParams::default().labels("app=web")).await?.items;
    must!(pods.len() == 2, "{} pods", pods.len());
    for pod in &pods {
        must!(of(pod, "/spec/nodeName") == &json!(f.node), "on {}", of(pod, "/spec/nodeName"));
        must!(of(pod, "/status/phase") == "Running" && condition(pod, "Ready") == "True", "{}", pod.data["status"]);
        let owner = pod.metadata.owner_references.iter().flatten().next();
        must!(owner.is_some_and(|o| o.kind == "ReplicaSet" && o.controller == Some(true)), "{:?}", pod.metadata);
        must!(pod.metadata.labels.as_ref().is_some_and(|l| l.contains_key("pod-template-hash")), "{:?}", pod.metadata.labels);
    }
    Ok(())
}

async fn rollouts_keep_pods_ready(f: Fixture) -> Outcome {
    let api = f.deployments();
    let mut object = f.deployment("web", 3, "10m");
    object["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    api.create(&PostParams::default(), &typed(object)).await?;
    let start = until(&api, "web", |d| ready(d, 3), "the deployment is ready").await?;
    let version = start.and_then(|d| d.metadata.resource_version).unwrap_or_default();
    let mut events = api.watch(&WatchParams::default().fields("metadata.name=web"), &version).await?.boxed();
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "example.invalid/main:2"}]}}}});
    api.patch("web", &PatchParams::default(), &Patch::Strategic(image)).await?;
    loop {
        let event = tokio::time::timeout(PATIENCE, events.next()).await;
        let event = event.ok().flatten().ok_or_else(|| Broken::Expectation("the watch fell silent".into()))??;
        let WatchEvent::Modified(now) = event else { continue };
        let (have, total) = (of(&now, "/status/readyReplicas").as_i64().unwrap_or(0), of(&now, "/status/replicas").as_i64().unwrap_or(0));
        must!(have >= 3, "only {have} ready: {}", now.data["status"]);
        // A set that has just been shrunk may still count one pod too many.
        must!(total <= 5, "{total} pods at once: {}", now.data["status"]);
        if now.metadata.generation == Some(2) && ready(Some(&now), 3) {
            return Ok(());
        }
    }
}

async fn rollouts_replace_the_old_set(f: Fixture) -> Outcome {
    let (api, sets) = (f.deployments(), f.api("apps", "v1", "ReplicaSet"));
    for strategy in ["RollingUpdate", "Recreate"] {
        let name = strategy.to_lowercase();
        let mut object = f.deployment(&name, 2, "10m");
        object["spec"]["strategy"] = json!({"type": strategy});
        api.create(&PostParams::default(), &typed(object)).await?;
        until(&api, &name, |d| ready(d, 2), "the first revision is ready").await?;
        let change = json!({"spec": {"template": {"metadata": {"annotations": {"revision": "2"}}}}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await?;
        until(&api, &name, |d| ready(d, 2) && d.is_some_and(|d| d.metadata.generation == Some(2)), "the second revision is ready").await?;
        let sets = sets.list(&ListParams::default().labels(&format!("app={name}"))).await?.items;
        let mut sizes: Vec<i64> = sets.iter().filter_map(|s| of(s, "/spec/replicas").as_i64()).collect();
        sizes.sort_unstable();
        must!(sizes == [0, 2], "{sizes:?}");
        let now = api.get(&name).await?;
        let revision = now.metadata.annotations.as_ref().and_then(|a| a.get("deployment.kubernetes.io/revision"));
        must!(revision.is_some_and(|r| r == "2"), "{revision:?}");
    }
    Ok(())
}

async fn unschedulable_pods_say_so(f: Fixture) -> Outcome {
    f.deployments().create(&PostParams::default(), &typed(f.deployment("big", 1, "64"))).await?;
    let says = || async {
        let pods = f.pods().list(&ListParams::default().labels("app=big").fields("status.phase=Pending")).await?.items;
        Ok(pods.first().is_some_and(|pod| {
            let conditions = of(pod, "/status/conditions").as_array().cloned().unwrap_or_default();
            conditions.iter().any(|c| {
                c["type"] == "PodScheduled"
                    && c["status"] == "False"
                    && c["reason"] == "Unschedulable"
                    && c["message"].as_str().is_some_and(|m| m.contains("Insufficient cpu"))
            })
        }))
    };
    eventually("the pod says that it is unschedulable", says).await
}

async fn room_that_appears_is_used(f: Fixture) -> Outcome {
    let api = f.deployments();
    api.create(&PostParams::default(), &typed(f.deployment("first", 1, "3"))).await?;
    until(&api, "first", |d| ready(d, 1), "the first is ready").await?;
    api.create(&PostParams::default(), &typed(f.deployment("second", 1, "3"))).await?;
    until(&api, "second", |d| d.is_some_and(|d| of(d, "/status/unavailableReplicas") == 1), "the second waits").await?;
    api.patch_scale("first", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 0}}))).await?;
    until(&api, "second", |d| ready(d, 1), "the second takes the room").await?;
    Ok(())
}

async fn taints_keep_pods_away(f: Fixture) -> Outcome {
    let mut object = f.deployment("web", 1, "10m");
    object["spec"]["template"]["spec"]["tolerations"] = json!([]);
    f.deployments().create(&PostParams::default(), &typed(object)).await?;
    let says = || async {
        let pods = f.pods().list(&ListParams::default().labels("app=web")).await?.items;
        Ok(pods.iter().any(|pod| {
            condition(pod, "PodScheduled") == "False" && of(pod, "/status/conditions").to_string().contains("untolerated taint")
        }))
    };
    eventually("the pod names the taint", says).await
}

async fn deleting_a_deployment_takes_its_pods(f: Fixture) -> Outcome {
    let api = f.deployments();
    for policy in [DeleteParams::background(), DeleteParams::foreground()] {
        api.create(&PostParams::default(), &typed(f.deployment("web", 2, "10m"))).await?;
        until(&api, "web", |d| ready(d, 2), "the deployment is ready").await?;
        api.delete("web", &policy).await?;
        until(&api, "web", |d| d.is_none(), "the deployment is gone").await?;
        let sets = f.api("apps", "v1", "ReplicaSet");
        let gone = || async {
            let left = sets.list(&ListParams::default()).await?.items.len() + f.pods().list(&ListParams::default()).await?.items.len();
            Ok(left == 0)
        };
        eventually("nothing is left", gone).await?;
    }
    Ok(())
}

async fn quota_fails_the_replica_set(f: Fixture) -> Outcome {
    let quotas = f.api("", "v1", "ResourceQuota");
    quotas
        .create(
            &PostParams::default(),
            &typed(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "1", "requests.cpu": "1"}}})),
        )
        .await?;
    until(&quotas, "small", |q| q.is_some_and(|q| of(q, "/status/hard/pods") == "1"), "the quota counts").await?;
    f.deployments().create(&PostParams::default(), &typed(f.deployment("web", 2, "10m"))).await?;
    let failed = until(
        &f.deployments(),
        "web",
        |d| d.is_some_and(|d| condition(d, "ReplicaFailure") == "True" && of(d, "/status/readyReplicas") == 1),
        "the deployment reports the refusal",
    )
    .await?;
    let text = failed.map(|d| of(&d, "/status/conditions").to_string()).unwrap_or_default();
    must!(text.contains("exceeded quota") && text.contains("FailedCreate"), "{text}");
    until(&quotas, "small", |q| q.is_some_and(|q| of(q, "/status/used/pods") == "1"), "the quota says what is used").await?;
    Ok(())
}

async fn daemon_sets_cover_nodes(f: Fixture) -> Outcome {
    let api = f.api("apps", "v1", "DaemonSet");
    api.create(
        &PostParams::default(),
        &typed(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": f.template("agent", "10m", json!({}))}})),
    )
    .await?;
    until(
        &api,
        "agent",
        |s| {
            s.is_some_and(|s| {
                ["desiredNumberScheduled", "numberReady", "numberAvailable", "updatedNumberScheduled"]
                    .iter()
                    .all(|f| s.data["status"][*f] == 1)
                    && of(s, "/status/observedGeneration") == 1
            })
        },
        "the one node that is chosen has its pod",
    )
    .await?;
    Ok(())
}

async fn daemon_sets_without_a_node_want_no_pod(f: Fixture) -> Outcome {
    let api = f.api("apps", "v1", "DaemonSet");
    let mut template = f.template("agent", "10m", json!({}));
    template["spec"]["nodeSelector"] = json!({"drover-contract": "no-such-node"});
    let object = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template}});
    api.create(&PostParams::default(), &typed(object)).await?;
    let counted = |s: Option<&DynamicObject>| s.is_some_and(|s| of(s, "/status/observedGeneration") == 1);
    let counted = until(&api, "agent", counted, "its controller has counted the nodes").await?;
    let status = counted.map(|s| s.data["status"].clone()).unwrap_or_default();
    must!(status["desiredNumberScheduled"] == 0 && status["numberAvailable"].as_i64().unwrap_or(0) == 0, "{status}");
    Ok(())
}

async fn jobs_complete(f: Fixture) -> Outcome {
    let api = f.api("batch", "v1", "Job");
    let mut template = f.template("once", "10m", json!({"kit/run-for": "500ms"}));
    template["spec"]["restartPolicy"] = json!("Never");
    api.create(
        &PostParams::default(),
        &typed(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": template}})),
    )
    .await?;
    let done = until(&api, "once", |j| j.is_some_and(|j| condition(j, "Complete") == "True"), "the job is complete").await?;
    let status = done.map(|j| j.data["status"].clone()).unwrap_or_default();
    must!(status["succeeded"] == 1 && !status["completionTime"].is_null(), "{status}");
    Ok(())
}

async fn pods_start_late(f: Fixture) -> Outcome {
    let mut object = f.deployment("late", 1, "10m");
    object["spec"]["template"] = f.template("late", "10m", json!({"kit/start-delay": "3s", "kit/start-delay-max": "3s"}));
    let start = std::time::Instant::now();
    f.deployments().create(&PostParams::default(), &typed(object)).await?;
    until(&f.deployments(), "late", |d| ready(d, 1), "the pod has started").await?;
    must!(start.elapsed() >= Duration::from_secs(3), "after {:?}", start.elapsed());
    Ok(())
}

async fn crashed_pods_are_replaced(f: Fixture) -> Outcome {
    let mut object = f.deployment("crash", 1, "10m");
    object["spec"]["template"] = f.template("crash", "10m", json!({"kit/crash-after": "1s", "kit/crash-after-max": "1s"}));
    object["spec"]["template"]["metadata"]["labels"]["kit/chaos"] = json!("crash");
    f.deployments().create(&PostParams::default(), &typed(object)).await?;
    let replaced = || async {
        let pods = f.pods().list(&ListParams::default().labels("app=crash")).await?.items;
        let failed = pods.iter().any(|pod| of(pod, "/status/phase") == "Failed" && condition(pod, "Ready") == "False");
        Ok(failed && pods.len() > 1)
    };
    eventually("a crashed pod is replaced", replaced).await
}

async fn pods_can_be_selected_by_node(f: Fixture) -> Outcome {
    f.deployments().create(&PostParams::default(), &typed(f.deployment("web", 1, "10m"))).await?;
    until(&f.deployments(), "web", |d| ready(d, 1), "the deployment is ready").await?;
    let here = f.pods().list(&ListParams::default().fields(&format!("spec.nodeName={}", f.node))).await?.items;
    let elsewhere = f.pods().list(&ListParams::default().fields("spec.nodeName=elsewhere,status.phase=Running")).await?.items;
    must!(here.len() == 1 && elsewhere.is_empty(), "{} here, {} elsewhere", here.len(), elsewhere.len());
    Ok(())
}

async fn metrics_are_served(f: Fixture) -> Outcome {
    let mut object = f.deployment("busy", 1, "10m");
    object["spec"]["template"] = f.template("busy", "10m", json!({"kit/cpu": "250m", "kit/mem": "64Mi"}));
    f.deployments().create(&PostParams::default(), &typed(object)).await?;
    let millicores = |usage: &Value| usage["cpu"].as_str().and_then(crate::quantity::milli).unwrap_or(0);
    // The plurals are not those that kube would make of the kinds.
    let pods = kube::Api::<DynamicObject>::namespaced_with(
        f.client.clone(),
        &f.namespace,
        &kube::api::ApiResource {
            group: "metrics.k8s.io".into(),
            version: "v1beta1".into(),
            api_version: "metrics.k8s.io/v1beta1".into(),
            kind: "PodMetrics".into(),
            plural: "pods".into(),
        },
    );
    // A metrics-server needs two scrapes, and measures a counter that kwok advances in steps.
    eventually("the pod's use is measured", || async {
        let list = pods.list(&ListParams::default()).await?.items;
        Ok(list.first().is_some_and(|m| (200..=300).contains(&millicores(&m.data["containers"][0]["usage"]))))
    })
    .await?;
    let nodes = kube::Api::<DynamicObject>::all_with(
        f.client.clone(),
        &kube::api::ApiResource {
            group: "metrics.k8s.io".into(),
            version: "v1beta1".into(),
            api_version: "metrics.k8s.io/v1beta1".into(),
            kind: "NodeMetrics".into(),
            plural: "nodes".into(),
        },
    );
    eventually("the node's use is measured", || async {
        let list = nodes.list(&ListParams::default()).await?.items;
        let mine = list.iter().find(|n| n.metadata.name.as_deref() == Some(f.node.as_str()));
        Ok(mine.is_some_and(|n| millicores(&n.data["usage"]) >= 200))
    })
    .await
}
