//! Garbage: dependents whose owners are gone, and foreground deletion.

use serde_json::{Value, json};

use crate::key::Key;
use crate::object::{self, list, text};
use crate::state::ClusterState;

/// The object with this uid is gone or never was: deletes dependents that have no other owner.
pub fn collect(state: &mut ClusterState, uid: &str) {
    if state.store.key_of(uid).is_some() {
        return;
    }
    let dependents: Vec<(Key, bool)> = state
        .store
        .dependents(uid)
        .map(|(key, object)| {
            let owned = list(&object, "/metadata/ownerReferences").iter().any(|o| state.store.key_of(text(o, "/uid")).is_some());
            (key.clone(), owned)
        })
        .collect();
    for (key, owned) in dependents {
        if !owned {
            state.delete_object(&key, None, "Background");
        }
    }
}

/// Deletes the dependents of an object that waits for them, and lets it go when none is left.
pub fn foreground(state: &mut ClusterState, key: &Key, object: &Value) {
    let dependents: Vec<Key> = state.store.dependents(object::uid(object)).map(|(key, _)| key.clone()).collect();
    if !dependents.is_empty() {
        for dependent in dependents {
            state.delete_object(&dependent, None, "Foreground");
        }
        return;
    }
    let mut new = object.clone();
    let left: Vec<Value> = list(object, "/metadata/finalizers").iter().filter(|f| *f != "foregroundDeletion").cloned().collect();
    if left.is_empty() {
        state.remove(key);
    } else {
        new["metadata"]["finalizers"] = json!(left);
        state.put(key.clone(), new);
    }
}
