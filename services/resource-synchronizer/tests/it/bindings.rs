//! Bindings in a simulated member: apply, update, drift, deletion, refusals.

use std::sync::Arc;

use crate::support::{MEMBER, PATIENCE, Stack, absent, binding, config, daemon_set, deployment, service};
use drover_api::bindings::{Bundle, DesiredBinding, DesiredBindings, DesiredState, Phase, Preflight, PreflightAnswer};
use drover_api::grants::Grants;
use drover_kubesim::{Fault, Operation};
use drover_scheduling::MemberKey;
use drover_testkit::{eventually, openapi};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

#[test]
fn openapi_document_matches_golden_file() {
    openapi::assert_golden("resource-synchronizer", &serde_json::to_value(drover_resource_synchronizer::openapi()).unwrap());
}

#[tokio::test]
async fn binding_applies_objects_in_order_and_deletes_all_of_them() {
    let stack = Stack::start().await;
    stack.bundle("b1", vec![deployment("web", 2, "100m"), service("web"), config("settings", "1")]).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    let status = stack.reaches(&desired, Phase::Ready).await;
    assert_eq!(status.objects.len(), 3);
    assert!(status.objects.iter().all(|object| object.applied && object.ready));

    let created: Vec<String> = stack
        .sim
        .effects(MEMBER)
        .iter()
        .filter(|effect| effect.operation == Operation::Create)
        .map(|effect| effect.key.resource.to_string())
        .filter(|key| ["configmaps", "services", "deployments"].iter().any(|kind| key.starts_with(kind)))
        .collect();
    let position = |kind: &str| created.iter().position(|key| key.starts_with(kind)).unwrap_or_else(|| panic!("no {kind} in {created:?}"));
    assert!(position("configmaps") < position("services") && position("services") < position("deployments"), "{created:?}");

    let web = stack.api::<Deployment>().get("web").await.unwrap();
    let labels = web.metadata.labels.unwrap();
    assert_eq!((labels["drover.io/dig"].clone(), labels["drover.io/app"].as_str()), (desired.dig.id.to_string(), "web"));
    let pods = stack.api::<Pod>().list(&ListParams::default().labels(&format!("drover.io/binding={}", desired.id))).await.unwrap();
    assert_eq!(pods.items.len(), 2);

    stack.desire(&absent(&desired)).await;
    stack.reaches(&absent(&desired), Phase::Gone).await;
    assert_eq!(stack.names().await, Vec::<String>::new(), "pods are gone too");
    let (status, _) = stack.send(Method::DELETE, &format!("/internal/bindings/{}", desired.id), &()).await;
    assert_eq!((status, stack.status(desired.id).await), (StatusCode::OK, None));
}

#[tokio::test]
async fn daemon_set_without_a_matching_node_makes_its_binding_ready() {
    let stack = Stack::start().await;
    stack.bundle("b1", vec![daemon_set("everywhere", "node-2"), daemon_set("nowhere", "node-of-another-cluster")]).await;
    let desired = binding("agents", "b1");
    stack.desire(&desired).await;
    let status = stack.reaches(&desired, Phase::Ready).await;
    assert_eq!(status.objects.iter().filter(|object| object.ready).count(), 2, "{status:#?}");
    assert_eq!(stack.names().await, ["Pod"], "one node matches one of the two");
}

