//! Parting with one object: it is deleted, or left where it is because others would lose theirs with it.
//!
//! Kubernetes deletes all objects of a kind with its CustomResourceDefinition, and all objects in a namespace with the namespace.
//! Invariant: neither is deleted while it has an object that is not this binding's, unless that one is about to go anyway.

use std::time::{Duration, Instant};

use drover_members::{Contents, Member, MemberError, ObjectId, TakenAlong, labels};
use uuid::Uuid;

use super::Worker;
use super::binding_state::BindingState;
use super::sharing::Needed;

/// How long an object waits for others to part with what would be deleted with it, before it is left to them.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many objects a message names.
const SHOWN: usize = 3;

/// What became of an object that a binding no longer contains.
pub(super) enum Parted {
    /// It does not exist, or is no longer this binding's.
    Gone,
    /// It was left in place, and why: a sentence for people.
    Kept(String),
    /// It is being deleted, or it cannot be said yet whether others need it.
    NotYet,
}

/// Whom an object matters to that would be taken along.
#[derive(Debug, PartialEq, Eq)]
enum Matters {
    /// Only to the binding that parts with it.
    No,
    /// To somebody who is likely to part with it soon.
    Passing,
    /// To others, who need it.
    Yes,
}

impl Worker {
    /// Deletes an object that a binding no longer contains, or leaves it to those who need it.
    pub(super) async fn part_with(&mut self, member: &Member, id: Uuid, object: &ObjectId) -> Result<Parted, MemberError> {
        let uid = self.uid(id, object);
        let named = match self.needed(id, object) {
            Needed::BeingWritten => return Ok(Parted::NotYet),
            Needed::Shared => return Ok(Parted::Gone),
            Needed::Inhabited { named } => {
                member.release(object, uid.as_deref(), named, self.app.hub, true).await?;
                return Ok(Parted::Gone);
            }
            Needed::NoLonger { named } => named,
        };
        let why = if self.view.object(object).is_some_and(|seen| seen.kept) {
            Some((Matters::Yes, format!("{object} stays: its annotation helm.sh/resource-policy says so")))
        } else if object.takes_others_along() {
            self.taken_along(member, id, object).await?
        } else {
            None
        };
        Ok(match why {
            None if member.delete(object, uid.as_deref(), named).await? => Parted::Gone,
            None => Parted::NotYet,
            Some((Matters::Passing, _)) => {
                if let Some(bound) = self.bindings.get_mut(&id) {
                    bound.waits_since.get_or_insert_with(Instant::now);
                }
                Parted::NotYet
            }
            Some((_, why)) => match member.release(object, uid.as_deref(), named, self.app.hub, false).await? {
                true => Parted::Kept(why),
                false => Parted::Gone,
            },
        })
    }

    /// Why an object must not be deleted now; `None` if nothing of others is deleted with it.
    async fn taken_along(&self, member: &Member, id: Uuid, object: &ObjectId) -> Result<Option<(Matters, String)>, MemberError> {
        let is_namespace = object.kind == "Namespace";
        let contents = match is_namespace {
            true => member.objects_in_namespace(&object.name, Some(id)).await?,
            false => member.objects_of_definition(object).await?,
        };
        let found = match contents {
            Contents::Listed(found) => found,
            Contents::Unknown(why) => return Ok(Some((Matters::Yes, format!("{object} stays: {why}, so others may need it")))),
        };
        let waits = |since: Option<Instant>| since.is_none_or(|since| since.elapsed() < PATIENCE);
        let patient = self.bindings.get(&id).is_some_and(|bound| waits(bound.waits_since));
        let (mut others, mut passing) = (Vec::new(), false);
        for inside in &found {
            match self.matters(id, inside) {
                Matters::No => {}
                Matters::Passing if patient => passing = true,
                Matters::Passing | Matters::Yes => others.push(inside.id.to_string()),
            }
        }
        if others.is_empty() {
            return Ok(passing.then(|| (Matters::Passing, String::new())));
        }
        let more = match others.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        others.truncate(SHOWN);
        let what = if is_namespace { "in it" } else { "of its kind" };
        Ok(Some((Matters::Yes, format!("{object} stays: there are objects of others {what} ({}{more})", others.join(", ")))))
    }

    /// Whom an object matters to that would be deleted with another one of this binding.
    fn matters(&self, id: Uuid, inside: &TakenAlong) -> Matters {
        let of = labels::binding(&inside.metadata);
        if of == Some(id) {
            // The version may differ: a kind is listed in the one in which its objects are stored.
            let address = |object: &ObjectId| [object.group(), &object.kind, &object.namespace, &object.name].map(str::to_owned);
            let kept = self.bindings.get(&id).is_some_and(|bound| bound.keeps().any(|kept| address(kept) == address(&inside.id)));
            return if kept { Matters::Yes } else { Matters::No };
        }
        // The garbage collector deletes it when its owner is gone.
        let has_owner = inside.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
        // The apps of a group leave together, but one is told before the other.
        let dig = self.bindings.get(&id).map(|bound| bound.row.desired.dig.id);
        let leaves = |bound: &BindingState| !bound.present() || Some(bound.row.desired.dig.id) == dig;
        let leaves = of.and_then(|of| self.bindings.get(&of)).is_some_and(|bound| leaves(bound));
        if has_owner || leaves { Matters::Passing } else { Matters::Yes }
    }
}
