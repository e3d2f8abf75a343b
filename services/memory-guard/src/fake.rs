//! A fake container runtime: it answers on a unix socket from a table, with faults on demand. For tests of error paths without root, and
//! for measuring the agent beside many containers. Its server is generated from the same definition as the client.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status};

use crate::proto::containerd::services::events::v1::SubscribeRequest;
use crate::proto::containerd::services::events::v1::events_server::{Events, EventsServer};
use crate::proto::containerd::services::tasks::v1::tasks_server::{Tasks, TasksServer};
use crate::proto::containerd::services::tasks::v1::{GetRequest, GetResponse, PauseTaskRequest, ResumeTaskRequest};
use crate::proto::containerd::types::Envelope;
use crate::proto::containerd::v1::types::{Process, Status as TaskStatus};
use crate::proto::runtime::v1 as cri;
use crate::proto::runtime::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};

/// How a call of the fake runtime misbehaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// The call is not implemented.
    Unimplemented,
    /// The call is never answered.
    Silent,
    /// The container is not found.
    NotFound,
    /// It fails as containerd does: with code UNKNOWN and a text.
    Unknown(String),
    /// Success is answered, but nothing is done.
    Ignored,
}

/// A container of the fake runtime.
#[derive(Clone, Debug, Default)]
pub struct FakeContainer {
    /// Process id, as the runtime reports it.
    pub pid: i32,
    pub namespace: String,
    /// Uid of the pod; if empty, `uid-` followed by the id.
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub cgroups_path: String,
    /// The verbose status to answer instead of a well-formed one.
    pub malformed: Option<String>,
    /// Time of its start, in nanoseconds since 1970.
    pub started: i64,
    /// Whether containerd regards it as paused.
    pub paused: bool,
    /// Whether a pause of it is under way.
    pub pausing: bool,
}

#[derive(Debug, Default)]
struct FakeState {
    containers: BTreeMap<String, FakeContainer>,
    faults: BTreeMap<&'static str, CallFault>,
    calls: Vec<String>,
    subscribers: Vec<mpsc::Sender<Result<Envelope, Status>>>,
}

/// The fake runtime; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct FakeRuntime(Arc<Mutex<FakeState>>);

impl FakeRuntime {
    /// Starts to answer on `socket`.
    ///
    /// # Errors
    /// When the socket cannot be created.
    pub fn serve(&self, socket: &Path) -> std::io::Result<tokio::task::JoinHandle<()>> {
        let listener = UnixListener::bind(socket)?;
        let server = tonic::transport::Server::builder()
            .add_service(RuntimeServiceServer::new(self.clone()))
            .add_service(TasksServer::new(self.clone()))
            .add_service(EventsServer::new(self.clone()));
        Ok(tokio::spawn(async move {
            let _ = server.serve_with_incoming(UnixListenerStream::new(listener)).await;
        }))
    }

