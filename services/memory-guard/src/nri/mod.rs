//! The start gate by NRI (containerd 2, CRI-O): the runtime asks before it creates a container, and one that does not fit is refused. It
//! has no process yet, so nothing leaks. Its pod waits as `CreateContainerError` with the reason, and the kubelet tries again.
//!
//! A container is refused rather than kept waiting because the runtime calls its plugins one at a time under one lock. While an answer is
//! outstanding, no other container of the node is created, started or stopped, and after `plugin_request_timeout` (2 s) the runtime drops
//! the plugin for good. For the same reason every container is allowed when the agent does not answer in time or does not run.

pub mod wire;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_tasks::Tasks;
use prost::Message as _;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};

use crate::proto::nri::pkg::api::v1alpha1 as nri;
use crate::proto::ttrpc;
use crate::runtime::{InspectedContainer, Sandbox};
use wire::{Message, MessageKind, NriSocket, PLUGIN, RUNTIME};

/// Time limit for the agent's answer; never more than half of what the runtime grants.
const ANSWER: Duration = Duration::from_millis(500);
/// Time between two attempts to connect.
const AGAIN: Duration = Duration::from_secs(1);
/// The plugin runs after the others, because they may still change the container's limit.
const INDEX: &str = "90";
/// Why the runtime does not ask while the plugin starts again.
const FAILED: &str = "the plugin failed and is started again";
const NAME: &str = "drover-memory-guard";
/// The bit of the event CREATE_CONTAINER (number 4), the only event subscribed to.
const CREATE_CONTAINER: i32 = 1 << 3;
/// Status codes of gRPC.
const UNIMPLEMENTED: i32 = 12;
const UNAVAILABLE: i32 = 14;

/// A container that the runtime is about to create.
#[derive(Clone, Debug)]
pub struct NewContainer {
    pub id: String,
    pub container: String,
    pub sandbox: Sandbox,
    pub inspected: InspectedContainer,
    pub limit: Option<u64>,
}

/// The runtime's question whether a container may be created.
#[derive(Debug)]
pub struct CreationRequest {
    pub new_container: NewContainer,
    /// Receives the answer; an error is the reason for refusing.
    pub answer: oneshot::Sender<Result<(), String>>,
}

/// Whether the runtime asks this plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NriLink {
    /// It does not ask, for this reason.
    No(String),
    /// It asks before it creates a container.
    Yes,
}

/// The NRI plugin: a task of its own that answers the runtime, and connects again after the runtime restarted.
#[derive(Debug)]
pub struct NriPlugin {
    questions: mpsc::Receiver<CreationRequest>,
    link: watch::Receiver<NriLink>,
}

impl NriPlugin {
    /// Connects to the runtime's NRI socket as soon as it exists.
    pub fn new(socket: PathBuf, tasks: &Tasks) -> Self {
        let (sender, questions) = mpsc::channel(1);
        let (tell, link) = watch::channel(NriLink::No("the runtime has not answered yet".to_owned()));
        crate::supervise::spawn(tasks, "nri-plugin", move || {
            // The connection ended with the task that panicked.
            if *tell.borrow() == NriLink::Yes {
                tell.send_replace(NriLink::No(FAILED.to_owned()));
            }
            let (socket, sender, tell) = (socket.clone(), sender.clone(), tell.clone());
            async move {
                while !sender.is_closed() {
                    let why = match answer_runtime(&socket, &sender, &tell).await {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => format!("there is no {}", socket.display()),
                        Err(error) => error.to_string(),
                        Ok(never) => match never {},
                    };
                    if *tell.borrow() == NriLink::Yes {
                        tracing::warn!(why, "the runtime does not ask any more before it creates containers (NRI)");
                    }
                    let _ = tell.send(NriLink::No(why));
                    tokio::time::sleep(AGAIN).await;
                }
            }
        });
        Self { questions, link }
    }

    /// Whether the runtime asks, after waiting briefly for the first connection.
    pub async fn linked(&mut self) -> NriLink {
        let _ = tokio::time::timeout(AGAIN, self.link.wait_for(|link| *link == NriLink::Yes)).await;
        self.link()
    }

    /// Whether the runtime asks at present.
    pub fn link(&self) -> NriLink {
        self.link.borrow().clone()
    }

    /// Waits for the next question.
    pub async fn next(&mut self) -> CreationRequest {
        match self.questions.recv().await {
            Some(question) => question,
            None => std::future::pending().await,
        }
    }
}

