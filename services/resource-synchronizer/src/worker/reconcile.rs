//! Brings one binding to its desired state: applies objects that are missing or changed, deletes those that are not desired.
//!
//! Idempotent and stateless: each pass compares desired row, inventory and view, and does what is left to do. Writing takes the
//! longest and runs beside the passes of other bindings (see [`super::write`]); everything else is short, or rare like deletion,
//! and runs one binding after the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_api::bindings::{DesiredBinding, PolicyShare};
use drover_api::grants::ObjectToWrite;
use drover_members::objects::{flatten, wave};
use drover_members::readiness::has_status;
use drover_members::{Applied, Member, MemberError, Object, ObjectId, Owner, Readiness, bounds, serving};
use serde_json::Value;
use uuid::Uuid;

use super::binding_state::{BindingState, Failure};
use super::handover::shared_out;
use super::hooks::{self, Moment};
use super::parting::Parted;
use super::view::Seen;
use super::write::{Write, WriteEnd, Written};
use super::{CALM, Outcome, Worker, Writing};
use crate::app::Error;
use crate::store::{self, bundles::is_export, inventory::Item};

impl Worker {
    /// One pass over a binding. `Err`: the store fails, or the member does not answer.
    pub(super) async fn reconcile(&mut self, member: &Arc<Member>, id: Uuid) -> Result<Outcome, Error> {
        if !self.refresh(id).await? {
            return self.remove_leftovers(member, id).await;
        }
        let Some(bound) = self.bindings.get(&id) else { return Ok(Outcome::Settled) };
        if bound.row.gone {
            return self.remove_leftovers(member, id).await;
        }
        let acting = bound.row.desired.act_as.as_ref().map(|account| Arc::new(member.acting_as(Some(account))));
        let member = acting.as_ref().unwrap_or(member);
        if !bound.present() {
            return self.make_absent(member, id).await;
        }
        self.take_refusal(id).await?;
        match self.make_present(member, id).await? {
            Outcome::Settled => Ok(self.run_tests(member, id).await?.unwrap_or(Outcome::Settled)),
            outcome => Ok(outcome),
        }
    }

    /// Takes the newest row over. Returns false if no row has this binding in this member.
    pub(super) async fn refresh(&mut self, id: Uuid) -> Result<bool, Error> {
        // Of a binding that is known already, a pass may have changed the row meanwhile: how far its hooks are, for example.
        let row = match self.stored.remove(&id).filter(|_| !self.bindings.contains_key(&id)) {
            Some(row) => Some(*row),
            None => store::bindings::get(&self.app.store, id).await?,
        };
        let Some(row) = row.filter(|row| row.desired.member == self.key) else {
            self.bindings.remove(&id);
            return Ok(false);
        };
        let row = self.app.shared.row(row);
        let bound = self.bindings.entry(id).or_insert_with(|| Box::new(BindingState::new(row.clone(), Default::default())));
        if bound.row != row {
            let (before, now) = (&bound.row.desired, &row.desired);
            if before.digest != now.digest || before.namespace != now.namespace || before.share != now.share {
                (bound.wanted, bound.ready_since, bound.asked) = (None, None, None);
            }
            if bound.row.bounds != row.bounds {
                bound.wanted = None;
            }
            // Also if only the fence differs: what was given up may have been taken over in between.
            (bound.share_settled, bound.released) = (false, BTreeSet::new());
            (bound.row, bound.failure, bound.hindrance, bound.attempts, bound.waits_since) = (row, None, None, 0, None);
            bound.names_since = None;
        }
        Ok(true)
    }

