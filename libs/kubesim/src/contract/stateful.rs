//! StatefulSets and volumes: what Drover relies on when it moves pods with their volumes.

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Fixture, Outcome, all, condition, must, of, table, typed, until};

table!(
    stateful_sets_count_up,
    pod_with_a_finalizer_stays_when_its_containers_have_ended,
    claim_is_bound_to_the_volume_that_is_reserved_for_it,
    claims_have_the_labels_and_annotations_of_their_template,
    start_ordinal_moves_the_pods_of_a_stateful_set,
);

async fn stateful_sets_count_up(f: Fixture) -> Outcome {
    let api = f.api("apps", "v1", "StatefulSet");
    api.create(&PostParams::default(), &typed(json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"serviceName": "db", "replicas": 2, "selector": {"matchLabels": {"app": "db"}}, "template": f.template("db", "10m", json!({}))}}))).await?;
    let done = |s: Option<&DynamicObject>, generation: i64| {
        s.is_some_and(|s| {
            of(s, "/status/observedGeneration") == generation
                && ["readyReplicas", "updatedReplicas", "currentReplicas", "availableReplicas"].iter().all(|f| s.data["status"][*f] == 2)
                && of(s, "/status/currentRevision") == of(s, "/status/updateRevision")
        })
    };
    until(&api, "db", |s| done(s, 1), "both are ready").await?;
    must!(f.pods().get_opt("db-0").await?.is_some() && f.pods().get_opt("db-1").await?.is_some(), "no ordinals");
    api.patch(
        "db",
        &PatchParams::default(),
        &Patch::Merge(json!({"spec": {"template": {"metadata": {"annotations": {"revision": "2"}}}}})),
    )
    .await?;
    until(&api, "db", |s| done(s, 2), "both are updated").await?;
    Ok(())
}

async fn pod_with_a_finalizer_stays_when_its_containers_have_ended(f: Fixture) -> Outcome {
    const FINALIZER: &str = "drover.io/contract";
    let api = f.api("apps", "v1", "StatefulSet");
    api.create(&PostParams::default(), &typed(json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "kept"},
        "spec": {"serviceName": "kept", "replicas": 1, "selector": {"matchLabels": {"app": "kept"}}, "template": f.template("kept", "10m", json!({}))}}))).await?;
    until(&f.pods(), "kept-0", |pod| pod.is_some_and(|pod| condition(pod, "Ready") == "True"), "the pod is ready").await?;
    let finalizers = |list: Value| Patch::Merge(json!({"metadata": {"finalizers": list}}));
    f.pods().patch("kept-0", &PatchParams::default(), &finalizers(json!([FINALIZER]))).await?;
    api.patch("kept", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 0}}))).await?;
    let ended = |pod: Option<&DynamicObject>| {
        pod.is_some_and(|pod| {
            pod.metadata.deletion_timestamp.is_some() && of(pod, "/status/containerStatuses/0/state/terminated").is_object()
        })
    };
    until(&f.pods(), "kept-0", ended, "its container has ended").await?;
    f.pods().patch("kept-0", &PatchParams::default(), &finalizers(json!([]))).await?;
    until(&f.pods(), "kept-0", |pod| pod.is_none(), "the pod is gone").await?;
    Ok(())
}

async fn start_ordinal_moves_the_pods_of_a_stateful_set(f: Fixture) -> Outcome {
    let api = f.api("apps", "v1", "StatefulSet");
    api.create(
        &PostParams::default(),
        &typed(json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "part"},
        "spec": {"serviceName": "part", "replicas": 1, "ordinals": {"start": 1}, "selector": {"matchLabels": {"app": "part"}},
            "template": f.template("part", "10m", json!({}))}})),
    )
    .await?;
    let ready = |pod: Option<&DynamicObject>| pod.is_some_and(|pod| condition(pod, "Ready") == "True");
    until(&f.pods(), "part-1", ready, "the second pod is ready").await?;
    let uid = f.pods().get("part-1").await?.metadata.uid;
    must!(f.pods().get_opt("part-0").await?.is_none(), "the first pod runs too");
    api.patch("part", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 2, "ordinals": {"start": 0}}}))).await?;
    until(&f.pods(), "part-0", ready, "the first pod is ready").await?;
    must!(f.pods().get("part-1").await?.metadata.uid == uid, "the second pod was replaced");
    Ok(())
}

async fn claim_is_bound_to_the_volume_that_is_reserved_for_it(f: Fixture) -> Outcome {
    let (claims, volumes) = (f.api("", "v1", "PersistentVolumeClaim"), all(&f.client, "", "v1", "PersistentVolume"));
    let (name, class, size) = (format!("pv-{}", f.namespace), "contract-none", json!({"storage": "1Gi"}));
    volumes
        .create(
            &PostParams::default(),
            &typed(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": size, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain", "storageClassName": class,
            "hostPath": {"path": "/srv/x"}, "claimRef": {"namespace": f.namespace, "name": "data"}}})),
        )
        .await?;
    claims
        .create(
            &PostParams::default(),
            &typed(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class, "volumeName": name, "resources": {"requests": size}}})),
        )
        .await?;
    let phase = |wanted: &'static str| move |found: Option<&DynamicObject>| found.is_some_and(|found| of(found, "/status/phase") == wanted);
    until(&claims, "data", phase("Bound"), "the claim is bound").await?;
    let uid = claims.get("data").await?.metadata.uid;
    let bound =
        move |volume: Option<&DynamicObject>| volume.is_some_and(|volume| of(volume, "/spec/claimRef/uid").as_str() == uid.as_deref());
    until(&volumes, &name, bound, "the volume refers to the claim").await?;
    claims.delete("data", &DeleteParams::default()).await?;
    until(&volumes, &name, phase("Released"), "the volume is released").await?;
    volumes.delete(&name, &DeleteParams::default()).await?;
    until(&volumes, &name, |volume| volume.is_none(), "the volume is gone").await?;
    Ok(())
}

async fn claims_have_the_labels_and_annotations_of_their_template(f: Fixture) -> Outcome {
    let template = json!({"metadata": {"name": "data", "labels": {"app": "other", "kind": "shared"}, "annotations": {"drover.io/may-overlap": "true"}},
        "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "contract-none", "resources": {"requests": {"storage": "1Gi"}}}});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "shared"},
        "spec": {"serviceName": "shared", "replicas": 1, "selector": {"matchLabels": {"app": "shared"}},
            "template": f.template("shared", "10m", json!({})), "volumeClaimTemplates": [template]}});
    f.api("apps", "v1", "StatefulSet").create(&PostParams::default(), &typed(set)).await?;
    let as_template = |claim: Option<&DynamicObject>| {
        claim.is_some_and(|claim| {
            let value = |values: &Option<std::collections::BTreeMap<String, String>>, key: &str| values.as_ref()?.get(key).cloned();
            let (labels, annotations) = (&claim.metadata.labels, &claim.metadata.annotations);
            let found = [value(labels, "app"), value(labels, "kind"), value(annotations, "drover.io/may-overlap")];
            found.map(Option::unwrap_or_default) == ["shared", "shared", "true"]
        })
    };
    until(&f.api("", "v1", "PersistentVolumeClaim"), "data-shared-0", as_template, "the claim is as its template").await?;
    Ok(())
}
