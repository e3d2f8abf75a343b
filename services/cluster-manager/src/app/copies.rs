//! Pods, events and logs of one copy of an app, by requests to the member's API server. Nothing is kept.
//!
//! Only objects with the label of the copy are shown: who knows the id of a binding cannot read the logs of other pods with it.

use std::collections::BTreeSet;

use axum::body::Bytes;
use drover_api::members::{CopyEvent, CopyEvents, CopyPod, CopyPods};
use drover_members::kubeconfig::vet;
use drover_members::labels;
use drover_resources::is_dns_label;
use drover_scheduling::{MemberKey, MemberState};
use drover_service::{Problem, codes};
use futures::{AsyncReadExt, Stream, stream};
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use uuid::Uuid;

use super::App;
use crate::probe::{DEADLINE, Failure};

/// Kinds between an app's objects and its pods, whose events say why pods are missing.
const WORKLOADS: [&str; 6] = [
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/daemonsets",
    "/apis/batch/v1/jobs",
    "/api/v1/persistentvolumeclaims",
];
/// The most bytes that are passed on at once.
const CHUNK: usize = 16 << 10;

/// Selects lines of a log.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
pub struct LogQuery {
    /// Name of the pod.
    pub pod: String,
    /// Container; may be left out for pods of one container.
    pub container: Option<String>,
    /// Only so many of the last lines.
    pub tail_lines: Option<u32>,
    /// Only lines of the last seconds.
    pub since_seconds: Option<u32>,
    /// The log of the container that ran before the last restart.
    pub previous: Option<bool>,
    /// Wait for further lines, and return them as they come.
    pub follow: Option<bool>,
    /// Begin each line with its time.
    pub timestamps: Option<bool>,
}

impl App {
    /// The pods of a copy.
    ///
    /// # Errors
    /// `not_found` without such a cluster; the member does not answer or refuses the request.
    pub async fn pods_of(&self, member: &MemberKey, binding: Uuid) -> Result<CopyPods, Problem> {
        let client = self.client_of(member).await?;
        let pods = labelled(&client, "/api/v1/pods", binding).await?;
        let mut items: Vec<CopyPod> = pods.iter().map(pod).collect();
        items.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        Ok(CopyPods { items })
    }