    async fn make_present(&mut self, member: &Arc<Member>, id: Uuid) -> Result<Outcome, Error> {
        // Boxed, because it is rare and its future is large.
        if let Some(outcome) = Box::pin(self.before_share(member, id)).await? {
            return Ok(outcome);
        }
        let bound = &self.bindings[&id];
        if bound.row.stand_in && !self.knows_endpoints(bound).await? {
            return Ok(Outcome::Again);
        }
        // What a stand-in wants depends on endpoints.
        if !bound.row.stand_in
            && bound.wanted.is_some()
            && bound.failure.is_none()
            && bound.drifted(&self.view).is_empty()
            && !bound.hooks_due
        {
            self.ask(member, id);
            self.end_warm_up(id).await?;
            return match Box::pin(self.after_share(member, id)).await? {
                Some(outcome) => Ok(outcome),
                None => self.prune(member, id).await,
            };
        }
        let desired = bound.row.desired.clone();
        let owner = self.owner(bound);
        let Some(bundle) = self.app.bundle(&desired.digest).await? else {
            let reason = format!("there is no bundle {}", desired.digest);
            return Ok(self.fail(id, Failure::new("preflight_failed", reason)));
        };
        let imports = bound.row.stand_in && bundle.iter().any(is_export);
        let objects = match self.prepared(member, bound, &bundle).await? {
            Ok(objects) => objects,
            Err(failure) => return Ok(self.fail(id, failure)),
        };
        self.bound(id).imports = imports;
        let (objects, hooks) = hooks::split(objects);
        if let Some(outcome) = self.hooks_before(member, id, &hooks).await? {
            return Ok(outcome);
        }
        self.bound(id).wants(&objects);
        let mut drifted: BTreeSet<ObjectId> = self.bindings[&id].drifted(&self.view).into_iter().collect();
        drifted.retain(|object| !self.was_taken_over(id, object));
        let due: Vec<Object> = objects.into_iter().filter(|object| drifted.contains(&*object.id)).collect();
        if due.is_empty() {
            let bound = self.bound(id);
            (bound.failure, bound.hindrance) = (None, None);
            // What cannot be told is tried again. The rest does not wait for it.
            let told = !imports || Box::pin(self.tell_exports(member, id, &bundle)).await?;
            self.ask(member, id);
            self.end_warm_up(id).await?;
            if let Some(outcome) = self.hooks_after(member, id, &hooks).await? {
                return Ok(outcome);
            }
            let outcome = match Box::pin(self.after_share(member, id)).await? {
                Some(outcome) => outcome,
                None => self.prune(member, id).await?,
            };
            return Ok(if told || outcome != Outcome::Settled { outcome } else { Outcome::Again });
        }
        // An object applied with the same digest passed its preflight then; only new or changed objects need one.
        let inventory = &self.bindings[&id].inventory;
        let known = |object: &Object| inventory.get(&object.id).is_some_and(|item| item.digest == object.digest);
        let unapplied = |object: &Object| inventory.get(&object.id).is_none_or(|item| item.applied.is_none());
        let starting = due.iter().map(|object| object.may_be_scaled() && unapplied(object)).collect();
        let shared = match self.sharers(member, id, &due).await? {
            Ok(shared) => self.with_names(id, &due, shared),
            Err(None) => return Ok(Outcome::Again),
            Err(Some(failure)) => return Ok(self.fail(id, failure)),
        };
        let write = Write {
            app: self.app.clone(),
            member: member.clone(),
            owner,
            new: due.iter().filter(|object| !known(object)).cloned().collect(),
            uids: due.iter().map(|object| self.uid(id, &object.id)).collect(),
            starting,
            shared,
            desired,
            due,
        };
        if write.new.is_empty() {
            self.bound(id).corrected(CALM);
        }
        Ok(self.begin(id, write))
    }

    /// Whether a later copy of the same app has taken an object over that this one had applied: the older copy does not take it back, or each
    /// would take it from the other, and the one that leaves might delete it.
    fn was_taken_over(&self, id: Uuid, object: &ObjectId) -> bool {
        let bound = &self.bindings[&id];
        let had_it = bound.inventory.get(object).is_some_and(|item| item.applied.is_some());
        let holder = self.view.object(object).filter(|seen| seen.binding != id).and_then(|seen| self.bindings.get(&seen.binding));
        had_it && holder.is_some_and(|holder| holder.present() && holder.is_copy_of(bound) && holder.inventory.contains_key(object))
    }

    /// Starts a write beside those of other bindings, unless one of them writes an object with the same address: to whom the object
    /// belongs would not be certain.
    pub(super) fn begin(&mut self, id: Uuid, write: Write) -> Outcome {
        let objects: BTreeSet<Arc<ObjectId>> = write.due.iter().map(|object| Arc::clone(&object.id)).collect();
        if self.writing.values().any(|others| !others.objects.is_disjoint(&objects)) {
            return Outcome::Again;
        }
        self.writing.insert(id, Writing { objects, seen: Vec::new() });
        self.writes.spawn(write.run());
        Outcome::Writing
    }

