//! POST: identity, defaults, validation, admission, ownership.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{ApiResult, Options, Target, has_generation};
use crate::apply;
use crate::error::ApiError;
use crate::key::Key;
use crate::object::{self, text};
use crate::state::ClusterState;
use crate::{defaults, quota, validation};

const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Five random characters, like the ones that `generateName` appends.
pub fn random_suffix() -> String {
    (0..5).map(|_| char::from(SUFFIX[rand::random_range(0..SUFFIX.len())])).collect()
}

impl ClusterState {
    /// Creates the object of a request.
    pub fn create(&mut self, target: &Target, body: Value, options: &Options) -> ApiResult {
        let mut object = self.prepare(target, body)?;
        let name = object::name(&object).to_string();
        if !options.manager.is_empty() {
            apply::record_create(&mut object, target, options, &self.clock.stamp());
        }
        self.finish_create(target, &name, object, options.dry_run)
    }

    /// Stores an object whose identity and managed fields are set.
    pub(super) fn finish_create(&mut self, target: &Target, name: &str, object: Value, dry_run: bool) -> ApiResult {
        let key = target.key(name);
        if self.store.has(&key) {
            return Err(ApiError::already_exists(&target.kind.resource, name));
        }
        if &*key.resource == "pods" {
            quota::admit(self, &object)?;
        }
        if dry_run {
            return Ok(object);
        }
        Ok(Value::clone(&self.put(key, object)))
    }

    /// Creates an object for a controller, without validation and managed fields.
    ///
    /// # Errors
    /// 409 when the name exists, 403 when a quota refuses a pod.
    pub fn create_owned(&mut self, key: Key, mut object: Value, owner: &Value) -> Result<Arc<Value>, ApiError> {
        object["metadata"]["name"] = json!(&*key.name);
        object["metadata"]["namespace"] = json!(&*key.namespace);
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": object::name(owner), "uid": object::uid(owner),
            "controller": true, "blockOwnerDeletion": true}]);
        if let Some(kind) = self.kind_of(&key.resource).cloned() {
            object["kind"] = json!(kind.kind);
            object["apiVersion"] = json!(kind.api_version());
            defaults::apply(&kind, &mut object);
            self.identify(&mut object, has_generation(&kind));
        }
        if &*key.resource == "pods" {
            quota::admit(self, &object)?;
        }
        if self.store.has(&key) {
            return Err(ApiError::already_exists(&key.resource, &key.name));
        }
        Ok(self.put(key, object))
    }

    fn identify(&self, object: &mut Value, generation: bool) {
        let meta = object::map_mut(object, &["metadata"]);
        meta.insert("uid".into(), json!(Uuid::new_v4().to_string()));
        meta.insert("creationTimestamp".into(), json!(self.clock.stamp()));
        if generation {
            meta.insert("generation".into(), json!(1));
        }
    }

    /// Everything between the body and the store, except the ownership of fields.
    pub(super) fn prepare(&mut self, target: &Target, mut object: Value) -> ApiResult {
        let kind = &target.kind;
        check_type(target, &mut object)?;
        let meta = object::map_mut(&mut object, &["metadata"]);
        for system in
            ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"]
        {
            meta.remove(system);
        }
        if kind.namespaced {
            match meta.get("namespace").and_then(Value::as_str) {
                Some(ns) if ns != target.namespace => {
                    return Err(ApiError::bad_request(format!(
                        "the namespace of the provided object does not match the namespace sent on the request ({ns} != {})",
                        target.namespace
                    )));
                }
                _ => meta.insert("namespace".into(), json!(target.namespace)),
            };
        } else {
            meta.remove("namespace");
        }
        if meta.get("name").and_then(Value::as_str).unwrap_or("").is_empty()
            && let Some(prefix) = meta.get("generateName").and_then(Value::as_str)
        {
            let name = format!("{prefix}{}", random_suffix());
            meta.insert("name".into(), json!(name));
        }
        self.identify(&mut object, has_generation(kind));
        // A simulated node brings its own allocatable resources; the status of every other kind is set by controllers.
        if kind.status && &*kind.resource != "nodes" {
            object::remove(&mut object, &[], "status");
        }
        defaults::apply(kind, &mut object);
        validation::object(kind, &object)?;
        if kind.namespaced {
            self.namespace_accepts(target, object::name(&object))?;
        }
        if text(&object, "/kind") == "Pod" {
            object["status"]["phase"] = json!("Pending");
        }
        Ok(object)
    }

    fn namespace_accepts(&self, target: &Target, name: &str) -> Result<(), ApiError> {
        let key = Key::new(&"namespaces".into(), "", &target.namespace);
        let namespace = self.store.get(&key).ok_or_else(|| ApiError::not_found("namespaces", &target.namespace))?;
        if !object::deleting(&namespace) {
            return Ok(());
        }
        let ns = &target.namespace;
        let why = format!("unable to create new content in namespace {ns} because it is being terminated");
        let mut refusal = ApiError::forbidden(&target.kind.resource, name, why);
        refusal.details = json!({"name": name, "kind": target.kind.plural, "causes": [{"reason": "NamespaceTerminating",
            "message": format!("namespace {ns} is being terminated"), "field": "metadata.namespace"}]});
        Err(refusal)
    }
}

/// Fills in `kind` and `apiVersion`, or refuses those of another kind.
pub(super) fn check_type(target: &Target, object: &mut Value) -> Result<(), ApiError> {
    if !object.is_object() {
        return Err(ApiError::bad_request("the body of the request is not an object"));
    }
    let (kind, version) = (target.kind.kind.as_str(), target.kind.api_version());
    for (field, want) in [("kind", kind), ("apiVersion", version.as_str())] {
        match object[field].as_str() {
            Some(got) if !got.is_empty() && got != want => {
                return Err(ApiError::bad_request(format!("the {field} in the data ({got}) does not match the expected {field} ({want})")));
            }
            _ => object[field] = json!(want),
        }
    }
    Ok(())
}
