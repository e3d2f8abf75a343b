//! Objects: identity, versions, refusals, deletion.

use std::collections::BTreeSet;

use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use serde_json::{Value, json};

use super::{Fixture, Outcome, all, eventually, must, of, refused, table, typed, until, version};

table!(
    crud,
    stale_versions_conflict,
    taken_names_conflict,
    names_are_checked,
    pod_templates_need_containers,
    selectors_must_match,
    missing_namespaces_are_refused,
    unknown_kinds_are_not_found,
    dry_runs_write_nothing,
    selectors_choose,
    patches_of_every_sort,
    generations_count_specs,
    finalizers_hold,
    deletes_ask_for_the_uid,
    metadata_only,
    discovery,
    definitions_serve_kinds,
    namespaces_take_their_contents,
    orphans_stay,
    collections_are_deleted,
);

async fn crud(f: Fixture) -> Outcome {
    let api = f.config_maps();
    let made = api.create(&PostParams::default(), &typed(f.config_map("a", json!({"k": "1"})))).await?;
    must!(made.metadata.uid.is_some() && made.metadata.creation_timestamp.is_some(), "no identity: {:?}", made.metadata);
    must!(made.metadata.namespace.as_deref() == Some(f.namespace.as_str()), "no namespace");
    let mut read = api.get("a").await?;
    must!(read == made, "read {read:?}, made {made:?}");
    read.data["data"]["k"] = json!("2");
    let replaced = api.replace("a", &PostParams::default(), &read).await?;
    must!(version(&replaced) != version(&made), "the version stayed");
    must!(of(&api.get("a").await?, "/data/k") == "2", "the change is lost");
    let same = api.replace("a", &PostParams::default(), &replaced).await?;
    must!(version(&same) == version(&replaced), "a replace that changes nothing changed the version");
    api.delete("a", &DeleteParams::default()).await?;
    refused(api.get("a").await, 404, "NotFound")?;
    refused(api.delete("a", &DeleteParams::default()).await, 404, "NotFound")
}

async fn stale_versions_conflict(f: Fixture) -> Outcome {
    let api = f.config_maps();
    let mut first = api.create(&PostParams::default(), &typed(f.config_map("a", json!({})))).await?;
    first.data["data"] = json!({"k": "1"});
    api.replace("a", &PostParams::default(), &first).await?;
    refused(api.replace("a", &PostParams::default(), &first).await, 409, "Conflict")
}

async fn taken_names_conflict(f: Fixture) -> Outcome {
    let (api, object) = (f.config_maps(), typed(f.config_map("a", json!({}))));
    api.create(&PostParams::default(), &object).await?;
    refused(api.create(&PostParams::default(), &object).await, 409, "AlreadyExists")
}

async fn names_are_checked(f: Fixture) -> Outcome {
    for name in ["Upper", "under_score", "-dash", "dot.-dash"] {
        refused(f.config_maps().create(&PostParams::default(), &typed(f.config_map(name, json!({})))).await, 422, "Invalid")?;
    }
    f.config_maps()
        .create(&PostParams::default(), &typed(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "with.dots"}})))
        .await?;
    let bad = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "label", "labels": {"a": "no spaces"}}});
    refused(f.config_maps().create(&PostParams::default(), &typed(bad)).await, 422, "Invalid")?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "no.dots"}});
    refused(all(&f.client, "", "v1", "Namespace").create(&PostParams::default(), &typed(namespace)).await, 422, "Invalid")
}

async fn pod_templates_need_containers(f: Fixture) -> Outcome {
    let mut object = f.deployment("web", 1, "10m");
    object["spec"]["template"]["spec"]["containers"] = json!([]);
    refused(f.deployments().create(&PostParams::default(), &typed(object)).await, 422, "Invalid")
}

