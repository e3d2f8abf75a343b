//! Bindings on a real API server, if `DROVER_CONTRACT_KUBECONFIG` names one: the simulator must not be the only proof.

use std::collections::BTreeMap;

use crate::bindings::doubled;
use crate::support::{MEMBER, PATIENCE, Stack, absent, binding, config, deployment, service};
use drover_api::bindings::{DesiredBinding, Phase};
use drover_testkit::eventually;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

fn rest() -> Vec<Value> {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.com/job:1"}]});
    vec![
        json!({"apiVersion": "sync.drover.test/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"size": 1}}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.sync.drover.test"},
            "spec": {"group": "sync.drover.test", "scope": "Namespaced", "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}}),
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": {"spec": pod}}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web"}}),
    ]
}

/// A stack whose member is the real server; `None` if there is none.
#[track_caller]
pub fn real() -> Option<impl Future<Output = Stack>> {
    let path = drover_testkit::needs("DROVER_CONTRACT_KUBECONFIG")?;
    Some(async move {
        let vetted = drover_members::kubeconfig::vet(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut stack = Stack::without_members().await;
        stack.add_real_member(MEMBER, drover_members::clients::connect(&vetted, drover_members::Reach::Anywhere).await.unwrap());
        stack
    })
}

#[tokio::test]
async fn what_server_side_apply_refuses_is_written_or_named() {
    let Some(stack) = real() else { return };
    let stack = stack.await;
    let namespace = format!("drover-plain-{}", std::process::id());
    stack.bundle("b1", vec![doubled("2")]).await;
    let desired = DesiredBinding { namespace: namespace.clone(), ..binding("plain", "b1") };
    stack.desire(&desired).await;
    stack.reaches(&desired, Phase::Ready).await;
    let deployments: Api<Deployment> = Api::namespaced(stack.client(), &namespace);
    let pod = deployments.get("web").await.unwrap().spec.unwrap().template.spec.unwrap();
    assert_eq!((pod.containers[0].env.as_ref().unwrap().len(), pod.containers[0].ports.as_ref().unwrap().len()), (2, 2));

    // The server answers 500 to a field that it does not know: the object is at fault, and not the member.
    let mut odd = deployment("odd", 1, "100m");
    odd["spec"]["replica"] = json!(2);
    stack.bundle("b2", vec![odd]).await;
    let wrong = DesiredBinding { digest: "b2".into(), fence: 2, ..desired };
    stack.desire(&wrong).await;
    let reason = stack.reaches(&wrong, Phase::Failed).await.reason.unwrap_or_default();
    assert!(reason.contains(".spec.replica: field not declared in schema"), "{reason}");
    stack.desire(&absent(&wrong)).await;
    stack.reaches(&absent(&wrong), Phase::Gone).await;
}

#[tokio::test]
async fn binding_is_applied_corrected_updated_and_deleted() {
    let Some(stack) = real() else { return };
    let mut stack = stack.await;
    let namespace = format!("drover-sync-{}", std::process::id());
    let web = [config("settings", "1"), service("web"), deployment("web", 2, "100m")];
    stack.bundle("b1", rest().into_iter().chain(web).collect()).await;
    let desired = DesiredBinding { namespace: namespace.clone(), ..binding("real", "b1") };
    stack.desire(&desired).await;
    let status = stack.reaches(&desired, Phase::Ready).await;
    assert_eq!(status.objects.len(), 9, "{status:#?}");

    // A restart applies nothing again: no object has another version. (Kinds whose status controllers write are left out.)
    let kinds = [
        ("v1", "ConfigMap"),
        ("v1", "Service"),
        ("v1", "ServiceAccount"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("sync.drover.test/v1", "Thing"),
    ];
    let client = stack.client();
    let versions = async || {
        let mut versions = BTreeMap::new();
        for (api_version, kind) in kinds {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
            let list = api.list_metadata(&ListParams::default().labels("drover.io/binding")).await.unwrap();
            versions.extend(
                list.items
                    .into_iter()
                    .map(|object| (format!("{kind}/{}", object.metadata.name.unwrap()), object.metadata.resource_version)),
            );
        }
        versions
    };
    let before = versions().await;
    assert_eq!(before.len(), 5, "{before:?}");
    stack.kill();
    stack.restart().await;
    stack.reaches(&desired, Phase::Ready).await;
    let (configs, services): (Api<ConfigMap>, Api<Service>) =
        (Api::namespaced(stack.client(), &namespace), Api::namespaced(stack.client(), &namespace));
    // The correction of a drift comes after everything that the restart would have applied.
    configs.patch("settings", &PatchParams::default(), &Patch::Merge(json!({"data": {"value": "theirs"}}))).await.unwrap();
    eventually(PATIENCE, async || (configs.get("settings").await.unwrap().data?["value"] == "1").then_some(())).await;
    let mut after = versions().await;
    assert_ne!(after.remove("ConfigMap/settings").unwrap(), before["ConfigMap/settings"]);
    assert!(after.iter().all(|(name, version)| before[name] == *version), "{before:?} {after:?}");

    let deployments: Api<Deployment> = Api::namespaced(stack.client(), &namespace);
    let theirs = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "example.com/web:theirs"}]}}}});
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(theirs)).await.unwrap();
    services.delete("web", &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, async || {
        let containers = deployments.get("web").await.unwrap().spec?.template.spec?.containers;
        (containers[0].image.as_deref() == Some("example.com/web:1")).then_some(())
    })
    .await;
    eventually(PATIENCE, async || services.get_opt("web").await.unwrap()).await;

    stack.bundle("b2", vec![config("settings", "2"), deployment("web", 1, "100m")]).await;
    let updated = DesiredBinding { digest: "b2".into(), fence: 2, ..desired };
    stack.desire(&updated).await;
    stack.reaches(&updated, Phase::Ready).await;
    eventually(PATIENCE, async || services.get_opt("web").await.unwrap().is_none().then_some(())).await;

    stack.desire(&absent(&updated)).await;
    stack.reaches(&absent(&updated), Phase::Gone).await;
    let namespaces: Api<Namespace> = Api::all(stack.client());
    eventually(PATIENCE, async || namespaces.get_opt(&namespace).await.unwrap().is_none().then_some(())).await;
}