#[tokio::test]
async fn update_deletes_dropped_objects_only_once_it_is_ready() {
    let stack = Stack::start().await;
    stack.bundle("b1", vec![config("kept", "1"), config("dropped", "1"), deployment("web", 1, "100m")]).await;
    stack.bundle("b2", vec![config("kept", "2"), config("new", "1"), deployment("web", 2, "100m")]).await;
    let first = binding("shop", "b1");
    stack.desire(&first).await;
    stack.reaches(&first, Phase::Ready).await;
    let second = DesiredBinding { digest: "b2".into(), fence: 2, ..first.clone() };
    stack.desire(&second).await;
    stack.reaches(&second, Phase::Ready).await;
    eventually(PATIENCE, async || stack.api::<ConfigMap>().get_opt("dropped").await.unwrap().is_none().then_some(())).await;
    assert_eq!(stack.api::<ConfigMap>().get("kept").await.unwrap().data.unwrap()["value"], "2");
    assert_eq!(stack.sim.created(MEMBER, "configmaps", "default", "kept"), 1, "updated, not created again");

    // An update that never gets ready deletes nothing, so that a rollback is possible without loss.
    stack.bundle("b3", vec![deployment("web", 2, "64")]).await;
    let third = DesiredBinding { digest: "b3".into(), fence: 3, ..first };
    stack.desire(&third).await;
    let status = eventually(PATIENCE, async || {
        // Pods and Deployments are watched apart: a pod may be seen unschedulable before its Deployment is seen with the new digest.
        stack
            .status(third.id)
            .await
            .filter(|status| status.phase == Phase::Applied && *status.digest == *"b3" && status.unschedulable.is_some())
    })
    .await;
    assert_eq!(status.code.as_deref(), Some("unschedulable"));
    assert!(stack.api::<ConfigMap>().get_opt("kept").await.unwrap().is_some());
}

#[tokio::test]
async fn refused_update_of_a_single_object_is_taken_back_without_a_write() {
    let stack = Stack::start().await;
    stack.bundle("b1", vec![config("settings", "1")]).await;
    stack.bundle("b2", vec![config("settings", "2")]).await;
    let first = binding("shop", "b1");
    stack.desire(&first).await;
    stack.reaches(&first, Phase::Ready).await;
    // As a new rule that refuses what runs, too.
    stack.sim.fault(MEMBER, Fault::Path { contains: "/configmaps".into(), writes: true, code: 403 });
    let second = DesiredBinding { digest: "b2".into(), fence: 2, ..first.clone() };
    stack.desire(&second).await;
    assert_eq!(stack.reaches(&second, Phase::Failed).await.code.as_deref(), Some("preflight_failed"));
    let back = DesiredBinding { fence: 3, ..first };
    stack.desire(&back).await;
    stack.reaches(&back, Phase::Ready).await;
    assert_eq!(stack.api::<ConfigMap>().get("settings").await.unwrap().data.unwrap()["value"], "1");
}

#[tokio::test]
async fn drift_is_corrected() {
    let stack = Stack::start().await;
    stack.bundle("b1", vec![config("settings", "1"), service("web"), deployment("web", 1, "100m")]).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    stack.reaches(&desired, Phase::Ready).await;

    stack.merge::<ConfigMap>("settings", json!({"data": {"value": "theirs"}})).await;
    eventually(PATIENCE, async || (stack.api::<ConfigMap>().get("settings").await.unwrap().data?["value"] == "1").then_some(())).await;
    let image = json!([{"name": "c", "image": "example.com/web:theirs"}]);
    stack.merge::<Deployment>("web", json!({"spec": {"template": {"spec": {"containers": image}}}})).await;
    eventually(PATIENCE, async || {
        let containers = stack.api::<Deployment>().get("web").await.unwrap().spec?.template.spec?.containers;
        (containers[0].image.as_deref() == Some("example.com/web:1")).then_some(())
    })
    .await;
    stack.api::<Service>().delete("web", &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, async || stack.api::<Service>().get_opt("web").await.unwrap()).await;
    stack
        .merge::<ConfigMap>(
            "settings",
            json!({"metadata": {"labels": {"drover.io/binding": null, "drover.io/dig": null, "drover.io/hub": null}}}),
        )
        .await;
    eventually(PATIENCE, async || {
        stack.api::<ConfigMap>().get("settings").await.unwrap().metadata.labels?.get("drover.io/binding").map(|_| ())
    })
    .await;
    stack.reaches(&desired, Phase::Ready).await;
}