async fn selectors_must_match(f: Fixture) -> Outcome {
    let mut object = f.deployment("web", 0, "10m");
    object["spec"]["selector"]["matchLabels"] = json!({"app": "other"});
    refused(f.deployments().create(&PostParams::default(), &typed(object)).await, 422, "Invalid")?;
    let mut made = f.deployments().create(&PostParams::default(), &typed(f.deployment("web", 0, "10m"))).await?;
    made.data["spec"]["selector"]["matchLabels"] = json!({"app": "other"});
    made.data["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    made.metadata.resource_version = None;
    refused(f.deployments().replace("web", &PostParams::default(), &made).await, 422, "Invalid")
}

async fn missing_namespaces_are_refused(f: Fixture) -> Outcome {
    let missing = Fixture { namespace: format!("{}-missing", f.namespace), ..f };
    let object = typed(missing.config_map("a", json!({})));
    refused(missing.config_maps().create(&PostParams::default(), &object).await, 404, "NotFound")?;
    let apply = PatchParams::apply("drover");
    refused(missing.config_maps().patch("a", &apply, &Patch::Apply(&object)).await, 404, "NotFound")?;
    must!(missing.config_maps().list(&ListParams::default()).await?.items.is_empty(), "a list of a missing namespace is empty");
    Ok(())
}

async fn unknown_kinds_are_not_found(f: Fixture) -> Outcome {
    let api = f.api("nobody.example", "v1", "Nothing");
    refused(api.list(&ListParams::default()).await, 404, "")?;
    let object = typed(json!({"apiVersion": "nobody.example/v1", "kind": "Nothing", "metadata": {"name": "a"}}));
    refused(api.create(&PostParams::default(), &object).await, 404, "")
}

async fn dry_runs_write_nothing(f: Fixture) -> Outcome {
    let api = f.config_maps();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let object = typed(f.config_map("a", json!({"k": "1"})));
    let answer = api.create(&dry, &object).await?;
    must!(answer.metadata.uid.is_some(), "a dry run shows what would be");
    let dry_apply = PatchParams { dry_run: true, ..PatchParams::apply("drover") };
    api.patch("a", &dry_apply, &Patch::Apply(&object)).await?;
    must!(api.get_opt("a").await?.is_none(), "a dry run wrote");
    let made = api.create(&PostParams::default(), &object).await?;
    refused(api.create(&dry, &object).await, 409, "AlreadyExists")?;
    let changed = typed(f.config_map("a", json!({"k": "2"})));
    let shown = api.patch("a", &dry_apply.force(), &Patch::Apply(&changed)).await?;
    must!(of(&shown, "/data/k") == "2", "a dry run shows what would be");
    api.delete("a", &DeleteParams { dry_run: true, ..DeleteParams::default() }).await?;
    must!(api.get("a").await? == made, "a dry run wrote");
    Ok(())
}

async fn selectors_choose(f: Fixture) -> Outcome {
    let api = f.config_maps();
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &typed(f.config_map(name, json!({})))).await?;
    }
    for (params, want) in [
        (ListParams::default().labels("app=a"), &["a"][..]),
        (ListParams::default().labels("app in (a,b)"), &["a", "b"]),
        (ListParams::default().labels("app,app!=a"), &["b", "c"]),
        (ListParams::default().fields("metadata.name=c"), &["c"]),
        (ListParams::default().labels("app=a").fields("metadata.name=c"), &[]),
    ] {
        let list = api.list(&params).await?;
        let names: BTreeSet<&str> = list.items.iter().filter_map(|o| o.metadata.name.as_deref()).collect();
        must!(names == want.iter().copied().collect(), "{params:?} chose {names:?}");
        must!(list.metadata.resource_version.is_some_and(|v| v != "0"), "a list has no version");
    }
    Ok(())
}

async fn patches_of_every_sort(f: Fixture) -> Outcome {
    let api = f.deployments();
    api.create(&PostParams::default(), &typed(f.deployment("web", 0, "10m"))).await?;
    let params = PatchParams::default();
    let merged = api.patch("web", &params, &Patch::Merge(json!({"metadata": {"annotations": {"a": "1"}}}))).await?;
    must!(merged.metadata.annotations.as_ref().is_some_and(|a| a["a"] == "1"), "merge patch");
    let strategic = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "X", "value": "1"}]}, {"name": "side", "image": "side:1"}]}}}});
    let patched = api.patch("web", &params, &Patch::Strategic(strategic)).await?;
    let containers = of(&patched, "/spec/template/spec/containers").as_array().cloned().unwrap_or_default();
    let main = containers.iter().find(|c| c["name"] == "main").cloned().unwrap_or_default();
    must!(
        containers.len() == 2 && main["image"] == "example.invalid/main:1" && main["env"][0]["value"] == "1",
        "strategic patch: {containers:?}"
    );
    let operations: kube::api::Patch<DynamicObject> =
        Patch::Json(serde_json::from_value(json!([{"op": "test", "path": "/spec/replicas", "value": 9}])).unwrap_or_default());
    refused(api.patch("web", &params, &operations).await, 422, "Invalid")?;
    let operations: kube::api::Patch<DynamicObject> =
        Patch::Json(serde_json::from_value(json!([{"op": "replace", "path": "/spec/paused", "value": true}])).unwrap_or_default());
    must!(of(&api.patch("web", &params, &operations).await?, "/spec/paused") == true, "json patch");
    refused(api.patch("other", &params, &Patch::Merge(json!({}))).await, 404, "NotFound")
}

