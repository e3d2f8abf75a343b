//! Logical clouds of level 1 on real control planes: what their user may do, and what not.

use std::time::Duration;

use drover_e2e::apps::App;
use drover_e2e::emco::{Group, ended};
use drover_e2e::{Backend, System, succeeded};
use drover_testkit::eventually;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, ResourceQuota};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::config::Kubeconfig;
use serde_json::{Value, json};

const CLOUD: &str = "/v2/projects/e2e/logical-clouds/tenant";
const NAMESPACE: &str = "e2e-tenant";

/// Creates a logical cloud of level 1 on two members.
async fn make(system: &System) {
    let create = async |collection: &str, name: &str, spec: Value| {
        let body = json!({"metadata": {"name": name}, "spec": spec});
        system.client.post(collection, Some(&body)).await.unwrap();
    };
    system.client.ensure("/v2/projects", &json!({"metadata": {"name": "e2e"}})).await.unwrap();
    let user = json!({"userName": "ann", "type": "certificate"});
    create("/v2/projects/e2e/logical-clouds", "tenant", json!({"namespace": NAMESPACE, "level": "1", "user": user})).await;
    for cluster in ["private-a", "private-b"] {
        let spec = json!({"clusterProvider": "onprem", "cluster": cluster});
        create(&format!("{CLOUD}/cluster-references"), cluster, spec).await;
    }
    let rights = json!({"namespace": NAMESPACE, "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get", "list"]});
    create(&format!("{CLOUD}/user-permissions"), "own", rights).await;
    create(&format!("{CLOUD}/cluster-quotas"), "quota", json!({"configmaps": "3", "pods": "2"})).await;
}

/// Approves an application of this cloud that must run on the first of its clusters.
async fn inside(system: &System, app: &Group) {
    let client = &system.client;
    let named = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    client.ensure("/v2/projects/e2e/composite-apps", &named(&app.name, json!({"compositeAppVersion": "v1"}))).await.unwrap();
    client.ensure(&format!("{}/composite-profiles", app.composite()), &json!({"metadata": {"name": "profile"}})).await.unwrap();
    app.upload(client).await.unwrap();
    let spec = json!({"compositeProfile": "profile", "version": app.name, "logicalCloud": "tenant", "overrideValues": []});
    client.ensure(&format!("{}/deployment-intent-groups", app.composite()), &named(&app.name, spec)).await.unwrap();
    let intents = format!("{}/generic-placement-intents", app.path());
    client.ensure(&intents, &json!({"metadata": {"name": "placement"}})).await.unwrap();
    let spec = json!({"app": app.apps[0].name, "intent": {"allOf": [{"clusterProvider": "onprem", "cluster": "private-a"}]}});
    client.ensure(&format!("{intents}/placement/app-intents"), &named("inside", spec)).await.unwrap();
    client.post(&format!("{}/approve", app.path()), None).await.unwrap();
}

