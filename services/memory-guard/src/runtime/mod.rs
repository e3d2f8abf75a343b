//! The container runtime: CRI for the list of containers and for quotas, containerd's own API for pauses and for events of new tasks.
//!
//! One socket serves both. Every call has a deadline, except the subscription to events. Error codes are not relied on: callers check in
//! the cgroup what a call has done.

mod verbose_status;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status};
use tower::service_fn;

use crate::cgroup::CpuQuota;
use crate::proto::containerd::events::{TaskCreate, TaskExit, TaskStart};
use crate::proto::containerd::services::events::v1::SubscribeRequest;
use crate::proto::containerd::services::events::v1::events_client::EventsClient;
use crate::proto::containerd::services::tasks::v1::tasks_client::TasksClient;
use crate::proto::containerd::services::tasks::v1::{GetRequest, PauseTaskRequest, ResumeTaskRequest};
use crate::proto::containerd::types::Envelope;
use crate::proto::containerd::v1::types::Status as TaskStatus;
use crate::proto::runtime::v1 as cri;
use crate::proto::runtime::v1::runtime_service_client::RuntimeServiceClient;
use verbose_status::VerboseStatus;

/// The namespace of containerd in which Kubernetes keeps its containers.
const NAMESPACE: &str = "k8s.io";
/// Lists on nodes with many pods exceed tonic's default of 4 MiB.
const LARGEST_MESSAGE: usize = 32 << 20;

/// Why a call to the runtime failed.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The runtime has no such container, or not any more.
    #[error("the runtime has no such container")]
    Gone,
    /// The runtime does not implement the call.
    #[error("the runtime does not offer {0}")]
    Unsupported(&'static str),
    /// The runtime did not answer in time, or does not run.
    #[error("the runtime cannot be reached: {0}")]
    Unreachable(String),
    /// The runtime answered with another error.
    #[error("the runtime refused {call}: {message}")]
    Refused { call: &'static str, message: String },
    /// The answer cannot be understood.
    #[error("the runtime's answer to {0} cannot be understood: {1}")]
    Malformed(&'static str, String),
}

/// Clients of one runtime, cheap to clone. They connect when first used, and again after the runtime restarted.
#[derive(Clone, Debug)]
pub struct Runtime {
    channel: Channel,
    deadline: Duration,
}

/// A container in the list of the runtime.
#[derive(Clone, Debug)]
pub struct ListedContainer {
    pub id: String,
    /// Id of its pod sandbox.
    pub sandbox: String,
}

/// A pod sandbox: what the kubelet told the runtime about a pod.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Uid of the pod.
    pub uid: String,
    pub labels: HashMap<String, String>,
    pub annotations: HashMap<String, String>,
}

/// The details of a container, from its verbose status.
#[derive(Clone, Debug, Default)]
pub struct InspectedContainer {
    /// Process id; 0 if there is no process.
    pub pid: i32,
    /// Id of its pod sandbox.
    pub sandbox: String,
    /// When it was started, or created if it was not started yet, in nanoseconds since 1970.
    pub started: i64,
    /// Path of its cgroup, as the kubelet told the runtime.
    pub cgroups_path: String,
    /// Whether it is privileged or in the host's PID or IPC namespace.
    pub privileged: bool,
    pub host_paths: Vec<String>,
    /// Labels of the container, `io.kubernetes.…`.
    pub labels: HashMap<String, String>,
    /// The CPU quota with which it was created, if the runtime tells.
    pub created_quota: Option<CpuQuota>,
    /// Exit code, if it has exited.
    pub exit_code: Option<i32>,
}

/// Whether containerd has paused a task. It refuses every exec in a task that is not running for it, whatever the freezer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseState {
    Running,
    /// A pause is under way. It cannot be resumed before it is complete.
    Pausing,
    Paused,
}

/// A change of a task, which is the process of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    Created { id: String, pid: u32 },
    Started { id: String, pid: u32 },
    Exited { id: String, code: u32 },
}