/// The credential of the service is the administrator's.
#[tokio::test]
async fn binding_is_written_with_the_rights_of_its_account_only() {
    let Some(stack) = real() else { return };
    let mut stack = stack.await;
    let namespace = format!("drover-acting-{}", std::process::id());
    let new = PostParams::default();
    let namespaces: Api<Namespace> = Api::all(stack.client());
    namespaces.create(&new, &serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap()).await.unwrap();
    let roles: Api<Role> = Api::namespaced(stack.client(), &namespace);
    let bindings: Api<RoleBinding> = Api::namespaced(stack.client(), &namespace);
    let to_write = ["create", "patch", "delete"];
    let role = async |name: &str, group: &str, resource: &str, verbs: &[&str], subject: Value| {
        let rules = json!([{"apiGroups": [group], "resources": [resource], "verbs": verbs}]);
        let role: Role = serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules})).unwrap();
        roles.create(&new, &role).await.unwrap();
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
        let binding = json!({"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]});
        bindings.create(&new, &serde_json::from_value(binding).unwrap()).await.unwrap();
    };
    let account = json!({"kind": "ServiceAccount", "name": "deployer", "namespace": namespace});
    role("deployments", "apps", "deployments", &to_write, account.clone()).await;
    // The groups of a service account are its own without being named.
    let accounts = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": format!("system:serviceaccounts:{namespace}")});
    role("maps", "", "configmaps", &to_write, accounts).await;
    // RBAC follows a change a moment later.
    let acting = |mut request: axum::http::Request<Vec<u8>>| {
        let user = format!("system:serviceaccount:{namespace}:deployer");
        request.headers_mut().insert("impersonate-user", user.parse().unwrap());
        request
    };
    let may_delete = |resource: &str| {
        let attributes = json!({"namespace": namespace, "verb": "delete", "resource": resource});
        let review =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}});
        let request =
            axum::http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").body(serde_json::to_vec(&review).unwrap());
        let (client, request) = (stack.client(), acting(request.unwrap()));
        async move { client.request::<Value>(request).await.unwrap()["status"]["allowed"] == true }
    };
    eventually(PATIENCE, async || may_delete("configmaps").await.then_some(())).await;

    let act_as = Some(format!("{namespace}/deployer").into());
    stack.bundle("b1", vec![config("settings", "1"), deployment("web", 1, "100m")]).await;
    let desired = DesiredBinding { namespace: namespace.clone(), act_as, ..binding("acting", "b1") };
    stack.desire(&desired).await;
    stack.reaches(&desired, Phase::Ready).await;

    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "stringData": {"a": "b"}});
    stack.bundle("b2", vec![config("settings", "2"), deployment("web", 1, "100m"), secret.clone()]).await;
    let too_much = DesiredBinding { digest: "b2".into(), fence: 2, ..desired.clone() };
    stack.desire(&too_much).await;
    let refused = stack.reaches(&too_much, Phase::Failed).await;
    let words = format!("Secret/{namespace}/token: the account {namespace}/deployer of the logical cloud may not patch it in this cluster");
    assert_eq!(refused.code.as_deref(), Some("account_refused"));
    assert!(refused.reason.as_deref().is_some_and(|reason| reason.contains(&words)), "{:?}", refused.reason);
    let configs: Api<ConfigMap> = Api::namespaced(stack.client(), &namespace);
    assert_eq!(configs.get("settings").await.unwrap().data.unwrap()["value"], "1", "nothing is written");
    let asked = drover_api::bindings::Preflight { binding: too_much.clone(), objects: vec![secret] };
    stack.know_by(std::fs::read_to_string(drover_testkit::needs("DROVER_CONTRACT_KUBECONFIG").unwrap()).unwrap());
    let (_, answer) = stack.send(reqwest::Method::POST, "/internal/preflights", &asked).await;
    assert!(answer["reasons"][0].as_str().is_some_and(|reason| reason.contains(&words)), "{answer}");

    // What an account may no longer delete stays until it may, also after a restart.
    let back = DesiredBinding { digest: "b1".into(), fence: 3, ..desired.clone() };
    stack.desire(&back).await;
    stack.reaches(&back, Phase::Ready).await;
    bindings.delete("maps", &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, async || (!may_delete("configmaps").await).then_some(())).await;
    let gone = DesiredBinding { act_as: None, ..absent(&back) };
    stack.desire(&gone).await;
    let refused =
        eventually(PATIENCE, async || stack.status(gone.id).await.filter(|status| status.code.as_deref() == Some("account_refused"))).await;
    assert!(refused.reason.is_some_and(|reason| reason.contains("may not delete it")), "the account with which it was written deletes it");
    stack.kill();
    stack.restart().await;
    let account_again = json!({"metadata": {"name": "maps"}, "subjects": [account],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps"}});
    bindings.create(&new, &serde_json::from_value(account_again).unwrap()).await.unwrap();
    stack.reaches(&gone, Phase::Gone).await;

    // A kubeconfig that acts as somebody cannot act as the account as well.
    let path = drover_testkit::needs("DROVER_CONTRACT_KUBECONFIG").unwrap();
    let mut kubeconfig = kube::config::Kubeconfig::read_from(path).unwrap();
    for user in &mut kubeconfig.auth_infos {
        let user = user.auth_info.as_mut().unwrap();
        (user.impersonate, user.impersonate_groups) = (Some("admin-by-proxy".into()), Some(vec!["system:masters".into()]));
    }
    let vetted = drover_members::kubeconfig::vet(&serde_json::to_string(&kubeconfig).unwrap()).unwrap();
    let proxied = drover_members::clients::connect(&vetted, drover_members::Reach::Anywhere).await.unwrap();
    stack.add_real_member("onprem+proxied", proxied);
    let nested = DesiredBinding { id: uuid::Uuid::new_v4(), member: drover_scheduling::MemberKey("onprem+proxied".into()), ..desired };
    stack.desire(&nested).await;
    let refused = stack.reaches(&nested, Phase::Failed).await;
    assert_eq!(refused.code.as_deref(), Some("account_refused"));
    assert!(refused.reason.is_some_and(|reason| reason.contains("acts as \"admin-by-proxy\" already")));
    namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn failing_webhook_fails_only_the_bindings_it_checks() {
    let Some(stack) = real() else { return };
    let stack = stack.await;
    let name = |what: &str| format!("drover-webhook-{what}-{}", std::process::id());
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(stack.client());
    let nobody = json!({"metadata": {"name": name("nobody")}, "webhooks": [{
        "name": "nobody.drover.test", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "timeoutSeconds": 1,
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name("hit")}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}],
    }]});
    webhooks.create(&PostParams::default(), &serde_json::from_value(nobody).unwrap()).await.unwrap();
    // The server uses a webhook only some time after it was created.
    let probed: Api<Namespace> = Api::all(stack.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name("hit")}})).unwrap();
    probed.create(&PostParams::default(), &namespace).await.unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let configs: Api<ConfigMap> = Api::namespaced(stack.client(), &name("hit"));
    let probe: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "probe"}})).unwrap();
    eventually(PATIENCE, async || configs.create(&dry, &probe).await.is_err().then_some(())).await;
    stack.bundle("b1", vec![config("settings", "1")]).await;
    let hit = DesiredBinding { namespace: name("hit"), ..binding("hit", "b1") };
    let spared = DesiredBinding { namespace: name("spared"), ..binding("spared", "b1") };
    stack.desire(&hit).await;
    stack.desire(&spared).await;
    stack.reaches(&spared, Phase::Ready).await;
    let failed = eventually(PATIENCE * 2, async || stack.status(hit.id).await.filter(|status| status.phase == Phase::Failed)).await;
    assert_eq!(failed.code.as_deref(), Some("apply_failed"));
    assert!(failed.reason.is_some_and(|reason| reason.contains("nobody.drover.test")));
    webhooks.delete(&name("nobody"), &DeleteParams::default()).await.unwrap();
    let hit = DesiredBinding { fence: 2, ..hit };
    stack.desire(&hit).await;
    stack.reaches(&hit, Phase::Ready).await;
    for desired in [&hit, &spared] {
        stack.desire(&absent(desired)).await;
        stack.reaches(&absent(desired), Phase::Gone).await;
    }
    probed.delete(&name("hit"), &DeleteParams::default()).await.unwrap();
}