    /// Takes the result of a write in.
    pub(super) async fn written(&mut self, member: &Member, written: Written) -> Result<Outcome, Error> {
        let Written { id, due, intended, applied, end } = written;
        let seen = self.writing.remove(&id).map(|writing| writing.seen).unwrap_or_default();
        let mut kinds = BTreeSet::new();
        if intended {
            for object in &due {
                let item = Item { digest: Arc::clone(&object.digest), applied: None };
                self.bound(id).inventory.insert(Arc::clone(&object.id), Box::new(item));
                self.view.hold(&object.id, id);
                kinds.insert((object.id.api_version.clone(), object.id.kind.clone()));
            }
        }
        for (object, answer) in due.iter().zip(applied) {
            let before = self.view.object(&object.id).map(|seen| seen.binding).filter(|before| *before != id);
            // One that is shared was not written: what is seen of it stays.
            if self.view.object(&object.id).is_none_or(|seen| !self.view.is_shared(&object.id, seen, id) || *seen.uid != *answer.uid) {
                self.view.put_applied(Arc::clone(&object.id), Box::new(just_applied(object, &answer, id)));
                // It was another binding's, which the watch will not tell any more.
                before.into_iter().for_each(|before| self.schedule(before, Duration::ZERO));
            }
            self.bound(id).inventory.entry(Arc::clone(&object.id)).or_default().applied = Some(answer);
        }
        seen.into_iter().for_each(|event| self.see(event));
        for kind in kinds {
            self.watch(member, kind).await?;
        }
        match end {
            WriteEnd::Done => {
                let bound = self.bound(id);
                (bound.failure, bound.hindrance) = (None, None);
                let (of_copy, digest) = (!bound.row.stand_in, Arc::clone(&bound.row.desired.digest));
                if of_copy && due.iter().any(|object| is_export(&object.value)) {
                    self.app.wake_exports(&digest).await?;
                }
                let bound = &self.bindings[&id];
                // No event may follow a hook's write: not every object has a status.
                Ok(if bound.hooks_due || bound.imports || bound.has_open_share() || bound.tests_run() {
                    Outcome::Again
                } else {
                    Outcome::Settled
                })
            }
            WriteEnd::Later => Ok(Outcome::Again),
            WriteEnd::Failed(failure) => Ok(self.fail(id, failure)),
            WriteEnd::Broken(error) => Err(error),
        }
    }

    /// Records that the binding has been ready for as long as its app asks, once it has.
    async fn end_warm_up(&mut self, id: Uuid) -> Result<(), Error> {
        let bound = &self.bindings[&id];
        if bound.is_warm(&self.view) {
            let (digest, fence) = (Arc::clone(&bound.row.desired.digest), bound.row.desired.fence);
            if store::bindings::set_served(&self.app.store, id, &digest, fence).await? {
                self.bound(id).row.served = Some(digest);
            }
        }
        Ok(())
    }

    /// Deletes objects that the bundle no longer contains, once the others are ready: until then a rollback is possible without loss.
    async fn prune(&mut self, member: &Member, id: Uuid) -> Result<Outcome, Error> {
        let bound = &self.bindings[&id];
        if !bound.is_ready(&self.view) {
            return Ok(Outcome::Settled);
        }
        let superfluous = bound.superfluous(&self.view);
        match self.delete(member, id, superfluous).await? {
            true => Ok(Outcome::Settled),
            false => Ok(Outcome::Again),
        }
    }

    async fn make_absent(&mut self, member: &Arc<Member>, id: Uuid) -> Result<Outcome, Error> {
        if Box::pin(self.waits_for_names(id)).await? {
            return Ok(Outcome::Again);
        }
        let moment = if self.deletion_is_over(id) { Moment::Post } else { Moment::Pre };
        if let Some(outcome) = self.deletion_hooks(member, id, moment).await? {
            return Ok(outcome);
        }
        let superfluous = self.bindings[&id].superfluous(&self.view);
        // With a CRD or a namespace, objects of others are deleted too: last, when everything else of this binding is gone.
        let (first, last): (Vec<_>, Vec<_>) = superfluous.into_iter().partition(|object| wave(&object.api_version, &object.kind) > 0);
        let gone = self.delete(member, id, first).await? && self.view.pods(id) == 0 && self.delete(member, id, last).await?;
        if !gone {
            return Ok(Outcome::Again);
        }
        if let Some(outcome) = self.deletion_hooks(member, id, Moment::Post).await? {
            return Ok(outcome);
        }
        // What these hooks have left.
        if !self.bindings[&id].superfluous(&self.view).is_empty() {
            return Ok(Outcome::Again);
        }
        if !self.settle_volumes(member, id).await? {
            return Ok(Outcome::Again);
        }
        let fence = self.bindings[&id].row.desired.fence;
        for namespace in self.namespaces_left(id).await? {
            match member.remove_empty_namespace(&namespace, self.app.hub).await {
                Err(error) if error.is_object() => {
                    tracing::warn!(cluster.id = %self.key, %namespace, %error, "an empty namespace could not be deleted")
                }
                outcome => outcome?,
            }
        }
        if store::bindings::set_gone(&self.app.store, id, fence).await? {
            let bound = self.bound(id);
            (bound.row.gone, bound.failure) = (true, None);
            if bound.row.stand_in && store::bindings::forget(&self.app.store, id).await? {
                self.bindings.remove(&id);
            }
            self.forget_kinds().await;
        }
        Ok(Outcome::Settled)
    }

