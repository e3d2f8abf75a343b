//! The watches of one member: pods and the kinds in its inventory; only objects of this installation.
//!
//! Of kinds that are ready as soon as they exist, only the metadata is watched. An object with a rule of its own
//! ([`drover_members::serving`]) is read whole whenever it changes. Objects are judged here and dropped: nothing larger than a [`Seen`]
//! leaves this file.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_members::DEADLINE;
use drover_members::readiness::{self, has_status};
use drover_members::{Mapping, Member, MemberError, ObjectId, Readiness, labels, serving, trimmed};
use drover_service::backoff;
use futures::{FutureExt, StreamExt};
use kube::api::DynamicObject;
use kube::core::{ApiResource, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::view::{ApiKind, Event, Seen};

/// After how long the server ends a watch, which also limits how long a silently dropped connection goes unnoticed.
const WATCH_SECONDS: u32 = 240;

/// Longest pause between two attempts to read an object that is to be judged.
const RETRY: Duration = Duration::from_secs(5);

/// A running watch. Dropping it ends the watch.
pub type Watch = AbortOnDropHandle<()>;

/// Watches the pods of this installation.
pub fn pods(member: &Member, hub: Uuid, to: Sender<Event>) -> Watch {
    let stream = watcher(Api::<trimmed::Pod>::all(member.client()), config(hub)).default_backoff();
    spawn(stream, to, None, None, |pod| Some(Event::Pod(Box::new(pod))), |pod| Some(Event::PodVanished(Box::new(pod))))
}

/// Watches the objects of a kind.
pub async fn kind(member: &Member, kind: &ApiKind, hub: Uuid, to: Sender<Event>) -> Result<Watch, MemberError> {
    let mapping = member.mapping(&kind.0, &kind.1).await?;
    let rules = Rules { client: member.client(), resource: mapping.resource.clone() };
    let gone = mapping.clone();
    if has_status(&kind.0, &kind.1) {
        let api: Api<trimmed::Object> = Api::all_with(member.client(), &mapping.resource);
        let stream = watcher(api, config(hub)).default_backoff();
        let there = move |object| whole(&mapping, object);
        return Ok(spawn(stream, to, Some(kind.clone()), Some(rules), there, move |object| vanished(&gone, &object)));
    }
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(member.client(), &mapping.resource);
    let stream = watcher(api, config(hub)).default_backoff();
    let there = move |object: PartialObjectMeta<DynamicObject>| seen(&mapping, &object, Readiness::Ready);
    Ok(spawn(stream, to, Some(kind.clone()), Some(rules), there, move |object: PartialObjectMeta<DynamicObject>| vanished(&gone, &object)))
}

/// How the objects of a kind are read whole, to be judged by their own rules.
struct Rules {
    client: Client,
    resource: ApiResource,
}

impl Rules {
    /// Judges an object by its rule, unless its kind says already that it is not ready. Waits until the member answers: what is not
    /// judged is not reported.
    async fn judge(&self, event: Event) -> Event {
        let Event::Object(id, mut seen) = event else { return event };
        if seen.ruled && seen.readiness.is_ready() {
            seen.readiness = self.read(&id).await;
        }
        Event::Object(id, seen)
    }

    async fn read(&self, id: &ObjectId) -> Readiness {
        let api: Api<DynamicObject> = match id.namespace.as_str() {
            "" => Api::all_with(self.client.clone(), &self.resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &self.resource),
        };
        for attempt in 1.. {
            match timeout(DEADLINE, api.get_opt(&id.name)).await {
                Ok(Ok(Some(object))) => return serving::judge(&serde_json::to_value(object).unwrap_or_default()),
                // Its deletion is reported next.
                Ok(Ok(None)) => break,
                Ok(Err(kube::Error::Api(status))) if status.code < 500 && status.code != 429 => {
                    return Readiness::NotReady(format!("cannot be read to see whether it serves: {}", status.message));
                }
                Ok(Err(_)) | Err(_) => tokio::time::sleep(backoff(attempt, RETRY)).await,
            }
        }
        Readiness::NotReady("is gone".into())
    }
}

/// The objects of this installation.
pub fn config(hub: Uuid) -> watcher::Config {
    watcher::Config::default().labels(&format!("{}={hub}", labels::HUB)).timeout(WATCH_SECONDS)
}

fn spawn<K: Send + 'static>(
    stream: impl futures::Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    to: Sender<Event>,
    kind: Option<ApiKind>,
    rules: Option<Rules>,
    there: impl Fn(K) -> Option<Event> + Send + 'static,
    gone: impl Fn(K) -> Option<Event> + Send + 'static,
) -> Watch {
    let (died, told) = (kind.clone(), to.clone());
    let watch = async move {
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.next().await {
            let event = match event {
                Ok(watcher::Event::Init) => Some(Event::Begin(kind.clone(), Instant::now())),
                Ok(watcher::Event::InitDone) => Some(Event::Done(kind.clone())),
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => there(object),
                Ok(watcher::Event::Delete(object)) => gone(object),
                Err(error) => Some(Event::Broken(kind.clone(), error.to_string())),
            };
            let event = match (event, &rules) {
                (Some(event), Some(rules)) => Some(rules.judge(event).await),
                (event, _) => event,
            };
            // A full queue delays only this watch; a closed one means that the worker has ended.
            if let Some(event) = event
                && to.send(event).await.is_err()
            {
                return;
            }
        }
    };
    AbortOnDropHandle::new(tokio::spawn(async move {
        if AssertUnwindSafe(watch).catch_unwind().await.is_err() {
            // A closed queue means that the worker has ended.
            let _ = told.send(Event::Panicked(died)).await;
        }
    }))
}

