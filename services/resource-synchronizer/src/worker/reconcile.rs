//! Makes one binding so: applies what is desired and not there, deletes what is there and not desired.
//!
//! Idempotent and without memory: each pass looks at desired row, inventory and world, and does what is left to do. Order
//! within a pass: the newest row is read, the preflight asks, the intention is written down, then the member is changed,
//! so that a crash anywhere leaves nothing that the next pass does not find.

use std::collections::BTreeSet;
use std::time::Instant;

use drover_members::objects::{flatten, wave};
use drover_members::readiness::has_status;
use drover_members::{Applied, Member, MemberError, Object, ObjectId, Owner, Readiness};
use serde_json::Value;
use uuid::Uuid;

use super::judge::{Bound, Failure};
use super::world::Seen;
use super::{CALM, Worker};
use crate::app::Error;
use crate::store::{self, inventory::Item};

/// What a pass came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do until something changes.
    Settled,
    /// Something is under way, or stands in the way: look again after a while.
    Again,
}

impl Worker {
    /// One pass over a binding. `Err`: the store, or a member that cannot be worked with.
    pub(super) async fn reconcile(&mut self, member: &Member, id: Uuid) -> Result<Outcome, Error> {
        if !self.refresh(id).await? {
            return self.remove_leftovers(member, id).await;
        }
        let Some(bound) = self.bindings.get(&id) else { return Ok(Outcome::Settled) };
        if bound.row.gone {
            return self.remove_leftovers(member, id).await;
        }
        if bound.present() { self.make_present(member, id).await } else { self.make_absent(member, id).await }
    }

    /// Reads the newest row; false: nobody desires anything of this binding in this member.
    async fn refresh(&mut self, id: Uuid) -> Result<bool, Error> {
        let row = store::bindings::get(&self.app.store, id).await?;
        let Some(row) = row.filter(|row| row.desired.member == self.key) else {
            self.bindings.remove(&id);
            return Ok(false);
        };
        let bound = self.bindings.entry(id).or_insert_with(|| Bound::new(row.clone(), Default::default()));
        if bound.row != row {
            let same_objects = bound.row.desired.digest == row.desired.digest && bound.row.desired.namespace == row.desired.namespace;
            if !same_objects {
                bound.wanted = None;
            }
            (bound.row, bound.failure, bound.hindrance, bound.attempts) = (row, None, None, 0);
        }
        Ok(true)
    }

    async fn make_present(&mut self, member: &Member, id: Uuid) -> Result<Outcome, Error> {
        let bound = &self.bindings[&id];
        if bound.wanted.is_some() && bound.failure.is_none() && bound.drifted(&self.world).is_empty() {
            return self.prune(member, id).await;
        }
        let desired = bound.row.desired.clone();
        let owner = self.owner(bound);
        let Some(bundle) = store::bundles::get(&self.app.store, &desired.digest).await? else {
            let reason = format!("there is no bundle {}", desired.digest);
            return Ok(self.fail(id, Failure { code: "preflight_failed", reason }));
        };
        let objects = match self.prepared(member, bound, &bundle).await? {
            Ok(objects) => objects,
            Err(failure) => return Ok(self.fail(id, failure)),
        };
        self.bound(id).wants(&objects);
        let drifted: BTreeSet<ObjectId> = self.bindings[&id].drifted(&self.world).into_iter().collect();
        let due: Vec<Object> = objects.into_iter().filter(|object| drifted.contains(&object.id)).collect();
        if due.is_empty() {
            let bound = self.bound(id);
            (bound.failure, bound.hindrance) = (None, None);
            return self.prune(member, id).await;
        }
        // What was applied with this very digest passed the preflight then; what is new or changed is asked about first.
        let inventory = &self.bindings[&id].inventory;
        let new: Vec<Object> =
            due.iter().filter(|object| inventory.get(&object.id).is_none_or(|item| item.digest != object.digest)).cloned().collect();
        if new.is_empty() {
            self.bound(id).corrected(CALM);
        } else {
            let against = member.preflight(&new, &owner, &desired.namespace).await?;
            if against.iter().any(|error| matches!(error, MemberError::Conflict(_))) {
                return Ok(Outcome::Again);
            }
            if !against.is_empty() {
                let reasons: Vec<String> = against.iter().map(ToString::to_string).collect();
                return Ok(self.fail(id, Failure { code: "preflight_failed", reason: reasons.join("; ") }));
            }
            // The preflight took its time: the newest row is read just before anything is written.
            if store::bindings::get(&self.app.store, id).await?.is_none_or(|row| row.desired != desired) {
                return Ok(Outcome::Again);
            }
        }
        self.apply(member, id, &owner, &desired.namespace, due).await
    }