    /// The events of a copy, of its workloads and of its pods.
    ///
    /// # Errors
    /// As [`App::pods_of`].
    pub async fn events_of(&self, member: &MemberKey, binding: Uuid) -> Result<CopyEvents, Problem> {
        let client = self.client_of(member).await?;
        let (mut uids, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
        for path in ["/api/v1/pods"].into_iter().chain(WORKLOADS) {
            // A kind that may not be read, or that the member does not serve, has no events to show.
            for object in labelled(&client, path, binding).await.unwrap_or_default() {
                uids.insert(text(&object["metadata"]["uid"]));
                namespaces.insert(text(&object["metadata"]["namespace"]));
            }
        }
        let mut items = Vec::new();
        for namespace in &namespaces {
            let list = get(&client, &format!("/api/v1/namespaces/{namespace}/events")).await?;
            let about = |event: &&Value| uids.contains(event["involvedObject"]["uid"].as_str().unwrap_or_default());
            items.extend(list["items"].as_array().into_iter().flatten().filter(about).map(event));
        }
        items.sort_by(|a: &CopyEvent, b| (&a.last, &a.object).cmp(&(&b.last, &b.object)));
        Ok(CopyEvents { items })
    }

    /// The lines of a log as they come.
    ///
    /// # Errors
    /// As [`App::pods_of`]; also: the copy has no such pod, or the member refuses the request, for example because the container is not named.
    pub async fn log_of(
        &self,
        member: &MemberKey,
        binding: Uuid,
        query: &LogQuery,
    ) -> Result<impl Stream<Item = std::io::Result<Bytes>> + Send + use<>, Problem> {
        let client = self.client_of(member).await?;
        let pod = pod_of(&client, member, binding, &query.pod, query.container.as_deref()).await?;
        let numbers = [("tailLines", query.tail_lines), ("sinceSeconds", query.since_seconds)];
        let numbers = numbers.into_iter().filter_map(|(key, number)| Some(format!("{key}={}", number?)));
        let switches = [("previous", query.previous), ("follow", query.follow), ("timestamps", query.timestamps)];
        let switches = switches.into_iter().filter_map(|(key, switch)| Some(format!("{key}={}", switch?)));
        let container = query.container.iter().map(|container| format!("container={container}"));
        let selected: Vec<String> = container.chain(numbers).chain(switches).collect();
        let path = format!("{pod}/log?{}", selected.join("&"));
        let request = http::Request::get(path).body(Vec::new()).map_err(Problem::internal)?;
        let answer = tokio::time::timeout(DEADLINE, client.request_stream(request)).await;
        let lines = answer.map_err(|_| problem(Failure::unreachable("no answer in time")))?.map_err(refused)?;
        Ok(stream::try_unfold(Box::pin(lines), |mut lines| async move {
            let mut chunk = vec![0; CHUNK];
            let read = lines.read(&mut chunk).await?;
            chunk.truncate(read);
            Ok((read > 0).then(|| (Bytes::from(chunk), lines)))
        }))
    }

    pub(super) async fn client_of(&self, member: &MemberKey) -> Result<Client, Problem> {
        let credential = self.credential(member).await?;
        let unusable = |error: drover_members::KubeconfigError| codes::KUBECONFIG_INVALID.problem(error.to_string());
        let vetted = vet(credential.kubeconfig.expose()).map_err(unusable)?.linked(credential.linked);
        self.clients.get(member, credential.version, &vetted).await.map_err(unusable)
    }
}

/// The path of a pod of a copy, if the copy has it.
pub(super) async fn pod_of(
    client: &Client,
    member: &MemberKey,
    binding: Uuid,
    name: &str,
    container: Option<&str>,
) -> Result<String, Problem> {
    let pods = labelled(client, "/api/v1/pods", binding).await?;
    let known = pods.iter().find(|pod| pod["metadata"]["name"] == name);
    let pod = known.ok_or_else(|| codes::NOT_FOUND.problem(format!("this copy has no pod {name} on {member}")))?;
    if container.is_some_and(|container| !is_dns_label(container)) {
        return Err(codes::INVALID.problem("container: not the name of a container"));
    }
    Ok(format!("/api/v1/namespaces/{}/pods/{name}", text(&pod["metadata"]["namespace"])))
}

/// Objects of a kind in all namespaces with the label of the copy.
async fn labelled(client: &Client, path: &str, binding: Uuid) -> Result<Vec<Value>, Problem> {
    let mut list = get(client, &format!("{path}?labelSelector={}%3D{binding}", labels::BINDING.replace('/', "%2F"))).await?;
    match list["items"].take() {
        Value::Array(items) => Ok(items),
        _ => Ok(Vec::new()),
    }
}

async fn get(client: &Client, path: &str) -> Result<Value, Problem> {
    let request = http::Request::get(path).body(Vec::new()).map_err(Problem::internal)?;
    let answer = tokio::time::timeout(DEADLINE, client.request(request)).await;
    answer.map_err(|_| problem(Failure::unreachable("no answer in time")))?.map_err(refused)
}

/// The API server's own refusal is told as it is, since it says what to do ("a container name must be specified …").
pub(super) fn refused(error: kube::Error) -> Problem {
    match &error {
        kube::Error::Api(status) if status.code == 400 => codes::INVALID.problem(status.message.clone()),
        kube::Error::Api(status) if status.code == 404 => codes::NOT_FOUND.problem(status.message.clone()),
        _ => problem(error.into()),
    }
}

pub(super) fn problem(failure: Failure) -> Problem {
    let code = if failure.state == MemberState::Unauthorized { codes::CLUSTER_UNAUTHORIZED } else { codes::CLUSTER_UNREACHABLE };
    code.problem(failure.reason)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn pod(pod: &Value) -> CopyPod {
    let (metadata, status) = (&pod["metadata"], &pod["status"]);
    let statuses = || status["containerStatuses"].as_array().into_iter().flatten();
    let waiting = statuses().find_map(|of| of["state"]["waiting"]["reason"].as_str());
    let ready = status["conditions"].as_array().into_iter().flatten().any(|of| of["type"] == "Ready" && of["status"] == "True");
    let deleting = metadata["deletionTimestamp"].is_string();
    let owner = metadata["ownerReferences"].as_array().into_iter().flatten().find(|owner| owner["controller"] == true);
    CopyPod {
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        node: pod["spec"]["nodeName"].as_str().map(str::to_owned),
        state: if deleting { "Terminating".to_owned() } else { waiting.map_or_else(|| text(&status["phase"]), str::to_owned) },
        ready,
        restarts: statuses().filter_map(|of| of["restartCount"].as_u64()).sum(),
        containers: pod["spec"]["containers"].as_array().into_iter().flatten().map(|of| text(&of["name"])).collect(),
        owner: owner.map(|owner| format!("{}/{}", text(&owner["kind"]), text(&owner["name"]))),
        hook: metadata["annotations"][labels::HOOK].as_str().map(str::to_owned),
        created: text(&metadata["creationTimestamp"]),
    }
}

fn event(event: &Value) -> CopyEvent {
    let about = &event["involvedObject"];
    let times =
        [&event["lastTimestamp"], &event["series"]["lastObservedTime"], &event["eventTime"], &event["metadata"]["creationTimestamp"]];
    CopyEvent {
        last: times.iter().find_map(|time| time.as_str()).unwrap_or_default().to_owned(),
        kind: text(&event["type"]),
        reason: text(&event["reason"]),
        object: format!("{}/{}", text(&about["kind"]), text(&about["name"])),
        message: text(&event["message"]),
        count: event["count"].as_u64().or(event["series"]["count"].as_u64()).unwrap_or(1),
    }
}