async fn generations_count_specs(f: Fixture) -> Outcome {
    let api = f.deployments();
    let made = api.create(&PostParams::default(), &typed(f.deployment("web", 0, "10m"))).await?;
    must!(made.metadata.generation == Some(1), "a new object has generation 1: {:?}", made.metadata.generation);
    let params = PatchParams::default();
    let labelled = api.patch("web", &params, &Patch::Merge(json!({"metadata": {"labels": {"a": "1"}}}))).await?;
    must!(labelled.metadata.generation == Some(1), "metadata is no spec");
    let status = json!({"status": {"observedGeneration": 1}, "spec": {"replicas": 3}});
    let status = api.patch_status("web", &params, &Patch::Merge(status)).await?;
    must!(status.metadata.generation == Some(1) && of(&status, "/spec/replicas") == 0, "status is no spec");
    let changed = api.patch("web", &params, &Patch::Merge(json!({"spec": {"paused": true}, "status": {"replicas": 7}}))).await?;
    must!(changed.metadata.generation == Some(2), "a spec counts");
    must!(of(&changed, "/status/replicas") != 7, "the spec is no status");
    let scaled = api.patch_scale("web", &params, &Patch::Merge(json!({"spec": {"replicas": 0}}))).await?;
    must!(scaled.spec.and_then(|s| s.replicas).unwrap_or(0) == 0, "scale");
    Ok(())
}

async fn finalizers_hold(f: Fixture) -> Outcome {
    let api = f.config_maps();
    let mut object = f.config_map("a", json!({}));
    object["metadata"]["finalizers"] = json!(["drover.io/test"]);
    api.create(&PostParams::default(), &typed(object)).await?;
    api.delete("a", &DeleteParams::default()).await?;
    let held = api.get("a").await?;
    must!(held.metadata.deletion_timestamp.is_some(), "no deletion timestamp");
    api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await?;
    refused(api.get("a").await, 404, "NotFound")
}

async fn deletes_ask_for_the_uid(f: Fixture) -> Outcome {
    let api = f.config_maps();
    let made = api.create(&PostParams::default(), &typed(f.config_map("a", json!({})))).await?;
    let by = |uid: String| DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid), resource_version: None }),
        ..DeleteParams::default()
    };
    refused(api.delete("a", &by("another".into())).await, 409, "Conflict")?;
    api.delete("a", &by(made.metadata.uid.unwrap_or_default())).await?;
    must!(api.get_opt("a").await?.is_none(), "it is still there");
    Ok(())
}

async fn metadata_only(f: Fixture) -> Outcome {
    let api = f.config_maps();
    api.create(&PostParams::default(), &typed(f.config_map("a", json!({"k": "v"})))).await?;
    let one = api.get_metadata("a").await?;
    must!(one.metadata.uid.is_some(), "no uid");
    let list = api.list_metadata(&ListParams::default().labels("app=a")).await?;
    must!(list.items.len() == 1 && list.items[0].metadata.name.as_deref() == Some("a"), "{list:?}");
    let request = http::Request::get(format!("/api/v1/namespaces/{}/configmaps", f.namespace))
        .header(http::header::ACCEPT, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
        .body(Vec::new());
    let raw: Value = f.client.request(request.expect("a fixed request")).await?;
    must!(raw["kind"] == "PartialObjectMetadataList" && raw["items"][0].get("data").is_none(), "more than metadata: {raw}");
    Ok(())
}

/// Asks for single groups only: a walk over all of them fails when another case deletes its definition meanwhile.
async fn discovery(f: Fixture) -> Outcome {
    let groups = f.client.list_api_groups().await?.groups;
    let apps = groups.iter().find(|group| group.name == "apps").and_then(|group| group.preferred_version.as_ref());
    must!(apps.is_some_and(|version| version.group_version == "apps/v1"), "{groups:?}");
    let core = f.client.list_core_api_resources("v1").await?.resources;
    must!(core.iter().any(|r| r.name == "configmaps" && r.kind == "ConfigMap" && r.namespaced), "{core:?}");
    let gvk = kube::api::GroupVersionKind::gvk("apps", "v1", "Deployment");
    let (resource, capabilities) = kube::discovery::pinned_kind(&f.client, &gvk).await?;
    must!(resource.plural == "deployments" && capabilities.scope == kube::discovery::Scope::Namespaced, "{resource:?}");
    let version = f.client.apiserver_version().await?;
    must!(version.major == "1", "{version:?}");
    Ok(())
}

/// Creates a CustomResourceDefinition and waits until its kind is served. Returns its group and its name.
pub(super) async fn define(f: &Fixture, plural: &str, kind: &str) -> Result<(String, String), super::Broken> {
    let group = format!("g{}.drover.test", f.run);
    let name = format!("{plural}.{group}");
    let definitions = definitions(f);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}});
    let names = json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}});
    definitions.create(&PostParams::default(), &typed(definition)).await?;
    until(&definitions, &name, |d| d.is_some_and(|d| super::condition(d, "Established") == "True"), "the definition is established")
        .await?;
    let served = f.api(&group, "v1", kind);
    eventually("the kind is served", || async { Ok(served.list(&ListParams::default()).await.is_ok()) }).await?;
    Ok((group, name))
}