    async fn apply(&mut self, member: &Member, id: Uuid, owner: &Owner, namespace: &str, due: Vec<Object>) -> Result<Outcome, Error> {
        store::inventory::intend(&self.app.store, &self.key, id, &due).await?;
        let uids: Vec<Option<String>> = due.iter().map(|object| self.uid(id, &object.id)).collect();
        for object in &due {
            self.bound(id).inventory.insert(object.id.clone(), Item { digest: object.digest.clone(), applied: None });
            self.watch(member, (object.id.api_version.clone(), object.id.kind.clone())).await?;
        }
        self.publish(id);
        let own_namespace = due.iter().any(|object| object.id.kind == "Namespace" && object.id.name == namespace);
        if !own_namespace && due.iter().any(|object| object.id.namespace == namespace) {
            match member.ensure_namespace(namespace, self.app.hub).await {
                Ok(()) => {}
                Err(error) if error.is_member() => return Err(error.into()),
                Err(MemberError::Conflict(_)) => return Ok(Outcome::Again),
                Err(error) => return Ok(self.fail(id, Failure { code: "apply_failed", reason: error.to_string() })),
            }
        }
        let mut answers: Vec<(ObjectId, Applied)> = Vec::new();
        let mut stopped = Ok(());
        for (object, uid) in due.iter().zip(uids) {
            self.app.failpoints.reached(|| "synchronizer/apply/before".into()).await?;
            match member.apply(object, owner, uid.as_deref()).await {
                Ok(applied) => {
                    self.app.failpoints.reached(|| "synchronizer/apply/after_effect".into()).await?;
                    self.world.put_applied(object.id.clone(), just_applied(object, &applied, id));
                    answers.push((object.id.clone(), applied));
                }
                Err(error) => {
                    stopped = Err(error);
                    break;
                }
            }
        }
        store::inventory::applied(&self.app.store, id, &answers).await?;
        let bound = self.bound(id);
        for (object, applied) in answers {
            bound.inventory.entry(object).or_default().applied = Some(applied);
        }
        match stopped {
            Ok(()) => {
                (bound.failure, bound.hindrance) = (None, None);
                // The kinds whose CRD has just come can be watched now.
                for object in &due {
                    self.watch(member, (object.id.api_version.clone(), object.id.kind.clone())).await?;
                }
                Ok(Outcome::Again)
            }
            // A kind that its CRD has not brought yet, or an object that moved under our hands: soon.
            Err(MemberError::UnknownKind { .. } | MemberError::Conflict(_)) => Ok(Outcome::Again),
            Err(error) if error.is_member() => Err(error.into()),
            Err(error @ MemberError::Foreign { .. }) => Ok(self.fail(id, Failure { code: error.code(), reason: error.to_string() })),
            Err(error) => Ok(self.fail(id, Failure { code: "apply_failed", reason: error.to_string() })),
        }
    }

    /// Deletes what the bundle has dropped, once what replaces it is ready: until then going back costs nobody anything.
    async fn prune(&mut self, member: &Member, id: Uuid) -> Result<Outcome, Error> {
        let bound = &self.bindings[&id];
        if !bound.is_ready(&self.world) {
            return Ok(Outcome::Settled);
        }
        let superfluous = bound.superfluous(&self.world);
        match self.delete(member, id, superfluous).await? {
            true => Ok(Outcome::Settled),
            false => Ok(Outcome::Again),
        }
    }

    async fn make_absent(&mut self, member: &Member, id: Uuid) -> Result<Outcome, Error> {
        let superfluous = self.bindings[&id].superfluous(&self.world);
        // CRDs and namespaces take others' objects along: last, when everything else of this binding has gone.
        let (first, last): (Vec<_>, Vec<_>) = superfluous.into_iter().partition(|object| wave(&object.api_version, &object.kind) > 0);
        let gone = self.delete(member, id, first).await? && self.world.pods(id) == 0 && self.delete(member, id, last).await?;
        if !gone {
            return Ok(Outcome::Again);
        }
        let (namespace, fence) = (self.bindings[&id].row.desired.namespace.clone(), self.bindings[&id].row.desired.fence);
        let shared = self.bindings.values().any(|other| other.id() != id && !other.row.gone && other.row.desired.namespace == namespace);
        if !shared && !namespace.is_empty() {
            match member.remove_empty_namespace(&namespace, self.app.hub).await {
                Err(error) if error.is_objects() => tracing::warn!(cluster.id = %self.key, %namespace, %error, "an empty namespace stays"),
                outcome => outcome?,
            }
        }
        if store::bindings::set_gone(&self.app.store, id, fence).await? {
            let bound = self.bound(id);
            (bound.row.gone, bound.failure) = (true, None);
            self.forget_kinds().await;
        }
        Ok(Outcome::Settled)
    }