impl Runtime {
    /// Clients for the runtime that listens on `socket`. This does not connect yet.
    pub fn at(socket: &Path, deadline: Duration) -> Self {
        let socket = socket.to_owned();
        // The authority must be a plain name, because grpc-go refuses an escaped path.
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }));
        Self { channel, deadline }
    }

    fn cri(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    /// The CRI client itself, for tests that act as the kubelet.
    pub fn raw(&self) -> RuntimeServiceClient<Channel> {
        self.cri()
    }

    /// The channel, for clients of the image service.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    async fn within<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, RuntimeError> {
        match tokio::time::timeout(self.deadline, answer).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(failure(call, &status)),
            Err(_) => Err(RuntimeError::Unreachable(format!("no answer to {call} within {:?}", self.deadline))),
        }
    }

    /// Name and version of the runtime.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn version(&self) -> Result<(String, String), RuntimeError> {
        let request = cri::VersionRequest { version: "v1".into() };
        let answer = self.within("Version", self.cri().version(request)).await?;
        Ok((answer.runtime_name, answer.runtime_version))
    }

    /// The containers that run or are created.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn running(&self) -> Result<Vec<ListedContainer>, RuntimeError> {
        let answer = self.within("ListContainers", self.cri().list_containers(cri::ListContainersRequest::default())).await?;
        let alive = [cri::ContainerState::ContainerCreated, cri::ContainerState::ContainerRunning].map(i32::from);
        let containers = answer.containers.into_iter().filter(|container| alive.contains(&container.state));
        Ok(containers.map(|c| ListedContainer { id: c.id, sandbox: c.pod_sandbox_id }).collect())
    }

    /// The pod sandboxes by id.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn sandboxes(&self) -> Result<HashMap<String, Sandbox>, RuntimeError> {
        let answer = self.within("ListPodSandbox", self.cri().list_pod_sandbox(cri::ListPodSandboxRequest::default())).await?;
        let sandbox = |item: cri::PodSandbox| {
            let metadata = item.metadata.unwrap_or_default();
            let sandbox = Sandbox {
                namespace: metadata.namespace,
                pod: metadata.name,
                uid: metadata.uid,
                labels: item.labels,
                annotations: item.annotations,
            };
            (item.id, sandbox)
        };
        Ok(answer.items.into_iter().map(sandbox).collect())
    }

    /// The details of a container, from its verbose status.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn inspect(&self, id: &str) -> Result<InspectedContainer, RuntimeError> {
        let request = cri::ContainerStatusRequest { container_id: id.into(), verbose: true };
        let answer = self.within("ContainerStatus", self.cri().container_status(request)).await?;
        let status = answer.status.ok_or_else(|| RuntimeError::Malformed("ContainerStatus", "no status".into()))?;
        let info: VerboseStatus = match answer.info.get("info") {
            Some(text) => serde_json::from_str(text).map_err(|e| RuntimeError::Malformed("ContainerStatus", e.to_string()))?,
            None => VerboseStatus::default(),
        };
        let exited = status.state == i32::from(cri::ContainerState::ContainerExited);
        Ok(info.inspected(&status, exited))
    }

    /// Changes the CPU quota of a container and nothing else. No quota is sent as -1, because CRI takes 0 for "leave it".
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn set_quota(&self, id: &str, to: CpuQuota) -> Result<(), RuntimeError> {
        let period = i64::try_from(to.period).map_err(|e| RuntimeError::Malformed("UpdateContainerResources", e.to_string()))?;
        let linux = cri::LinuxContainerResources { cpu_quota: to.quota, cpu_period: period, ..Default::default() };
        let request = cri::UpdateContainerResourcesRequest { container_id: id.into(), linux: Some(linux), ..Default::default() };
        self.within("UpdateContainerResources", self.cri().update_container_resources(request)).await.map(drop)
    }

    /// Stops a container with SIGTERM, and with SIGKILL after `grace`.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn stop(&self, id: &str, grace: Duration) -> Result<(), RuntimeError> {
        let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = cri::StopContainerRequest { container_id: id.into(), timeout };
        let patient = Self { deadline: self.deadline + grace, ..self.clone() };
        patient.within("StopContainer", self.cri().stop_container(request)).await.map(drop)
    }

    /// Pauses a container through containerd.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn pause(&self, id: &str) -> Result<(), RuntimeError> {
        let request = namespaced(PauseTaskRequest { container_id: id.into() });
        self.within("Tasks.Pause", TasksClient::new(self.channel.clone()).pause(request)).await.map(drop)
    }

    /// Resumes a container through containerd.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn resume(&self, id: &str) -> Result<(), RuntimeError> {
        let request = namespaced(ResumeTaskRequest { container_id: id.into() });
        self.within("Tasks.Resume", TasksClient::new(self.channel.clone()).resume(request)).await.map(drop)
    }

    /// What containerd knows of a pause of the container.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn pause_state(&self, id: &str) -> Result<PauseState, RuntimeError> {
        let request = namespaced(GetRequest { container_id: id.into(), ..Default::default() });
        let answer = self.within("Tasks.Get", TasksClient::new(self.channel.clone()).get(request)).await?;
        Ok(match answer.process.map(|process| process.status()) {
            Some(TaskStatus::Paused) => PauseState::Paused,
            Some(TaskStatus::Pausing) => PauseState::Pausing,
            _ => PauseState::Running,
        })
    }

    /// Subscribes to task events. The stream ends when the runtime ends. containerd answers only with the first event, which may never
    /// come, so this call has no deadline.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn events(&self) -> Result<tonic::Streaming<Envelope>, RuntimeError> {
        let topics = ["/tasks/create", "/tasks/start", "/tasks/exit"];
        let filters = topics.iter().map(|topic| format!("namespace=={NAMESPACE:?},topic=={topic:?}")).collect();
        let answer = EventsClient::new(self.channel.clone()).subscribe(SubscribeRequest { filters }).await;
        answer.map(tonic::Response::into_inner).map_err(|status| failure("Events.Subscribe", &status))
    }
}

/// Decodes an event; `None` if it is not about the first process of a container.
pub fn task_event(envelope: &Envelope) -> Option<TaskEvent> {
    let bytes = envelope.event.as_ref()?.value.as_slice();
    match envelope.topic.as_str() {
        "/tasks/create" => TaskCreate::decode(bytes).ok().map(|e| TaskEvent::Created { id: e.container_id, pid: e.pid }),
        "/tasks/start" => TaskStart::decode(bytes).ok().map(|e| TaskEvent::Started { id: e.container_id, pid: e.pid }),
        "/tasks/exit" => TaskExit::decode(bytes)
            .ok()
            .filter(|e| e.id.is_empty() || e.id == e.container_id)
            .map(|e| TaskEvent::Exited { id: e.container_id, code: e.exit_status }),
        _ => None,
    }
}

fn namespaced<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("containerd-namespace", MetadataValue::from_static(NAMESPACE));
    request
}

fn failure(call: &'static str, status: &Status) -> RuntimeError {
    match status.code() {
        Code::NotFound => RuntimeError::Gone,
        Code::Unimplemented => RuntimeError::Unsupported(call),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => RuntimeError::Unreachable(format!("{call}: {}", status.message())),
        _ => RuntimeError::Refused { call, message: status.message().to_owned() },
    }
}
