//! The container runtime: CRI for what runs and for quotas, containerd's own API for pauses and for hearing of new tasks.
//!
//! One socket serves both. Every call has a deadline. Trusts no code of an error: the callers look at the cgroup for what came of it.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::Message;
use serde::Deserialize;
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

/// Kubernetes' containers are in this namespace of containerd.
const NAMESPACE: &str = "k8s.io";
/// Lists of nodes with many pods pass tonic's own 4 MiB.
const LARGEST_MESSAGE: usize = 32 << 20;

/// What went wrong with a call.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The container is not there (any more).
    #[error("the runtime does not know it")]
    Gone,
    /// The runtime has no such call.
    #[error("the runtime does not offer {0}")]
    Unsupported(&'static str),
    /// No answer in time, or nobody there.
    #[error("the runtime cannot be reached: {0}")]
    Unreachable(String),
    /// Anything else it said.
    #[error("the runtime refused {call}: {message}")]
    Refused {
        /// Which call.
        call: &'static str,
        /// Its words.
        message: String,
    },
    /// It answered nonsense.
    #[error("the runtime's answer to {0} makes no sense: {1}")]
    Nonsense(&'static str, String),
}

/// Clients of one runtime; cheap to clone. Connects when first used, and again after the runtime was restarted.
#[derive(Clone, Debug)]
pub struct Runtime {
    channel: Channel,
    deadline: Duration,
}

/// A container, as listed.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Id.
    pub id: String,
    /// Its sandbox.
    pub sandbox: String,
}

/// A sandbox: what the kubelet told the runtime of a pod.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    /// Namespace.
    pub namespace: String,
    /// Pod.
    pub pod: String,
    /// Uid.
    pub uid: String,
    /// Labels of the pod.
    pub labels: HashMap<String, String>,
    /// Annotations of the pod.
    pub annotations: HashMap<String, String>,
}

/// What a container is made of.
#[derive(Clone, Debug, Default)]
pub struct Inspected {
    /// Process, 0 if there is none.
    pub pid: i32,
    /// Its sandbox.
    pub sandbox: String,
    /// Nanoseconds since 1970 of its start (or creation, before it is started).
    pub started: i64,
    /// Path of its cgroup as the runtime was told.
    pub cgroups_path: String,
    /// Privileged, or in the host's PID or IPC namespace.
    pub privileged: bool,
    /// Paths of the host that it mounts.
    pub host_paths: Vec<String>,
    /// `io.kubernetes.…` labels.
    pub labels: HashMap<String, String>,
    /// CPU quota that it was created with, if that is known.
    pub created_quota: Option<CpuQuota>,
    /// Exit code, of one that ended.
    pub exit_code: Option<i32>,
}

/// Something happened to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// Its process exists and waits to be started.
    Created {
        /// Container.
        id: String,
        /// Process.
        pid: u32,
    },
    /// It was started.
    Started {
        /// Container.
        id: String,
        /// Process.
        pid: u32,
    },
    /// Its first process ended.
    Exited {
        /// Container.
        id: String,
        /// How.
        code: u32,
    },
}