    fn table(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a container, or replaces it.
    pub fn put(&self, id: &str, container: FakeContainer) {
        self.table().containers.insert(id.to_owned(), container);
    }

    /// Removes a container.
    pub fn remove(&self, id: &str) {
        self.table().containers.remove(id);
    }

    /// Makes a call, by its name in the definition, misbehave from now on; `None` ends that.
    pub fn fault(&self, call: &'static str, fault: Option<CallFault>) {
        match fault {
            Some(fault) => self.table().faults.insert(call, fault),
            None => self.table().faults.remove(call),
        };
    }

    /// The calls so far, each as `Call container`.
    pub fn calls(&self) -> Vec<String> {
        self.table().calls.clone()
    }

    /// Whether containerd regards a container as paused.
    pub fn paused(&self, id: &str) -> bool {
        self.table().containers.get(id).is_some_and(|container| container.paused)
    }

    /// Sends an event to all subscribers.
    pub async fn publish(&self, topic: &str, event: &impl Message) {
        let subscribers = self.table().subscribers.clone();
        for subscriber in subscribers {
            let event = prost_types::Any { type_url: String::new(), value: event.encode_to_vec() };
            let envelope = Envelope { topic: topic.to_owned(), namespace: "k8s.io".into(), event: Some(event), timestamp: None };
            let _ = subscriber.send(Ok(envelope)).await;
        }
    }

    /// Records the call. `Ok(true)`: carry it out; `Ok(false)`: answer success and do nothing.
    async fn called(&self, call: &'static str, id: &str) -> Result<bool, Status> {
        let fault = {
            let mut table = self.table();
            table.calls.push(format!("{call} {id}"));
            table.faults.get(call).cloned()
        };
        match fault {
            None => Ok(true),
            Some(CallFault::Ignored) => Ok(false),
            Some(CallFault::Unimplemented) => Err(Status::unimplemented(format!("unknown method {call}"))),
            Some(CallFault::NotFound) => Err(Status::not_found(format!("container {id}: not found"))),
            Some(CallFault::Unknown(text)) => Err(Status::unknown(text)),
            Some(CallFault::Silent) => std::future::pending().await,
        }
    }

    fn get(&self, id: &str) -> Result<FakeContainer, Status> {
        self.table().containers.get(id).cloned().ok_or_else(|| Status::not_found(format!("container {id}: not found")))
    }
}

type RpcResult<T> = Result<Response<T>, Status>;

fn not_offered<T>() -> RpcResult<T> {
    Err(Status::unimplemented("the fake runtime does not implement this call"))
}

#[tonic::async_trait]
impl RuntimeService for FakeRuntime {
    async fn version(&self, _: Request<cri::VersionRequest>) -> RpcResult<cri::VersionResponse> {
        self.called("Version", "").await?;
        let (runtime_name, runtime_version) = ("fake".to_owned(), "1".to_owned());
        Ok(Response::new(cri::VersionResponse { runtime_name, runtime_version, ..Default::default() }))
    }

    async fn list_containers(&self, _: Request<cri::ListContainersRequest>) -> RpcResult<cri::ListContainersResponse> {
        self.called("ListContainers", "").await?;
        let container = |(id, _): (&String, &FakeContainer)| cri::Container {
            id: id.clone(),
            pod_sandbox_id: format!("sandbox-{id}"),
            state: cri::ContainerState::ContainerRunning.into(),
            ..Default::default()
        };
        let containers = self.table().containers.iter().map(container).collect();
        Ok(Response::new(cri::ListContainersResponse { containers }))
    }

    async fn list_pod_sandbox(&self, _: Request<cri::ListPodSandboxRequest>) -> RpcResult<cri::ListPodSandboxResponse> {
        self.called("ListPodSandbox", "").await?;
        let sandbox = |(id, container): (&String, &FakeContainer)| {
            let (name, namespace) = (format!("pod-{id}"), container.namespace.clone());
            let uid = if container.uid.is_empty() { format!("uid-{id}") } else { container.uid.clone() };
            cri::PodSandbox {
                id: format!("sandbox-{id}"),
                metadata: Some(cri::PodSandboxMetadata { name, uid, namespace, attempt: 0 }),
                labels: container.labels.clone().into_iter().collect(),
                ..Default::default()
            }
        };
        let items = self.table().containers.iter().map(sandbox).collect();
        Ok(Response::new(cri::ListPodSandboxResponse { items }))
    }

    async fn container_status(&self, request: Request<cri::ContainerStatusRequest>) -> RpcResult<cri::ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        self.called("ContainerStatus", &id).await?;
        let container = self.get(&id)?;
        let info = container.malformed.clone().unwrap_or_else(|| {
            serde_json::json!({
                "pid": container.pid, "sandboxID": format!("sandbox-{id}"),
                "runtimeSpec": {"linux": {"cgroupsPath": container.cgroups_path}},
                "config": {"linux": {"resources": {"cpu_period": 100_000, "cpu_quota": 50_000}}},
            })
            .to_string()
        });
        let status = cri::ContainerStatus {
            id,
            state: cri::ContainerState::ContainerRunning.into(),
            started_at: container.started,
            labels: [("io.kubernetes.container.name".to_owned(), "main".to_owned())].into(),
            ..Default::default()
        };
        Ok(Response::new(cri::ContainerStatusResponse { status: Some(status), info: [("info".to_owned(), info)].into() }))
    }

