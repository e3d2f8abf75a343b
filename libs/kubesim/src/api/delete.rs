//! DELETE: preconditions, finalizers, grace, propagation.

use serde_json::{Value, json};

use super::{ApiResult, Options, Target};
use crate::error::ApiError;
use crate::key::Key;
use crate::object::{self, text};
use crate::selectors::{Fields, Labels};
use crate::state::ClusterState;

impl ClusterState {
    /// DELETE of one object; `body` is `DeleteOptions` or null.
    pub fn delete(&mut self, target: &Target, body: &Value, options: &Options) -> ApiResult {
        let old = self.existing(target)?;
        for (pointer, have, what) in [
            ("/preconditions/uid", object::uid(&old), "UID"),
            ("/preconditions/resourceVersion", text(&old, "/metadata/resourceVersion"), "ResourceVersion"),
        ] {
            let wanted = text(body, pointer);
            if !wanted.is_empty() && wanted != have {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in record ({have}). \
                    The object might have been deleted and then recreated"
                );
                return Err(ApiError::conflict(&target.kind.resource, &target.name, &why));
            }
        }
        let propagation = Some(text(body, "/propagationPolicy")).filter(|p| !p.is_empty()).or(options.propagation.as_deref());
        let dry_run = options.dry_run || !object::list(body, "/dryRun").is_empty();
        if dry_run {
            return Ok(Value::clone(&old));
        }
        let grace = object::number(body, "/gracePeriodSeconds").or(options.grace);
        let key = target.key(&target.name);
        if self.delete_object(&key, grace, propagation.unwrap_or("Background")) {
            return Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": {"name": target.name, "group": target.kind.group, "kind": target.kind.plural, "uid": object::uid(&old)}}));
        }
        self.existing(target).map(|object| Value::clone(&object))
    }

    /// DELETE of a collection.
    pub fn delete_all(&mut self, target: &Target, labels: &Labels, fields: &Fields, body: &Value, options: &Options) -> ApiResult {
        let list = self.list(target, labels, fields);
        for item in object::list(&list, "/items") {
            let one = Target { namespace: object::namespace(item).into(), name: object::name(item).into(), ..target.clone() };
            self.delete(&one, body, options)?;
        }
        Ok(list)
    }

    /// Deletes an object, for requests and controllers. Returns whether it is gone at once.
    pub fn delete_object(&mut self, key: &Key, grace: Option<i64>, propagation: &str) -> bool {
        let Some(old) = self.store.get(key) else { return true };
        let mut new = Value::clone(&old);
        match propagation {
            "Foreground" if self.store.has_dependents(object::uid(&old)) => add_finalizer(&mut new, "foregroundDeletion"),
            "Orphan" => self.disown(object::uid(&old)),
            _ => {}
        }
        let immediate = grace == Some(0) && &*key.resource == "pods" || !object::deleting(&new) && self.may_go(key, &new);
        if immediate && !object::has_finalizers(&new) {
            self.remove(key);
            return true;
        }
        if !object::deleting(&new) {
            let seconds = if &*key.resource == "pods" {
                grace.or_else(|| object::number(&new, "/spec/terminationGracePeriodSeconds")).unwrap_or(30)
            } else {
                0
            };
            new["metadata"]["deletionTimestamp"] = json!(self.clock.stamp());
            new["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
            if let Some(generation) = object::number(&new, "/metadata/generation") {
                new["metadata"]["generation"] = json!(generation + 1);
            }
            if &*key.resource == "namespaces" {
                new["status"]["phase"] = json!("Terminating");
            }
        }
        if new != *old {
            self.put(key.clone(), new);
        }
        false
    }

    /// Whether at most finalizers keep the object: it is no running pod and no namespace with contents.
    pub(crate) fn may_go(&self, key: &Key, object: &Value) -> bool {
        match &*key.resource {
            "pods" => text(object, "/spec/nodeName").is_empty() || object::pod_finished(object) || !self.settings.controllers,
            "namespaces" => !self.settings.controllers,
            _ => true,
        }
    }

    /// Removes an owner from its dependents.
    fn disown(&mut self, uid: &str) {
        let dependents: Vec<(Key, Value)> = self.store.dependents(uid).map(|(key, object)| (key.clone(), Value::clone(&object))).collect();
        for (key, mut object) in dependents {
            if let Some(Value::Array(owners)) = object.pointer_mut("/metadata/ownerReferences") {
                owners.retain(|owner| owner["uid"] != uid);
            }
            self.put(key, object);
        }
    }

    /// Eviction: a deletion with grace. Disruption budgets are ignored.
    pub fn evict(&mut self, target: &Target) -> ApiResult {
        let pod = self.existing(target)?;
        if object::deleting(&pod) {
            return Err(ApiError::not_found(&target.kind.resource, &target.name));
        }
        self.delete_object(&target.key(&target.name), None, "Background");
        Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
    }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let meta = object::map_mut(object, &["metadata"]);
    match meta.entry("finalizers").or_insert_with(|| json!([])) {
        Value::Array(list) if !list.iter().any(|f| f == finalizer) => list.push(json!(finalizer)),
        _ => {}
    }
}
