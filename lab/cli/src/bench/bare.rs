//! The limit for `latency` and `rollout`: a client that creates the same objects on the same control planes, and does nothing else.
//!
//! It sends one server-side apply for each object, as many at once to a member as Drover does. It decides nothing, writes no journal,
//! checks nothing first and waits for nothing afterwards. What Drover needs beyond it is the price of Drover.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::world::{self, App};

/// Requests at once to a member: as many as resource-synchronizer sends (`WRITES` in its worker).
const WRITES: usize = 16;
/// Label of the pods that this client's objects lead to.
const MARK: &str = "bench.drover.io/bare";
/// Time limit for the pods of a round to start or to go.
const PATIENCE: Duration = Duration::from_secs(600);

/// The client, with a connection pool and a limit for each member.
pub struct Bare {
    members: Vec<(kube::Client, Semaphore)>,
}

impl Bare {
    /// A client of these members.
    ///
    /// # Errors
    /// A kubeconfig cannot be used.
    pub async fn new(kubeconfigs: &[PathBuf]) -> Result<Self> {
        let mut members = Vec::new();
        for file in kubeconfigs {
            members.push((client(file).await?, Semaphore::new(WRITES)));
        }
        Ok(Self { members })
    }

    /// Creates the Deployment of an app on every member.
    ///
    /// # Errors
    /// A member refuses it.
    pub async fn create(&self, app: &App) -> Result<()> {
        let object = labelled(app.manifest());
        let create = async |(client, turn): &(kube::Client, Semaphore)| -> Result<()> {
            let _turn = turn.acquire().await?;
            let api: Api<Deployment> = Api::namespaced(client.clone(), "default");
            api.patch(&app.name, &PatchParams::apply("bench").force(), &Patch::Apply(&object)).await?;
            Ok(())
        };
        futures::future::try_join_all(self.members.iter().map(create)).await.map(drop)
    }

    /// Deletes the Deployments that this client has created, and waits until their pods are gone.
    ///
    /// # Errors
    /// A member refuses it, or the time limit is reached.
    pub async fn remove(&self) -> Result<()> {
        let marked = ListParams::default().labels(MARK);
        for (client, _) in self.members.iter() {
            let api: Api<Deployment> = Api::namespaced(client.clone(), "default");
            for object in api.list_metadata(&marked).await? {
                api.delete(object.metadata.name.as_deref().unwrap_or_default(), &DeleteParams::background()).await?;
            }
        }
        let one = marked.limit(1);
        let gone = async || {
            for (client, _) in self.members.iter() {
                let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
                if !pods.list_metadata(&one).await?.items.is_empty() {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        };
        world::until(PATIENCE, gone).await
    }

    /// Waits until all Deployments of all members have the pods that they ask for, so that a round does not pay for the one before it.
    ///
    /// # Errors
    /// A member does not answer, or the time limit is reached.
    pub async fn settled(&self) -> Result<()> {
        let ready = |one: &Deployment| {
            let wanted = one.spec.as_ref().and_then(|spec| spec.replicas);
            let status = one.status.as_ref();
            status.and_then(|status| status.ready_replicas) == wanted && status.and_then(|status| status.replicas) == wanted
        };
        for (client, _) in self.members.iter() {
            let api: Api<Deployment> = Api::namespaced(client.clone(), "default");
            let all = async || {
                let ready = api.list(&ListParams::default()).await?.iter().all(ready);
                if !ready {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                Ok(ready.then_some(()))
            };
            world::until(PATIENCE, all).await?;
        }
        Ok(())
    }
}

/// A client of the cluster of a kubeconfig.
///
/// # Errors
/// The file cannot be read, or is no kubeconfig.
pub async fn client(kubeconfig: &PathBuf) -> Result<kube::Client> {
    let text = tokio::fs::read_to_string(kubeconfig).await?;
    let config = kube::Config::from_custom_kubeconfig(kube::config::Kubeconfig::from_yaml(&text)?, &Default::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// The object with as many labels and annotations as Drover gives it: it is stored and sent to watchers with them.
fn labelled(mut object: Value) -> Value {
    let id = || Uuid::new_v4().to_string();
    let name = object["metadata"]["name"].clone();
    object["metadata"]["labels"] = json!({
        MARK: id(), "bench.drover.io/hub": id(), "bench.drover.io/dig": id(), "bench.drover.io/app": name,
    });
    object["metadata"]["annotations"] =
        json!({"bench.drover.io/digest": format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())});
    object["spec"]["template"]["metadata"]["labels"][MARK] = json!(id());
    object
}