#[tokio::test]
async fn job_that_kubernetes_deletes_when_it_has_ended_does_not_run_again() {
    let mut stack = Stack::start().await;
    let job = |name: &str, ttl: Option<u32>| {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.com/job:1"}]});
        let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": pod}}});
        ttl.into_iter().for_each(|ttl| job["spec"]["ttlSecondsAfterFinished"] = json!(ttl));
        job
    };
    stack.bundle("b1", vec![job("passing", Some(0)), job("staying", None)]).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    stack.reaches(&desired, Phase::Ready).await;
    for restarted in [false, true] {
        if restarted {
            stack.restart().await;
            stack.reaches(&desired, Phase::Ready).await;
        }
        let before = stack.api::<Job>().get("staying").await.unwrap().metadata.uid;
        // Both go; the one that was to stay is applied again, by the pass that would apply the other one.
        for name in ["passing", "staying"] {
            let gone = stack.api::<Job>().delete(name, &DeleteParams::background()).await;
            assert!(gone.is_ok() || restarted && name == "passing", "{name}: {gone:?}");
        }
        let again = async || stack.api::<Job>().get_opt("staying").await.unwrap().filter(|job| job.metadata.uid != before);
        eventually(PATIENCE, again).await;
        let status = stack.reaches(&desired, Phase::Ready).await;
        assert!(status.objects.iter().all(|object| object.applied && object.ready), "{status:?}");
        assert!(stack.api::<Job>().get_opt("passing").await.unwrap().is_none(), "it runs again");
    }
    stack.desire(&absent(&desired)).await;
    stack.reaches(&absent(&desired), Phase::Gone).await;
}

#[tokio::test]
async fn foreign_object_fails_the_preflight_and_nothing_is_written() {
    let stack = Stack::start().await;
    let theirs: Secret = serde_json::from_value(json!({"metadata": {"name": "key"}, "stringData": {"a": "b"}})).unwrap();
    stack.api::<Secret>().create(&PostParams::default(), &theirs).await.unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}});
    stack.bundle("b1", vec![config("settings", "1"), secret]).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    let status = stack.reaches(&desired, Phase::Failed).await;
    assert_eq!((status.code.as_deref(), status.elsewhere), (Some("preflight_failed"), true));
    assert!(status.reason.unwrap().contains("Secret/default/key"));
    assert_eq!(stack.names().await, Vec::<String>::new());

    // Nor is an object of the same name that belongs to another group, if it is one that apps do not share.
    stack.bundle("b2", vec![service("shared")]).await;
    let (one, other) = (binding("one", "b2"), binding("other", "b2"));
    stack.desire(&one).await;
    stack.reaches(&one, Phase::Ready).await;
    stack.desire(&other).await;
    assert_eq!(stack.reaches(&other, Phase::Failed).await.code.as_deref(), Some("preflight_failed"));
    stack.desire(&absent(&other)).await;
    stack.reaches(&absent(&other), Phase::Gone).await;
    assert_eq!(stack.names().await, ["Service/shared"]);
    // A later binding of the same app takes the object over; deleting the old binding leaves it.
    let again = binding("one", "b2");
    stack.desire(&again).await;
    stack.reaches(&again, Phase::Ready).await;
    stack.desire(&absent(&one)).await;
    stack.reaches(&absent(&one), Phase::Gone).await;
    assert_eq!(stack.names().await, ["Service/shared"]);

    // Every kind that is not served is named, once.
    let of = |kind: &str, name: &str| json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name}});
    stack.bundle("b3", vec![of("Thing", "x"), config("settings", "1"), of("Thing", "y"), of("Gadget", "x")]).await;
    let unknown = binding("things", "b3");
    stack.desire(&unknown).await;
    let status = stack.reaches(&unknown, Phase::Failed).await;
    let reason = status.reason.clone().unwrap();
    assert_eq!((status.code.as_deref(), status.elsewhere), (Some("unknown_kind"), true));
    assert_eq!(status.lasting, status.reason, "all of it stays");
    let told = ["Thing", "Gadget"].map(|kind| reason.matches(&format!("serves no kind {kind} in example.com/v1")).count());
    assert_eq!(told, [1, 1], "{reason}");
    stack.know(MEMBER);
    let against = async |objects: &[Value]| -> PreflightAnswer {
        let asked = Preflight { binding: unknown.clone(), objects: objects.to_vec() };
        serde_json::from_value(stack.send(Method::POST, "/internal/preflights", &asked).await.1).unwrap()
    };
    let answer = against(&[of("Thing", "x"), config("settings", "1"), of("Gadget", "x")]).await;
    assert_eq!((answer.reasons.len(), answer.elsewhere, answer.may_end), (2, true, false), "{answer:?}");
    assert_eq!(answer.lasting, answer.reasons);
    // Whose name it is may leave.
    let answer = against(&[json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}})]).await;
    assert_eq!((answer.reasons.len(), answer.elsewhere, answer.may_end, answer.lasting.len()), (1, true, true, 0), "{answer:?}");
}