pub(super) fn definitions(f: &Fixture) -> Api<DynamicObject> {
    all(&f.client, "apiextensions.k8s.io", "v1", "CustomResourceDefinition")
}

async fn definitions_serve_kinds(f: Fixture) -> Outcome {
    let (group, name) = define(&f, "widgets", "Widget").await?;
    let (definitions, widgets) = (definitions(&f), f.api(&group, "v1", "Widget"));
    let object = typed(json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 1}}));
    let made = widgets.patch("a", &PatchParams::apply("drover"), &Patch::Apply(&object)).await?;
    must!(made.metadata.generation == Some(1) && of(&made, "/spec/size") == 1, "{made:?}");
    widgets.patch_status("a", &PatchParams::default(), &Patch::Merge(json!({"status": {"ready": true}}))).await?;
    let now = widgets.get("a").await?;
    must!(now.metadata.generation == Some(1) && of(&now, "/status/ready") == true, "{now:?}");
    definitions.delete(&name, &DeleteParams::default()).await?;
    eventually("the kind is no longer served", || async { Ok(widgets.list(&ListParams::default()).await.is_err()) }).await
}

async fn namespaces_take_their_contents(f: Fixture) -> Outcome {
    f.config_maps().create(&PostParams::default(), &typed(f.config_map("a", json!({})))).await?;
    f.deployments().create(&PostParams::default(), &typed(f.deployment("web", 1, "10m"))).await?;
    until(&f.deployments(), "web", |d| d.is_some_and(|d| of(d, "/status/readyReplicas") == 1), "a pod runs").await?;
    let namespaces = all(&f.client, "", "v1", "Namespace");
    namespaces.delete(&f.namespace, &DeleteParams::default()).await?;
    if namespaces.get_opt(&f.namespace).await?.is_some_and(|n| n.metadata.deletion_timestamp.is_some()) {
        let late = f.config_maps().create(&PostParams::default(), &typed(f.config_map("late", json!({})))).await;
        // 404 if the namespace was deleted in between.
        must!(late.as_ref().is_err_and(|e| matches!(super::code(e), 403 | 404)), "a namespace that goes takes nothing new: {late:?}");
    }
    until(&namespaces, &f.namespace, |n| n.is_none(), "the namespace is gone").await?;
    must!(f.pods().list(&ListParams::default()).await?.items.is_empty(), "pods outlived their namespace");
    Ok(())
}

async fn orphans_stay(f: Fixture) -> Outcome {
    let (api, sets) = (f.deployments(), f.api("apps", "v1", "ReplicaSet"));
    api.create(&PostParams::default(), &typed(f.deployment("web", 0, "10m"))).await?;
    eventually("there is a replica set", || async { Ok(!sets.list(&ListParams::default()).await?.items.is_empty()) }).await?;
    sets_are_known_to_the_collector(&f).await?;
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    api.delete("web", &orphan).await?;
    until(&api, "web", |d| d.is_none(), "the deployment is gone").await?;
    let left = sets.list(&ListParams::default()).await?.items;
    let owners: Vec<_> =
        left.iter().map(|set| (&set.metadata.name, set.metadata.owner_references.as_deref().unwrap_or_default())).collect();
    must!(owners.len() == 1 && owners[0].1.is_empty(), "replica sets and their owners: {owners:?}");
    Ok(())
}

/// Waits until the garbage collector knows the replica sets that exist. A real one learns of objects by watches, and a deletion that
/// leaves orphans passes over dependents that it does not know yet. It removes a set whose owner is gone, and learns of sets in the order of
/// their creation, or, where it lists them, of their names.
async fn sets_are_known_to_the_collector(f: &Fixture) -> Outcome {
    let sets = f.api("apps", "v1", "ReplicaSet");
    let owner = f.config_maps().create(&PostParams::default(), &typed(f.config_map("owner", json!({})))).await?;
    let mut last = f.deployment("zz", 0, "10m");
    last["kind"] = json!("ReplicaSet");
    let uid = owner.metadata.uid;
    last["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
    sets.create(&PostParams::default(), &typed(last)).await?;
    f.config_maps().delete("owner", &DeleteParams::default()).await?;
    until(&sets, "zz", |set| set.is_none(), "the set without an owner is gone").await?;
    Ok(())
}

async fn collections_are_deleted(f: Fixture) -> Outcome {
    let api: Api<DynamicObject> = f.config_maps();
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &typed(f.config_map(name, json!({})))).await?;
    }
    api.delete_collection(&DeleteParams::default(), &ListParams::default().labels("app=a")).await?;
    must!(api.get_opt("a").await?.is_none() && api.get_opt("b").await?.is_some(), "the wrong ones went");
    Ok(())
}
