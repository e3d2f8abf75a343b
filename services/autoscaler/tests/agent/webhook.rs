//! Scale to zero by annotation, for objects that are applied without Drover: a real API server calls the agent's webhook, and the agent has
//! no other rights than deploy/autoscaler gives it.

use drover_autoscaler::policy::ScalingPolicy;
use drover_autoscaling::to_zero::{SCALE_TO_ZERO, is_expanded};
use drover_testkit::{eventually, free_port};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::{Agent, PATIENCE, TestNamespace};

const NAME: &str = "drover-autoscaler-webhook";

/// An address for the agent.
pub fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// An agent that answers at this address, as soon as the API server knows its certificate.
pub async fn answering(place: &TestNamespace, address: &str, configuration: &str) -> Agent {
    let least = place.least_rights().await;
    let settings = [
        ("AUTOSCALER_WEBHOOK", address),
        ("AUTOSCALER_WEBHOOK_NAMES", "127.0.0.1"),
        ("AUTOSCALER_WEBHOOK_CONFIGURATION", configuration),
        ("AUTOSCALER_SIDECAR_IMAGE", "drover:dev"),
    ];
    let agent = Agent::start(place, "agent", &least, &settings).await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(place.client.clone());
    eventually(PATIENCE, async || {
        let webhooks = configurations.get(configuration).await.ok()?.webhooks?;
        webhooks[0].client_config.ca_bundle.as_ref().filter(|bundle| !bundle.0.is_empty()).map(drop)
    })
    .await;
    agent
}

/// Applies deploy/autoscaler/webhook/webhook.yaml for this namespace and this address of the agent; returns the name of the configuration.
pub async fn configured(place: &TestNamespace, address: &str) -> String {
    let name = format!("{NAME}-{}", place.namespace);
    let file = include_str!("../../../../deploy/autoscaler/webhook/webhook.yaml").replace(NAME, &name);
    for document in serde_yaml::Deserializer::from_str(&file) {
        let mut object = Value::deserialize(document).unwrap();
        match object["kind"].as_str().unwrap() {
            "MutatingWebhookConfiguration" => {
                let webhook = &mut object["webhooks"][0];
                webhook["clientConfig"] = json!({"url": format!("https://{address}/v1/scale-to-zero")});
                // The manifest's time-out is too short for a machine that pauses: then objects are admitted as they are.
                webhook["timeoutSeconds"] = json!(30);
                webhook["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": place.namespace}});
            }
            // The API server of the test reaches the agent by its address.
            "Service" => continue,
            "Role" | "RoleBinding" => object["metadata"]["namespace"] = json!(place.namespace),
            _ => {}
        }
        apply(place, object).await;
    }
    name
}

pub async fn apply(place: &TestNamespace, object: Value) -> Value {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(object.types.clone().unwrap()).unwrap());
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(place.client.clone(), namespace, &resource),
        None => Api::all_with(place.client.clone(), &resource),
    };
    let name = object.metadata.name.clone().unwrap();
    // As `kubectl apply --server-side` does, so a conflict with what the agent has written would be an error.
    let applied = api.patch(&name, &PatchParams::apply("kubectl"), &Patch::Apply(&object)).await.unwrap();
    serde_json::to_value(applied).unwrap()
}

/// An app of somebody who knows only the annotation.
pub fn app(place: &TestNamespace, name: &str, annotation: Option<&str>) -> [Value; 2] {
    let annotations = annotation.map_or(json!({}), |value| json!({SCALE_TO_ZERO: value}));
    let container = json!({"name": "app", "image": "example.com/app:1", "ports": [{"containerPort": 8080}]});
    let labels = json!({"app": name});
    [
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": place.namespace, "annotations": annotations},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": place.namespace},
            "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}}),
    ]
}

/// An object, by kind and name.
pub async fn found<K>(place: &TestNamespace, name: &str) -> Option<Value>
where
    K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + serde::Serialize
        + std::fmt::Debug,
{
    place.api::<K>().get_opt(name).await.unwrap().map(|object| serde_json::to_value(object).unwrap())
}

pub fn containers(deployment: &Value) -> Vec<&str> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    containers.iter().map(|container| container["name"].as_str().unwrap()).collect()
}

/// Waits until the app is scaled to zero as `--scale-to-zero` does it.
pub async fn is_whole(place: &TestNamespace, name: &str) {
    let slices = place.api::<EndpointSlice>();
    eventually(PATIENCE, async || {
        let (deployment, service) = (found::<Deployment>(place, name).await?, found::<Service>(place, name).await?);
        let pods = found::<Service>(place, &format!("{name}-pods")).await?;
        let policy = found::<ScalingPolicy>(place, name).await?;
        let past = "endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io";
        let past = ListParams::default().labels(&format!("kubernetes.io/service-name={name},{past}"));
        let done = containers(&deployment) == ["app", "drover-queue-proxy"]
            && service["spec"].get("selector").is_none()
            && service["metadata"]["labels"]["drover.io/path"] == "public"
            && pods["spec"]["selector"]["app"] == name
            && policy["spec"]["maxReplicas"] == 3
            && policy["spec"]["minReplicas"] == 0
            && slices.list(&past).await.ok()?.items.is_empty();
        done.then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn annotation_is_enough_for_those_who_apply_without_drover() {
    let Some(place) = TestNamespace::new("webhook") else { return };
    let place = place.await;
    let address = free_address();
    let name = configured(&place, &address).await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(place.client.clone());

    // Nobody answers: everything is admitted as it is.
    for object in app(&place, "early", Some("max=3")) {
        assert!(!is_expanded(&apply(&place, object).await));
    }
    let agent = answering(&place, &address, &name).await;
    // The API server has noticed the certificate when it calls: a Deployment without its Service is admitted, with the Service it is whole.
    let [deployment, service] = app(&place, "cart", Some("max=3"));
    apply(&place, service.clone()).await;
    eventually(PATIENCE, async || {
        let admitted = apply(&place, deployment.clone()).await;
        (containers(&admitted) == ["app", "drover-queue-proxy"]).then_some(())
    })
    .await;
    is_whole(&place, "cart").await;
    is_whole(&place, "early").await;

    // Who applies the same again changes nothing.
    let before = found::<Deployment>(&place, "cart").await.unwrap();
    let again = apply(&place, deployment).await;
    assert_eq!(again["metadata"]["generation"], before["metadata"]["generation"], "no pod is started anew");
    // Each time it brings its selector back, and if the webhook cannot read the Deployment in time, the Service is admitted as it is.
    eventually(PATIENCE, async || apply(&place, service.clone()).await["spec"].get("selector").is_none().then_some(())).await;

    // Without the annotation it is as if there had been none.
    let [deployment, _] = app(&place, "cart", None);
    assert_eq!(containers(&apply(&place, deployment).await), ["app"]);
    eventually(PATIENCE, async || {
        let service = found::<Service>(&place, "cart").await?;
        let gone = found::<Service>(&place, "cart-pods").await.is_none() && found::<ScalingPolicy>(&place, "cart").await.is_none();
        (gone && service["spec"]["selector"] == json!({"app": "cart"}) && service["spec"]["ports"][0]["targetPort"] == 8080).then_some(())
    })
    .await;
    // Others are left alone.
    for object in app(&place, "plain", None) {
        assert!(!is_expanded(&apply(&place, object).await));
    }
    assert!(found::<ScalingPolicy>(&place, "plain").await.is_none());

    configurations.delete(&name, &DeleteParams::default()).await.unwrap();
    assert!(!agent.log().contains("forbidden"), "its rights suffice: {}", agent.log());
    drop(agent);
    place.done().await;
}