    async fn update_container_resources(
        &self,
        request: Request<cri::UpdateContainerResourcesRequest>,
    ) -> RpcResult<cri::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let id = request.container_id;
        if self.called("UpdateContainerResources", &id).await? {
            self.get(&id)?;
        }
        Ok(Response::new(cri::UpdateContainerResourcesResponse {}))
    }

    async fn stop_container(&self, request: Request<cri::StopContainerRequest>) -> RpcResult<cri::StopContainerResponse> {
        let id = request.into_inner().container_id;
        if self.called("StopContainer", &id).await? {
            self.remove(&id);
        }
        Ok(Response::new(cri::StopContainerResponse {}))
    }

    async fn status(&self, _: Request<cri::StatusRequest>) -> RpcResult<cri::StatusResponse> {
        not_offered()
    }

    async fn run_pod_sandbox(&self, _: Request<cri::RunPodSandboxRequest>) -> RpcResult<cri::RunPodSandboxResponse> {
        not_offered()
    }

    async fn stop_pod_sandbox(&self, _: Request<cri::StopPodSandboxRequest>) -> RpcResult<cri::StopPodSandboxResponse> {
        not_offered()
    }

    async fn remove_pod_sandbox(&self, _: Request<cri::RemovePodSandboxRequest>) -> RpcResult<cri::RemovePodSandboxResponse> {
        not_offered()
    }

    async fn pod_sandbox_status(&self, _: Request<cri::PodSandboxStatusRequest>) -> RpcResult<cri::PodSandboxStatusResponse> {
        not_offered()
    }

    async fn create_container(&self, _: Request<cri::CreateContainerRequest>) -> RpcResult<cri::CreateContainerResponse> {
        not_offered()
    }

    async fn start_container(&self, _: Request<cri::StartContainerRequest>) -> RpcResult<cri::StartContainerResponse> {
        not_offered()
    }

    async fn remove_container(&self, _: Request<cri::RemoveContainerRequest>) -> RpcResult<cri::RemoveContainerResponse> {
        not_offered()
    }

    async fn exec_sync(&self, _: Request<cri::ExecSyncRequest>) -> RpcResult<cri::ExecSyncResponse> {
        not_offered()
    }
}

#[tonic::async_trait]
impl Tasks for FakeRuntime {
    async fn get(&self, request: Request<GetRequest>) -> RpcResult<GetResponse> {
        let id = request.into_inner().container_id;
        self.called("Tasks.Get", &id).await?;
        let status = match self.get(&id)? {
            FakeContainer { pausing: true, .. } => TaskStatus::Pausing,
            FakeContainer { paused: true, .. } => TaskStatus::Paused,
            _ => TaskStatus::Running,
        };
        Ok(Response::new(GetResponse { process: Some(Process { status: status.into(), ..Default::default() }) }))
    }

    async fn pause(&self, request: Request<PauseTaskRequest>) -> RpcResult<()> {
        let id = request.into_inner().container_id;
        if self.called("Tasks.Pause", &id).await? {
            self.get(&id)?;
            self.table().containers.entry(id).and_modify(|container| container.paused = true);
        }
        Ok(Response::new(()))
    }

    async fn resume(&self, request: Request<ResumeTaskRequest>) -> RpcResult<()> {
        let id = request.into_inner().container_id;
        if self.called("Tasks.Resume", &id).await? {
            self.get(&id)?;
            self.table().containers.entry(id).and_modify(|container| container.paused = false);
        }
        Ok(Response::new(()))
    }
}

#[tonic::async_trait]
impl Events for FakeRuntime {
    type SubscribeStream = Pin<Box<dyn Stream<Item = Result<Envelope, Status>> + Send>>;

    async fn subscribe(&self, _: Request<SubscribeRequest>) -> RpcResult<Self::SubscribeStream> {
        self.called("Events.Subscribe", "").await?;
        let (sender, receiver) = mpsc::channel(64);
        self.table().subscribers.push(sender);
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}
