//! Namespaces: creates the default service account, and deletes the contents of a namespace that is being deleted.

use serde_json::{Value, json};

use crate::key::Key;
use crate::object;
use crate::state::ClusterState;

pub fn reconcile(state: &mut ClusterState, key: &Key, namespace: &Value) {
    if object::deleting(namespace) {
        empty(state, key);
        return;
    }
    let account = Key::new(&"serviceaccounts".into(), &key.name, "default");
    if !state.store.has(&account) {
        let now = state.clock.stamp();
        let uid = uuid::Uuid::new_v4().to_string();
        state.put(
            account,
            json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": &*key.name, "uid": uid, "creationTimestamp": now}}),
        );
    }
}

fn empty(state: &mut ClusterState, key: &Key) {
    let contents: Vec<Key> = state.store.all().filter(|k| k.namespace == key.name).cloned().collect();
    let mut left = false;
    for inside in contents {
        let waiting = state.store.get(&inside).is_some_and(|o| object::deleting(&o));
        left |= waiting || !state.delete_object(&inside, None, "Background");
    }
    let done = state.store.get(key).is_some_and(|namespace| !object::has_finalizers(&namespace));
    if !left && done {
        state.remove(key);
    }
}
