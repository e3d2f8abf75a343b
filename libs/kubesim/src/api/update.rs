//! PUT and PATCH of objects, their status and their scale.

use std::sync::Arc;

use serde_json::{Value, json};

use super::create::check_type;
use super::{ApiResult, Options, PatchType, Target, has_generation, same_spec, scale_of};
use crate::error::ApiError;
use crate::object;
use crate::state::ClusterState;
use crate::{apply, defaults, patch, validation};

/// Metadata that only the server writes.
const FIXED: &[&str] = &["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];

impl ClusterState {
    /// Replaces an object by `body` (PUT).
    pub fn replace(&mut self, target: &Target, mut body: Value, options: &Options) -> ApiResult {
        if target.sub == "scale" {
            return self.rescale(target, |_| Ok(body), options);
        }
        check_type(target, &mut body)?;
        let old = self.existing(target)?;
        match object::name(&body) {
            "" => return Err(ApiError::invalid(&target.kind.kind, "", "metadata.name", "name must be provided")),
            name if name != target.name => {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ({name}) does not match the name on the URL ({})",
                    target.name
                )));
            }
            _ => {}
        }
        self.write(target, &old, body, options, false)
    }

    /// PATCH of every type.
    pub fn patch(&mut self, target: &Target, kind: PatchType, body: Value, options: &Options) -> ApiResult {
        if kind == PatchType::Apply {
            return self.apply(target, body, options);
        }
        if target.sub == "scale" {
            return self.rescale(target, |scale| patch::patched(scale, kind, &body, false), options);
        }
        let old = self.existing(target)?;
        let new = patch::patched(&old, kind, &body, target.kind.custom)?;
        self.write(target, &old, new, options, false)
    }

    fn apply(&mut self, target: &Target, mut body: Value, options: &Options) -> ApiResult {
        if options.manager.is_empty() {
            return Err(ApiError::bad_request(
                "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
            ));
        }
        check_type(target, &mut body)?;
        body["metadata"]["name"] = json!(target.name);
        let now = self.clock.stamp();
        let Some(old) = self.store.get(&target.key(&target.name)) else {
            if !target.sub.is_empty() {
                return Err(target.not_found());
            }
            if !object::text(&body, "/metadata/uid").is_empty() {
                return Err(ApiError::conflict(&target.kind.resource, &target.name, "uid mismatch: the object does not exist"));
            }
            let created = apply::apply(None, body, target, options, &now)?;
            let created = self.prepare(target, created)?;
            return self.finish_create(target, &target.name, created, options.dry_run);
        };
        let merged = apply::apply(Some(&old), body, target, options, &now)?;
        self.write(target, &old, merged, options, true)
    }

    fn rescale(&mut self, target: &Target, change: impl FnOnce(&Value) -> ApiResult, options: &Options) -> ApiResult {
        if !target.kind.scale {
            return Err(ApiError::no_such_resource());
        }
        let old = self.existing(target)?;
        let scale = change(&scale_of(&old))?;
        let mut new = Value::clone(&old);
        new["spec"]["replicas"] = json!(object::number(&scale, "/spec/replicas").unwrap_or(0));
        new["metadata"]["resourceVersion"] = scale["metadata"]["resourceVersion"].clone();
        let whole = Target { sub: String::new(), ..target.clone() };
        Ok(scale_of(&self.write(&whole, &old, new, options, false)?))
    }

    /// Stores the change of an object by a request; all requests use it. `owned`: managed fields are already set.
    pub(super) fn write(&mut self, target: &Target, old: &Arc<Value>, mut new: Value, options: &Options, owned: bool) -> ApiResult {
        let kind = &target.kind;
        let conflict = |why| Err(ApiError::conflict(&kind.resource, &target.name, why));
        match object::text(&new, "/metadata/resourceVersion") {
            "" => {}
            version if version != object::text(old, "/metadata/resourceVersion") => {
                return conflict("the object has been modified; please apply your changes to the latest version and try again");
            }
            _ => {}
        }
        if !matches!(object::uid(&new), "") && object::uid(&new) != object::uid(old) {
            return conflict(&format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                object::uid(&new),
                object::uid(old)
            ));
        }
        if target.sub == "status" {
            new = with_status_only(old, &new);
        } else if kind.status {
            restore(&mut new, old, "status");
        }
        let meta = object::map_mut(&mut new, &["metadata"]);
        for field in FIXED.iter().chain(&["resourceVersion"]) {
            match old["metadata"].get(*field) {
                Some(value) => drop(meta.insert((*field).into(), value.clone())),
                None => drop(meta.remove(*field)),
            }
        }
        new["kind"] = old["kind"].clone();
        new["apiVersion"] = old["apiVersion"].clone();
        if target.sub.is_empty() {
            defaults::carry(kind, old, &mut new);
            defaults::apply(kind, &mut new);
            validation::object(kind, &new)?;
            validation::change(kind, old, &new)?;
        }
        if has_generation(kind) && !same_spec(kind, old, &new) {
            let generation = object::number(old, "/metadata/generation").unwrap_or(0);
            new["metadata"]["generation"] = json!(generation + 1);
        }
        if !owned && !options.manager.is_empty() {
            apply::record_update(old, &mut new, target, options, &self.clock.stamp());
        }
        if new == **old || options.dry_run {
            return Ok(new);
        }
        let key = target.key(&target.name);
        if object::deleting(&new) && !object::has_finalizers(&new) && self.may_go(&key, &new) {
            self.remove(&key);
            return Ok(new);
        }
        Ok(Value::clone(&self.put(key, new)))
    }
}

fn restore(new: &mut Value, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => new[field] = value.clone(),
        None => drop(object::remove(new, &[], field)),
    }
}

/// A write of `/status` changes the status and neither labels nor annotations.
fn with_status_only(old: &Value, new: &Value) -> Value {
    let mut result = old.clone();
    match new.get("status") {
        Some(status) => result["status"] = status.clone(),
        None => drop(object::remove(&mut result, &[], "status")),
    }
    if let Some(managers) = new.pointer("/metadata/managedFields") {
        result["metadata"]["managedFields"] = managers.clone();
    }
    result
}