#[tokio::test]
async fn object_name_belongs_to_one_group_among_many_at_once() {
    const PAIRS: usize = 12;
    let stack = Stack::start().await;
    let mut pairs = Vec::new();
    for at in 0..PAIRS {
        let mut pair = Vec::new();
        for of in ["a", "b"] {
            let name = format!("{of}{at:02}");
            stack.bundle(&name, vec![config(&name, "1"), config(&format!("shared{at:02}"), of)]).await;
            pair.push(binding(&name, &name));
        }
        pairs.push(pair);
    }
    futures::future::join_all(pairs.iter().flatten().map(|desired| stack.desire(desired))).await;
    let mut expected = Vec::new();
    for (at, pair) in pairs.iter().enumerate() {
        let settled = eventually(PATIENCE, async || {
            let statuses = futures::future::join_all(pair.iter().map(|desired| stack.status(desired.id))).await;
            let phases: Vec<Phase> = statuses.into_iter().flatten().map(|status| status.phase).collect();
            (phases.contains(&Phase::Ready) && phases.contains(&Phase::Failed)).then_some(phases)
        });
        let winner = settled.await.iter().position(|phase| *phase == Phase::Ready).unwrap();
        expected.extend([format!("ConfigMap/{}", pair[winner].digest), format!("ConfigMap/shared{at:02}")]);
    }
    expected.sort();
    assert_eq!(stack.names().await, expected, "the second binding has written nothing");
}

#[tokio::test]
async fn what_is_recorded_of_many_bindings_at_once_is_known_after_a_restart() {
    const BINDINGS: usize = 40;
    let mut stack = Stack::start().await;
    let name = |at: usize, of: &str| format!("{of}{at:02}");
    let mut first = Vec::new();
    for at in 0..BINDINGS {
        for value in ["1", "2"] {
            let objects = vec![config(&name(at, "a"), value), config(&name(at, "b"), value)];
            stack.bundle(&name(at, value), objects).await;
        }
        first.push(binding(&name(at, "shop"), &name(at, "1")));
    }
    // Every second one changes while the first versions are being written.
    let changed = |at: usize, before: &DesiredBinding| match at % 2 {
        0 => DesiredBinding { digest: name(at, "2").into(), fence: 2, ..before.clone() },
        _ => before.clone(),
    };
    let newest: Vec<DesiredBinding> = first.iter().enumerate().map(|(at, before)| changed(at, before)).collect();
    futures::future::join_all(first.iter().map(|desired| stack.desire(desired))).await;
    futures::future::join_all(newest.iter().step_by(2).map(|desired| stack.desire(desired))).await;
    for desired in &newest {
        stack.reaches(desired, Phase::Ready).await;
    }
    let writes = stack.writes();
    assert!(writes >= 2 * BINDINGS, "{writes}");

    stack.restart().await;
    for (at, desired) in newest.iter().enumerate() {
        let status = stack.reaches(desired, Phase::Ready).await;
        assert!(status.objects.iter().all(|object| object.applied), "{status:#?}");
        for of in ["a", "b"] {
            let object = stack.api::<ConfigMap>().get(&name(at, of)).await.unwrap();
            assert_eq!(object.data.unwrap()["value"], if at % 2 == 0 { "2" } else { "1" });
        }
    }
    // Another binding is written after all that was still to be done for these.
    stack.bundle("last", vec![config("last", "1")]).await;
    let last = binding("last", "last");
    stack.desire(&last).await;
    stack.reaches(&last, Phase::Ready).await;
    assert_eq!(stack.writes(), writes + 1, "what was recorded is what the member has");
}

