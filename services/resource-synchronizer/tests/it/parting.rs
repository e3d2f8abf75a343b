//! Objects with which those of others would be deleted, on the simulator and, if `DROVER_CONTRACT_KUBECONFIG` names one, on a real API
//! server.

use drover_api::bindings::{DesiredBinding, Phase};
use drover_kubesim::Fault;
use drover_store::failpoint::Action;
use drover_testkit::eventually;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind, ObjectMeta};
use serde_json::{Value, json};

use crate::real::real;
use crate::support::{MEMBER, PATIENCE, Stack, absent, binding, config};

/// A kind of a test's own, so that the real server may be used by several at once.
struct Kind {
    group: String,
    namespace: String,
}

impl Kind {
    fn new(test: &str) -> Self {
        let namespace = format!("drover-{test}-{}", std::process::id());
        Self { group: format!("{namespace}.example.com"), namespace }
    }
    fn definition(&self) -> Value {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": self.name()},
            "spec": {"group": self.group, "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
    }
    fn name(&self) -> String {
        format!("things.{}", self.group)
    }
    fn thing(&self, name: &str) -> Value {
        json!({"apiVersion": format!("{}/v1", self.group), "kind": "Thing", "metadata": {"name": name, "namespace": self.namespace}})
    }
    fn of(&self, app: &str, digest: &str) -> DesiredBinding {
        DesiredBinding { namespace: self.namespace.clone(), ..binding(app, digest) }
    }
    fn definitions(&self, stack: &Stack) -> Api<CustomResourceDefinition> {
        Api::all(stack.client())
    }
    fn things(&self, stack: &Stack) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&self.group, "v1", "Thing"), "things");
        Api::namespaced_with(stack.client(), &self.namespace, &resource)
    }
}

/// Drover's labels and annotations of an object.
fn marks(metadata: &ObjectMeta) -> Vec<&str> {
    let names = metadata.labels.iter().flatten().chain(metadata.annotations.iter().flatten()).map(|(name, _)| name.as_str());
    names.filter(|name| name.starts_with("drover.io/")).collect()
}

async fn goes(stack: &Stack, desired: &DesiredBinding) -> Vec<String> {
    stack.desire(&absent(desired)).await;
    stack.reaches(&absent(desired), Phase::Gone).await.kept
}

async fn comes(stack: &Stack, desired: &DesiredBinding) {
    stack.desire(desired).await;
    stack.reaches(desired, Phase::Ready).await;
}

async fn definition_stays(stack: &Stack) {
    let kind = Kind::new("stays");
    let (definitions, things) = (kind.definitions(stack), kind.things(stack));
    stack.bundle("definition", vec![kind.definition(), config("operator", "1"), kind.thing("own")]).await;
    stack.bundle("user", vec![kind.thing("theirs")]).await;
    let (operator, user) = (kind.of("operator", "definition"), kind.of("user", "user"));
    comes(stack, &operator).await;
    comes(stack, &user).await;
    let by_hand: DynamicObject = serde_json::from_value(kind.thing("by-hand")).unwrap();
    things.create(&PostParams::default(), &by_hand).await.unwrap();
    let uid = async |name: &str| things.get(name).await.unwrap().metadata.uid;
    let before = [uid("theirs").await, uid("by-hand").await];

    let kept = goes(stack, &operator).await;
    assert_eq!(kept.len(), 1, "{kept:?}");
    for part in [kind.name(), format!("Thing/{}/by-hand", kind.namespace), format!("Thing/{}/theirs", kind.namespace)] {
        assert!(kept[0].contains(&part), "{part} is missing: {kept:?}");
    }
    let left = definitions.get(&kind.name()).await.unwrap();
    assert_eq!(marks(&left.metadata), ["drover.io/released"], "nothing says that it is still Drover's");
    assert!(things.get_opt("own").await.unwrap().is_none());
    assert_eq!([uid("theirs").await, uid("by-hand").await], before, "the same objects, not others of their names");
    stack.reaches(&user, Phase::Ready).await;

    // The app comes back and takes the definition over; without objects of others it goes.
    let operator = DesiredBinding { fence: 3, ..operator };
    comes(stack, &operator).await;
    let taken = definitions.get(&kind.name()).await.unwrap();
    assert_eq!((taken.metadata.uid.clone(), marks(&taken.metadata).contains(&"drover.io/released")), (left.metadata.uid, false));
    assert!(goes(stack, &user).await.is_empty());
    things.delete("by-hand", &DeleteParams::default()).await.unwrap();
    assert!(goes(stack, &operator).await.is_empty());
    eventually(PATIENCE, async || definitions.get_opt(&kind.name()).await.unwrap().is_none().then_some(())).await;
}

