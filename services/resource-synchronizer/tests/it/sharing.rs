//! Objects that several apps contain, on the simulator and, if `DROVER_CONTRACT_KUBECONFIG` names one, on a real API server.

use drover_api::bindings::{DesiredBinding, Phase};
use drover_store::failpoint::Action;
use drover_testkit::eventually;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::Api;
use serde_json::{Value, json};

use crate::real::real;
use crate::support::{PATIENCE, Stack, absent, binding, config};

/// A test's own names, so that the real server may be used by several at once.
fn own(what: &str) -> String {
    format!("drover-{what}-{}", std::process::id())
}

fn class(name: &str, tier: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}, "provisioner": "example.com/disk", "parameters": {"tier": tier}})
}

fn account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
}

/// The binding that an object's label names; `None` without the object.
async fn named<K>(api: &Api<K>, name: &str) -> Option<String>
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    api.get_opt(name).await.unwrap()?.meta().labels.as_ref()?.get("drover.io/binding").cloned()
}

async fn equal_objects_are_shared(stack: &mut Stack) {
    let (storage, shop, role) = (own("shared-class"), own("shared"), own("shared-account"));
    for app in ["a", "b"] {
        let objects = vec![class(&storage, "ssd"), account(&role), config(&format!("of-{app}"), "1")];
        stack.bundle(&format!("shared-{app}"), objects).await;
    }
    let of = |app: &str, digest: &str| DesiredBinding { namespace: shop.clone(), ..binding(app, digest) };
    let (a, b) = (of("a", "shared-a"), of("b", "shared-b"));
    let classes: Api<StorageClass> = Api::all(stack.client());
    let accounts: Api<ServiceAccount> = Api::namespaced(stack.client(), &shop);
    let configs: Api<ConfigMap> = Api::namespaced(stack.client(), &shop);
    for desired in [&a, &b] {
        stack.desire(desired).await;
        assert_eq!(stack.reaches(desired, Phase::Ready).await.objects.len(), 3);
    }
    assert_eq!(named(&classes, &storage).await, Some(a.id.to_string()), "the second app writes nothing");

    // Another content is refused, and the message has both owners and the difference.
    stack.bundle("shared-c", vec![class(&storage, "hdd"), config("of-c", "1")]).await;
    let c = of("c", "shared-c");
    stack.desire(&c).await;
    let refused = stack.reaches(&c, Phase::Failed).await;
    let reason = refused.reason.unwrap();
    assert_eq!(refused.code.as_deref(), Some("shared_object_differs"));
    for part in ["of default/c/v1/c", "of default/a/v1/a", "StorageClass/", r#"parameters.tier: "hdd" and "ssd""#] {
        assert!(reason.contains(part), "{part} is missing: {reason}");
    }
    assert!(configs.get_opt("of-c").await.unwrap().is_none(), "nothing of it is written");
    // Nor does an update change what another app contains.
    let updated = DesiredBinding { digest: "shared-c".into(), fence: 2, ..a.clone() };
    stack.desire(&updated).await;
    assert_eq!(stack.reaches(&updated, Phase::Failed).await.code.as_deref(), Some("shared_object_differs"));
    assert_eq!(classes.get(&storage).await.unwrap().parameters.unwrap()["tier"], "ssd");

    // The owner whose label it has leaves: the other takes the objects over.
    let a = DesiredBinding { fence: 3, ..a };
    stack.desire(&absent(&a)).await;
    stack.reaches(&absent(&a), Phase::Gone).await;
    eventually(PATIENCE, async || (named(&classes, &storage).await == Some(b.id.to_string())).then_some(())).await;
    eventually(PATIENCE, async || (named(&accounts, &role).await == Some(b.id.to_string())).then_some(())).await;
    assert!(configs.get_opt("of-a").await.unwrap().is_none());
    stack.kill();
    stack.restart().await;
    stack.reaches(&b, Phase::Ready).await;

    // With the last owner they go, and another content is possible.
    for desired in [&b, &c] {
        stack.desire(&absent(desired)).await;
        stack.reaches(&absent(desired), Phase::Gone).await;
    }
    assert!(classes.get_opt(&storage).await.unwrap().is_none());
    let c = DesiredBinding { fence: 9, ..c };
    stack.desire(&c).await;
    stack.reaches(&c, Phase::Ready).await;
    stack.desire(&absent(&c)).await;
    stack.reaches(&absent(&c), Phase::Gone).await;
    assert!(classes.get_opt(&storage).await.unwrap().is_none());
}