#[tokio::test]
async fn created_namespace_is_deleted_when_its_last_binding_leaves_it_empty() {
    let stack = Stack::start().await;
    stack.bundle("b1", vec![config("settings", "1"), deployment("web", 1, "100m")]).await;
    let namespaces: Api<Namespace> = Api::all(stack.sim.client(MEMBER));
    let in_shop: Api<ConfigMap> = Api::namespaced(stack.sim.client(MEMBER), "shop");
    let is_gone = async || namespaces.get_opt("shop").await.unwrap().is_none().then_some(());
    let desired = DesiredBinding { namespace: "shop".into(), ..binding("shop", "b1") };
    let beside = DesiredBinding { app: "other".into(), namespace: "shop".into(), ..binding("shop", "b2") };
    stack.bundle("b2", vec![config("other", "1")]).await;
    for desired in [&desired, &beside] {
        stack.desire(desired).await;
        stack.reaches(desired, Phase::Ready).await;
    }
    stack.desire(&absent(&desired)).await;
    stack.reaches(&absent(&desired), Phase::Gone).await;
    assert!(in_shop.get_opt("other").await.unwrap().is_some(), "another app uses the namespace");
    stack.desire(&absent(&beside)).await;
    stack.reaches(&absent(&beside), Phase::Gone).await;
    eventually(PATIENCE, is_gone).await;

    let again = DesiredBinding { fence: 9, ..desired };
    stack.desire(&again).await;
    stack.reaches(&again, Phase::Ready).await;
    let theirs: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "theirs"}})).unwrap();
    in_shop.create(&PostParams::default(), &theirs).await.unwrap();
    stack.desire(&absent(&again)).await;
    stack.reaches(&absent(&again), Phase::Gone).await;
    assert!(in_shop.get_opt("theirs").await.unwrap().is_some_and(|theirs| theirs.metadata.deletion_timestamp.is_none()));
    assert!(namespaces.get("shop").await.unwrap().metadata.deletion_timestamp.is_none());
}

/// Drover has just seen the namespace, and does not ask for it again before it writes.
#[tokio::test]
async fn namespace_that_somebody_deletes_is_created_again() {
    let stack = Stack::start().await;
    let namespaces: Api<Namespace> = Api::all(stack.sim.client(MEMBER));
    let in_shop: Api<ConfigMap> = Api::namespaced(stack.sim.client(MEMBER), "shop");
    let copies = ["first", "second"].map(|name| DesiredBinding { app: name.into(), namespace: "shop".into(), ..binding("shop", name) });
    for copy in &copies {
        stack.bundle(&copy.app, vec![config(&copy.app, "1")]).await;
    }
    stack.desire(&copies[0]).await;
    stack.reaches(&copies[0], Phase::Ready).await;
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    stack.desire(&copies[1]).await;
    let both = async || {
        let kept = namespaces.get_opt("shop").await.unwrap().is_some_and(|shop| shop.metadata.deletion_timestamp.is_none());
        let [first, second] = ["first", "second"].map(|name| in_shop.get_opt(name));
        (kept && first.await.unwrap().is_some() && second.await.unwrap().is_some()).then_some(())
    };
    eventually(PATIENCE, both).await;
    for copy in &copies {
        stack.reaches(copy, Phase::Ready).await;
    }
}