/// An update that drops the definition but not the objects, and two apps of a group that leave one just after the other.
async fn definition_is_parted_with(stack: &Stack) {
    let kind = Kind::new("parted");
    let (definitions, things) = (kind.definitions(stack), kind.things(stack));
    stack.bundle("whole", vec![kind.definition(), kind.thing("own")]).await;
    stack.bundle("objects", vec![kind.thing("own")]).await;
    stack.bundle("user", vec![kind.thing("theirs")]).await;
    let app = kind.of("group", "whole");
    let user = DesiredBinding { app: "user".into(), ..kind.of("group", "user") };
    comes(stack, &app).await;
    let uid = things.get("own").await.unwrap().metadata.uid;
    let updated = DesiredBinding { digest: "objects".into(), fence: 2, ..app.clone() };
    stack.desire(&updated).await;
    eventually(PATIENCE, async || stack.status(app.id).await.filter(|status| status.kept.len() == 1)).await;
    assert_eq!(things.get("own").await.unwrap().metadata.uid, uid, "its own objects stay as well");
    let app = DesiredBinding { fence: 3, ..app };
    comes(stack, &app).await;
    comes(stack, &user).await;

    stack.desire(&absent(&app)).await;
    let kept = goes(stack, &user).await;
    stack.reaches(&absent(&app), Phase::Gone).await;
    assert!(kept.is_empty() && stack.status(app.id).await.unwrap().kept.is_empty(), "nobody needs it any more");
    eventually(PATIENCE, async || definitions.get_opt(&kind.name()).await.unwrap().is_none().then_some(())).await;
}

async fn namespace_stays(stack: &Stack) {
    let shop = Kind::new("foreign").namespace;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": shop, "labels": {"tier": "gold"}}});
    stack.bundle("with-namespace", vec![namespace, config("own", "1")]).await;
    stack.bundle("without", vec![config("own", "1")]).await;
    let app = DesiredBinding { namespace: shop.clone(), ..binding("app", "with-namespace") };
    let namespaces: Api<Namespace> = Api::all(stack.client());
    let configs: Api<ConfigMap> = Api::namespaced(stack.client(), &shop);
    comes(stack, &app).await;
    let uid = configs.get("own").await.unwrap().metadata.uid;

    // An update that drops the namespace, but not what is in it.
    comes(stack, &DesiredBinding { digest: "without".into(), fence: 2, ..app.clone() }).await;
    let released = async || namespaces.get(&shop).await.ok().filter(|found| marks(&found.metadata) == ["drover.io/hub"]);
    let found = eventually(PATIENCE, released).await;
    assert_eq!(found.metadata.labels.unwrap()["tier"], "gold", "only Drover's labels go");
    assert_eq!(configs.get("own").await.unwrap().metadata.uid, uid);

    let app = DesiredBinding { fence: 3, ..app };
    comes(stack, &app).await;
    let by_hand = serde_json::from_value(config("by-hand", "1")).unwrap();
    configs.create(&PostParams::default(), &by_hand).await.unwrap();
    let kept = goes(stack, &app).await;
    assert!(kept.len() == 1 && kept[0].contains(&format!("ConfigMap/{shop}/by-hand")), "{kept:?}");
    let left = namespaces.get(&shop).await.unwrap();
    assert_eq!(marks(&left.metadata), ["drover.io/released"]);
    assert!(left.metadata.deletion_timestamp.is_none());
    assert_eq!(left.metadata.labels.unwrap()["tier"], "gold");
    assert!(configs.get_opt("own").await.unwrap().is_none() && configs.get_opt("by-hand").await.unwrap().is_some());

    let app = DesiredBinding { fence: 5, ..app };
    comes(stack, &app).await;
    configs.delete("by-hand", &DeleteParams::default()).await.unwrap();
    assert!(goes(stack, &app).await.is_empty());
    eventually(PATIENCE, async || namespaces.get_opt(&shop).await.unwrap().is_none().then_some(())).await;
}

#[tokio::test]
async fn definition_stays_while_others_have_objects_of_its_kind() {
    definition_stays(&Stack::start().await).await;
}

#[tokio::test]
async fn definition_stays_while_others_have_objects_of_its_kind_on_a_real_server() {
    let Some(stack) = real() else { return };
    definition_stays(&stack.await).await;
}

#[tokio::test]
async fn definition_goes_with_the_last_app_that_has_objects_of_its_kind() {
    definition_is_parted_with(&Stack::start().await).await;
}

#[tokio::test]
async fn definition_goes_with_the_last_app_that_has_objects_of_its_kind_on_a_real_server() {
    let Some(stack) = real() else { return };
    definition_is_parted_with(&stack.await).await;
}

#[tokio::test]
async fn contained_namespace_stays_while_objects_of_anybody_are_in_it() {
    namespace_stays(&Stack::start().await).await;
}

#[tokio::test]
async fn contained_namespace_stays_while_objects_of_anybody_are_in_it_on_a_real_server() {
    let Some(stack) = real() else { return };
    namespace_stays(&stack.await).await;
}