    /// Objects that carry the label of a binding which nobody desires here, as a zombie may have left them.
    async fn remove_leftovers(&mut self, member: &Member, id: Uuid) -> Result<Outcome, Error> {
        // Another member's binding: the same cluster may be registered twice, and its own worker looks after it.
        if store::bindings::get(&self.app.store, id).await?.is_some_and(|row| row.desired.member != self.key) {
            return Ok(Outcome::Settled);
        }
        let left: Vec<ObjectId> = self.world.of_binding(id).map(|(object, _)| object.clone()).collect();
        if !left.is_empty() {
            tracing::warn!(cluster.id = %self.key, binding.id = %id, objects = left.len(), "removing what was left behind");
        }
        match self.delete(member, id, left).await? {
            true => Ok(Outcome::Settled),
            false => Ok(Outcome::Again),
        }
    }

    /// Deletes objects, dependants before what they depend on; true when all of them are gone. One that the member does not
    /// answer for (a webhook that fails) keeps the others from nothing; the first such answer is what this ends with.
    async fn delete(&mut self, member: &Member, id: Uuid, mut objects: Vec<ObjectId>) -> Result<bool, Error> {
        objects.sort_by_key(|object| std::cmp::Reverse(wave(&object.api_version, &object.kind)));
        let (mut all_gone, mut unanswered) = (true, None);
        for object in objects {
            if self.world.object(&object).is_some_and(|seen| seen.deleting && seen.binding == id) {
                all_gone = false;
                continue;
            }
            self.app.failpoints.reached(|| "synchronizer/delete/before".into()).await?;
            let uid = self.uid(id, &object);
            let gone = match member.delete(&object, uid.as_deref(), id).await {
                Ok(gone) => gone,
                Err(error) if error.is_member() => {
                    // Whether the member answers at all is asked once, not object by object.
                    if unanswered.is_none() && self.probe(member).await.is_err() {
                        return Err(error.into());
                    }
                    unanswered.get_or_insert(error);
                    false
                }
                Err(MemberError::Conflict(_)) => false,
                Err(error) => {
                    if self.bindings.contains_key(&id) {
                        self.fail(id, Failure { code: "delete_failed", reason: error.to_string() });
                    }
                    false
                }
            };
            self.app.failpoints.reached(|| "synchronizer/delete/after_effect".into()).await?;
            all_gone &= gone;
            if gone {
                store::inventory::remove(&self.app.store, id, &object).await?;
                if let Some(bound) = self.bindings.get_mut(&id) {
                    bound.inventory.remove(&object);
                }
                if self.world.object(&object).is_some_and(|seen| seen.binding == id) {
                    self.world.remove(&object);
                }
            }
        }
        match unanswered {
            Some(error) => Err(error.into()),
            None => Ok(all_gone),
        }
    }

    /// The objects of its bundle as this binding wants them in this member, or why they cannot be.
    pub(super) async fn prepared(&self, member: &Member, bound: &Bound, bundle: &[Value]) -> Result<Result<Vec<Object>, Failure>, Error> {
        let refused = |code, reason: String| Ok(Err(Failure { code, reason }));
        match member.prepare(&flatten(bundle)?, &bound.row.desired.namespace, &self.owner(bound)).await {
            Ok(objects) => Ok(Ok(objects)),
            Err(error @ MemberError::UnknownKind { .. }) => refused(error.code(), error.to_string()),
            Err(error) if error.is_objects() => refused("preflight_failed", error.to_string()),
            Err(error) => Err(error.into()),
        }
    }

    fn owner(&self, bound: &Bound) -> Owner {
        let desired = &bound.row.desired;
        Owner { hub: self.app.hub, dig: desired.dig.id, app: desired.app.clone(), binding: desired.id }
    }

    /// Uid of the object that was applied, as far as it is known.
    fn uid(&self, binding: Uuid, id: &ObjectId) -> Option<String> {
        let item = self.bindings.get(&binding)?.inventory.get(id)?;
        item.applied.as_ref().map(|applied| applied.uid.clone())
    }

    fn fail(&mut self, id: Uuid, failure: Failure) -> Outcome {
        tracing::warn!(cluster.id = %self.key, binding.id = %id, code = failure.code, reason = %failure.reason, "the binding cannot be made so");
        self.bound(id).failure = Some(failure);
        Outcome::Again
    }

    pub(super) fn bound(&mut self, id: Uuid) -> &mut Bound {
        self.bindings.get_mut(&id).expect("whoever works on a binding has just refreshed it")
    }
}

/// What is known of an object before a watch tells more.
fn just_applied(object: &Object, applied: &Applied, binding: Uuid) -> Seen {
    let readiness = match has_status(&object.id.api_version, &object.id.kind) {
        true => Readiness::NotReady("has just been applied".into()),
        false => Readiness::Ready,
    };
    Seen {
        uid: applied.uid.clone(),
        generation: applied.generation,
        version: applied.resource_version.clone(),
        digest: object.digest.clone(),
        binding,
        dependent: false,
        deleting: false,
        readiness,
        at: Instant::now(),
    }
}
