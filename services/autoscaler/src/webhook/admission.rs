//! Answers the API server: a Deployment with the annotation gets what it needs, one that has lost it loses that again, and a Service whose
//! selector was taken off stays without it.
//!
//! Nothing is refused, and nothing is written here (so dry runs are what they seem): what cannot be done is a warning, which `kubectl` prints.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{FromRequest, Request as HttpRequest, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_autoscaling::to_zero::{SCALE_TO_ZERO, is_expanded, original};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use super::complete::{self, DEPLOYMENT};
use super::expanded::{expanded, is_asked};

/// The API server waits for 3 s (deploy/autoscaler/webhook/webhook.yaml).
const WITHIN: Duration = Duration::from_secs(2);

/// What the API server sends.
#[derive(Debug, Deserialize)]
pub struct Review {
    request: Request,
}

#[derive(Debug, Deserialize)]
struct Request {
    uid: String,
    #[serde(default)]
    namespace: String,
    object: Value,
    #[serde(default, rename = "oldObject")]
    old: Value,
}

/// An object as it should be, and what to tell its sender.
#[derive(Debug, PartialEq)]
struct Admitted {
    object: Value,
    warning: Option<String>,
}

/// Answers one request.
pub async fn answer(State(shared): State<Arc<Shared>>, request: HttpRequest) -> Result<Json<Value>, StatusCode> {
    // Anybody in the cluster can connect: who sends slowly must not keep the API server out.
    let read = tokio::time::timeout(WITHIN, Json::<Review>::from_request(request, &()));
    let Ok(Ok(Json(review))) = read.await else { return Err(StatusCode::BAD_REQUEST) };
    let Request { uid, namespace, object, old } = review.request;
    let as_it_is = object.clone();
    let admitted = match tokio::time::timeout(WITHIN, admit(&shared, &namespace, object, &old)).await {
        Ok(Ok(admitted)) => admitted,
        Ok(Err(reason)) => Admitted { object: as_it_is.clone(), warning: Some(reason) },
        Err(_) => Admitted { object: as_it_is.clone(), warning: Some("the API server did not answer the autoscaler in time".to_owned()) },
    };
    shared.admitted.notify_one();
    Ok(Json(response(&uid, &as_it_is, admitted)))
}

fn response(uid: &str, before: &Value, admitted: Admitted) -> Value {
    let mut response = json!({"uid": uid, "allowed": true});
    let mut patch = Vec::new();
    for field in ["metadata", "spec"] {
        if before[field] != admitted.object[field] {
            patch.push(json!({"op": "replace", "path": format!("/{field}"), "value": admitted.object[field]}));
        }
    }
    if !patch.is_empty() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(STANDARD.encode(Value::from(patch).to_string()));
    }
    if let Some(warning) = admitted.warning {
        response["warnings"] = json!([format!("{SCALE_TO_ZERO}: {warning}")]);
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// # Errors
/// A sentence for people: why the object stays as it is.
async fn admit(shared: &Shared, namespace: &str, mut object: Value, old: &Value) -> Result<Admitted, String> {
    // Objects that are being made may lack it.
    object["metadata"]["namespace"] = json!(namespace);
    match object["kind"].as_str() {
        Some("Deployment") if is_asked(&object) => {
            let others = complete::others(&shared.client, namespace).await?;
            let expanded = expanded(&object, &others, &shared.image);
            let added = expanded.map_err(|reason| format!("{reason}; it is scaled to zero as soon as that has changed"))?;
            Ok(Admitted { object: added.deployment, warning: None })
        }
        Some("Deployment") => Ok(not_asked(object)),
        Some("Service") if is_expanded(&object) || is_expanded(old) => {
            if !is_expanded(&object) {
                // It was replaced as a whole; what the old one had before counts no more.
                object["metadata"]["labels"]["drover.io/policy"] = old["metadata"]["labels"]["drover.io/policy"].clone();
            }
            let name = object["metadata"]["labels"]["drover.io/policy"].as_str().unwrap_or_default().to_owned();
            let deployment = complete::read(&shared.client, &DEPLOYMENT, namespace, &name).await?;
            // The agent gives it its selector back.
            let Some(deployment) = deployment.filter(is_asked) else { return Ok(Admitted { object, warning: None }) };
            Ok(Admitted { object: expanded(&deployment, &[object], &shared.image)?.service, warning: None })
        }
        _ => Ok(Admitted { object, warning: None }),
    }
}

/// A Deployment that does not ask for it (any more).
fn not_asked(object: Value) -> Admitted {
    if !is_expanded(&object) {
        return Admitted { object, warning: None };
    }
    let mut object = original(object);
    let mut warning = "the sidecar goes, and its Service leads to the pods again".to_owned();
    if object["spec"]["replicas"] == 0 {
        object["spec"]["replicas"] = json!(1);
        warning += "; it had no pod and gets one";
    }
    Admitted { object, warning: Some(warning) }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::{Body, Bytes};
    use futures::stream;
    use http::header::CONTENT_TYPE;
    use kube::{Client, Config};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn body_that_does_not_come_is_not_waited_for() {
        let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let shared = Shared { client, image: "drover:1".to_owned(), tls: Default::default(), admitted: Default::default() };
        let body = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let request = HttpRequest::post("/v1/scale-to-zero").header(CONTENT_TYPE, "application/json").body(body).unwrap();
        let answered = tokio::time::timeout(WITHIN * 10, answer(State(Arc::new(shared)), request)).await;
        assert_eq!(answered.expect("the sender is let go").err(), Some(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn response_changes_only_what_differs() {
        let before = json!({"kind": "Service", "metadata": {"name": "a"}, "spec": {"selector": {"app": "a"}}});
        let same = response("u", &before, Admitted { object: before.clone(), warning: None });
        assert_eq!(same["response"], json!({"uid": "u", "allowed": true}));
        let mut object = before.clone();
        object["spec"] = json!({});
        let changed = response("u", &before, Admitted { object, warning: Some("so it is".into()) });
        let patch = STANDARD.decode(changed["response"]["patch"].as_str().unwrap()).unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch, json!([{"op": "replace", "path": "/spec", "value": {}}]));
        assert_eq!(changed["response"]["warnings"], json!(["drover.io/scale-to-zero: so it is"]));
        assert_eq!(changed["response"]["allowed"], true);
    }

    #[test]
    fn deployment_without_the_annotation_loses_only_what_was_added() {
        let own = json!({"kind": "Deployment", "metadata": {"name": "a"}, "spec": {"replicas": 0, "template": {"spec": {"containers": [
            {"name": "app"}, {"name": "queue-proxy"}]}}}});
        assert_eq!(not_asked(own.clone()), Admitted { object: own.clone(), warning: None });
        let mut added = own;
        added["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "drover-queue-proxy"}));
        let Admitted { object, warning } = not_asked(added);
        assert_eq!(object["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 2);
        assert!(object["spec"]["replicas"] == 1 && warning.unwrap().contains("gets one"));
    }
}