#[tokio::test]
async fn crd_is_applied_before_and_deleted_after_objects_of_its_kind() {
    let stack = Stack::start().await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    let thing = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"size": 1}});
    stack.bundle("b1", vec![thing("x"), thing("y"), definition]).await;
    let desired = binding("things", "b1");
    stack.desire(&desired).await;
    let status = stack.reaches(&desired, Phase::Ready).await;
    assert_eq!(status.objects.iter().filter(|object| object.applied && object.ready).count(), 3);
    assert_eq!(["x", "y"].map(|name| stack.sim.created(MEMBER, "things.example.com", "default", name)), [1, 1]);
    stack.desire(&absent(&desired)).await;
    stack.reaches(&absent(&desired), Phase::Gone).await;
    eventually(PATIENCE, async || {
        let effects = stack.sim.effects(MEMBER);
        let gone = |resource: &str| effects.iter().any(|effect| effect.operation == Operation::Delete && &*effect.key.resource == resource);
        (gone("things.example.com") && gone("customresourcedefinitions.apiextensions.k8s.io")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn binding_writes_only_what_its_grants_allow() {
    let stack = Stack::start().await;
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "fences.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "fences", "singular": "fence", "kind": "Fence", "listKind": "FenceList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    stack.bundle("definition", vec![definition]).await;
    let operators = binding("operators", "definition");
    stack.desire(&operators).await;
    stack.reaches(&operators, Phase::Ready).await;

    // Only the member knows that this kind has no namespace.
    let fence = json!({"apiVersion": "example.com/v1", "kind": "Fence", "metadata": {"name": "all"}});
    let elsewhere = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "kube-system"}});
    stack.bundle("b1", vec![config("ours", "1"), fence, elsewhere]).await;
    let refused = DesiredBinding { grants: Some(Arc::default()), ..binding("tenant", "b1") };
    stack.desire(&refused).await;
    let status = stack.reaches(&refused, Phase::Failed).await;
    assert_eq!(status.code.as_deref(), Some("not_granted"));
    let reason = status.reason.unwrap();
    assert!(reason.contains("Fence all is cluster-scoped") && reason.contains("ConfigMap kube-system/theirs"), "{reason}");
    assert!(stack.names().await.is_empty(), "nothing is written, what would be allowed neither");

    let grants = Grants { namespaces: vec!["kube-system".into()], cluster_scoped: vec!["Fence.example.com".into()], ..Grants::default() };
    let granted = DesiredBinding { fence: 2, grants: Some(Arc::new(grants)), ..refused };
    stack.desire(&granted).await;
    let status = stack.reaches(&granted, Phase::Ready).await;
    assert_eq!(status.objects.len(), 3);
}

#[tokio::test]
async fn of_the_bindings_of_a_request_only_those_with_a_stale_fence_are_left_out() {
    let stack = Stack::start().await;
    stack.add_member("onprem+b");
    let here = DesiredBinding { fence: 5, ..binding("shop", "b1") };
    let there = DesiredBinding { id: Uuid::new_v4(), member: MemberKey("onprem+b".into()), ..here.clone() };
    let bundle = Some(Bundle { digest: "b1".into(), objects: vec![config("a", "1")] });
    let (status, body) = stack.put(&DesiredBindings { bundle, bindings: vec![here.clone(), there.clone()] }).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    stack.reaches(&here, Phase::Ready).await;
    stack.reaches(&there, Phase::Ready).await;

    let absent = |binding: &DesiredBinding, fence| DesiredBinding { fence, state: DesiredState::Absent, ..binding.clone() };
    let (status, problem) = stack.put(&[absent(&here, 4), absent(&there, 6)].into_iter().collect()).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::CONFLICT, Some("stale_fence")));
    stack.reaches(&absent(&there, 6), Phase::Gone).await;
    assert_eq!(stack.status(here.id).await.unwrap().phase, Phase::Ready);
}

