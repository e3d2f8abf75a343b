//! A session with the member: connecting, the first lists, and the events of its watches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_members::{Member, MemberError, kubeconfig};
use drover_scheduling::{MemberState, Reachability};
use tokio::sync::mpsc;
use tokio::time::timeout;
use uuid::Uuid;

use super::binding_state::{BindingState, Failure};
use super::hooks;
use super::view::{Event, MemberView};
use super::{BUNDLES, EVENTS, SessionEnd, Worker, watch};
use crate::store;

impl Worker {
    pub(super) async fn connect(&mut self, version: i64) -> Result<(Arc<Member>, mpsc::Receiver<Event>), SessionEnd> {
        let failure = |code, reason| SessionEnd::Lost(Failure::new(code, reason));
        let client = match self.app.clients.cached(&self.key, version).await {
            Some(client) => client,
            None => {
                let credential = self
                    .app
                    .credential(&self.key)
                    .await
                    .map_err(|error| failure("unreachable", format!("its kubeconfig cannot be had: {error}")))?;
                let vetted = kubeconfig::vet(credential.kubeconfig.expose()).map_err(|error| failure(error.code(), error.to_string()))?;
                let vetted = vetted.linked(credential.linked);
                let built = self.app.clients.get(&self.key, credential.version, &vetted).await;
                built.map_err(|error| failure(error.code(), error.to_string()))?
            }
        };
        let member = Arc::new(Member::new(client));
        let broken = |error: MemberError| failure(error.code(), error.to_string());
        member.mapping("v1", "Pod").await.map_err(broken)?;
        let stored = |error: drover_store::StoreError| failure("store_unavailable", error.to_string());
        self.load().await.map_err(stored)?;
        let kinds = store::inventory::kinds(&self.app.store, &self.key).await.map_err(stored)?;
        let (sender, events) = mpsc::channel(EVENTS);
        let pods = (String::new(), String::new());
        self.view = MemberView::default();
        for bound in self.bindings.values() {
            bound.inventory.keys().for_each(|object| self.view.hold(object, bound.id()));
        }
        self.watches.insert(pods, watch::pods(&member, self.app.hub, sender.clone()));
        self.events = Some(sender);
        self.watch_all(&member, kinds).await?;
        Ok((member, events))
    }

    /// Reads all bindings of this member.
    pub(super) async fn load(&mut self) -> Result<(), drover_store::StoreError> {
        let mut inventories = store::inventory::of_member(&self.app.store, &self.key).await?;
        let rows = store::bindings::of_member(&self.app.store, &self.key).await?;
        self.due.clear();
        self.stored.clear();
        self.bindings = rows
            .into_iter()
            .map(|row| {
                let id = row.desired.id;
                (id, Box::new(BindingState::new(self.app.shared.row(row), inventories.remove(&id).unwrap_or_default())))
            })
            .collect();
        Ok(())
    }

    /// All lists are complete: from now on the view can be trusted. A binding that is as desired is published and needs no pass.
    pub(super) async fn recognise(&mut self, member: &Member) -> Result<(), SessionEnd> {
        if self.lost.take().is_some() {
            tracing::info!(cluster.id = %self.key, "the member answers again");
        }
        let unknown: Vec<Uuid> =
            self.bindings.values().filter(|bound| bound.present() && bound.wanted.is_none()).map(|bound| bound.id()).collect();
        for some in unknown.chunks(BUNDLES) {
            let digests: BTreeSet<&str> = some.iter().map(|id| &*self.bindings[id].row.desired.digest).collect();
            let stored = |error: drover_store::StoreError| SessionEnd::Lost(Failure::new("store_unavailable", error.to_string()));
            let bundles = store::bundles::get_all(&self.app.store, digests).await.map_err(stored)?;
            for id in some {
                // A binding that cannot be prepared gets a pass, which says why.
                let Some(bundle) = bundles.get(&*self.bindings[id].row.desired.digest) else { continue };
                if let Ok(Ok(objects)) = self.prepared(member, &self.bindings[id], bundle).await {
                    let (objects, hooks) = hooks::split(objects);
                    let bound = self.bound(*id);
                    bound.hooks_due = bound.hooks_left(&hooks);
                    // With hooks that are left it needs a pass, which says what is to be done.
                    if !bound.hooks_due {
                        bound.wants(&objects);
                    }
                }
            }
        }
        let known: BTreeSet<Uuid> = self.bindings.keys().copied().chain(self.view.bindings()).collect();
        for id in known {
            self.publish(id);
            if self.needs_work(id) {
                self.schedule(id, Duration::ZERO);
            }
        }
        self.forget_kinds().await;
        Ok(())
    }

    pub(super) async fn changed(&mut self, member: &Member, version: i64, alive: bool) -> Result<(), SessionEnd> {
        let (newest, state, way) = {
            let registered = self.registered.borrow_and_update();
            let way = Reachability::of(&registered.labels, registered.link.is_some());
            (registered.credential_version, registered.state, way)
        };
        if !alive {
            return Err(SessionEnd::Stopped);
        }
        if newest != version {
            return Err(SessionEnd::Credential);
        }
        if self.endpoints.as_ref().is_some_and(|(before, _)| *before != way) {
            self.watch_endpoints(member);
        }
        if matches!(state, MemberState::Unreachable | MemberState::Unauthorized) { self.probe(member).await } else { Ok(()) }
    }

    pub(super) async fn take(&mut self, member: &Member, event: Event) -> Result<(), SessionEnd> {
        if let Event::Broken(kind, reason) = &event {
            tracing::debug!(cluster.id = %self.key, ?kind, %reason, "a watch was interrupted");
            return self.probe(member).await;
        }
        // A new session lists and watches every kind again.
        if let Event::Panicked(kind) = &event {
            tracing::error!(cluster.id = %self.key, ?kind, "the task of a watch panicked; the session with the member starts again");
            return Err(SessionEnd::Lost(Failure::new("internal", "the watch of a kind failed; it is started again")));
        }
        match event.object().and_then(|object| self.writing.values_mut().find(|writing| writing.objects.contains(object))) {
            Some(writing) => writing.seen.push(event),
            None => self.see(event),
        }
        Ok(())
    }

    pub(super) fn see(&mut self, mut event: Event) {
        if let Event::Object(id, seen) = &mut event
            && let Some(bound) = self.bindings.get(&seen.binding)
        {
            bound.share(id, seen);
        }
        let concerned = event.object().and_then(|id| self.view.object(id)).map(|seen| seen.binding);
        if let Some(bound) = concerned.and_then(|id| self.bindings.get_mut(&id)) {
            bound.ended.see(&event, &self.view);
        }
        let touched = self.view.take(event);
        // An incomplete list proves nothing; once it is complete, all bindings are judged.
        if self.listing.is_some() {
            return;
        }
        for id in touched {
            self.publish(id);
            // A binding that is being written is judged afterwards.
            if !self.writing.contains_key(&id) && self.needs_work(id) {
                self.schedule(id, self.patience(id));
            }
        }
    }

    /// Checks by one request whether the member answers at all.
    pub(super) async fn probe(&self, member: &Member) -> Result<(), SessionEnd> {
        let lost = |code, reason| Err(SessionEnd::Lost(Failure::new(code, reason)));
        match timeout(drover_members::DEADLINE, member.client().list_core_api_versions()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => lost("unauthorized", status.message.clone()),
            Ok(Err(error)) => lost("unreachable", error.to_string()),
            Err(_) => lost("unreachable", "does not answer".to_owned()),
        }
    }
}