/// Waits until the cloud has this status, and returns all of it.
async fn deployed(system: &System, word: &str) -> Value {
    let mut last = Value::Null;
    let reached = tokio::time::timeout(Duration::from_secs(120), async {
        loop {
            last = system.client.get(&format!("{CLOUD}/status")).await.unwrap();
            if last["deployedStatus"] == word {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let reached = reached.await.is_ok();
    assert!(reached, "not {word}: {last:#}");
    last
}

/// A client with the kubeconfig that the user of the cloud gets for this cluster.
async fn user(system: &System, cluster: &str) -> kube::Client {
    let url = system.url().join(&format!("{CLOUD}/cluster-references/{cluster}/kubeconfig")).unwrap();
    let answer = reqwest::get(url).await.unwrap();
    assert_eq!(answer.status(), 200);
    let kubeconfig = Kubeconfig::from_yaml(&answer.text().await.unwrap()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    assert_eq!(config.default_namespace, NAMESPACE);
    kube::Client::try_from(config).unwrap()
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"key": "value"}})).unwrap()
}

fn code<T>(outcome: kube::Result<T>) -> u16 {
    match outcome {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("the member answers: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn kubeconfig_of_a_logical_cloud_works_within_its_rights_and_not_beyond() {
    if !Backend::real_is_built() {
        return;
    }
    let system = System::new(Backend::Real).await;
    make(&system).await;
    system.client.post(&format!("{CLOUD}/instantiate"), None).await.unwrap();
    deployed(&system, "Instantiated").await;

    for cluster in ["private-a", "private-b"] {
        let client = user(&system, cluster).await;
        let own: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        // The quota refuses everything until its controller has counted for the first time.
        eventually(Duration::from_secs(120), async || {
            matches!(code(own.create(&PostParams::default(), &map("mine")).await), 200 | 409).then_some(())
        })
        .await;
        assert_eq!(code(own.get("mine").await), 200, "{cluster}");
        // kube-root-ca.crt and `mine` are there; the quota allows one more.
        assert_eq!(code(own.create(&PostParams::default(), &map("another")).await), 200);
        assert_eq!(code(own.create(&PostParams::default(), &map("too-many")).await), 403, "the quota");
        assert_eq!(code(own.delete("mine", &DeleteParams::default()).await), 403, "a verb that it does not have");
        for namespace in ["default", "kube-system"] {
            let others: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            assert_eq!(code(others.list(&ListParams::default()).await), 403, "{namespace}");
            assert_eq!(code(others.create(&PostParams::default(), &map("theirs")).await), 403, "{namespace}");
        }
        assert_eq!(code(Api::<Node>::all(client.clone()).list(&ListParams::default()).await), 403);
        assert_eq!(code(Api::<RoleBinding>::namespaced(client.clone(), NAMESPACE).list(&ListParams::default()).await), 403);
        let admin = system.member(cluster).client.clone();
        let maps: Api<ConfigMap> = Api::namespaced(admin, NAMESPACE);
        for name in ["mine", "another"] {
            maps.delete(name, &DeleteParams::default()).await.unwrap();
        }
    }

    // An application is deployed into it, and counts against its quota.
    let app = Group::new("inside", App::new("inside", 100));
    inside(&system, &app).await;
    let operation = app.verb(&system.client, "instantiate").await.unwrap();
    succeeded(&ended(&system.client, &operation).await.unwrap());
    let admin = system.member("private-a").client.clone();
    let quotas: Api<ResourceQuota> = Api::namespaced(admin.clone(), NAMESPACE);
    eventually(Duration::from_secs(120), async || {
        let used = quotas.get("quota").await.unwrap().status?.used?;
        (used.get("pods")?.0 == "1").then_some(())
    })
    .await;
    let operation = app.verb(&system.client, "terminate").await.unwrap();
    succeeded(&ended(&system.client, &operation).await.unwrap());

    // An update takes rights away; the end takes everything.
    let client = user(&system, "private-a").await;
    system.client.delete(&format!("{CLOUD}/cluster-quotas/quota")).await.unwrap();
    system.client.delete(&format!("{CLOUD}/user-permissions/own")).await.unwrap();
    let rights = json!({"namespace": NAMESPACE, "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]});
    let body = json!({"metadata": {"name": "own"}, "spec": rights});
    system.client.post(&format!("{CLOUD}/user-permissions"), Some(&body)).await.unwrap();
    system.client.post(&format!("{CLOUD}/update"), None).await.unwrap();
    deployed(&system, "Instantiated").await;
    let own: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    // RBAC follows a change a moment later.
    eventually(Duration::from_secs(120), async || (code(own.create(&PostParams::default(), &map("late")).await) == 403).then_some(()))
        .await;
    assert_eq!(code(own.list(&ListParams::default()).await), 200);
    assert_eq!(code(quotas.get("quota").await), 404);

    for below in ["/generic-placement-intents/placement/app-intents/inside", "/generic-placement-intents/placement", ""] {
        system.client.delete(&format!("{}{below}", app.path())).await.unwrap();
    }
    system.client.post(&format!("{CLOUD}/terminate"), None).await.unwrap();
    deployed(&system, "Terminated").await;
    eventually(Duration::from_secs(120), async || (code(own.list(&ListParams::default()).await) == 403).then_some(())).await;
    let namespaces: Api<Namespace> = Api::all(admin);
    eventually(Duration::from_secs(120), async || (code(namespaces.get(NAMESPACE).await) == 404).then_some(())).await;
    system.end().await;
}
