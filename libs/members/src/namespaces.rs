//! Namespaces that no bundle contains: created when a binding needs one, deleted when the last binding has left it empty.
//!
//! Invariant: only a namespace that this installation created itself is deleted, and only while it contains nothing but what
//! Kubernetes puts into every namespace.

use std::time::{Duration, Instant};

use kube::api::{DeleteParams, Preconditions};
use serde_json::json;
use uuid::Uuid;

use crate::error::{MemberError, RequestError, within};
use crate::keeping::Contents;
use crate::labels;
use crate::member::{Member, lock};
use crate::object_id::ObjectId;
use crate::objects::Object;

/// For how long a namespace that was seen is not asked for again, unless the member refuses an object in it.
const FRESH: Duration = Duration::from_secs(5);

fn address(name: &str) -> ObjectId {
    ObjectId { api_version: "v1".into(), kind: "Namespace".into(), namespace: String::new(), name: name.into() }
}

impl Member {
    /// Whether the namespace was seen less than five seconds ago.
    pub(crate) fn namespace_seen_recently(&self, name: &str) -> bool {
        lock(&self.known.namespaces).get(name).is_some_and(|at| at.elapsed() < FRESH)
    }

    /// Whether a namespace that was seen has been deleted since. Asked when the member refuses an object in it, however long that took.
    pub(crate) async fn namespace_vanished(&self, name: &str) -> Result<bool, MemberError> {
        Ok(lock(&self.known.namespaces).contains_key(name) && !self.namespace_exists(name).await?)
    }

    /// Whether a namespace exists and is not being deleted.
    ///
    /// # Errors
    /// When the member does not answer or refuses the credential.
    pub async fn namespace_exists(&self, name: &str) -> Result<bool, MemberError> {
        let there = self.metadata(&address(name)).await?.is_some_and(|found| found.deletion_timestamp.is_none());
        match there {
            true => self.saw_namespace(name),
            false => drop(lock(&self.known.namespaces).remove(name)),
        }
        Ok(there)
    }

    fn saw_namespace(&self, name: &str) {
        lock(&self.known.namespaces).insert(name.to_owned(), Instant::now());
    }

    /// Creates a namespace that is missing and marks it as this installation's; one that exists is left as it is. Nothing is asked of one
    /// that was seen less than five seconds ago: if it has gone since, what is written into it is refused ([`Self::namespace_vanished`]).
    ///
    /// # Errors
    /// [`MemberError::Conflict`] while the namespace is being deleted: it can be created afterwards. Otherwise when the member
    /// refuses the namespace or does not answer.
    pub async fn ensure_namespace(&self, name: &str, hub: Uuid) -> Result<(), MemberError> {
        if self.namespace_seen_recently(name) {
            return Ok(());
        }
        match self.metadata(&address(name)).await? {
            Some(found) if found.deletion_timestamp.is_some() => return Err(MemberError::Conflict(Box::new(address(name)))),
            Some(_) => {}
            None => self.own_namespace(name, hub).await?,
        }
        self.saw_namespace(name);
        Ok(())
    }

    async fn own_namespace(&self, name: &str, hub: Uuid) -> Result<(), MemberError> {
        let value = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {labels::HUB: hub}}});
        // Before its namespace exists, an account has no rights in it.
        self.acting_as(None).patch(&Object { id: address(name).into(), digest: "".into(), value }, false).await.map(|_| ())
    }

    /// Deletes a namespace that this installation created and that is empty; any other is left alone.
    ///
    /// # Errors
    /// When the member refuses the deletion or does not answer.
    pub async fn remove_empty_namespace(&self, name: &str, hub: Uuid) -> Result<(), MemberError> {
        let Some(found) = self.metadata(&address(name)).await? else { return Ok(()) };
        let has = |label: &str| found.labels.as_ref().and_then(|labels| labels.get(label));
        // With a binding's label it is an object of that binding, and is deleted with it.
        let ours = has(labels::HUB).is_some_and(|value| *value == hub.to_string()) && has(labels::BINDING).is_none();
        if !ours || found.deletion_timestamp.is_some() || !self.is_empty(name).await? {
            return Ok(());
        }
        lock(&self.known.namespaces).remove(name);
        let exactly_this = Preconditions { uid: found.uid, resource_version: found.resource_version };
        let api = self.api(&address(name)).await?;
        match within(api.delete(name, &DeleteParams::background().preconditions(exactly_this))).await {
            Ok(_) | Err(RequestError::Api(404 | 409, _)) => Ok(()),
            Err(error) => Err(error.of_object(&address(name))),
        }
    }

    async fn is_empty(&self, name: &str) -> Result<bool, MemberError> {
        let contents = self.objects_in_namespace(name, None).await?;
        Ok(matches!(contents, Contents::Listed(objects) if objects.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::{Body, Client};

    use super::*;

    /// A member that has every namespace, and the number of times that it was asked for one.
    fn member() -> (Member, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = match request.uri().path().strip_prefix("/api/v1/namespaces/") {
                Some(name) => {
                    count.fetch_add(1, Ordering::Relaxed);
                    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": name}})
                }
                None => json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                    {"name": "namespaces", "singularName": "namespace", "namespaced": false, "kind": "Namespace", "verbs": ["get"]},
                ]}),
            };
            async move { Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes()))) }
        });
        (Member::new(Client::new(service, "default")), asked)
    }

    #[tokio::test]
    async fn namespace_that_was_just_seen_is_asked_for_only_after_a_refusal() {
        let (member, asked) = member();
        for _ in 0..3 {
            member.ensure_namespace("shop", Uuid::nil()).await.unwrap();
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(!member.namespace_vanished("shop").await.unwrap());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        assert!(!member.namespace_vanished("never-used").await.unwrap());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