async fn namespace_stays_while_others_have_objects_in_it(stack: &Stack) {
    let shop = own("inhabited");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": shop, "labels": {"tier": "gold"}}});
    stack.bundle("with-namespace", vec![namespace, config("one", "1")]).await;
    stack.bundle("without-namespace", vec![config("two", "1")]).await;
    let with = DesiredBinding { namespace: shop.clone(), ..binding("with", "with-namespace") };
    let without = DesiredBinding { namespace: shop.clone(), ..binding("without", "without-namespace") };
    let namespaces: Api<Namespace> = Api::all(stack.client());
    let configs: Api<ConfigMap> = Api::namespaced(stack.client(), &shop);
    // The app that contains the namespace comes second: the one that Drover made for the first becomes its own.
    for desired in [&without, &with] {
        stack.desire(desired).await;
        stack.reaches(desired, Phase::Ready).await;
    }
    assert_eq!(namespaces.get(&shop).await.unwrap().metadata.labels.unwrap()["tier"], "gold");
    stack.desire(&absent(&with)).await;
    stack.reaches(&absent(&with), Phase::Gone).await;
    assert!(namespaces.get(&shop).await.unwrap().metadata.deletion_timestamp.is_none());
    assert!(configs.get_opt("two").await.unwrap().is_some() && configs.get_opt("one").await.unwrap().is_none());
    stack.desire(&absent(&without)).await;
    let kept = stack.reaches(&absent(&without), Phase::Gone).await.kept;
    assert!(kept.is_empty(), "{kept:?}");
    eventually(PATIENCE, async || namespaces.get_opt(&shop).await.unwrap().is_none().then_some(())).await;
}

#[tokio::test]
async fn equal_objects_of_several_apps_are_shared() {
    equal_objects_are_shared(&mut Stack::start().await).await;
}

#[tokio::test]
async fn equal_objects_of_several_apps_are_shared_on_a_real_server() {
    let Some(stack) = real() else { return };
    equal_objects_are_shared(&mut stack.await).await;
}

#[tokio::test]
async fn contained_namespace_stays_while_others_have_objects_in_it() {
    namespace_stays_while_others_have_objects_in_it(&Stack::start().await).await;
}

#[tokio::test]
async fn contained_namespace_stays_while_others_have_objects_in_it_on_a_real_server() {
    let Some(stack) = real() else { return };
    namespace_stays_while_others_have_objects_in_it(&stack.await).await;
}

/// Killed before and after each effect while a second owner comes, while the first leaves, and while the last leaves.
#[tokio::test]
async fn shared_object_is_neither_lost_nor_left_when_the_process_is_killed() {
    // The take-over is an apply, a newcomer deletes nothing.
    let kills = [("apply", "second comes"), ("delete", "first leaves"), ("delete", "last leaves")];
    for (effect, killed_at, place) in kills.iter().flat_map(|(effect, at)| ["before", "after_effect"].map(|place| (effect, *at, place))) {
        let point = format!("synchronizer/{effect}/{place}");
        let mut stack = Stack::start().await;
        let classes: Api<StorageClass> = Api::all(stack.client());
        let exists = async |classes: &Api<StorageClass>| classes.get_opt("fast").await.unwrap().is_some();
        stack.bundle("b1", vec![class("fast", "ssd")]).await;
        let (a, b) = (binding("a", "b1"), binding("b", "b1"));
        stack.desire(&a).await;
        stack.reaches(&a, Phase::Ready).await;
        for (stage, desired, phase) in
            [("second comes", b.clone(), Phase::Ready), ("first leaves", absent(&a), Phase::Gone), ("last leaves", absent(&b), Phase::Gone)]
        {
            let kill = stage == killed_at;
            if kill {
                stack.failpoints.set(&point, Action::Pause);
            }
            stack.desire(&desired).await;
            if kill {
                eventually(PATIENCE, async || stack.failpoints.is_paused(&point).then_some(())).await;
                stack.kill();
                stack.failpoints.clear(&point);
                stack.restart().await;
            }
            stack.reaches(&desired, phase).await;
            assert_eq!(exists(&classes).await, stage != "last leaves", "{point}, killed when the {killed_at}, at {stage}");
        }
    }
}
