//! Objects that several bindings of a member contain: a StorageClass, a CRD, a Namespace, a ServiceAccount.
//!
//! Who contains an object is recorded in the inventories, a row per binding, written before the object is. So no crash loses a
//! sharer: the labels of the object name only one of them, who keeps it as it is to be; when that one leaves, its row is deleted first,
//! and another takes the object over, because the object's labels then name nobody who contains it.
//! Invariant: an object is deleted only when the last row is, and never while another binding writes it.

use drover_members::shared::differences;
use drover_members::{Member, Object, ObjectId, Sharers};
use uuid::Uuid;

use super::Worker;
use super::binding_state::{BindingState, Failure};
use crate::app::Error;
use crate::store;

/// Whether others need an object that a binding no longer contains.
pub(super) enum Needed {
    /// Another binding is writing it at the moment: what it needs is not known yet.
    BeingWritten,
    /// Others contain it.
    Shared,
    /// A namespace that nobody else contains, in which others have objects, or this binding itself has objects that it keeps.
    Inhabited {
        /// As for `NoLonger`.
        named: Uuid,
    },
    /// Nobody needs it.
    NoLonger {
        /// The binding that its labels name, if nobody contains it under that label any more; else the one that leaves.
        named: Uuid,
    },
}

impl Worker {
    /// The other bindings with which each shareable object of a write is shared. `Err`: some of them contain it with another content,
    /// and why that fails; `None` if all of those are leaving, so that it is a matter of time.
    pub(super) async fn sharers(&self, member: &Member, id: Uuid, due: &[Object]) -> Result<Result<Sharers, Option<Failure>>, Error> {
        let own = &self.bindings[&id];
        let mut found = Sharers::new();
        let (mut conflicts, mut leaving) = (Vec::new(), false);
        for object in due.iter().filter(|object| object.id.is_shareable()) {
            let sharers = found.entry(object.id.clone()).or_default();
            for other in self.view.sharers(&object.id).iter().filter(|other| **other != id) {
                let Some(bound) = self.bindings.get(other) else { continue };
                // Another copy of the same app: the newer one takes the object over, as it does with any object.
                if bound.is_copy_of(own) {
                    continue;
                }
                let equal = bound.inventory.get(&object.id).is_some_and(|item| item.digest == object.digest);
                match (equal, bound.present()) {
                    (true, _) => sharers.push(*other),
                    (false, true) => conflicts.push((object, *other)),
                    (false, false) => leaving = true,
                }
            }
        }
        if let Some((object, other)) = conflicts.first() {
            let mut reason = self.conflict(member, id, *other, object).await?;
            if conflicts.len() > 1 {
                reason = format!("{reason} ({} more objects differ)", conflicts.len() - 1);
            }
            // Another member may have none of it, and the other app may leave.
            return Ok(Err(Some(Failure { elsewhere: true, ..Failure::new("shared_object_differs", reason) })));
        }
        Ok(if leaving { Err(None) } else { Ok(found) })
    }

    /// Names both owners of an object and says how their versions differ.
    async fn conflict(&self, member: &Member, id: Uuid, other: Uuid, object: &Object) -> Result<String, Error> {
        let name = |binding: &Uuid| {
            let desired = &self.bindings[binding].row.desired;
            let dig = &desired.dig;
            format!("{} of {}/{}/{}/{}", desired.app, dig.project, dig.composite_app, dig.version, dig.name)
        };
        let theirs = &self.bindings[&other];
        let bundle = store::bundles::get(&self.app.store, &theirs.row.desired.digest).await?.unwrap_or_default();
        let prepared = self.prepared(member, theirs, &bundle).await?.unwrap_or_default();
        let lines = match prepared.iter().find(|prepared| prepared.id == object.id) {
            Some(prepared) => differences(&object.value, &prepared.value).join("; "),
            None => "its newer version no longer contains it, but is not complete yet".to_owned(),
        };
        Ok(format!("app {} and app {} both contain {}, with different content: {lines}", name(&id), name(&other), object.id))
    }

    /// Whether others need an object that this binding no longer contains.
    pub(super) fn needed(&self, id: Uuid, object: &ObjectId) -> Needed {
        if !object.is_shareable() {
            return Needed::NoLonger { named: id };
        }
        let writes = |written: &ObjectId| written == object || written.goes_with(object);
        if self.writing.iter().any(|(other, writing)| *other != id && writing.objects.iter().any(|written| writes(written))) {
            return Needed::BeingWritten;
        }
        if self.view.sharers(object).iter().any(|other| *other != id) {
            return Needed::Shared;
        }
        // A sharer that leaves before it has taken the object over deletes it under the label that it still has.
        let named = self.view.object(object).map_or(id, |seen| seen.binding);
        let named = if self.bindings.get(&id).is_some_and(|bound| bound.inventory.contains_key(object)) { named } else { id };
        let is_namespace = object.kind == "Namespace" && object.api_version == "v1";
        let inhabits = |bound: &BindingState| match bound.id() == id {
            true => bound.keeps().any(|kept| kept.namespace == object.name),
            false => bound.inventory.keys().any(|held| held.namespace == object.name),
        };
        match is_namespace && self.bindings.values().any(|bound| inhabits(bound)) {
            true => Needed::Inhabited { named },
            false => Needed::NoLonger { named },
        }
    }

    /// Objects that carry the label of this binding and that nobody contains.
    pub(super) fn leftovers(&self, id: Uuid) -> Vec<ObjectId> {
        let seen = self.view.of_binding(id).map(|(object, _)| object);
        seen.filter(|object| self.view.sharers(object).iter().all(|sharer| *sharer == id)).cloned().collect()
    }
}