    /// Namespaces of a binding's objects that no other binding of the member uses.
    async fn namespaces_left(&self, id: Uuid) -> Result<BTreeSet<String>, Error> {
        let desired = &self.bindings[&id].row.desired;
        let bundle = store::bundles::get(&self.app.store, &desired.digest).await?.unwrap_or_default();
        let named = bundle.iter().filter_map(|object| object.pointer("/metadata/namespace")?.as_str()).map(str::to_owned);
        let mut left: BTreeSet<String> = named.chain([desired.namespace.clone()]).filter(|name| !name.is_empty()).collect();
        for other in self.bindings.values().filter(|other| other.id() != id && !other.row.gone) {
            left.remove(&other.row.desired.namespace);
            left.retain(|name| !other.inventory.keys().any(|object| object.namespace == *name));
        }
        Ok(left)
    }

    /// Deletes objects with the label of a binding that no row has in this member, as a process that lost its lease may have left them.
    async fn remove_leftovers(&mut self, member: &Member, id: Uuid) -> Result<Outcome, Error> {
        // The binding of another member: the same cluster may be registered twice, and the other worker serves it.
        if store::bindings::get(&self.app.store, id).await?.is_some_and(|row| row.desired.member != self.key) {
            return Ok(Outcome::Settled);
        }
        let left = self.leftovers(id);
        if !left.is_empty() {
            tracing::warn!(cluster.id = %self.key, binding.id = %id, objects = left.len(), "removing objects of an unknown binding");
        }
        match self.delete(member, id, left).await? {
            true => Ok(Outcome::Settled),
            false => Ok(Outcome::Again),
        }
    }

    /// Deletes objects, dependants before what they depend on. Returns whether all of them are gone. If the member does not answer for
    /// one (a webhook that fails), the others are deleted all the same, and the first such error is returned at the end.
    pub(super) async fn delete(&mut self, member: &Member, id: Uuid, mut objects: Vec<ObjectId>) -> Result<bool, Error> {
        objects.sort_by_key(|object| std::cmp::Reverse(wave(&object.api_version, &object.kind)));
        let (mut all_gone, mut unanswered) = (true, None);
        for object in objects {
            if self.view.object(&object).is_some_and(|seen| seen.deleting && seen.binding == id) {
                all_gone = false;
                continue;
            }
            self.app.failpoints.reached(|| "synchronizer/delete/before".into()).await?;
            let mut kept = None;
            let gone = match self.part_with(member, id, &object).await {
                Ok(Parted::Gone) => true,
                Ok(Parted::NotYet) => false,
                Ok(Parted::Kept(why)) => {
                    tracing::warn!(cluster.id = %self.key, binding.id = %id, %object, %why, "an object is left in place");
                    kept = Some(why);
                    true
                }
                Err(error) if error.is_member() => {
                    // One request checks whether the member answers at all, not one per object.
                    if unanswered.is_none() && self.probe(member).await.is_err() {
                        return Err(error.into());
                    }
                    unanswered.get_or_insert(error);
                    false
                }
                Err(MemberError::Conflict(_)) => false,
                Err(error) => {
                    if self.bindings.contains_key(&id) {
                        self.fail(id, Failure::new(error.code_or("delete_failed"), error.to_string()));
                    }
                    false
                }
            };
            self.app.failpoints.reached(|| "synchronizer/delete/after_effect".into()).await?;
            all_gone &= gone;
            if gone {
                store::inventory::remove(&self.app.store, id, &object, kept.as_deref()).await?;
                if let Some(bound) = self.bindings.get_mut(&id) {
                    bound.inventory.remove(&object);
                    bound.row.kept.extend(kept);
                }
                self.view.let_go(&object, id);
                let heirs = self.heirs(&object);
                heirs.iter().for_each(|heir| self.schedule(*heir, Duration::ZERO));
                if self.view.sharers(&object).is_empty() && self.view.object(&object).is_some_and(|seen| seen.binding == id) {
                    self.view.remove_gone(&object);
                }
            }
        }
        match unanswered {
            Some(error) => Err(error.into()),
            None => Ok(all_gone),
        }
    }

