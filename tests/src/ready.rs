//! Watches the Deployments of all members and records the lowest number of ready replicas that each app ever had.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::task::JoinHandle;

use crate::{Member, System};

/// By app: the number of its ready replicas on each member.
type Seen = Arc<Mutex<BTreeMap<String, BTreeMap<&'static str, i32>>>>;

/// Watches members until [`Witness::lowest`] is called.
pub struct Witness {
    lowest: Arc<Mutex<BTreeMap<String, i32>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Witness {
    /// Starts to watch `apps`, each of which must be ready on some member.
    pub async fn start(system: &System, apps: &[&str]) -> Self {
        Self::on(system.members(), apps).await
    }

    /// The same on some of the members.
    pub async fn on(members: &[Member], apps: &[&str]) -> Self {
        let seen: Seen = Arc::default();
        let lowest: Arc<Mutex<BTreeMap<String, i32>>> = Arc::default();
        for app in apps {
            for member in members {
                let ready = member.ready(app).await;
                seen.lock().expect("no poison").entry((*app).to_owned()).or_default().insert(member.name, ready);
            }
            let sum = seen.lock().expect("no poison")[*app].values().sum();
            lowest.lock().expect("no poison").insert((*app).to_owned(), sum);
        }
        let tasks = members.iter().map(|member| {
            let (seen, lowest, name) = (seen.clone(), lowest.clone(), member.name);
            let stream = watcher(member.deployments(), watcher::Config::default()).default_backoff();
            tokio::spawn(async move {
                let mut stream = std::pin::pin!(stream);
                while let Some(event) = stream.next().await {
                    let (deployment, gone) = match event {
                        Ok(watcher::Event::Apply(d) | watcher::Event::InitApply(d)) => (d, false),
                        Ok(watcher::Event::Delete(d)) => (d, true),
                        _ => continue,
                    };
                    note(&seen, &lowest, name, &deployment, gone);
                }
            })
        });
        Self { lowest: lowest.clone(), tasks: tasks.collect() }
    }

    /// The lowest number of ready replicas that each app had, on all members together.
    pub fn lowest(self) -> BTreeMap<String, i32> {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.lowest.lock().expect("no poison").clone()
    }
}

/// Records what a member says about a Deployment, and the new sum if it is the lowest so far.
fn note(seen: &Seen, lowest: &Mutex<BTreeMap<String, i32>>, member: &'static str, deployment: &Deployment, gone: bool) {
    let Some(name) = deployment.metadata.name.as_deref() else { return };
    let mut seen = seen.lock().expect("no poison");
    let Some(members) = seen.get_mut(name) else { return };
    // A Deployment that is being deleted counts as not ready: its pods may serve a little longer, but its status does not tell until when.
    let leaving = gone || deployment.metadata.deletion_timestamp.is_some();
    let ready = if leaving { 0 } else { deployment.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or(0) };
    members.insert(member, ready);
    let sum = members.values().sum();
    let mut lowest = lowest.lock().expect("no poison");
    let low = lowest.entry(name.to_owned()).or_insert(sum);
    *low = (*low).min(sum);
}
