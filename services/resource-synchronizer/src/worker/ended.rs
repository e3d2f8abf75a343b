//! Jobs that Kubernetes deletes when they have ended (`ttlSecondsAfterFinished`).
//!
//! Pure. Such a Job is applied once for each version of it: that it is gone again is no drift, and it counts as ready. Nothing tells one that
//! has ended from one that somebody deleted before, so that one is not started again either. Invariant: one that was seen to fail before
//! it went does not count as ready.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::bindings::ObjectStatus;
use drover_members::{Object, ObjectId, Readiness};

use super::binding_state::BindingState;
use super::judge::object_status;
use super::view::{Event, MemberView};

/// The Jobs of a binding that go by themselves.
#[derive(Clone, Debug, Default)]
pub struct EndedJobs {
    jobs: BTreeSet<Arc<ObjectId>>,
    failed: BTreeMap<Arc<ObjectId>, String>,
}

impl EndedJobs {
    /// Sets the desired objects.
    pub fn wants(&mut self, objects: &[Object]) {
        let goes = |object: &&Object| {
            object.id.group() == "batch" && object.id.kind == "Job" && !object.value["spec"]["ttlSecondsAfterFinished"].is_null()
        };
        self.jobs = objects.iter().filter(goes).map(|object| Arc::clone(&object.id)).collect();
        self.failed.retain(|id, _| self.jobs.contains(id));
    }

    /// Takes notice of an event before the view does: why a Job that goes has failed.
    pub fn see(&mut self, event: &Event, view: &MemberView) {
        match event {
            Event::Vanished(id, uid) if self.jobs.contains(id) => {
                let seen = view.object(id).filter(|seen| seen.uid == *uid);
                if let Some(Readiness::Failed(reason)) = seen.map(|seen| &seen.readiness) {
                    self.failed.insert(Arc::clone(id), reason.clone());
                }
            }
            Event::Object(id, _) => {
                self.failed.remove(id);
            }
            _ => {}
        }
    }
}

impl BindingState {
    /// Whether the object is a Job that was applied as desired and has gone by itself.
    pub fn has_ended(&self, id: &ObjectId, digest: &str, view: &MemberView) -> bool {
        self.ended.jobs.contains(id)
            && view.object(id).is_none()
            && self.inventory.get(id).is_some_and(|item| *item.digest == *digest && item.applied.is_some())
    }

    /// Why a Job that has gone had failed.
    pub fn failure_of_ended(&self, id: &ObjectId) -> Option<&str> {
        self.ended.failed.get(id).map(String::as_str)
    }

    /// The status of a Job that has gone by itself.
    pub fn status_of_ended(&self, id: &ObjectId) -> ObjectStatus {
        let failure = self.failure_of_ended(id);
        object_status(id, true, failure.is_none(), failure)
    }
}
