//! Runs one worker per policy while this agent acts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use drover_tasks::OnFailure;
use futures::StreamExt;
use kube::core::NamespaceResourceScope;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Context;
use super::inbox::Key;
use super::lease::Leadership;
use super::target::within;
use super::worker::Worker;
use crate::policy::WatchedPolicy;
use crate::watch_backoff::WatchBackoff;

/// Time for the workers to save what they learned when the agent is told to end: two requests that just come in time.
const SAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the workers whenever this agent may act, until `stop`.
pub async fn act(context: Arc<Context>, namespace: Option<String>, mut leadership: Leadership, stop: CancellationToken) {
    let namespace = namespace.as_deref();
    loop {
        tokio::select! {
            () = leadership.gained() => {}
            () = stop.cancelled() => return,
        }
        let mut workers = PolicyWorkers::default();
        tokio::select! {
            () = workers.tend(&context, scoped(&context.client, namespace)) => {}
            () = context.pods.clone().follow(scoped(&context.client, namespace)) => {}
            () = context.keeper.look_for_left_slices() => {}
            () = leadership.lost() => {
                tracing::warn!("this agent may no longer act: the Lease was not renewed in time, or another agent holds it");
            }
            () = stop.cancelled() => {
                workers.policies.clear();
                workers.tracker.close();
                let _ = tokio::time::timeout(SAVE_TIMEOUT, workers.tracker.wait()).await;
                return;
            }
        }
    }
}

/// An API for one namespace, or for all.
fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// The running workers, a supervised task for each policy.
#[derive(Default)]
struct PolicyWorkers {
    /// A worker ends when its sender is dropped.
    policies: HashMap<Key, watch::Sender<Arc<WatchedPolicy>>>,
    tracker: TaskTracker,
    /// Ends all workers at once.
    stop: CancellationToken,
}

impl Drop for PolicyWorkers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl PolicyWorkers {
    /// Follows the policies, and runs a worker for each.
    async fn tend(&mut self, context: &Arc<Context>, policies: Api<WatchedPolicy>) {
        let mut events = watcher(policies, watcher::Config::default()).backoff(WatchBackoff::default()).boxed();
        let mut listed = HashSet::new();
        let mut failing = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    listed.clear();
                    continue; // a list begins, and may fail
                }
                Ok(Event::InitApply(watched)) => {
                    listed.insert(key(&watched));
                    self.start_or_update(context, watched);
                }
                // Ends the workers of policies that were deleted while the watch was broken.
                Ok(Event::InitDone) => self.policies.retain(|key, _| listed.contains(key)),
                Ok(Event::Apply(watched)) => self.start_or_update(context, watched),
                Ok(Event::Delete(watched)) => {
                    self.policies.remove(&key(&watched));
                    context.unwritten().remove(watched.metadata.uid.as_deref().unwrap_or_default());
                }
                Err(error) => {
                    if !failing {
                        tracing::warn!(%error, "ScalingPolicies cannot be watched; known policies are still scaled, and the watch is tried again");
                    }
                    failing = true;
                    continue;
                }
            }
            failing = false;
        }
    }

    /// Starts or updates the worker of a policy that was created or changed.
    fn start_or_update(&mut self, context: &Arc<Context>, mut watched: WatchedPolicy) {
        let key = key(&watched);
        watched.metadata.managed_fields = None;
        let status = std::mem::take(&mut watched.status);
        if let Some(sender) = self.policies.get(&key)
            && sender.borrow().metadata.uid == watched.metadata.uid
        {
            // Writing the status also causes an event; it changes nothing here.
            sender.send_if_modified(|known| {
                let changed = !known.same_request(&watched);
                if changed {
                    *known = Arc::new(watched);
                }
                changed
            });
            return;
        }
        let (sender, receiver) = watch::channel(Arc::new(watched));
        self.policies.insert(key.clone(), sender);
        // The worker needs the existing status only once; kept by every worker, it would take most of their memory.
        let mut status = Some(status);
        let name = format!("policy/{}/{}", key.0, key.1);
        let context = context.clone();
        context.tasks.clone().spawn(&self.tracker, self.stop.clone(), name, OnFailure::RestartOneOfMany, move |_| {
            let (context, key, receiver, status) = (context.clone(), key.clone(), receiver.clone(), status.take());
            async move {
                let status = match status {
                    Some(status) => status,
                    None => written_status(&context, &key).await,
                };
                Worker::new(context, key, receiver, status).run().await;
            }
        });
    }
}

/// The status of a policy as it was written last, for a worker that starts again.
async fn written_status(context: &Context, key: &Key) -> Value {
    let policies: Api<WatchedPolicy> = Api::namespaced(context.client.clone(), &key.0);
    match within(policies.get(&key.1)).await {
        Ok(watched) => watched.status,
        Err(error) => {
            tracing::warn!(policy = ?key, %error, "the status cannot be read; continuing without it");
            Value::Null
        }
    }
}

fn key(watched: &WatchedPolicy) -> Key {
    (watched.metadata.namespace.clone().unwrap_or_default(), watched.metadata.name.clone().unwrap_or_default())
}
