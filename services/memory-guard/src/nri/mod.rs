//! The start gate by NRI (containerd 2, CRI-O): the runtime asks before it creates a container, and one that does not fit is refused.
//! It has no process yet, so nothing leaks; its pod waits as `CreateContainerError` with the reason, and the kubelet asks again.
//!
//! Refused and not kept waiting, because a runtime calls its plugins one at a time under one lock: while an answer is out no other
//! container of the node is created, started or stopped, and after `plugin_request_timeout` (2 s) the runtime drops the plugin for good.
//! For the same reason whoever gets no word from the agent in time is let in, and so is everybody when the agent is gone.

pub mod wire;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message as _;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};

use crate::proto::nri::pkg::api::v1alpha1 as nri;
use crate::proto::ttrpc;
use crate::runtime::{Inspected, Sandbox};
use wire::{Kind, Message, PLUGIN, RUNTIME, Wire};

/// The agent has this long to answer; never more than half of what the runtime grants.
const ANSWER: Duration = Duration::from_millis(500);
/// Between two attempts to connect.
const AGAIN: Duration = Duration::from_secs(1);
/// After other plugins, which may still change the container's limit.
const INDEX: &str = "90";
const NAME: &str = "drover-memory-guard";
/// The bit of the event CREATE_CONTAINER (number 4): the only one subscribed to.
const CREATE_CONTAINER: i32 = 1 << 3;
/// Status codes of gRPC.
const UNIMPLEMENTED: i32 = 12;
const UNAVAILABLE: i32 = 14;

/// A container that is about to be created.
#[derive(Clone, Debug)]
pub struct Newcomer {
    /// The id that it will have.
    pub id: String,
    /// Name of the container in its pod.
    pub container: String,
    /// Its pod.
    pub sandbox: Sandbox,
    /// What it is made of.
    pub inspected: Inspected,
    /// Memory limit in bytes.
    pub limit: Option<u64>,
}

/// May it be created? The answer of one that may not is the reason.
#[derive(Debug)]
pub struct Question {
    /// Who.
    pub newcomer: Newcomer,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Result<(), String>>,
}

/// How it stands with the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Not asked by it, because.
    No(String),
    /// Asked by it.
    Yes,
}

/// The plugin: a task of its own answers the runtime, and connects again when that was restarted.
#[derive(Debug)]
pub struct Plugin {
    questions: mpsc::Receiver<Question>,
    link: watch::Receiver<Link>,
}

impl Plugin {
    /// Connects to the runtime's NRI socket, as soon as there is one.
    pub fn new(socket: PathBuf) -> Self {
        let (sender, questions) = mpsc::channel(1);
        let (tell, link) = watch::channel(Link::No("no answer yet".to_owned()));
        tokio::spawn(async move {
            while !sender.is_closed() {
                let why = match attend(&socket, &sender, &tell).await {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => format!("there is no {}", socket.display()),
                    Err(error) => error.to_string(),
                    Ok(never) => match never {},
                };
                if *tell.borrow() == Link::Yes {
                    tracing::warn!(why, "the runtime asks no more before it creates containers (NRI)");
                }
                let _ = tell.send(Link::No(why));
                tokio::time::sleep(AGAIN).await;
            }
        });
        Self { questions, link }
    }

    /// Whether the runtime asks, after a moment for the first try.
    pub async fn linked(&mut self) -> Link {
        let _ = tokio::time::timeout(AGAIN, self.link.wait_for(|link| *link == Link::Yes)).await;
        self.link()
    }

    /// Whether the runtime asks now.
    pub fn link(&self) -> Link {
        self.link.borrow().clone()
    }

    /// The next question.
    pub async fn next(&mut self) -> Question {
        match self.questions.recv().await {
            Some(question) => question,
            None => std::future::pending().await,
        }
    }
}