async fn kept_object_stays(stack: &Stack) {
    let kind = Kind::new("kept");
    let mut kept = config("data", "1");
    kept["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    stack.bundle("with", vec![kept, config("own", "1")]).await;
    stack.bundle("without", vec![config("own", "1")]).await;
    let configs: Api<ConfigMap> = Api::namespaced(stack.client(), &kind.namespace);
    let mut app = kind.of("app", "with");
    comes(stack, &app).await;
    let uid = configs.get("data").await.unwrap().metadata.uid;

    // An update that no longer contains it leaves it, and one that contains it again takes it over.
    app = DesiredBinding { digest: "without".into(), fence: 2, ..app };
    stack.desire(&app).await;
    let status = eventually(PATIENCE, async || stack.status(app.id).await.filter(|status| !status.kept.is_empty())).await;
    assert!(status.kept.len() == 1 && status.kept[0].contains("ConfigMap/") && status.kept[0].contains("/data stays"), "{status:?}");
    app = DesiredBinding { digest: "with".into(), fence: 3, ..app };
    comes(stack, &app).await;
    assert_eq!(configs.get("data").await.unwrap().metadata.uid, uid);

    let said = goes(stack, &app).await;
    assert!(said.len() == 1 && said[0].contains("helm.sh/resource-policy"), "{said:?}");
    let left = configs.get("data").await.unwrap();
    assert_eq!((left.metadata.uid.clone(), marks(&left.metadata)), (uid.clone(), vec!["drover.io/released"]));
    assert!(left.metadata.deletion_timestamp.is_none() && configs.get_opt("own").await.unwrap().is_none());

    app.fence = 5;
    comes(stack, &app).await;
    assert_eq!(configs.get("data").await.unwrap().metadata.uid, uid);
    goes(stack, &app).await;
    configs.delete("data", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn object_that_helm_is_to_keep_stays_and_is_taken_over_again() {
    kept_object_stays(&Stack::start().await).await;
}

#[tokio::test]
async fn object_that_helm_is_to_keep_stays_and_is_taken_over_again_on_a_real_server() {
    let Some(stack) = real() else { return };
    kept_object_stays(&stack.await).await;
}

/// Another program deletes or makes the only kind of a group while Drover lists what is in a namespace.
#[tokio::test]
async fn contained_namespace_goes_although_a_group_comes_or_vanishes_meanwhile() {
    let stack = Stack::start().await;
    let kind = Kind::new("vanishing");
    let definition = serde_json::from_value(kind.definition()).unwrap();
    kind.definitions(&stack).create(&PostParams::default(), &definition).await.unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": kind.namespace}});
    stack.bundle("app", vec![namespace, config("own", "1")]).await;
    let namespaces: Api<Namespace> = Api::all(stack.client());
    let mut app = kind.of("app", "app");
    for (part, code) in [("v1", 404), ("v1/namespaces", 404), ("v1", 429), ("v1/namespaces", 429)] {
        comes(&stack, &app).await;
        let contains = format!("/apis/{}/{part}", kind.group);
        stack.sim.fault(MEMBER, Fault::Path { contains, writes: false, code });
        stack.desire(&absent(&app)).await;
        if code == 429 {
            let waits = async || stack.status(app.id).await.filter(|status| status.reason.is_some());
            let status = eventually(PATIENCE, waits).await;
            assert!(status.phase != Phase::Gone && status.kept.is_empty(), "{status:?}");
            stack.sim.clear_faults(MEMBER);
        }
        let kept = stack.reaches(&absent(&app), Phase::Gone).await.kept;
        assert!(kept.is_empty(), "{part} {code}: {kept:?}");
        eventually(PATIENCE, async || namespaces.get_opt(&kind.namespace).await.unwrap().is_none().then_some(())).await;
        app.fence += 2;
        stack.sim.clear_faults(MEMBER);
    }
}

/// Killed just before and just after the definition is left in place: the last of two deletions.
#[tokio::test]
async fn definition_that_stays_is_reported_when_the_process_is_killed() {
    for point in ["synchronizer/delete/before", "synchronizer/delete/after_effect"] {
        let mut stack = Stack::start().await;
        let kind = Kind::new("killed");
        stack.bundle("definition", vec![kind.definition()]).await;
        stack.bundle("user", vec![kind.thing("theirs")]).await;
        let (operator, user) = (kind.of("operator", "definition"), kind.of("user", "user"));
        comes(&stack, &operator).await;
        comes(&stack, &user).await;
        stack.failpoints.set(point, Action::Pause);
        stack.desire(&absent(&operator)).await;
        eventually(PATIENCE, async || stack.failpoints.is_paused(point).then_some(())).await;
        stack.kill();
        stack.failpoints.clear(point);
        stack.restart().await;
        let kept = stack.reaches(&absent(&operator), Phase::Gone).await.kept;
        assert_eq!(kept.len(), 1, "{point}: {kept:?}");
        assert!(kind.things(&stack).get_opt("theirs").await.unwrap().is_some(), "{point}");
    }
}