impl Runtime {
    /// Clients for the runtime that listens on `socket`. Does not connect yet.
    pub fn at(socket: &Path, deadline: Duration) -> Self {
        let socket = socket.to_owned();
        // The authority must be a plain name: grpc-go refuses an escaped path.
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }));
        Self { channel, deadline }
    }

    fn cri(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    /// The CRI client itself, for tests that play kubelet.
    pub fn raw(&self) -> RuntimeServiceClient<Channel> {
        self.cri()
    }

    /// The channel itself, for the image service.
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
    /// See [`RuntimeError`]; so of all calls below.
    pub async fn version(&self) -> Result<(String, String), RuntimeError> {
        let request = cri::VersionRequest { version: "v1".into() };
        let answer = self.within("Version", self.cri().version(request)).await?;
        Ok((answer.runtime_name, answer.runtime_version))
    }

    /// The containers that run or are about to.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn running(&self) -> Result<Vec<Listed>, RuntimeError> {
        let answer = self.within("ListContainers", self.cri().list_containers(cri::ListContainersRequest::default())).await?;
        let alive = [cri::ContainerState::ContainerCreated, cri::ContainerState::ContainerRunning].map(i32::from);
        let containers = answer.containers.into_iter().filter(|container| alive.contains(&container.state));
        Ok(containers.map(|c| Listed { id: c.id, sandbox: c.pod_sandbox_id }).collect())
    }

    /// The sandboxes by id.
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

    /// What a container is made of.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn inspect(&self, id: &str) -> Result<Inspected, RuntimeError> {
        let request = cri::ContainerStatusRequest { container_id: id.into(), verbose: true };
        let answer = self.within("ContainerStatus", self.cri().container_status(request)).await?;
        let status = answer.status.ok_or_else(|| RuntimeError::Nonsense("ContainerStatus", "no status".into()))?;
        let info: Info = match answer.info.get("info") {
            Some(text) => serde_json::from_str(text).map_err(|e| RuntimeError::Nonsense("ContainerStatus", e.to_string()))?,
            None => Info::default(),
        };
        let exited = status.state == i32::from(cri::ContainerState::ContainerExited);
        Ok(info.inspected(&status, exited))
    }

    /// Changes the CPU quota of a container, nothing else. "None" is sent as -1: CRI takes 0 for "leave it".
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn set_quota(&self, id: &str, to: CpuQuota) -> Result<(), RuntimeError> {
        let period = i64::try_from(to.period).map_err(|e| RuntimeError::Nonsense("UpdateContainerResources", e.to_string()))?;
        let linux = cri::LinuxContainerResources { cpu_quota: to.quota, cpu_period: period, ..Default::default() };
        let request = cri::UpdateContainerResourcesRequest { container_id: id.into(), linux: Some(linux), ..Default::default() };
        self.within("UpdateContainerResources", self.cri().update_container_resources(request)).await.map(drop)
    }

    /// Stops a container: SIGTERM, and SIGKILL after `grace`.
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

    /// Whether containerd takes the container for paused.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    pub async fn paused(&self, id: &str) -> Result<bool, RuntimeError> {
        let request = namespaced(GetRequest { container_id: id.into(), ..Default::default() });
        let answer = self.within("Tasks.Get", TasksClient::new(self.channel.clone()).get(request)).await?;
        Ok(answer.process.is_some_and(|process| process.status() == TaskStatus::Paused))
    }

    /// The stream of task events; it ends when the runtime does. containerd answers only with the first event, so this may take
    /// for ever and has no deadline.
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

/// Reads an event; none if it is of no interest (or of an exec, not of the container's first process).
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

/// The JSON that containerd adds to a verbose status. Every field may be missing: other runtimes write other things.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Info {
    pid: i32,
    #[serde(rename = "sandboxID")]
    sandbox: String,
    config: Config,
    #[serde(rename = "runtimeSpec")]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    linux: LinuxConfig,
    mounts: Vec<MountConfig>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LinuxConfig {
    resources: Resources,
    security_context: SecurityContext,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources {
    cpu_period: Option<u64>,
    cpu_quota: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SecurityContext {
    privileged: bool,
    namespace_options: NamespaceOptions,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamespaceOptions {
    pid: i32,
    ipc: i32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MountConfig {
    host_path: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    linux: SpecLinux,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SpecLinux {
    #[serde(rename = "cgroupsPath")]
    cgroups_path: String,
}

impl Info {
    fn inspected(self, status: &cri::ContainerStatus, exited: bool) -> Inspected {
        let node = i32::from(cri::NamespaceMode::Node);
        let context = &self.config.linux.security_context;
        let resources = &self.config.linux.resources;
        Inspected {
            pid: self.pid,
            sandbox: self.sandbox,
            started: if status.started_at > 0 { status.started_at } else { status.created_at },
            cgroups_path: self.spec.linux.cgroups_path,
            privileged: context.privileged || context.namespace_options.pid == node || context.namespace_options.ipc == node,
            host_paths: self.config.mounts.into_iter().map(|mount| mount.host_path).collect(),
            labels: status.labels.clone(),
            created_quota: resources
                .cpu_period
                .filter(|period| *period > 0)
                .map(|period| CpuQuota { quota: resources.cpu_quota.filter(|quota| *quota != 0).unwrap_or(-1), period }),
            exit_code: exited.then_some(status.exit_code),
        }
    }
}