/// Registers and answers until the connection ends.
async fn attend(socket: &Path, ask: &mpsc::Sender<Question>, tell: &watch::Sender<Link>) -> io::Result<std::convert::Infallible> {
    let mut wire = Wire::new(UnixStream::connect(socket).await?);
    let register = nri::RegisterPluginRequest { plugin_name: NAME.into(), plugin_idx: INDEX.into(), ..Default::default() };
    let call = ttrpc::Request {
        service: "nri.pkg.api.v1alpha1.Runtime".into(),
        method: "RegisterPlugin".into(),
        payload: register.encode_to_vec(),
        ..Default::default()
    };
    wire.send(RUNTIME, 1, Kind::Request, &call).await?;
    let mut patience = ANSWER;
    // The runtime waits for each answer before it asks again.
    loop {
        let message = wire.receive().await?;
        match (message.connection, message.kind) {
            (RUNTIME, Kind::Response) => registered(&message)?,
            (PLUGIN, Kind::Request) => {
                let call: ttrpc::Request = message.read()?;
                let answer = match call.method.as_str() {
                    "Configure" => {
                        let told = nri::ConfigureRequest::decode(call.payload.as_slice())?;
                        patience = ANSWER.min(Duration::from_millis(u64::try_from(told.request_timeout).unwrap_or(0)) / 2);
                        yes(&nri::ConfigureResponse { events: CREATE_CONTAINER })
                    }
                    "Synchronize" => {
                        let more = nri::SynchronizeRequest::decode(call.payload.as_slice())?.more;
                        if !more {
                            tell.send_replace(Link::Yes);
                        }
                        yes(&nri::SynchronizeResponse { more })
                    }
                    "CreateContainer" => match may_create(&call.payload, ask, patience).await? {
                        Ok(()) => yes(&()),
                        Err(reason) => no(UNAVAILABLE, reason),
                    },
                    "Shutdown" => yes(&()),
                    other => no(UNIMPLEMENTED, format!("{other} was not subscribed to")),
                };
                wire.send(PLUGIN, message.stream, Kind::Response, &answer).await?;
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

fn yes(payload: &impl prost::Message) -> ttrpc::Response {
    ttrpc::Response { status: None, payload: payload.encode_to_vec() }
}

fn no(code: i32, message: String) -> ttrpc::Response {
    ttrpc::Response { status: Some(ttrpc::Status { code, message }), payload: Vec::new() }
}

/// Asks the agent.
async fn may_create(payload: &[u8], ask: &mpsc::Sender<Question>, patience: Duration) -> io::Result<Result<(), String>> {
    let request = nri::CreateContainerRequest::decode(payload)?;
    let (Some(pod), Some(container)) = (request.pod, request.container) else { return Ok(Ok(())) };
    let newcomer = newcomer(pod, container);
    let (id, (answer, answered)) = (newcomer.id.clone(), oneshot::channel());
    let asked = async {
        ask.send(Question { newcomer, answer }).await.ok()?;
        answered.await.ok()
    };
    match tokio::time::timeout(patience, asked).await {
        Ok(Some(verdict)) => Ok(verdict),
        Ok(None) => Ok(Ok(())),
        Err(_) => {
            tracing::warn!(container.id = id, "the agent was too busy to say whether it fits: it is created");
            Ok(Ok(()))
        }
    }
}

fn newcomer(pod: nri::PodSandbox, container: nri::Container) -> Newcomer {
    let linux = container.linux.unwrap_or_default();
    let of_pod = pod.linux.unwrap_or_default().namespaces;
    // A privileged container may write to /sys; one in a namespace of the host has none of its own. What is not told counts against.
    let own = |kind: &str, namespaces: &[nri::LinuxNamespace]| namespaces.iter().any(|namespace| namespace.r#type == kind);
    let writes_sys = |mount: &nri::Mount| mount.destination == "/sys" && !mount.options.iter().any(|option| option == "ro");
    let privileged = !own("pid", &linux.namespaces) || !own("ipc", &of_pod) || container.mounts.iter().any(writes_sys);
    Newcomer {
        id: container.id,
        container: container.name,
        limit: linux.resources.and_then(|r| r.memory?.limit).and_then(|limit| u64::try_from(limit.value).ok()).filter(|limit| *limit > 0),
        inspected: Inspected {
            sandbox: pod.id,
            cgroups_path: linux.cgroups_path,
            privileged,
            host_paths: container.mounts.into_iter().map(|mount| mount.source).collect(),
            labels: container.labels,
            ..Inspected::default()
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
    fn what_is_not_known_to_be_harmless_counts_as_privileged() {
        let pod =
            |kinds: &[&str]| nri::PodSandbox { linux: Some(nri::LinuxPodSandbox { namespaces: namespaces(kinds) }), ..Default::default() };
        let container = |kinds: &[&str], sys: &str| nri::Container {
            linux: Some(nri::LinuxContainer { namespaces: namespaces(kinds), ..Default::default() }),
            mounts: vec![nri::Mount { destination: "/sys".into(), options: vec![sys.into()], ..Default::default() }],
            ..Default::default()
        };
        assert!(!newcomer(pod(&["pid", "ipc"]), container(&["pid", "ipc"], "ro")).inspected.privileged);
        assert!(newcomer(pod(&["pid", "ipc"]), container(&["pid", "ipc"], "rw")).inspected.privileged);
        assert!(newcomer(pod(&["pid"]), container(&["pid", "ipc"], "ro")).inspected.privileged, "IPC of the host");
        assert!(newcomer(pod(&["pid", "ipc"]), container(&["ipc"], "ro")).inspected.privileged, "PIDs of the host");
        assert!(newcomer(nri::PodSandbox::default(), nri::Container::default()).inspected.privileged, "nothing told");
    }
}
