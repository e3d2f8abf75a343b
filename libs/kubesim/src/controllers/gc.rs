//! Garbage collection: dependents whose owners are gone, and foreground deletion.

use serde_json::{Value, json};

use crate::key::Key;
use crate::object::{self, list, text};
use crate::state::ClusterState;

/// Deletes the dependents of this uid that have no other owner, if no object has the uid.
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

/// Deletes the dependents of an object that waits for them, and then the object.
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