    /// The objects of the bundle, prepared for this binding and member, or why they cannot be.
    pub(super) async fn prepared(
        &self,
        member: &Member,
        bound: &BindingState,
        bundle: &[Value],
    ) -> Result<Result<Vec<Object>, Failure>, Error> {
        let refused = |code, reason: String| Ok(Err(Failure::new(code, reason)));
        let flat = flatten(bundle)?;
        let flat = match &bound.row.desired.share {
            Some(share) => shared_out(flat, share, &bound.row.desired.namespace),
            None if bound.row.stand_in => self.names(member, bound, flat).await?,
            None => flat,
        };
        let share_of = |policy: &bounds::PolicyName| {
            let shares = &bound.row.bounds.as_ref()?.shares;
            let same =
                |share: &&PolicyShare| (&share.kind, &share.namespace, &share.name) == (&policy.kind, &policy.namespace, &policy.name);
            shares.iter().find(same).map(|share| (share.min, share.max))
        };
        let flat = bounds::shared(flat, &bound.row.desired.namespace, share_of);
        match member.prepare(&flat, &bound.row.desired.namespace, &self.owner(bound)).await {
            Ok(objects) => match not_granted(&bound.row.desired, &objects) {
                reasons if reasons.is_empty() => Ok(Ok(objects)),
                reasons => refused("not_granted", reasons.join("; ")),
            },
            Err(mut errors) => match errors.iter().position(|error| !error.is_object()) {
                Some(position) => Err(errors.swap_remove(position).into()),
                None => {
                    let unknown = errors.iter().find(|error| matches!(error, MemberError::UnknownKind { .. }));
                    Ok(Err(Failure::against(unknown.map_or("preflight_failed", MemberError::code), &errors)))
                }
            },
        }
    }

    pub(super) fn owner(&self, bound: &BindingState) -> Owner {
        let desired = &bound.row.desired;
        Owner { hub: self.app.hub, dig: desired.dig.id, app: desired.app.clone(), binding: desired.id }
    }

    /// Uid of the applied object, if it is known.
    pub(super) fn uid(&self, binding: Uuid, id: &ObjectId) -> Option<Arc<str>> {
        let item = self.bindings.get(&binding)?.inventory.get(id)?;
        item.applied.as_ref().map(|applied| applied.uid.clone())
    }

    pub(super) fn fail(&mut self, id: Uuid, failure: Failure) -> Outcome {
        tracing::warn!(cluster.id = %self.key, binding.id = %id, code = failure.code, reason = %failure.reason, "the binding cannot reach its desired state");
        self.bound(id).failure = Some(Box::new(failure));
        Outcome::Again
    }

    pub(super) fn bound(&mut self, id: Uuid) -> &mut BindingState {
        self.bindings.get_mut(&id).expect("every caller has just refreshed the binding")
    }
}

/// Why the logical cloud of a binding refuses some of its objects, a reason per object.
pub fn not_granted(desired: &DesiredBinding, objects: &[Object]) -> Vec<String> {
    let Some(grants) = &desired.grants else { return Vec::new() };
    let refusal = |object: &Object| {
        let Object { id, value, .. } = object;
        let namespace = Some(id.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        grants.refusal(&desired.namespace, ObjectToWrite { group: id.group(), kind: &id.kind, namespace, name: &id.name, object: value })
    };
    objects.iter().filter_map(refusal).collect()
}

/// What is known of an object that was applied, before a watch reports it.
fn just_applied(object: &Object, applied: &Applied, binding: Uuid) -> Seen {
    let ruled = serving::has_rule(&object.value);
    let readiness = match ruled || has_status(&object.id.api_version, &object.id.kind) {
        true => Readiness::NotReady("has just been applied".into()),
        false => Readiness::Ready,
    };
    Seen {
        uid: Arc::clone(&applied.uid),
        generation: applied.generation,
        version: applied.resource_version.clone(),
        digest: Arc::clone(&object.digest),
        binding,
        dependent: false,
        deleting: false,
        ruled,
        kept: object.is_kept(),
        readiness,
        at: Instant::now(),
    }
}
