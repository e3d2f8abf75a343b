//! While this agent acts: one worker per policy.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::core::NamespaceResourceScope;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::Context;
use super::inbox::Key;
use super::lease::Leadership;
use super::worker::Worker;
use crate::patience::Patience;
use crate::policy::Written;

/// Time for workers to keep what they learned when the agent is told to stop.
const FAREWELL: Duration = Duration::from_secs(3);

/// Acts whenever this agent may, until `stop`.
pub async fn act(context: Arc<Context>, namespace: Option<&str>, mut leadership: Leadership, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = leadership.gained() => {}
            () = stop.cancelled() => return,
        }
        let mut crew = Crew::default();
        tokio::select! {
            () = crew.tend(&context, scoped(&context.client, namespace)) => {}
            () = context.pods.clone().follow(scoped(&context.client, namespace)) => {}
            () = leadership.lost() => {
                tracing::warn!("this agent may no longer act: the Lease was not renewed in time, or is another's");
                crew.tasks.abort_all();
            }
            () = stop.cancelled() => {
                crew.workers.clear();
                let _ = tokio::time::timeout(FAREWELL, async { while crew.tasks.join_next().await.is_some() {} }).await;
                return;
            }
        }
    }
}

/// One namespace, or all.
fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// The workers.
#[derive(Default)]
struct Crew {
    workers: HashMap<Key, (watch::Sender<Arc<Written>>, AbortHandle)>,
    /// Dropping it ends them.
    tasks: JoinSet<()>,
}

impl Crew {
    /// Follows the policies, and has a worker for each.
    async fn tend(&mut self, context: &Arc<Context>, policies: Api<Written>) {
        let mut events = watcher(policies, watcher::Config::default()).backoff(Patience::default()).boxed();
        let mut listed = HashSet::new();
        let mut failing = false;
        while let Some(event) = events.next().await {
            while self.tasks.try_join_next().is_some() {}
            match event {
                Ok(Event::Init) => {
                    listed.clear();
                    continue; // a list begins, and may fail
                }
                Ok(Event::InitApply(written)) => {
                    listed.insert(key(&written));
                    self.up(context, written);
                }
                // Workers of policies that were deleted while nobody watched end by themselves.
                Ok(Event::InitDone) => self.workers.retain(|key, _| listed.contains(key)),
                Ok(Event::Apply(written)) => self.up(context, written),
                Ok(Event::Delete(written)) => _ = self.workers.remove(&key(&written)),
                Err(error) => {
                    if !failing {
                        tracing::warn!(%error, "ScalingPolicies cannot be watched; those known are looked after, and it is tried again");
                    }
                    failing = true;
                    continue;
                }
            }
            failing = false;
        }
    }

    /// A policy is there, or was changed.
    fn up(&mut self, context: &Arc<Context>, mut written: Written) {
        let key = key(&written);
        written.metadata.managed_fields = None;
        let status = std::mem::take(&mut written.status);
        if let Some((sender, task)) = self.workers.get(&key)
            && !task.is_finished()
            && sender.borrow().metadata.uid == written.metadata.uid
        {
            // Our own status comes back here, too.
            sender.send_if_modified(|known| {
                let changed = !known.same_orders(&written);
                if changed {
                    *known = Arc::new(written);
                }
                changed
            });
            return;
        }
        // The status as it is counts once; kept by each worker it would be most of what they take.
        let (sender, receiver) = watch::channel(Arc::new(written));
        let worker = Worker::new(context.clone(), key.clone(), receiver, status);
        let task = self.tasks.spawn(worker.run());
        self.workers.insert(key, (sender, task));
    }
}

fn key(written: &Written) -> Key {
    (written.metadata.namespace.clone().unwrap_or_default(), written.metadata.name.clone().unwrap_or_default())
}