#[tokio::test]
async fn invalid_requests_are_refused_with_their_code() {
    let stack = Stack::start().await;
    let desired = binding("shop", "nobody-stored-it");
    let put_all = async |bundle: Option<Bundle>, bindings: &[&DesiredBinding]| {
        let bindings = bindings.iter().map(|&binding| binding.clone()).collect();
        let (status, problem) = stack.put(&DesiredBindings { bundle, bindings }).await;
        (status.as_u16(), problem["code"].as_str().unwrap_or_default().to_owned())
    };
    let put = async |desired: &DesiredBinding| put_all(None, &[desired]).await;
    assert_eq!(put(&desired).await, (409, "reference_not_found".into()));
    let twice = Bundle { digest: "x".into(), objects: vec![config("a", "1"), config("a", "2")] };
    assert_eq!(put_all(Some(twice), &[]).await, (400, "invalid".into()));
    let desired = DesiredBinding { digest: "b1".into(), fence: 5, ..desired };
    let bundle = || Some(Bundle { digest: "b1".into(), objects: vec![config("a", "1")] });
    assert_eq!(put_all(bundle(), &[&desired, &desired]).await, (400, "invalid".into()));
    assert_eq!(put_all(bundle(), &[&desired]).await.0, 200);
    let other = DesiredBinding { id: Uuid::new_v4(), digest: "nobody-stored-it".into(), ..desired.clone() };
    let stale = DesiredBinding { fence: 4, state: DesiredState::Absent, ..desired.clone() };
    assert_eq!(put(&stale).await, (409, "stale_fence".into()));
    assert_eq!(put_all(bundle(), &[&desired, &other]).await, (409, "reference_not_found".into()));
    stack.reaches(&desired, Phase::Ready).await;
    let (status, problem) = stack.send(Method::DELETE, &format!("/internal/bindings/{}", desired.id), &()).await;
    assert_eq!((status.as_u16(), problem["code"].as_str()), (409, Some("wrong_state")));
}

/// As an app that must not run twice, when its move is undone.
#[tokio::test]
async fn binding_that_was_gone_comes_back() {
    let stack = Stack::start().await;
    stack.bundle("b1", vec![config("a", "1"), deployment("web", 1, "100m")]).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    stack.reaches(&desired, Phase::Ready).await;
    stack.desire(&absent(&desired)).await;
    stack.reaches(&absent(&desired), Phase::Gone).await;
    let back = DesiredBinding { fence: desired.fence + 2, ..desired };
    stack.desire(&back).await;
    stack.reaches(&back, Phase::Ready).await;
    let names = stack.names().await;
    assert!(names.contains(&"Deployment/web".to_owned()) && names.contains(&"Pod".to_owned()), "{names:?}");
}

/// A Deployment that `kubectl apply` accepts and server-side apply refuses: a variable is set twice, and a port has two names.
pub fn doubled(value: &str) -> serde_json::Value {
    let mut object = deployment("web", 1, "100m");
    let container = &mut object["spec"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{"name": "A", "value": "1"}, {"name": "A", "value": value}]);
    container["ports"] = json!([{"name": "http", "containerPort": 80}, {"name": "metrics", "containerPort": 80}]);
    object
}

#[tokio::test]
async fn items_of_one_key_are_written_as_they_are() {
    let stack = Stack::start().await;
    stack.bundle("b1", vec![doubled("2")]).await;
    stack.bundle("b2", vec![doubled("3")]).await;
    let desired = binding("shop", "b1");
    stack.desire(&desired).await;
    stack.reaches(&desired, Phase::Ready).await;
    let newer = DesiredBinding { digest: "b2".into(), fence: 2, ..desired };
    stack.desire(&newer).await;
    stack.reaches(&newer, Phase::Ready).await;
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(stack.client(), &newer.namespace);
    let pod = deployments.get("web").await.unwrap().spec.unwrap().template.spec.unwrap();
    let (env, ports) = (pod.containers[0].env.clone().unwrap(), pod.containers[0].ports.clone().unwrap());
    assert_eq!((env.len(), env[1].value.as_deref(), ports.len()), (2, Some("3"), 2));
}