fn whole(mapping: &Mapping, mut object: trimmed::Object) -> Option<Event> {
    let mut value = object.judged.take();
    // Items of a list have neither apiVersion nor kind.
    value["apiVersion"] = json!(mapping.resource.api_version);
    value["kind"] = json!(mapping.resource.kind);
    value["metadata"] = json!({"generation": object.metadata.generation, "deletionTimestamp": object.metadata.deletion_timestamp});
    seen(mapping, &object, readiness::of(&value))
}

fn seen<K: ResourceExt>(mapping: &Mapping, object: &K, readiness: Readiness) -> Option<Event> {
    let metadata = object.meta();
    let deleting = metadata.deletion_timestamp.is_some();
    let seen = Seen {
        uid: metadata.uid.as_deref().unwrap_or_default().into(),
        generation: metadata.generation,
        version: metadata.resource_version.clone().unwrap_or_default(),
        digest: object.annotations().get(labels::DIGEST).map_or("", String::as_str).into(),
        binding: labels::binding(metadata)?,
        dependent: object.owner_references().iter().any(|owner| owner.controller == Some(true)),
        deleting,
        ruled: object.annotations().contains_key(labels::SERVING_WHEN),
        kept: object.annotations().get(labels::RESOURCE_POLICY).is_some_and(|policy| labels::keeps(policy)),
        readiness,
        at: Instant::now(),
    };
    Some(Event::Object(address(mapping, object), Box::new(seen)))
}

fn vanished<K: ResourceExt>(mapping: &Mapping, object: &K) -> Option<Event> {
    Some(Event::Vanished(address(mapping, object), object.uid().unwrap_or_default().into()))
}

fn address<K: ResourceExt>(mapping: &Mapping, object: &K) -> Arc<ObjectId> {
    Arc::new(ObjectId {
        api_version: mapping.resource.api_version.clone(),
        kind: mapping.resource.kind.clone(),
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn watch_that_panics_tells_its_worker() {
        let (to, mut events) = tokio::sync::mpsc::channel(1);
        let stream = futures::stream::iter([Ok(watcher::Event::Apply(()))]);
        let kind = ("apps/v1".to_owned(), "Deployment".to_owned());
        let _watch = spawn(stream, to, Some(kind.clone()), None, |()| panic!("injected"), |()| None);
        assert!(matches!(events.recv().await, Some(Event::Panicked(Some(told))) if told == kind));
    }
}