/// Registers the plugin and answers the runtime until the connection ends.
async fn answer_runtime(
    socket: &Path,
    ask: &mpsc::Sender<CreationRequest>,
    tell: &watch::Sender<NriLink>,
) -> io::Result<std::convert::Infallible> {
    let mut wire = NriSocket::new(UnixStream::connect(socket).await?);
    let register = nri::RegisterPluginRequest { plugin_name: NAME.into(), plugin_idx: INDEX.into(), ..Default::default() };
    let call = ttrpc::Request {
        service: "nri.pkg.api.v1alpha1.Runtime".into(),
        method: "RegisterPlugin".into(),
        payload: register.encode_to_vec(),
        ..Default::default()
    };
    wire.send(RUNTIME, 1, MessageKind::Request, &call).await?;
    let mut patience = ANSWER;
    // One call at a time, because the runtime waits for each answer.
    loop {
        let message = wire.receive().await?;
        match (message.connection, message.kind) {
            (RUNTIME, MessageKind::Response) => registered(&message)?,
            (PLUGIN, MessageKind::Request) => {
                let call: ttrpc::Request = message.read()?;
                let answer = match call.method.as_str() {
                    "Configure" => {
                        let settings = nri::ConfigureRequest::decode(call.payload.as_slice())?;
                        patience = ANSWER.min(Duration::from_millis(u64::try_from(settings.request_timeout).unwrap_or(0)) / 2);
                        accept(&nri::ConfigureResponse { events: CREATE_CONTAINER })
                    }
                    "Synchronize" => {
                        let more = nri::SynchronizeRequest::decode(call.payload.as_slice())?.more;
                        if !more {
                            tell.send_replace(NriLink::Yes);
                        }
                        accept(&nri::SynchronizeResponse { more })
                    }
                    "CreateContainer" => match may_create(&call.payload, ask, patience).await? {
                        Ok(()) => accept(&()),
                        Err(reason) => refuse(UNAVAILABLE, reason),
                    },
                    "Shutdown" => accept(&()),
                    other => refuse(UNIMPLEMENTED, format!("{other} was not subscribed to")),
                };
                wire.send(PLUGIN, message.stream, MessageKind::Response, &answer).await?;
            }
            _ => {}
        }
    }
}

fn registered(message: &Message) -> io::Result<()> {
    let answer: ttrpc::Response = message.read()?;
    match answer.status {
        Some(status) if status.code != 0 => Err(io::Error::other(format!("the runtime refused the plugin: {}", status.message))),
        _ => Ok(()),
    }
}

fn accept(payload: &impl prost::Message) -> ttrpc::Response {
    ttrpc::Response { status: None, payload: payload.encode_to_vec() }
}

fn refuse(code: i32, message: String) -> ttrpc::Response {
    ttrpc::Response { status: Some(ttrpc::Status { code, message }), payload: Vec::new() }
}

/// Asks the agent whether a container may be created.
async fn may_create(payload: &[u8], ask: &mpsc::Sender<CreationRequest>, patience: Duration) -> io::Result<Result<(), String>> {
    let request = nri::CreateContainerRequest::decode(payload)?;
    let (Some(pod), Some(container)) = (request.pod, request.container) else { return Ok(Ok(())) };
    let new_container = new_container(pod, container);
    let (id, (answer, answered)) = (new_container.id.clone(), oneshot::channel());
    let asked = async {
        ask.send(CreationRequest { new_container, answer }).await.ok()?;
        answered.await.ok()
    };
    match tokio::time::timeout(patience, asked).await {
        Ok(Some(verdict)) => Ok(verdict),
        Ok(None) => Ok(Ok(())),
        Err(_) => {
            tracing::warn!(container.id = id, "the agent did not answer in time whether a container fits, so it is created");
            Ok(Ok(()))
        }
    }
}

fn new_container(pod: nri::PodSandbox, container: nri::Container) -> NewContainer {
    let linux = container.linux.unwrap_or_default();
    let of_pod = pod.linux.unwrap_or_default().namespaces;
    // A privileged container may write to /sys, and one in a namespace of the host has no such namespace of its own. What is not told
    // counts against the container.
    let has_own = |kind: &str, namespaces: &[nri::LinuxNamespace]| namespaces.iter().any(|namespace| namespace.r#type == kind);
    let writes_sys = |mount: &nri::Mount| mount.destination == "/sys" && !mount.options.iter().any(|option| option == "ro");
    let privileged = !has_own("pid", &linux.namespaces) || !has_own("ipc", &of_pod) || container.mounts.iter().any(writes_sys);
    NewContainer {
        id: container.id,
        container: container.name,
        limit: linux.resources.and_then(|r| r.memory?.limit).and_then(|limit| u64::try_from(limit.value).ok()).filter(|limit| *limit > 0),
        inspected: InspectedContainer {
            sandbox: pod.id,
            cgroups_path: linux.cgroups_path,
            privileged,
            host_paths: container.mounts.into_iter().map(|mount| mount.source).collect(),
            labels: container.labels,
            ..InspectedContainer::default()
        },
        sandbox: Sandbox { namespace: pod.namespace, pod: pod.name, uid: pod.uid, labels: pod.labels, annotations: pod.annotations },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces(kinds: &[&str]) -> Vec<nri::LinuxNamespace> {
        kinds.iter().map(|kind| nri::LinuxNamespace { r#type: (*kind).to_owned(), path: String::new() }).collect()
    }

    #[test]
    fn new_container_counts_as_privileged_unless_known_otherwise() {
        let pod =
            |kinds: &[&str]| nri::PodSandbox { linux: Some(nri::LinuxPodSandbox { namespaces: namespaces(kinds) }), ..Default::default() };
        let container = |kinds: &[&str], sys: &str| nri::Container {
            linux: Some(nri::LinuxContainer { namespaces: namespaces(kinds), ..Default::default() }),
            mounts: vec![nri::Mount { destination: "/sys".into(), options: vec![sys.into()], ..Default::default() }],
            ..Default::default()
        };
        assert!(!new_container(pod(&["pid", "ipc"]), container(&["pid", "ipc"], "ro")).inspected.privileged);
        assert!(new_container(pod(&["pid", "ipc"]), container(&["pid", "ipc"], "rw")).inspected.privileged);
        assert!(new_container(pod(&["pid"]), container(&["pid", "ipc"], "ro")).inspected.privileged, "IPC of the host");
        assert!(new_container(pod(&["pid", "ipc"]), container(&["ipc"], "ro")).inspected.privileged, "PIDs of the host");
        assert!(new_container(nri::PodSandbox::default(), nri::Container::default()).inspected.privileged, "nothing is known");
    }
}
